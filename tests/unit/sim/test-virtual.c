/* SPDX-License-Identifier: BSD-3-Clause */
/* test-virtual.c - simulations in virtual time whose every moment was worked out by
 * hand.  The device takes exactly a millisecond for each read, one after the other. */
#include <errno.h>

#include "plugins/device/profile.h"
#include "testing.h"

enum { BLOCK = 4096, MS = 1000, SIZE = 1000 * BLOCK };

static struct qm_virtual_config timed; /* the test's */

/* Of no clients: at the trace's own times. */
static struct qm_sim_config simulation(unsigned clients, const char *policy)
{
    struct qm_sim_config config;

    timed = (struct qm_virtual_config){
        .device = {.stations = 1, .read = {1e6, 0}, .scale = 1},
        .size = SIZE,
        .clients = clients,
        .threads = 1,
        .queue = 64,
    };
    qm_sim_defaults(&config);
    config.params.policy = policy;
    config.params.throttle = false;
    config.params.share_adapts = false;
    config.params.prefetch_share = 20000;
    config.params.mining.degree = 2;
    config.block_size = BLOCK;
    config.cache_blocks = 100;
    config.timed = &timed;
    return config;
}

static struct qm_event reads(uint32_t slot, uint64_t us, uint64_t block, uint64_t count)
{
    return (struct qm_event){.type = QM_TRACE_READ,
                             .us = us,
                             .ctx = slot,
                             .slot = slot,
                             .offset = block * BLOCK,
                             .length = count * BLOCK};
}

