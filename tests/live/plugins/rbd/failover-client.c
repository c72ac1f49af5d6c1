/* SPDX-License-Identifier: BSD-3-Clause */
/* failover-client.c - reads and writes a device whose servers take over from each
 * other, and looks for one wrong byte.
 *
 *   failover-client URI[,URI...] SEED
 *
 * Each thread has blocks of its own, so it knows what each must hold: what it wrote
 * there last, since a write is repeated until it is answered.  Other blocks all threads
 * read and write; what they did there is noted with the moments of begin and end, and
 * judged by tests/live/torture/history.h: whichever servers answered, each block must
 * have behaved like one register.
 *
 * SIGTERM ends it: every block is read once more.  Prints what it did, and exits 1 if a
 * request failed or a block was wrong; what was wrong is told at once.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clients/libqmctx/device.h"
#include "tests/live/torture/history.h"

enum { THREADS = 8, BLOCKS = 64, BLOCK = 16384, FLUSH_EACH = 40 };
enum { SHARED = 48, EPOCH = 100000 /* requests until the history is judged */ };

struct worker {
    pthread_t thread;
    unsigned number, seed;
    uint64_t stamp[BLOCKS]; /* that was written last; 0: nothing yet */
    uint64_t reads, writes, flushes, shared, longest_ms;
};

static struct qm_device *device;
static atomic_bool stop;
static _Atomic unsigned wrong;

/* The shared blocks.  Each holds the name of one write: the epoch and its number in the
 * history.  To judge, all threads must be out of them. */
static struct history *history;
static pthread_rwlock_t judging;
static uint64_t initial[SHARED]; /* what each held when the epoch began */
static uint32_t epoch = 1;
static atomic_int left = EPOCH; /* requests of the epoch */

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t offset_of(const struct worker *w, unsigned block)
{
    return ((uint64_t)w->number * BLOCKS + block) * BLOCK;
}

static void complain(const struct worker *w, unsigned block, const char *what)
{
    atomic_fetch_add(&wrong, 1);
    fprintf(stderr, "failover-client: at %llu: %s\n",
            (unsigned long long)offset_of(w, block), what);
}

static void note(struct worker *w, uint64_t began)
{
    uint64_t took = now_ms() - began;

    if (took > w->longest_ms)
        w->longest_ms = took;
}

static void check(struct worker *w, unsigned block)
{
    uint64_t data[BLOCK / 8], began = now_ms();
    char text[100];

    if (qm_device_read(device, NULL, 0, data, BLOCK, offset_of(w, block)) != 0) {
        complain(w, block, "a read failed");
        return;
    }
    note(w, began);
    w->reads++;
    for (unsigned i = 0; i < BLOCK / 8; i++)
        if (data[i] != w->stamp[block]) {
            snprintf(text, sizeof text, "read stamp %llx, not %llx",
                     (unsigned long long)data[i], (unsigned long long)w->stamp[block]);
            complain(w, block, text);
            return;
        }
}

static void change(struct worker *w, unsigned block)
{
    uint64_t data[BLOCK / 8], stamp = (uint64_t)(w->number + 1) << 56 | ++w->writes;
    uint64_t began = now_ms();

    for (unsigned i = 0; i < BLOCK / 8; i++)
        data[i] = stamp;
    if (qm_device_write(device, NULL, 0, data, BLOCK, offset_of(w, block), false) != 0)
        complain(w, block, "a write failed");
    note(w, began);
    w->stamp[block] = stamp;
}

/* ---- blocks of all threads */

static uint32_t seen_in(const uint64_t *data, unsigned block)
{
    for (unsigned i = 1; i < BLOCK / 8; i++)
        if (data[i] != data[0])
            return SAW_GARBAGE;
    if (data[0] == 0)
        return SAW_ZERO;
    if (data[0] == initial[block])
        return SAW_INITIAL;
    if (data[0] >> 32 == epoch && (uint32_t)data[0] != 0)
        return (uint32_t)data[0] - 1;
    return SAW_GARBAGE;
}

/* A request for one of them. */
static void share(struct worker *w, unsigned block, bool write)
{
    uint64_t data[BLOCK / 8], began = now_ms();
    uint64_t offset = ((uint64_t)THREADS * BLOCKS + block) * BLOCK;
    uint32_t number = history_begin(history, write ? DID_WRITE : DID_READ, block, 1);
    int error;

    for (unsigned i = 0; write && i < BLOCK / 8; i++)
        data[i] = (uint64_t)epoch << 32 | (number + 1);
    error = write ? qm_device_write(device, NULL, 0, data, BLOCK, offset, false)
                  : qm_device_read(device, NULL, 0, data, BLOCK, offset);
    if (error == 0 && !write)
        *history_looks(history, number) = seen_in(data, block);
    history_end(history, number, error == 0);
    if (error != 0)
        complain(w, THREADS * BLOCKS + block, "a request for a shared block failed");
    note(w, began);
    w->shared++;
}

