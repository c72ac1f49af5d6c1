/* SPDX-License-Identifier: BSD-3-Clause */
/* verify.c - whether others may have written to the volume while the tier was away, and
 * blocks that are not believed until they were compared with it.
 *
 * The argument.  From qm_tier_open() on, every change of the volume drops what it
 * outdates.  What was changed before that, without this tier, the tier cannot know: a
 * server without it, another host, a backup that was restored.  Something that changes
 * with every such change can be compared, if there is such a thing: the *state*, a text
 * that the caller gives.  A tier whose recorded state is the one that the caller says
 * it must be is right.  For all others there is one witness, the volume itself: a block
 * that was recovered is *unverified*, and is a miss, until its data was read from the
 * volume and has the checksum that the copy has.  A sample of blocks would be no proof:
 * n of N blocks miss a change of k of them with probability (1 - k/N)^n.
 *
 * A copy that is unverified was not changed since qm_tier_open(), else it would have
 * been dropped; so was its block, and what is read from the volume at any time since is
 * what the volume has now.  That is why qm_tier_verify() needs no ticket.  What differs
 * by chance in none of the checksum's 43 bits goes unnoticed: one changed block in
 * 8.8e12.
 *
 * The tag of an unverified slot has the bit QM_TIER_UNVERIFIED, so that neither the
 * server's end nor a crash makes it believed.  It is set, durably, before a new state
 * is recorded, and taken away by a buffered write: if that is lost, the block is
 * compared again.
 *
 * A tag that is set to live must not undo that a change has killed it: kill and removal
 * from the index, and look-up and the tag's change, exclude each other by verify.lock
 * as long as something is unverified.
 *
 * A state that changes with this program's own writes, too (config.observe), is erased
 * from the file, durably, before the first of them, and recorded again when nothing
 * changes.  So a recorded state never stands for an older version of the volume than
 * the tier has: if the volume is set back to that version, the tier is not believed.
 * Before a state is erased, it is compared with the volume's: if they differ, or if
 * that is not known, no state is recorded any more.  What others change between this
 * program's own changes, while no state is recorded, goes unnoticed. */
#include "tier/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETTLE_STEPS 30 /* at the end, for the state to be known */
#define SETTLE_NS    5000000

int verify_new(struct qm_tier *t)
{
    uint64_t slots = (uint64_t)t->g.slots * t->g.segments;

    if (!t->config.data)
        return 0;
    t->verify.bits = tier_alloc(t, (slots + 63) / 64 * 8);
    t->verify.slots = t->verify.bits ? slots : 0;
    return t->verify.bits ? 0 : ENOMEM;
}

void verify_free(struct qm_tier *t)
{
    free((void *)t->verify.bits);
    t->verify.bits = NULL;
}

static uint64_t number(const struct qm_tier *t, uint32_t segment, uint32_t slot)
{
    return (uint64_t)segment * t->g.slots + slot;
}

void verify_expect(struct qm_tier *t, uint32_t segment, uint32_t slot)
{
    uint64_t i = number(t, segment, slot), bit = UINT64_C(1) << (i % 64);

    if (!(atomic_fetch_or(&t->verify.bits[i / 64], bit) & bit))
        atomic_fetch_add(&t->verify.left, 1);
}

bool verify_pending(struct qm_tier *t, uint32_t segment, uint32_t slot)
{
    uint64_t i = number(t, segment, slot);

    /* A tier that was made larger has slots beyond. */
    return atomic_load_explicit(&t->verify.left, memory_order_acquire) > 0 &&
           i < t->verify.slots &&
           (atomic_load(&t->verify.bits[i / 64]) >> (i % 64) & 1);
}

bool verify_done(struct qm_tier *t, uint32_t segment, uint32_t slot)
{
    uint64_t i = number(t, segment, slot), bit = UINT64_C(1) << (i % 64);

    if (atomic_load(&t->verify.left) == 0 || i >= t->verify.slots ||
        !(atomic_fetch_and(&t->verify.bits[i / 64], ~bit) & bit))
        return false;
    atomic_fetch_sub(&t->verify.left, 1);
    return true;
}

