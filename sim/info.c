/* SPDX-License-Identifier: BSD-3-Clause */
/* info.c - what a trace is like.
 *
 * Each context has a tally; when it ends, its counts are added to those of the context
 * it was nested in.  The tree of contexts is that of the simulator, under a prefetcher
 * that does nothing.
 */
#include "sim/info.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/classes.h"
#include "sim/footprint.h"
#include "mining/core/prefetcher.h"

/* A run that is going on. */
struct run {
    uint64_t last, length; /* its last block, its blocks; length 0: none yet */
};

struct tally {
    uint64_t reads, writes, blocks_read;
    uint64_t nested_reads, nested_writes, nested_blocks_read; /* of these */
    struct run as_thread, as_level;
    uint64_t request; /* number of the last request that counted for it; 0: none */
};

struct qm_info_maker {
    struct qm_info info;
    enum qm_level level;
    uint64_t block_size;
    struct qm_prefetcher *prefetcher; /* none */
    struct qm_context **open;         /* by slot */
    uint32_t room;
    uint64_t open_now;
    struct qm_classes classes;
    struct qm_footprint footprint;
    struct run run; /* of the trace as it is */
};

static void end_run(struct run *run, struct qm_runs *runs)
{
    if (run->length == 0)
        return;
    runs->runs++;
    runs->blocks += run->length;
    if (run->length > runs->longest)
        runs->longest = run->length;
    run->length = 0;
}

static void extend_run(struct run *run, struct qm_runs *runs, uint64_t block)
{
    if (run->length > 0 && block == run->last)
        return;
    if (run->length > 0 && block != run->last + 1)
        end_run(run, runs);
    run->length++;
    run->last = block;
}

struct qm_info_maker *qm_info_new(enum qm_level level, uint64_t block_size)
{
    struct qm_info_maker *m = calloc(1, sizeof *m);
    struct qm_mining_config config;
    char err[256];

    if (!m)
        return NULL;
    m->level = level;
    m->block_size = block_size;
    m->info.classes = calloc(1, sizeof *m->info.classes);
    qm_mining_defaults(&config);
    if (!m->info.classes || qm_prefetcher_find("none")->create(&config, &m->prefetcher,
                                                               err, sizeof err) != 0) {
        m->prefetcher = NULL;
        qm_info_free(m);
        return NULL;
    }
    m->info.class_count = 1;
    return m;
}

/* The class of that number, which is new if it is the next one.  NULL: memory is out.
 */
static struct qm_info_class *class_of(struct qm_info_maker *m, uint32_t number,
                                      const struct qm_event *e)
{
    struct qm_info *info = &m->info;
    struct qm_info_class *classes;

    if (number < info->class_count)
        return &info->classes[number];
    classes = reallocarray(info->classes, number + 1, sizeof *classes);
    if (!classes)
        return NULL;
    info->classes = classes;
    classes[number] = (struct qm_info_class){.kind = e->kind, .name = strdup(e->klass)};
    if (!classes[number].name)
        return NULL;
    info->class_count = number + 1;
    return &classes[number];
}

static int begin(struct qm_info_maker *m, const struct qm_event *e)
{
    char name[QM_TRACE_CLASS_MAX + 16];
    struct qm_info_class *klass;
    struct tally *tally;
    uint32_t number;

    if (e->slot >= m->room) {
        uint32_t room = e->slot < 32 ? 64 : e->slot > UINT32_MAX / 2 ? 0 : e->slot * 2;
        struct qm_context **open =
            room ? reallocarray(m->open, room, sizeof *open) : NULL;

        if (!open)
            return ENOMEM;
        memset(open + m->room, 0, (room - m->room) * sizeof *open);
        m->open = open;
        m->room = room;
    }
    /* The same class of two kinds is two here. */
    snprintf(name, sizeof name, "%d %s", (int)e->kind, e->klass);
    if (qm_classes_number(&m->classes, name, &number) != 0)
        return ENOMEM;
    klass = class_of(m, number, e);
    tally = calloc(1, sizeof *tally);
    if (!klass || !tally ||
        qm_context_begin(m->prefetcher, m->level,
                         e->parent_slot ? m->open[e->parent_slot] : NULL, e->kind,
                         number, e->slot, tally, &m->open[e->slot]) != 0) {
        free(tally);
        return ENOMEM;
    }
    klass->contexts++;
    m->info.contexts++;
    if (++m->open_now > m->info.open_at_once)
        m->info.open_at_once = m->open_now;
    return 0;
}

/* Whether a context around this one is of the class: procedures call themselves. */
static bool is_within(const struct qm_context *context, uint32_t klass)
{
    for (const struct qm_context *c = context->parent; c; c = c->parent)
        if (c->klass == klass)
            return true;
    return false;
}

