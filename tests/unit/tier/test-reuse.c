/* SPDX-License-Identifier: BSD-3-Clause */
/* test-reuse.c - a full tier admits blocks that are read more often than those that
 * it evicts (tier/reuse.h), by its public calls: without data, repeatable. */
#include "testing.h"
#include "tier/internal.h"

#define BLOCK 16384u

static struct qm_tier *open_tier(enum qm_tier_admit admit)
{
    struct qm_tier_config c = dataless(BLOCK, UINT64_C(16) << 20, admit);

    return open_ok(&c);
}

/* Reads a block, which memory evicts at once. */
static void use(struct qm_tier *t, uint64_t block)
{
    struct qm_tier_read read = {.block = block};
    struct qm_tier_insert insert = {.block = block,
                                    .frequency = QM_TIER_FREQUENCY_UNKNOWN};

    (void)qm_tier_read(t, &read, 1);
    insert.ticket = qm_tier_ticket(t);
    (void)qm_tier_insert(t, &insert);
}

struct outcome {
    uint64_t hits, inserted;
};

static struct outcome since(struct qm_tier *t, const struct qm_tier_stats *before)
{
    struct qm_tier_stats s = stats(t);

    return (struct outcome){s.hits - before->hits, s.inserted - before->inserted};
}

/* What the second half of 200 times the capacity of reads comes to, of blocks by
 * next(). */
static struct outcome second_half(enum qm_tier_admit admit,
                                  uint64_t (*next)(uint64_t i, uint64_t capacity,
                                                   uint64_t *seed))
{
    struct qm_tier *t = open_tier(admit);
    uint64_t capacity = stats(t).capacity, seed = 3;
    struct qm_tier_stats half;
    struct outcome o;

    for (uint64_t i = 0; i < 200 * capacity; i++) {
        if (i == 100 * capacity)
            half = stats(t);
        use(t, next(i, capacity, &seed));
    }
    o = since(t, &half);
    qm_tier_close(t, QM_TIER_KEEP);
    return o;
}

/* At least `hits` per cent of those of admitting all; returns what it comes to, and
 * *all. */
static struct outcome compare(const char *name,
                              uint64_t (*next)(uint64_t i, uint64_t capacity,
                                               uint64_t *seed),
                              uint64_t hits, struct outcome *all)
{
    struct outcome some = second_half(QM_TIER_ADMIT_AUTO, next);

    *all = second_half(QM_TIER_ADMIT_ALL, next);
    printf("%s: %llu of %llu hits, %llu of %llu inserted\n", name,
           (unsigned long long)some.hits, (unsigned long long)all->hits,
           (unsigned long long)some.inserted, (unsigned long long)all->inserted);
    assert_true(some.hits * 100 >= all->hits * hits);
    return some;
}

static uint64_t alike(uint64_t i, uint64_t capacity, uint64_t *seed)
{
    (void)i;
    return rnd_below(seed, 3 * capacity);
}

/* All blocks are alike: whatever is admitted is worth no more than what it replaces. */
TEST(test_alike)
{
    struct outcome all, some = compare("alike", alike, 98, &all);

    assert_true(some.inserted * 20 <= all.inserted);
}

static uint64_t passing(uint64_t i, uint64_t capacity, uint64_t *seed)
{
    return i / 5 + rnd_below(seed, capacity / 2);
}

/* Blocks are read a few times within a short while, and then never: what comes is worth
 * more than what leaves, though it was read no more often. */
TEST(test_passing)
{
    struct outcome all;

    (void)compare("passing", passing, 85, &all);
}

/* Blocks that leave are read again soon, so nothing is worth more; then others are
 * read, as often, and what the tier has never again.  Nothing that left says so. */
TEST(test_over)
{
    struct qm_tier *t = open_tier(QM_TIER_ADMIT_AUTO);
    uint64_t capacity = stats(t).capacity, n = capacity * 5 / 4;
    struct qm_tier_stats before;
    struct outcome o;

    for (uint64_t i = 0; i < 50 * n; i++)
        use(t, i % n);
    for (unsigned pass = 0; pass < 2; pass++) {
        before = stats(t);
        for (uint64_t i = 0; i < 50 * n; i++)
            use(t, 1000000 + i % n);
        o = since(t, &before);
    }
    printf("over: %llu of %llu hits, %llu inserted\n", (unsigned long long)o.hits,
           (unsigned long long)(50 * n), (unsigned long long)o.inserted);
    assert_true(o.hits * 2 >= 50 * n);
    qm_tier_close(t, QM_TIER_KEEP);
}

static struct qm_tier *raced; /* its samples are about to be locked; or NULL */

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

static void look_up(struct qm_tier *t, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct qm_tier_read read = {.block = first + i};

        (void)qm_tier_read(t, &read, 1);
    }
}

static void offer(struct qm_tier *t, uint64_t block)
{
    struct qm_tier_insert insert = {.block = block, .frequency = 1};

    insert.ticket = qm_tier_ticket(t);
    assert_int_equal(qm_tier_insert(t, &insert), EPERM);
}

/* What another thread does between a read's count and its lock. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    struct qm_tier *t = raced;

    if (t && mutex == &t->reuse.lock) {
        raced = NULL;
        look_up(t, 2000000, 10);
        offer(t, 1000000);
    }
    return __real_pthread_mutex_lock(mutex);
}

static uint64_t learned(struct qm_tier *t)
{
    uint64_t n = 0;

    for (unsigned kind = 0; kind <= REUSE_KINDS; kind++)
        n += atomic_load(&t->reuse.learned[kind]);
    return n;
}

/* A sample is replaced by a younger one of the same block while a read of it waits for
 * the lock: the younger one has not been watched for long. */
TEST(test_replaced)
{
    struct qm_tier *t = open_tier(QM_TIER_ADMIT_AUTO);
    uint64_t before;

    for (uint64_t b = 0; stats(t).evicted == 0; b++) {
        use(t, b);
        use(t, b);
    }
    look_up(t, 3000000, atomic_load(&t->reuse.horizon) + 1); /* all places are old */
    offer(t, 1000000);
    look_up(t, 3000000, atomic_load(&t->reuse.horizon) + 1);
    before = learned(t);
    raced = t;
    look_up(t, 1000000, 1);
    assert_null(raced);
    assert_int_equal(learned(t), before + 1);
    qm_tier_close(t, QM_TIER_KEEP);
}
