/* SPDX-License-Identifier: BSD-3-Clause */
/* contexts.c - see contexts.h. */
#include "clients/bpf/contexts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include <uthash.h>
#include <utlist.h>

#include "clients/protocol/quickmine-protocol.h"

struct context {
    uint64_t word; /* key, within its process */
    uint64_t handle;
    unsigned depth; /* 1: a root */
    struct process *process;
    struct context *parent;      /* perhaps of another process */
    struct context *children;    /* begun within it */
    struct context *prev, *next; /* siblings */
    UT_hash_handle hh;
};

struct user {
    uid_t number; /* key */
    unsigned processes, open;
    UT_hash_handle hh;
};

struct process {
    pid_t number; /* key */
    struct user *user;
    int table; /* a descriptor of what is mapped at slots */
    const struct qm_agent_slot *slots;
    uint32_t count;
    size_t bytes;
    struct context *open;
    UT_hash_handle hh;
};

struct qm_agent_contexts {
    struct qm_sink sink;
    struct process *processes;
    struct process *next_swept; /* NULL: the first */
    struct user *users;         /* that have processes */
    struct qm_agent_contexts_stats stats;
};

struct qm_agent_contexts *qm_agent_contexts_new(const struct qm_sink *sink)
{
    struct qm_agent_contexts *c = calloc(1, sizeof *c);

    if (c)
        c->sink = *sink;
    return c;
}

/* Ends a context and what is nested in it, innermost first. */
static void end(struct qm_agent_contexts *c, struct context *context)
{
    while (context->children)
        end(c, context->children);
    c->sink.end(c->sink.opaque, context->handle);
    if (context->parent)
        DL_DELETE(context->parent->children, context);
    HASH_DEL(context->process->open, context);
    context->process->user->open--;
    c->stats.open--;
    free(context);
}

/* The user, with one more process; NULL: memory is out. */
static struct user *join_user(struct qm_agent_contexts *c, uid_t number)
{
    struct user *u;

    HASH_FIND(hh, c->users, &number, sizeof number, u);
    if (!u) {
        u = calloc(1, sizeof *u);
        if (!u)
            return NULL;
        u->number = number;
        HASH_ADD(hh, c->users, number, sizeof u->number, u);
    }
    u->processes++;
    return u;
}

static void leave_user(struct qm_agent_contexts *c, struct user *u)
{
    if (--u->processes > 0)
        return;
    HASH_DEL(c->users, u);
    free(u);
}

static void forget(struct qm_agent_contexts *c, struct process *p)
{
    while (p->open)
        end(c, p->open);
    munmap((void *)p->slots, p->bytes);
    close(p->table);
    leave_user(c, p->user);
    if (c->next_swept == p)
        c->next_swept = p->hh.next;
    HASH_DEL(c->processes, p);
    c->stats.processes--;
    free(p);
}

void qm_agent_contexts_free(struct qm_agent_contexts *c)
{
    if (!c)
        return;
    while (c->processes)
        forget(c, c->processes);
    free(c);
}

static struct process *process_of(struct qm_agent_contexts *c, pid_t number)
{
    struct process *p;

    HASH_FIND_INT(c->processes, &number, p);
    return p;
}

/* A table that could shrink would end us with SIGBUS, and so would one of huge pages,
 * when there are none left. */
