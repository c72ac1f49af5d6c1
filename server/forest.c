/* SPDX-License-Identifier: BSD-3-Clause */
/* forest.c - open slots and their nesting: children in doubly linked lists of numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "server/forest.h"

static size_t size_of(unsigned count)
{
    return sizeof(struct qms_forest) + (count + 1) * sizeof(struct qms_node);
}

struct qms_forest *qms_forest_new(unsigned count)
{
    struct qms_forest *f = calloc(1, size_of(count));

    if (f)
        f->count = count;
    return f;
}

struct qms_forest *qms_forest_copy(const struct qms_forest *f)
{
    struct qms_forest *copy = malloc(size_of(f->count));

    if (copy)
        memcpy(copy, f, size_of(f->count));
    return copy;
}

bool qms_forest_may_begin(const struct qms_forest *f, unsigned node, unsigned parent)
{
    if (parent == 0)
        return true;
    if (!qms_forest_open(f, parent) || f->nodes[parent].depth == QMS_DEPTH_MAX)
        return false;
    for (unsigned n = parent; n != 0; n = f->nodes[n].parent)
        if (n == node)
            return false;
    return true;
}

void qms_forest_begin(struct qms_forest *f, unsigned node, unsigned parent)
{
    struct qms_node *n = &f->nodes[node];

    qms_forest_end(f, node);
    *n = (struct qms_node){.parent = parent, .depth = 1};
    if (parent != 0) {
        n->depth = f->nodes[parent].depth + 1;
        n->next = f->nodes[parent].child;
        if (n->next != 0)
            f->nodes[n->next].prev = node;
        f->nodes[parent].child = node;
    }
}

/* Takes a node without children out. */
static void remove_leaf(struct qms_forest *f, unsigned node)
{
    struct qms_node *n = &f->nodes[node];

    if (n->next != 0)
        f->nodes[n->next].prev = n->prev;
    if (n->prev != 0)
        f->nodes[n->prev].next = n->next;
    else if (n->parent != 0)
        f->nodes[n->parent].child = n->next;
    *n = (struct qms_node){0};
}

void qms_forest_end(struct qms_forest *f, unsigned node)
{
    unsigned at = node;

    if (!qms_forest_open(f, node))
        return;
    for (;;) {
        unsigned parent;

        while (f->nodes[at].child != 0)
            at = f->nodes[at].child;
        parent = f->nodes[at].parent;
        remove_leaf(f, at);
        if (at == node)
            return;
        at = parent;
    }
}
