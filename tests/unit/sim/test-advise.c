/* SPDX-License-Identifier: BSD-3-Clause */
/* test-advise.c - what is made of the figures of simulations, and of a trace. */
#include "tests/harness.h"

#include "sim/advise.h"
#include "sim/survey.h"

#define MIB (UINT64_C(1) << 20)

static struct qm_advise_cost cost(double us)
{
    return (struct qm_advise_cost){
        .eviction = "lru", .mean_us = us, .misses = us / 1e4};
}

static struct qm_advise_point point(uint64_t memory, double plain, double ahead)
{
    return (struct qm_advise_point){memory, cost(plain), cost(ahead)};
}

/* What is advised for these, where a read without a cache takes 10 ms. */
static struct qm_advice advise(const struct qm_advise_point *points, size_t count,
                               double reads_per_second)
{
    struct qm_advise_input input = {.points = points,
                                    .count = count,
                                    .none = cost(10000),
                                    .reads_per_second = reads_per_second,
                                    .policy = "auto",
                                    .level = "query"};
    struct qm_advice advice;

    qm_advise(&input, &advice);
    return advice;
}

/* The policy that is never far from the better, whatever the backend is. */
TEST(the_policy_that_stays_near_the_best)
{
    const struct qm_advise_point points[] = {point(16 * MIB, 9000, 9000),
                                             point(64 * MIB, 1000, 960)};
    const struct qm_advise_other others[] = {{700, 910}, {1300, 1290}};
    const struct qm_advise_other alike[] = {{800, 780}, {1200, 1190}};
    const struct qm_advise_other nothing[] = {{0, 0}, {10, 0}};
    struct qm_advise_input input = {.points = points,
                                    .count = 2,
                                    .none = cost(10000),
                                    .reads_per_second = 1000,
                                    .policy = "auto",
                                    .level = "query"};
    struct qm_advice a;

    assert_int_equal(qm_advise_memory(&input), 1);
    qm_advise(&input, &a);
    assert_true(a.prefetch); /* for all that is known */
    assert_true(a.close);
    assert_non_null(strstr(a.sentence, "leave the policy as it is"));
    assert_non_null(strstr(a.sentence, "with 64 MiB, policies none and auto are within "
                                       "10 % of each other"));
    assert_null(strstr(a.sentence, "faster or slower"));
    input.others = others;
    input.other_count = 2;
    qm_advise(&input, &a);
    assert_false(a.prefetch); /* 30 % above at worst; plain caching 4 % */
    assert_false(a.close);
    assert_null(strstr(a.sentence, "of each other"));
    assert_non_null(strstr(a.sentence, "use policy=none"));
    input.others = alike;
    qm_advise(&input, &a);
    assert_true(a.prefetch);
    assert_true(a.close);
    assert_non_null(strstr(a.sentence, "also if the backend is faster or slower"));
    input.others = nothing;
    qm_advise(&input, &a);
    assert_true(a.prefetch);
    assert_false(a.close);
}

TEST(the_least_memory_near_the_best)
{
    const struct qm_advise_point points[] = {
        point(16 * MIB, 9000, 8000), point(32 * MIB, 8000, 3100),
        point(64 * MIB, 7000, 3060), point(128 * MIB, 6000, 3000)};
    struct qm_advice a = advise(points, 4, 1000);

    assert_int_equal(a.advised, 1); /* 3.3 % above the best */
    assert_int_equal(a.knee, 1);
    assert_true(a.prefetch);
    assert_true(a.pays);
    assert_string_equal(qm_verdict_name(a.verdict), "pays");
    assert_non_null(strstr(a.sentence, "pays, because with 32 MiB"));
    assert_non_null(strstr(a.sentence, "from 8.00 ms to 3.10 ms, 61 % below"));
}

TEST(where_all_fits_less_memory_is_where_it_pays)
{
    const struct qm_advise_point points[] = {point(16 * MIB, 9000, 6000),
                                             point(32 * MIB, 5000, 4800),
                                             point(64 * MIB, 10, 11)};
    struct qm_advice a = advise(points, 3, 0);

    assert_int_equal(a.advised, 2);
    assert_false(a.prefetch);
    assert_true(a.pays);
    assert_int_equal(a.best_gain, 0);
    assert_string_equal(qm_verdict_name(a.verdict), "pays-smaller");
    assert_non_null(strstr(a.sentence, "with 16 MiB"));
}

