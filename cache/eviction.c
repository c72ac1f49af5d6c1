/* SPDX-License-Identifier: BSD-3-Clause */
/* eviction.c - the eviction policies by name. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cache/evict-all.h"

static const struct qm_evict_ops *const policies[] = {
    &qm_evict_lru,    &qm_evict_lfu,      &qm_evict_mru,      &qm_evict_arc,
    &qm_evict_s3fifo, &qm_evict_wtinylfu, &qm_evict_adaptive,
};

#define COUNT (sizeof(policies) / sizeof(policies[0]))

const struct qm_evict_ops *qm_evict_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (!strcmp(policies[i]->name, name))
            return policies[i];
    return NULL;
}

static char names[256];
static pthread_once_t named = PTHREAD_ONCE_INIT;

static void name_all(void)
{
    size_t at = 0;

    for (size_t i = 0; i < COUNT && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "",
                               policies[i]->name);
}

const char *qm_evict_names(void)
{
    pthread_once(&named, name_all);
    return names;
}

size_t qm_evict_bytes(const struct qm_evict_ops *ops, uint64_t capacity)
{
    return ops->bytes ? ops->bytes(capacity) : ops->bytes_per_block * capacity;
}

size_t qm_evict_max_bytes(uint64_t capacity)
{
    size_t max = 0;

    for (size_t i = 0; i < COUNT; i++)
        if (qm_evict_bytes(policies[i], capacity) > max)
            max = qm_evict_bytes(policies[i], capacity);
    return max;
}