static void ended(void *opaque, struct qm_context *context, struct qm_work *work)
{
    struct qm_info_maker *m = opaque;
    struct tally *tally = context->user;
    struct qm_info_class *klass = &m->info.classes[context->klass];
    struct qm_info_kind *kind = &m->info.kinds[context->kind];
    uint64_t requests = tally->reads + tally->writes;

    (void)work; /* never any */
    end_run(&tally->as_thread, &m->info.by_thread);
    end_run(&tally->as_level, &m->info.by_level);
    kind->contexts++;
    kind->silent += requests == 0;
    kind->brief += requests >= 1 && requests <= 10;
    kind->brief_blocks += tally->blocks_read >= 1 && tally->blocks_read <= 10;
    qm_histogram_add(&kind->requests, requests);
    qm_histogram_add(&kind->blocks, tally->blocks_read);
    klass->own_reads += tally->reads - tally->nested_reads;
    klass->own_writes += tally->writes - tally->nested_writes;
    klass->own_blocks_read += tally->blocks_read - tally->nested_blocks_read;
    if (!is_within(context, context->klass)) { /* else it counts with that one */
        klass->reads += tally->reads;
        klass->writes += tally->writes;
        klass->blocks_read += tally->blocks_read;
    }
    if (context->parent) {
        struct tally *parent = context->parent->user;

        parent->reads += tally->reads;
        parent->writes += tally->writes;
        parent->blocks_read += tally->blocks_read;
        parent->nested_reads += tally->reads;
        parent->nested_writes += tally->writes;
        parent->nested_blocks_read += tally->blocks_read;
    }
    m->open[context->id] = NULL;
    m->open_now--;
    free(tally);
}

/* The thread that context lies in; where there is none the outermost context, which is
 * the connection of a client that has a thread for each. */
static struct qm_context *thread_of(struct qm_context *context)
{
    struct qm_context *c = context;

    while (c->kind != QM_THREAD && c->parent)
        c = c->parent;
    return c;
}

static int request(struct qm_info_maker *m, const struct qm_event *e)
{
    struct qm_info *info = &m->info;
    bool write = e->type == QM_TRACE_WRITE;
    uint64_t block = e->offset / m->block_size;
    uint64_t last = (e->offset + e->length - 1) / m->block_size;
    uint64_t blocks = last - block + 1, number;
    struct tally *own = NULL, *level = NULL, *thread = NULL;

    *(write ? &info->writes : &info->reads) += 1;
    *(write ? &info->bytes_written : &info->bytes_read) += e->length;
    *(write ? &info->blocks_written : &info->blocks_read) += blocks;
    number = info->reads + info->writes;
    if (e->slot == 0) {
        info->untagged++;
    } else {
        struct qm_context *c = m->open[e->slot];

        own = c->user;
        level = qm_context_target(m->level, c)->user;
        thread = thread_of(c)->user;
        *(write ? &own->writes : &own->reads) += 1;
        if (!write)
            own->blocks_read += blocks;
        if (level->request)
            qm_histogram_add(&info->interference, number - level->request - 1);
        level->request = number;
    }
    for (; block <= last; block++) {
        if (qm_footprint_add(&m->footprint, block, write) != 0)
            return ENOMEM;
        if (write)
            continue;
        extend_run(&m->run, &info->interleaved, block);
        if (own) {
            extend_run(&thread->as_thread, &info->by_thread, block);
            extend_run(&level->as_level, &info->by_level, block);
        }
    }
    return 0;
}

int qm_info_event(struct qm_info_maker *m, const struct qm_event *e)
{
    if (m->info.events++ == 0)
        m->info.first_us = m->info.last_us = e->us;
    if (e->us < m->info.first_us)
        m->info.first_us = e->us;
    if (e->us > m->info.last_us)
        m->info.last_us = e->us;
    switch (e->type) {
    case QM_TRACE_BEGIN:
        return begin(m, e);
    case QM_TRACE_END:
        qm_context_end(m->prefetcher, m->open[e->slot], ended, m);
        return 0;
    default:
        return request(m, e);
    }
}

/* Ends what is still open. */
static void end_all(struct qm_info_maker *m)
{
    for (uint32_t slot = 0; slot < m->room; slot++) {
        struct qm_context *c = m->open[slot];

        if (!c)
            continue;
        while (c->parent)
            c = c->parent;
        qm_context_end(m->prefetcher, c, ended, m);
    }
}

const struct qm_info *qm_info_finish(struct qm_info_maker *m)
{
    m->info.open_at_end = m->open_now;
    end_all(m);
    end_run(&m->run, &m->info.interleaved);
    m->info.footprint = m->footprint.blocks;
    m->info.footprint_read = m->footprint.read;
    m->info.footprint_written = m->footprint.written;
    return &m->info;
}

void qm_info_free(struct qm_info_maker *m)
{
    if (!m)
        return;
    end_all(m);
    if (m->prefetcher)
        m->prefetcher->ops->destroy(m->prefetcher);
    for (uint32_t i = 0; i < m->info.class_count; i++)
        free(m->info.classes[i].name);
    free(m->info.classes);
    free(m->open);
    qm_classes_clear(&m->classes);
    qm_footprint_clear(&m->footprint);
    free(m);
}
