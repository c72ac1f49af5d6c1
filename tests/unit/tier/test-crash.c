/* SPDX-License-Identifier: BSD-3-Clause */
/* test-crash.c - random operations on a tier, and crashes at any write, against a model
 * that knows what each block is.  No block may ever be served that is not the
 * backend's.
 *
 * Crashes of the process: a new tier finds the file as the kernel has it.  Crashes of
 * the machine: as a disk has it that was not synced; and the backend has lost some
 * writes of which no flush came, too, in half of the runs.
 *
 *   tier-crash [SEED [RUNS]]     one seed alone, to find out why it failed */
#include <time.h>

#include "disk.h"

#define BLOCKS   192u
#define FLIGHT   3
#define EVICTED  8
#define REGION   (4u << 20)
#define PER_AREA (BLOCKS / 12) /* in 12 regions, */
#define STRIDE   2000u         /* so far apart that their bits lie in several sectors */

/* The volume is large, of which some blocks in several regions are used. */
static uint64_t number(unsigned i, uint32_t size)
{
    return (uint64_t)(i / PER_AREA) * STRIDE * (REGION / size) + i % PER_AREA;
}

struct change {
    struct qm_tier_write w;
    unsigned first, n;
    bool active, applied, tracked_end;
    uint64_t version;
};

struct evicted {
    unsigned i;
    uint64_t version, ticket;
    bool there;
};

struct world {
    uint64_t seed, run;
    uint32_t size;
    struct disk *disk;
    struct qm_tier *tier;
    struct qm_tier_config config;
    char boot[40];
    unsigned boots;
    uint64_t clock;

    uint64_t now[BLOCKS];     /* the backend's versions */
    uint64_t flushed[BLOCKS]; /* that it cannot lose */
    uint64_t last;            /* version given */
    bool forgets;             /* the backend, when the machine ends */
    struct change changes[FLIGHT];
    struct evicted evicted[EVICTED];
    uint64_t flush; /* token of a flush that is on its way */
    bool flushing;
    uint64_t at_flush[BLOCKS]; /* what it will make durable */

    uint64_t hits, reads, crashes, reboots, kept, had, marked_lost;
    char *buf;
};

static uint64_t world_now(void *opaque)
{
    struct world *w = opaque;

    return w->clock += 1000;
}

static void warn(void *opaque, const char *message)
{
    if (getenv("TIER_CRASH_VERBOSE"))
        fprintf(stderr, "warning: %s\n", message);
}

static void die(struct world *w, const char *what, unsigned i, uint64_t version)
{
    fail_msg("seed %llu: %s: block %u: version %llu, the backend has %llu",
             (unsigned long long)w->run, what, i, (unsigned long long)version,
             (unsigned long long)w->now[i]);
}

static void check_read(struct world *w, unsigned i)
{
    struct qm_tier_read read = {.block = number(i, w->size), .buf = w->buf};

    w->reads++;
    if (qm_tier_read(w->tier, &read, 1) == 0)
        return;
    w->hits++;
    for (unsigned k = 0; k < FLIGHT; k++)
        if (w->changes[k].active && i >= w->changes[k].first &&
            i < w->changes[k].first + w->changes[k].n)
            die(w, "read during a change", i, 0);
    if (version_of(w->buf, w->size, read.block) != w->now[i])
        die(w, "read", i, version_of(w->buf, w->size, read.block));
}

static bool being_changed(struct world *w, unsigned i)
{
    for (unsigned k = 0; k < FLIGHT; k++)
        if (w->changes[k].active && i >= w->changes[k].first &&
            i < w->changes[k].first + w->changes[k].n)
            return true;
    return false;
}

static void evict(struct world *w)
{
    struct evicted *e = &w->evicted[rnd_below(&w->seed, EVICTED)];

    e->i = (unsigned)rnd_below(&w->seed, BLOCKS);
    e->ticket = qm_tier_ticket(w->tier);
    /* What memory holds while a change is in flight may be old: the rule allows it. */
    e->version = w->now[e->i];
    e->there = !being_changed(w, e->i) || rnd(&w->seed) % 2;
}

static void insert(struct world *w)
{
    struct evicted *e = &w->evicted[rnd_below(&w->seed, EVICTED)];
    struct qm_tier_insert insert = {
        .block = number(e->i, w->size),
        .data = w->buf,
        .ticket = e->ticket,
        .frequency = 5,
    };

    if (!e->there)
        return;
    e->there = false;
    make_block(w->buf, w->size, insert.block, e->version);
    (void)qm_tier_insert(w->tier, &insert);
}

