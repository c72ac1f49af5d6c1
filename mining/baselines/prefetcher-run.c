/* SPDX-License-Identifier: BSD-3-Clause */
/* prefetcher-run.c - run-based prefetching (Hsu, Smith; ATC'08 §5.1, RUN).
 *
 * A reference to block b belongs to a run R if b lies within -extent_backward and
 * +extent_forward of R.maxBlock, the largest block read in R; so small jumps and small
 * reverses do not end a run.  Once more than 32 KiB of a run have been read, the 16
 * blocks from R.maxBlock+1 to R.maxBlock+16 are prefetched.
 *
 * What the paper leaves open:
 * - The extents.  Here they are 4 blocks backward and 8 forward: well within the 16
 *   that are prefetched, so that a jump lands in them.
 * - A run's size counts different blocks: a block that is read again while it lies
 *   within the backward extent does not make a run larger.  A run has two at least,
 *   however large blocks are.
 * - How often.  Word for word, every reference would ask for 16 blocks, most of which
 *   have been asked for.  Here a run asks when at most 8 of those that it asked for lie
 *   before its reader, so about every 8 blocks.  It asks for all 16 then: the caller
 *   skips cached ones, and those that got lost on the way are read again.
 * - How many runs.  A stream remembers the 64 that it used last; if a reference fits
 *   several, it belongs to the one used last.
 *
 * In the paper the server sees one stream of everything, which is level none.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mining/core/idle.h"
#include "mining/core/recent.h"
#include "mining/core/registry.h"
#include "mining/core/span.h"

#define RUNS            64
#define EXTENT_BACKWARD 4 /* blocks; below 64, see struct run */
#define EXTENT_FORWARD  8 /* blocks; below 64 */
#define THRESHOLD_BYTES 32768
#define PREFETCH        16 /* blocks */
#define REFILL          8  /* blocks left at which more are prefetched */
#define BLOCK_ASSUMED   16384

struct run {
    uint64_t max;   /* maxBlock */
    uint64_t asked; /* blocks between max and this one were asked for */
    uint64_t seen;  /* bit i: block max - i was read */
    uint64_t size;  /* different blocks read */
};

struct run_prefetcher {
    struct qm_prefetcher base;
    uint64_t threshold; /* blocks that a run must have more than */
};

struct qm_stream {
    struct qm_recent runs;
    struct qm_span wanted; /* to be prefetched */
};

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    uint64_t block_size = config->block_size ? config->block_size : BLOCK_ASSUMED;
    struct run_prefetcher *q = calloc(1, sizeof *q);

    if (!q) {
        snprintf(err, len, "%s", strerror(ENOMEM));
        return ENOMEM;
    }
    q->base.ops = &qm_prefetcher_run;
    q->threshold = THRESHOLD_BYTES / block_size;
    if (q->threshold == 0) {
        q->threshold = 1;
    }
    *p = &q->base;
    err[0] = '\0';
    return 0;
}

static int destroy(struct qm_prefetcher *p)
{
    free(p);
    return 0;
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    return calloc(1, sizeof(struct qm_stream));
}

static bool belongs(const struct run *run, uint64_t block)
{
    return block > run->max ? block - run->max <= EXTENT_FORWARD
                            : run->max - block <= EXTENT_BACKWARD;
}

/* The run that block belongs to, which is the first now; or NULL. */
static struct run *find(struct qm_recent *runs, uint64_t block)
{
    for (unsigned i = 0; i < runs->n; i++) {
        if (belongs(qm_recent_at(runs, i, sizeof(struct run)), block)) {
            return qm_recent_use(runs, i, sizeof(struct run));
        }
    }
    return NULL;
}

/* Counts block, which belongs to run, and moves maxBlock. */
static void extend(struct run *run, uint64_t block)
{
    uint64_t bit = 1;

    if (block > run->max) {
        run->seen <<= block - run->max;
        run->max = block;
    } else {
        bit <<= run->max - block;
    }
    if (!(run->seen & bit)) {
        run->seen |= bit;
        run->size++;
    }
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *s, uint64_t block,
                         enum qm_access outcome, struct qm_work **work)
{
    const struct run_prefetcher *q = (const struct run_prefetcher *)p;
    struct run *run = find(&s->runs, block);

    *work = NULL;
    s->wanted = (struct qm_span){0};
    if (!run) {
        run = qm_recent_add(&s->runs, RUNS, sizeof *run);
        if (run) {
            *run = (struct run){.max = block, .asked = block, .seen = 1, .size = 1};
        }
        return;
    }
    extend(run, block);
    if (run->size > q->threshold && run->asked <= run->max + REFILL) {
        s->wanted.from = run->max + 1;
        s->wanted.to = run->max + PREFETCH + 1;
        run->asked = run->max + PREFETCH;
    }
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *s,
                           struct qm_candidate *out, unsigned max)
{
    return qm_span_take(&s->wanted, out);
}

static void end(struct qm_prefetcher *p, struct qm_stream *s, struct qm_work **work)
{
    *work = NULL;
    qm_recent_fini(&s->runs);
    free(s);
}

const struct qm_prefetcher_ops qm_prefetcher_run = {
    .name = "run",
    .summary = "run-based: sequential but for small jumps and reverses",
    .flags = QM_ASK_ALWAYS,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .access = access_block,
    .candidates = candidates,
    .end = end,
    .learn = qm_idle_learn,
    .discard = qm_idle_discard,
    .ended = qm_idle_ended,
    .purge = qm_idle_purge,
    .stats = qm_idle_stats,
    .rules = NULL,
};
