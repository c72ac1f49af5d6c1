/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher.h - what to prefetch: the interface behind which each algorithm stands.
 *
 * One prefetcher a file, found by name.  It is told of every access together with the
 * stream (the sequence of a context) that it extends and its outcome, and of what
 * became of each prefetched block; it is asked for candidates.  It does no I/O (but the
 * rule cache may have files), starts no threads and reads no clock.
 *
 * Threads.  Calls that name the same stream must be serialized by the caller; calls for
 * different streams, learn(), discard(), ended(), extents() and stats() may run in
 * parallel with everything.  learn() is the expensive call and belongs on a thread of
 * its own.
 */
#ifndef QM_PREFETCHER_H
#define QM_PREFETCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qm_prefetcher; /* one per device, made by ops->create() */
struct qm_stream;     /* one per context that has a sequence */
struct qm_work;       /* something to learn from; owned by its holder */

enum {
    QM_CANDIDATES_MAX = 64, /* of one call of candidates() */
    QM_RANGE_MAX = 4096,    /* blocks of a candidate; the caller cuts a longer one */
};

/* Block numbers are below: 2^48 blocks of 4 KiB are 1 EiB.  Others are not shown to
 * prefetchers, nor prefetched. */
#define QM_BLOCKS_MAX (UINT64_C(1) << 48)

/* The probability of a candidate of which the prefetcher cannot say how likely it is.
 */
#define QM_PROBABILITY_UNKNOWN (-1.0f)

/* Where it is not known what a read costs. */
#define QM_PRICE_UNKNOWN (-1.0f)

/* What should be prefetched: adjacent blocks, which make one read of the device. */
struct qm_candidate {
    uint64_t block;    /* the first */
    uint32_t count;    /* 1 or more */
    float probability; /* that a block of it will be read soon, 0 to 1; or
                          QM_PROBABILITY_UNKNOWN */
    bool stream;       /* ahead of a reader that is at it: how much of that is used is
                          watched by the prefetcher, stream by stream, so it is not
                          throttled by class */
};

/* Adjacent blocks of a file. */
struct qm_extent {
    uint64_t block, count;
};

#define QM_RETRAIN_MAX UINT64_C(100000000)

/* Of the lookahead, in accesses. */
#define QM_LOOKAHEAD_MIN 2
#define QM_LOOKAHEAD_MAX 64

/* Of policy quickmine's rules: no smaller pool works with Berkeley DB (its own limit is
 * 20 kB). */
#define QM_POOL_MIN (UINT64_C(64) << 10)
#define QM_POOL_MAX (UINT64_C(64) << 30)

/* Owners are numbers below, see own(); 0 is nobody. */
enum { QM_OWNERS = 16 };

/* How an access ended, in the words of ATC'08 §3.1. */
enum qm_access {
    QM_ACCESS_HIT,
    QM_ACCESS_EARLY_HIT, /* one of the first on a block since it came (cache.h) */
    QM_ACCESS_PREFETCH_HIT,
    QM_ACCESS_MISS,
};

static inline bool qm_access_is_hit(enum qm_access access)
{
    return access == QM_ACCESS_HIT || access == QM_ACCESS_EARLY_HIT;
}

/* What became of a prefetched block. */
enum qm_fate {
    QM_FATE_USED,   /* demanded when it was there */
    QM_FATE_LATE,   /* demanded while it was still being read, so somebody waited */
    QM_FATE_UNUSED, /* it left undemanded */
};

/* Where a block lies that is to be read. */
enum qm_place {
    QM_PLACE_MEMORY,  /* it is cached */
    QM_PLACE_TIER,    /* on a second tier of caching */
    QM_PLACE_BACKEND, /* on the device itself */
    QM_PLACES
};

