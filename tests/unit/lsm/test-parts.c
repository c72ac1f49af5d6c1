/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of lsm/ that are C: fences, Algorithms 1 and 3, collector, choice, price,
 * watch; each against a simple model. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "tests/harness.h"

#include "lsm/epoch.h"
#include "lsm/overlap.h"
#include "lsm/plan.h"
#include "lsm/ranges.h"
#include "tests/unit/random.h"

static size_t make_key(char *key, unsigned long n)
{
    return (size_t)sprintf(key, "user%08lu", n);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Keys of all lengths that share beginnings, the empty one and prefixes included. */
TEST(test_fences)
{
    for (uint64_t seed = 1; seed < 60; seed++) {
        uint64_t s = seed;
        char *names[200];
        struct keys keys = {0};
        struct fences *f;
        size_t common = rnd(&s) % 12, n = 1 + rnd(&s) % 100, m = 0;
        for (size_t i = 0; i < 200; i++) {
            size_t len = rnd(&s) % 14;
            names[i] = calloc(1, common + len + 1);
            memset(names[i], 'p', common);
            for (size_t j = 0; j < len; j++)
                names[i][common + j] = (char)('a' + rnd(&s) % 2);
        }
        qsort(names, n, sizeof *names, compare);
        for (size_t i = 0; i < n; i++)
            if (i == 0 || strcmp(names[i], names[i - 1]) != 0) {
                assert_int_equal(keys_add(&keys, names[i], strlen(names[i])), 0);
                m++;
            }
        f = fences_build(&keys);
        assert_non_null(f);
        for (size_t i = 0; i < 200; i++) {
            uint32_t expected = 0;
            for (uint32_t k = 0; k < m; k++) {
                size_t len;
                const uint8_t *fence = keys_get(&f->keys, k, &len);
                expected += key_compare(fence, len, names[i], strlen(names[i])) <= 0;
            }
            assert_int_equal(fences_find(f, names[i], strlen(names[i])), expected);
            assert_int_equal(fences_find_from(f, rnd(&s) % (expected + 1), names[i],
                                              strlen(names[i])),
                             expected);
        }
        fences_free(f);
        for (size_t i = 0; i < 200; i++)
            free(names[i]);
    }
}

/* Accesses to every 64th of 1,024 columns: zeros stay plenty until a range has 64. */
TEST(test_ranges)
{
    static uint8_t matrix[4 * 1024];
    uint32_t size;

    memset(matrix, 0, sizeof matrix);
    for (int i = 0; i < 4 * 1024; i += 64)
        matrix[i] = 1;
    size = ranges_choose(matrix, 4, 1024, RANGES_ALPHA);
    assert_in_range(size, 16, 63);
    memset(matrix, 1, sizeof matrix); /* all hot: any larger range loses nothing, but */
    assert_int_equal(ranges_choose(matrix, 4, 1024, RANGES_ALPHA),
                     1); /* has no zeros */
    memset(matrix, 0, sizeof matrix);
    for (int i = 0; i < 4 * 1024; i += 2)
        matrix[i] = 1;
    assert_int_equal(ranges_choose(matrix, 4, 1024, RANGES_ALPHA), 1);
    memset(matrix, 0, sizeof matrix);
    assert_true(ranges_choose(matrix, 4, 1024, RANGES_ALPHA) >= 512);
}

/* A block may begin where the one before it ends: two have keys of one range. */
TEST(test_overlap)
{
    for (uint64_t seed = 1; seed < 400; seed++) {
        uint64_t s = seed, at = 0;
        struct interval block[60], range[60];
        uint32_t m = rnd(&s) % 60, n = rnd(&s) % 60;
        uint8_t a[60], b[60], c[60];
        for (uint32_t i = 0; i < m; i++) {
            block[i].first = at += (seed % 2) + rnd(&s) % 4;
            block[i].last = at += rnd(&s) % 4;
        }
        at = rnd(&s) % 20;
        for (uint32_t i = 0; i < n; i++) {
            range[i].first = at += 1 + rnd(&s) % 6;
            range[i].last = at += rnd(&s) % 8;
        }
        overlap_search(block, m, range, n, a);
        overlap_merge(block, m, range, n, b);
        overlap_check(block, m, range, n, c);
        for (uint32_t i = 0; i < m; i++) {
            uint8_t expected = 0;
            for (uint32_t j = 0; j < n; j++)
                expected |=
                    block[i].first <= range[j].last && range[j].first <= block[i].last;
            assert_int_equal(a[i], expected);
            assert_int_equal(b[i], expected);
            assert_int_equal(c[i], expected);
        }
    }
}

/* A file of keys 0 to 9,999, of which each spacing-th becomes a fence. */
static struct shape *file(struct collector *c, int level, unsigned long n,
                          unsigned keys_a_block)
{
    struct shape *s = shape_new(c, level, 0);
    char key[24];

    for (unsigned long i = 0; i < n; i++) {
        shape_key(s, key, make_key(key, i), 100);
        if (i % keys_a_block == keys_a_block - 1)
            shape_block(s, 4000);
    }
    shape_finish(s);
    return s;
}

TEST(test_collector)
{
    struct collector *c = collector_new(100000, 1);
    struct collector_stats stats;
    struct shape *s = file(c, 1, 10000, 20);
    struct table *t;
    char key[24];
    double hot = 0, cold = 0;

    assert_int_equal(s->n, 500);
    shape_free(s);
    collector_get_stats(c, &stats);
    assert_in_range(stats.ranges, 990, 1001);
    for (int i = 0; i < 3000; i++)
        collector_read(c, key, make_key(key, 5000 + i % 100));
    collector_write(c, key, make_key(key, 7));
    collector_tick(c, 0);
    collector_get_stats(c, &stats);
    assert_int_equal(stats.reads, 3000);
    assert_int_equal(stats.writes, 1);
    assert_true(stats.touched < 64 * 5); /* counters are made where they are needed */
    s = file(c, 1, 10000, 20);           /* nothing new: no range is learned */
    for (uint32_t i = 0; i < s->n; i++)
        *(i >= 250 && i < 255 ? &hot : &cold) += s->heat[i];
    assert_true(hot > 3000 * .4 * .9 && hot < 3000 * .4 * 1.1);
    assert_true(cold < 100);
    shape_free(s);
    t = collector_table(c);
    assert_in_range(t->n, 990, 1001);
    table_put(t);
    collector_free(c);
}

/* Ranges double when there are more keys than ranges; no read is lost from the rates.
 */
TEST(test_bounded)
{
    struct collector *c = collector_new(100, 1);
    struct collector_stats stats;
    struct shape *s = file(c, 1, 500, 20);
    struct table *t;
    char key[24];
    double sum = 0;

    shape_free(s);
    for (int i = 0; i < 500; i++)
        collector_read(c, key, make_key(key, (unsigned long)i));
    collector_tick(c, 0);
    s = file(c, 1, 10000, 20);
    shape_free(s);
    collector_get_stats(c, &stats);
    assert_true(stats.ranges <= 100);
    assert_true(stats.spacing > 10);
    t = collector_table(c);
    for (uint32_t i = 0; i < t->n; i++)
        sum += table_range(t, i) ? (double)table_range(t, i)->rate : 0;
    assert_true(fabs(sum - 500 * .4) < 5);
    table_put(t);
    collector_free(c);
}

struct job {
    struct collector *c;
    unsigned long first;
};

static void *reads(void *arg)
{
    struct job *job = arg;
    char key[24];

    for (int i = 0; i < 20000; i++)
        collector_read(job->c, key, make_key(key, job->first + i % 2000));
    return NULL;
}

/* Eight threads count while the ranges are replaced: what the last table counts is no
 * more than what was read, and all of it if nothing is replaced. */
TEST(test_threads)
{
    for (int replaced = 0; replaced < 2; replaced++) {
        struct collector *c = collector_new(4000, 1);
        struct collector_stats stats;
        pthread_t thread[8];
        struct job job[8];
        shape_free(file(c, 1, 10000, 20));
        for (int i = 0; i < 8; i++) {
            job[i] = (struct job){c, (unsigned long)i * 1000};
            assert_int_equal(pthread_create(&thread[i], NULL, reads, &job[i]), 0);
        }
        for (int i = 0; replaced && i < 20; i++) {
            shape_free(file(c, 1, 10000 * (unsigned long)(i + 2), 20));
            collector_tick(c, 20);
        }
        for (int i = 0; i < 8; i++)
            pthread_join(thread[i], NULL);
        collector_tick(c, 0);
        collector_get_stats(c, &stats);
        if (replaced)
            assert_true(stats.reads <= 8 * 20000);
        else
            assert_int_equal(stats.reads, 8 * 20000);
        collector_free(c);
    }
}

/* 18 features, in their order; a precursor is what is read shortly before, if its rates
 * are alike; with neither, all is 0 but the time. */
TEST(test_features)
{
    struct collector *c = collector_new(1000, 1);
    struct moment moment = features_moment(3 * 86400 + 5 * 3600 + 6 * 60 + 7);
    double row[FEATURES];
    struct table *t;
    char key[24];
    uint32_t of[3], other = 0;

    collector_follow(c);
    shape_free(file(c, 1, 1000, 20));
    for (int slot = 0; slot < 3; slot++) {
        for (int i = 0; i < 4000; i++) {
            collector_read(c, key, make_key(key, 105));
            collector_read(c, key, make_key(key, 505));
            if (slot == 0 && i < 2000) /* also before 505, but not in later intervals */
                collector_read(c, key, make_key(key, 805));
        }
        for (int i = 0; i < 10 * slot; i++)
            collector_write(c, key, make_key(key, 505));
        collector_tick(c, 0);
    }
    t = collector_table(c);
    for (int i = 0; i < 3; i++)
        of[i] = fences_find(t->fences, key,
                            make_key(key, (unsigned long[]){105, 505, 805}[i]));
    features_of(t, of[1], &moment, row);
    assert_true(row[0] == 4000 && row[2] == 4000 && row[3] == 0);
    assert_true(row[6] == 20 && row[7] == 10 && row[8] == 0);
    assert_true(row[12] == 5 && row[13] == 6 && row[14] == 7);
    assert_true(row[15] == 4000); /* 105; and 805, whose cosine is .58, had no reads */
    assert_true(row[16] == 0 && row[17] == 0);
    while (other == of[0] || other == of[1] || other == of[2])
        other++;
    features_of(t, other, &moment, row);
    for (uint32_t i = 0; i < FEATURES; i++)
        assert_true(i >= 12 && i < 15 ? row[i] > 0 : row[i] == 0);
    table_put(t);
    /* Ranges that replace the followed ones are followed. */
    shape_free(file(c, 1, 60000, 20));
    t = collector_table(c);
    assert_non_null(t->follow);
    table_put(t);
    collector_free(c);
}

/* The first read of an interval always counts; others by chance, and the estimate is
 * near. */
TEST(test_sampled)
{
    struct collector *c = collector_new(1000, .1);
    struct collector_stats stats;

    shape_free(file(c, 1, 1000, 20));
    collector_read(c, "user00000500", 12);
    collector_tick(c, 0);
    collector_get_stats(c, &stats);
    assert_int_equal(stats.reads, 1);
    for (int i = 0; i < 100000; i++)
        collector_read(c, "user00000500", 12);
    collector_tick(c, 0);
    collector_get_stats(c, &stats);
    assert_in_range(stats.reads, 95000, 105000);
    collector_free(c);
}

TEST(test_choice)
{
    struct choice c = {0};

    assert_true(choice_value(&c, 1, 0, 10) < .11);
    assert_true(choice_value(&c, 1, 1, 10) > .99);
    choice_learn(&c, 1, choice_class(0), 900, 1000); /* cold blocks are used, too */
    assert_true(choice_value(&c, 1, 0, 10) > .8);
    assert_true(choice_value(&c, 2, 0, 10) < .11); /* of that level alone */
    /* A class that was not seen: by those near it, not by those far away. */
    assert_true(choice_value(&c, 1, .001f, .1) > .8);
    assert_true(choice_value(&c, 1, .03f, .1) > .85);
    assert_true(choice_value(&c, 1, 100, .0001) < .11);
    choice_learn(&c, 1, choice_class(.001f), 0, 200);
    assert_true(choice_value(&c, 1, .001f, .1) < .05);
    choice_learn(&c, 0, choice_class(1), 0, 1000);
    assert_true(choice_value(&c, 0, 1, 10) < .1);
    for (float heat = 0; heat < 100; heat += .01f)
        assert_true(choice_class(heat) <= choice_class(heat + .01f));
}

static uint64_t names_of(struct file *f, unsigned cold)
{
    uint64_t(*names)[2], n = watch_names(f, cold, NULL, &names);

    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; n < 100 && j < i; j++)
            assert_true(names[i][1] != names[j][1]);
    free(names);
    return n;
}

