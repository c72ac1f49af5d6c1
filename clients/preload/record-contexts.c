/* SPDX-License-Identifier: BSD-3-Clause */
/* record-contexts.c - the contexts of a trace: a transport of libqmctx that sends
 * nothing.
 *
 * A context is written to the trace when something is first done in it, and then those
 * around it before it; so contexts in which nothing is read take no place there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/libqmctx/told.h"
#include "clients/preload/record.h"
#include "trace/text.h"
#include "trace/trace.h"

#define CLASS_MAX 255

struct context {
    uint64_t number; /* in the trace; 0: not written */
    uint32_t parent; /* its place in the table; 0: none */
    uint32_t next;   /* free */
    enum qm_kind kind;
    char klass[CLASS_MAX + 1];
};

static struct context *table; /* the lock; from 1 */
static uint32_t size, unused; /* the lock */
static uint64_t last;         /* the lock; number */

/* 0: out of memory. */
static uint32_t take(void)
{
    uint32_t n = unused, more = size ? 2 * size : 256;
    struct context *larger;

    if (n == 0) {
        larger = more <= UINT32_MAX / 2 ? realloc(table, more * sizeof *table) : NULL;
        if (!larger)
            return 0;
        table = larger;
        for (n = more - 1; n > 0 && n >= size; n--) {
            table[n].next = unused;
            unused = n;
        }
        size = more;
        n = unused;
    }
    unused = table[n].next;
    return n;
}

/* The class in a trace: its name without spaces, or its number. */
static void name_class(char *text, uint64_t klass, const char *name)
{
    size_t n = name ? strnlen(name, CLASS_MAX) : 0;

    if (n > 0)
        n = qm_text_clean(text, name, n, false);
    if (n == 0)
        snprintf(text, CLASS_MAX + 1, "%016" PRIx64, klass);
    for (char *c = text; *c; c++)
        if (*c == ' ')
            *c = '_';
}

static uint32_t begin(uint32_t parent, enum qmctx_kind kind, uint64_t klass,
                      const char *name)
{
    uint32_t n;

    qm_record_lock();
    n = take();
    if (n > 0) {
        table[n].number = 0;
        table[n].parent = parent;
        table[n].kind = (enum qm_kind)kind;
        name_class(table[n].klass, klass, name);
    }
    qm_record_unlock();
    return n;
}

static void end(uint32_t n)
{
    struct qm_event event = {.type = QM_TRACE_END};

    qm_record_lock();
    event.ctx = table[n].number;
    if (event.ctx != 0)
        qm_record_event(&event);
    table[n].next = unused;
    unused = n;
    qm_record_unlock();
}

static bool connected(void)
{
    return atomic_load(&qm_recording);
}

int qm_record_contexts(struct qmctx **ctx)
{
    static const struct qm_told told = {begin, end, connected};

    return qm_told_open(&told, ctx);
}

static uint64_t written(uint32_t n)
{
    struct qm_event event = {.type = QM_TRACE_BEGIN};

    if (n == 0 || table[n].number != 0)
        return n == 0 ? 0 : table[n].number;
    event.parent = written(table[n].parent);
    event.ctx = table[n].number = ++last;
    event.kind = table[n].kind;
    event.klass = table[n].klass;
    qm_record_event(&event);
    return event.ctx;
}

uint64_t qm_record_context(void)
{
    return written(qm_told_current());
}