static bool is_sealed(int fd, size_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct statfs fs;
    struct stat st;

    return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC && seals != -1 &&
           (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size >= bytes;
}

int qm_agent_contexts_register(struct qm_agent_contexts *c, pid_t number, uid_t user,
                               const struct qm_agent_hello *hello, int table)
{
    const size_t bytes = hello->slots * sizeof(struct qm_agent_slot);
    struct process *p;

    if (hello->magic != QM_AGENT_MAGIC || hello->version != QM_AGENT_VERSION ||
        hello->slots < 2 || hello->slots > QM_AGENT_SLOTS_MAX ||
        !is_sealed(table, bytes))
        return EINVAL;
    p = calloc(1, sizeof *p);
    if (!p)
        return ENOMEM;
    p->table = fcntl(table, F_DUPFD_CLOEXEC, 0);
    p->slots = mmap(NULL, bytes, PROT_READ, MAP_SHARED, table, 0);
    p->user = p->table != -1 && p->slots != MAP_FAILED ? join_user(c, user) : NULL;
    if (!p->user) {
        if (p->slots != MAP_FAILED)
            munmap((void *)p->slots, bytes);
        if (p->table != -1)
            close(p->table);
        free(p);
        return ENOMEM;
    }
    p->number = number;
    p->count = hello->slots;
    p->bytes = bytes;
    qm_agent_contexts_forget(c, number);
    HASH_ADD_INT(c->processes, number, p);
    c->stats.processes++;
    return 0;
}

void qm_agent_contexts_forget(struct qm_agent_contexts *c, pid_t number)
{
    struct process *p = process_of(c, number);

    if (p)
        forget(c, p);
}

/* Whether the slot holds the word.  Not by the mapping: looking at a page that nobody
 * has written to would make one, in our memory, and a table can consist of such pages.
 */
static bool holds(const struct process *p, uint64_t word)
{
    off_t at = (off_t)((word & QM_AGENT_SLOT_MASK) * sizeof(struct qm_agent_slot));
    uint64_t held;

    return pread(p->table, &held, sizeof held, at) == sizeof held && held == word;
}

/* Copies the slot of a word.  False: it holds another by now, or is being changed. */
static bool copy_slot(const struct process *p, uint64_t word,
                      struct qm_agent_slot *copy)
{
    const struct qm_agent_slot *slot = &p->slots[word & QM_AGENT_SLOT_MASK];
    const uint64_t *from = (const uint64_t *)slot;
    uint64_t to[sizeof *slot / sizeof *from];

    if (!holds(p, word) || __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE) != word)
        return false;
    /* In order, so that the word is looked at last. */
    for (size_t i = 0; i < sizeof *slot / sizeof *from; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    memcpy(copy, to, sizeof *copy);
    return __atomic_load_n(&slot->word, __ATOMIC_RELAXED) == word;
}

/* Generations only grow, so what is around a context has a smaller one.  That also
 * keeps contexts of a false table from being around themselves. */
static bool is_good(uint64_t word, const struct qm_agent_slot *slot)
{
    return slot->parent >> QM_AGENT_SLOT_BITS < word >> QM_AGENT_SLOT_BITS &&
           slot->kind >= QM_WIRE_CONNECTION && slot->kind <= QM_WIRE_QUERY &&
           slot->name_len <= QM_AGENT_NAME_MAX;
}

static bool is_word(const struct process *p, uint64_t word)
{
    uint64_t slot = word & QM_AGENT_SLOT_MASK;

    return slot > 0 && slot < p->count;
}

static struct context *find(struct qm_agent_contexts *c, struct process *p,
                            uint64_t word, unsigned depth);

/* The context that a helper's slot stands for, which another process of the same user
 * has. */
static struct context *find_other(struct qm_agent_contexts *c, const struct process *p,
                                  const struct qm_agent_slot *slot, unsigned depth)
{
    struct process *other = process_of(c, (pid_t)slot->of_process);

    if (!other || other->user != p->user) {
        c->stats.bad++;
        return NULL;
    }
    return find(c, other, slot->parent, depth + 1);
}

static struct context *begin(struct qm_agent_contexts *c, struct process *p,
                             uint64_t word, const struct qm_agent_slot *slot,
                             unsigned depth)
{
    struct context *parent = NULL, *context;
    char name[QM_AGENT_NAME_MAX + 1];

    if (slot->parent != 0)
        parent = find(c, p, slot->parent, depth + 1);
    if (HASH_COUNT(p->open) >= QM_AGENT_CONTEXTS_OPEN ||
        (p->user->number != 0 && p->user->open >= QM_AGENT_CONTEXTS_USER) ||
        c->stats.open >= QM_AGENT_CONTEXTS_ALL ||
        (parent && parent->depth > QM_AGENT_CONTEXTS_DEPTH))
        return NULL;
    context = calloc(1, sizeof *context);
    if (!context)
        return NULL;
    memcpy(name, slot->name, slot->name_len);
    name[slot->name_len] = '\0';
    context->handle = c->sink.begin(c->sink.opaque, parent ? parent->handle : 0,
                                    slot->kind, slot->klass, name);
    if (context->handle == 0) {
        free(context);
        return NULL;
    }
    context->word = word;
    context->process = p;
    context->parent = parent;
    context->depth = parent ? parent->depth + 1 : 1;
    if (parent)
        DL_APPEND(parent->children, context);
    HASH_ADD(hh, p->open, word, sizeof context->word, context);
    p->user->open++;
    c->stats.open++;
    c->stats.begun++;
    return context;
}

static struct context *find(struct qm_agent_contexts *c, struct process *p,
                            uint64_t word, unsigned depth)
{
    struct qm_agent_slot slot;
    struct context *context;

    if (word == 0)
        return NULL;
    HASH_FIND(hh, p->open, &word, sizeof word, context);
    if (context)
        return context;
    if (!is_word(p, word) || depth > QM_AGENT_CONTEXTS_DEPTH) {
        c->stats.bad++;
        return NULL;
    }
    if (!copy_slot(p, word, &slot)) {
        c->stats.stale++;
        return NULL;
    }
    if (slot.of_process != 0)
        return find_other(c, p, &slot, depth);
    if (!is_good(word, &slot)) {
        c->stats.bad++;
        return NULL;
    }
    return begin(c, p, word, &slot, depth);
}

uint64_t qm_agent_contexts_find(struct qm_agent_contexts *c, pid_t number,
                                uint64_t word)
{
    struct process *p = word != 0 ? process_of(c, number) : NULL;
    struct context *context = p ? find(c, p, word, 0) : NULL;

    return context ? context->handle : 0;
}

/* Whether the table still has the context open. */
static bool is_open(const struct context *context)
{
    const struct qm_agent_slot *slot =
        &context->process->slots[context->word & QM_AGENT_SLOT_MASK];

    return __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE) == context->word &&
           __atomic_load_n(&slot->ended, __ATOMIC_RELAXED) != context->word;
}

/* From the newest to the oldest: ending one ends what is nested in it, which is newer,
 * so the one before it stays. */
static void sweep(struct qm_agent_contexts *c, struct process *p)
{
    struct context *context, *before;

    if (!p->open)
        return;
    context = ELMT_FROM_HH(p->open->hh.tbl, p->open->hh.tbl->tail);
    for (; context; context = before) {
        before = context->hh.prev;
        if (!is_open(context))
            end(c, context);
    }
}

/* A few processes at a time, so that the lock is not held for long. */
void qm_agent_contexts_sweep(struct qm_agent_contexts *c)
{
    struct process *p = c->next_swept ? c->next_swept : c->processes;
    unsigned looked = 0;

    for (; p && looked < QM_AGENT_CONTEXTS_SWEEP; p = p->hh.next) {
        looked += 1 + HASH_COUNT(p->open);
        sweep(c, p);
    }
    c->next_swept = p;
}

void qm_agent_contexts_get_stats(const struct qm_agent_contexts *c,
                                 struct qm_agent_contexts_stats *stats)
{
    *stats = c->stats;
}