/* Parts of policy ppm that can be left out, to measure what each is worth. */
enum qm_ablation {
    QM_ABLATE_TWO = 1 << 0, /* pairs of two blocks and a third */
    QM_ABLATE_CONFIDENCE =
        1 << 1,                   /* learned probabilities; without, shares of counts */
    QM_ABLATE_WATCH = 1 << 2,     /* learning from what was not prefetched */
    QM_ABLATE_THRESHOLD = 1 << 3, /* a threshold that moves */
    QM_ABLATE_LOOKAHEAD = 1 << 4, /* looking further than a step ahead */
    QM_ABLATE_MISSES = 1 << 5,    /* passing over hits */
    QM_ABLATE_ACCURACY =
        1 << 6,              /* an accuracy that follows what the device has to read */
    QM_ABLATE_AGES = 1 << 7, /* when blocks were read last */
    QM_ABLATE_STATEMENTS = 1 << 8, /* going on behind a transaction's last statement */
};

/* The flag of that name ("two", "confidence", ...), or 0; and all names, for
 * messages. */
unsigned qm_ablation_find(const char *name);
const char *qm_ablation_names(void);

struct qm_mining_config {
    unsigned lookahead;  /* G, in accesses; 2 to 64; the paper's 5 */
    uint64_t max_prefix; /* prefixes kept, least recently used goes; 0: all */
    unsigned max_suffix; /* suffixes kept a prefix, least frequent goes; 0: all */
    unsigned grace;      /* a new suffix is safe for that many updates of its prefix; at
                            most 65535.  With max_suffix - degree or more, blocks that are
                            seen once can drive out the candidates */
    unsigned degree;     /* candidates an access at most; 1 to 64; the paper's 4 */
    uint64_t segment;    /* blocks after which a growing sequence is mined in passing;
                            0: only at its end, and nothing bounds how long it grows */
    bool skip_hits; /* learn nothing from hits that no miss or prefetch hit is near:
                       what is cached was learned from when it came, and a reader
                       that is served from the cache costs no mining.  A prefetcher
                       that mines off-line, or in passing, need not heed it */
    uint64_t rules_pool; /* bytes of memory for rules in Berkeley DB and in front of it
                            (rules-store.h); 64 KiB to 64 GiB; the paper's 4 MiB.  What
                            does not fit is in a temporary file */
    uint64_t rules_memory; /* bytes that the rules of a prefetcher that keeps them in a
                              table of its own may take, all included; 64 KiB to 1 TiB,
                              or 0: 16 MiB */
    bool beside;           /* another prefetcher's blocks end, too, which it is told
                              of as of its own: not all are by its rules */
    uint64_t rules_most;   /* that they may be given later, by set_memory(); addresses
                              are reserved for them.  Less than rules_memory: that */

    /* Whether a block is cached, as far as is known at the moment; called from access()
     * and candidates().  NULL: nobody knows. */
    bool (*cached)(void *opaque, uint64_t block);
    /* Blocks that the device was read for until now, and that it would have been
     * without prefetching, with an LRU cache of the same size, about; called from
     * candidates() now and then.  NULL: nobody knows. */
    void (*reads)(void *opaque, uint64_t *device, uint64_t *lru);
    /* Where a block lies; called from access() and candidates().  NULL: what is not
     * cached lies on the device. */
    enum qm_place (*place)(void *opaque, uint64_t block);
    /* How long a read from there takes: until it begins, and for each byte; in
     * nanoseconds.  False: not known yet.  Called from candidates().  NULL: nobody
     * knows. */
    bool (*speed)(void *opaque, enum qm_place place, double *begin_ns, double *byte_ns);
    /* How probable the use of a block must be for its read to be worth it now, 0 to 1,
     * or QM_PRICE_UNKNOWN; called from candidates().  NULL: nobody knows.  Then the
     * prefetcher keeps the reads of the device few by itself. */
    float (*threshold)(void *opaque);
    /* blocks: what the windows of the streams that are being read have together, for
     * which the cache should keep place; called from access() and candidates().  NULL:
     * the cache divides its blocks by itself. */
    void (*reserve)(void *opaque, uint64_t blocks);
    /* The present capacity of the cache, in blocks; called from access() and
     * candidates().  NULL: it is cache_blocks, always. */
    uint64_t (*capacity)(void *opaque);
    void *opaque; /* for these seven */

