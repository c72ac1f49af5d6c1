/* SPDX-License-Identifier: BSD-3-Clause */
/* forest.h - which slots of a session are open, and how they are nested.
 *
 * This mirrors the trees of contexts, so that a message of several records can be
 * checked as a whole, on a copy, before any of them takes effect.
 * Nodes are numbered from 1; 0 is none.  Nothing here locks.
 */
#ifndef QMS_FOREST_H
#define QMS_FOREST_H

#include <stdbool.h>
#include <stdint.h>

/* The maximum depth of nesting, which bounds the work per request in a nested context.
 * MariaDB's stored procedures nest at most 32 deep. */
#define QMS_DEPTH_MAX 64

struct qms_node {
    uint16_t parent, child, next, prev; /* child: the one begun last */
    uint16_t depth;                     /* 1: a root; 0: not open */
};

struct qms_forest {
    unsigned count; /* nodes 1 to count */
    struct qms_node nodes[];
};

/* Both return NULL if memory is out; to be freed with free(). */
struct qms_forest *qms_forest_new(unsigned count);
struct qms_forest *qms_forest_copy(const struct qms_forest *forest);

static inline bool qms_forest_open(const struct qms_forest *forest, unsigned node)
{
    return forest->nodes[node].depth != 0;
}

/* Whether node may begin within parent (0: as a root).  What is open in node would end
 * first, so the parent must not be nested in it. */
bool qms_forest_may_begin(const struct qms_forest *forest, unsigned node,
                          unsigned parent);
/* Does it; qms_forest_may_begin() said that it may. */
void qms_forest_begin(struct qms_forest *forest, unsigned node, unsigned parent);
/* Ends node, if it is open, and all that is nested in it. */
void qms_forest_end(struct qms_forest *forest, unsigned node);

#endif
