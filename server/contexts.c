/* SPDX-License-Identifier: BSD-3-Clause */
/* contexts.c - open contexts: finding one's tree, locking it, reading in it.
 *
 * What streams keep of what open contexts have read stays until it is mined, and a
 * client may keep many open for long.  So `held` counts it, in steps of STEP blocks a
 * context, so that readers of different contexts seldom meet there; and a client that
 * holds an n-th of held_max, where n clients hold anything, has each of its contexts
 * cut that grows by another step: what it has read is mined now, and its sequence
 * begins anew.  Of n clients the one that grew the n-th last never got more than an
 * n-th; so all together hold at most held_max and half of it for each doubling of their
 * number.
 */
#include <errno.h>
#include <string.h>

#include "server/contexts.h"

/* What a sequence costs while it waits for the miner, beside its blocks. */
#define WORK_BYTES 256

#define STEP 64

/* Of contexts that are open when a recording begins: deeper ones are recorded without
 * their parents. */
#define DEPTH 64

void qms_slot_init(struct qms_slot *slot, unsigned client)
{
    memset(slot, 0, sizeof *slot);
    slot->client = client;
    pthread_mutex_init(&slot->tree, NULL);
}

void qms_slot_destroy(struct qms_slot *slot)
{
    pthread_mutex_destroy(&slot->tree);
}

/* Locks the tree that slot's context is in.  Returns the root's slot, whose lock is
 * then held, or NULL if nothing is open in slot.  The slot may be ended, and begun anew
 * in another tree, while we wait for the lock: then it is not the right lock. */
static struct qms_slot *lock_tree(struct qms_slot *slot)
{
    struct qms_slot *root;

    while ((root = atomic_load_explicit(&slot->root, memory_order_acquire))) {
        pthread_mutex_lock(&root->tree);
        if (atomic_load_explicit(&slot->root, memory_order_relaxed) == root)
            return root;
        pthread_mutex_unlock(&root->tree);
    }
    return NULL;
}

/* Adds blocks to those held by the client.  Returns whether it has used its share. */
static bool hold(struct qms_contexts *c, unsigned client, uint64_t blocks)
{
    uint64_t held =
        atomic_fetch_add_explicit(&c->held[client], blocks, memory_order_relaxed);
    unsigned n;

    if (held == 0)
        n = atomic_fetch_add_explicit(&c->holders, 1, memory_order_relaxed) + 1;
    else
        n = atomic_load_explicit(&c->holders, memory_order_relaxed);
    return held >= c->held_max / (n ? n : 1); /* another's first may not be counted */
}

static void release(struct qms_contexts *c, unsigned client, uint64_t blocks)
{
    if (blocks > 0 && atomic_fetch_sub_explicit(&c->held[client], blocks,
                                                memory_order_relaxed) == blocks)
        atomic_fetch_sub_explicit(&c->holders, 1, memory_order_relaxed);
}

/* Queues the work (NULL: none), of `blocks` blocks, that the context in slot made. */
static void learn(struct qms_contexts *c, struct qms_slot *slot, struct qm_work *work,
                  uint64_t blocks)
{
    release(c, slot->client, slot->held);
    slot->held = 0;
    slot->kept = 0;
    if (!work)
        return;
    if (c->miner)
        qms_miner_push(c->miner, slot->client, work,
                       WORK_BYTES + blocks * sizeof(uint64_t));
    else
        c->engine->prefetcher->ops->discard(c->engine->prefetcher, work);
}

/* The sequence of slot's context, if it has one, has just begun. */
static void own(const struct qm_prefetcher *prefetcher, struct qms_slot *slot)
{
    if (slot->context->stream && prefetcher->ops->own)
        prefetcher->ops->own(slot->context->stream, qms_client_owner(slot->client));
}

/* A context that reads a block. */
struct reading {
    struct qms_contexts *contexts;
    struct qms_slot *slot;
};

/* The block has made work of what the stream kept; the tree's lock is held. */
static void learn_in_passing(void *opaque, struct qm_work *work)
{
    struct reading *r = opaque;

    learn(r->contexts, r->slot, work, r->slot->kept + 1);
}

