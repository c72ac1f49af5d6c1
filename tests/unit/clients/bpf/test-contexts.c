/* SPDX-License-Identifier: BSD-3-Clause */
/* test-contexts.c - contexts from tables of slots, honest ones and others. */
#include <stdbool.h>
#include <stdio.h>

#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/bpf/contexts.h"
#include "clients/bpf/threads.h"
#include "clients/protocol/quickmine-protocol.h"

#define SLOTS 64

/* A sink that takes down what it is told. */
static struct begun {
    uint64_t parent, klass;
    uint16_t kind;
    char name[QM_AGENT_NAME_MAX + 1];
    bool ended;
} begun[30000];
static uint64_t last;
static bool refuses;

static uint64_t begin(void *opaque, uint64_t parent, uint16_t kind, uint64_t klass,
                      const char *name)
{
    if (refuses)
        return 0;
    assert_true(parent <= last);
    assert_false(parent > 0 && begun[parent].ended);
    last++;
    begun[last] = (struct begun){.parent = parent, .klass = klass, .kind = kind};
    strcpy(begun[last].name, name);
    return last;
}

static void end(void *opaque, uint64_t handle)
{
    assert_in_range(handle, 1, last);
    assert_false(begun[handle].ended);
    for (uint64_t i = 1; i <= last; i++)
        assert_false(begun[i].parent == handle && !begun[i].ended);
    begun[handle].ended = true;
}

static struct qm_agent_contexts *contexts;

struct table {
    struct qm_agent_slot *slots;
    int fd;
};

static struct table make_table(unsigned slots, int seals)
{
    struct table t = {.fd = memfd_create("table", MFD_ALLOW_SEALING | MFD_CLOEXEC)};
    size_t bytes = slots * sizeof *t.slots;

    assert_int_not_equal(t.fd, -1);
    assert_int_equal(ftruncate(t.fd, (off_t)bytes), 0);
    t.slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t.fd, 0);
    assert_ptr_not_equal(t.slots, MAP_FAILED);
    assert_int_equal(fcntl(t.fd, F_ADD_SEALS, seals), 0);
    return t;
}

static void free_table(struct table *t, unsigned slots)
{
    munmap(t->slots, slots * sizeof *t->slots);
    close(t->fd);
}

static int add(pid_t process, uid_t user, int fd, unsigned slots)
{
    struct qm_agent_hello hello = {
        .magic = QM_AGENT_MAGIC, .version = QM_AGENT_VERSION, .slots = slots};

    return qm_agent_contexts_register(contexts, process, user, &hello, fd);
}

static uint64_t word(uint64_t generation, unsigned slot)
{
    return generation << QM_AGENT_SLOT_BITS | slot;
}

static uint64_t set(struct table *t, unsigned slot, uint64_t generation,
                    uint64_t parent, uint16_t kind, const char *name)
{
    struct qm_agent_slot *s = &t->slots[slot];

    memset(s, 0, sizeof *s);
    s->word = word(generation, slot);
    s->parent = parent;
    s->klass = generation * 10;
    s->kind = kind;
    s->name_len = (uint16_t)strlen(name);
    memcpy(s->name, name, s->name_len);
    return s->word;
}

static struct table table;

static int setup(void **state)
{
    const struct qm_sink sink = {begin, end, NULL};

    last = 0;
    refuses = false;
    contexts = qm_agent_contexts_new(&sink);
    table = make_table(SLOTS, F_SEAL_SHRINK);
    assert_int_equal(add(100, 1000, table.fd, SLOTS), 0);
    return 0;
}

static int teardown(void **state)
{
    qm_agent_contexts_free(contexts);
    for (uint64_t i = 1; i <= last; i++)
        assert_true(begun[i].ended);
    free_table(&table, SLOTS);
    return 0;
}

static struct qm_agent_contexts_stats stats(void)
{
    struct qm_agent_contexts_stats s;

    qm_agent_contexts_get_stats(contexts, &s);
    return s;
}

