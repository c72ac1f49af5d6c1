/* SPDX-License-Identifier: BSD-3-Clause */
/* test-counters.c - counters, the latency histogram, and the table of classes. */
#include <pthread.h>

#include "tests/harness.h"

#include "server/classes.h"
#include "server/stats.h"

#define THREADS 20
#define TIMES   10000

static void *count(void *opaque)
{
    for (int i = 0; i < TIMES; i++) {
        qms_stats_add(opaque, QMS_READS, 1);
        qms_stats_add(opaque, QMS_READ_BYTES, 3);
        qms_stats_took(opaque, i);
    }
    return NULL;
}

TEST(test_counters_of_many_threads)
{
    struct qms_stats *stats = qms_stats_new();
    pthread_t threads[THREADS];
    struct qms_latency latency;

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count, stats), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(qms_stats_get(stats, QMS_READS), THREADS * TIMES);
    assert_int_equal(qms_stats_get(stats, QMS_READ_BYTES), 3 * THREADS * TIMES);
    assert_int_equal(qms_stats_get(stats, QMS_WRITES), 0);
    qms_stats_latency(stats, &latency);
    assert_int_equal(latency.count, THREADS * TIMES);
    qms_stats_free(stats);
}

static void near(double value, double expected)
{
    if (value < expected * 15 / 16 || value > expected * 17 / 16)
        fail_msg("%f is not near %f", value, expected);
}

TEST(test_histogram)
{
    struct qms_stats *stats = qms_stats_new();
    struct qms_latency latency;

    qms_stats_latency(stats, &latency);
    assert_int_equal(latency.count, 0);
    for (int us = 1; us <= 1000; us++)
        qms_stats_took(stats, us * 1000);
    qms_stats_latency(stats, &latency);
    assert_int_equal(latency.count, 1000);
    near(latency.mean, 500.5);
    near(latency.p50, 500);
    near(latency.p90, 900);
    near(latency.p99, 990);
    assert_true(latency.max == 1000);
    qms_stats_free(stats);
}

/* Each value is in a bucket whose middle is near, whatever its size; too large ones do
 * not write beyond the last. */
TEST(test_histogram_of_any_size)
{
    struct qms_latency latency;

    for (int bits = 0; bits < 64; bits++) {
        struct qms_stats *stats = qms_stats_new();
        uint64_t ns = UINT64_C(1) << bits;

        qms_stats_took(stats, ns);
        qms_stats_took(stats, ns + ns / 3);
        qms_stats_latency(stats, &latency);
        assert_int_equal(latency.count, 2);
        if (bits >= 4 && bits <= 40)
            near(latency.p99, (ns + ns / 3) / 1000.0);
        qms_stats_free(stats);
    }
}

FIXTURE(classes, qms_classes_new(), qms_classes_free(it))

TEST_ON(test_classes, classes, struct qms_classes *classes)
{
    struct qms_class *a = qms_class_find(classes, QM_QUERY, 7, "select ?", 8);
    struct qms_class *b = qms_class_find(classes, QM_THREAD, 7, NULL, 0);

    assert_ptr_not_equal(a, b);
    assert_ptr_equal(a, qms_class_find(classes, QM_QUERY, 7, "other", 5));
    assert_string_equal(atomic_load(&a->name), "select ?");
    assert_string_equal(atomic_load(&a->token), "select_?");
    assert_string_equal(atomic_load(&b->name), "");
    assert_string_equal(atomic_load(&b->token), "0000000000000007");
    qms_class_find(classes, QM_THREAD, 7, "late", 4); /* a name may come later */
    assert_string_equal(atomic_load(&b->name), "late");
    assert_ptr_equal(a, qms_class_at(classes, a->index));
    assert_int_equal(qms_class_at(classes, 12345)->index, QMS_CLASS_NONE);
    qms_class_add(a, QMS_CLASS_HITS, 2);
    qms_class_add(a, QMS_CLASS_HITS, 3);
    assert_int_equal(qms_class_get(a, QMS_CLASS_HITS), 5);
}

/* Names come from clients: whatever bytes they have, people and JSON can take them. */
TEST_ON(test_class_names, classes, struct qms_classes *classes)
{
    static const struct {
        const char *in, *out;
    } names[] = {
        {"a\nb\x7f", "a?b?"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"\xf0\x9f\x90\x98", "\xf0\x9f\x90\x98"},
        {"\xc3", "?"},           /* cut off */
        {"\xc0\x80", "??"},      /* overlong */
        {"\xe0\x80\xaf", "???"}, /* overlong */
        {"\xed\xa0\x80", "???"}, /* a surrogate */
        {"\xf5\x80\x80\x80", "????"},
        {"x\x80y", "x?y"},
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct qms_class *k =
            qms_class_find(classes, QM_QUERY, i, names[i].in, strlen(names[i].in));

        assert_string_equal(atomic_load(&k->name), names[i].out);
    }
}

TEST_ON(test_classes_are_bounded, classes, struct qms_classes *classes)
{
    for (uint64_t id = 0; id < 2 * QMS_CLASSES_MAX; id++)
        assert_non_null(qms_class_find(classes, QM_QUERY, id << 32, NULL, 0));
    assert_int_equal(qms_classes_count(classes), QMS_CLASSES_MAX);
    assert_int_equal(qms_class_find(classes, QM_THREAD, 1, "beyond", 6)->index,
                     QMS_CLASS_OTHER);
    assert_int_equal(qms_class_find(classes, QM_QUERY, 0, NULL, 0)->id, 0);
}
