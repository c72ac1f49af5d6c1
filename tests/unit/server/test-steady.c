/* SPDX-License-Identifier: BSD-3-Clause */
/* test-steady.c - nothing grows with uptime: a server that has seen all of its bounds
 * takes no more memory, whatever comes and goes.
 *
 * Clients come, begin contexts of ever new classes, nested and never ended, read blocks
 * that nobody has read before, and some again and again, write, send messages that are
 * refused, read what the disk fails to deliver, and leave.  Once tables, rules and
 * caches are full, what malloc() has handed out stays what it is.
 */
#include <errno.h>
#include <malloc.h>
#include <unistd.h>

#include "tests/harness.h"

#include "server/reading.h"
#include "server/server.h"

#define BLOCK    UINT64_C(4096)
#define BLOCKS   (UINT64_C(1) << 24)
#define CONTEXTS 15         /* of a client */
#define READS    12         /* in a context */
#define CLIENTS  120        /* between two looks */
#define FILLING  8          /* looks, until all is full */
#define LOOKS    4          /* before, and after, that are compared */
#define SLACK    (32 << 10) /* under 5 bytes a context */

static struct qms_server server;
static nbdkit_next below;

/* Some blocks cannot be read. */
static int read_disk(void *buf, uint32_t count, uint64_t offset)
{
    memset(buf, 0, count);
    return offset / BLOCK % 32 == 0 ? EIO : 0;
}

static int pread_below(nbdkit_next *next, void *buf, uint32_t count, uint64_t offset,
                       uint32_t flags, int *err)
{
    *err = read_disk(buf, count, offset);
    return *err ? -1 : 0;
}

static int pwrite_below(nbdkit_next *next, const void *buf, uint32_t count,
                        uint64_t offset, uint32_t flags, int *err)
{
    return 0;
}

static int read_for_prefetch(void *opaque, unsigned worker, void *buf, uint32_t count,
                             uint64_t offset)
{
    return read_disk(buf, count, offset);
}

static uint64_t draw(void)
{
    static uint64_t state;
    uint64_t x = state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 31;
}

static void message(struct qms_connection *c, uint64_t session, unsigned op,
                    unsigned slot, unsigned parent, uint64_t klass)
{
    struct qm_wire_record record = {
        .op = op, .slot = slot, .parent = parent, .session = session};

    if (op == QM_WIRE_BEGIN) {
        record.kind = QM_WIRE_QUERY;
        record.klass = klass;
        record.name_len = 8;
        memcpy(record.name, "a client", 8);
    }
    (void)qms_control_write(&server.sessions, &c->member, &record, sizeof record, 0);
}

/* The second of the two can only be judged after the first. */
static void refused(struct qms_connection *c, uint64_t session, unsigned slot)
{
    struct qm_wire_record records[2] = {
        {.op = QM_WIRE_END, .slot = slot, .session = session},
        {.op = QM_WIRE_BEGIN,
         .slot = slot + 1,
         .parent = slot,
         .kind = QM_WIRE_QUERY,
         .session = session}};

    assert_int_equal(
        qms_control_write(&server.sessions, &c->member, records, sizeof records, 0),
        EINVAL);
}

static void request(struct qms_connection *c, struct qms_slot *slot, uint64_t tour,
                    unsigned i)
{
    static char buf[3 * BLOCK];
    uint64_t block = i % 2 == 0 ? (tour * 31 + i) * 977 % 100000 : draw() % BLOCKS;
    int err = 0;

    if (block > BLOCKS - 3)
        block = BLOCKS - 3;
    if (i % 5 == 4)
        (void)qms_write(&server, &below, slot, buf, sizeof buf - 7, block * BLOCK + 5,
                        0, &err);
    else if (i % 11 == 10)
        (void)qms_fill(&server, c, &below, 2 * BLOCK, block * BLOCK, &err);
    else
        (void)qms_read(&server, c, &below, slot, buf,
                       i % 3 == 0 ? sizeof buf - 9 : BLOCK, block * BLOCK, &err);
    assert_true(err == 0 || err == EIO);
}

static void client(void)
{
    const struct qms_device device = {.size = server.size, .block_size = BLOCK};
    struct qms_connection c = {.tagged = true, .cached = true, .size = server.size};
    struct qm_wire_header header;

    qms_member_init(&c.member);
    qms_control_header(&server.sessions, &c.member, &device, &header);
    assert_true(header.slot_count > CONTEXTS);
    for (unsigned i = 0; i < CONTEXTS; i++) {
        unsigned slot = header.slot_first + i;
        uint64_t tour = draw() % 3000;

        message(&c, header.session, QM_WIRE_BEGIN, slot, i % 4 == 3 ? slot - 1 : 0,
                i % 2 == 0 ? tour : draw());
        refused(&c, header.session, slot);
        for (unsigned k = 0; k < READS; k++)
            request(&c, qms_member_slot(&server.sessions, &c.member, slot), tour, k);
        if (i % 3 == 0)
            message(&c, header.session, QM_WIRE_END, slot, 0, 0);
    }
    qms_member_leave(&server.sessions, &c.member);
    qms_member_destroy(&c.member);
}

static bool is_working(void)
{
    struct qms_miner_stats miner;
    struct qms_prefetch_stats prefetch;

    qms_miner_stats(server.miner, &miner);
    qms_prefetch_get_stats(server.prefetch, &prefetch);
    return miner.queued > 0 || prefetch.busy > 0 || qms_prefetch_waits(server.prefetch);
}