/* A look-up's two words find file and block; foreign words, and those behind the data,
 * find none. */
TEST(test_watch)
{
    struct watch *w = watch_new();
    struct family family = {.collector = collector_new(1000, 1)};
    struct shape *s = file(family.collector, 1, 200, 20);
    uint8_t warmed[10] = {1};
    uint64_t first[2] = {77, 0xabcd00}, name[2] = {77, 0};
    struct file *f = watch_add(w, &family, first, s, 10 * 4005, warmed, 1000);

    assert_non_null(f);
    price_blocks(watch_price(w), 1000);
    for (uint64_t block = 0; block < 10; block++) {
        name[1] = first[1] ^ (block * 4005 >> 2);
        watch_look(w, name, block == 0);
        watch_insert(w, name);
        watch_insert(w, name);
    }
    name[1] = first[1] ^ (10 * 4005 + 400) >> 2; /* its index */
    watch_look(w, name, true);
    name[0] = 78;
    watch_look(w, name, true);
    watch_insert(w, name);
    assert_int_equal(family.hits, 1);
    assert_int_equal(family.misses, 9);
    assert_int_equal(family.used, 1);
    assert_int_equal(family.late, 9);
    assert_int_equal(names_of(f, 0), 10);
    watch_tick(w, &family, .5); /* it may have been born a moment ago */
    assert_true(choice_value(&family.choice, 1, 0, .5) < .11);
    collector_tick(family.collector, 0);
    assert_int_equal(names_of(f, 2), 0);
    watch_tick(w, &family, .5);
    assert_true(choice_value(&family.choice, 1, 0, .5) > .5);
    watch_tick(w, &family, .5);
    assert_int_equal(names_of(f, 2), 10);
    watch_remove(w, f);
    assert_int_equal(family.blocks, 0);
    shape_free(s);
    collector_free(family.collector);
    watch_free(w);
}

