/* SPDX-License-Identifier: BSD-3-Clause */
/* test-queues.c - who is served when, and where a request goes. */
#include "testing.h"

enum { KB = 1024, KB16 = 16384, KB64 = 65536, MS = 1000000 };

/* One disk of 64 MB, without a buffer. */
static struct qm_device_config one_disk(enum qm_device_order order)
{
    struct qm_device_config c = config_of("disk");

    c.order = order;
    c.disk.buffer = 0;
    return c;
}

static const uint64_t positions[] = {50, 10, 52, 20, 48, 11}; /* megabytes */

enum { POSITIONS = 6 };

/* Requests at positions[], the first of them at 50 MB and in service when the others
 * come.  Fills in who is served as which. */
static void order_of(enum qm_device_order order, unsigned *places)
{
    const struct qm_device_config c = one_disk(order);
    struct qm_device *d = make(&c, 64 << 20);
    struct qm_device_request *r[POSITIONS];

    for (int i = 0; i < POSITIONS; i++)
        r[i] = submit(d, i, positions[i] << 20, KB16);
    finish(d);
    for (int i = 0; i < POSITIONS; i++) {
        places[i] = 0;
        for (int j = 0; j < POSITIONS; j++)
            places[i] += r[j]->done < r[i]->done;
    }
    for (int i = 0; i < POSITIONS; i++)
        free(r[i]);
    qm_device_free(d);
}

TEST(test_fcfs_serves_in_order)
{
    unsigned places[POSITIONS];

    order_of(QM_DEVICE_FCFS, places);
    for (unsigned i = 0; i < POSITIONS; i++)
        assert_int_equal(places[i], i);
}

TEST(test_sstf_serves_the_nearest)
{
    /* After 50 (and its 16 KiB) 52 is nearer than 48 by them; then 48, and down. */
    static const unsigned expected[] = {0, 5, 1, 3, 2, 4};
    unsigned places[POSITIONS];

    order_of(QM_DEVICE_SSTF, places);
    for (int i = 0; i < POSITIONS; i++)
        if (places[i] != expected[i])
            fail_msg("%d MB is served as number %u, not %u", (int)positions[i],
                     places[i], expected[i]);
}

TEST(test_sstf_takes_the_oldest_of_equals)
{
    const struct qm_device_config c = one_disk(QM_DEVICE_SSTF);
    struct qm_device *d = make(&c, 64 << 20);
    struct qm_device_request *a = submit(d, 0, 10 << 20, KB16),
                             *b = submit(d, 1, 30 << 20, KB16),
                             *e = submit(d, 2, 30 << 20, KB16),
                             *f = submit(d, 3, 30 << 20, KB16);

    finish(d);
    assert_true(a->done < b->done && b->done < e->done && e->done < f->done);
    free(a);
    free(b);
    free(e);
    free(f);
    qm_device_free(d);
}

/* What comes while a request is served is chosen from when that ends, and no sooner,
 * however late the model is told. */
TEST(test_who_comes_too_late_is_not_chosen)
{
    const struct qm_device_config c = one_disk(QM_DEVICE_SSTF);
    struct qm_device *d = make(&c, 64 << 20);
    struct qm_device_request *a = submit(d, 0, 50 << 20, KB16),
                             *far = submit(d, 1, 10 << 20, KB16), *near;
    int64_t end = qm_device_due(a);

    near = submit(d, end + 1, 50 << 20, KB16);
    finish(d);
    assert_true(far->done < near->done);
    free(a);
    free(far);
    free(near);

    a = submit(d, 1000 * MS, 50 << 20, KB16);
    end = qm_device_due(a);
    far = submit(d, 1000 * MS, 10 << 20, KB16);
    near = submit(d, end - 1, 50 << 20, KB16);
    finish(d);
    assert_true(near->done < far->done);
    free(a);
    free(far);
    free(near);
    qm_device_free(d);
}

