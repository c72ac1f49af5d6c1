/* SPDX-License-Identifier: BSD-3-Clause */
/* bridge.c - see bridge.h. */
#include "lsm/watch.h"
#include "lsm/plan.h"
#include "lsm/bridge.h"
#include "lsm/cold.h"
#include "lsm/dump.h"

#include <stdlib.h>

struct family *family_new(uint32_t ranges, double sample)
{
    struct family *f = calloc(1, sizeof *f);

    if (!f)
        return NULL;
    f->collector = collector_new(ranges, sample);
    if (!f->collector) {
        free(f);
        return NULL;
    }
    return f;
}

struct trees *bridge_trees(const char *path, char *err, size_t err_len)
{
    return trees_read(path, FEATURES, err, err_len);
}

void family_learn(struct family *f, const struct trees *trees, struct dump *dump,
                  uint32_t number)
{
    f->trees = trees;
    f->dump = dump;
    f->number = number;
    f->followed = trees || dump;
    if (f->followed)
        collector_follow(f->collector);
}

void family_free(struct family *f)
{
    if (!f)
        return;
    collector_free(f->collector);
    free(f);
}

void family_read(struct family *f, const void *key, size_t len)
{
    if (!atomic_load_explicit(&f->keyed, memory_order_relaxed))
        atomic_store(&f->keyed, true);
    collector_read(f->collector, key, len);
}

void family_write(struct family *f, const void *key, size_t len)
{
    collector_write(f->collector, key, len);
}

struct shape *family_shape(struct family *f, int level, uint32_t cut, uint32_t from,
                           uint32_t steps)
{
    struct shape *s = shape_new(f->collector, level, cut);

    if (s && f->trees)
        shape_predict(s, f->trees, from, steps);
    return s;
}

uint64_t family_cold(struct file *file, uint32_t steps, unsigned idle,
                     uint64_t (**names)[2])
{
    struct family *f = watch_family(file);
    uint32_t n;
    const struct keys *firsts = watch_firsts(file, &n);
    struct moment moment;
    struct table *t;
    uint8_t *hot;
    uint64_t found;

    *names = NULL;
    if (!f->trees)
        return watch_names(file, idle, NULL, names);
    if (n == 0 || !(hot = malloc(n)))
        return 0;
    moment = features_moment(time(NULL));
    t = collector_table(f->collector);
    cold_check(firsts, n, t, f->trees, steps, &moment, hot);
    table_put(t);
    found = watch_names(file, 0, hot, names);
    free(hot);
    return found;
}

int family_tick(struct family *f, struct watch *w, double window)
{
    int e = 0;

    watch_tick(w, f, window);
    collector_tick(f->collector, atomic_load(&f->largest));
    choice_tick(&f->choice);
    if (f->dump) {
        struct table *t = collector_table(f->collector);
        e = dump_interval(f->dump, f->number, f->dumped++, t);
        table_put(t);
    }
    return e;
}

void family_stats(struct family *f, struct qm_lsm_stats *stats)
{
    struct collector_stats c;

    collector_get_stats(f->collector, &c);
    stats->hits += atomic_load(&f->hits);
    stats->misses += atomic_load(&f->misses);
    stats->used += atomic_load(&f->used);
    stats->late += atomic_load(&f->late);
    stats->reads += c.reads;
    stats->writes += c.writes;
    stats->ranges += c.ranges;
    stats->spacing = c.spacing;
    stats->memory += c.bytes;
}

uint32_t bridge_blocks(const struct shape *s)
{
    return s->failed ? 0 : s->n;
}

int bridge_level(const struct shape *s)
{
    return s->level;
}

const void *bridge_first(const struct shape *s, uint32_t i, size_t *len)
{
    return keys_get(&s->firsts, i, len);
}

uint32_t bridge_plan(enum qm_lsm_mode mode, struct family *f, const struct shape *s,
                     double price, double window, uint8_t *want)
{
    if (s->n > 0)
        atomic_store(&f->largest, (uint32_t)(s->entries / s->n));
    return plan_blocks(mode, f, s, price, window, want);
}

void bridge_capacity(struct watch *w, uint64_t blocks)
{
    price_blocks(watch_price(w), blocks);
}

double bridge_price(struct watch *w)
{
    return price_now(watch_price(w));
}

void bridge_erased(struct watch *w, uint64_t blocks)
{
    price_erased(watch_price(w), blocks);
}

uint64_t bridge_clock(struct watch *w)
{
    return price_clock(watch_price(w));
}

uint64_t bridge_residence(struct watch *w)
{
    return price_residence(watch_price(w));
}
