/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys and records as Berkeley DB sees them, and the order of use of prefixes. */
#include "testing.h"

#include <errno.h>

#include "mining/quickmine/prefix-lru.h"
#include "mining/quickmine/record.h"

static uint64_t any_number(struct rng *rng)
{
    return rng_next(rng) >> rng_below(rng, 64);
}

TEST(test_keys)
{
    struct rng rng = {3};
    unsigned char x[QM_KEY_MAX], y[QM_KEY_MAX];
    for (int i = 0; i < 200000; i++) {
        uint64_t a = any_number(&rng), b = any_number(&rng), c, d;
        uint64_t a2 = rng_below(&rng, 2) ? a : any_number(&rng), b2 = any_number(&rng);
        if (a == b || a2 == b2) {
            continue;
        }
        size_t n = qm_key_encode(a, b, x), n2 = qm_key_encode(a2, b2, y);
        assert_true(n <= QM_KEY_MAX);
        assert_int_equal(qm_key_decode(x, n, &c, &d), 0);
        assert_true(a == c && b == d);
        /* Bytewise order is numerical order. */
        int order = memcmp(x, y, n < n2 ? n : n2);
        int should = a != a2 ? (a < a2 ? -1 : 1) : b != b2 ? (b < b2 ? -1 : 1) : 0;
        assert_true((order < 0) == (should < 0) && (order > 0) == (should > 0));
        assert_true(order != 0 || n == n2);
        /* Neither a part of a key nor more than one is a key. */
        assert_int_equal(qm_key_decode(x, n - 1, &c, &d), EINVAL);
        x[n < QM_KEY_MAX ? n : 0] = 0;
        assert_int_equal(qm_key_decode(x, n < QM_KEY_MAX ? n + 1 : n, &c, &d) == EINVAL,
                         1);
    }
    assert_int_equal(qm_key_encode(0, 1, x), 3);
    uint64_t a, b;
    assert_int_equal(qm_key_decode((const unsigned char *)"\1\1\1\1", 4, &a, &b),
                     EINVAL);
    assert_int_equal(qm_key_decode((const unsigned char *)"\2\0\1\1\2", 5, &a, &b),
                     EINVAL);
    assert_int_equal(
        qm_key_decode((const unsigned char *)"\11123456789\1\1", 12, &a, &b), EINVAL);
    assert_int_equal(qm_key_decode((const unsigned char *)"", 0, &a, &b), EINVAL);
}

static struct qm_suffixes random_list(struct rng *rng, unsigned max, unsigned grace)
{
    struct qm_suffixes list = {0};
    for (uint64_t i = 1 + rng_below(rng, 60); i > 0; i--) {
        uint64_t block = rng_below(rng, 2) ? rng_below(rng, 20) : any_number(rng);
        assert_int_equal(qm_suffixes_add(&list, block, max, grace), 0);
        assert_true(max == 0 || list.n <= max);
    }
    return list;
}

TEST(test_records)
{
    struct rng rng = {4};
    struct qm_suffixes back = {0};
    for (int i = 0; i < 3000; i++) {
        struct qm_suffixes list = random_list(&rng, i % 3 ? 8 : 0, 300);
        if (i % 10 == 0) {
            list.v[0].support = UINT64_MAX;
        }
        unsigned char *record = malloc(qm_record_bound(list.n));
        assert_non_null(record);
        size_t size = qm_record_encode(&list, record);
        assert_true(size <= qm_record_bound(list.n));
        assert_int_equal(qm_record_count(record, size), list.n);
        assert_int_equal(qm_record_decode(record, size, &back), 0);
        assert_int_equal(back.n, list.n);
        for (size_t j = 0; j < list.n; j++) {
            assert_int_equal(back.v[j].block, list.v[j].block);
            assert_true(back.v[j].support == list.v[j].support);
            assert_int_equal(back.v[j].grace, list.v[j].grace);
        }
        uint64_t top[5];
        unsigned n = qm_record_top(record, size, top, 5);
        assert_int_equal(n, list.n < 5 ? list.n : 5);
        for (unsigned j = 0; j < n; j++) {
            assert_int_equal(top[j], list.v[j].block);
        }
        for (size_t cut = 0; cut < size; cut++) {
            assert_int_equal(qm_record_decode(record, cut, &back), EINVAL);
            (void)qm_record_top(record, cut, top, 5);
        }
        free(record);
        free(list.v);
    }
    /* A number that needs more than 64 bits. */
    assert_int_equal(
        qm_record_decode(
            (const unsigned char *)"\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\2\1\0", 13,
            &back),
        EINVAL);
    assert_int_equal(
        qm_record_decode(
            (const unsigned char *)"\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\1\0", 13,
            &back),
        0);
    free(back.v);
}

/* A damaged record is refused or is a record; it is never read beyond its end, and what
 * is accepted is sorted. */
TEST(test_damaged_records)
{
    struct rng rng = {5};
    struct qm_suffixes back = {0};
    for (int i = 0; i < 30000; i++) {
        struct qm_suffixes list = random_list(&rng, 8, 4);
        unsigned char *bytes = malloc(qm_record_bound(list.n));
        assert_non_null(bytes);
        size_t size = qm_record_encode(&list, bytes);
        /* Exactly as large, so that a sanitizer sees what is read beyond. */
        unsigned char *record = malloc(size);
        assert_non_null(record);
        memcpy(record, bytes, size);
        for (uint64_t n = 1 + rng_below(&rng, 3); n > 0; n--) {
            record[rng_below(&rng, size)] = (unsigned char)rng_next(&rng);
        }
        uint64_t top[64];
        assert_true(qm_record_top(record, size, top, 64) <= 64);
        if (qm_record_decode(record, size, &back) == 0) {
            for (size_t j = 1; j < back.n; j++) {
                assert_true(back.v[j - 1].support >= back.v[j].support);
            }
        }
        free(record);
        free(bytes);
        free(list.v);
    }
    free(back.v);
}

