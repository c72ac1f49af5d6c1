/* SPDX-License-Identifier: BSD-3-Clause */
/* test-memory.c - cache-size is the memory for everything: blocks, their metadata and
 * the rules never take more, while rules come to earn much and then nothing, and their
 * part grows and shrinks.  With the policies' real tables, without time and with it. */
#include "tests/harness.h"

#include "engine/memory.h"
#include "plugins/device/profile.h"
#include "sim/internal.h"
#include "sim/sim.h"
#include "sim/virtual.h"

enum { BLOCK = 4096, LENGTH = 8, DEVICE = 1 << 22 };

struct shares {
    uint64_t least, most, checks;
};

static uint64_t random_state;

static uint64_t any(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static void check(struct qm_sim *sim, uint64_t size, struct shares *shares)
{
    struct qm_sim_result r;

    qm_sim_result(sim, &r);
    assert_true(r.cache_blocks * BLOCK + r.metadata_bytes + r.mining.rules_bytes <=
                size);
    assert_true(r.cache_blocks * BLOCK + r.metadata_bytes + r.mining.rules_limit <=
                size);
    /* And it is there to be used: nothing is lost between the two. */
    assert_true(r.cache_blocks * BLOCK + r.metadata_bytes + sim->memory.rules >=
                size - size / 50);
    if (r.mining.rules_limit < shares->least)
        shares->least = r.mining.rules_limit;
    if (r.mining.rules_limit > shares->most)
        shares->most = r.mining.rules_limit;
    shares->checks++;
}

static void event(struct qm_sim *sim, char type, uint64_t block)
{
    struct qm_event e = {.type = type, .ctx = 1, .slot = 1};

    if (type == QM_TRACE_BEGIN) {
        e.kind = QM_TRANSACTION;
        e.klass = "t";
    } else if (type == QM_TRACE_READ) {
        e.offset = block * BLOCK;
        e.length = BLOCK;
    }
    assert_int_equal(qm_sim_event(sim, &e), 0);
}

/* A transaction reads one of `scripts` sequences of blocks, or with 0 blocks by chance
 * out of `working`; the sum is checked after each. */
static void transactions(struct qm_sim *sim, uint64_t size, unsigned n,
                         uint64_t scripts, uint64_t working, struct shares *shares)
{
    while (n-- > 0) {
        uint64_t script = scripts ? any(scripts) : 0;

        event(sim, QM_TRACE_BEGIN, 0);
        for (uint64_t i = 0; i < LENGTH; i++) {
            event(sim, QM_TRACE_READ,
                  scripts ? (script * LENGTH + i) * 2654435761 % DEVICE : any(working));
        }
        event(sim, QM_TRACE_END, 0);
        check(sim, size, shares);
    }
}

static void run(const char *policy, uint64_t size,
                const struct qm_virtual_config *timed)
{
    struct shares earning = {UINT64_MAX, 0, 0}, idle = {UINT64_MAX, 0, 0};
    struct qm_sim_config config;
    struct qm_sim *sim;
    char err[256];

    random_state = 88172645463325252;
    qm_sim_defaults(&config);
    config.block_size = BLOCK;
    config.cache_size = size;
    config.params.policy = policy;
    config.params.level = QM_LEVEL_INNERMOST;
    config.timed = timed;
    sim = qm_sim_new(&config, err, sizeof err);
    assert_non_null(sim);
    transactions(sim, size, 10000, size / 1024, 0, &earning);
    transactions(sim, size, 20000, 0, size / BLOCK * 3 / 2, &idle);
    assert_int_equal(qm_sim_finish(sim), 0);
    assert_true(earning.most >= qm_memory_first_rules(size) * 3 / 2);
    assert_true(idle.least < earning.most * 2 / 3);
    assert_int_equal(earning.checks + idle.checks, 30000);
    qm_sim_free(sim);
}

TEST(test_sizes)
{
    run("ppm", 1 << 20, NULL);
    run("ppm", 4 << 20, NULL);
    run("auto", 4 << 20, NULL);
    run("auto", 16 << 20, NULL);
}

TEST(test_in_time)
{
    struct qm_virtual_config timed = {
        .size = (uint64_t)DEVICE * BLOCK, .clients = 4, .threads = 4, .queue = 128};

    timed.device = qm_device_profile_find("ssd")->config;
    run("auto", 4 << 20, &timed);
}
