/* SPDX-License-Identifier: BSD-3-Clause */
/* load.c - how much may be prefetched while the device is busy.
 *
 * Reads are judged a window at a time: some dozens of reads, or fewer if they take
 * long. In each, the reads' time is compared with what as many reads of the same sizes
 * take on an idle device.  That is the least mean of a window within the last one to
 * two periods: long enough that a load which comes and goes does not pass for the
 * device, short enough that a device which has become slower for good is not thought
 * busy for ever.  (One that is busy for longer than that without a pause counts as
 * slow.)
 *
 * Reads of a size that were not seen of late may be seen first while the device is
 * busy, and then must not pass for what it is like when idle: the fewer candidates are
 * admitted, the smaller reads become.  So they are held against the other sizes: a read
 * of fewer blocks takes no longer, and one of n times as many no longer than n reads.
 * Where that is wrong, as of disks that seek for some sizes only, it is so for two
 * periods at most.
 *
 * Means, not single reads: a disk serves some reads from its own cache.  And a
 * difference of less than SLOW_NS is none, however large the ratio: that is what
 * threads that wait for a processor look like.
 */
#include "engine/load.h"

#define WINDOW_READS 64                 /* that end a window ... */
#define WINDOW_NS    UINT64_C(50000000) /* ... or a time that ends it, with ... */
#define WINDOW_LEAST 8                  /* ... this many reads */
#define PERIOD_NS    UINT64_C(30000000000)
#define PROBE_NS     UINT64_C(10000000) /* between candidates at share 0 */
#define MEAN_LEAST   4                  /* reads that make a mean */
#define BUSY         3.0                /* times as slow as idle */
#define CALM         2.0
#define SLOW_NS      250000 /* of a read's mean */
#define MOST_DOUBLED 6      /* a read has at most 2 to the power of this many blocks */

void qm_device_load_init(struct qm_device_load *load)
{
    *load = (struct qm_device_load){.slowness = 1};
    atomic_init(&load->share, QM_DEVICE_LOAD_ALL);
    pthread_mutex_init(&load->lock, NULL);
}

void qm_device_load_destroy(struct qm_device_load *load)
{
    pthread_mutex_destroy(&load->lock);
}

bool qm_device_load_admit(struct qm_device_load *load, uint64_t now)
{
    unsigned share = atomic_load_explicit(&load->share, memory_order_relaxed), credit;
    uint64_t probed;

    if (share > 0) {
        credit = atomic_fetch_add_explicit(&load->credit, share, memory_order_relaxed);
        return credit % QM_DEVICE_LOAD_ALL + share >= QM_DEVICE_LOAD_ALL;
    }
    probed = atomic_load_explicit(&load->probed, memory_order_relaxed);
    return now - probed >= PROBE_NS &&
           atomic_compare_exchange_strong_explicit(
               &load->probed, &probed, now, memory_order_relaxed, memory_order_relaxed);
}

static unsigned size_of(unsigned blocks)
{
    unsigned size = blocks > 0 ? 31 - (unsigned)__builtin_clz(blocks) : 0;

    return size < QM_DEVICE_LOAD_SIZES ? size : QM_DEVICE_LOAD_SIZES - 1;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* The most that reads of a size can take on an idle device, by those of the other
 * sizes; 0: nothing is known.  The lock is held. */
static uint64_t most(const struct qm_device_load *load, unsigned size)
{
    unsigned end = size + 1 < QM_DEVICE_LOAD_SIZES ? size + 1 : MOST_DOUBLED;
    uint64_t bound = 0;

    for (unsigned i = 0; i < QM_DEVICE_LOAD_SIZES; i++)
        if (i != size)
            bound = least(bound, least(load->sizes[i].idle, load->sizes[i].before)
                                     << (i < size ? end - i : 0));
    return bound;
}

/* Learns from the window what an idle device is like.  The lock is held. */
static void learn(struct qm_device_load *load, uint64_t now)
{
    bool next = now - load->period >= PERIOD_NS;

    for (unsigned i = 0; i < QM_DEVICE_LOAD_SIZES; i++) {
        if (next) {
            load->sizes[i].before = load->sizes[i].idle;
            load->sizes[i].idle = 0;
        }
    }
    for (unsigned i = 0; i < QM_DEVICE_LOAD_SIZES; i++) {
        if (load->sizes[i].reads < MEAN_LEAST)
            continue;
        if (load->sizes[i].idle == 0 && load->sizes[i].before == 0)
            load->sizes[i].idle = most(load, i);
        load->sizes[i].idle =
            least(load->sizes[i].idle, load->sizes[i].ns / load->sizes[i].reads + 1);
    }
    if (next)
        load->period = now;
}

/* How slow the window was, as far as that can be told; *more: nanoseconds a read longer
 * than idle.  The lock is held. */
static double judge(struct qm_device_load *load, double *more)
{
    double took = 0, idle = 0;
    uint64_t reads = 0, mean;

    for (unsigned i = 0; i < QM_DEVICE_LOAD_SIZES; i++) {
        mean = least(load->sizes[i].idle, load->sizes[i].before);
        if (mean == 0)
            continue;
        reads += load->sizes[i].reads;
        took += (double)load->sizes[i].ns;
        idle += (double)(load->sizes[i].reads * mean);
    }
    if (reads == 0)
        return 1;
    *more = (took - idle) / (double)reads;
    return took / idle;
}

/* The lock is held. */
static void end_window(struct qm_device_load *load, uint64_t now)
{
    unsigned share = atomic_load_explicit(&load->share, memory_order_relaxed);
    bool alone = load->beside * 2 < load->reads; /* no demand waits for prefetches */
    double more = 0;

    learn(load, now);
    load->slowness = judge(load, &more);
    if (alone || load->slowness < CALM || more < SLOW_NS)
        share += share < QM_DEVICE_LOAD_ALL;
    else if (load->slowness > BUSY && !load->drained)
        share /= 2;
    atomic_store_explicit(&load->share, share, memory_order_relaxed);
    for (unsigned i = 0; i < QM_DEVICE_LOAD_SIZES; i++)
        load->sizes[i].reads = load->sizes[i].ns = 0;
    load->window = now;
    load->reads = load->beside = 0;
    load->drained = false;
}

void qm_device_load_took(struct qm_device_load *load, uint64_t now, uint64_t ns,
                         unsigned blocks, unsigned queued)
{
    unsigned size = size_of(blocks);

    pthread_mutex_lock(&load->lock);
    if (load->period == 0)
        load->period = now;
    if (load->window == 0)
        load->window = now;
    load->sizes[size].reads++;
    load->sizes[size].ns += ns;
    load->reads++;
    load->beside += atomic_load_explicit(&load->demands, memory_order_relaxed) > 0;
    if (queued == 0)
        load->drained = true;
    if (load->reads >= WINDOW_READS ||
        (load->reads >= WINDOW_LEAST && now - load->window >= WINDOW_NS))
        end_window(load, now);
    pthread_mutex_unlock(&load->lock);
}

double qm_device_load_slowness(struct qm_device_load *load)
{
    double slowness;

    pthread_mutex_lock(&load->lock);
    slowness = load->slowness;
    pthread_mutex_unlock(&load->lock);
    return slowness;
}
