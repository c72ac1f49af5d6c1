/* SPDX-License-Identifier: BSD-3-Clause */
/* test-mount-transport.c - the program's side of announcing contexts to a mount. */
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/libqmctx/qmctx.h"
#include "mock-mount.h"
#include "tests/unit/check.h"

static char dir[] = "/tmp/qmctx.XXXXXX", path[64];

/* The calling thread's fsgid. */
static uint32_t fsgid(void)
{
    return (uint32_t)syscall(SYS_setfsgid, -1);
}

/* Waits for condition, at most a minute, and tells whether it came true. */
#define WAIT_FOR(condition)                                                            \
    ({                                                                                 \
        time_t until_ = time(NULL) + 60;                                               \
        while (!(condition) && time(NULL) < until_)                                    \
            usleep(2000);                                                              \
        (condition);                                                                   \
    })

/* A begin and an end, which is when the transport looks after its mount. */
static bool nudge(struct qmctx *ctx)
{
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0, NULL), 0);
    assert_int_equal(qmctx_end(ctx), 0);
    return qmctx_connected(ctx);
}

/* To the mock mount, which may, on a busy machine, greet later than qmctx_announce()
 * waits: then it is asked again when a context begins. */
static struct qmctx *must_announce(void)
{
    struct qmctx *ctx;

    assert_int_equal(qmctx_announce(path, &ctx), 0);
    assert_true(qmctx_connected(ctx) || WAIT_FOR(nudge(ctx)));
    return ctx;
}

static struct qm_mount_entry *entry_of(struct mock_mount *m)
{
    uint32_t index = fsgid() - m->gid_base;

    check(index < m->entries);
    return &m->entry[index];
}

static void test_begin_end(void **state)
{
    struct mock_mount m = {.greet = true, .gid_base = QM_MOUNT_GID_BASE + 0x1000};
    struct qm_mount_entry *e;
    struct qmctx *ctx;
    uint64_t version;
    char status[4096], pattern[64];
    FILE *f;
    size_t n;

    mock_mount_start(&m, path);
    ctx = must_announce();
    assert_string_equal(qmctx_transport(ctx), "mount");
    assert_int_equal(fsgid(), 0);
    assert_int_equal(qmctx_depth(ctx), 0);

    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x1122334455667788, "SELECT ?"), 0);
    assert_int_equal(qmctx_depth(ctx), 1);
    e = entry_of(&m);
    version = e->version;
    assert_int_equal(version & 1, 0);
    assert_int_not_equal(version, 0);
    assert_int_equal(e->kind, QMCTX_QUERY);
    assert_int_equal(e->klass, 0x1122334455667788);
    assert_int_equal(e->name_len, 8);
    assert_memory_equal(e->name, "SELECT ?", 8);
    assert_int_equal(e->parent, 0);

    /* The kernel's own idea of it. */
    snprintf(status, sizeof status, "/proc/self/task/%d/status", gettid());
    f = fopen(status, "r");
    assert_non_null(f);
    n = fread(status, 1, sizeof status - 1, f);
    status[n] = '\0';
    fclose(f);
    snprintf(pattern, sizeof pattern, "Gid:\t0\t0\t0\t%u\n", fsgid());
    assert_non_null(strstr(status, pattern));

    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(fsgid(), 0);
    assert_int_equal(e->kind, 0);
    assert_int_equal(e->version & 1, 0);
    assert_true(e->version > version);

    assert_int_equal(qmctx_end(ctx), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_not_equal(strlen(qmctx_error()), 0);
    assert_int_equal(qmctx_begin(ctx, (enum qmctx_kind)5, 0, NULL), -1);
    assert_int_equal(errno, EINVAL);
    qmctx_close(ctx);
    assert_true(WAIT_FOR(m.gone == 1));
    assert_int_equal(m.ended, 0);
    mock_mount_stop(&m);
}

