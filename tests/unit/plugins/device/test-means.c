/* SPDX-License-Identifier: BSD-3-Clause */
/* test-means.c - means over many requests against what theory says. */
#include "testing.h"

enum { KB16 = 16384, READS = 100000 };

#define SIZE (UINT64_C(15) << 30)

/* The mean time of random reads of 16 KiB at depth 1, and the device's, to be freed. */
static double mean_at_depth_1(const struct qm_device_config *c, struct qm_device **d)
{
    uint64_t random = 1;
    int64_t now = 0;
    double sum = 0;

    *d = make(c, SIZE);
    for (int i = 0; i < READS; i++) {
        struct qm_device_request *r =
            submit(*d, now, next_random(&random) % (SIZE / KB16) * KB16, KB16);

        while (r->pending)
            qm_device_advance(*d, qm_device_due(r));
        sum += (double)(r->done - now);
        now = r->done;
        free(r);
    }
    return sum / READS;
}

static void check_mean(const struct qm_device_config *c, double expected_us)
{
    struct qm_device *d;
    double mean = mean_at_depth_1(c, &d);

    assert_near(mean, expected_us * 1e3, expected_us * 5);
    assert_near(qm_device_expected_ns(c, KB16), expected_us * 1e3, expected_us);
    assert_near(qm_histogram_mean(&qm_device_stats(d)->response), mean, mean * 1e-9);
    assert_int_equal(qm_device_stats(d)->reads, READS);
    assert_int_equal(qm_device_stats(d)->wait.max, 0);
    qm_device_free(d);
}

/* To within 0.5 %, what the manual page says: for disks overhead, mean seek, half a
 * revolution, and 16 KiB at 60 MB/s. */
TEST(test_random_reads)
{
    struct qm_device_config c = config_of("disk");

    check_mean(&c, 200 + 4000 + 3000 + 273.07);
    c.stations = 15;
    check_mean(&c, 200 + 4000 + 3000 + 273.07);
    c.order = QM_DEVICE_FCFS;
    c.scale = 0.01;
    check_mean(&c, 74.7307);
    c = config_of("ssd");
    check_mean(&c, 110 + 32.768);
    c.scale = 100;
    check_mean(&c, 11000 + 3276.8);
    c = config_of("san");
    check_mean(&c, 200 + 50 + 7473.07 + 13.92);
    c.scale = 10;
    check_mean(&c, 10 * (200 + 50 + 7473.07 + 13.92));
    c = config_of("object-store");
    check_mean(&c, 144600 + 187.25);
    c.scale = 0.1;
    check_mean(&c, 14460 + 18.725);
}