/* slot's context has read a block; its tree's lock is held. */
static void grow(struct qms_contexts *c, struct qms_slot *slot)
{
    const struct qm_prefetcher_ops *ops = c->engine->prefetcher->ops;
    struct qm_context *context = slot->context;
    struct qm_work *work;

    if (!ops->kept)
        return;
    slot->kept = ops->kept(context->stream);
    if (slot->kept < slot->held + STEP)
        return;
    slot->held += STEP;
    if (!hold(c, slot->client, STEP))
        return;
    ops->end(c->engine->prefetcher, context->stream, &work);
    context->stream = ops->begin(c->engine->prefetcher, context->klass);
    own(c->engine->prefetcher, slot);
    learn(c, slot, work, slot->kept);
}

/* Begins the one context of level none.  Its own level is another: it is not directed
 * elsewhere. */
static int begin_all(struct qms_contexts *c, struct qm_prefetcher *prefetcher)
{
    return qm_context_begin(prefetcher, QM_LEVEL_INNERMOST, NULL, QM_CONNECTION,
                            QMS_CLASS_NONE, 0, &c->all, &c->all.context);
}

int qms_contexts_init(struct qms_contexts *c)
{
    qms_rwlock_init(&c->lock);
    qms_slot_init(&c->all, QMS_CLIENT_NONE);
    atomic_init(&c->next_id, 1);
    atomic_init(&c->open, 0);
    for (unsigned i = 0; i < QMS_CLIENTS; i++)
        atomic_init(&c->held[i], 0);
    atomic_init(&c->holders, 0);
    if (c->mining && c->level == QM_LEVEL_NONE &&
        begin_all(c, c->engine->prefetcher) != 0) {
        qms_slot_destroy(&c->all);
        qms_rwlock_destroy(&c->lock);
        return ENOMEM;
    }
    return 0;
}

static void all_ended(void *opaque, struct qm_context *context, struct qm_work *work)
{
    struct qms_contexts *c = opaque;

    learn(c, &c->all, work, c->all.kept);
}

void qms_contexts_destroy(struct qms_contexts *c)
{
    if (c->all.context)
        qm_context_end(c->engine->prefetcher, c->all.context, all_ended, c);
    qms_slot_destroy(&c->all);
    qms_rwlock_destroy(&c->lock);
}

struct restart {
    struct qms_contexts *contexts;
    struct qm_prefetcher *prefetcher; /* the new one */
};

/* A context of a tree has another sequence, or none any more. */
static void restarted(void *opaque, struct qm_context *context, struct qm_work *work)
{
    struct restart *r = opaque;
    struct qms_slot *slot = context->user;

    learn(r->contexts, slot, work, slot->kept);
    own(r->prefetcher, slot);
}

void qms_contexts_restart(struct qms_contexts *c, struct qms_slot *slot,
                          struct qm_prefetcher *prefetcher, enum qm_level level)
{
    struct qm_prefetcher *old = c->engine->prefetcher;
    struct restart restart = {c, prefetcher};

    if (slot) {
        if (atomic_load_explicit(&slot->root, memory_order_relaxed) == slot)
            qm_context_restart(old, prefetcher, level, slot->context, restarted,
                               &restart);
        return;
    }
    if (c->all.context)
        qm_context_end(old, c->all.context, all_ended, c);
    c->all.context = NULL;
    if (level == QM_LEVEL_NONE)
        (void)begin_all(c, prefetcher); /* without memory nothing is learned */
}

_Static_assert(QMS_CLASSES_MAX <= UINT16_MAX, "an index has room in qms_around");

static void add_around(struct qms_around *around, uint32_t klass, uint32_t own)
{
    if (klass != own && around->count < QMS_AROUND_MAX)
        around->klass[around->count++] = (uint16_t)klass;
}

/* Which classes are around a context of class own in parent (NULL: none): the parent's
 * and those around it, among which the parent's is not, so none comes twice.  The
 * tree's lock is held. */