/* Names of all files together are bounded; a file that goes makes room. */
TEST(test_names)
{
    struct watch *w = watch_new();
    struct family family = {.collector = collector_new(1000, 1)};
    struct shape *s = file(family.collector, 1, 20, 20);
    uint8_t warmed[1] = {0};
    struct file *f[2];
    uint64_t n;

    for (uint64_t i = 0; i < 2; i++)
        f[i] = watch_add(w, &family, (uint64_t[]){77 + i, 0}, s, 4005, warmed, 1000);
    for (uint64_t i = 0; i < WATCH_NAMES; i++)
        watch_insert(w, (uint64_t[]){77, i});
    n = names_of(f[0], 0);
    assert_in_range(n, WATCH_NAMES / 2, WATCH_NAMES - 1);
    watch_insert(w, (uint64_t[]){78, 5}); /* there is no room */
    assert_int_equal(names_of(f[1], 0), 0);
    watch_remove(w, f[0]);
    watch_insert(w, (uint64_t[]){78, 5});
    assert_int_equal(names_of(f[1], 0), 1);
    watch_remove(w, f[1]);
    shape_free(s);
    collector_free(family.collector);
    watch_free(w);
}

struct waiter {
    struct epoch *epoch;
    _Atomic bool done;
};

static void *wait_epoch(void *arg)
{
    struct waiter *waiter = arg;

    epoch_wait(waiter->epoch);
    atomic_store(&waiter->done, true);
    return NULL;
}

