/* SPDX-License-Identifier: BSD-3-Clause */
/* suffixes.h - what may follow a prefix: a list kept by frequency (ATC'08 §3.3).
 *
 * Always sorted: support descending, then block number ascending; so the candidates are
 * the list's beginning, and the one to go is at its end.
 *
 * An *update* of the list is one block seen after the prefix.  When that is a new block
 * and the list is full, the least frequent one goes (LFU), of equals the one with the
 * higher number.  A block that entered is safe from that during the next `grace`
 * updates. If all are safe, nobody is: the least frequent goes.
 *
 * With grace at most max - n - 1, a list keeps its n most frequent blocks however many
 * blocks pass by that are seen only once; with grace >= max - 1 these could drive all
 * others out.
 */
#ifndef QM_SUFFIXES_H
#define QM_SUFFIXES_H

#include <stddef.h>
#include <stdint.h>

struct qm_suffix {
    uint64_t block;
    uint64_t support;
    uint32_t grace; /* during how many updates still it is safe */
};

struct qm_suffixes {
    struct qm_suffix *v; /* freed with free() */
    size_t n, cap;
};

/* One update: adds 1 to the support of block.  At most max suffixes are kept (0: all,
 * and there is no grace then).  Returns 0, or ENOMEM and nothing changed. */
int qm_suffixes_add(struct qm_suffixes *list, uint64_t block, unsigned max,
                    unsigned grace);

/* Makes room for n.  Returns 0 or ENOMEM. */
int qm_suffixes_reserve(struct qm_suffixes *list, size_t n);

#endif