/* A context is begun at its first read, with what is around it, once. */
TEST_WITH(test_begun_when_read, setup, teardown)
{
    uint64_t c = set(&table, 1, 1, 0, QM_WIRE_CONNECTION, "client");
    uint64_t q = set(&table, 2, 2, c, QM_WIRE_QUERY, "SELECT ?");

    assert_int_equal(last, 0);
    assert_int_equal(qm_agent_contexts_find(contexts, 100, q), 2);
    assert_int_equal(begun[1].kind, QM_WIRE_CONNECTION);
    assert_string_equal(begun[2].name, "SELECT ?");
    assert_int_equal(begun[2].parent, 1);
    assert_int_equal(begun[2].klass, 20);
    assert_int_equal(qm_agent_contexts_find(contexts, 100, q), 2);
    assert_int_equal(qm_agent_contexts_find(contexts, 100, c), 1);
    assert_int_equal(last, 2);
    assert_int_equal(qm_agent_contexts_find(contexts, 100, 0), 0);
    assert_int_equal(qm_agent_contexts_find(contexts, 101, q), 0);
}

/* It ends when the table says so, or its slot has another; what is nested goes first.
 */
TEST_WITH(test_ends, setup, teardown)
{
    uint64_t c = set(&table, 1, 1, 0, QM_WIRE_CONNECTION, "");
    uint64_t t = set(&table, 2, 2, c, QM_WIRE_TRANSACTION, "");
    uint64_t q = set(&table, 3, 3, t, QM_WIRE_QUERY, "");

    qm_agent_contexts_find(contexts, 100, q);
    qm_agent_contexts_sweep(contexts);
    assert_int_equal(stats().open, 3);
    table.slots[2].ended = t;
    qm_agent_contexts_sweep(contexts);
    assert_int_equal(stats().open, 1);
    assert_true(begun[2].ended && begun[3].ended && !begun[1].ended);
    set(&table, 1, 4, 0, QM_WIRE_CONNECTION, "");
    qm_agent_contexts_sweep(contexts);
    assert_int_equal(stats().open, 0);
}

/* One that has ended already is still told of, since its slot describes it. */
TEST_WITH(test_read_just_before_the_end, setup, teardown)
{
    uint64_t q = set(&table, 1, 1, 0, QM_WIRE_QUERY, "x");

    table.slots[1].ended = q;
    assert_int_equal(qm_agent_contexts_find(contexts, 100, q), 1);
    qm_agent_contexts_sweep(contexts);
    assert_true(begun[1].ended);
}

TEST_WITH(test_stale, setup, teardown)
{
    uint64_t q = set(&table, 1, 1, 0, QM_WIRE_QUERY, "x");

    set(&table, 1, 2, 0, QM_WIRE_QUERY, "y");
    assert_int_equal(qm_agent_contexts_find(contexts, 100, q), 0);
    assert_int_equal(stats().stale, 1);
    table.slots[1].word = 0;
    assert_int_equal(qm_agent_contexts_find(contexts, 100, word(2, 1)), 0);
    assert_int_equal(stats().stale, 2);
}

/* What is no sense, or a lie. */
TEST_WITH(test_false_slots, setup, teardown)
{
    uint64_t a;

    assert_int_equal(qm_agent_contexts_find(contexts, 100, word(1, 0)), 0);
    assert_int_equal(qm_agent_contexts_find(contexts, 100, word(1, SLOTS)), 0);
    assert_int_equal(qm_agent_contexts_find(contexts, 100, UINT64_MAX), 0);
    a = set(&table, 1, 1, 0, 0, "kind 0");
    assert_int_equal(qm_agent_contexts_find(contexts, 100, a), 0);
    a = set(&table, 1, 1, 0, QM_WIRE_QUERY + 1, "kind 5");
    assert_int_equal(qm_agent_contexts_find(contexts, 100, a), 0);
    a = set(&table, 1, 1, 0, QM_WIRE_QUERY, "");
    table.slots[1].name_len = QM_AGENT_NAME_MAX + 1;
    assert_int_equal(qm_agent_contexts_find(contexts, 100, a), 0);
    /* Around itself, and two around each other. */
    a = set(&table, 1, 7, word(7, 1), QM_WIRE_QUERY, "");
    assert_int_equal(qm_agent_contexts_find(contexts, 100, a), 0);
    a = set(&table, 1, 7, word(8, 2), QM_WIRE_QUERY, "");
    set(&table, 2, 8, a, QM_WIRE_QUERY, "");
    assert_int_equal(qm_agent_contexts_find(contexts, 100, a), 0);
    assert_int_equal(last, 0);
    assert_int_equal(stats().bad, 8);
}

