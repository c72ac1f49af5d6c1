/* SPDX-License-Identifier: BSD-3-Clause */
/* agent-record.c - a trace of the reads of a local device, with their contexts. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/agent.h"
#include "trace/text.h"
#include "trace/trace.h"

#define SECTOR UINT64_C(512)

struct agent_record {
    const char *path;
    struct qm_trace_writer *writer; /* NULL: the trace has ended early, by error */
    uint64_t last;                  /* number of a context */
    uint64_t us; /* of the last event: time in a trace does not go back */
    uint64_t start;
    int error;
};

static uint64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* Reads of several processors are in the ring's order, not in that of their times. */
static void set_time(struct agent_record *r, uint64_t ns)
{
    uint64_t us = ns > r->start ? (ns - r->start) / 1000 : 0;

    if (us > r->us)
        r->us = us;
}

/* Ends the trace at an error, with a message at once: a recording may take a day. */
static void check(struct agent_record *r, int error)
{
    if (error == 0)
        return;
    fprintf(stderr, "quickmine agent: --record %s: the trace ends here: %s\n", r->path,
            strerror(error));
    qm_trace_close(r->writer);
    r->writer = NULL;
    r->error = error;
}

static void put(struct agent_record *r, struct qm_event *event)
{
    int error;

    if (!r->writer)
        return;
    event->us = r->us;
    error = qm_trace_write(r->writer, event);
    /* An event that a trace cannot hold is left out. */
    check(r, error == EINVAL ? 0 : error);
}

/* The class in a trace: its name without spaces, or its number. */
static void name_class(char *text, size_t size, uint64_t klass, const char *name)
{
    size_t n = strnlen(name, size - 1);

    if (n == 0) {
        snprintf(text, size, "%016" PRIx64, klass);
        return;
    }
    n = qm_text_clean(text, name, n, false);
    for (size_t i = 0; i < n; i++)
        if (text[i] == ' ')
            text[i] = '_';
}

static uint64_t begin(void *opaque, uint64_t parent, uint16_t kind, uint64_t klass,
                      const char *name)
{
    struct agent_record *r = opaque;
    struct qm_event event = {.type = QM_TRACE_BEGIN};
    char text[QM_AGENT_NAME_MAX + 1];

    name_class(text, sizeof text, klass, name);
    event.ctx = ++r->last;
    event.kind = (enum qm_kind)kind;
    event.klass = text;
    event.parent = parent;
    set_time(r, now());
    put(r, &event);
    return event.ctx;
}

static void end(void *opaque, uint64_t handle)
{
    struct agent_record *r = opaque;
    struct qm_event event = {.type = QM_TRACE_END, .ctx = handle};

    set_time(r, now());
    put(r, &event);
}

static void io(void *opaque, uint64_t context, const struct qm_bpf_read *read)
{
    struct agent_record *r = opaque;
    struct qm_event event = {.type = read->flags & QM_BPF_WRITE ? QM_TRACE_WRITE
                                                                : QM_TRACE_READ,
                             .ctx = context};

    event.offset = read->sector * SECTOR;
    event.length = read->bytes;
    set_time(r, read->ns);
    put(r, &event);
}

static void flush(void *opaque)
{
    struct agent_record *r = opaque;

    if (r->writer)
        check(r, qm_trace_flush(r->writer));
}

struct agent_record *agent_record_open(const char *path, uint64_t block_size, char *err,
                                       size_t len)
{
    struct agent_record *r = calloc(1, sizeof *r);

    if (!r) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    r->path = path;
    r->start = now();
    r->writer = qm_trace_keep(path, block_size, err, len);
    if (!r->writer) {
        free(r);
        return NULL;
    }
    return r;
}

void agent_record_use(struct agent_record *r, struct qm_agent_config *config)
{
    config->sink = (struct qm_sink){begin, end, r};
    config->io = io;
    config->flush = flush;
    config->opaque = r;
}

int agent_record_close(struct agent_record *r)
{
    int error = r->writer ? qm_trace_close(r->writer) : r->error;

    free(r);
    return error;
}
