/* SPDX-License-Identifier: BSD-3-Clause */
/* classes.c - small numbers for the names of classes. */
#include "sim/classes.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM        1
#define uthash_nonfatal_oom(elt) ((elt)->lost = true)
#include <uthash.h>

struct qm_class {
    uint32_t number;
    bool lost; /* no memory for the hash table */
    UT_hash_handle hh;
    char name[];
};

/* Makes room for one more in by_number. */
static int make_room(struct qm_classes *classes)
{
    uint32_t room = classes->room ? 2 * classes->room : 64;
    struct qm_class **by_number;

    if (classes->count < classes->room)
        return 0;
    by_number = reallocarray(classes->by_number, room, sizeof(struct qm_class *));
    if (!by_number)
        return ENOMEM;
    classes->by_number = by_number;
    classes->room = room;
    return 0;
}

int qm_classes_number(struct qm_classes *classes, const char *name, uint32_t *number)
{
    struct qm_class *c;
    size_t length = strlen(name);

    HASH_FIND(hh, classes->table, name, length, c);
    if (!c && classes->count == QM_CLASSES_MAX) {
        *number = 0;
        return 0;
    }
    if (!c) {
        c = make_room(classes) == 0 ? malloc(sizeof *c + length + 1) : NULL;
        if (!c)
            return ENOMEM;
        memcpy(c->name, name, length + 1);
        c->number = classes->count + 1;
        c->lost = false;
        HASH_ADD_KEYPTR(hh, classes->table, c->name, length, c);
        if (c->lost) {
            free(c);
            return ENOMEM;
        }
        classes->by_number[classes->count++] = c;
    }
    *number = c->number;
    return 0;
}

const char *qm_classes_name(const struct qm_classes *classes, uint32_t number)
{
    return classes->by_number[number - 1]->name;
}

void qm_classes_clear(struct qm_classes *classes)
{
    struct qm_class *c, *next;

    HASH_ITER(hh, classes->table, c, next)
    {
        HASH_DEL(classes->table, c);
        free(c);
    }
    free(classes->by_number);
    *classes = (struct qm_classes){.table = NULL};
}