/* Deeper than is allowed: the outer ones are left out, and nothing overflows. */
TEST_WITH(test_deep, setup, teardown)
{
    uint64_t parent = 0;

    for (unsigned i = 1; i < SLOTS; i++)
        parent = set(&table, i, i, parent, QM_WIRE_QUERY, "");
    assert_int_not_equal(qm_agent_contexts_find(contexts, 100, parent), 0);
    assert_int_equal(last, QM_AGENT_CONTEXTS_DEPTH + 1);
}

TEST_WITH(test_bounded, setup, teardown)
{
    struct table many = make_table(QM_AGENT_SLOTS_MAX, F_SEAL_SHRINK);

    assert_int_equal(add(200, 1000, many.fd, QM_AGENT_SLOTS_MAX), 0);
    for (unsigned i = 1; i < QM_AGENT_CONTEXTS_OPEN + 100; i++)
        qm_agent_contexts_find(contexts, 200, set(&many, i, i, 0, QM_WIRE_QUERY, ""));
    assert_int_equal(last, QM_AGENT_CONTEXTS_OPEN);
    /* Another process has its own. */
    assert_int_not_equal(
        qm_agent_contexts_find(contexts, 100, set(&table, 1, 1, 0, QM_WIRE_QUERY, "")),
        0);
    qm_agent_contexts_forget(contexts, 200);
    assert_int_equal(stats().open, 1);
    free_table(&many, QM_AGENT_SLOTS_MAX);
}

/* Read one after the other, as deep as they are: no deeper than is allowed. */
TEST_WITH(test_deep_step_by_step, setup, teardown)
{
    uint64_t parent = 0;

    for (unsigned i = 1; i < SLOTS; i++) {
        parent = set(&table, i, i, parent, QM_WIRE_QUERY, "");
        qm_agent_contexts_find(contexts, 100, parent);
    }
    for (uint64_t i = 1; i <= last; i++) {
        unsigned depth = 1;

        for (uint64_t outer = begun[i].parent; outer != 0; outer = begun[outer].parent)
            depth++;
        assert_in_range(depth, 1, QM_AGENT_CONTEXTS_DEPTH + 1);
    }
}

/* Half of the contexts end at once, in any order of nesting. */
TEST_WITH(test_many_end, setup, teardown)
{
    uint64_t words[SLOTS];

    for (unsigned i = 1; i < SLOTS; i++) {
        words[i] =
            set(&table, i, i, i > 1 && i % 3 ? words[i - 1] : 0, QM_WIRE_QUERY, "");
        qm_agent_contexts_find(contexts, 100, words[i]);
    }
    for (unsigned i = 1; i < SLOTS; i += 2)
        table.slots[i].ended = words[i];
    qm_agent_contexts_sweep(contexts);
    for (unsigned i = 1; i < SLOTS; i += 2)
        assert_true(begun[i].ended);
}

/* Looking for contexts in a table that nobody has written to does not fill it. */
TEST_WITH(test_empty_table, setup, teardown)
{
    struct table many = make_table(QM_AGENT_SLOTS_MAX, F_SEAL_SHRINK);
    struct stat st;

    assert_int_equal(add(200, 1000, many.fd, QM_AGENT_SLOTS_MAX), 0);
    for (unsigned i = 1; i < QM_AGENT_SLOTS_MAX; i += 8)
        assert_int_equal(qm_agent_contexts_find(contexts, 200, word(1, i)), 0);
    assert_int_equal(fstat(many.fd, &st), 0);
    assert_int_equal(st.st_blocks, 0);
    free_table(&many, QM_AGENT_SLOTS_MAX);
}

/* However many have ended, a sweep looks at some; the next ones at the others, also
 * when the process that was next has gone. */