    const char *rules_dir; /* where the rules are kept (made if it does not exist, but
                              not its parent); NULL: in memory */
    const char *rules_for; /* what device they are of; other rules are set aside.  NULL:
                              any; at most 4096 bytes */
    uint64_t block_size;   /* bytes; rules of another are set aside.  0: any */
    uint64_t cache_blocks; /* of the cache that is prefetched into, at first; 0: not
                              known */
    uint64_t purge_after;  /* units of the caller's clock, see purge(); 0: never */
    const char *trained;   /* a file of rules mined off-line, of a prefetcher that does
                              not learn while it runs; NULL: none.  It is read in
                              create() */
    unsigned ablate;       /* of enum qm_ablation; 0: nothing is left out.  For
                              comparisons */
    const char *readahead_preset; /* a published scheme that policy readahead follows
                                     instead: "linux" or "device-aware"; NULL or "none":
                                     none */
    unsigned readahead_cap;       /* KiB: its largest window; of "device-aware": */
    unsigned readahead_cap_disk, readahead_cap_ssd;
    uint64_t retrain; /* accesses after which a prefetcher that learns now and then
                         does, at most QM_RETRAIN_MAX; 0: its default */
};

/* The defaults, and those of --preset paper.
 *
 * The defaults are the paper's, with bounds.  262,144 prefixes: a recorded TPC-C run
 * missed 0.417 of its reads with 100,000 and 0.383 with all 554,000; they take 12 MB
 * for their order of use and some 5 MB of records, for which the pool has room.  8
 * suffixes with a grace of 3: one that enters and at most 3 in their grace period leave
 * 4 (the degree) that stay, however many blocks are seen only once.
 *
 * With the paper preset all rules are kept, and a sequence is mined at its end only. */
void qm_mining_defaults(struct qm_mining_config *config);
void qm_mining_paper(struct qm_mining_config *config);

/* What rules_memory is by default beside a cache of cache_bytes: an eighth of them. */
uint64_t qm_mining_rules_memory(uint64_t cache_bytes);

/* Returns 0, or EINVAL with one sentence in err that says what is allowed. */
int qm_mining_check(const struct qm_mining_config *config, char *err, size_t len);

struct qm_mining_stats {
    uint64_t rules;       /* prefix-suffix pairs held */
    uint64_t prefixes;    /* prefixes held */
    uint64_t rules_bytes; /* that they take: records in the pool and in the temporary
                             file, and the order of use in memory */
    uint64_t rules_limit; /* bytes that they may come to take at present; 0: no
                             prefetcher with such a bound */
    uint64_t marginal;    /* prefetch hits that the last eighth of these bytes brought:
                             of rules that would be the next to go */
    uint64_t sequences;   /* learned from, those mined in passing each time */
    uint64_t updates;     /* supports added */
    uint64_t lookups;     /* candidates() that had a prefix to look up */
    uint64_t matches;     /* of these, found */
    uint64_t evicted;     /* prefixes that max_prefix or purge() removed */
    uint64_t failed;      /* learn() that ended in an error */
    uint64_t busy;        /* look-ups given up because the rule cache was busy */
    uint64_t saves;       /* of the rules to rules_dir */
    uint64_t save_errors; /* saves that failed: those saved before are still there */
};

struct qm_rule {
    uint64_t a, b, c; /* a & b -> c */
    uint64_t support;
};

/* A block alone, of which no probability is known. */
static inline struct qm_candidate qm_candidate_of(uint64_t block)
{
    return (struct qm_candidate){
        .block = block, .count = 1, .probability = QM_PROBABILITY_UNKNOWN};
}