static void test_nesting(void **state)
{
    struct mock_mount m = {.greet = true};
    struct qm_mount_entry *e[3];
    struct qmctx *ctx;

    mock_mount_start(&m, path);
    ctx = must_announce();
    /* What the thread's fsgid was before comes back. */
    syscall(SYS_setfsgid, 4711);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(qmctx_begin(ctx, QMCTX_THREAD + i % 3, i, NULL), 0);
        e[i] = entry_of(&m);
    }
    assert_int_equal(qmctx_depth(ctx), 3);
    assert_int_equal(e[0]->parent, 0);
    for (unsigned i = 1; i < 3; i++) {
        assert_ptr_not_equal(e[i], e[i - 1]);
        assert_ptr_equal(&m.entry[e[i]->parent - 1], e[i - 1]);
        assert_int_equal(e[i]->parent_version, e[i - 1]->version);
    }
    assert_int_equal(qmctx_end(ctx), 0);
    assert_ptr_equal(entry_of(&m), e[1]);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 9, NULL), 0);
    assert_int_equal(entry_of(&m)->klass, 9);
    assert_int_equal(qmctx_end_to(ctx, 1), 0);
    assert_int_equal(qmctx_depth(ctx), 1);
    assert_ptr_equal(entry_of(&m), e[0]);
    assert_int_equal(e[1]->kind, 0);
    assert_int_equal(qmctx_end_to(ctx, 1), 0);
    assert_int_equal(qmctx_end_to(ctx, 0), 0);
    assert_int_equal(fsgid(), 4711);
    syscall(SYS_setfsgid, 0);
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

/* More than the thread keeps to itself. */
static void test_deep(void **state)
{
    struct mock_mount m = {.greet = true};
    struct qmctx *ctx;

    mock_mount_start(&m, path);
    ctx = must_announce();
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 64; i++) {
            assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, i, NULL), 0);
            assert_int_equal(entry_of(&m)->klass, i);
        }
        for (unsigned i = 64; i-- > 0;) {
            assert_int_equal(entry_of(&m)->klass, i);
            assert_int_equal(qmctx_end(ctx), 0);
        }
        assert_int_equal(fsgid(), 0);
    }
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

static void test_no_entry_left(void **state)
{
    struct mock_mount m = {.greet = true, .entries = 2};
    struct qm_mount_entry *second;
    struct qmctx *ctx;

    mock_mount_start(&m, path);
    ctx = must_announce();
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, i, NULL), 0);
    second = entry_of(&m);
    for (unsigned i = 2; i < 5; i++) {
        assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, i, NULL), 0);
        assert_ptr_equal(entry_of(&m), second);
        assert_int_equal(second->klass, 1);
    }
    assert_int_equal(qmctx_depth(ctx), 5);
    assert_int_equal(qmctx_end_to(ctx, 2), 0);
    assert_ptr_equal(entry_of(&m), second);
    assert_int_equal(qmctx_end_to(ctx, 0), 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

static void test_names(void **state)
{
    struct mock_mount m = {.greet = true};
    struct qm_mount_entry *e;
    struct qmctx *ctx;
    char name[1000];

    mock_mount_start(&m, path);
    ctx = must_announce();
    /* 198 bytes, and then one character of three, which does not fit. */
    memset(name, 'n', sizeof name);
    memcpy(name + 198, "\xe2\x82\xac", 3);
    name[sizeof name - 1] = '\0';
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, name), 0);
    e = entry_of(&m);
    assert_int_equal(e->name_len, 198);
    assert_memory_equal(e->name, name, 198);
    qmctx_end(ctx);
    /* 196 and three: just fits. */
    memcpy(name + 196,
           "\xe2\x82\xac"
           "n",
           4);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, name), 0);
    e = entry_of(&m);
    assert_int_equal(e->name_len, QM_MOUNT_NAME_MAX);
    assert_memory_equal(e->name, name, QM_MOUNT_NAME_MAX);
    qmctx_end(ctx);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, ""), 0);
    assert_int_equal(entry_of(&m)->name_len, 0);
    qmctx_close(ctx);
    assert_int_equal(fsgid(), 0);
    mock_mount_stop(&m);
}