static void begin_change(struct world *w)
{
    struct change *c = &w->changes[rnd_below(&w->seed, FLIGHT)];

    if (c->active)
        return;
    c->first = (unsigned)rnd_below(&w->seed, BLOCKS);
    c->n = 1 + (unsigned)rnd_below(&w->seed, 4);
    if (c->first % PER_AREA + c->n > PER_AREA)
        c->n = PER_AREA - c->first % PER_AREA;
    /* Two changes of the same bytes are carried out in an order that the model would
     * not know. */
    for (unsigned i = 0; i < c->n; i++)
        if (being_changed(w, c->first + i))
            return;
    qm_tier_write_begin(w->tier, &c->w, number(c->first, w->size) * w->size,
                        (uint64_t)c->n * w->size);
    if (w->disk->crashed)
        return;
    c->active = true;
    c->applied = false;
    c->version = ++w->last;
}

static void apply_change(struct world *w, struct change *c)
{
    if (!c->active || c->applied)
        return;
    c->applied = true;
    for (unsigned i = 0; i < c->n; i++)
        w->now[c->first + i] = c->version;
}

static void end_change(struct world *w, struct change *c)
{
    char data[4 * 4096];

    if (!c->active)
        return;
    apply_change(w, c);
    for (unsigned i = 0; i < c->n; i++)
        make_block(data + i * w->size, w->size, number(c->first + i, w->size),
                   c->version);
    c->active = false;
    qm_tier_write_end(w->tier, &c->w, QM_TIER_WROTE, data);
}

static void flush(struct world *w)
{
    bool ok = rnd_below(&w->seed, 8) > 0;

    if (!w->flushing) {
        w->flush = qm_tier_flush_begin(w->tier);
        w->flushing = true;
        memcpy(w->at_flush, w->now, sizeof w->now);
        return;
    }
    w->flushing = false;
    /* The backend may keep more than it was asked to; not less. */
    for (unsigned i = 0; ok && i < BLOCKS; i++)
        if (w->flushed[i] < w->at_flush[i])
            w->flushed[i] = w->at_flush[i];
    qm_tier_flush_end(w->tier, w->flush, ok);
}

static void operate(struct world *w)
{
    unsigned what = (unsigned)rnd_below(&w->seed, 100);

    if (what < 30)
        check_read(w, (unsigned)rnd_below(&w->seed, BLOCKS));
    else if (what < 50)
        evict(w);
    else if (what < 75)
        insert(w);
    else if (what < 83)
        begin_change(w);
    else if (what < 86)
        apply_change(w, &w->changes[rnd_below(&w->seed, FLIGHT)]);
    else if (what < 94)
        end_change(w, &w->changes[rnd_below(&w->seed, FLIGHT)]);
    else if (what < 96)
        flush(w);
    else if (what < 98)
        qm_tier_tick(w->tier, rnd(&w->seed) % 2);
    else if (what < 99)
        w->clock += 20000000000u;
    else if (rnd(&w->seed) % 4 == 0)
        qm_tier_resize(w->tier, (UINT64_C(256) + rnd_below(&w->seed, 4) * 64) << 10);
}

static void open_tier(struct world *w)
{
    struct qm_tier_io io = disk_io(w->disk);
    char err[400] = "";
    int r;

    w->config.io = &io;
    w->config.boot_id = w->boot;
    w->config.size = rnd_below(&w->seed, 8) ? UINT64_C(384) << 10 : UINT64_C(320) << 10;
    r = qm_tier_open(&w->config, &w->tier, err, sizeof err);
    if (r != 0)
        fail_msg("seed %llu: open: %d %s", (unsigned long long)w->run, r, err);
}

static uint64_t blocks(struct world *w)
{
    struct qm_tier_stats s;

    qm_tier_get_stats(w->tier, &s);
    assert_false(s.dead);
    return s.blocks;
}

static void reboot(struct world *w)
{
    disk_reboot(w->disk);
    w->reboots++;
    snprintf(w->boot, sizeof w->boot, "boot-%u", ++w->boots);
    for (unsigned i = 0; w->forgets && i < BLOCKS; i++)
        if (rnd(&w->seed) % 2)
            w->now[i] = w->flushed[i];
    /* What it has now, it has on its disk. */
    memcpy(w->flushed, w->now, sizeof w->now);
}

