/* SPDX-License-Identifier: BSD-3-Clause */
/* recover.c - what of a file may be believed: superblock, identity, witness; then the
 * footers, which are all that is read.
 *
 * What is not believed is made invalid durably before the tier is used: while it is not
 * in the index, changes do not kill it (invariant (I) of format.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tier/internal.h"

#define AHEAD        8 /* entries whose place in the index is fetched meanwhile */
#define FOREIGN_LOOK (128u << 10) /* where file systems have their superblocks */

static int read_meta(struct qm_tier *t, void *buf, size_t n, uint64_t at)
{
    return t->io.read(t->io.opaque, QM_TIER_META, buf, n, at);
}

static int write_copy(struct qm_tier *t, struct qm_tier_super *super, bool durable)
{
    char page[QM_TIER_PAGE] = {0};

    super->sequence++;
    qm_tier_super_seal(super);
    memcpy(page, super, sizeof *super);
    return tier_write(t, QM_TIER_META, page, sizeof page,
                      super->sequence % 2 * QM_TIER_PAGE, durable);
}

int super_store(struct qm_tier *t, bool durable)
{
    return write_copy(t, &t->super, durable);
}

int super_write(struct qm_tier *t, enum qm_tier_state state)
{
    int r = ENODEV;

    pthread_mutex_lock(&t->die_lock);
    if (!tier_dead(t)) {
        t->super.state = (uint16_t)state;
        r = write_copy(t, &t->super, true);
    }
    pthread_mutex_unlock(&t->die_lock);
    return r;
}

int super_resize(struct qm_tier *t, uint32_t segments)
{
    uint32_t was = t->super.segments;
    int r = ENODEV;

    pthread_mutex_lock(&t->die_lock);
    if (!tier_dead(t)) {
        t->super.segments = segments;
        r = write_copy(t, &t->super, true);
        if (r != 0)
            t->super.segments = was;
    }
    pthread_mutex_unlock(&t->die_lock);
    return r;
}

static bool disown(struct qm_tier *t)
{
    struct qm_tier_testimony none = {0};

    qm_tier_testimony_seal(&none);
    return t->config.witness &&
           qm_tier_witness_write(t->config.witness, &none, &t->witness) == 0;
}

/* With die_lock, or alone. */
bool super_invalidate(struct qm_tier *t)
{
    t->super.state = QM_TIER_INVALID;
    if (write_copy(t, &t->super, true) == 0 && write_copy(t, &t->super, true) == 0)
        return true;
    if (!t->io.fixed && t->io.resize(t->io.opaque, 0) == 0 &&
        t->io.sync(t->io.opaque) == 0)
        return true;
    return disown(t);
}

static bool is_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

enum look { NOTHING, OURS, DAMAGED, FOREIGN };

/* What the file begins with.  Allocates nothing, so that a tier is found, and can be
 * made invalid, when memory is out. */
static int look(struct qm_tier *t, enum look *found)
{
    bool magic = false, zero = true;
    char page[QM_TIER_PAGE];

    *found = NOTHING;
    for (uint64_t at = 0; at < t->io.size && at < FOREIGN_LOOK; at += sizeof page) {
        uint64_t left = t->io.size - at;
        size_t n = left < sizeof page ? (size_t)left : sizeof page;
        struct qm_tier_super super;
        int r = read_meta(t, page, n, at);

        if (r != 0)
            return r;
        zero = zero && is_zero(page, n);
        memcpy(&super, page, sizeof super);
        if (at >= QM_TIER_SUPERS || n < sizeof page)
            continue;
        magic = magic || super.magic == QM_TIER_MAGIC;
        if (qm_tier_super_ok(&super) &&
            (*found != OURS || super.sequence > t->super.sequence)) {
            t->super = super;
            *found = OURS;
        }
    }
    if (*found == NOTHING && zero && !t->io.fixed && t->io.blank) {
        int r = t->io.blank(t->io.opaque, &zero);

        if (r != 0)
            return r;
    }
    if (*found == NOTHING && !zero)
        *found = magic ? DAMAGED : FOREIGN;
    return 0;
}