static void test_ended_messages(void **state)
{
    struct mock_mount m = {.greet = true};
    struct qm_mount_entry *e;
    struct qmctx *ctx;
    uint64_t version;

    mock_mount_start(&m, path);
    ctx = must_announce();
    qmctx_begin(ctx, QMCTX_TRANSACTION, 1, NULL);
    qmctx_begin(ctx, QMCTX_QUERY, 2, NULL);
    e = entry_of(&m);
    version = e->version;
    e->seen = version; /* as the mount does at the first read */
    qmctx_end(ctx);
    qmctx_end(ctx);
    assert_true(WAIT_FOR(m.ended == 1));
    assert_int_equal(m.last_index, e - m.entry);
    assert_int_equal(m.last_version, version);
    /* What was seen of the entry's last context says nothing of its next. */
    for (unsigned i = 0; i < 100; i++)
        nudge(ctx);
    qmctx_close(ctx);
    assert_true(WAIT_FOR(m.gone == 1));
    assert_int_equal(m.ended, 1);
    mock_mount_stop(&m);
}

/* A mount that does not receive must not keep the program waiting. */
static void test_full_socket(void **state)
{
    struct mock_mount m = {.greet = true, .deaf = true};
    struct qmctx *ctx;

    mock_mount_start(&m, path);
    ctx = must_announce();
    for (unsigned i = 0; i < 5000; i++) {
        struct qm_mount_entry *e;

        qmctx_begin(ctx, QMCTX_QUERY, i, NULL);
        e = entry_of(&m);
        e->seen = e->version;
        qmctx_end(ctx);
    }
    assert_true(qmctx_connected(ctx));
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

static void test_mount_comes_later(void **state)
{
    struct mock_mount m = {.greet = false};
    struct qmctx *ctx;

    assert_int_equal(qmctx_announce(path, &ctx), 0);
    assert_false(qmctx_connected(ctx));
    assert_non_null(strstr(qmctx_error(), path));
    assert_int_equal(qmctx_begin(ctx, QMCTX_THREAD, 7, "thread"), 0);
    assert_int_equal(fsgid(), 0);

    mock_mount_start(&m, path);
    /* Connected, but not greeted: contexts go on being no-ops. */
    assert_true(WAIT_FOR((nudge(ctx), m.accepted == 1)));
    nudge(ctx);
    assert_false(qmctx_connected(ctx));
    assert_int_equal(qmctx_depth(ctx), 1);
    m.greet = true;
    assert_true(WAIT_FOR(nudge(ctx)));
    assert_int_equal(m.accepted, 1);
    /* The context that was open all the time is known now. */
    assert_int_equal(entry_of(&m)->klass, 7);
    assert_memory_equal(entry_of(&m)->name, "thread", 6);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

static void test_mount_goes_and_comes_back(void **state)
{
    struct mock_mount m = {.greet = true}, again = {.greet = true};
    struct qm_mount_entry *e;
    struct qmctx *ctx;
    uint32_t index;

    again.gid_base = QM_MOUNT_GID_BASE + 0x20000;
    mock_mount_start(&m, path);
    ctx = must_announce();
    assert_int_equal(qmctx_begin(ctx, QMCTX_CONNECTION, 1, "c"), 0);
    assert_int_equal(qmctx_begin(ctx, QMCTX_TRANSACTION, 2, "t"), 0);
    entry_of(&m);
    mock_mount_stop(&m);

    assert_true(WAIT_FOR((nudge(ctx), fsgid() == 0)));
    assert_false(qmctx_connected(ctx));
    assert_int_equal(qmctx_depth(ctx), 2);

    mock_mount_start(&again, path);
    assert_true(WAIT_FOR(nudge(ctx)));
    e = entry_of(&again);
    assert_int_equal(e->klass, 2);
    index = e->parent - 1;
    assert_true(index < again.entries);
    assert_int_equal(again.entry[index].klass, 1);
    assert_int_equal(e->parent_version, again.entry[index].version);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_ptr_equal(entry_of(&again), &again.entry[index]);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
    mock_mount_stop(&again);
}

/* The mount's end is noticed at once when there is something to tell it. */
static void test_mount_gone_at_end(void **state)
{
    struct mock_mount m = {.greet = true};
    struct qm_mount_entry *e;
    struct qmctx *ctx;

    mock_mount_start(&m, path);
    ctx = must_announce();
    qmctx_begin(ctx, QMCTX_TRANSACTION, 1, NULL);
    qmctx_begin(ctx, QMCTX_QUERY, 2, NULL);
    e = entry_of(&m);
    e->seen = e->version;
    mock_mount_stop(&m);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_false(qmctx_connected(ctx));
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
}

static void refused(struct mock_mount *m)
{
    struct qmctx *ctx;

    m->greet = true;
    mock_mount_start(m, path);
    assert_int_equal(qmctx_announce(path, &ctx), 0);
    assert_false(qmctx_connected(ctx));
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, NULL), 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
    mock_mount_stop(m);
}

static void test_bad_greetings(void **state)
{
    refused(&(struct mock_mount){.magic = 0x12345678});
    refused(&(struct mock_mount){.version = 2});
    refused(&(struct mock_mount){.gid_base = 1000});
    refused(&(struct mock_mount){.gid_base = QM_MOUNT_GID_END - 63});
    refused(&(struct mock_mount){.bytes = 63 * 256});
    refused(&(struct mock_mount){.memory_bytes = 63 * 256});
    refused(&(struct mock_mount){.no_memory = true});
    refused(&(struct mock_mount){.unsealed = true});
}

static void test_paths(void **state)
{
    struct qmctx *ctx;
    char long_path[200];

    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    assert_int_equal(qmctx_announce(long_path, &ctx), -1);
    assert_int_equal(errno, EINVAL);
    assert_null(ctx);
    assert_int_equal(qmctx_announce("", &ctx), -1);
    assert_int_equal(qmctx_announce(dir, &ctx), 0); /* no socket, but may become one */
    assert_false(qmctx_connected(ctx));
    qmctx_close(ctx);
}

/* Which transport it is that a program gets. */
static void test_where(void **state)
{
    bool has_kernel;
    struct qmctx *ctx;

    /* Whatever the kernel has, a path is a mount's. */
    assert_int_equal(qmctx_announce(path, &ctx), 0);
    assert_string_equal(qmctx_transport(ctx), "mount");
    qmctx_close(ctx);

    errno = 0;
    has_kernel = qmctx_announce("kernel", &ctx) == 0;
    if (has_kernel) {
        assert_string_equal(qmctx_transport(ctx), "kernel");
        assert_true(qmctx_connected(ctx));
        qmctx_close(ctx);
    } else {
        assert_int_equal(errno, ENOSYS);
        assert_null(ctx);
        assert_non_null(strstr(qmctx_error(), "kernel"));
    }

    /* NULL is as the environment says, and else the kernel. */
    assert_int_equal(setenv("QMCTX_TRANSPORT", path, 1), 0);
    assert_int_equal(qmctx_announce(NULL, &ctx), 0);
    assert_string_equal(qmctx_transport(ctx), "mount");
    qmctx_close(ctx);
    assert_int_equal(qmctx_announce("kernel", &ctx), has_kernel ? 0 : -1);
    qmctx_close(ctx);
    for (int set = 0; set < 3; set++) {
        if (set)
            assert_int_equal(setenv("QMCTX_TRANSPORT", set == 1 ? "" : "kernel", 1), 0);
        else
            assert_int_equal(unsetenv("QMCTX_TRANSPORT"), 0);
        assert_int_equal(qmctx_announce(NULL, &ctx), has_kernel ? 0 : -1);
        if (has_kernel)
            assert_string_equal(qmctx_transport(ctx), "kernel");
        else
            assert_null(ctx);
        qmctx_close(ctx);
    }
    assert_int_equal(unsetenv("QMCTX_TRANSPORT"), 0);
}

/* QMCTX_CARRIER and qmctx_carrier(), by which older programs know them. */
static void test_old_names(void **state)
{
    struct qmctx *ctx;

    assert_int_equal(setenv("QMCTX_CARRIER", path, 1), 0);
    assert_int_equal(qmctx_announce(NULL, &ctx), 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic pop
    qmctx_close(ctx);
    /* The new one goes first. */
    assert_int_equal(setenv("QMCTX_TRANSPORT", path, 1), 0);
    assert_int_equal(setenv("QMCTX_CARRIER", "kernel", 1), 0);
    assert_int_equal(qmctx_announce(NULL, &ctx), 0);
    assert_string_equal(qmctx_transport(ctx), "mount");
    qmctx_close(ctx);
    assert_int_equal(unsetenv("QMCTX_TRANSPORT"), 0);
    assert_int_equal(unsetenv("QMCTX_CARRIER"), 0);
}

static void test_direct_only(void **state)
{
    struct qmctx *ctx;
    qmctx_id id;
    char c = 0;

    assert_int_equal(qmctx_announce(path, &ctx), 0);
    errno = 0;
    assert_int_equal(qmctx_size(ctx), 0);
    assert_int_equal(errno, ENOTSUP);
    assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, 1, NULL, &id), -1);
    assert_int_equal(qmctx_close_context(ctx, 1), -1);
    assert_int_equal(qmctx_pread(ctx, 0, &c, 1, 0), -1);
    assert_int_equal(errno, ENOTSUP);
    assert_int_equal(qmctx_pwrite(ctx, 0, &c, 1, 0, false), -1);
    assert_int_equal(qmctx_flush(ctx), -1);
    assert_int_equal(qmctx_poll(ctx, 0), -1);
    assert_int_equal(qmctx_reconnect(ctx), -1);
    assert_null(qmctx_stats(ctx));
    assert_int_equal(qmctx_current(ctx), 0);
    qmctx_close(ctx);
}