TEST(a_large_part_of_next_to_nothing_is_nothing)
{
    const struct qm_advise_point points[] = {point(16 * MIB, 5000, 5000),
                                             point(64 * MIB, 30, 20)};
    struct qm_advice a = advise(points, 2, 1000);

    assert_false(a.pays);
    assert_string_equal(qm_verdict_name(a.verdict), "plain-pays");
    assert_non_null(strstr(a.sentence, "does not pay, because"));
}

TEST(without_reuse_it_does_not_pay)
{
    const struct qm_advise_point points[] = {point(16 * MIB, 9900, 9950),
                                             point(64 * MIB, 9500, 9700)};
    struct qm_advice a = advise(points, 2, 1000);

    assert_false(a.pays);
    assert_string_equal(qm_verdict_name(a.verdict), "no-reuse");
    assert_non_null(strstr(a.sentence, "does not pay, because"));
}

TEST(an_idle_device_does_not_pay)
{
    const struct qm_advise_point points[] = {point(16 * MIB, 9000, 1000)};
    struct qm_advice a = advise(points, 1, 0.5);

    assert_false(a.pays);
    assert_string_equal(qm_verdict_name(a.verdict), "idle");
    assert_true(a.outstanding > 0.004 && a.outstanding < 0.006);
    assert_true(advise(points, 1, 0).pays); /* nobody knows how often */
}

TEST(sizes_and_times_in_words)
{
    char text[24];

    assert_string_equal(qm_advise_size(64 * MIB, text), "64 MiB");
    assert_string_equal(qm_advise_size(60607693, text), "57.8 MiB");
    assert_string_equal(qm_advise_size(511, text), "511 B");
    assert_string_equal(qm_advise_time(0, text), "0.0 us");
    assert_string_equal(qm_advise_time(1234, text), "1.23 ms");
    assert_string_equal(qm_advise_time(2.5e6, text), "2.50 s");
}

static struct qm_event begin(uint32_t slot, uint32_t parent)
{
    return (struct qm_event){.type = QM_TRACE_BEGIN,
                             .slot = slot,
                             .parent_slot = parent,
                             .kind = parent ? QM_QUERY : QM_THREAD,
                             .klass = "c"};
}

static struct qm_event request(char type, uint64_t us, uint32_t slot, uint64_t offset,
                               uint64_t length)
{
    struct qm_event event = {.type = type, .us = us, .slot = slot};

    event.offset = offset;
    event.length = length;
    return event;
}

/* Two threads that read all the time, and one that read once: two clients. */
TEST(clients_are_the_roots_that_read)
{
    struct qm_survey s;
    struct qm_event e;

    qm_survey_init(&s, 4096);
    for (uint32_t slot = 1; slot <= 3; slot++) {
        e = begin(slot, 0);
        assert_int_equal(qm_survey_event(&s, &e), 0);
    }
    e = begin(100, 2); /* within the second */
    assert_int_equal(qm_survey_event(&s, &e), 0);
    e = request(QM_TRACE_READ, 0, 3, 1 << 20, 512);
    assert_int_equal(qm_survey_event(&s, &e), 0);
    for (uint64_t i = 1; i <= 1000; i++) {
        e = request(QM_TRACE_READ, i * 10000, i % 2 ? 1 : 100, i % 10 * 4096 + 100,
                    4096);
        assert_int_equal(qm_survey_event(&s, &e), 0);
    }
    e = request(QM_TRACE_WRITE, 11000000, 0, 8 << 20, 4096);
    assert_int_equal(qm_survey_event(&s, &e), 0);
    assert_int_equal(qm_survey_clients(&s, 64), 2);
    assert_int_equal(qm_survey_clients(&s, 1), 1);
    assert_int_equal(s.reads, 1001);
    assert_int_equal(s.writes, 1);
    assert_int_equal(s.most_blocks, 2);
    assert_int_equal(s.blocks, 2001);
    assert_int_equal(s.footprint.read, 12);
    assert_int_equal(s.end, (8 << 20) + 4096);
    assert_int_equal(s.contexts[QM_THREAD], 3);
    assert_true(qm_survey_seconds(&s) == 11);
    e = (struct qm_event){.type = QM_TRACE_END, .slot = 2};
    assert_int_equal(qm_survey_event(&s, &e), 0);
    assert_int_equal(s.active, 1);
    qm_survey_clear(&s);
}