/* Why a tier is not that of config, into why; false: it is. */
static bool differs(struct qm_tier *t, char *why, size_t len)
{
    const struct qm_tier_identity *want = &t->config.identity;
    const struct qm_tier_super *have = &t->super;
    struct qm_tier_geometry g;
    int r;

    why[0] = '\0';
    if (strcmp(have->volume, want->volume) != 0 &&
        !(t->config.same_volume &&
          t->config.same_volume(t->config.opaque, have->volume, why, len))) {
        if (why[0] == '\0')
            snprintf(why, len, "it was of volume \"%.100s\", not \"%.100s\"",
                     have->volume, want->volume);
    } else if (have->volume_size != want->size)
        snprintf(why, len, "the volume had %llu bytes and has %llu now",
                 (unsigned long long)have->volume_size, (unsigned long long)want->size);
    else if (have->block_size != want->block_size)
        snprintf(why, len, "its blocks are of %u bytes, not of %u", have->block_size,
                 want->block_size);
    else if (have->generation != want->generation)
        snprintf(why, len, "the volume's generation is %llu now, not %llu",
                 (unsigned long long)want->generation,
                 (unsigned long long)have->generation);
    else if (have->state == QM_TIER_INVALID)
        snprintf(why, len, "it was detached or had failed");
    else if (have->inode && t->io.inode &&
             (have->inode != t->io.inode || have->birth != t->io.birth))
        snprintf(why, len, "it is a copy of the file that was used before");
    else if (!qm_tier_geometry_of(&g, have->slots, have->segments, have->volume_size,
                                  have->block_size) ||
             qm_tier_file_bytes(&g) > t->io.size)
        snprintf(why, len, "it has been truncated");
    else if (t->config.size != 0 &&
             (t->config.size < g.segments_at ||
              (t->config.size - g.segments_at) / g.segment_bytes < 4))
        snprintf(why, len, "its segments are too large for its new size");
    else if (t->config.witness) {
        struct qm_tier_testimony w;

        r = qm_tier_witness_read(t->config.witness, &w);
        if (r == ENOENT)
            snprintf(why, len, "there is no witness for it (%.200s)",
                     t->config.witness);
        else if (r == EINVAL)
            snprintf(why, len, "its witness is damaged (%.200s)", t->config.witness);
        else if (r != 0)
            snprintf(why, len, "its witness cannot be read (%.200s: %s)",
                     t->config.witness, strerror(r));
        else if (memcmp(w.uuid, have->uuid, 16) != 0)
            snprintf(why, len, "its witness is of another tier, or saw it fail");
        else if (w.epoch != have->epoch && w.coming != have->epoch)
            snprintf(why, len,
                     "it is an older copy: state %llu, and the last one was %llu",
                     (unsigned long long)have->epoch, (unsigned long long)w.epoch);
        else
            return false;
    } else {
        return false;
    }
    return true;
}

static int make_uuid(uint8_t uuid[16])
{
    return getrandom(uuid, 16, 0) == 16 ? 0 : EIO;
}

/* An empty tier.  Old footers have another UUID; old superblocks, whose numbers are
 * higher, must not come back. */
static int format(struct qm_tier *t)
{
    static const char zeros[QM_TIER_SUPERS];
    int r;

    memset(&t->super, 0, sizeof t->super);
    if (!qm_tier_geometry(&t->g, t->config.size, t->config.segment,
                          t->config.identity.size, t->config.identity.block_size))
        return EINVAL;
    r = make_uuid(t->super.uuid);
    if (r == 0 && !t->io.fixed) {
        /* First cut, so that nothing old takes up space. */
        r = t->io.resize(t->io.opaque, 0);
        if (r == 0)
            r = t->io.resize(t->io.opaque, qm_tier_file_bytes(&t->g));
    }
    if (r == 0)
        r = tier_write(t, QM_TIER_META, zeros, sizeof zeros, 0, true);
    t->super.block_size = t->g.block_size;
    t->super.volume_size = t->config.identity.size;
    t->super.generation = t->config.identity.generation;
    t->super.slots = t->g.slots;
    t->super.segments = t->g.segments;
    t->super.inode = t->io.inode;
    t->super.birth = t->io.birth;
    snprintf(t->super.volume, sizeof t->super.volume, "%s", t->config.identity.volume);
    return r;
}

/* ---- Footers
 * -------------------------------------------------------------------------- */

struct recovery {
    char *meta;
    bool other_boot;
    bool proven; /* nobody has changed the volume without the tier */
    uint64_t highest;
    uint32_t *sealed;
    uint32_t n;
};

static uint64_t incarnation_of(struct qm_tier *t, uint32_t segment)
{
    return segment_of(t, segment)->incarnation;
}

static int by_incarnation(const void *a, const void *b, void *opaque)
{
    uint64_t x = incarnation_of(opaque, *(const uint32_t *)a);
    uint64_t y = incarnation_of(opaque, *(const uint32_t *)b);

    return x < y ? -1 : x > y;
}