struct job {
    struct qmctx *ctx;
    struct mock_mount *m;
    uint64_t number;
    unsigned rounds;
    unsigned failed;
    _Atomic unsigned *running;
};

static void *leave_open(void *opaque)
{
    struct job *job = opaque;

    for (unsigned i = 0; i < 3; i++) {
        qmctx_begin(job->ctx, QMCTX_QUERY, job->number, NULL);
        if (entry_of(job->m)->klass != job->number)
            job->failed++;
    }
    return NULL;
}

static void test_thread_exit(void **state)
{
    struct mock_mount m = {.greet = true, .entries = 4};
    struct job job = {.m = &m};
    pthread_t thread;

    mock_mount_start(&m, path);
    job.ctx = must_announce();
    for (job.number = 1; job.number < 20; job.number++) {
        assert_int_equal(pthread_create(&thread, NULL, leave_open, &job), 0);
        pthread_join(thread, NULL);
        for (unsigned i = 0; i < m.entries; i++)
            assert_int_equal(m.entry[i].kind, 0);
    }
    assert_int_equal(job.failed, 0);
    qmctx_close(job.ctx);
    mock_mount_stop(&m);
}

/* A name of 11 times its class. */
enum { TIMES = 11 };

static void make_name(char *name, uint64_t klass)
{
    for (unsigned i = 0; i < TIMES; i++)
        snprintf(name + 16 * i, 17, "%016llx", (unsigned long long)klass);
}

