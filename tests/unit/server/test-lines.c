/* SPDX-License-Identifier: BSD-3-Clause */
/* test-lines.c - no cache line is written by every reader, or by one and by the
 * messages of another.
 *
 * Two threads, each with a context of its own, read the same blocks, which are in the
 * main cache and have been read often: an early hit writes to its block.  Between them
 * all writable memory of the process is compared with what it was before: a line that
 * the reads of both changed, or a mutex that both took (which is written, and written
 * back), is one that would travel between CPUs at each read.  A hit allocates nothing,
 * either.
 *
 * And while one client reads, another sends all kinds of messages about its contexts:
 * they meet on no line and on no mutex, so no message keeps a reader waiting.
 *
 * Applying noted accesses to an order of eviction is such a write, once for 28 hits of
 * a thread in a shard; the reads here are fewer.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness.h"

#include "cache/internal.h"
#include "server/reading.h"
#include "server/server.h"

#define LINE        64
#define BLOCK       UINT64_C(16384)
#define BLOCKS      2500 /* so that there are four shards of it */
#define READS       20
#define READERS     2
#define LOCKS_MAX   10000
#define STACK_BYTES (1 << 20)

static struct qms_server server;
static nbdkit_next below;

/* ---- the readers, who are told what to do through pipes, not memory */

struct reader {
    _Alignas(4 * LINE) pthread_t thread;
    char *stack;
    int commands[2], replies[2];
    struct qms_connection *connection;
    unsigned slot; /* of the tagged view; 0: a plain connection */
    bool watched;
    unsigned allocations, lock_count;
    const void *locks[LOCKS_MAX];
    char buf[BLOCK];
};

static struct reader readers[READERS];
static _Thread_local struct reader *self;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

void *__wrap_malloc(size_t size)
{
    if (self && self->watched)
        self->allocations++;
    return __real_malloc(size);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (self && self->watched)
        self->locks[self->lock_count++ % LOCKS_MAX] = mutex;
    return __real_pthread_mutex_lock(mutex);
}

static int pread_below(nbdkit_next *next, void *buf, uint32_t count, uint64_t offset,
                       uint32_t flags, int *err)
{
    memset(buf, (int)(offset / BLOCK), count);
    return 0;
}

static void read_block(struct reader *r, uint64_t block)
{
    struct qms_connection *c = r->connection;
    struct qms_slot *slot =
        r->slot ? qms_member_slot(&server.sessions, &c->member, r->slot) : &c->slot;
    int err = 0;

    if (qms_read(&server, c, &below, slot, r->buf, BLOCK, block * BLOCK, &err) != 0 ||
        (unsigned char)r->buf[1] != (unsigned char)block)
        abort();
}

static int send_records(struct reader *r, const struct qm_wire_record *records,
                        size_t n)
{
    return qms_control_write(&server.sessions, &r->connection->member, records,
                             n * sizeof *records, 0);
}

/* Contexts begin, nested and not, with classes old and new, and end or are ended; and
 * some of it is wrong. */
static void send_messages(struct reader *r)
{
    const struct qms_device device = {.size = BLOCKS * BLOCK, .block_size = BLOCK};
    struct qms_member *member = &r->connection->member;
    struct qm_wire_record records[2];
    struct qm_wire_header header;

    qms_control_header(&server.sessions, member, &device, &header);
    for (unsigned i = 0; i < 50; i++) {
        records[0] = (struct qm_wire_record){.op = QM_WIRE_BEGIN,
                                             .slot = r->slot + i % 8,
                                             .session = header.session,
                                             .klass = i,
                                             .kind = QM_WIRE_QUERY,
                                             .name_len = 4,
                                             .name = "some"};
        records[1] = records[0];
        records[1].slot = r->slot + 8 + i % 8;
        records[1].parent = records[0].slot;
        if (send_records(r, records, 2) != 0)
            abort();
        records[1].parent = records[1].slot;
        if (send_records(r, records, 2) != EINVAL)
            abort();
        records[1] = (struct qm_wire_record){
            .op = QM_WIRE_END, .slot = records[0].slot, .session = header.session};
        if (i % 3 == 0 && send_records(r, &records[1], 1) != 0)
            abort();
        if (qms_control_hint(&server.sessions, member, 512,
                             qm_wire_hint(QM_WIRE_BEGIN, QM_WIRE_QUERY, r->slot, 0) -
                                 QM_WIRE_CONTROL) != 0)
            abort();
    }
}