/* Takes the live blocks of one footer.  Returns how many. */
static uint32_t take_blocks(struct qm_tier *t, struct recovery *rec, uint32_t number,
                            bool *changed)
{
    const struct qm_tier_footer *f = (const void *)rec->meta;
    const struct qm_tier_entry *entries = (const void *)(f + 1);
    uint8_t *tags = (uint8_t *)rec->meta + qm_tier_footer_bytes(t->g.slots);
    uint8_t live_tag = qm_tier_live_tag(f->incarnation);
    uint32_t live = 0;

    for (uint32_t i = 0; i < f->count; i++) {
        struct slot s = {.block = entries[i].block,
                         .check = entries[i].check,
                         .segment = number,
                         .slot = i};

        if (i + AHEAD < f->count && entries[i + AHEAD].block != QM_TIER_VOID)
            index_prefetch(t, entries[i + AHEAD].block);
        if (entries[i].block == QM_TIER_VOID ||
            (tags[i] & ~QM_TIER_UNVERIFIED) != live_tag)
            continue;
        if (!(rec->other_boot && intent_is_marked(t, s.block)) &&
            index_add(t, &s, UINT64_MAX) == 0) {
            /* What was not compared yet, nobody vouches for. */
            uint8_t tag = live_tag | (rec->proven ? tags[i] : QM_TIER_UNVERIFIED);

            if (tag & QM_TIER_UNVERIFIED)
                verify_expect(t, number, i);
            *changed = *changed || tag != tags[i];
            tags[i] = tag;
            live++;
            COUNT(t, recovered);
            continue;
        }
        tags[i] = 0;
        *changed = true;
        COUNT(t, dropped);
    }
    return live;
}

static int recover_segment(struct qm_tier *t, struct recovery *rec, uint32_t number)
{
    static const struct qm_tier_footer none;
    const struct qm_tier_footer *f = (const void *)rec->meta;
    struct segment *s = segment_of(t, number);
    uint64_t at = qm_tier_footer_at(&t->g, number);
    bool changed = false;
    uint32_t live = 0;
    int r = read_meta(t, rec->meta, qm_tier_footer_bytes(t->g.slots) + t->g.slots, at);

    if (r == 0 && memcmp(f, &none, sizeof none) == 0)
        return 0; /* nothing was ever here */
    if (r == 0 && qm_tier_footer_ok(f, &t->g, t->super.uuid, number)) {
        s->incarnation = f->incarnation;
        if (f->incarnation > rec->highest)
            rec->highest = f->incarnation;
        live = take_blocks(t, rec, number, &changed);
    } else if (r != 0) {
        tier_error(t, WARN_READ, r);
    }
    if (live == 0) {
        return tier_write(t, QM_TIER_META, &none, sizeof none, at, false);
    }
    s->doubtful = t->super.doubtful != 0;
    s->state = SEGMENT_SEALED;
    s->filled = tier_now(t);
    rec->sealed[rec->n++] = number;
    if (!changed)
        return 0;
    return tier_write(t, QM_TIER_META, rec->meta + qm_tier_footer_bytes(t->g.slots),
                      t->g.slots, qm_tier_tag_at(&t->g, number, 0), false);
}

static int recover_all(struct qm_tier *t, struct recovery *rec)
{
    int r = intent_load(t);

    for (uint32_t i = 0; i < t->g.segments && r == 0; i++)
        r = recover_segment(t, rec, i);
    if (r != 0)
        return r;
    qsort_r(rec->sealed, rec->n, sizeof rec->sealed[0], by_incarnation, t);
    for (uint32_t i = 0; i < rec->n; i++)
        log_push(t, &t->log.sealed, rec->sealed[i]);
    /* What was killed or set aside stays so, before anything is unmarked or served.  So
     * does what a server wrote that ended before it was synced: it could have been the
     * bit of a region, which is loaded as marked now, or tags that another recovery has
     * killed. */
    r = tier_sync(t);
    if (r == 0 && rec->other_boot)
        r = intent_format(t);
    return r;
}