bool verify_lock(struct qm_tier *t)
{
    bool some = atomic_load(&t->verify.left) > 0;

    if (some)
        pthread_mutex_lock(&t->verify.lock);
    return some;
}

void verify_unlock(struct qm_tier *t, bool locked)
{
    if (locked)
        pthread_mutex_unlock(&t->verify.lock);
}

/* The copy is that of the volume, unless a change has dropped it meanwhile. */
static void believe(struct qm_tier *t, const struct slot *s)
{
    uint8_t tag = qm_tier_live_tag(segment_of(t, s->segment)->incarnation);
    int r = 0;

    pthread_mutex_lock(&t->verify.lock);
    if (index_confirm(t, s, false) && verify_pending(t, s->segment, s->slot)) {
        r = tier_write(t, QM_TIER_META, &tag, 1,
                       qm_tier_tag_at(&t->g, s->segment, s->slot), false);
        (void)verify_done(t, s->segment, s->slot);
        COUNT(t, verified);
    }
    pthread_mutex_unlock(&t->verify.lock);
    if (r != 0)
        tier_error(t, WARN_WRITE, r);
}

static void verify_one(struct qm_tier *t, uint64_t block, const void *data)
{
    struct slot s;

    if (block >= t->g.volume_blocks || !index_find(t, block, &s)) /* it pins */
        return;
    if (!verify_pending(t, s.segment, s.slot)) {
        unpin(t, &s);
    } else if (qm_tier_checksum(block, data, t->g.block_size) == s.check) {
        believe(t, &s);
        unpin(t, &s);
    } else {
        unpin(t, &s);
        journal_drop(t, block);
        COUNT(t, outdated);
        tier_warn(t, WARN_OUTDATED,
                  "the volume was changed without the tier: block %llu differs, and is "
                  "dropped; all that the tier had before is compared with the volume "
                  "when it is first read",
                  (unsigned long long)block);
    }
}

void qm_tier_verify(struct qm_tier *t, uint64_t block, const void *data, uint64_t n)
{
    for (uint64_t i = 0; i < n && qm_tier_unverified(t) > 0 && !tier_dead(t); i++)
        verify_one(t, block + i, (const char *)data + i * t->g.block_size);
}

uint64_t qm_tier_unverified(struct qm_tier *t)
{
    return atomic_load_explicit(&t->verify.left, memory_order_acquire);
}

/* In place of a state: this program itself has said that the volume changes without the
 * tier, so no caller's word is taken against that. */
#define DISCLAIMED "disclaimed"

bool verify_is_proven(const struct qm_tier *t)
{
    const char *before = t->config.before;

    if (t->config.verify == QM_TIER_VERIFY_ALWAYS ||
        strcmp(t->super.known, DISCLAIMED) == 0)
        return false;
    if (t->config.verify == QM_TIER_VERIFY_NEVER)
        return true;
    return before && before[0] && strcmp(before, t->super.known) == 0;
}

/* ---- The state
 * ------------------------------------------------------------------------ */

#define OTHERS                                                                         \
    "another program has changed the volume, or its file's permissions, while it was " \
    "served: what is cached may be old, and the next start compares what the tier "    \
    "holds"

/* Until this change the volume was in the state that is recorded, unless another
 * program has changed it.  The next state that is recorded would hide that for ever. */