TEST_WITH(test_sweeps_in_parts, setup, teardown)
{
    const unsigned slots = 1024, processes = 6;
    struct table many = make_table(slots, F_SEAL_SHRINK);
    uint64_t before;

    for (pid_t p = 0; p < (pid_t)processes; p++)
        assert_int_equal(add(500 + p, 1000, many.fd, slots), 0);
    for (unsigned i = 1; i < slots; i++)
        for (pid_t p = 0; p < (pid_t)processes; p++)
            qm_agent_contexts_find(contexts, 500 + p,
                                   set(&many, i, i, 0, QM_WIRE_QUERY, ""));
    before = stats().open;
    assert_int_equal(before, processes * (slots - 1));
    for (unsigned i = 1; i < slots; i++)
        many.slots[i].ended = many.slots[i].word;
    qm_agent_contexts_sweep(contexts);
    assert_in_range(before - stats().open, slots - 1, QM_AGENT_CONTEXTS_SWEEP + slots);
    qm_agent_contexts_forget(contexts, 502);
    qm_agent_contexts_forget(contexts, 503);
    for (unsigned i = 0; i < processes; i++)
        qm_agent_contexts_sweep(contexts);
    assert_int_equal(stats().open, 0);
    free_table(&many, slots);
}

/* A helper reads on behalf of another process' context, of the same user only. */
TEST_WITH(test_helpers, setup, teardown)
{
    struct table helper = make_table(SLOTS, F_SEAL_SHRINK);
    uint64_t q = set(&table, 1, 5, 0, QM_WIRE_QUERY, "leader"), w;

    w = set(&helper, 1, 1, q, 0, "");
    helper.slots[1].of_process = 100;
    assert_int_equal(add(300, 1000, helper.fd, SLOTS), 0);
    assert_int_equal(qm_agent_contexts_find(contexts, 300, w), 1);
    assert_int_equal(qm_agent_contexts_find(contexts, 100, q), 1);
    assert_int_equal(add(300, 1001, helper.fd, SLOTS), 0);
    assert_int_equal(qm_agent_contexts_find(contexts, 300, w), 0);
    helper.slots[1].of_process = 12345;
    assert_int_equal(qm_agent_contexts_find(contexts, 300, w), 0);
    /* Two that are each other's helpers. */
    set(&table, 2, 9, w, 0, "");
    table.slots[2].of_process = 300;
    helper.slots[1].of_process = 100;
    helper.slots[1].parent = word(9, 2);
    assert_int_equal(add(300, 1000, helper.fd, SLOTS), 0);
    assert_int_equal(qm_agent_contexts_find(contexts, 300, w), 0);
    free_table(&helper, SLOTS);
}

/* A user's processes together do not use up what there is for all; root's may. */
TEST_WITH(test_a_users_share, setup, teardown)
{
    const unsigned slots = 8192;
    struct table many = make_table(slots, F_SEAL_SHRINK);
    unsigned found[4] = {0};

    for (unsigned i = 1; i < slots; i++)
        set(&many, i, i, 0, QM_WIRE_QUERY, "q");
    for (pid_t p = 0; p < 4; p++)
        assert_int_equal(add(500 + p, p < 3 ? 1000 : 1001, many.fd, slots), 0);
    for (pid_t p = 0; p < 4; p++)
        for (unsigned i = 1; i < 6000; i++)
            found[p] += qm_agent_contexts_find(contexts, 500 + p, word(i, i)) != 0;
    assert_int_equal(found[0] + found[1] + found[2], QM_AGENT_CONTEXTS_USER);
    /* Another's are its own. */
    assert_int_equal(found[3], 5999);
    qm_agent_contexts_forget(contexts, 500);
    assert_int_not_equal(qm_agent_contexts_find(contexts, 502, word(5999, 5999)), 0);
    free_table(&many, slots);
}

/* Threads may have any names; classes are few. */
/* When there are too many threads, the one that has not read for longest ends; and so
 * do those that are idle, however they stand among busy ones. */
TEST_WITH(test_busy_threads_stay, setup, teardown)
{
    const struct qm_sink sink = {begin, end, NULL};
    struct qm_agent_threads *threads = qm_agent_threads_new(&sink);
    struct qm_bpf_read read = {.process = 1, .name = "t"};
    uint64_t first, second;

    for (unsigned i = 1; i <= QM_THREADS_MAX; i++) {
        read.thread = i;
        read.ns = i;
        assert_int_not_equal(qm_agent_threads_find(threads, &read), 0);
    }
    first = last - QM_THREADS_MAX + 1;
    second = first + 1;
    read.thread = 1;
    read.ns = QM_THREAD_IDLE;
    assert_int_equal(qm_agent_threads_find(threads, &read), first);
    read.thread = QM_THREADS_MAX + 1;
    assert_int_not_equal(qm_agent_threads_find(threads, &read), 0);
    assert_false(begun[first].ended);
    assert_true(begun[second].ended);
    /* The two of these that have read of late are not idle. */
    qm_agent_threads_sweep(threads, QM_THREAD_IDLE + QM_THREADS_MAX + 1);
    for (uint64_t i = first; i <= last; i++)
        assert_int_equal(begun[i].ended, i != first && i != last);
    qm_agent_threads_free(threads);
}

