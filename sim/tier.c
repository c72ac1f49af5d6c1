/* SPDX-License-Identifier: BSD-3-Clause */
/* tier.c - see tier.h. */
#include "sim/tier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "sim/sequential.h"
#include "tier/tier.h"

enum { STAMPS = 4096 };

#define CUT_OFF (UINT64_C(4) << 20) /* bcache's sequential_cutoff */

#define TICK_NS                                                                        \
    UINT64_C(5000000000) /* as often as the server's looks after its file              \
                          */

struct qm_sim_tier {
    struct qm_sim_tier_config config;
    uint64_t block_size;
    struct qm_tier *tier;  /* or: */
    struct qm_cache *list; /* QM_SIM_TIER_LRU and _BCACHE: which blocks the file has */
    bool on_read;          /* _BCACHE */
    struct qm_sequential sequential; /* the same */
    void *own;                       /* of config.own */
    uint64_t now, ticked;
    struct qm_sim_tier_counts counts; /* of the list */

    /* For the list and the caller's own, what tier/journal.c is for the tier: a block
     * that was written to after it was evicted is not handed over. */
    uint64_t writes;
    uint64_t last[STAMPS]; /* the last write to one of the blocks that share it */
};

static uint64_t *last_of(struct qm_sim_tier *t, uint64_t block)
{
    return &t->last[block * UINT64_C(0x9e3779b97f4a7c15) >> 48 & (STAMPS - 1)];
}

/* By enum qm_tier_admit, and then what is no admission of the server's. */
static const char *const words[] = {"auto", "all", "none", QM_SIM_TIER_LRU,
                                    QM_SIM_TIER_BCACHE};

enum { WORDS = sizeof words / sizeof words[0] };

const char *qm_sim_tier_words(void)
{
    return "auto, all, none, " QM_SIM_TIER_LRU ", " QM_SIM_TIER_BCACHE;
}

bool qm_sim_tier_is_word(const char *admit)
{
    for (unsigned i = 0; i < WORDS; i++)
        if (strcmp(admit, words[i]) == 0)
            return true;
    return false;
}

static uint64_t now(void *opaque)
{
    const struct qm_sim_tier *t = opaque;

    return t->now;
}

static int make_list(struct qm_sim_tier *t, char *err, size_t len)
{
    const struct qm_cache_config config = {
        .block_size = (uint32_t)t->block_size,
        .blocks = t->config.size / t->block_size,
        .shards = 1,
        .eviction = "lru",
    };

    if (qm_cache_check(&config, err, len) != 0)
        return EINVAL;
    if (qm_cache_new(&config, &t->list) == 0)
        return 0;
    snprintf(err, len, "out of memory for a tier");
    return ENOMEM;
}

static int make_tier(struct qm_sim_tier *t, char *err, size_t len)
{
    struct qm_tier_config config;

    qm_tier_config_init(&config);
    config.identity.volume = "simulated";
    config.identity.size = t->config.volume;
    config.identity.block_size = (uint32_t)t->block_size;
    config.size = t->config.size;
    config.update = QM_TIER_UPDATE_AUTO;
    config.write_rate = t->config.write_rate;
    config.data = false;
    config.now = now;
    config.opaque = t;
    for (unsigned i = 0; t->config.admit && i < WORDS; i++)
        if (strcmp(t->config.admit, words[i]) == 0)
            config.admit = (enum qm_tier_admit)i;
    if (qm_tier_check(&config, err, len) != 0)
        return EINVAL;
    return qm_tier_open(&config, &t->tier, err, len);
}

static int make(struct qm_sim_tier *t, char *err, size_t len)
{
    const char *admit = t->config.admit ? t->config.admit : words[0];

    if (t->config.own) {
        t->own = t->config.opaque;
        if (t->config.own->open)
            t->own = t->config.own->open(&t->config, t->block_size, err, len);
        return t->own || !t->config.own->open ? 0 : EINVAL;
    }
    t->on_read = strcmp(admit, QM_SIM_TIER_BCACHE) == 0;
    if (t->on_read || strcmp(admit, QM_SIM_TIER_LRU) == 0)
        return make_list(t, err, len);
    return make_tier(t, err, len);
}

int qm_sim_tier_new(const struct qm_sim_tier_config *config, uint64_t block_size,
                    struct qm_sim_tier **tier, char *err, size_t len)
{
    struct qm_sim_tier *t = calloc(1, sizeof *t);
    char why[256] = "out of memory";
    int error = ENOMEM;

    if (t) {
        t->config = *config;
        t->block_size = block_size;
        t->now = t->ticked = TICK_NS; /* 0 is no time */
        error = make(t, why, sizeof why);
    }
    if (error == 0) {
        *tier = t;
        return 0;
    }
    snprintf(err, len, "a tier of %llu bytes, for blocks of %llu: %s",
             (unsigned long long)config->size, (unsigned long long)block_size, why);
    qm_sim_tier_free(t);
    return error;
}

void qm_sim_tier_free(struct qm_sim_tier *t)
{
    if (!t)
        return;
    if (t->tier)
        (void)qm_tier_close(t->tier, QM_TIER_KEEP);
    if (t->list)
        qm_cache_free(t->list);
    if (t->own && t->config.own->open)
        t->config.own->close(t->own);
    free(t);
}

