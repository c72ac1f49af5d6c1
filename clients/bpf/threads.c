/* SPDX-License-Identifier: BSD-3-Clause */
/* threads.c - see threads.h. */
#include "clients/bpf/threads.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>
#include <utlist.h>
#include <xxhash.h>

#include "clients/protocol/quickmine-protocol.h"

struct thread {
    uint64_t key; /* its process and its number */
    uint64_t handle, last;
    struct thread *prev, *next; /* in order of last, oldest first */
    UT_hash_handle hh;
};

struct qm_agent_threads {
    struct qm_sink sink;
    struct thread *by_key, *by_age;
    uint64_t names[QM_THREAD_NAMES]; /* hashes of those that have a class, 0: free */
};

struct qm_agent_threads *qm_agent_threads_new(const struct qm_sink *sink)
{
    struct qm_agent_threads *t = calloc(1, sizeof *t);

    if (t)
        t->sink = *sink;
    return t;
}

static void end(struct qm_agent_threads *t, struct thread *thread)
{
    t->sink.end(t->sink.opaque, thread->handle);
    DL_DELETE(t->by_age, thread);
    HASH_DEL(t->by_key, thread);
    free(thread);
}

void qm_agent_threads_free(struct qm_agent_threads *t)
{
    if (!t)
        return;
    while (t->by_age)
        end(t, t->by_age);
    free(t);
}

/* The number of an io_uring worker's submitter ("iou-wrk-N"); else the thread's own. */
static uint32_t number_of(const struct qm_bpf_read *read)
{
    static const char worker[] = "iou-wrk-";
    unsigned long n;
    char *end;

    if (strncmp(read->name, worker, sizeof worker - 1) != 0)
        return read->thread;
    n = strtoul(read->name + sizeof worker - 1, &end, 10);
    return *end == '\0' && n > 0 && n <= UINT32_MAX ? (uint32_t)n : read->thread;
}

/* Whether the name with this hash has a class, or may have one.  Open addressing;
 * nothing is ever removed. */
static bool has_class(struct qm_agent_threads *t, uint64_t hash)
{
    for (unsigned i = 0; i < QM_THREAD_NAMES; i++) {
        uint64_t *at = &t->names[(hash + i) % QM_THREAD_NAMES];

        if (*at == 0)
            *at = hash;
        if (*at == hash)
            return true;
    }
    return false;
}

static struct thread *begin(struct qm_agent_threads *t, uint64_t key,
                            const struct qm_bpf_read *read)
{
    struct thread *thread = calloc(1, sizeof *thread);
    char name[sizeof read->name];
    uint64_t klass;

    if (!thread)
        return NULL;
    memcpy(name, read->name, sizeof name);
    name[sizeof name - 1] = '\0';
    klass = XXH3_64bits(name, strlen(name));
    if (!has_class(t, klass)) {
        strcpy(name, "others");
        klass = XXH3_64bits(name, strlen(name));
    }
    thread->handle = t->sink.begin(t->sink.opaque, 0, QM_WIRE_THREAD, klass, name);
    if (thread->handle == 0) {
        free(thread);
        return NULL;
    }
    thread->key = key;
    HASH_ADD(hh, t->by_key, key, sizeof thread->key, thread);
    DL_APPEND(t->by_age, thread);
    return thread;
}

uint64_t qm_agent_threads_find(struct qm_agent_threads *t,
                               const struct qm_bpf_read *read)
{
    /* A thread may have any name: it can only be taken for another of its process. */
    uint64_t key = (uint64_t)read->process << 32 | number_of(read);
    struct thread *thread;

    HASH_FIND(hh, t->by_key, &key, sizeof key, thread);
    if (!thread) {
        if (HASH_COUNT(t->by_key) >= QM_THREADS_MAX)
            end(t, t->by_age);
        thread = begin(t, key, read);
    }
    if (!thread)
        return 0;
    thread->last = read->ns;
    DL_DELETE(t->by_age, thread);
    DL_APPEND(t->by_age, thread);
    return thread->handle;
}

void qm_agent_threads_sweep(struct qm_agent_threads *t, uint64_t now)
{
    while (t->by_age && now > t->by_age->last && now - t->by_age->last > QM_THREAD_IDLE)
        end(t, t->by_age);
}