static int recover(struct qm_tier *t)
{
    struct recovery rec = {0};
    uint64_t start = tier_now(t);
    int r;

    rec.meta = tier_pages(t, t->g.meta_bytes);
    rec.sealed = malloc(t->g.segments * sizeof rec.sealed[0]);
    rec.other_boot =
        !t->config.boot_id[0] || strcmp(t->super.boot_id, t->config.boot_id) != 0;
    rec.proven = verify_is_proven(t);
    /* What was lost may be read only after further starts. */
    if (rec.other_boot && t->super.state != QM_TIER_CLEAN)
        t->super.doubtful = 1;
    r = rec.meta && rec.sealed ? recover_all(t, &rec) : ENOMEM;
    t->log.incarnation = rec.highest;
    t->recovery_ns = tier_now(t) - start;
    atomic_fetch_sub(&t->memory, rec.meta ? t->g.meta_bytes : 0);
    free(rec.meta);
    free(rec.sealed);
    return r;
}

/* Announces a new epoch: the witness first, then the tier, then the witness again. */
static int begin_epoch(struct qm_tier *t)
{
    struct qm_tier_testimony w = {.epoch = t->super.epoch,
                                  .coming = t->super.epoch + 1};
    const char *path = t->config.witness;
    int r = 0;

    memcpy(w.uuid, t->super.uuid, 16);
    qm_tier_testimony_seal(&w);
    if (path && t->super.epoch > 0)
        r = qm_tier_witness_write(path, &w, &t->witness);
    if (r == 0) {
        t->super.epoch++;
        snprintf(t->super.boot_id, sizeof t->super.boot_id, "%s", t->config.boot_id);
        snprintf(t->super.volume, sizeof t->super.volume, "%s",
                 t->config.identity.volume);
        memset(t->super.known, 0, sizeof t->super.known);
        if (t->config.known)
            snprintf(t->super.known, sizeof t->super.known, "%s", t->config.known);
        atomic_store(&t->state.recorded, t->config.observe && t->super.known[0]);
        r = super_write(t, QM_TIER_OPEN);
    }
    if (r == 0 && path) {
        w.epoch = t->super.epoch;
        w.coming = 0;
        qm_tier_testimony_seal(&w);
        r = qm_tier_witness_write(path, &w, &t->witness);
    }
    if (t->super.epoch < UINT64_C(1) << 31 && t->log.incarnation < t->super.epoch << 32)
        t->log.incarnation = t->super.epoch << 32;
    return r;
}

static int build(struct qm_tier *t)
{
    int r = log_new(t);

    rebuild_size(t);
    reuse_size(t);
    if (r == 0)
        r = index_new(t, (uint64_t)t->g.slots * t->g.segments);
    if (r == 0)
        r = verify_new(t);
    if (r == 0)
        r = journal_new(t);
    if (r == 0)
        r = intent_new(t);
    if (r == 0)
        r = admit_new(t);
    if (r == 0)
        r = queue_new(t);
    if (r == 0)
        r = reader_new(t);
    return r;
}

int recover_open(struct qm_tier *t, char *err, size_t len)
{
    enum look found;
    char why[400];
    bool fresh = true;
    int r = look(t, &found);

    t->found = found == OURS;
    if (r == 0 && found == FOREIGN) {
        snprintf(
            err, len, "%s holds something else than a tier; if that is not needed, %s",
            t->config.path,
            t->io.fixed ? "overwrite its first 128 KiB with zeros" : "remove the file");
        return EINVAL;
    }
    if (r == 0 && t->config.size == 0)
        t->config.size = t->io.size;
    if (r == 0 && t->io.fixed && t->config.size > t->io.size) {
        snprintf(err, len, "%s has %llu bytes, fewer than the tier's size",
                 t->config.path, (unsigned long long)t->io.size);
        return EINVAL;
    }
    if (r == 0 && found == OURS && differs(t, why, sizeof why))
        tier_warn(t, 0, "%s is emptied: %s", t->config.path, why);
    else if (r == 0 && found == DAMAGED)
        tier_warn(t, 0, "%s is emptied: it is damaged, or of an earlier version",
                  t->config.path);
    else if (r == 0 && found == OURS)
        fresh = false;
    if (r == 0 && !fresh)
        qm_tier_geometry_of(&t->g, t->super.slots, t->super.segments,
                            t->super.volume_size, t->super.block_size);
    if (r == 0 && fresh)
        r = format(t);
    if (r == 0)
        r = build(t);
    if (r == 0)
        r = fresh ? intent_format(t) : recover(t);
    t->size = qm_tier_file_bytes(&t->g);
    for (uint32_t i = 0; r == 0 && i < t->g.segments; i++)
        if (segment_of(t, i)->state == SEGMENT_FREE)
            log_push(t, &t->log.free, i);
    if (r == 0)
        r = begin_epoch(t);
    if (r != 0)
        snprintf(err, len, "%s: %s", t->config.path ? t->config.path : "tier",
                 strerror(r));
    return r;
}