/* 'r': reads the blocks that both read; 'w': the same, watched; 'm': sends messages,
 * watched; 'q': ends. */
static void *reader_thread(void *opaque)
{
    struct reader *r = opaque;
    char command;

    self = r;
    while (read(r->commands[0], &command, 1) == 1 && command != 'q') {
        r->watched = command != 'r';
        if (command == 'm')
            send_messages(r);
        else
            for (uint64_t n = 0; n < READS; n++)
                read_block(r, n * 7);
        r->watched = false;
        if (write(r->replies[1], "", 1) != 1)
            abort();
    }
    return NULL;
}

static void let_read(struct reader *r, char command)
{
    char reply;

    assert_int_equal(write(r->commands[1], &command, 1), 1);
    assert_int_equal(read(r->replies[0], &reply, 1), 1);
}

static void open_reader(struct reader *r, bool tagged)
{
    const struct qms_device device = {.size = BLOCKS * BLOCK, .block_size = BLOCK};
    struct qms_connection *c =
        aligned_alloc(_Alignof(struct qms_connection), sizeof *c);
    struct qm_wire_header header;
    pthread_attr_t attr;

    memset(c, 0, sizeof *c);
    c->tagged = tagged;
    c->cached = true;
    c->size = BLOCKS * BLOCK;
    qms_member_init(&c->member);
    qms_slot_init(&c->slot, QMS_CLIENT_NONE);
    r->connection = c;
    r->slot = 0;
    if (tagged) {
        struct qm_wire_record record = {
            .op = QM_WIRE_BEGIN, .kind = QM_WIRE_TRANSACTION, .klass = 1};

        qms_control_header(&server.sessions, &c->member, &device, &header);
        record.session = header.session;
        record.slot = r->slot = header.slot_first;
        assert_int_equal(
            qms_control_write(&server.sessions, &c->member, &record, sizeof record, 0),
            0);
    } else {
        assert_int_equal(
            qms_context_begin(&server.contexts, &c->slot, NULL, QM_CONNECTION,
                              qms_class_find(server.classes, QM_CONNECTION, 0, "", 0)),
            0);
    }
    assert_int_equal(pipe(r->commands), 0);
    assert_int_equal(pipe(r->replies), 0);
    r->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(r->stack, MAP_FAILED);
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, r->stack, STACK_BYTES);
    assert_int_equal(pthread_create(&r->thread, &attr, reader_thread, r), 0);
    pthread_attr_destroy(&attr);
}

static void close_reader(struct reader *r)
{
    struct qms_connection *c = r->connection;

    assert_int_equal(write(r->commands[1], "q", 1), 1);
    pthread_join(r->thread, NULL);
    munmap(r->stack, STACK_BYTES);
    for (int i = 0; i < 2; i++) {
        close(r->commands[i]);
        close(r->replies[i]);
    }
    if (c->tagged)
        qms_member_leave(&server.sessions, &c->member);
    else
        qms_context_end(&server.contexts, &c->slot);
    qms_slot_destroy(&c->slot);
    qms_member_destroy(&c->member);
    free(c);
}

/* ---- what they change */

#define REGIONS_MAX 4096
#define SNAPSHOT_BYTES                                                                 \
    (UINT64_C(1) << 30) /* at most; what is not used costs nothing                     \
                         */
#define NEAR_THREAD 4096

struct region {
    char *start, *end;
};

/* A copy of the memory that can be written, and a byte a line of it.  It lies in a
 * mapping of its own, which is left out; and so are stacks, and what the C library and
 * the kernel write beside the main thread's variables. */
static struct {
    struct region regions[REGIONS_MAX];
    unsigned count;
    char *bytes, *lines;
} * before;

