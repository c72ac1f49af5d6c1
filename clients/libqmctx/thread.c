/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c - which threads have contexts in which instances.
 *
 * Each thread has a list of its states, one for each instance that it began a context
 * in; looking one up takes no lock.  Each instance has a list of the same states, under
 * the registry lock.  A state is freed by its own thread alone: when the thread exits,
 * or at its next look-up after the instance was closed, which leaves the state behind
 * with the instance number 0.
 *
 * fork() copies only the calling thread.  The child must not speak on the parent's
 * sockets nor write into memory that is shared with the mount, and locks may have been
 * held by threads that are not there any more.  So in the child every instance of the
 * parent is dead for good: transports close their descriptors and nothing else, and all
 * calls find out by qm_is_parents().
 *
 * A child that _Fork() or clone() made is told to nobody.  It finds out by a page that
 * the kernel empties in children (qm_not_forked).
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "internal.h"

unsigned qm_forks;

static const uint32_t not_known = 1;
const uint32_t *qm_not_forked = &not_known;
static uint32_t *emptied; /* in a child; NULL: the kernel cannot */

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static CDS_LIST_HEAD(instances); /* registry */
static uint64_t last_instance;   /* registry */
static pthread_key_t exit_key;   /* constant since set_up() */
static int set_up_error;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* As the agent's word (transport-agent.c), where it is looked up without a call. */
static _Thread_local struct qm_thread *mine __attribute__((tls_model("initial-exec")));

static struct qm_thread *find_mine(uint64_t instance)
{
    struct qm_thread *thread;

    for (thread = mine; thread; thread = thread->next)
        if (atomic_load_explicit(&thread->instance, memory_order_relaxed) == instance)
            return thread;
    return NULL;
}

static void before_fork(void)
{
    pthread_mutex_lock(&registry);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&registry);
}

static void in_child(void)
{
    struct qmctx *ctx;

    if (emptied)
        *emptied = 1;
    cds_list_for_each_entry(ctx, &instances, instances)
    {
        if (!qm_is_parents(ctx))
            ctx->transport->forked(ctx, find_mine(ctx->instance));
    }
    qm_forks++;
    pthread_mutex_unlock(&registry);
}

/* registry is held. */
static void leave(struct qm_thread *thread)
{
    struct qmctx *ctx = thread->ctx;

    if (!qm_is_parents(ctx)) {
        ctx->transport->thread_gone(ctx, thread);
        free(thread->frames);
        thread->frames = NULL;
        thread->capacity = 0;
    }
    cds_list_del(&thread->of_instance);
    atomic_store_explicit(&thread->instance, 0, memory_order_release);
}

static void thread_exits(void *unused)
{
    struct qm_thread *thread;

    while ((thread = mine)) {
        pthread_mutex_lock(&registry);
        if (atomic_load_explicit(&thread->instance, memory_order_relaxed))
            leave(thread);
        pthread_mutex_unlock(&registry);
        mine = thread->next;
        free(thread);
    }
}

static void make_emptied(void)
{
    uint32_t *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return;
    if (madvise(page, sizeof *page, MADV_WIPEONFORK) != 0) {
        munmap(page, sizeof *page);
        return;
    }
    *page = 1;
    emptied = page;
    qm_not_forked = page;
}

static void set_up(void)
{
    make_emptied();
    set_up_error = pthread_key_create(&exit_key, thread_exits);
    if (!set_up_error)
        set_up_error = pthread_atfork(before_fork, in_parent, in_child);
}

int qm_register(struct qmctx *ctx, const struct qm_transport *transport)
{
    pthread_once(&once, set_up);
    if (set_up_error)
        return set_up_error;
    ctx->transport = transport;
    CDS_INIT_LIST_HEAD(&ctx->threads);
    pthread_mutex_lock(&registry);
    if (emptied && *emptied == 0) {
        qm_forks++;
        *emptied = 1;
    }
    ctx->instance = ++last_instance;
    ctx->forks = qm_forks;
    cds_list_add(&ctx->instances, &instances);
    pthread_mutex_unlock(&registry);
    return 0;
}

void qm_unregister(struct qmctx *ctx)
{
    struct qm_thread *thread, *next;

    pthread_mutex_lock(&registry);
    cds_list_for_each_entry_safe(thread, next, &ctx->threads, of_instance)
        leave(thread);
    cds_list_del(&ctx->instances);
    pthread_mutex_unlock(&registry);
}

/* Frees the calling thread's states of instances that were closed. */
static void prune(void)
{
    struct qm_thread **link = &mine, *thread;

    while ((thread = *link)) {
        if (atomic_load_explicit(&thread->instance, memory_order_acquire)) {
            link = &thread->next;
        } else {
            *link = thread->next;
            free(thread);
        }
    }
}

struct qm_thread *qm_thread_get(struct qmctx *ctx, bool create)
{
    struct qm_thread *thread = find_mine(ctx->instance);

    if (thread || !create)
        return thread;
    prune();
    thread = calloc(1, ctx->transport->thread_bytes);
    /* The key's value only has to be set for the thread's exit to be told. */
    if (!thread || pthread_setspecific(exit_key, &mine)) {
        free(thread);
        return NULL;
    }
    thread->ctx = ctx;
    thread->over = ctx->over;
    atomic_init(&thread->instance, ctx->instance);
    pthread_mutex_lock(&registry);
    cds_list_add(&thread->of_instance, &ctx->threads);
    pthread_mutex_unlock(&registry);
    thread->next = mine;
    mine = thread;
    return thread;
}

bool qm_thread_grow(struct qm_thread *thread)
{
    unsigned capacity = thread->capacity ? 2 * thread->capacity : 4;
    void *frames;

    frames = capacity <= thread->capacity
                 ? NULL
                 : reallocarray(thread->frames, capacity,
                                thread->ctx->transport->frame_bytes);
    if (!frames) {
        qm_fail(ENOMEM, "out of memory for a context");
        return false;
    }
    thread->frames = frames;
    thread->capacity = capacity;
    return true;
}

qmctx_id qm_thread_current(const struct qmctx *over)
{
    struct qm_thread *thread = find_mine(over->instance);
    qmctx_id id = thread ? atomic_load(&thread->current) : 0;

    /* Another thread may be closing an attached instance: nothing but what is in the
     * state itself is looked at. */
    for (thread = mine; !id && thread; thread = thread->next)
        if (thread->over == over &&
            atomic_load_explicit(&thread->instance, memory_order_relaxed))
            id = atomic_load(&thread->current);
    return id;
}
