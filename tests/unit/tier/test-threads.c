/* SPDX-License-Identifier: BSD-3-Clause */
/* test-threads.c - readers, writers, evicting threads and a flushing one on one tier in
 * a file: a read is never older than what the volume was when it began.  Then the same
 * in a process that is killed at any moment, again and again. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "testing.h"

#define BLOCK    4096u
#define BLOCKS   600u
#define VOLUME   (UINT64_C(64) << 20)
#define SIZE     (UINT64_C(2) << 20)
#define WRITERS  2
#define READERS  2
#define EVICTERS 2
#define KILLS    40

/* Shared with the process that is killed: what is here has happened to the volume. */
struct volume {
    _Atomic uint64_t now[BLOCKS]; /* versions, which only grow */
    _Atomic uint64_t last, hits, inserts, wrong;
    pthread_mutex_t
        locks[BLOCKS]; /* of changes: the order of overlapping ones is given */
    _Atomic uint64_t steps;
};

static char dir[] = "/tmp/tier-threads.XXXXXX", path[64];
static struct volume *volume;
static struct qm_tier *tier;
static _Atomic bool stop;

static struct qm_tier *open_tier(void)
{
    struct qm_tier_config c;
    char err[400] = "";

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"v", VOLUME, BLOCK, 1};
    c.path = path;
    c.size = SIZE;
    c.segment = 64 << 10;
    c.admit = QM_TIER_ADMIT_ALL;
    c.update = QM_TIER_UPDATE_AUTO;
    c.sync_ms = 3;
    c.queue = 32;
    if (qm_tier_open(&c, &tier, err, sizeof err) != 0)
        fail_msg("%s", err);
    return tier;
}

static void check(uint64_t block, const char *buf, uint64_t before)
{
    uint64_t version = version_of(buf, BLOCK, block);
    uint64_t after = atomic_load(&volume->now[block]);

    atomic_fetch_add(&volume->hits, 1);
    if (version < before || version > after)
        atomic_fetch_add(&volume->wrong, 1);
}

static void *do_reads(void *opaque)
{
    static _Thread_local _Alignas(4096) char bufs[8][BLOCK];
    uint64_t seed = (uint64_t)(uintptr_t)opaque;

    while (!atomic_load(&stop)) {
        struct qm_tier_read reads[8];
        uint64_t before[8];
        size_t n = 1 + rnd_below(&seed, 8);

        for (size_t i = 0; i < n; i++) {
            reads[i] = (struct qm_tier_read){.block = rnd_below(&seed, BLOCKS),
                                             .buf = bufs[i]};
            before[i] = atomic_load(&volume->now[reads[i].block]);
        }
        qm_tier_read(tier, reads, n);
        for (size_t i = 0; i < n; i++)
            if (reads[i].hit)
                check(reads[i].block, bufs[i], before[i]);
        atomic_fetch_add(&volume->steps, 1);
    }
    return NULL;
}

static void *do_writes(void *opaque)
{
    static _Thread_local _Alignas(4096) char buf[BLOCK];
    uint64_t seed = (uint64_t)(uintptr_t)opaque;

    while (!atomic_load(&stop)) {
        uint64_t block = rnd_below(&seed, BLOCKS), version;
        struct qm_tier_write w;

        pthread_mutex_lock(&volume->locks[block]);
        qm_tier_write_begin(tier, &w, block * BLOCK, BLOCK);
        version = atomic_fetch_add(&volume->last, 1) + 1;
        atomic_store(&volume->now[block], version);
        make_block(buf, BLOCK, block, version);
        qm_tier_write_end(tier, &w, QM_TIER_WROTE, buf);
        pthread_mutex_unlock(&volume->locks[block]);
        if (rnd_below(&seed, 16) == 0) {
            uint64_t token = qm_tier_flush_begin(tier);

            qm_tier_flush_end(tier, token, true);
        }
        if (rnd_below(&seed, 64) == 0)
            qm_tier_tick(tier, true);
    }
    return NULL;
}

