/* SPDX-License-Identifier: BSD-3-Clause */
/* table.h - what followed what: pairs of a key and a block, in a budget of bytes.
 *
 * A key stands for a history (one block, or two: keys of both kinds share the table); a
 * pair says that a block followed that history, how often of late, and how many times
 * other blocks have since.  What it takes to learn or to look up is one cache line.
 * Memory is taken as pairs come, up to the budget: about 32 bytes for each, until there
 * is no more and they close up.
 *
 * The table is shared by owners, numbers of the caller's.  Where n owners that are
 * there have pairs, one that has no more than an n-th of the place loses none for
 * another's: an owner that learns much that is never seen again does not make others
 * forget.  A pair belongs to the owner that learned it first, until that one has left.
 *
 * All functions may be called by any number of threads at a time.  There are no locks:
 * when two threads change the same line at the same time, one of the changes may be
 * lost, or a pair be there twice for a while.  Pairs are advice: that is harmless.
 */
#ifndef QM_MARKOV_TABLE_H
#define QM_MARKOV_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct qm_markov;

enum {
    QM_MARKOV_FOUND_MAX = 8, /* blocks that are known to follow a key, at most; and the
                                pairs of a line */
    QM_MARKOV_COUNT_MAX = 15,
};

/* Owners are numbers below; 0 is nobody, and never there. */
#define QM_MARKOV_OWNERS 16

/* Blocks from here on are not learned: 64 TiB of 4 KiB blocks.  On a larger device a
 * caller that knows which region of this size a key belongs to can give numbers
 * within it. */
#define QM_MARKOV_BLOCKS (UINT64_C(1) << 34)

struct qm_markov_pair {
    uint64_t block;
    unsigned count; /* 1 to QM_MARKOV_COUNT_MAX: how often it followed, fading */
    unsigned since; /* 0 to 3: how often others have followed since it last did */
    unsigned rest;  /* the sum of the counts of the others that follow */
};

/* Takes at most `bytes` bytes, at least one line, beside itself; they are reserved at
 * once, and what is not in use yet is not written to, so that the system need not have
 * it.  Returns NULL if memory is out. */
struct qm_markov *qm_markov_new(uint64_t bytes);
void qm_markov_free(struct qm_markov *pairs); /* NULL is fine */

/* Bounds the table to `bytes`: at most what it was made for, at least a 32nd of that.
 * A larger table is shrunk: two lines are joined into one, and the pairs of least worth
 * are evicted, in the usual order.  Of 0 bytes, it has a line, and has forgotten what
 * was in the others.  Whole pages are given back
 * to the system.  Takes some 100 ns a line of 64 bytes.  One call at a time. */
void qm_markov_set_bytes(struct qm_markov *pairs, uint64_t bytes);

/* The key of a history of one block, and of two, b being the later. */
uint64_t qm_markov_key1(uint64_t b);
uint64_t qm_markov_key2(uint64_t a, uint64_t b);

/* Which owners are there: 1 << owner, for each; at first none. */
void qm_markov_owners(struct qm_markov *pairs, unsigned there);

/* What was known of a pair before it was learned. */
enum qm_markov_known {
    QM_MARKOV_NEW,      /* nothing */
    QM_MARKOV_MARGINAL, /* it would have been the next to go from a full line: a table
                           of an eighth less memory would not have had it */
    QM_MARKOV_KNOWN,
};

/* Block followed key, as owner has seen. */
enum qm_markov_known qm_markov_learn(struct qm_markov *pairs, unsigned owner,
                                     uint64_t key, uint64_t block);

/* Begins to fetch what is known of key from memory, so that qm_markov_learn() or
 * _find() need not wait long for it. */
void qm_markov_expect(const struct qm_markov *pairs, uint64_t key);

/* What is known to follow key, in no order; returns how many. */
unsigned qm_markov_find(const struct qm_markov *pairs, uint64_t key,
                        struct qm_markov_pair found[QM_MARKOV_FOUND_MAX]);

/* For keeping pairs in a file.  A key cannot be had from the table, but where its pairs
 * are: a line of a table that has grown to its full size, and a tag.  These say the
 * same in a table that can have as many lines only, however many it has taken. */
uint64_t qm_markov_lines(const struct qm_markov *pairs);

/* Calls each() for all that is known to follow a key at least min_count times, by line
 * and tag, until it returns non-zero; returns that, or 0. */
int qm_markov_each(const struct qm_markov *pairs, unsigned min_count,
                   int (*each)(void *opaque, uint64_t line, unsigned tag,
                               const struct qm_markov_pair *found, unsigned n),
                   void *opaque);

/* A table that can have as many lines as another has, by qm_markov_lines(): what was
 * put there can be put here.  NULL if memory is out. */
struct qm_markov *qm_markov_new_of_lines(uint64_t lines);

/* Copies the pairs of a table of another size that nobody uses; where there is no room,
 * those with the lowest counts are left out.  Keys cannot be had from a table, so it
 * looks up the keys of all blocks from the first to the last that follow others, and
 * where these are too many, of those that follow others.  What follows two blocks of
 * which the second is not known to follow the first is lost; and so is what follows
 * blocks from QM_MARKOV_BLOCKS on, if the caller uses regions. */
void qm_markov_adopt(struct qm_markov *to, const struct qm_markov *from);

/* Takes memory for n pairs, as far as the budget goes, before they are put. */
void qm_markov_reserve(struct qm_markov *pairs, uint64_t n);

/* Whether the table can have such a pair. */
bool qm_markov_fits(const struct qm_markov *pairs, uint64_t line, unsigned tag,
                    uint64_t block, uint64_t count);

/* Puts a pair back, where there is room or one with a lower count.  Returns false if
 * the table cannot have it. */
bool qm_markov_put(struct qm_markov *pairs, uint64_t line, unsigned tag, uint64_t block,
                   uint64_t count);

struct qm_markov_stats {
    uint64_t held;    /* pairs */
    uint64_t evicted; /* pairs that gave way to others */
    uint64_t bytes;   /* of the lines in use */
    uint64_t most;    /* that they may come to take */
};
void qm_markov_get_stats(const struct qm_markov *pairs, struct qm_markov_stats *stats);

#endif
