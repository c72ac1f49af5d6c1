/* classes.h - small numbers for the names of classes in a trace.
 *
 * A trace may name any number of classes; so that memory does not follow its length,
 * all beyond the first QM_CLASSES_MAX share number 0.
 */
#ifndef QM_BENCH_CLASSES_H
#define QM_BENCH_CLASSES_H

#include <stdint.h>

#define QM_CLASSES_MAX 65536

struct qm_class;

struct qm_classes {
    struct qm_class *table; /* hash table by name */
    uint32_t count;
};

/* Sets *number to that of name: 1 to QM_CLASSES_MAX in the order in which names come
 * up, or 0 beyond.  Returns 0 or ENOMEM. */
int qm_classes_number(struct qm_classes *classes, const char *name, uint32_t *number);
void qm_classes_clear(struct qm_classes *classes);

#endif
