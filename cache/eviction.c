/* eviction.c - the eviction policies by name. */
#include <string.h>

#include "cache/evict-all.h"

static const struct qm_evict_ops *const policies[] = {
    &qm_evict_lru,
};
static const char names[] = "lru";

#define COUNT (sizeof(policies) / sizeof(policies[0]))

const struct qm_evict_ops *qm_evict_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (!strcmp(policies[i]->name, name))
            return policies[i];
    return NULL;
}

const char *qm_evict_names(void)
{
    return names;
}

size_t qm_evict_max_bytes(void)
{
    size_t max = 0;

    for (size_t i = 0; i < COUNT; i++)
        if (policies[i]->bytes_per_block > max)
            max = policies[i]->bytes_per_block;
    return max;
}
