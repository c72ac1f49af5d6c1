/* SPDX-License-Identifier: BSD-3-Clause */
/* agent-table.c - see agent-table.h. */
#include "agent-table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#define BYTES (QM_AGENT_SLOTS_MAX * sizeof(struct qm_agent_slot))

_Static_assert(QM_AGENT_CHUNK == 64, "`used` has a bit for each");

/* Pages that no context was in take no memory. */
static bool map(struct qm_agent_table *t)
{
    t->fd = memfd_create("quickmine-contexts", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    t->own = qm_own_fd(t->fd);
    if (t->fd == -1 || ftruncate(t->fd, (off_t)BYTES) != 0 ||
        fcntl(t->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        return false;
    t->slots = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
    if (t->slots == MAP_FAILED) {
        t->slots = NULL;
        return false;
    }
    /* A child has contexts of its own. */
    return madvise(t->slots, BYTES, MADV_DONTFORK) == 0;
}

struct qm_agent_table *qm_agent_table_new(void)
{
    /* A thread may still have a word of an instance that was closed: it must not be one
     * of the next. */
    static _Atomic uint64_t tables;
    struct qm_agent_table *t = calloc(1, sizeof *t);
    int error;

    if (!t)
        return NULL;
    t->number = atomic_fetch_add(&tables, 1) % QM_AGENT_TABLES;
    pthread_mutex_init(&t->lock, NULL);
    if (map(t))
        return t;
    error = errno;
    qm_agent_table_free(t);
    errno = error;
    return NULL;
}

void qm_agent_table_free(struct qm_agent_table *t)
{
    if (t->slots)
        munmap(t->slots, BYTES);
    qm_own_fd_close(t->fd, &t->own);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

struct qm_agent_chunk *qm_agent_chunk_take(struct qm_agent_table *t)
{
    struct qm_agent_chunk *chunk;

    pthread_mutex_lock(&t->lock);
    chunk = t->free;
    if (chunk) {
        t->free = chunk->next;
    } else if (t->made < QM_AGENT_CHUNKS) {
        chunk = &t->chunks[t->made];
        chunk->first = t->made++ * QM_AGENT_CHUNK;
        chunk->generation = t->number << 32;
        /* Slot 0 is none. */
        chunk->used = chunk->first == 0;
    }
    pthread_mutex_unlock(&t->lock);
    return chunk;
}

void qm_agent_chunk_give(struct qm_agent_table *t, struct qm_agent_chunk *chunk)
{
    pthread_mutex_lock(&t->lock);
    chunk->next = t->free;
    t->free = chunk;
    pthread_mutex_unlock(&t->lock);
}

/* The free slot that was used longest ago, from first on; or QM_AGENT_CHUNK. */
static unsigned next_slot(const struct qm_agent_chunk *c)
{
    for (unsigned i = 1; i <= QM_AGENT_CHUNK; i++) {
        unsigned n = (c->last + i) % QM_AGENT_CHUNK;

        if (!(c->used >> n & 1))
            return n;
    }
    return QM_AGENT_CHUNK;
}

uint64_t qm_agent_slot_begin(struct qm_agent_table *t, struct qm_agent_chunk *c,
                             const struct qm_agent_shown *shown)
{
    size_t name_len = shown->name ? qm_name_len(shown->name, QM_AGENT_NAME_MAX) : 0;
    unsigned n = next_slot(c);
    struct qm_agent_slot *slot;
    uint64_t word;

    if (n == QM_AGENT_CHUNK)
        return 0;
    slot = &t->slots[c->first + n];
    word = ++c->generation << QM_AGENT_SLOT_BITS | (c->first + n);
    /* The agent does not take what it reads between these two stores. */
    __atomic_exchange_n(&slot->word, 0, __ATOMIC_ACQ_REL);
    slot->parent = shown->parent;
    slot->klass = shown->klass;
    slot->kind = (uint16_t)shown->kind;
    slot->of_process = shown->of_process;
    slot->name_len = (uint16_t)name_len;
    if (name_len > 0)
        memcpy(slot->name, shown->name, name_len);
    __atomic_store_n(&slot->word, word, __ATOMIC_RELEASE);
    c->used |= UINT64_C(1) << n;
    c->last = n;
    return word;
}

void qm_agent_slot_end(struct qm_agent_table *t, struct qm_agent_chunk *c,
                       uint64_t word)
{
    unsigned n = (unsigned)(word & QM_AGENT_SLOT_MASK) - c->first;

    __atomic_store_n(&t->slots[c->first + n].ended, word, __ATOMIC_RELEASE);
    c->used &= ~(UINT64_C(1) << n);
}
