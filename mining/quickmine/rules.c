/* SPDX-License-Identifier: BSD-3-Clause */
/* rules.c - the rule cache (see rules.h).
 *
 * What holds whenever the lock is free, unless the cache is off: each prefix in the
 * store's order of use has a record, and `count` is the sum of their suffixes.
 */
#include "mining/quickmine/rules.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "mining/quickmine/record.h"
#include "mining/quickmine/rules-db.h"
#include "mining/quickmine/rules-store.h"

/* The suffixes of any record that are in its first QM_STORE_START bytes. */
#define TOP_MAX 64

/* How a look-up waits: first it spins, about as long as others hold the lock. */
#define LOOKUP_SPINS   100
#define LOOKUP_WAIT_NS 5000000

struct qm_rules {
    uint64_t max_prefix, purge_after;
    unsigned max_suffix, grace;
    struct qm_rules_dir *dir; /* NULL: in memory only */
    pthread_mutex_t saving;   /* of the thread that saves; taken before lock */

    atomic_uint waiting;        /* look-ups that want the lock */
    atomic_uint_least64_t busy; /* of these, given up */
    pthread_mutex_t lock;
    /* All below is protected by lock. */
    struct qm_store store;
    int broken;              /* the error that switched the cache off, or 0 */
    struct qm_suffixes list; /* scratch */
    uint64_t count;          /* rules */
    uint64_t written;        /* records, and prefixes removed */
    uint64_t saved_at;       /* `written` when last saved */
    bool changed;            /* at all, since it was loaded or saved */
    uint64_t updates, lookups, matches, evicted, saves, save_errors;
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* A look-up is on a read's path: it goes before additions, and rather finds nothing
 * than waits for ever (Berkeley DB may have to read a slow disk, and sleeps for
 * seconds when it cannot write).  Returns whether it got the lock. */
static bool lock_first(struct qm_rules *rules)
{
    int r = EBUSY;
    atomic_fetch_add_explicit(&rules->waiting, 1, memory_order_relaxed);
    for (int i = 0; r != 0 && i < LOOKUP_SPINS; i++) {
        r = pthread_mutex_trylock(&rules->lock);
        pause_briefly();
    }
    if (r != 0) {
        /* Not pthread_mutex_clocklock(): gcc 12's thread sanitizer does not know it. */
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOKUP_WAIT_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        r = pthread_mutex_timedlock(&rules->lock, &until);
    }
    atomic_fetch_sub_explicit(&rules->waiting, 1, memory_order_relaxed);
    if (r != 0) {
        atomic_fetch_add_explicit(&rules->busy, 1, memory_order_relaxed);
    }
    return r == 0;
}

/* Bounded, so that it is not kept from adding for ever. */
static void lock_last(struct qm_rules *rules)
{
    for (int i = 0; i < 16; i++) {
        if (atomic_load_explicit(&rules->waiting, memory_order_relaxed) == 0) {
            break;
        }
        sched_yield();
    }
    pthread_mutex_lock(&rules->lock);
}

static void unlock(struct qm_rules *rules)
{
    pthread_mutex_unlock(&rules->lock);
}

static int broken(struct qm_rules *rules, int error)
{
    rules->broken = error;
    return error;
}

static int read_list(struct qm_rules *rules, uint32_t id)
{
    size_t size;
    int r = qm_store_read(&rules->store, id, &size);
    if (r == 0) {
        r = qm_record_decode(rules->store.record, size, &rules->list);
        r = r == EINVAL ? EIO : r;
    }
    return r == 0 || r == ENOMEM ? r : broken(rules, r);
}

/* Removes the prefix with this number. */
static int evict(struct qm_rules *rules, uint32_t id)
{
    uint64_t suffixes;
    int r = qm_store_remove(&rules->store, id, &suffixes);
    if (r != 0) {
        return broken(rules, r);
    }
    rules->count -= suffixes;
    rules->evicted++;
    rules->written++;
    rules->changed = true;
    return 0;
}

static int make_room(struct qm_rules *rules)
{
    struct qm_lru *lru = &rules->store.lru;
    int r = 0;
    while (r == 0 && rules->max_prefix > 0 && lru->count >= rules->max_prefix) {
        r = evict(rules, qm_lru_oldest(lru));
    }
    return r;
}

/* Stores rules->list for prefix id, which was read last, or for a & b (id: 0). */
static int write_list(struct qm_rules *rules, uint32_t id, uint64_t a, uint64_t b)
{
    struct qm_store *store = &rules->store;
    int r = qm_store_reserve(store, qm_record_bound(rules->list.n));
    if (r != 0) {
        return r;
    }
    size_t size = qm_record_encode(&rules->list, store->record);
    r = id != 0 ? qm_store_update(store, id, size) : qm_store_add(store, a, b, size);
    if (r == ENOMEM) {
        return r;
    }
    if (r != 0) {
        return broken(rules, r);
    }
    rules->written++;
    rules->changed = true;
    return 0;
}

static int add_locked(struct qm_rules *rules, uint64_t a, uint64_t b,
                      const uint64_t *suffixes, unsigned n)
{
    if (rules->broken) {
        return rules->broken;
    }
    uint32_t id = qm_lru_find(&rules->store.lru, a, b);
    int r = 0;
    rules->list.n = 0;
    if (id != 0) {
        r = read_list(rules, id);
    }
    size_t before = rules->list.n;
    for (unsigned i = 0; r == 0 && i < n; i++) {
        r = qm_suffixes_add(&rules->list, suffixes[i], rules->max_suffix, rules->grace);
    }
    if (r == 0 && id == 0) {
        r = make_room(rules);
    }
    if (r == 0) {
        r = write_list(rules, id, a, b);
    }
    if (r == 0) {
        rules->count += rules->list.n - before;
        rules->updates += n;
    }
    return r;
}

int qm_rules_add(struct qm_rules *rules, uint64_t a, uint64_t b,
                 const uint64_t *suffixes, unsigned n)
{
    lock_last(rules);
    int r = add_locked(rules, a, b, suffixes, n);
    unlock(rules);
    return r;
}

unsigned qm_rules_lookup(struct qm_rules *rules, uint64_t a, uint64_t b,
                         uint64_t *blocks, unsigned max)
{
    unsigned char start[QM_STORE_START];
    size_t size = 0;
    if (!lock_first(rules)) {
        return 0;
    }
    rules->lookups++;
    uint32_t id = rules->broken ? 0 : qm_lru_find(&rules->store.lru, a, b);
    if (id != 0) {
        int r = qm_store_look(&rules->store, id, start, &size);
        if (r == 0) {
            rules->matches++;
            rules->changed = true;
        } else {
            broken(rules, r);
            size = 0;
        }
    }
    unlock(rules);
    return qm_record_top(start, size, blocks, max < TOP_MAX ? max : TOP_MAX);
}

int qm_rules_purge(struct qm_rules *rules, uint64_t now)
{
    if (rules->purge_after == 0) {
        return 0;
    }
    lock_last(rules);
    int r = rules->broken ? rules->broken : qm_lru_mark(&rules->store.lru, now);
    unlock(rules);
    for (uint32_t id = 1; r == 0 && id != 0;) {
        lock_last(rules);
        r = rules->broken;
        id = qm_lru_expired(&rules->store.lru, now, rules->purge_after);
        if (r == 0 && id != 0) {
            r = evict(rules, id);
        }
        unlock(rules);
    }
    return r;
}

void qm_rules_stats(struct qm_rules *rules, struct qm_mining_stats *stats)
{
    uint64_t bytes = 0;
    lock_last(rules);
    if (!rules->broken && qm_bdb_bytes(&rules->store.bdb, &bytes) != 0) {
        bytes = 0;
    }
    stats->rules = rules->count;
    stats->prefixes = rules->store.lru.count;
    stats->rules_bytes = bytes + qm_store_bytes(&rules->store) +
                         rules->list.cap * sizeof rules->list.v[0];
    stats->updates = rules->updates;
    stats->busy = atomic_load_explicit(&rules->busy, memory_order_relaxed);
    stats->lookups = rules->lookups + stats->busy;
    stats->matches = rules->matches;
    stats->evicted = rules->evicted;
    stats->saves = rules->saves;
    stats->save_errors = rules->save_errors;
    unlock(rules);
}

static int by_prefix(const void *x, const void *y)
{
    const struct qm_lru_place *p = x, *q = y;
    if (p->a != q->a) {
        return p->a < q->a ? -1 : 1;
    }
    return p->b < q->b ? -1 : p->b > q->b;
}

/* All prefixes, sorted, with their places in the order of use. */
static int list_prefixes(struct qm_rules *rules, struct qm_lru_place **list, size_t *n)
{
    struct qm_lru_copy *copy;
    lock_last(rules);
    int r = rules->broken ? rules->broken : qm_lru_copy(&rules->store.lru, &copy);
    unlock(rules);
    if (r == 0) {
        r = qm_lru_list(copy, list, n);
    }
    if (r == 0) {
        qsort(*list, *n, sizeof **list, by_prefix);
    }
    return r;
}

/* Calls visit() with a copy of each prefix's record, in order, without the lock. */
static int visit_records(struct qm_rules *rules,
                         int (*visit)(void *opaque, const struct qm_lru_place *prefix,
                                      const unsigned char *record, size_t size),
                         void *opaque)
{
    struct qm_lru_place *list;
    size_t n, cap = 0, size = 0;
    unsigned char *record = NULL;
    int r = list_prefixes(rules, &list, &n);
    if (r != 0) {
        return -r;
    }
    for (size_t i = 0; r == 0 && i < n; i++) {
        bool found = false;
        lock_last(rules);
        uint32_t id = qm_lru_find(&rules->store.lru, list[i].a, list[i].b);
        r = rules->broken;
        if (r == 0 && id != 0) {
            r = qm_store_copy(&rules->store, id, &record, &cap, &size);
            found = r == 0;
            if (r != 0 && r != ENOMEM) {
                broken(rules, r);
            }
        }
        unlock(rules);
        r = -r;
        if (found) {
            r = visit(opaque, &list[i], record, size);
        }
    }
    free(record);
    free(list);
    return r;
}

struct each_rule {
    int (*each)(void *opaque, const struct qm_rule *rule);
    void *opaque;
    struct qm_suffixes list;
};

static int by_block(const void *x, const void *y)
{
    const struct qm_suffix *s = x, *t = y;
    return s->block < t->block ? -1 : s->block > t->block;
}

static int visit_rules(void *opaque, const struct qm_lru_place *prefix,
                       const unsigned char *record, size_t size)
{
    struct each_rule *e = opaque;
    int r = -qm_record_decode(record, size, &e->list);
    if (r == 0) {
        qsort(e->list.v, e->list.n, sizeof e->list.v[0], by_block);
    }
    for (size_t i = 0; r == 0 && i < e->list.n; i++) {
        struct qm_rule rule = {prefix->a, prefix->b, e->list.v[i].block,
                               e->list.v[i].support};
        r = e->each(e->opaque, &rule);
    }
    return r;
}

int qm_rules_each(struct qm_rules *rules,
                  int (*each)(void *opaque, const struct qm_rule *rule), void *opaque)
{
    struct each_rule e = {.each = each, .opaque = opaque};
    int r = visit_records(rules, visit_rules, &e);
    free(e.list.v);
    return r;
}

static int visit_save(void *opaque, const struct qm_lru_place *prefix,
                      const unsigned char *record, size_t size)
{
    return -qm_rules_save_put(opaque, prefix->a, prefix->b, prefix->place, record,
                              size);
}

/* The caller holds rules->saving. */
static int save(struct qm_rules *rules)
{
    struct qm_rules_save *s;
    lock_last(rules);
    uint64_t written = rules->written;
    rules->changed = false;
    unlock(rules);
    int r = qm_rules_save_begin(rules->dir, &s);
    if (r == 0) {
        r = -visit_records(rules, visit_save, s);
        int r2 = qm_rules_save_end(s, r == 0);
        r = r != 0 ? r : r2;
    }
    lock_last(rules);
    if (r == 0) {
        rules->saved_at = written;
        rules->saves++;
    } else {
        rules->save_errors++;
        rules->changed = true;
    }
    unlock(rules);
    return r;
}

int qm_rules_save(struct qm_rules *rules)
{
    if (!rules->dir) {
        return 0;
    }
    pthread_mutex_lock(&rules->saving);
    lock_last(rules);
    int r = rules->broken;
    bool due = rules->written != rules->saved_at;
    unlock(rules);
    if (due && r == 0) {
        r = save(rules);
    }
    pthread_mutex_unlock(&rules->saving);
    return due ? r : 0;
}

/* A suffix is none of its prefix's blocks (ATC'08 §3.3). */
static bool is_rule(uint64_t a, uint64_t b, uint64_t c)
{
    return c != a && c != b;
}

static int load_prefix(void *opaque, uint64_t a, uint64_t b)
{
    struct qm_rules *rules = opaque;
    uint32_t id;
    return qm_lru_insert(&rules->store.lru, a, b, &id);
}

static int load_record(void *opaque, uint64_t a, uint64_t b,
                       const unsigned char *record, size_t size)
{
    struct qm_rules *rules = opaque;
    int r = qm_record_decode(record, size, &rules->list);
    if (r == 0) {
        r = qm_store_reserve(&rules->store, qm_record_bound(rules->list.n));
    }
    if (r != 0) {
        return r;
    }
    /* They may have been saved under other bounds. */
    if (rules->max_suffix > 0 && rules->list.n > rules->max_suffix) {
        rules->list.n = rules->max_suffix;
    }
    for (size_t i = 0; i < rules->list.n; i++) {
        struct qm_suffix *s = &rules->list.v[i];
        s->grace = s->grace < rules->grace ? s->grace : rules->grace;
    }
    rules->count += rules->list.n;
    return qm_store_load(&rules->store, qm_lru_find(&rules->store.lru, a, b),
                         qm_record_encode(&rules->list, rules->store.record));
}

static int make_lock(struct qm_rules *rules)
{
    pthread_mutexattr_t attr;
    int r = pthread_mutexattr_init(&attr);
    if (r == 0) {
        /* It is held for less time than going to sleep and waking up take. */
        (void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
        r = pthread_mutex_init(&rules->lock, &attr);
        pthread_mutexattr_destroy(&attr);
    }
    if (r == 0) {
        r = pthread_mutex_init(&rules->saving, NULL);
        if (r != 0) {
            pthread_mutex_destroy(&rules->lock);
        }
    }
    return r;
}

static void free_rules(struct qm_rules *rules)
{
    qm_store_close(&rules->store);
    if (rules->dir) {
        qm_rules_dir_close(rules->dir);
    }
    free(rules->list.v);
    pthread_mutex_destroy(&rules->saving);
    pthread_mutex_destroy(&rules->lock);
    free(rules);
}

int qm_rules_open(const struct qm_mining_config *config, struct qm_rules **rules,
                  char *err, size_t len)
{
    struct qm_rules *s = calloc(1, sizeof *s);
    int r = s ? make_lock(s) : ENOMEM;
    if (r != 0) {
        free(s);
        snprintf(err, len, "cannot make the rule cache: %s", strerror(r));
        return r;
    }
    s->max_prefix = config->max_prefix;
    s->max_suffix = config->max_suffix;
    s->grace = config->max_suffix > 0 ? config->grace : 0;
    s->purge_after = config->purge_after;
    err[0] = '\0';

    uint64_t seed = 0;
    (void)getrandom(&seed, sizeof seed, GRND_NONBLOCK);
    r = qm_store_open(&s->store, config->rules_pool, config->max_prefix, seed);
    if (r != 0) {
        snprintf(err, len, "cannot make the rule cache: %s",
                 s->store.bdb.message[0] ? s->store.bdb.message : strerror(r));
    }
    if (r == 0 && config->rules_dir) {
        r = qm_rules_dir_open(config, &s->dir, err, len);
        if (r == 0) {
            r = qm_rules_db_load(s->dir, s->max_prefix, is_rule, load_prefix,
                                 load_record, s, err, len);
        }
        s->written = 0;
        s->changed = false;
    }
    if (r != 0) {
        free_rules(s);
        return r;
    }
    *rules = s;
    return 0;
}

int qm_rules_close(struct qm_rules *rules)
{
    int r = 0;
    if (rules->dir && rules->changed) {
        r = rules->broken ? rules->broken : save(rules);
    }
    free_rules(rules);
    return r;
}