static struct qm_sim_result run(const struct qm_sim_config *config,
                                const struct qm_event *events, size_t n)
{
    struct qm_sim_config with = *config;
    struct qm_future *future = NULL;
    struct qm_sim_result result;
    struct qm_sim *sim;
    char err[256] = "";

    if (strcmp(config->params.policy, QM_PERFECT) == 0) {
        future = qm_future_new(BLOCK);
        assert_int_equal(qm_future_want_sequences(future, config->params.level), 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(qm_future_event(future, &events[i]), 0);
        assert_int_equal(qm_future_finish(future), 0);
        with.future = future;
    }
    sim = qm_sim_new(&with, err, sizeof err);
    if (!sim)
        fail_msg("%s", err);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(qm_sim_event(sim, &events[i]), 0);
    assert_int_equal(qm_sim_finish(sim), 0);
    qm_sim_result(sim, &result);
    qm_sim_free(sim);
    qm_future_free(future);
    return result;
}

#define RUN(config, events) run(config, events, sizeof(events) / sizeof((events)[0]))

/* Three misses of one client, and a hit that takes no time. */
TEST(one_client)
{
    struct qm_sim_config config = simulation(1, "none");
    const struct qm_event events[] = {reads(0, 0, 1, 1), reads(0, 0, 5, 1),
                                      reads(0, 0, 1, 1), reads(0, 0, 9, 1)};
    struct qm_sim_result r = RUN(&config, events);

    assert_us(r.timed.mean, 3.0 * MS / 4);
    assert_us(r.timed.most, MS);
    assert_us(r.timed.seconds * 1e6, 3 * MS);
    assert_us(r.timed.reads_per_second, 4 / 0.003);
    assert_us(r.timed.utilisation, 1);
    assert_int_equal(r.timed.demand_reads, 3);
    assert_int_equal(r.requests, 4);
    assert_int_equal(r.misses, 3);
}

/* Between the three, the client thinks: the device has nothing to do then. */
TEST(thinking)
{
    struct qm_sim_config config = simulation(1, "none");
    const struct qm_event events[] = {reads(0, 0, 1, 1), reads(0, 0, 5, 1),
                                      reads(0, 0, 9, 1)};
    struct qm_sim_result r;

    timed.think_ns = 500 * MS;
    r = RUN(&config, events);
    assert_us(r.timed.mean, MS);
    assert_us(r.timed.seconds * 1e6, 4 * MS);
    assert_us(r.timed.utilisation, 3.0 / 4);
}

/* Two clients have one of the device's turns each: all but the first wait for another's
 * read. */
TEST(two_clients)
{
    struct qm_sim_config config = simulation(2, "none");
    const struct qm_event events[] = {reads(0, 0, 1, 1), reads(0, 0, 3, 1),
                                      reads(0, 0, 5, 1), reads(0, 0, 7, 1)};
    struct qm_sim_result r = RUN(&config, events);

    assert_us(r.timed.mean, (1 + 2 + 2 + 2) * MS / 4.0);
    assert_us(r.timed.seconds * 1e6, 4 * MS);
    assert_us(r.timed.utilisation, 1);
}

/* Both want the same block: one read, for which the other waits. */
TEST(one_read_for_two)
{
    struct qm_sim_config config = simulation(2, "none");
    const struct qm_event events[] = {reads(0, 0, 1, 1), reads(0, 0, 1, 1)};
    struct qm_sim_result r = RUN(&config, events);

    assert_us(r.timed.mean, MS);
    assert_int_equal(r.timed.demand_reads, 1);
    assert_int_equal(r.hits, 1);
}

/* What is missing of a request is read by runs, one after the other. */
TEST(runs)
{
    struct qm_sim_config config = simulation(1, "none");
    const struct qm_event events[] = {reads(0, 0, 12, 1), reads(0, 0, 10, 6)};
    struct qm_sim_result r = RUN(&config, events);

    assert_int_equal(r.timed.demand_reads, 3);
    assert_int_equal(r.timed.demand_blocks, 6);
    assert_us(r.timed.most, 2 * MS);
}

/* A block in the middle that is there is read with the others, once it is known that
 * this takes less time: 1.1 ms for a read, and .1 ms for each of its blocks. */
TEST(read_over)
{
    struct qm_sim_config config = simulation(1, "none");
    const struct qm_event events[] = {
        reads(0, 0, 12, 1),  reads(0, 0, 10, 6), /* not known yet */
        reads(0, 0, 20, 1),  reads(0, 0, 30, 2),   reads(0, 0, 40, 3),
        reads(0, 0, 50, 4),  reads(0, 0, 60, 5),   reads(0, 0, 70, 1),
        reads(0, 0, 106, 5), reads(0, 0, 100, 12), /* five between */
        reads(0, 0, 121, 6), reads(0, 0, 120, 8),  /* six between */
    };
    struct qm_sim_result r;

    timed.device.read.mean_ns = 1.1e6;
    timed.device.ns_per_byte = 1e5 / BLOCK;
    r = RUN(&config, events);
    assert_int_equal(r.timed.demand_reads, 3 + 6 + 2 + 3);
    assert_int_equal(r.timed.bridged, 5);
    assert_int_equal(r.misses, 6 + 16 + 12 + 8);
    assert_int_equal(r.timed.demand_blocks, r.misses + r.timed.bridged);
    config.warmup = 10; /* which is read over does not count */
    r = RUN(&config, events);
    assert_int_equal(r.timed.demand_reads, 3);
    assert_int_equal(r.timed.bridged, 0);
}

/* What was read over is not the reader's: another's read of it, that it waits for, is
 * made again if it is not kept.  Here all of the cache is asked for meanwhile, which
 * spares only one of two blocks that are waited for. */
TEST(read_over_and_lost)
{
    struct qm_sim_config config = simulation(0, "none");
    struct qm_event events[8 + 2 + 4];
    struct qm_sim_result r;
    size_t n = 0;

    config.params.eviction = "lru";
    timed.speed = 1;
    timed.device.read.mean_ns = 1.1e6;
    timed.device.ns_per_byte = 1e5 / BLOCK;
    for (uint64_t i = 0; i < 8; i++)
        events[n++] = reads(0, 10 * MS * i, 10 * i, i + 1);
    events[n++] = reads(0, 1000 * MS, 201, 2);
    events[n++] = reads(0, 1000 * MS + 10, 200, 4);
    for (uint64_t i = 0; i < 4; i++)
        events[n++] = reads(0, 1000 * MS + 20 + i, 300 + 25 * i, 25);
    r = run(&config, events, n);
    assert_int_equal(r.misses, 36 + 4 + 100);
    assert_int_equal(r.hits, 2);
    assert_int_equal(r.timed.bridged, 2);
    assert_int_equal(r.timed.demand_reads, 8 + 1 + 1 + 4 + 1);
    assert_int_equal(r.timed.demand_blocks, 36 + 2 + 4 + 100 + 1);
}

/* What the cache has no room for is missed, too. */
TEST(without_room)
{
    enum { MANY = 39, EACH = 25 };
    struct qm_sim_config config = simulation(MANY, "none");
    struct qm_event events[2 * MANY];
    struct qm_sim_result r;

    for (unsigned i = 0; i < MANY; i++) {
        events[i] = begins(i + 1, 0);
        events[MANY + i] = reads(i + 1, 0, EACH * i, EACH);
    }
    r = RUN(&config, events);
    assert_int_equal(r.misses, MANY * EACH);
    assert_int_equal(r.reads, MANY * EACH);
    assert_int_equal(r.timed.demand_blocks, MANY * EACH);
}

/* 1 is read from 0 to 1, its successor 20 ahead from 1 to 2; it is demanded at 1.4. */
TEST(late_prefetch)
{
    struct qm_sim_config config = simulation(1, QM_PERFECT);
    const struct qm_event events[] = {begins(1, 0), reads(1, 0, 1, 1),
                                      reads(1, 0, 20, 1), ends(1)};
    struct qm_sim_result r;

    timed.think_ns = 400 * MS;
    r = RUN(&config, events);
    assert_int_equal(r.prefetch_hits, 1);
    assert_int_equal(r.timed.late, 1);
    assert_us(r.timed.mean, (1000 + 600) / 2.0);
    assert_int_equal(r.timed.prefetch_reads, 1);
    assert_int_equal(r.timed.demand_reads, 1);
}

/* The same, but it is there before it is demanded. */
TEST(early_prefetch)
{
    struct qm_sim_config config = simulation(1, QM_PERFECT);
    const struct qm_event events[] = {begins(1, 0), reads(1, 0, 1, 1),
                                      reads(1, 0, 20, 1), ends(1)};
    struct qm_sim_result r;

    timed.think_ns = 1500 * MS;
    r = RUN(&config, events);
    assert_int_equal(r.prefetch_hits, 1);
    assert_int_equal(r.timed.late, 0);
    assert_us(r.timed.mean, 500);
}

/* The one who prefetches is busy with 20, so 30 waits, and another client takes it
 * over: it is read third, as a demand's. */
TEST(taken_over)
{
    struct qm_sim_config config = simulation(2, QM_PERFECT);
    const struct qm_event events[] = {begins(1, 0),       reads(1, 0, 10, 1),
                                      reads(1, 0, 20, 1), reads(1, 0, 30, 1),
                                      begins(2, 0),       reads(2, 0, 30, 1)};
    struct qm_sim_result r = RUN(&config, events);

    assert_int_equal(r.timed.demand_reads, 2);
    assert_int_equal(r.timed.prefetch_reads, 1);
    assert_int_equal(r.timed.late, 2);
    assert_us(r.timed.most, 3 * MS);
    /* 10: 0 to 1; 20: wanted at 1, there at 2; 30: there at 3, and from then on. */
    assert_us(r.timed.mean, (1 + 1 + 1 + 3) * MS / 4.0);
}

/* Adjacent prefetches are one read. */
TEST(joined)
{
    struct qm_sim_config config = simulation(1, QM_PERFECT);
    const struct qm_event events[] = {begins(1, 0), reads(1, 0, 10, 1),
                                      reads(1, 0, 30, 1), reads(1, 0, 31, 1)};
    struct qm_sim_result r = RUN(&config, events);

    assert_int_equal(r.timed.prefetch_reads, 1);
    assert_int_equal(r.timed.prefetch_blocks, 2);
    assert_us(r.timed.mean, (1 + 1 + 0) * MS / 3.0);
}

/* At the trace's own times, at twice their speed, whatever became of the others. */
TEST(open_loop)
{
    struct qm_sim_config config = simulation(0, "none");
    const struct qm_event events[] = {reads(0, 7000, 1, 1), reads(0, 8000, 3, 1),
                                      reads(0, 27000, 5, 1)};
    struct qm_sim_result r;

    timed.speed = 2;
    r = RUN(&config, events);
    assert_us(r.timed.mean, (1000 + 1500 + 1000) / 3.0);
    assert_us(r.timed.seconds * 1e6, 11000);
    assert_us(r.timed.utilisation, 3.0 / 11);
}

/* The same by one client, which is late with the second; that counts. */
TEST(late_client)
{
    struct qm_sim_config config = simulation(1, "none");
    const struct qm_event events[] = {reads(0, 7000, 1, 1), reads(0, 7500, 3, 1),
                                      reads(0, 20000, 5, 1)};
    struct qm_sim_result r;

    timed.speed = 1;
    r = RUN(&config, events);
    assert_us(r.timed.mean, (1000 + 1500 + 1000) / 3.0);
    assert_us(r.timed.most, 1500);
}

/* The requests of the warm-up take time, but do not count. */
TEST(warm_up)
{
    struct qm_sim_config config = simulation(1, "none");
    const struct qm_event events[] = {reads(0, 0, 1, 1), reads(0, 0, 5, 1),
                                      reads(0, 0, 1, 1), reads(0, 0, 9, 1)};
    struct qm_sim_result r;

    config.warmup = 2;
    r = RUN(&config, events);
    assert_int_equal(r.requests, 2);
    assert_int_equal(r.hits, 1);
    assert_int_equal(r.timed.demand_reads, 1);
    assert_us(r.timed.mean, 500);
    assert_us(r.timed.seconds * 1e6, MS);
    assert_us(r.timed.utilisation, 1);
}

/* A client has the contexts within its own, whose numbers in the trace are used again
 * before it comes to them; and what knows each context's future is not confused. */
TEST(slots_again)
{
    struct qm_sim_config config = simulation(2, QM_PERFECT);
    struct qm_event events[500];
    struct qm_sim_result r;
    size_t n = 0;

    for (uint32_t i = 0; i < 100; i++) {
        events[n++] = begins(1, 0);
        events[n++] = begins(2, 1);
        events[n++] = reads(2, 0, i * 9, 1);
        events[n++] = reads(2, 0, i * 9 + 5, 1);
        events[n++] = ends(1); /* and 2 within it */
    }
    r = run(&config, events, n);
    assert_int_equal(r.requests, 200);
    assert_int_equal(r.misses, 100);
    assert_int_equal(r.prefetch_hits, 100);
    assert_int_equal(r.used, 100);
}

TEST(beyond_the_end)
{
    struct qm_sim_config config = simulation(1, "none");
    struct qm_event event = reads(0, 0, 999, 2);
    char err[256] = "";
    struct qm_sim *sim = qm_sim_new(&config, err, sizeof err);

    assert_non_null(sim);
    assert_int_equal(qm_sim_event(sim, &event), ERANGE);
    qm_sim_free(sim);
}

/* Each request is computed, and each read of the device. */
TEST(a_processor_takes_time)
{
    struct qm_sim_config config = simulation(1, "none");
    const struct qm_event events[] = {reads(0, 0, 1, 1), reads(0, 0, 5, 1),
                                      reads(0, 0, 1, 1), reads(0, 0, 9, 1)};
    struct qm_sim_result r;

    timed.processor =
        (struct qm_virtual_processor){.request_ns = 50000, .read_ns = 30000};
    r = RUN(&config, events);
    assert_us(r.timed.mean, (3 * 1080 + 50) / 4.0);
    assert_us(r.timed.most, 1080);
    assert_us(r.timed.seconds * 1e6, 3 * 1080 + 50);
    assert_us(r.timed.computed * 1e6, 4 * 50 + 3 * 30);
    assert_int_equal(r.misses, 3);
    config.warmup = 2;
    r = RUN(&config, events);
    assert_us(r.timed.computed * 1e6, 2 * 50 + 30);
}

/* One of two clients waits for the only processor, to be looked up, and the other's
 * read of the device waits for it in turn: it is there at 1130; then they wait for it
 * again. */
TEST(clients_wait_for_a_processor)
{
    struct qm_sim_config config = simulation(2, "none");
    const struct qm_event events[] = {reads(0, 0, 1, 1), reads(0, 0, 1, 1),
                                      reads(0, 0, 1, 1), reads(0, 0, 1, 1)};
    struct qm_sim_result r;

    timed.processor = (struct qm_virtual_processor){
        .count = 1, .request_ns = 50000, .read_ns = 30000};
    r = RUN(&config, events);
    assert_us(r.timed.mean, (1130 + 1130 + 50 + 100) / 4.0);
    assert_us(r.timed.seconds * 1e6, 1230);
    for (unsigned i = 0; i < 2; i++) {
        timed.processor.count = i ? 0 : 2; /* enough of them */
        r = RUN(&config, events);
        assert_us(r.timed.mean, (1080 + 1080 + 50 + 50) / 4.0);
    }
}

/* What is learned of 1 comes first, then it is read, from 300 to 1300; the prefetch of
 * 20 is submitted at 400, and read until 2300; it is demanded at 1700. */
TEST(prefetching_takes_a_processor)
{
    struct qm_sim_config config = simulation(1, QM_PERFECT);
    const struct qm_event events[] = {begins(1, 0), reads(1, 0, 1, 1),
                                      reads(1, 0, 20, 1), ends(1)};
    struct qm_sim_result r;

    timed.think_ns = 400 * MS;
    timed.processor = (struct qm_virtual_processor){
        .count = 1, .read_ns = 100000, .block_ns = 200000};
    r = RUN(&config, events);
    assert_us(r.timed.mean, (1300 + 600) / 2.0);
    assert_us(r.timed.computed * 1e6, 2 * 200 + 2 * 100);
    config.params.policy = "none"; /* nothing is learned */
    r = RUN(&config, events);
    assert_us(r.timed.computed * 1e6, 2 * 100);
}

/* A simulation that is given up in the middle of its reads leaves nothing behind. */
TEST(given_up)
{
    const unsigned loops[] = {0, 3, 0, 3};

    for (unsigned i = 0; i < 4; i++) {
        struct qm_sim_config config = simulation(loops[i], "seq");
        struct qm_sim *sim;
        char err[256] = "";

        timed.speed = loops[i] ? 0 : 1;
        if (i >= 2)
            timed.processor = (struct qm_virtual_processor){1, 50000, 30000, 1000};
        sim = qm_sim_new(&config, err, sizeof err);
        assert_non_null(sim);
        assert_int_equal(qm_sim_event(sim, (struct qm_event[]){begins(1, 0)}), 0);
        for (uint64_t block = 0; block < 8; block++) {
            struct qm_event one = reads(1, 0, block, 1), other = reads(0, 0, block, 3);

            assert_int_equal(qm_sim_event(sim, &one), 0);
            assert_int_equal(qm_sim_event(sim, &other), 0);
        }
        qm_sim_free(sim);
    }
}

/* Of each context's reads three in four follow the one before by a rule. */
static struct qm_sim_result random_run(void)
{
    static struct qm_event events[20000];
    struct qm_sim_config config = simulation(8, "ppm");
    uint64_t random = 1, last[17] = {0};

    timed.device = qm_device_profile_find("ssd")->config;
    timed.threads = 4;
    config.params.throttle = true;
    config.params.share_adapts = true;
    for (size_t i = 0; i < 20000; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        const uint32_t slot = (random >> 40) % 16 + 1;

        if (i < 16) {
            events[i] = begins((uint32_t)i + 1, 0);
            continue;
        }
        last[slot] =
            random >> 60 < 4 ? (random >> 50) % 900 : (last[slot] * 7 + 3) % 900;
        events[i] = reads(slot, i, last[slot], 1);
    }
    return run(&config, events, 20000);
}

/* Chance is the device's seed, and nothing else. */
TEST(the_same_twice)
{
    struct qm_sim_result a = random_run(), b = random_run();

    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.prefetches > 0);
    assert_true(a.timed.mean > 0);
}

/* Twelve clients miss at once, and the next block of each would be prefetched.  The
 * more demands are in flight, the fewer may wait, from eight on none; as many as 64
 * where that is configured. */
TEST(none_wait_beside_many_demands)
{
    enum { CLIENTS = 12 };
    struct qm_sim_config config = simulation(CLIENTS, QM_PERFECT);
    struct qm_event events[3 * CLIENTS];
    struct qm_sim_result r;

    for (unsigned i = 0; i < CLIENTS; i++) {
        events[3 * i] = begins(i + 1, 0);
        events[3 * i + 1] = reads(i + 1, 0, 50 * i, 1);
        events[3 * i + 2] = reads(i + 1, 0, 50 * i + 20, 1);
    }
    timed.threads = 0;
    r = RUN(&config, events);
    assert_int_equal(r.timed.dropped, 0);
    timed.queue = 0;
    r = RUN(&config, events);
    assert_in_range(r.timed.dropped, CLIENTS - 8, CLIENTS);
}