static int64_t time_of_64(enum qm_device_order order)
{
    const struct qm_device_config c = one_disk(order);
    struct qm_device *d = make(&c, UINT64_C(1) << 30);
    struct qm_device_request *r[64];
    uint64_t random = 5;
    int64_t last = 0;

    for (int i = 0; i < 64; i++)
        r[i] = submit(d, 0, next_random(&random) % 65536 * KB16, KB16);
    finish(d);
    for (int i = 0; i < 64; i++) {
        if (r[i]->done > last)
            last = r[i]->done;
        free(r[i]);
    }
    qm_device_free(d);
    return last;
}

TEST(test_sstf_is_shorter)
{
    int64_t fcfs = time_of_64(QM_DEVICE_FCFS), sstf = time_of_64(QM_DEVICE_SSTF);

    /* Seeks shrink from 4 ms to a fraction; the rotation stays. */
    assert_true(sstf < fcfs * 3 / 4);
    assert_true(sstf > 64 * 3 * (int64_t)MS);
}

TEST(test_demand_goes_first_if_asked)
{
    for (int first = 0; first < 2; first++) {
        struct qm_device_config c = one_disk(QM_DEVICE_FCFS);
        struct qm_device *d;
        struct qm_device_request *r[4];
        static const bool background[] = {true, true, false, false};

        c.demand_first = first;
        d = make(&c, 64 << 20);
        for (int i = 0; i < 4; i++)
            assert_int_equal(qm_device_submit(d, i, false, background[i],
                                              (uint64_t)i << 20, KB16, NULL, &r[i]),
                             0);
        finish(d);
        assert_true(r[0]->done < r[1]->done && r[0]->done < r[2]->done);
        assert_true(r[2]->done < r[3]->done);
        assert_int_equal(r[3]->done < r[1]->done, first);
        assert_int_equal(qm_device_stats(d)->background, 2);
        assert_int_equal(qm_device_stats(d)->background_response.count, 2);
        assert_int_equal(qm_device_stats(d)->response.count, 2);
        for (int i = 0; i < 4; i++)
            free(r[i]);
        qm_device_free(d);
    }
}

/* Four disks, stripes of 64 KiB. */
static struct qm_device *striped(void)
{
    struct qm_device_config c = config_of("disk");

    c.stations = 4;
    return make(&c, 64 << 20);
}

struct expected_part {
    unsigned station;
    uint64_t position, length;
};

static void check_parts(uint64_t offset, uint64_t length,
                        const struct expected_part *expected, unsigned count)
{
    struct qm_device *d = striped();
    struct qm_device_request *r = submit(d, 0, offset, length);

    assert_int_equal(r->count, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(r->parts[i].station, expected[i].station);
        assert_int_equal(r->parts[i].position, expected[i].position);
        assert_int_equal(r->parts[i].length, expected[i].length);
    }
    finish(d);
    assert_int_equal(r->pending, 0);
    for (unsigned i = 0; i < 4; i++) {
        uint64_t served = 0;

        for (unsigned j = 0; j < count; j++)
            served += expected[j].station == i;
        assert_int_equal(qm_device_stats(d)->stations[i].served, served);
    }
    for (unsigned i = 0; i < count; i++) /* it ends with the last */
        assert_true(r->parts[i].when <= r->done);
    free(r);
    qm_device_free(d);
}

TEST(test_stripes)
{
    check_parts(0, KB16, (struct expected_part[]){{0, 0, KB16}}, 1);
    check_parts(KB64, KB16, (struct expected_part[]){{1, 0, KB16}}, 1);
    check_parts(3 * KB64 + KB16, KB16, (struct expected_part[]){{3, KB16, KB16}}, 1);
    check_parts(4 * KB64, KB16, (struct expected_part[]){{0, KB64, KB16}}, 1);
    check_parts(41 * KB64 + 512, 1024,
                (struct expected_part[]){{1, 10 * KB64 + 512, 1024}}, 1);
    /* Across the end of a stripe; and of a row. */
    check_parts(KB64 - 512, KB16,
                (struct expected_part[]){{0, KB64 - 512, 512}, {1, 0, KB16 - 512}}, 2);
    check_parts(4 * KB64 - 4096, 8192,
                (struct expected_part[]){{3, KB64 - 4096, 4096}, {0, KB64, 4096}}, 2);
    /* A whole row; and more than two, of which each disk has one part. */
    check_parts(0, 4 * KB64,
                (struct expected_part[]){
                    {0, 0, KB64}, {1, 0, KB64}, {2, 0, KB64}, {3, 0, KB64}},
                4);
    check_parts(2 * KB64 + 1000, 9 * KB64,
                (struct expected_part[]){{2, 1000, 3 * KB64 - 1000},
                                         {3, 0, 2 * KB64 + 1000},
                                         {0, KB64, 2 * KB64},
                                         {1, KB64, 2 * KB64}},
                4);
}

