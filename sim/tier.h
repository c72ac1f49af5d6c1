/* SPDX-License-Identifier: BSD-3-Clause */
/* tier.h - the second tier of a simulation, below the cache.
 *
 * Blocks get to it and come from it as in server/tier.c: the cache hands over what it
 * evicts, a miss and a prefetch look here before they go to the backend, and a write
 * drops the tier's copy or brings a new one.  What is asked is tier/, without data and
 * without threads: its index, admission, segments and rewriting are the server's, and
 * so are the counts. For comparison there are also a plain LRU list over a file of the
 * same size; the same filled as Linux's bcache does by default, with what is read from
 * the backend, but not beyond the first 4 MiB of a sequential run; and the caller's own
 * (qm_sim_tier_ops).
 *
 * What differs from a server: nothing waits in a queue (blocks are written one by one,
 * so blocks below 4 KiB take a page each), and there are no flushes, so regions that
 * were written to stay marked.  Only a crash would show that.
 */
#ifndef QM_SIM_TIER_H
#define QM_SIM_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qm_device_config;
struct qm_sim_tier;

/* admit: beside the server's "auto", "all" and "none". */
#define QM_SIM_TIER_LRU    "lru"
#define QM_SIM_TIER_BCACHE "bcache"

/* Since the simulation began. */
struct qm_sim_tier_counts {
    uint64_t lookups, hits;    /* blocks, of demands and of prefetches */
    uint64_t inserted;         /* blocks that were admitted */
    uint64_t kept;             /* hot blocks that stayed when others left */
    uint64_t refused;          /* evicted blocks that were not admitted */
    uint64_t invalidated;      /* blocks dropped by writes */
    uint64_t bytes_written;    /* metadata included */
    uint64_t blocks, capacity; /* now; not counted */
};

struct qm_sim_tier_config;

/* A tier of the caller's: another cache, to compare with.  One thread at a time.
 *
 * A shared object that `quickmine sim --tier-admit` loads has one of them under the
 * name of QM_SIM_TIER_SYMBOL. */
#define QM_SIM_TIER_SYMBOL "qm_sim_tier_other"

struct qm_sim_tier_ops {
    /* Makes the cache of a simulation, of config->size bytes; what it returns is opaque
     * of the others.  NULL, with a sentence in err: it cannot.  If there is no open,
     * config->opaque is. */
    void *(*open)(const struct qm_sim_tier_config *config, uint64_t block_size,
                  char *err, size_t len);
    void (*close)(void *opaque); /* with open */
    /* Whether block is there.  ahead: for a prefetch. */
    bool (*read)(void *opaque, uint64_t block, bool ahead);
    void (*evicted)(void *opaque, uint64_t block); /* from memory */
    void (*changed)(void *opaque, uint64_t block); /* written to */
    void (*counts)(void *opaque, struct qm_sim_tier_counts *counts);
    /* As read(), but counts as nothing.  NULL: nobody knows. */
    bool (*has)(void *opaque, uint64_t block);
};

struct qm_sim_tier_config {
    uint64_t size;       /* bytes, metadata included; 0: there is no tier */
    const char *admit;   /* see above; NULL: "auto" */
    uint64_t write_rate; /* bytes a day of the trace's time; 0: no bound */
    uint64_t volume;     /* bytes: where the trace's last request ends */
    const struct qm_device_config *device; /* what it lies on, if time is simulated */
    const struct qm_sim_tier_ops *own;     /* instead of the others; else NULL.  What
                                              admit says is then for it */
    void *opaque;                          /* of own */
};

/* The words for admit, separated by ", ". */
const char *qm_sim_tier_words(void);
bool qm_sim_tier_is_word(const char *admit);

/* Returns 0, or EINVAL or ENOMEM with a sentence in err. */
int qm_sim_tier_new(const struct qm_sim_tier_config *config, uint64_t block_size,
                    struct qm_sim_tier **tier, char *err, size_t len);
void qm_sim_tier_free(struct qm_sim_tier *tier); /* NULL is fine */

/* It is ns now: by the trace, or by the virtual clock. */
void qm_sim_tier_time(struct qm_sim_tier *tier, uint64_t ns);

bool qm_sim_tier_read(struct qm_sim_tier *tier, uint64_t block, bool ahead);
/* Block has come from the backend with others, without having been asked for here. */
void qm_sim_tier_came(struct qm_sim_tier *tier, uint64_t block);
/* Whether block is there; counts as nothing. */
bool qm_sim_tier_has(struct qm_sim_tier *tier, uint64_t block);
/* A prefetch of block was used. */
void qm_sim_tier_used(struct qm_sim_tier *tier, uint64_t block);
/* As the cache's leaving() and evicted(). */
uint64_t qm_sim_tier_ticket(struct qm_sim_tier *tier);
void qm_sim_tier_evicted(struct qm_sim_tier *tier, uint64_t block, uint64_t ticket);
/* Bytes were written. */
void qm_sim_tier_changed(struct qm_sim_tier *tier, uint64_t offset, uint64_t count);

void qm_sim_tier_counts(struct qm_sim_tier *tier, struct qm_sim_tier_counts *counts);

#endif