static void *do_evictions(void *opaque)
{
    static _Thread_local _Alignas(4096) char buf[BLOCK];
    uint64_t seed = (uint64_t)(uintptr_t)opaque;

    while (!atomic_load(&stop)) {
        struct qm_tier_insert insert = {
            .block = rnd_below(&seed, BLOCKS),
            .data = buf,
            .ticket = qm_tier_ticket(tier),
            .frequency = 9,
        };

        make_block(buf, BLOCK, insert.block, atomic_load(&volume->now[insert.block]));
        if (qm_tier_insert(tier, &insert) == 0)
            atomic_fetch_add(&volume->inserts, 1);
    }
    return NULL;
}

static void start(pthread_t *threads, uint64_t seed)
{
    unsigned n = 0;

    atomic_store(&stop, false);
    for (unsigned i = 0; i < READERS; i++)
        pthread_create(&threads[n++], NULL, do_reads, (void *)(uintptr_t)(seed += 7));
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_create(&threads[n++], NULL, do_writes, (void *)(uintptr_t)(seed += 7));
    for (unsigned i = 0; i < EVICTERS; i++)
        pthread_create(&threads[n++], NULL, do_evictions,
                       (void *)(uintptr_t)(seed += 7));
}

static void reset(void)
{
    unlink(path);
    memset(volume, 0, sizeof *volume);
    for (unsigned i = 0; i < BLOCKS; i++)
        pthread_mutex_init(&volume->locks[i], NULL);
}

static void wait_for(_Atomic uint64_t *counter, uint64_t many)
{
    struct timespec a_while = {0, 1000000};

    while (atomic_load(counter) < many)
        nanosleep(&a_while, NULL);
}

static void test_threads(void **state)
{
    pthread_t threads[READERS + WRITERS + EVICTERS];

    reset();
    open_tier();
    start(threads, 1);
    wait_for(&volume->hits, 3000);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(qm_tier_resize(tier, i % 2 ? SIZE : SIZE / 2), 0);
        wait_for(&volume->hits, 3000 + 300 * (i + 1));
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(qm_tier_close(tier, QM_TIER_KEEP), 0);
    assert_int_equal(volume->wrong, 0);
}

static void check_all(void)
{
    static _Alignas(4096) char buf[BLOCK];

    for (uint64_t b = 0; b < BLOCKS; b++) {
        struct qm_tier_read read = {.block = b, .buf = buf};

        if (qm_tier_read(tier, &read, 1))
            check(b, buf, atomic_load(&volume->now[b]));
    }
}

static void test_killed(void **state)
{
    uint64_t seed = 99, recovered = 0;

    reset();
    for (unsigned i = 0; i < KILLS; i++) {
        uint64_t steps = atomic_load(&volume->steps);
        uint64_t inserts = atomic_load(&volume->inserts);
        struct timespec more = {0, (long)rnd_below(&seed, 3000000)};
        struct qm_tier_stats s;
        pid_t child;
        int status;

        for (unsigned b = 0; b < BLOCKS; b++) /* the last one died with some */
            pthread_mutex_init(&volume->locks[b], NULL);
        child = fork();
        if (child == 0) {
            pthread_t threads[READERS + WRITERS + EVICTERS];

            open_tier();
            start(threads, rnd(&seed));
            pause();
        }
        assert_true(child > 0);
        wait_for(&volume->steps, steps + 20);
        wait_for(&volume->inserts, inserts + 60);
        nanosleep(&more, NULL); /* so that it is killed at any moment */
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        open_tier();
        qm_tier_get_stats(tier, &s);
        recovered += s.recovered;
        check_all();
        qm_tier_close(tier, QM_TIER_KEEP);
        assert_int_equal(volume->wrong, 0);
    }
    printf("%d kills; %llu hits, %llu blocks were recovered\n", KILLS,
           (unsigned long long)volume->hits, (unsigned long long)recovered);
    assert_true(recovered > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_killed),
    };
    int r;

    volume = mmap(NULL, sizeof *volume, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (volume == MAP_FAILED || !mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/tier", dir);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(dir);
    return r;
}