/* Contexts of many threads at once: each sees its own, nested as it did it.  Class and
 * name of an entry belong together, whenever the mount looks. */
static void *many(void *opaque)
{
    struct job *job = opaque;
    char name[16 * TIMES + 1];

    for (unsigned i = 0; i < job->rounds; i++) {
        unsigned depth = 1 + i % 5;

        for (unsigned k = 0; k < depth; k++) {
            uint64_t klass = job->number << 32 | (i << 3) | k;

            make_name(name, klass);
            qmctx_begin(job->ctx, QMCTX_QUERY, klass, name);
            if (entry_of(job->m)->klass != klass)
                job->failed++;
        }
        if (qmctx_depth(job->ctx) != depth)
            job->failed++;
        qmctx_end_to(job->ctx, 0);
        if (fsgid() != 0)
            job->failed++;
    }
    atomic_fetch_sub(job->running, 1);
    return NULL;
}

static unsigned inconsistent(struct mock_mount *m)
{
    typedef uint32_t __attribute__((may_alias)) word;
    unsigned failed = 0;

    for (unsigned i = 0; i < m->entries; i++) {
        struct qm_mount_entry *e = &m->entry[i];
        uint64_t version = atomic_load(&e->version);
        char name[16 * TIMES + 1] = "", expected[16 * TIMES + 1];
        uint64_t klass = __atomic_load_n(&e->klass, __ATOMIC_ACQUIRE);
        uint32_t kind = __atomic_load_n(&e->kind, __ATOMIC_ACQUIRE), w;

        for (size_t k = 0; k < 16 * TIMES; k += sizeof w) {
            w = __atomic_load_n((word *)(void *)(e->name + k), __ATOMIC_ACQUIRE);
            memcpy(name + k, &w, sizeof w);
        }
        if (version & 1 || atomic_load(&e->version) != version || kind == 0)
            continue;
        make_name(expected, klass);
        failed += strcmp(name, expected) != 0;
    }
    return failed;
}