static void set_around(struct qms_around *around, const struct qms_slot *parent,
                       uint32_t own)
{
    around->count = 0;
    if (!parent)
        return;
    add_around(around, parent->klass->index, own);
    for (unsigned i = 0; i < parent->around.count; i++)
        add_around(around, parent->around.klass[i], own);
}

/* What prefetchers call a class: a number from 1 on, or 0 for what is in no class of
 * its own, as in the simulator. */
static uint32_t stream_class(const struct qms_class *klass)
{
    return klass->index > QMS_CLASS_OTHER ? klass->index - QMS_CLASS_OTHER : 0;
}

/* The recorder that is told of the tree of a root of that number, if any.  The caller
 * has the read lock, or there is no shadow. */
static struct qms_recorder *recorder_of(const struct qms_contexts *c, uint64_t root_id)
{
    struct qms_recorder *shadow;

    if (c->recorder)
        return c->recorder;
    shadow = atomic_load_explicit(&c->shadow, memory_order_relaxed);
    if (!shadow || (root_id == 0 && c->shadow_one_in > 1))
        return NULL;
    /* Numbers are given in turn, so any mixing will do. */
    return (root_id * UINT64_C(0x9e3779b97f4a7c15) >> 32) % c->shadow_one_in == 0
               ? shadow
               : NULL;
}

static void record_open(struct qms_contexts *c, struct qms_slot *slot, unsigned depth)
{
    struct qms_slot *root = atomic_load_explicit(&slot->root, memory_order_relaxed);
    struct qms_slot *parent = NULL;
    struct qms_recorder *recorder;

    if (!root || slot->recorded)
        return;
    recorder = recorder_of(c, root->id);
    if (!recorder)
        return;
    if (slot->context->parent && depth < DEPTH) {
        parent = slot->context->parent->user;
        record_open(c, parent, depth + 1);
    }
    slot->recorded = qms_record_begin(
        recorder, slot->id, slot->context->kind,
        atomic_load_explicit(&slot->klass->token, memory_order_acquire),
        parent && parent->recorded ? parent->id : 0);
}

void qms_context_record_open(struct qms_contexts *c, struct qms_slot *slot)
{
    record_open(c, slot, 0);
}

int qms_context_begin(struct qms_contexts *c, struct qms_slot *slot,
                      struct qms_slot *parent, enum qm_kind kind,
                      struct qms_class *klass)
{
    unsigned stripe = qms_rwlock_read(&c->lock);
    struct qms_slot *root = parent ? lock_tree(parent) : NULL;
    struct qms_recorder *recorder;
    uint64_t id, parent_id = 0;
    int error;

    if (!root) {
        parent = NULL;
        root = slot;
        pthread_mutex_lock(&root->tree);
    }
    id = atomic_fetch_add_explicit(&c->next_id, 1, memory_order_relaxed);
    error = qm_context_begin(c->engine->prefetcher, c->level,
                             parent ? parent->context : NULL, kind, stream_class(klass),
                             id, slot, &slot->context);
    if (error == 0) {
        slot->klass = klass;
        slot->id = id;
        slot->kept = slot->held = 0;
        slot->recorded = false;
        set_around(&slot->around, parent, klass->index);
        own(c->engine->prefetcher, slot);
        recorder = recorder_of(c, root->id);
        if (recorder) {
            if (parent && parent->recorded)
                parent_id = parent->id;
            slot->recorded = qms_record_begin(
                recorder, id, kind,
                atomic_load_explicit(&klass->token, memory_order_acquire), parent_id);
        }
        atomic_store_explicit(&slot->root, root, memory_order_release);
        atomic_fetch_add_explicit(&c->open, 1, memory_order_relaxed);
        qms_stats_add(c->stats, QMS_CONTEXTS_BEGUN, 1);
        qms_class_add(klass, QMS_CLASS_CONTEXTS, 1);
    }
    pthread_mutex_unlock(&root->tree);
    qms_rwlock_read_unlock(&c->lock, stripe);
    return error;
}