static void crash(struct world *w)
{
    bool machine = rnd(&w->seed) % 2, again;
    uint64_t had = blocks(w);

    /* Of writes that were on their way, each was carried out or not. */
    for (unsigned k = 0; k < FLIGHT; k++) {
        if (rnd(&w->seed) % 2)
            apply_change(w, &w->changes[k]);
        w->changes[k].active = false;
    }
    memset(w->evicted, 0, sizeof w->evicted);
    w->flushing = false;
    qm_tier_close(w->tier,
                  QM_TIER_KEEP); /* which changes nothing: the disk has crashed */
    if (machine) {
        reboot(w);
    } else {
        disk_restart(w->disk);
    }
    w->crashes++;
    do { /* it may crash while it recovers, too */
        again = rnd_below(&w->seed, 4) == 0;
        if (again)
            w->disk->until_crash = (long)rnd_below(&w->seed, 30);
        open_tier(w);
        again = w->disk->crashed;
        if (again) {
            qm_tier_close(w->tier, QM_TIER_KEEP);
            if (rnd(&w->seed) % 2) {
                reboot(w);
                machine = true;
            } else {
                disk_restart(w->disk);
            }
        }
        w->disk->until_crash = -1;
    } while (again);
    if (!machine) {
        w->had += had;
        w->kept += blocks(w);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        check_read(w, i);
}

static void run(struct world *w, uint64_t seed, unsigned crashes)
{
    static const uint32_t sizes[] = {512, 1024, 4096};

    memset(w, 0, sizeof *w);
    w->seed = w->run = seed;
    w->size = sizes[seed % 3];
    w->forgets = seed % 2;
    w->disk = disk_new(1 << 20, seed);
    w->buf = aligned_alloc(4096, 4096);
    qm_tier_config_init(&w->config);
    w->config.identity = (struct qm_tier_identity){
        .volume = "v",
        .size = UINT64_C(12) * STRIDE * REGION,
        .block_size = w->size,
    };
    w->config.segment = 16 << 10;
    w->config.threadless = true;
    w->config.admit = QM_TIER_ADMIT_ALL;
    w->config.mode = seed / 2 % 2 ? QM_TIER_EXCLUSIVE : QM_TIER_INCLUSIVE;
    w->config.update = (enum qm_tier_update)(seed / 4 % 3);
    w->config.bloom = seed / 8 % 2 ? .05 : 0;
    w->config.now = world_now;
    w->config.warn = warn;
    w->config.opaque = w;
    snprintf(w->boot, sizeof w->boot, "boot");
    open_tier(w);
    for (unsigned i = 0; i < crashes; i++) {
        w->disk->until_crash = (long)rnd_below(&w->seed, rnd(&w->seed) % 4 ? 400 : 20);
        while (!w->disk->crashed)
            operate(w);
        crash(w);
    }
    /* An orderly end keeps everything that it had. */
    for (unsigned k = 0; k < FLIGHT; k++)
        end_change(w, &w->changes[k]);
    w->had += blocks(w);
    assert_int_equal(qm_tier_close(w->tier, QM_TIER_KEEP), 0);
    w->config.size = 0;
    {
        struct qm_tier_io io = disk_io(w->disk);
        char err[400];

        w->config.io = &io;
        assert_int_equal(qm_tier_open(&w->config, &w->tier, err, sizeof err), 0);
    }
    w->kept += blocks(w);
    for (unsigned i = 0; i < BLOCKS; i++)
        check_read(w, i);
    qm_tier_close(w->tier, QM_TIER_KEEP);
    disk_free(w->disk);
    free(w->buf);
}

static uint64_t only;
static unsigned runs;

TEST(test_crashes)
{
    static struct world w;
    uint64_t hits = 0, reads = 0, crashes = 0, reboots = 0, had = 0, kept = 0;

    for (unsigned i = 0; i < runs; i++) {
        run(&w, only ? only + i : 1 + i, 60);
        hits += w.hits;
        reads += w.reads;
        crashes += w.crashes;
        reboots += w.reboots;
        had += w.had;
        kept += w.kept;
    }
    printf("%llu crashes, %llu of the machine; %llu reads, %llu hits; a restart keeps "
           "%.1f %%\n",
           (unsigned long long)crashes, (unsigned long long)reboots,
           (unsigned long long)reads, (unsigned long long)hits,
           100. * (double)kept / (double)(had ? had : 1));
    /* Blocks are found, and a process that crashed loses few of them: only those that
     * were being changed, or were not in a sealed segment. */
    assert_true(hits > reads / 20);
    assert_true(kept <= had);
    assert_true(kept * 10 > had * 9);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        only = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        runs = (unsigned)strtoul(argv[2], NULL, 10);
    else if (argc > 1)
        runs = 1;
    else
        runs = 120;
    return run_listed(NULL, NULL);
}