TEST(test_saturation)
{
    struct qm_suffixes list = {0};
    assert_int_equal(qm_suffixes_add(&list, 1, 8, 4), 0);
    list.v[0].support = UINT64_MAX;
    assert_int_equal(qm_suffixes_add(&list, 1, 8, 4), 0);
    assert_true(list.v[0].support == UINT64_MAX);
    free(list.v);
}

/* Prefixes with marks, against a list that is searched from end to end. */
struct naive {
    struct {
        uint64_t a, b, time; /* time: last mark at its last use + 1 */
    } v[400];
    size_t n;
    uint64_t now;
};

static size_t naive_find(const struct naive *naive, uint64_t a, uint64_t b)
{
    size_t i = 0;
    while (i < naive->n && (naive->v[i].a != a || naive->v[i].b != b)) {
        i++;
    }
    return i;
}

static void naive_remove(struct naive *naive, size_t i)
{
    memmove(&naive->v[i], &naive->v[i + 1], (naive->n - i - 1) * sizeof naive->v[0]);
    naive->n--;
}

static void naive_use(struct naive *naive, uint64_t a, uint64_t b)
{
    naive->v[naive->n].a = a;
    naive->v[naive->n].b = b;
    naive->v[naive->n++].time = naive->now;
}

static void check_list(const struct qm_lru *lru, const struct naive *naive)
{
    struct qm_lru_copy *copy;
    struct qm_lru_place *list;
    size_t n;
    assert_int_equal(qm_lru_copy(lru, &copy), 0);
    assert_int_equal(qm_lru_list(copy, &list, &n), 0);
    assert_int_equal(n, naive->n);
    assert_int_equal(lru->count, naive->n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(list[i].a, naive->v[i].a);
        assert_int_equal(list[i].b, naive->v[i].b);
        assert_int_equal(list[i].place, i);
    }
    free(list);
}

TEST(test_lru)
{
    struct rng rng = {6};
    const uint64_t expected[] = {0, 100, 5000};
    for (int round = 0; round < 3; round++) {
        struct qm_lru lru;
        struct naive naive = {0};
        assert_int_equal(qm_lru_init(&lru, expected[round], rng_next(&rng)), 0);
        for (int step = 0; step < 30000; step++) {
            uint64_t a = rng_below(&rng, 20), b = rng_below(&rng, 20);
            size_t at = naive_find(&naive, a, b);
            uint32_t id = qm_lru_find(&lru, a, b);
            assert_int_equal(id != 0, at < naive.n);
            switch (rng_below(&rng, 8)) {
            case 0: /* remove it */
                if (id) {
                    qm_lru_remove(&lru, id);
                    naive_remove(&naive, at);
                }
                break;
            case 1: /* evict */
                id = qm_lru_oldest(&lru);
                assert_int_equal(id != 0, naive.n > 0);
                if (id) {
                    assert_int_equal(lru.entries[id].a, naive.v[0].a);
                    assert_int_equal(lru.entries[id].b, naive.v[0].b);
                    qm_lru_remove(&lru, id);
                    naive_remove(&naive, 0);
                }
                break;
            case 2: /* time passes, and is noticed */
                naive.now += rng_below(&rng, 5);
                assert_int_equal(qm_lru_mark(&lru, naive.now), 0);
                naive.now++;
                if (rng_below(&rng, 8) == 0) {
                    uint64_t after = 1 + rng_below(&rng, 400);
                    while ((id = qm_lru_expired(&lru, naive.now, after)) != 0) {
                        assert_int_equal(lru.entries[id].a, naive.v[0].a);
                        assert_true(naive.now - naive.v[0].time >= after);
                        qm_lru_remove(&lru, id);
                        naive_remove(&naive, 0);
                    }
                    /* Its mark is at most 5 later than its use. */
                    assert_true(naive.n == 0 ||
                                naive.now - naive.v[0].time < after + 5);
                }
                break;
            default: /* use */
                if (id) {
                    qm_lru_touch(&lru, id);
                    naive_remove(&naive, at);
                } else {
                    assert_int_equal(qm_lru_insert(&lru, a, b, &id), 0);
                }
                naive_use(&naive, a, b);
            }
            if (step % 100 == 0) {
                check_list(&lru, &naive);
            }
        }
        check_list(&lru, &naive);
        qm_lru_fini(&lru);
    }
}

/* Many more than expected: the table grows, everything is found. */
TEST(test_lru_grows)
{
    struct qm_lru lru;
    uint32_t id;
    const uint64_t n = 100000;
    assert_int_equal(qm_lru_init(&lru, 0, 1), 0);
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(qm_lru_insert(&lru, i, i * i + 1, &id), 0);
    }
    for (uint64_t i = 0; i < n; i++) {
        assert_int_not_equal(qm_lru_find(&lru, i, i * i + 1), 0);
        assert_int_equal(qm_lru_find(&lru, i, i * i + 2), 0);
    }
    for (uint64_t i = 0; i < n; i++) {
        id = qm_lru_oldest(&lru);
        assert_int_equal(lru.entries[id].a, i);
        qm_lru_remove(&lru, id);
    }
    assert_int_equal(lru.count, 0);
    /* Entries are used again. */
    uint32_t used = lru.used;
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(qm_lru_insert(&lru, i, i + 1, &id), 0);
    }
    assert_int_equal(lru.used, used);
    qm_lru_fini(&lru);
}