/* What an io_uring worker reads is its submitter's, if its name says whose. */
TEST_WITH(test_io_uring_workers, setup, teardown)
{
    const struct qm_sink sink = {begin, end, NULL};
    struct qm_agent_threads *threads = qm_agent_threads_new(&sink);
    struct qm_bpf_read read = {.process = 1, .thread = 77, .name = "db"};
    uint64_t submitter = qm_agent_threads_find(threads, &read);

    read.thread = 78;
    strcpy(read.name, "iou-wrk-77");
    assert_int_equal(qm_agent_threads_find(threads, &read), submitter);
    strcpy(read.name, "iou-wrk-77x");
    assert_int_not_equal(qm_agent_threads_find(threads, &read), submitter);
    read.process = 2;
    strcpy(read.name, "iou-wrk-77");
    assert_int_not_equal(qm_agent_threads_find(threads, &read), submitter);
    qm_agent_threads_free(threads);
}

TEST_WITH(test_names_of_threads, setup, teardown)
{
    const struct qm_sink sink = {begin, end, NULL};
    struct qm_agent_threads *threads = qm_agent_threads_new(&sink);
    struct qm_bpf_read read = {.process = 7};
    unsigned named = 0;

    for (unsigned i = 0; i < 1000; i++) {
        read.thread = i + 1;
        snprintf(read.name, sizeof read.name, "\xff%u\n;%%s", i);
        assert_int_equal(qm_agent_threads_find(threads, &read), i + 1);
        named += strcmp(begun[i + 1].name, "others") != 0;
    }
    assert_int_equal(named, QM_THREAD_NAMES);
    /* One that has a class keeps it. */
    read.thread = 5000;
    snprintf(read.name, sizeof read.name, "\xff%u\n;%%s", 3);
    assert_int_equal(qm_agent_threads_find(threads, &read), 1001);
    assert_string_equal(begun[1001].name, begun[4].name);
    assert_int_equal(begun[1001].klass, begun[4].klass);
    qm_agent_threads_free(threads);
}

TEST_WITH(test_registration, setup, teardown)
{
    struct table loose = make_table(SLOTS, 0);
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int huge = memfd_create("huge", MFD_HUGETLB | MFD_ALLOW_SEALING | MFD_CLOEXEC);

    assert_int_equal(add(1, 0, loose.fd, SLOTS), EINVAL); /* could shrink */
    assert_int_equal(add(1, 0, table.fd, SLOTS + 4096), EINVAL);
    assert_int_equal(add(1, 0, table.fd, QM_AGENT_SLOTS_MAX + 1), EINVAL);
    assert_int_equal(add(1, 0, table.fd, 1), EINVAL);
    assert_int_equal(add(1, 0, file, SLOTS), EINVAL);
    if (huge != -1) /* a kernel may have none */
        assert_int_equal(add(1, 0, huge, SLOTS), EINVAL);
    assert_int_equal(stats().processes, 1);
    if (huge != -1)
        close(huge);
    /* Anew: what was open has ended. */
    qm_agent_contexts_find(contexts, 100, set(&table, 1, 1, 0, QM_WIRE_QUERY, ""));
    assert_int_equal(add(100, 1000, table.fd, SLOTS), 0);
    assert_int_equal(stats().processes, 1);
    assert_int_equal(stats().open, 0);
    close(file);
    free_table(&loose, SLOTS);
}

TEST_WITH(test_a_sink_that_refuses, setup, teardown)
{
    uint64_t q = set(&table, 1, 1, 0, QM_WIRE_QUERY, "");

    refuses = true;
    assert_int_equal(qm_agent_contexts_find(contexts, 100, q), 0);
    refuses = false;
    assert_int_equal(qm_agent_contexts_find(contexts, 100, q), 1);
}