static bool is_within(const char *p, const char *start, size_t size)
{
    return p >= start && p < start + size;
}

static bool is_left_out(const char *p)
{
    for (unsigned i = 0; i < READERS; i++)
        if (is_within(p, readers[i].stack, STACK_BYTES))
            return true;
    return is_within(p, (char *)before, SNAPSHOT_BYTES);
}

static void find_regions(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], mode[5], *start, *end;
    size_t size = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        assert_int_equal(
            sscanf(line, "%p-%p %4s", (void **)&start, (void **)&end, mode), 3);
        if (memcmp(mode, "rw", 2) != 0 || strstr(line, "[stack]") || is_left_out(start))
            continue;
        assert_true(before->count < REGIONS_MAX);
        before->regions[before->count++] = (struct region){start, end};
        size += end - start;
    }
    fclose(maps);
    assert_true(sizeof *before + size + size / LINE < SNAPSHOT_BYTES);
    before->bytes = (char *)before + (sizeof *before / LINE + 1) * LINE;
    before->lines = before->bytes + size;
}

static void take_snapshot(void)
{
    char *at = before->bytes;

    for (unsigned i = 0; i < before->count; i++) {
        const struct region *r = &before->regions[i];

        memcpy(at, r->start, r->end - r->start);
        at += r->end - r->start;
    }
}

/* Marks the lines that were changed.  Returns how many of them have both marks. */
static unsigned mark_changed(char mark, unsigned *changed)
{
    const char *at = before->bytes, *self_at = __builtin_thread_pointer();
    char *line = before->lines;
    unsigned both = 0;

    for (unsigned i = 0; i < before->count; i++) {
        const struct region *r = &before->regions[i];

        for (const char *p = r->start; p < r->end; p += LINE, at += LINE, line++) {
            if (memcmp(at, p, LINE) == 0 ||
                is_within(p, self_at - NEAR_THREAD, 2 * NEAR_THREAD))
                continue;
            *line |= mark;
            ++*changed;
            if (*line == 3) {
                print_error("both write the line at %p\n", (const void *)p);
                both++;
            }
        }
    }
    return both;
}