static bool is_zero(void *opaque, uint32_t block)
{
    return initial[block] == 0;
}

static void violation(void *opaque, const char *text)
{
    fprintf(stderr, "failover-client: history: %s\n", text);
}

/* No other thread is in the history.  Reads each block once more, and begins an epoch.
 */
static void judge(struct worker *w)
{
    uint64_t data[BLOCK / 8], now[SHARED];

    for (unsigned block = 0; block < SHARED; block++) {
        uint64_t offset = ((uint64_t)THREADS * BLOCKS + block) * BLOCK;
        uint32_t number = history_begin(history, DID_READ, block, 1);

        if (qm_device_read(device, NULL, 0, data, BLOCK, offset) != 0) {
            complain(w, THREADS * BLOCKS + block, "the last read failed");
            return;
        }
        *history_looks(history, number) = seen_in(data, block);
        history_end(history, number, true);
        now[block] = data[0];
    }
    atomic_fetch_add(&wrong,
                     (unsigned)history_judge(history, is_zero, violation, NULL));
    memcpy(initial, now, sizeof now);
    epoch++;
    left = EPOCH;
}

static void share_some(struct worker *w)
{
    unsigned block = (unsigned)rand_r(&w->seed) % SHARED;
    bool write = rand_r(&w->seed) % 2;

    pthread_rwlock_rdlock(&judging);
    if (atomic_fetch_sub(&left, 1) > 0) {
        share(w, block, write);
        pthread_rwlock_unlock(&judging);
        return;
    }
    pthread_rwlock_unlock(&judging);
    pthread_rwlock_wrlock(&judging);
    if (atomic_load(&left) <= 0) /* no other thread was first */
        judge(w);
    pthread_rwlock_unlock(&judging);
}

static void *work(void *opaque)
{
    struct worker *w = opaque;
    _Atomic unsigned seen = qm_device_losses(device);

    for (unsigned n = 1; !atomic_load(&stop); n++) {
        unsigned block = (unsigned)rand_r(&w->seed) % BLOCKS;

        if (n % 2)
            share_some(w);
        else if (rand_r(&w->seed) % 2)
            change(w, block);
        else
            check(w, block);
        if (n % FLUSH_EACH == 0) {
            uint64_t began = now_ms();

            if (qm_device_flush(device, NULL, &seen) != 0)
                complain(w, block, "a flush failed");
            note(w, began);
            w->flushes++;
        }
    }
    for (unsigned block = 0; block < BLOCKS; block++)
        check(w, block);
    return NULL;
}

static void say(void *opaque, int priority, const char *sentence)
{
    fprintf(stderr, "failover-client: %s\n", sentence);
}

/* The threads have the signal blocked; it is waited for here. */
static void await_stop(const sigset_t *set)
{
    int signal;

    while (sigwait(set, &signal) != 0)
        ;
    atomic_store(&stop, true);
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS];
    struct qm_device_options options = {
        .wait = QM_DEVICE_FOREVER, .reconnect = QM_DEVICE_FOREVER, .log = say};
    uint64_t reads = 0, writes = 0, flushes = 0, shared = 0, longest = 0;
    struct qm_device_stat stat;
    sigset_t set;

    if (argc != 3)
        return 2;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (qm_device_open(argv[1], &options, &device) != 0) {
        fprintf(stderr, "failover-client: %s\n", qmctx_error());
        return 1;
    }
    history = history_new(SHARED, 1, EPOCH + SHARED, EPOCH + SHARED);
    if (!history || pthread_rwlock_init(&judging, NULL) != 0)
        return 1;
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].seed = (unsigned)atoi(argv[2]) * THREADS + i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 1;
    }
    fprintf(stderr, "failover-client: ready\n");
    await_stop(&set);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        reads += workers[i].reads;
        writes += workers[i].writes;
        flushes += workers[i].flushes;
        shared += workers[i].shared;
        if (workers[i].longest_ms > longest)
            longest = workers[i].longest_ms;
    }
    judge(&workers[0]);
    qm_device_stat(device, &stat);
    qm_device_close(device);
    history_free(history);
    printf("%llu reads, %llu writes, %llu flushes, %llu shared and judged in %u parts; "
           "%llu times another server, %llu "
           "changes "
           "sent again; longest request %llu ms; %u wrong\n",
           (unsigned long long)reads, (unsigned long long)writes,
           (unsigned long long)flushes, (unsigned long long)shared, epoch - 1,
           (unsigned long long)stat.instances, (unsigned long long)stat.resent_changes,
           (unsigned long long)longest, atomic_load(&wrong));
    return atomic_load(&wrong) > 0;
}