/* Bytes in use when what was read has been mined, and what was to be prefetched is: the
 * queue of a slow machine is as large as what is looked for.  The cache's are left out:
 * it takes more now and then, up to its budget, which it counts
 * (tests/unit/cache/test-api.c).
 */
static uint64_t look(void)
{
    struct qm_cache_stats cache;
    struct mallinfo2 info;

    for (int i = 0; i < CLIENTS; i++)
        client();
    for (int i = 0; is_working(); i++) {
        assert_true(i < 60000);
        usleep(1000);
    }
    info = mallinfo2();
    qm_cache_get_stats(server.cache, &cache);
    assert_true(cache.bytes <= qm_cache_footprint(1000, BLOCK));
    return info.uordblks + info.hblkhd - cache.bytes;
}

static uint64_t most_of(int looks)
{
    uint64_t most = 0, bytes;

    while (looks-- > 0) {
        bytes = look();
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void make_cache(void)
{
    const struct qm_cache_config config = {.block_size = BLOCK,
                                           .blocks = 1000,
                                           .prefetch_blocks = 100,
                                           .prefetch_adapts = true,
                                           .shards = 2,
                                           .eviction = "adaptive",
                                           .data = true};

    assert_int_equal(qm_cache_new(&config, &server.cache), 0);
}

static void start_threads(void)
{
    const struct qms_prefetch_config config = {.cache = server.cache,
                                               .stats = server.stats,
                                               .load = &server.load,
                                               .size = server.size,
                                               .block_size = BLOCK,
                                               .max_bytes = 1 << 20,
                                               .threads = 1,
                                               .queue = 64,
                                               .read = read_for_prefetch};

    server.miner = qms_miner_start(server.engine.prefetcher, 4 << 10, 0);
    server.prefetch = qms_prefetch_start(&config);
    assert_true(server.miner && server.prefetch);
}

/* *state: the policy. */
static int make_server(void **state)
{
    struct qm_mining_config mining;
    char err[256];

    memset(&server, 0, sizeof server);
    server.size = BLOCKS * BLOCK;
    server.max_bytes = 1 << 20;
    server.config.block_size = BLOCK;
    server.config.blocks = 1000;
    server.config.prefetch_most = 500;
    server.batch = qm_params_batch(1000, 500);
    qm_mining_defaults(&mining);
    mining.max_prefix = 2000;
    mining.rules_memory = 1 << 20;
    qm_device_load_init(&server.load);
    qms_order_init(&server.order);
    server.stats = qms_stats_new();
    server.classes = qms_classes_new();
    assert_int_equal(qm_engine_make_prefetcher(&server.engine,
                                               qm_prefetcher_find(*state), &mining, err,
                                               sizeof err),
                     0);
    server.engine.throttle = qm_throttle_new();
    server.engine.load = &server.load;
    server.engine.device_blocks = BLOCKS;
    server.engine.prefetches = server.engine.on_prefetch_hit = true;
    make_cache();
    server.engine.cache = server.cache;
    start_threads();
    server.contexts.engine = &server.engine;
    server.contexts.mining = true;
    server.contexts.classes = server.classes;
    server.contexts.miner = server.miner;
    server.contexts.stats = server.stats;
    server.contexts.held_max = 10000;
    server.hints = qms_hints_new(qms_reading_alone, &server);
    assert_non_null(server.hints);
    assert_int_equal(qms_contexts_init(&server.contexts), 0);
    qms_clients_init(&server.clients, server.engine.prefetcher);
    assert_int_equal(qms_sessions_init(&server.sessions, &server.contexts,
                                       &server.clients, server.classes, server.stats),
                     0);
    below.pread = pread_below;
    below.pwrite = pwrite_below;
    return 0;
}

static int undo_server(void **state)
{
    qms_prefetch_stop(server.prefetch);
    qms_sessions_destroy(&server.sessions);
    qms_contexts_destroy(&server.contexts);
    qms_hints_free(server.hints);
    qms_miner_stop(server.miner);
    qm_cache_free(server.cache);
    server.engine.prefetcher->ops->destroy(server.engine.prefetcher);
    qm_throttle_free(server.engine.throttle);
    qms_classes_free(server.classes);
    qms_stats_free(server.stats);
    qm_device_load_destroy(&server.load);
    return 0;
}

static void test_nothing_grows(void **state)
{
    struct qms_miner_stats miner;
    uint64_t before, after;

    most_of(FILLING);
    before = most_of(LOOKS);
    after = most_of(LOOKS);
    qms_miner_stats(server.miner, &miner);
    print_message("%s: %zu bytes, then %zu; %u classes, %u sequences, %u more shed\n",
                  (char *)*state, (size_t)before, (size_t)after,
                  qms_classes_count(server.classes), (unsigned)miner.learned,
                  (unsigned)miner.shed);
    assert_int_equal(qms_classes_count(server.classes), QMS_CLASSES_MAX);
    assert_true(after < before + SLACK);
}

int main(int argc, char **argv)
{
    static char policies[][12] = {
#ifdef QM_HAVE_BERKELEY_DB
        "quickmine",
#endif
        "none",      "ppm", "mithril", "amp", "seq"};
    enum { POLICIES = sizeof policies / sizeof policies[0] };
    struct CMUnitTest tests[POLICIES];

    /* What threads keep of what was freed, for themselves, would count as in use. */
    if (!getenv("GLIBC_TUNABLES")) {
        setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    for (unsigned i = 0; i < POLICIES; i++)
        tests[i] = (struct CMUnitTest)cmocka_unit_test_prestate_setup_teardown(
            test_nothing_grows, make_server, undo_server, policies[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
