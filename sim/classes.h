/* SPDX-License-Identifier: BSD-3-Clause */
/* classes.h - numbers the classes of a trace by their names.
 *
 * A trace may name any number of classes.  All beyond the first QM_CLASSES_MAX share
 * number 0, which bounds the memory.
 */
#ifndef QM_SIM_CLASSES_H
#define QM_SIM_CLASSES_H

#include <stdint.h>

#define QM_CLASSES_MAX 65536

struct qm_class;

struct qm_classes {
    struct qm_class *table; /* hash table by name */
    struct qm_class **by_number;
    uint32_t room; /* of by_number */
    uint32_t count;
};

/* Sets *number to the number of name: 1 to QM_CLASSES_MAX, in the order in which names
 * first appear, or 0 for further names.  Returns 0 or ENOMEM. */
int qm_classes_number(struct qm_classes *classes, const char *name, uint32_t *number);
/* The name of a number from 1 to count, good until the next call of the two others. */
const char *qm_classes_name(const struct qm_classes *classes, uint32_t number);
void qm_classes_clear(struct qm_classes *classes);

#endif