void state_change(struct qm_tier *t)
{
    char text[QM_TIER_STATE] = "";
    bool known, others = false;
    int r = 0;

    if (!atomic_load(&t->state.recorded))
        return;
    pthread_mutex_lock(&t->state.lock); /* no change goes on before this has looked */
    known =
        !atomic_load(&t->state.recorded) || t->config.observe(t->config.opaque, text);
    pthread_mutex_lock(&t->die_lock);
    if (atomic_load(&t->state.recorded) && !tier_dead(t)) {
        others = known && t->super.known[0] && strcmp(text, t->super.known) != 0;
        if (!known || others)
            atomic_store(&t->state.disclaimed, true);
        t->super.known[0] = 0;
        r = super_store(t, true);
        atomic_store(&t->state.recorded, r != 0);
    }
    pthread_mutex_unlock(&t->die_lock);
    pthread_mutex_unlock(&t->state.lock);
    if (r != 0)
        tier_die(t, "cannot erase the volume's state: %s", strerror(r));
    if (others)
        tier_warn(t, 0, "%s", OTHERS);
}

static bool is_quiet(struct qm_tier *t, uint64_t ticket)
{
    return atomic_load(&t->journal.writing) == 0 &&
           atomic_load(&t->journal.now) == ticket;
}

/* A state is recorded, so this program has changed nothing since.  If the volume has
 * another one now, another program has: the next start must compare the blocks, and no
 * later state makes that unnecessary.  False: that cannot be known now. */
static bool look_for_others(struct qm_tier *t, uint64_t ticket)
{
    char text[QM_TIER_STATE];
    bool others = false;
    int r = 0;

    if (!is_quiet(t, ticket) || !t->config.observe(t->config.opaque, text))
        return false;
    pthread_mutex_lock(&t->die_lock);
    if (atomic_load(&t->state.recorded) && is_quiet(t, ticket) && !tier_dead(t) &&
        t->super.known[0] && strcmp(text, t->super.known) != 0) {
        others = true;
        atomic_store(&t->state.disclaimed, true);
        t->super.known[0] = 0;
        r = super_store(t, true);
        atomic_store(&t->state.recorded, r != 0);
    }
    pthread_mutex_unlock(&t->die_lock);
    if (r != 0)
        tier_die(t, "cannot erase the volume's state: %s", strerror(r));
    if (others)
        tier_warn(t, 0, "%s", OTHERS);
    return true;
}

/* A writer counts itself, then looks whether a state is recorded; this says that one
 * is, then looks for writers.  So one of them sees the other. */
bool state_observe(struct qm_tier *t)
{
    uint64_t ticket = atomic_load(&t->journal.now);
    char text[QM_TIER_STATE];
    bool recorded;

    if (!t->config.observe || atomic_load(&t->state.disclaimed) || tier_dead(t))
        return true;
    if (atomic_load(&t->state.recorded))
        return look_for_others(t, ticket);
    if (!is_quiet(t, ticket) || !t->config.observe(t->config.opaque, text))
        return false;
    pthread_mutex_lock(&t->die_lock);
    if (atomic_load(&t->state.recorded) || atomic_load(&t->state.disclaimed)) {
        pthread_mutex_unlock(&t->die_lock);
        return true;
    }
    atomic_store(&t->state.recorded, true);
    if (is_quiet(t, ticket) && !tier_dead(t)) {
        memset(t->super.known, 0, sizeof t->super.known);
        snprintf(t->super.known, sizeof t->super.known, "%s", text);
        if (super_store(t, false) != 0)
            t->super.known[0] = 0; /* the next write of it says so */
    } else {
        atomic_store(&t->state.recorded, false);
    }
    recorded = atomic_load(&t->state.recorded);
    pthread_mutex_unlock(&t->die_lock);
    return recorded;
}

int qm_tier_disclaim(struct qm_tier *t)
{
    int r;

    pthread_mutex_lock(&t->die_lock);
    atomic_store(&t->state.disclaimed, true);
    atomic_store(&t->state.recorded, false);
    memset(t->super.known, 0, sizeof t->super.known);
    strcpy(t->super.known, DISCLAIMED);
    r = tier_dead(t) ? ENODEV : super_store(t, true);
    pthread_mutex_unlock(&t->die_lock);
    return r;
}

void state_settle(struct qm_tier *t)
{
    const struct timespec step = {0, SETTLE_NS};

    for (int i = 0; i < SETTLE_STEPS && !state_observe(t); i++)
        nanosleep(&step, NULL);
}