/* One context of a tree has ended; the tree's lock is held. */
static void ended(void *opaque, struct qm_context *context, struct qm_work *work)
{
    struct qms_contexts *c = opaque;
    struct qms_slot *slot = context->user;

    learn(c, slot, work, slot->kept);
    slot->context = NULL;
    atomic_store_explicit(&slot->root, NULL, memory_order_release);
    atomic_fetch_sub_explicit(&c->open, 1, memory_order_relaxed);
}

void qms_context_end(struct qms_contexts *c, struct qms_slot *slot)
{
    unsigned stripe = qms_rwlock_read(&c->lock);
    struct qms_slot *root = lock_tree(slot);

    if (!root) {
        qms_rwlock_read_unlock(&c->lock, stripe);
        return;
    }
    /* In a trace, ending a context ends what is nested in it, so one E does. */
    if (slot->recorded)
        qms_record_end(recorder_of(c, root->id), slot->id);
    qm_context_end(c->engine->prefetcher, slot->context, ended, c);
    pthread_mutex_unlock(&root->tree);
    qms_rwlock_read_unlock(&c->lock, stripe);
}

void qms_context_arrive(struct qms_contexts *c, struct qms_slot *slot, char type,
                        uint64_t offset, uint64_t count, struct qms_ref *ref)
{
    /* The shadow must not go meanwhile; as elsewhere, this lock comes before the
     * tree's.
     */
    const bool shadowed =
        !c->recorder && atomic_load_explicit(&c->shadow, memory_order_relaxed);
    unsigned stripe = shadowed ? qms_rwlock_read(&c->lock) : 0;
    struct qms_slot *root = slot ? lock_tree(slot) : NULL;
    struct qms_recorder *recorder = c->recorder;
    uint64_t recorded_id = 0;

    if (shadowed)
        recorder = recorder_of(c, root ? root->id : 0);
    if (root) {
        *ref = (struct qms_ref){slot, slot->klass, slot->id, slot->around, 1};
        /* A caller without a recorder has no read lock, with which shadows are
         * exchanged. */
        if (recorder && slot->recorded)
            recorded_id = slot->id;
    } else {
        *ref = (struct qms_ref){.klass = qms_class_at(c->classes, QMS_CLASS_NONE),
                                .blocks = 1};
    }
    if (recorder)
        qms_record_io(recorder, type, recorded_id, offset, count);
    if (root)
        pthread_mutex_unlock(&root->tree);
    if (shadowed)
        qms_rwlock_read_unlock(&c->lock, stripe);
}

unsigned qms_context_access(struct qms_contexts *c, const struct qms_ref *ref,
                            uint64_t block, enum qm_access access,
                            struct qm_candidate candidates[QM_CANDIDATES_MAX])
{
    struct qms_slot *slot = NULL, *root = NULL;
    struct qm_context *target;
    struct reading reading;
    unsigned n = 0;

    if (!c->mining)
        return 0;
    if (c->level == QM_LEVEL_NONE) {
        root = slot = &c->all;
        pthread_mutex_lock(&root->tree);
        if (!slot->context) { /* memory was out */
            pthread_mutex_unlock(&root->tree);
            return 0;
        }
    } else if (ref->slot) {
        slot = ref->slot;
        root = lock_tree(slot);
        /* The request may outlive its context, and the slot have got another. */
        if (root && slot->id != ref->id) {
            pthread_mutex_unlock(&root->tree);
            root = NULL;
        }
    }
    if (!root)
        return 0;
    target = c->level == QM_LEVEL_NONE ? slot->context
                                       : qm_context_target(c->level, slot->context);
    slot = target->user;
    if (target->stream) {
        reading = (struct reading){c, slot};
        n = qm_engine_extend(c->engine, target->stream, ref->klass->index, block,
                             ref->blocks, access, learn_in_passing, &reading,
                             candidates);
        grow(c, slot);
    }
    pthread_mutex_unlock(&root->tree);
    return n;
}
