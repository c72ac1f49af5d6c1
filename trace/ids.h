/* SPDX-License-Identifier: BSD-3-Clause */
/* ids.h - a growing set of numbers, as merged intervals.
 *
 * Any number of consecutive numbers takes one interval; n scattered numbers take n.
 */
#ifndef QM_TRACE_IDS_H
#define QM_TRACE_IDS_H

#include <stddef.h>
#include <stdint.h>

struct qm_ids {
    void *tree;       /* of struct interval, by tsearch(3) */
    size_t intervals; /* number of them */
};

/* Adds id.  Returns 0, EEXIST if it was there, or ENOMEM.  O(log intervals). */
int qm_ids_add(struct qm_ids *ids, uint64_t id);
void qm_ids_clear(struct qm_ids *ids);

#endif