static void check(bool tagged, bool messages)
{
    unsigned changed[READERS] = {0}, both = 0;

    for (unsigned i = 0; i < READERS; i++)
        open_reader(&readers[i], tagged);
    /* What a thread does at its first read only; and then, room in the rings. */
    for (unsigned i = 0; i < READERS; i++)
        for (unsigned n = 0; n < QM_CACHE_EARLY_HITS; n++)
            let_read(&readers[i], 'r');
    for (unsigned i = 0; i < server.cache->shard_count; i++) {
        pthread_mutex_lock(&server.cache->shards[i].lock);
        qm_shard_drain(&server.cache->shards[i]);
        pthread_mutex_unlock(&server.cache->shards[i].lock);
    }
    before = mmap(NULL, SNAPSHOT_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(before, MAP_FAILED);
    find_regions();
    for (unsigned i = 0; i < READERS; i++) {
        take_snapshot();
        let_read(&readers[i], messages && i == 1 ? 'm' : 'w');
        both += mark_changed(1 << i, &changed[i]);
    }
    munmap(before, SNAPSHOT_BYTES);

    assert_int_equal(both, 0);
    assert_true(readers[0].lock_count < LOCKS_MAX && readers[1].lock_count < LOCKS_MAX);
    for (unsigned i = 0; i < readers[0].lock_count; i++)
        for (unsigned k = 0; k < readers[1].lock_count; k++)
            assert_ptr_not_equal(readers[0].locks[i], readers[1].locks[k]);
    for (unsigned i = 0; i < READERS; i++) {
        /* Rings of four shards, statistics, the context: else the test is blind.  And
         * a lock for each read, at least. */
        assert_in_range(changed[i], 8, messages && i == 1 ? 10000 : 100);
        assert_in_range(readers[i].lock_count, READS, LOCKS_MAX);
        if (!messages || i == 0)
            assert_int_equal(readers[i].allocations, 0);
        close_reader(&readers[i]);
        readers[i].lock_count = readers[i].allocations = 0;
    }
}

static void test_tagged(void **state)
{
    check(true, false);
}

static void test_plain(void **state)
{
    check(false, false);
}

static void test_messages(void **state)
{
    check(true, true);
}

/* ---- a server without nbdkit */

/* *state: the policy. */
static int make_server(void **state)
{
    struct qm_cache_config config = {.block_size = BLOCK,
                                     .blocks = BLOCKS + 500,
                                     .prefetch_blocks = 200,
                                     .shards = 4,
                                     .eviction = "lru",
                                     .data = true};
    char buf[BLOCK], err[256];

    memset(&server, 0, sizeof server);
    server.size = BLOCKS * BLOCK;
    server.max_bytes = 1 << 20;
    server.config.block_size = BLOCK;
    server.config.blocks = config.blocks;
    server.batch = qm_params_batch(config.blocks, server.config.prefetch_most);
    server.config.prefetch_blocks = config.prefetch_blocks;
    qm_mining_defaults(&server.config.params.mining);
    server.config.policy = qm_prefetcher_find(*state);
    server.stats = qms_stats_new();
    server.classes = qms_classes_new();
    assert_int_equal(qm_engine_make_prefetcher(&server.engine, server.config.policy,
                                               &server.config.params.mining, err,
                                               sizeof err),
                     0);
    server.engine.throttle = qm_throttle_new();
    assert_int_equal(qm_cache_new(&config, &server.cache), 0);
    server.engine.cache = server.cache;
    assert_int_equal(server.cache->shard_count, 4);
    server.contexts.engine = &server.engine;
    server.contexts.mining = true;
    server.contexts.classes = server.classes;
    server.contexts.stats = server.stats;
    server.contexts.held_max = 1 << 20;
    server.hints = qms_hints_new(qms_reading_alone, &server);
    assert_non_null(server.hints);
    assert_int_equal(qms_contexts_init(&server.contexts), 0);
    qms_clients_init(&server.clients, server.engine.prefetcher);
    assert_int_equal(qms_sessions_init(&server.sessions, &server.contexts,
                                       &server.clients, server.classes, server.stats),
                     0);
    below.pread = pread_below;
    for (uint64_t block = 0; block < BLOCKS; block++) {
        struct qms_connection c = {.cached = true, .size = server.size};
        int e = 0;

        assert_int_equal(
            qms_read(&server, &c, &below, NULL, buf, BLOCK, block * BLOCK, &e), 0);
    }
    return 0;
}

static int undo_server(void **state)
{
    qms_sessions_destroy(&server.sessions);
    qms_contexts_destroy(&server.contexts);
    qms_hints_free(server.hints);
    qm_cache_free(server.cache);
    server.engine.prefetcher->ops->destroy(server.engine.prefetcher);
    qm_throttle_free(server.engine.throttle);
    qms_classes_free(server.classes);
    qms_stats_free(server.stats);
    return 0;
}

int main(void)
{
    static char ppm[] = "ppm";
#ifdef QM_HAVE_BERKELEY_DB
    static char quickmine[] = "quickmine";
#endif
    const struct CMUnitTest tests[] = {
#ifdef QM_HAVE_BERKELEY_DB
        cmocka_unit_test_prestate_setup_teardown(test_tagged, make_server, undo_server,
                                                 quickmine),
        cmocka_unit_test_prestate_setup_teardown(test_plain, make_server, undo_server,
                                                 quickmine),
        cmocka_unit_test_prestate_setup_teardown(test_messages, make_server,
                                                 undo_server, quickmine),
#endif
        cmocka_unit_test_prestate_setup_teardown(test_tagged, make_server, undo_server,
                                                 ppm),
        cmocka_unit_test_prestate_setup_teardown(test_plain, make_server, undo_server,
                                                 ppm),
        cmocka_unit_test_prestate_setup_teardown(test_messages, make_server,
                                                 undo_server, ppm),
    };

    if (sysconf(_SC_NPROCESSORS_CONF) < 2) { /* all threads use one ring */
        puts("skipped: there is one CPU");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