/* Properties of a prefetcher, for its callers. */
enum qm_prefetcher_flag {
    /* The engine asks it for candidates after every access, hits too: it keeps track of
     * what it asked for, and must see its reader pass.  Without this flag it is asked
     * on a miss, and on a prefetch hit (and early hits, see QM_EARLY_HITS) if the
     * parameters say so. */
    QM_ASK_ALWAYS = 1 << 0,
    /* The engine does not tell it of hits (unless QM_ABLATE_MISSES is set): a hit
     * then costs no call and no lock. */
    QM_NO_HITS = 1 << 1,
    /* The same, but for early hits: it is told of these, and asked where it is asked
     * after prefetch hits. */
    QM_EARLY_HITS = 1 << 6,
    /* It asks config.reads, so the cache keeps the shadow that knows (engine/params.h).
     */
    QM_WEIGHS_READS = 1 << 2,
    /* Its rules never take more than config.rules_memory, so the simulator can divide a
     * total of memory between them and the cache. */
    QM_BOUNDED_RULES = 1 << 3,
    /* Some of its candidates are of streams, see struct qm_candidate. */
    QM_STREAMS = 1 << 4,
    /* Its paper, or description, knows blocks and no requests: the engine leaves it
     * those candidates, too, that the request of its reader is about to read itself. */
    QM_BLOCK_BY_BLOCK = 1 << 5,
};

struct qm_prefetcher_ops {
    const char *name;
    const char *summary; /* one line, for --help */

    unsigned flags;      /* of enum qm_prefetcher_flag */
    uint32_t parameters; /* that it heeds: QM_HEEDS() of each, or-ed (parameters.h) */

    /* Makes one.  Returns 0; or an errno value, with one sentence in err.  A warning
     * that does not stop it (rules set aside) leaves 0 and a sentence in err, else err
     * is "". */
    int (*create)(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len);
    /* All streams ended.  Returns 0, or an errno value if there is a rules_dir and the
     * rules could not be saved: those saved before are still there. */
    int (*destroy)(struct qm_prefetcher *p);

    /* A sequence begins; klass is the context's class.  NULL if memory is out. */
    struct qm_stream *(*begin)(struct qm_prefetcher *p, uint32_t klass);

    /* The stream's context read block.  *work is NULL, or something to learn from. */
    void (*access)(struct qm_prefetcher *p, struct qm_stream *stream, uint64_t block,
                   enum qm_access outcome, struct qm_work **work);

    /* Fills in at most max candidates (max is 1 to QM_CANDIDATES_MAX), the likeliest
     * first, no block twice; returns how many.  Blocks that are cached, and where the
     * device ends, are not known here: the caller skips those.  It may also take less
     * than it was given, from the first on. */
    unsigned (*candidates)(struct qm_prefetcher *p, struct qm_stream *stream,
                           struct qm_candidate *candidates, unsigned max);

    /* Of a candidate of a stream, the blocks from block on, count of them, were not
     * issued: there was no room for them, or the device was busy.  NULL: it does not
     * matter. */
    void (*refused)(struct qm_prefetcher *p, uint64_t block, uint32_t count);

    /* The sequence ends and the stream is gone.  *work as in access(). */
    void (*end)(struct qm_prefetcher *p, struct qm_stream *stream,
                struct qm_work **work);

    /* Learns from work, and consumes it.  Returns 0 or an errno value (rule cache).
     * Each (i, j, k) of miner.h is one update, in lexicographic order. */
    int (*learn)(struct qm_prefetcher *p, struct qm_work *work);
    void (*discard)(struct qm_prefetcher *p, struct qm_work *work);

    /* The next access is to the first of `count` blocks that are read by one request,
     * or to the first of them that is not a hit.  NULL: it does not matter. */
    void (*request)(struct qm_stream *stream, uint32_t count);

