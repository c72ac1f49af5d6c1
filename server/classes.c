/* SPDX-License-Identifier: BSD-3-Clause */
/* classes.c - the table of classes.  A hash table of fixed size, chained, under one
 * lock; an array of indexes that is published by the count.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/classes.h"
#include "server/stats.h"
#include "trace/text.h"

#define BUCKETS 4096 /* a power of two */

struct qms_classes {
    pthread_mutex_t lock; /* of the buckets, and of adding */
    struct qms_class *buckets[BUCKETS];
    struct qms_class *by_index[QMS_CLASSES_MAX];
    _Atomic uint32_t count;
};

/* A copy of name in which what a terminal should not be given, and what JSON cannot
 * hold, is "?". */
static char *clean_name(const char *name, size_t len)
{
    char *out = malloc(len + 1);

    if (out)
        qm_text_clean(out, name, len, false);
    return out;
}

static char *token_of(const char *name)
{
    char *token = strdup(name);

    for (char *p = token; p && *p; p++)
        if (*p == ' ')
            *p = '_';
    return token;
}

/* Adds a class; the lock is held.  NULL if memory is out or the table is full. */
static struct qms_class *add(struct qms_classes *classes, enum qm_kind kind,
                             uint64_t id, const char *token)
{
    uint32_t index = atomic_load_explicit(&classes->count, memory_order_relaxed);
    struct qms_class *klass;
    char hex[17];
    char *copy;

    if (index == QMS_CLASSES_MAX)
        return NULL;
    snprintf(hex, sizeof hex, "%016" PRIx64, id);
    copy = strdup(token ? token : hex);
    klass = aligned_alloc(_Alignof(struct qms_class), sizeof *klass);
    if (!klass || !copy) {
        free(klass);
        free(copy);
        return NULL;
    }
    memset(klass, 0, sizeof *klass);
    klass->index = index;
    klass->kind = kind;
    klass->id = id;
    atomic_init(&klass->name, "");
    atomic_init(&klass->token, copy);
    classes->by_index[index] = klass;
    atomic_store_explicit(&classes->count, index + 1, memory_order_release);
    return klass;
}

struct qms_classes *qms_classes_new(void)
{
    struct qms_classes *classes = calloc(1, sizeof *classes);

    if (!classes)
        return NULL;
    pthread_mutex_init(&classes->lock, NULL);
    if (!add(classes, 0, 0, "none") || !add(classes, 0, 0, "other")) {
        qms_classes_free(classes);
        return NULL;
    }
    return classes;
}

void qms_classes_free(struct qms_classes *classes)
{
    if (!classes)
        return;
    for (uint32_t i = 0; i < atomic_load(&classes->count); i++) {
        struct qms_class *klass = classes->by_index[i];
        const char *name = atomic_load(&klass->name);

        if (*name != '\0')
            free((char *)name);
        free((char *)atomic_load(&klass->token));
        free(klass);
    }
    pthread_mutex_destroy(&classes->lock);
    free(classes);
}

static size_t bucket_of(enum qm_kind kind, uint64_t id)
{
    /* Fibonacci hashing: the client's numbers need not be well spread. */
    return ((id ^ kind) * UINT64_C(0x9e3779b97f4a7c15)) >> 52 & (BUCKETS - 1);
}

/* Gives a class that has none its name; the lock is held.  Without memory it stays
 * without.  Readers may hold the old token for ever, so the new one is put in its place
 * only while nobody can have seen it: when the class is new. */
static void set_name(struct qms_class *klass, const char *name, size_t len, bool is_new)
{
    char *clean = clean_name(name, len);
    char *token;

    if (!clean)
        return;
    atomic_store_explicit(&klass->name, clean, memory_order_release);
    if (is_new && (token = token_of(clean))) {
        free((char *)atomic_load(&klass->token));
        atomic_store_explicit(&klass->token, token, memory_order_release);
    }
}

struct qms_class *qms_class_find(struct qms_classes *classes, enum qm_kind kind,
                                 uint64_t id, const char *name, size_t name_len)
{
    struct qms_class **bucket = &classes->buckets[bucket_of(kind, id)];
    struct qms_class *klass;
    bool is_new = false;

    pthread_mutex_lock(&classes->lock);
    for (klass = *bucket; klass; klass = klass->next)
        if (klass->kind == kind && klass->id == id)
            break;
    if (!klass) {
        klass = add(classes, kind, id, NULL);
        if (klass) {
            is_new = true;
            klass->next = *bucket;
            *bucket = klass;
        }
    }
    if (klass && name_len > 0 &&
        *atomic_load_explicit(&klass->name, memory_order_relaxed) == '\0')
        set_name(klass, name, name_len, is_new);
    pthread_mutex_unlock(&classes->lock);
    return klass ? klass : classes->by_index[QMS_CLASS_OTHER];
}

struct qms_class *qms_class_at(struct qms_classes *classes, uint32_t index)
{
    if (index >= qms_classes_count(classes))
        index = QMS_CLASS_NONE;
    return classes->by_index[index];
}

uint32_t qms_classes_count(struct qms_classes *classes)
{
    return atomic_load_explicit(&classes->count, memory_order_acquire);
}

void qms_class_add(struct qms_class *klass, enum qms_class_counter counter, uint64_t n)
{
    struct qms_class_stripe *stripe = &klass->stripes[qms_stripe() % QMS_CLASS_STRIPES];

    atomic_fetch_add_explicit(&stripe->counters[counter], n, memory_order_relaxed);
}

uint64_t qms_class_get(const struct qms_class *klass, enum qms_class_counter counter)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < QMS_CLASS_STRIPES; i++)
        sum += atomic_load_explicit(&klass->stripes[i].counters[counter],
                                    memory_order_relaxed);
    return sum;
}