TEST(test_disks_work_at_the_same_time)
{
    struct qm_device *d = striped();
    struct qm_device_request *r[4];
    int64_t most = 0, last = 0;

    for (int i = 0; i < 4; i++) {
        r[i] = submit(d, 0, (uint64_t)i * KB64 + (40 << 20), KB16);
        if (qm_device_due(r[i]) > most)
            most = qm_device_due(r[i]);
    }
    finish(d);
    for (int i = 0; i < 4; i++) {
        if (r[i]->done > last)
            last = r[i]->done;
        free(r[i]);
    }
    assert_int_equal(last, most);
    qm_device_free(d);
}

/* A device of which every time is a round number. */
static struct qm_device_config round_numbers(void)
{
    return (struct qm_device_config){
        .stations = 2,
        .read = {1000, 0},
        .write = {3000, 0},
        .ns_per_byte = 1,
        .trip_ns = 200,
        .controller_ns = 10,
        .link_ns_per_byte = 2,
        .scale = 1,
        .seed = 1,
    };
}

TEST(test_the_way_of_a_request)
{
    const struct qm_device_config c = round_numbers();
    struct qm_device *d = make(&c, 1 << 20);
    struct qm_device_request *r[4];

    for (int i = 0; i < 3; i++)
        r[i] = submit(d, 0, 0, 100);
    finish(d);
    /* Trip 100, controller 10, station 1000 + 100, link 200, trip 100. */
    assert_int_equal(r[0]->done, 1510);
    /* 10 later at its station, but 200 later from the link. */
    assert_int_equal(r[1]->done, 1710);
    /* It waits for the first station until 1210. */
    assert_int_equal(r[2]->done, 1210 + 1100 + 200 + 100);
    assert_int_equal(qm_device_stats(d)->wait.max, 1210 - 130);
    assert_int_equal(qm_device_submit(d, 10000, true, false, 0, 100, NULL, &r[3]), 0);
    finish(d);
    assert_int_equal(r[3]->done, 10000 + 3510);
    assert_int_equal(qm_device_stats(d)->reads, 3);
    assert_int_equal(qm_device_stats(d)->bytes_read, 300);
    assert_int_equal(qm_device_stats(d)->writes, 1);
    assert_int_equal(qm_device_stats(d)->bytes_written, 100);
    assert_int_equal(qm_device_stats(d)->first, 0);
    assert_int_equal(qm_device_stats(d)->last, 13510);
    for (int i = 0; i < 4; i++)
        free(r[i]);
    qm_device_free(d);
}

TEST(test_time_does_not_go_back)
{
    const struct qm_device_config c = round_numbers();
    struct qm_device *d = make(&c, 1 << 20);
    struct qm_device_request *r;

    qm_device_advance(d, 5000);
    r = submit(d, 4000, 0, 100);
    assert_int_equal(r->arrived, 5000);
    finish(d);
    assert_int_equal(r->done, 6510);
    free(r);
    qm_device_free(d);
}

enum { MANY = 3000 };

/* Random arrivals at a device; the model is told of the time at every arrival only, or,
 * with `often`, of each event.  Fills in when they end. */