    /* How many blocks a stream keeps until they are mined: it grows with its reader,
     * and the server, which bounds that, ends it early.  At most one more with each
     * access.  NULL: streams do not grow. */
    size_t (*kept)(const struct qm_stream *stream);

    /* Both or neither, for prefetchers that divide what they have by owner, so that
     * owners that are there do not make each other forget.  The server says whose a
     * stream is that has just begun (until then it is nobody's), and, when that
     * changes, which owners are there: 1 << owner for each. */
    void (*own)(struct qm_stream *stream, unsigned owner);
    void (*owners)(struct qm_prefetcher *p, unsigned there);

    /* The stream goes on where another one of this prefetcher is, of another class
     * perhaps: what it reads next follows what that one has read last, unless that has
     * read nothing since it was resumed itself.  Called when a stream has begun, before
     * own(), and for that which it was resumed from when it ends; never during another
     * call for either.  NULL: sequences have nothing to do with each other. */
    void (*resume)(struct qm_stream *stream, const struct qm_stream *other);

    /* Sets how many candidates an access has at most; no other call is in progress but
     * learn().  NULL: there is no such number, or it cannot change. */
    void (*set_degree)(struct qm_prefetcher *p, unsigned degree);

    /* Saves the rules to config.rules_dir if they have changed since they were last
     * saved.  It takes as long as writing all of them, and keeps no reader waiting; one
     * call at a time.  Returns 0, or an errno value: then those saved before are still
     * there, and the next call tries again.  NULL if there is nothing to save. */
    int (*save)(struct qm_prefetcher *p);

    /* Count blocks from block on were trimmed: rules that lead to them go, or propose
     * none of them until it is read again.  Bounded in time, whatever count is, and it
     * keeps no reader waiting.  NULL: there is nothing to forget. */
    void (*forget)(struct qm_prefetcher *p, uint64_t block, uint64_t count);

    /* Somebody says that a file has these n extents, in this order; if the first is the
     * end of the last that was said before, the file is the same.  It need not be true.
     * NULL: it does not matter. */
    void (*extents)(struct qm_prefetcher *p, const struct qm_extent *extents,
                    unsigned n);

    /* Whether a rule says that block may follow what the stream read last, however
     * likely that is.  For analyses, before access(); NULL: it cannot say. */
    bool (*knows)(struct qm_prefetcher *p, const struct qm_stream *stream,
                  uint64_t block);

    /* What became of a prefetched block: issuer and user are classes (user: 0 if it was
     * not used). */
    void (*ended)(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                  uint32_t user, enum qm_fate fate);

    /* Changes config.rules_memory, to at most config.rules_most.  If the rules take
     * more, they go in their usual order, and their memory is the system's again.  Of
     * next to nothing, all that was learned goes, and nothing is proposed.  One call at
     * a time.  NULL: it cannot be changed. */
    void (*set_memory)(struct qm_prefetcher *p, uint64_t bytes);

    /* Removes rules not used for config.purge_after, by the caller's clock (any unit).
     * When a rule was used is known as precisely as this is called often. */
    int (*purge)(struct qm_prefetcher *p, uint64_t now);

    void (*stats)(struct qm_prefetcher *p, struct qm_mining_stats *stats);

    /* Calls each() for every rule, sorted by a, b, c, until it returns non-zero.
     * Returns that, 0, or a negative errno value.  NULL if the prefetcher has no rules.
     */
    int (*rules)(struct qm_prefetcher *p,
                 int (*each)(void *opaque, const struct qm_rule *rule), void *opaque);
};

/* Every instance begins with its operations. */
struct qm_prefetcher {
    const struct qm_prefetcher_ops *ops;
};

/* The prefetcher of that name ("none", "quickmine", ...), or NULL; and all names,
 * separated by ", ", for messages. */
const struct qm_prefetcher_ops *qm_prefetcher_find(const char *name);
const char *qm_prefetcher_names(void);

#endif
