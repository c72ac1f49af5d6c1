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

#define BLOCK   4096u
#define BLOCKS  1000u
#define VOLUME  (UINT64_C(64) << 20)
#define SIZE    (UINT64_C(2) << 20)
#define THREADS 6u
#define RUN     64u /* 256 KiB: rebuild.c */
#define QUEUE   32u
#define PART    16u /* of a run, that is written at a time */
#define KILLS   40

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
static bool ring;

static struct qm_tier *open_tier(enum qm_tier_admit admit)
{
    struct qm_tier_config c;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"v", VOLUME, BLOCK, 1};
    c.path = path;
    c.size = SIZE;
    c.segment = 64 << 10;
    c.admit = admit;
    c.update = QM_TIER_UPDATE_AUTO;
    c.sync_ms = 3;
    c.queue = QUEUE;
    c.ring = ring;
    return tier = open_ok(&c);
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

static void evict(uint64_t block, char *buf)
{
    const struct qm_tier_insert insert = {
        .block = block,
        .data = buf,
        .ticket = qm_tier_ticket(tier),
        .frequency = 9,
    };

    make_block(buf, BLOCK, block, atomic_load(&volume->now[block]));
    if (qm_tier_insert(tier, &insert) == 0)
        atomic_fetch_add(&volume->inserts, 1);
}

static void *do_evictions(void *opaque)
{
    static _Thread_local _Alignas(4096) char buf[BLOCK];
    uint64_t seed = (uint64_t)(uintptr_t)opaque;

    while (!atomic_load(&stop))
        evict(rnd_below(&seed, BLOCKS), buf);
    return NULL;
}

static void write_part(uint64_t to, char *buf)
{
    struct qm_tier_write w;

    for (size_t i = 0; i < PART; i++) /* upwards: no deadlock */
        pthread_mutex_lock(&volume->locks[to + i]);
    qm_tier_write_begin(tier, &w, to * BLOCK, PART * BLOCK);
    for (size_t i = 0; i < PART; i++) {
        uint64_t version = atomic_fetch_add(&volume->last, 1) + 1;

        atomic_store(&volume->now[to + i], version);
        make_block(buf + i * BLOCK, BLOCK, to + i, version);
    }
    qm_tier_write_end(tier, &w, QM_TIER_WROTE, buf);
    memset(buf, 0xff, (size_t)PART * BLOCK); /* it is the caller's again */
    for (size_t i = 0; i < PART; i++)
        pthread_mutex_unlock(&volume->locks[to + i]);
}

/* A compaction: reads runs that the tier has, and writes to others. */
static void *do_moves(void *opaque)
{
    static _Thread_local _Alignas(4096) char bufs[RUN][BLOCK];
    uint64_t seed = (uint64_t)(uintptr_t)opaque;

    while (!atomic_load(&stop)) {
        uint64_t from = rnd_below(&seed, BLOCKS - RUN), to;
        struct qm_tier_read reads[RUN];
        uint64_t before[RUN];

        for (size_t i = 0; i < RUN; i++) {
            if (i % QUEUE == 0)
                qm_tier_drain(tier);
            evict(from + i, bufs[i]);
        }
        qm_tier_drain(tier);
        for (size_t i = 0; i < RUN; i++) {
            reads[i] = (struct qm_tier_read){.block = from + i, .buf = bufs[i]};
            before[i] = atomic_load(&volume->now[from + i]);
        }
        qm_tier_read(tier, reads, RUN);
        for (size_t i = 0; i < RUN; i++)
            if (reads[i].hit)
                check(from + i, bufs[i], before[i]);
        to = rnd_below(&seed, BLOCKS - 2 * RUN);
        for (uint64_t end = to + 2 * RUN; to < end; to += PART)
            write_part(to, bufs[0]);
    }
    return NULL;
}

/* What the movers evict shall not be kept out by a full queue, or there already. */
static void start(pthread_t *threads, uint64_t seed, bool moves)
{
    void *(*const works[THREADS])(void *) = {do_reads,  do_reads,     do_writes,
                                             do_writes, do_evictions, do_evictions};

    atomic_store(&stop, false);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL,
                       moves && works[i] == do_evictions ? do_moves : works[i],
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

/* Moves wait for the disk and reads do not: on a slow one, reads may have had their
 * hits before a block of the sample was handed on. */
static bool wait_for_a_hand_on(void)
{
    const struct timespec a_while = {0, 1000000};
    struct qm_tier_stats s;

    qm_tier_get_stats(tier, &s);
    for (unsigned i = 0; i < 5000 && s.handed_on == 0; i++) {
        nanosleep(&a_while, NULL);
        qm_tier_get_stats(tier, &s);
    }
    return s.handed_on > 0;
}

static void run_threads(enum qm_tier_admit admit)
{
    pthread_t threads[THREADS];
    bool moved = true;

    reset();
    open_tier(admit);
    start(threads, 1, admit == QM_TIER_ADMIT_AUTO);
    wait_for(&volume->hits, 3000);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(qm_tier_resize(tier, i % 2 ? SIZE : SIZE / 2), 0);
        wait_for(&volume->hits, 3000 + 300 * (i + 1));
    }
    if (admit == QM_TIER_ADMIT_AUTO)
        moved = wait_for_a_hand_on();
    atomic_store(&stop, true);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(qm_tier_close(tier, QM_TIER_KEEP), 0);
    assert_int_equal(volume->wrong, 0);
    assert_true(moved);
}

TEST(test_threads)
{
    run_threads(QM_TIER_ADMIT_ALL);
}

TEST(test_moves)
{
    run_threads(QM_TIER_ADMIT_AUTO);
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

TEST(test_killed)
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
            pthread_t threads[THREADS];

            open_tier(i % 2 ? QM_TIER_ADMIT_AUTO : QM_TIER_ADMIT_ALL);
            start(threads, rnd(&seed), i % 2);
            pause();
        }
        assert_true(child > 0);
        wait_for(&volume->steps, steps + 20);
        wait_for(&volume->inserts, inserts + 60);
        nanosleep(&more, NULL); /* so that it is killed at any moment */
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        open_tier(QM_TIER_ADMIT_ALL);
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

/* With an argument, several blocks are read by threads, not by io_uring. */
int main(int argc, char **argv)
{
    int r;

    ring = argc < 2;
    volume = mmap(NULL, sizeof *volume, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (volume == MAP_FAILED || !mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/tier", dir);
    r = run_listed(NULL, NULL);
    unlink(path);
    rmdir(dir);
    return r;
}
