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
        c = malloc(sizeof *c + length + 1);
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
        classes->count++;
    }
    *number = c->number;
    return 0;
}

void qm_classes_clear(struct qm_classes *classes)
{
    struct qm_class *c, *next;

    HASH_ITER(hh, classes->table, c, next)
    {
        HASH_DEL(classes->table, c);
        free(c);
    }
    classes->count = 0;
}