static void run_random(const struct qm_device_config *c, bool often, int64_t *done)
{
    struct qm_device *d = make(c, UINT64_C(1) << 30);
    struct qm_device_request **r = calloc(MANY, sizeof *r);
    uint64_t random = 11;
    int64_t now = 0, next, least, due;

    assert_non_null(r);
    for (int i = 0; i < MANY; i++) {
        bool write = next_random(&random) % 4 == 0,
             background = next_random(&random) % 3 == 0;
        uint64_t offset = next_random(&random) % 65536 * KB16,
                 length = (next_random(&random) % 8 + 1) * KB16;

        now += (int64_t)(next_random(&random) % (2 * MS));
        while (often && (next = qm_device_next(d)) <= now) {
            /* Somebody is due at each event: the filter relies on it. */
            least = QM_DEVICE_NEVER;
            for (int j = 0; j < i; j++) {
                due = r[j]->pending ? qm_device_due(r[j]) : QM_DEVICE_NEVER;
                if (due < least)
                    least = due;
            }
            assert_int_equal(least, next);
            qm_device_advance(d, next);
        }
        assert_int_equal(
            qm_device_submit(d, now, write, background, offset, length, NULL, &r[i]),
            0);
    }
    finish(d);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(r[i]->pending, 0);
        assert_int_equal(qm_device_due(r[i]), r[i]->done);
        done[i] = r[i]->done;
        free(r[i]);
    }
    free(r);
    qm_device_free(d);
}

TEST(test_result_depends_on_arrivals_alone)
{
    static const char *const names[] = {"disk", "ssd", "san", "object-store"};
    int64_t *a = calloc(MANY, sizeof *a), *b = calloc(MANY, sizeof *b);

    assert_true(a && b);
    for (int i = 0; i < 4; i++) {
        struct qm_device_config c = config_of(names[i]);

        c.demand_first = i % 2;
        c.seed = 3;
        run_random(&c, false, a);
        run_random(&c, true, b);
        assert_memory_equal(a, b, MANY * sizeof *a);
        c.seed = 4;
        run_random(&c, false, b);
        assert_memory_not_equal(a, b, MANY * sizeof *a);
    }
    free(a);
    free(b);
}

/* Whom a change of due times is told. */
static void note_change(struct qm_device_request *request)
{
    int64_t *due = request->opaque;

    *due = qm_device_due(request);
}

TEST(test_changes_are_told)
{
    struct qm_device_config c = config_of("san");
    struct qm_device *d;
    struct qm_device_request *r[64];
    int64_t due[64], now = 0;
    uint64_t random = 3;

    c.stations = 3;
    d = make(&c, UINT64_C(1) << 30);
    qm_device_on_change(d, note_change);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(qm_device_submit(d, 0, false, false,
                                          next_random(&random) % 65000 * KB16, 4 * KB64,
                                          &due[i], &r[i]),
                         0);
        due[i] = qm_device_due(r[i]);
    }
    /* As it is told, so it is: of whose event it was they know themselves. */
    while ((now = qm_device_next(d)) != QM_DEVICE_NEVER) {
        bool own[64];

        for (int i = 0; i < 64; i++)
            own[i] = due[i] == now;
        qm_device_advance(d, now);
        for (int i = 0; i < 64; i++) {
            if (own[i])
                due[i] = qm_device_due(r[i]);
            assert_int_equal(due[i], qm_device_due(r[i]));
        }
    }
    for (int i = 0; i < 64; i++)
        free(r[i]);
    qm_device_free(d);
}

TEST(test_no_sense_is_refused)
{
    struct qm_device_config c = config_of("ssd");
    struct qm_device *d;

    c.stations = 0;
    assert_int_equal(qm_device_new(&c, 1 << 20, &d), EINVAL);
    c.stations = QM_DEVICE_STATIONS_MAX + 1;
    assert_int_equal(qm_device_new(&c, 1 << 20, &d), EINVAL);
    c = config_of("ssd");
    c.scale = 0;
    assert_int_equal(qm_device_new(&c, 1 << 20, &d), EINVAL);
    c = config_of("disk");
    c.disk.average_ns = c.disk.full_ns;
    assert_int_equal(qm_device_new(&c, 1 << 20, &d), EINVAL);
    assert_null(qm_device_profile_find("tape"));
}
