/* SPDX-License-Identifier: BSD-3-Clause */
/* agent-hints.c - tells a server of the reads of a device that is its plain export. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/agent.h"
#include "clients/libqmctx/qmctx.h"

#define SECTOR UINT64_C(512)
#define READS  248 /* kept until the ring is empty: 8 records */
#define LONGEST                                                                        \
    (UINT32_C(1) << 20) /* bytes of one read; a longer one is told in parts */
#define RETRY_NS UINT64_C(250000000)
/* The server waits for what is told of a read for five seconds if nothing of later
 * reads is told.  After that it would be taken for one of a later read. */
#define LATE_NS UINT64_C(4000000000)

struct agent_hints {
    struct qmctx *ctx;
    struct qmctx_read reads[READS];
    size_t count;
    uint64_t tried; /* to reconnect, ns */
    uint64_t now;   /* since the ring was found not empty */
    uint64_t told, untold, late;
};

static uint64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* Tells of a read behind the device's end, which the server ignores.  From then on it
 * lets reads wait for what is told of them; without it, the first would not. */
static bool announce(struct agent_hints *h)
{
    struct qmctx_read none = {0, qmctx_size(h->ctx), 512};

    return qmctx_tell_reads(h->ctx, &none, 1) == 0;
}

/* A server that is away is looked for every RETRY_NS; what is read meanwhile is told
 * nobody, since it would be told too late. */
static bool is_there(struct agent_hints *h)
{
    uint64_t t;

    if (qmctx_connected(h->ctx))
        return true;
    t = now();
    if (t - h->tried < RETRY_NS)
        return false;
    h->tried = t;
    return qmctx_reconnect(h->ctx) == 0 && announce(h);
}

static void flush(void *opaque)
{
    struct agent_hints *h = opaque;

    h->now = 0;
    if (h->count == 0)
        return;
    if (is_there(h) && qmctx_tell_reads(h->ctx, h->reads, h->count) == 0)
        h->told += h->count;
    else
        h->untold += h->count;
    h->count = 0;
}

/* Sends on what a busy server did not take at once: the next read may come much later.
 */
static void tend(void *opaque)
{
    struct agent_hints *h = opaque;

    qmctx_tell_reads(h->ctx, NULL, 0);
}

/* Handles are the library's identifiers. */
static uint64_t begin(void *opaque, uint64_t parent, uint16_t kind, uint64_t klass,
                      const char *name)
{
    struct agent_hints *h = opaque;
    qmctx_id id;

    if (qmctx_open_context(h->ctx, parent, (enum qmctx_kind)kind, klass, name, &id) !=
        0)
        return 0;
    return id;
}

static void end(void *opaque, uint64_t handle)
{
    struct agent_hints *h = opaque;

    /* What was read in it is told before. */
    flush(h);
    qmctx_close_context(h->ctx, handle);
}

static void io(void *opaque, uint64_t context, const struct qm_bpf_read *read)
{
    struct agent_hints *h = opaque;
    uint64_t offset = read->sector * SECTOR;
    uint32_t left = read->bytes, part;

    if (read->flags & QM_BPF_WRITE)
        return;
    if (h->now == 0)
        h->now = now();
    if (h->now > read->ns && h->now - read->ns > LATE_NS) {
        h->late++;
        return;
    }
    for (; left > 0; left -= part, offset += part) {
        part = left < LONGEST ? left : LONGEST;
        if (h->count == READS)
            flush(h);
        h->reads[h->count++] = (struct qmctx_read){context, offset, part};
    }
}

struct agent_hints *agent_hints_open(const char *uri, char *err, size_t len)
{
    struct agent_hints *h = calloc(1, sizeof *h);

    if (!h) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    if (qmctx_connect(uri, 1, &h->ctx) != 0 || !announce(h)) {
        snprintf(err, len, "%s", qmctx_error());
        agent_hints_close(h);
        return NULL;
    }
    return h;
}

void agent_hints_use(struct agent_hints *h, struct qm_agent_config *config)
{
    config->sink = (struct qm_sink){begin, end, h};
    config->io = io;
    config->flush = flush;
    config->tend = tend;
    config->opaque = h;
}

uint64_t agent_hints_size(const struct agent_hints *h)
{
    return qmctx_size(h->ctx);
}

void agent_hints_close(struct agent_hints *h)
{
    if (h->untold > 0)
        fprintf(stderr,
                "quickmine agent: the server was away for %" PRIu64 " of %" PRIu64
                " reads\n",
                h->untold, h->told + h->untold);
    if (h->late > 0)
        fprintf(stderr,
                "quickmine agent: it was too late to tell the server of %" PRIu64
                " reads: the agent did not get to run\n",
                h->late);
    qmctx_close(h->ctx);
    free(h);
}
