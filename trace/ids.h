/* ids.h - which numbers have been used.
 *
 * A set that only grows, as merged intervals: numbers that come in sequence, however
 * many, take one interval, and a set of n scattered ones takes n.
 */
#ifndef QM_TRACE_IDS_H
#define QM_TRACE_IDS_H

#include <stddef.h>
#include <stdint.h>

struct qm_ids {
    void *tree;       /* of struct interval, by tsearch(3) */
    size_t intervals; /* how many */
};

/* Adds id.  Returns 0, EEXIST if it was there, or ENOMEM.  O(log intervals). */
int qm_ids_add(struct qm_ids *ids, uint64_t id);
void qm_ids_clear(struct qm_ids *ids);

#endif
