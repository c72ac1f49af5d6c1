/* SPDX-License-Identifier: BSD-3-Clause */
/* info.h - statistics of a trace: the figures of ATC'08 §2.1.
 *
 * Memory grows with the footprint, the number of open contexts and the number of
 * classes, not with the length of the trace.
 */
#ifndef QM_SIM_INFO_H
#define QM_SIM_INFO_H

#include <stdint.h>

#include "plugins/device/histogram.h"
#include "mining/core/context.h"
#include "trace/trace.h"

enum { QM_KINDS = QM_QUERY + 1 }; /* arrays by enum qm_kind; [0] is not used */

/* Runs of physically sequential blocks: each is one more than the one read before.  An
 * immediate repeat of a block counts once. */
struct qm_runs {
    uint64_t runs, blocks, longest;
};

/* Contexts of a kind, which ended or were open at the end of the trace. */
struct qm_info_kind {
    uint64_t contexts;
    uint64_t silent;              /* without a request */
    uint64_t brief;               /* with 1 to 10 */
    uint64_t brief_blocks;        /* that read 1 to 10 blocks */
    struct qm_histogram requests; /* of each, of what is nested in it included */
    struct qm_histogram blocks;   /* that each read, likewise */
};

struct qm_info_class {
    enum qm_kind kind;
    char *name;
    uint64_t contexts;
    /* In contexts of the class, those nested in them included, each once; and of these,
     * for which a context of the class was the innermost. */
    uint64_t reads, writes, blocks_read;
    uint64_t own_reads, own_writes, own_blocks_read;
};

struct qm_info {
    uint64_t events, reads, writes; /* requests */
    uint64_t bytes_read, bytes_written, blocks_read, blocks_written;
    uint64_t untagged;          /* requests of no context */
    uint64_t first_us, last_us; /* the earliest and the latest time */
    uint64_t contexts, open_at_once, open_at_end;
    /* Distinct blocks. */
    uint64_t footprint, footprint_read, footprint_written;

    /* Sequential runs of reads: as they arrived; by thread; by context of the level. */
    struct qm_runs interleaved, by_thread, by_level;

    /* How many requests of others come between two consecutive ones of a context of the
     * level: the interference count. */
    struct qm_histogram interference;

    struct qm_info_kind kinds[QM_KINDS];
    /* In the order of their first context; beyond QM_CLASSES_MAX, classes are together
     * in one without a name, the first. */
    struct qm_info_class *classes;
    uint32_t class_count;
};

struct qm_info_maker;

/* Begins; level is not QM_LEVEL_NONE, block_size not 0.  NULL if memory is out. */
struct qm_info_maker *qm_info_new(enum qm_level level, uint64_t block_size);
/* The trace's events, in its order.  Returns 0 or ENOMEM. */
int qm_info_event(struct qm_info_maker *m, const struct qm_event *event);
/* No more events: the figures, which are the maker's. */
const struct qm_info *qm_info_finish(struct qm_info_maker *m);
void qm_info_free(struct qm_info_maker *m); /* NULL is fine */

#endif
