/* SPDX-License-Identifier: BSD-3-Clause */
/* classes.h - the classes of contexts that the server has met, and their counts.
 *
 * A class is identified by a kind and a 64-bit number of the client's (for example a
 * hash of the query template).  The table gives it a small index, by which the cache
 * and the prefetcher know it.  The table is bounded: classes beyond QMS_CLASSES_MAX
 * share one, QMS_CLASS_OTHER.  Classes are never removed, so a pointer to one, and its
 * strings, are valid as long as the table.
 *
 * All functions may be called by any thread at any time.  A look-up takes a lock, so it
 * is done when a context begins; counting takes none.
 */
#ifndef QMS_CLASSES_H
#define QMS_CLASSES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "mining/core/context.h"

#define QMS_CLASSES_MAX 4096
#define QMS_CLASS_NONE  0 /* index: reads without a context */
#define QMS_CLASS_OTHER 1 /* index: what did not fit */

/* Classes around a context that its reads count for as nested ones; of more, the
 * innermost. */
#define QMS_AROUND_MAX 15

enum qms_class_counter {
    QMS_CLASS_CONTEXTS, /* begun */
    QMS_CLASS_HITS,     /* blocks, by outcome */
    QMS_CLASS_PREFETCH_HITS,
    QMS_CLASS_MISSES,
    QMS_CLASS_ISSUED, /* prefetches that the class caused ... */
    QMS_CLASS_USED,   /* ... of these, those used by any class */
    QMS_CLASS_WASTED,
    QMS_CLASS_REQUESTS, /* read requests */
    QMS_CLASS_NS,       /* that they took, in nanoseconds */
    /* The counts above are of the innermost class alone.  These are of contexts of
     * other classes that are nested in contexts of this one: */
    QMS_CLASS_NESTED_HITS,
    QMS_CLASS_NESTED_PREFETCH_HITS,
    QMS_CLASS_NESTED_MISSES,
    QMS_CLASS_NESTED_REQUESTS,
    QMS_CLASS_NESTED_NS,
    QMS_CLASS_COUNTERS
};

struct qms_class_stripe {
    _Alignas(64) _Atomic uint64_t counters[QMS_CLASS_COUNTERS];
};

#define QMS_CLASS_STRIPES 8

struct qms_class {
    uint32_t index;
    enum qm_kind kind; /* 0 for QMS_CLASS_NONE and QMS_CLASS_OTHER */
    uint64_t id;
    _Atomic(const char *) name;  /* clean (trace/text.h), or "" */
    _Atomic(const char *) token; /* as in a trace: no spaces, not empty */
    struct qms_class *next;      /* of the same hash; the table's */
    struct qms_class_stripe stripes[QMS_CLASS_STRIPES];
};

struct qms_classes;

/* NULL if memory is out. */
struct qms_classes *qms_classes_new(void);
void qms_classes_free(struct qms_classes *classes);

/* The class of that kind and number, added if it is new; never NULL.  The first name
 * that is not empty (name_len bytes, any bytes) becomes the class's. */
struct qms_class *qms_class_find(struct qms_classes *classes, enum qm_kind kind,
                                 uint64_t id, const char *name, size_t name_len);

/* The class of an index; QMS_CLASS_NONE's if the index is out of range. */
struct qms_class *qms_class_at(struct qms_classes *classes, uint32_t index);

/* How many there are: indexes 0 to this - 1. */
uint32_t qms_classes_count(struct qms_classes *classes);

void qms_class_add(struct qms_class *klass, enum qms_class_counter counter, uint64_t n);
uint64_t qms_class_get(const struct qms_class *klass, enum qms_class_counter counter);

#endif
