/* SPDX-License-Identifier: BSD-3-Clause */
/* cminer.h - C-Miner*: rules between blocks, mined off-line from frequent sequences.
 *
 * Li et al., FAST'04 and ACM ToS 1(2), 2005; as ATC'08 §5.1 and §6.2 use it.  The
 * accesses are cut into segments, which do not overlap: the sequence database.  A
 * sequence of blocks is *contained* in a segment if its blocks were read there in this
 * order, within a window of max_gap accesses: with w its first access and z its last,
 * z - w < max_gap, which is what the miner of ATC'08 calls its lookahead (miner.h). Its
 * *support* is the number of segments that contain it; it is frequent with min_support
 * or more, and closed if no longer sequence that contains it has the same support.  A
 * rule {a1 & ... & a(k-1)} -> ak of a frequent sequence has the confidence
 * support(a1 ... ak) / support(a1 ... a(k-1)), and is kept with min_confidence or more.
 *
 * What is mined here, and why it is the same.  The papers mine the closed sequences
 * (CloSpan), since these are fewer, and generate the rules of each and of its
 * subsequences.  Closedness loses nothing: every frequent sequence is part of a closed
 * one with the same support (or it would be closed itself), so the rules of the closed
 * sequences with their subsequences are the rules of all frequent sequences, with the
 * same supports.  The number of sequences explodes with their length (a window of 10
 * accesses holds 1023), so rules are bounded: at most two blocks in a prefix.  Then the
 * supports of the sequences of one, two and three blocks are all that it takes, and
 * they are counted, by sorting, without searching for closed ones.
 *
 * Sequences hold no block twice, as in the rules of policy quickmine: a rule that has
 * its suffix in its prefix would prefetch what was just read.  And a segment is a piece
 * of one context's sequence: where the trace is de-tangled (§6.2), the pieces of
 * different contexts do not share a segment, for what two contexts read one after the
 * other is the very correlation that de-tangling is to avoid.
 *
 * Pure: no I/O, no locks.  A database belongs to one thread at a time.
 */
#ifndef QM_CMINER_H
#define QM_CMINER_H

#include <stddef.h>
#include <stdint.h>

#define QM_CMINER_GAP_MIN     2
#define QM_CMINER_GAP_MAX     64
#define QM_CMINER_SEGMENT_MIN 2
#define QM_CMINER_SEGMENT_MAX 65536
#define QM_CMINER_MEMORY_MIN  ((size_t)1 << 16)

struct qm_cminer_config {
    unsigned max_gap;        /* accesses of the window; QM_CMINER_GAP_MIN to _MAX */
    unsigned segment;        /* accesses of a segment at most; see above for limits */
    uint32_t min_support;    /* segments; from 1 */
    unsigned min_confidence; /* percent; 0: no pruning; at most 100 */
    size_t memory;           /* bytes for what is counted at a time, see
                                qm_cminer_mine(); at least QM_CMINER_MEMORY_MIN */
};

/* ATC'08 §5.1: max_gap 10, min_support 1, min_confidence 10 %.  It does not say how
 * long a segment is.  Ours has 100 accesses: of the pairs within the window, a cut
 * every 100 accesses separates one in twenty.  64 MiB: more brought no speed. */
void qm_cminer_defaults(struct qm_cminer_config *config);

/* Returns 0, or EINVAL with one sentence in err that says what is allowed. */
int qm_cminer_check(const struct qm_cminer_config *config, char *err, size_t len);

/* The sequence database.  First segments are added; then qm_cminer_number() gives the
 * blocks numbers; then it is mined, as often as one likes. */
struct qm_cminer_db {
    uint64_t *accesses; /* while segments are added: the blocks */
    uint32_t *numbers;  /* after that: the number of each block */
    uint32_t n, cap;    /* accesses */
    uint32_t *ends;     /* for each segment, the access after its last */
    uint32_t segments, ends_cap;
    uint64_t *blocks; /* a number's block; sorted, none twice */
    uint32_t distinct;
};

/* An empty one is all zeros.  Freeing one makes it empty. */
void qm_cminer_db_free(struct qm_cminer_db *db);

/* Adds a segment: n blocks that one context read in this order.  Nothing is done if n
 * is 0.  Returns 0, ENOMEM, or EFBIG if it had 2^31 accesses. */
int qm_cminer_add(struct qm_cminer_db *db, const uint64_t *blocks, size_t n);

/* No more segments: numbers the blocks by their order.  Returns 0 or ENOMEM. */
int qm_cminer_number(struct qm_cminer_db *db);

/* In place of a block's number: there is none. */
#define QM_CMINER_NONE UINT32_MAX

/* A prefix a (b is QM_CMINER_NONE) or a & b, in numbers of blocks, and its rules: those
 * of highest support first, of equals the one of the lower block. */
struct qm_cminer_prefix {
    uint32_t a, b;
    uint32_t support;
    uint32_t n; /* at least 1 */
    const struct qm_cminer_suffix {
        uint32_t c;
        uint32_t support; /* of a [& b] -> c */
    } * suffixes;
};

struct qm_cminer_counts {
    uint64_t accesses, segments;
    uint64_t blocks;          /* frequent ones */
    uint64_t pairs, triples;  /* frequent sequences of two and three blocks: each is a
                                 rule, before it is pruned */
    uint64_t prefixes, rules; /* after pruning */
    uint64_t passes;
};

/* Mines a numbered database: calls each() for every prefix that has rules after
 * pruning, until it returns non-zero.  They come sorted: by a, of these the prefix a
 * first, then by b.  each may be NULL: to count.
 *
 * Memory.  A window holds max_gap * (max_gap - 1) / 2 sequences that begin with its
 * first access (45), of 8 bytes.  The first blocks are dealt with in turn, as many of
 * them at a time as config->memory has room for, each time in one pass over the
 * database.  Where a single block has more, what was counted so far is folded, so that
 * sequences that were seen before take no more room; then it takes more than
 * config->memory, but no more than that block's different sequences need (16 bytes
 * each).  Beyond this, for sorting as much again as the largest first block
 * has, 20 bytes for each different block, and 8 for each access of the longest segment.
 *
 * Returns 0, what each() returned, or ENOMEM. */
int qm_cminer_mine(const struct qm_cminer_config *config, const struct qm_cminer_db *db,
                   int (*each)(void *opaque, const struct qm_cminer_prefix *prefix),
                   void *opaque, struct qm_cminer_counts *counts);

#endif