static void test_threads(void **state)
{
    enum { THREADS = 8 };
    struct mock_mount m = {.greet = true, .entries = 64};
    _Atomic unsigned running = THREADS;
    struct job job[THREADS];
    pthread_t thread[THREADS];
    struct qmctx *ctx;
    unsigned failed = 0;

    mock_mount_start(&m, path);
    ctx = must_announce();
    for (unsigned i = 0; i < THREADS; i++) {
        job[i] = (struct job){
            .ctx = ctx, .m = &m, .number = i + 1, .rounds = 5000, .running = &running};
        assert_int_equal(pthread_create(&thread[i], NULL, many, &job[i]), 0);
    }
    while (atomic_load(&running) > 0)
        failed += inconsistent(&m);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].failed, 0);
    }
    assert_int_equal(failed, 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

/* The mount comes and goes while threads begin and end. */
static void *steady(void *opaque)
{
    struct job *job = opaque;

    while (atomic_load(job->running) > 0) {
        qmctx_begin(job->ctx, QMCTX_TRANSACTION, 1, NULL);
        qmctx_begin(job->ctx, QMCTX_QUERY, 2, NULL);
        usleep(1000);
        qmctx_end_to(job->ctx, 0);
        if (fsgid() != 0)
            job->failed++;
    }
    return NULL;
}

static void test_threads_mount_restarts(void **state)
{
    enum { THREADS = 4 };
    _Atomic unsigned running = 1;
    struct job job[THREADS];
    pthread_t thread[THREADS];
    struct qmctx *ctx;

    assert_int_equal(qmctx_announce(path, &ctx), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        job[i] = (struct job){.ctx = ctx, .running = &running};
        assert_int_equal(pthread_create(&thread[i], NULL, steady, &job[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct mock_mount m = {.greet = true};

        mock_mount_start(&m, path);
        assert_true(WAIT_FOR(qmctx_connected(ctx)));
        mock_mount_stop(&m);
    }
    atomic_store(&running, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].failed, 0);
    }
    qmctx_close(ctx);
}

static void test_fork(void **state)
{
    struct mock_mount m = {.greet = true};
    struct qm_mount_entry *e;
    struct qmctx *ctx;
    uint64_t version;
    int status;
    pid_t pid;

    mock_mount_start(&m, path);
    ctx = must_announce();
    qmctx_begin(ctx, QMCTX_QUERY, 1, NULL);
    e = entry_of(&m);
    version = e->version;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool fine = fsgid() == 0 && !qmctx_connected(ctx) && qmctx_depth(ctx) == 0 &&
                    qmctx_begin(ctx, QMCTX_QUERY, 2, NULL) == 0 &&
                    qmctx_end(ctx) == 0 && qmctx_end_to(ctx, 0) == 0 && fsgid() == 0;
        struct qmctx *own;

        qmctx_close(ctx);
        /* A child may have an instance of its own. */
        fine = fine && qmctx_announce("/nonexistent", &own) == 0 &&
               qmctx_begin(own, QMCTX_QUERY, 3, NULL) == 0 && qmctx_depth(own) == 1;
        _exit(fine ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_ptr_equal(entry_of(&m), e);
    assert_int_equal(e->version, version);
    assert_int_equal(e->kind, QMCTX_QUERY);
    assert_true(qmctx_connected(ctx));
    assert_int_equal(qmctx_end(ctx), 0);

    /* The mount sees the parent's end although a child lives on. */
    pid = fork();
    if (pid == 0) {
        /* Not for longer than the test, should that fail. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    qmctx_close(ctx);
    assert_true(WAIT_FOR(m.gone == 1));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    mock_mount_stop(&m);
}

static void *drop_and_announce(void *opaque)
{
    struct job *job = opaque;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    struct qmctx *ctx;
    unsigned tries = 0;

    /* Capabilities are the thread's alone. */
    if (syscall(SYS_capget, &header, data))
        job->failed++;
    data[0].effective &= ~(1u << CAP_SETGID);
    data[0].permitted &= ~(1u << CAP_SETGID);
    if (syscall(SYS_capset, &header, data))
        job->failed++;
    /* A mount that has not greeted yet, on a busy machine, is one that is not there. */
    while (qmctx_announce(path, &ctx) == 0 && errno == EAGAIN && tries++ < 60)
        qmctx_close(ctx);
    if (!ctx || qmctx_connected(ctx) || !strstr(qmctx_error(), "CAP_SETGID") ||
        qmctx_begin(ctx, QMCTX_QUERY, 1, NULL) || fsgid() != 0 || qmctx_end(ctx))
        job->failed++;
    qmctx_close(ctx);
    return NULL;
}

static void test_no_capability(void **state)
{
    struct mock_mount m = {.greet = true};
    struct job job = {.m = &m};
    pthread_t thread;

    mock_mount_start(&m, path);
    assert_int_equal(pthread_create(&thread, NULL, drop_and_announce, &job), 0);
    pthread_join(thread, NULL);
    assert_int_equal(job.failed, 0);
    mock_mount_stop(&m);
}

static void test_instances(void **state)
{
    struct mock_mount m = {.greet = true};
    struct qmctx *a, *b;
    uint32_t outer;

    mock_mount_start(&m, path);
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(qmctx_announce(path, &a), 0);
        assert_int_equal(qmctx_announce("/nonexistent", &b), 0);
        assert_true(WAIT_FOR(nudge(a)));
        assert_int_equal(qmctx_depth(a), 0);
        assert_int_equal(qmctx_begin(b, QMCTX_QUERY, 1, NULL), 0);
        assert_int_equal(qmctx_begin(a, QMCTX_QUERY, 2, NULL), 0);
        outer = fsgid();
        assert_int_equal(qmctx_begin(b, QMCTX_QUERY, 3, NULL), 0);
        assert_int_equal(qmctx_depth(a), 1);
        assert_int_equal(qmctx_depth(b), 2);
        qmctx_close(b);
        assert_int_equal(fsgid(), outer);
        qmctx_close(a);
        assert_int_equal(fsgid(), 0);
        assert_true(WAIT_FOR(m.gone == i + 1));
    }
    mock_mount_stop(&m);
}

static int set_up(void **state)
{
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/disk.ctx", dir);
    return 0;
}

static int tear_down(void **state)
{
    /* setfsgid() made the process undumpable, and then it cannot be checked for leaks.
     */
    prctl(PR_SET_DUMPABLE, 1);
    unlink(path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begin_end),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_no_entry_left),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_ended_messages),
        cmocka_unit_test(test_full_socket),
        cmocka_unit_test(test_mount_comes_later),
        cmocka_unit_test(test_mount_goes_and_comes_back),
        cmocka_unit_test(test_mount_gone_at_end),
        cmocka_unit_test(test_bad_greetings),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_old_names),
        cmocka_unit_test(test_direct_only),
        cmocka_unit_test(test_thread_exit),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_threads_mount_restarts),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_no_capability),
        cmocka_unit_test(test_instances),
    };
    uint32_t was = (uint32_t)syscall(SYS_setfsgid, QM_MOUNT_GID_BASE);
    bool works = fsgid() == QM_MOUNT_GID_BASE;

    syscall(SYS_setfsgid, was);
    if (!works) {
        fputs("skipped: setfsgid() needs CAP_SETGID\n", stderr);
        return 77;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