/* A reader that read the turn, and counts itself only after a writer has waited, is
 * waited for by the next writer all the same. */
TEST(test_epoch)
{
    struct epoch *e = aligned_alloc(64, sizeof *e);
    unsigned turn;
    pthread_t thread;

    memset(e, 0, sizeof *e);
    pthread_mutex_init(&e->writers, NULL);
    for (int late = 0; late < 2; late++) {
        struct waiter waiter = {.epoch = e};
        turn = atomic_load(&e->turn) & 1; /* epoch_enter(), in two parts */
        if (late)
            epoch_wait(e);
        atomic_fetch_add(&e->lane[turn][0].readers, 1);
        assert_int_equal(pthread_create(&thread, NULL, wait_epoch, &waiter), 0);
        for (int i = 0; i < 2000; i++) {
            sched_yield();
            assert_false(atomic_load(&waiter.done));
        }
        epoch_leave(e, turn * EPOCH_LANES);
        pthread_join(thread, NULL);
        assert_true(atomic_load(&waiter.done));
    }
    pthread_mutex_destroy(&e->writers);
    free(e);
}

/* Modes, on a flushed file and a compacted one with one hot block each. */
TEST(test_plan)
{
    struct family family = {.collector = collector_new(1000, 1)};
    uint8_t want[10];
    char key[24];

    shape_free(file(family.collector, 1, 200, 20));
    for (int i = 0; i < 500; i++)
        collector_read(family.collector, key, make_key(key, 65));
    collector_tick(family.collector, 0);
    for (int level = 0; level < 2; level++) {
        struct shape *s = file(family.collector, level, 200, 20);
        assert_int_equal(plan_blocks(QM_LSM_OFF, &family, s, 0, 5, want), 0);
        assert_int_equal(plan_blocks(QM_LSM_ERASE, &family, s, 0, 5, want), 0);
        assert_int_equal(plan_blocks(QM_LSM_ALL, &family, s, 0, 5, want), 10);
        assert_int_equal(plan_blocks(QM_LSM_FLUSH, &family, s, 0, 5, want),
                         level ? 0 : 10);
        /* The range of keys 59 to 68 begins in block 2. */
        assert_int_equal(plan_blocks(QM_LSM_SELECTIVE, &family, s, 0, 5, want), 2);
        assert_int_equal(want[2] + want[3], 2);
        assert_int_equal(plan_blocks(QM_LSM_ADAPTIVE, &family, s, .5, 5, want), 2);
        assert_int_equal(want[3], 1);
        assert_int_equal(plan_blocks(QM_LSM_ADAPTIVE, &family, s, 9, 5, want), 0);
        shape_free(s);
    }
    collector_free(family.collector);
}