void qm_sim_tier_time(struct qm_sim_tier *t, uint64_t ns)
{
    ns += TICK_NS;
    if (ns > t->now)
        t->now = ns;
    if (!t->tier || t->now - t->ticked < TICK_NS)
        return;
    t->ticked = t->now;
    qm_tier_tick(t->tier, false);
}

/* ---- the list */

static void list_insert(struct qm_sim_tier *t, uint64_t block)
{
    struct qm_lookup found;

    if (qm_cache_demand(t->list, block, NULL, 0, (uint32_t)t->block_size, &found) != 0)
        return;
    if (found.todo != QM_FETCH)
        return;
    qm_cache_fill(t->list, found.fill, NULL);
    t->counts.inserted++;
    t->counts.bytes_written += t->block_size;
}

/* What is read from the backend, if that fills it. */
static void list_fill(struct qm_sim_tier *t, uint64_t block)
{
    if (t->on_read &&
        qm_sequential_read(&t->sequential, block, t->block_size) <= CUT_OFF)
        list_insert(t, block); /* if it is not there */
}

static bool list_read(struct qm_sim_tier *t, uint64_t block)
{
    struct qm_lookup found;
    bool hit = qm_cache_contains(t->list, block);

    t->counts.lookups++;
    t->counts.hits += hit;
    if (hit) /* which makes it the most recent */
        (void)qm_cache_demand(t->list, block, NULL, 0, (uint32_t)t->block_size, &found);
    list_fill(t, block);
    return hit;
}

static void list_changed(struct qm_sim_tier *t, uint64_t block)
{
    struct qm_cache_write write;

    if (!qm_cache_contains(t->list, block))
        return;
    qm_cache_write_begin(t->list, &write, block * t->block_size, t->block_size);
    qm_cache_write_end(t->list, &write, QM_WRITE_DROP, NULL);
    t->counts.invalidated++;
}

/* ---- all of them */

bool qm_sim_tier_read(struct qm_sim_tier *t, uint64_t block, bool ahead)
{
    struct qm_tier_read read = {.block = block, .ahead = ahead};

    if (t->config.own)
        return t->config.own->read(t->own, block, ahead);
    if (t->list)
        return list_read(t, block);
    return qm_tier_read(t->tier, &read, 1) > 0;
}

void qm_sim_tier_came(struct qm_sim_tier *t, uint64_t block)
{
    if (t->list)
        list_fill(t, block);
}

bool qm_sim_tier_has(struct qm_sim_tier *t, uint64_t block)
{
    if (t->config.own)
        return t->config.own->has && t->config.own->has(t->own, block);
    return t->list ? qm_cache_contains(t->list, block)
                   : qm_tier_contains(t->tier, block);
}

void qm_sim_tier_used(struct qm_sim_tier *t, uint64_t block)
{
    if (t->tier)
        qm_tier_touch(t->tier, block);
}

uint64_t qm_sim_tier_ticket(struct qm_sim_tier *t)
{
    return t->tier ? qm_tier_ticket(t->tier) : t->writes;
}

void qm_sim_tier_evicted(struct qm_sim_tier *t, uint64_t block, uint64_t ticket)
{
    const struct qm_tier_insert insert = {
        .block = block, .ticket = ticket, .frequency = QM_TIER_FREQUENCY_UNKNOWN};

    if (t->tier)
        (void)qm_tier_insert(t->tier, &insert);
    else if (*last_of(t, block) > ticket)
        return;
    else if (t->config.own)
        t->config.own->evicted(t->own, block);
    else if (!t->on_read)
        list_insert(t, block);
}

void qm_sim_tier_changed(struct qm_sim_tier *t, uint64_t offset, uint64_t count)
{
    struct qm_tier_write write;
    uint64_t first, last;

    if (offset >= t->config.volume || count == 0)
        return;
    if (count > t->config.volume - offset)
        count = t->config.volume - offset;
    if (t->tier) {
        qm_tier_write_begin(t->tier, &write, offset, count);
        qm_tier_write_end(t->tier, &write, QM_TIER_WROTE, NULL);
        return;
    }
    first = offset / t->block_size;
    last = (offset + count - 1) / t->block_size;
    t->writes++;
    for (uint64_t block = first; block <= last; block++) {
        *last_of(t, block) = t->writes;
        if (t->config.own)
            t->config.own->changed(t->own, block);
        else
            list_changed(t, block);
    }
}

static void of_tier(struct qm_tier *tier, struct qm_sim_tier_counts *counts)
{
    struct qm_tier_stats s;

    qm_tier_get_stats(tier, &s);
    *counts = (struct qm_sim_tier_counts){
        .lookups = s.lookups,
        .hits = s.hits,
        .inserted = s.inserted,
        .kept = s.kept,
        .refused = s.refused + s.scans + s.over_rate,
        .invalidated = s.invalidated,
        .bytes_written = s.bytes_written,
        .blocks = s.blocks,
        .capacity = s.capacity,
    };
}

void qm_sim_tier_counts(struct qm_sim_tier *t, struct qm_sim_tier_counts *counts)
{
    struct qm_cache_stats s;

    if (t->config.own) {
        t->config.own->counts(t->own, counts);
    } else if (t->tier) {
        of_tier(t->tier, counts);
    } else {
        qm_cache_get_stats(t->list, &s);
        *counts = t->counts;
        counts->blocks = s.main_blocks;
        counts->capacity = t->config.size / t->block_size;
    }
}