/* On a part of the stroke the seeks are shorter. */
TEST(test_span)
{
    struct qm_device_config c = config_of("disk");
    struct qm_disk_model m;
    struct qm_device *d;
    double mean, seek = 0, weights = 0;

    c.disk.span = 100 * SIZE;
    mean = mean_at_depth_1(&c, &d);
    assert_int_equal(qm_disk_model_init(&m, &c.disk), 0);
    for (int i = 0; i < 10000; i++) {
        double x = (i + 0.5) / 10000;

        seek += qm_disk_seek_ns(&m, (uint64_t)(x * SIZE)) * (1 - x);
        weights += 1 - x;
    }
    assert_true(seek / weights < 1e6);
    assert_near(mean, 0.2e6 + seek / weights + 3e6 + 0.27307e6, mean * 0.005);
    qm_device_free(d);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* A lognormal distribution's percentiles: for the store, 5 % and 95 % at 100 and 200
 * ms. */
TEST(test_latencies_are_lognormal)
{
    struct qm_device_config c = config_of("object-store");
    double *times = calloc(READS, sizeof *times);
    struct qm_device *d;

    assert_non_null(times);
    c.stations = 1;
    c.ns_per_byte = 0;
    d = make(&c, SIZE);
    for (int i = 0; i < READS; i++) {
        struct qm_device_request *r = submit(d, i * INT64_C(10000000000), 0, KB16);

        finish(d);
        times[i] = (double)(r->done - r->arrived);
        free(r);
    }
    qsort(times, READS, sizeof *times, compare);
    assert_near(times[READS / 20], 100e6, 1e6);
    assert_near(times[READS - READS / 20], 200e6, 2e6);
    assert_near(times[READS / 2], 141.4e6, 1e6);
    qm_device_free(d);
    free(times);

    /* The SSD's 99.9 % of reads and writes. */
    c = config_of("ssd");
    c.stations = 1;
    c.link_ns_per_byte = 0;
    for (int write = 0; write < 2; write++) {
        int64_t now = 0;

        d = make(&c, SIZE);
        for (int i = 0; i < READS; i++) {
            struct qm_device_request *r;

            assert_int_equal(qm_device_submit(d, now, write, false, 0, KB16, NULL, &r),
                             0);
            finish(d);
            now = r->done;
            free(r);
        }
        assert_near(
            (double)qm_histogram_percentile(&qm_device_stats(d)->response, 99.9),
            write ? 800e3 : 300e3, write ? 80e3 : 15e3);
        qm_device_free(d);
    }
}

/* Random arrivals at one station with a constant service time (M/D/1): the mean wait is
 * S * u / (2 * (1 - u)) (Pollaczek and Khinchine), the queue's length by Little's law
 * the rate times that. */
TEST(test_queue_of_random_arrivals)
{
    static const double loads[] = {0.3, 0.6, 0.9};

    for (int l = 0; l < 3; l++) {
        const double load = loads[l], service = 1e6;
        const struct qm_device_config c = {
            .stations = 1, .read = {service, 0}, .scale = 1};
        const double wait = service * load / (2 * (1 - load));
        const int n = 400000;
        struct qm_device *d = make(&c, SIZE);
        struct qm_device_request **r = calloc((size_t)n, sizeof *r);
        const struct qm_device_stats *s = qm_device_stats(d);
        uint64_t random = 17;
        double now = 0;

        assert_non_null(r);
        for (int i = 0; i < n; i++) {
            now += -log(next_unit(&random)) * service / load;
            r[i] = submit(d, (int64_t)now, 0, KB16);
        }
        finish(d);
        assert_near(qm_histogram_mean(&s->wait), wait, wait * 0.05);
        assert_near(s->stations[0].busy_ns / (double)(s->last - s->first), load,
                    load * 0.01);
        assert_near(s->stations[0].waited_ns / (double)(s->last - s->first),
                    load * wait / service, load * wait / service * 0.06);
        for (int i = 0; i < n; i++)
            free(r[i]);
        free(r);
        qm_device_free(d);
    }
}

/* How many reads a second a device serves that always has `depth` of them. */
static double rate_at_depth(const struct qm_device_config *c, unsigned depth)
{
    struct qm_device *d = make(c, SIZE);
    struct qm_device_request **r = calloc(depth, sizeof *r);
    uint64_t random = 23;
    int64_t now = 0, due;
    const unsigned n = 20000;

    assert_non_null(r);
    for (unsigned done = 0; done < n;) {
        for (unsigned i = 0; i < depth; i++)
            if (!r[i])
                r[i] =
                    submit(d, now, next_random(&random) % (SIZE / KB16) * KB16, KB16);
        now = QM_DEVICE_NEVER;
        for (unsigned i = 0; i < depth; i++)
            if ((due = qm_device_due(r[i])) < now)
                now = due;
        qm_device_advance(d, now);
        for (unsigned i = 0; i < depth; i++) {
            if (r[i]->pending == 0 && r[i]->done <= now) {
                free(r[i]);
                r[i] = NULL;
                done++;
            }
        }
    }
    finish(d);
    for (unsigned i = 0; i < depth; i++)
        free(r[i]);
    free(r);
    qm_device_free(d);
    return n / ((double)now / 1e9);
}

/* More at the same time is served faster only until all work: a flood makes queues. */
TEST(test_service_is_limited)
{
    struct qm_device_config c = config_of("ssd");

    assert_near(rate_at_depth(&c, 1), 1e6 / 142.768, 100);
    assert_near(rate_at_depth(&c, 64), 1e6 / 32.768, 300); /* the link */
    c.link_ns_per_byte = 0;
    assert_near(rate_at_depth(&c, 64), 8 * 1e6 / 110, 800); /* the channels */
    assert_near(rate_at_depth(&c, 256), 8 * 1e6 / 110, 800);
    c = config_of("object-store");
    assert_near(rate_at_depth(&c, 256), 64 * 1e6 / 144787, 5);
    c = config_of("disk");
    c.order = QM_DEVICE_FCFS;
    assert_near(rate_at_depth(&c, 16), 1e6 / 7473, 1.5);
    c.order = QM_DEVICE_SSTF;
    assert_true(rate_at_depth(&c, 16) > 1.3 * 1e6 / 7473);
    c.stations = 15;
    assert_true(rate_at_depth(&c, 64) > 10 * 1e6 / 7473);
    assert_true(rate_at_depth(&c, 256) < 15 * 1e6 / 3273); /* rotation is left */
}
