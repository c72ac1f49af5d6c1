/* SPDX-License-Identifier: BSD-3-Clause */
/* tier.c - see tier.h. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend.h"
#include "server/server.h"
#include "server/tier-file.h"
#include "server/tier.h"
#include "server/volume-name.h"
#include "server/volume.h"
#include "tier/format.h"
#include "tier/tier.h"

#define READERS 4 /* threads for requests of several blocks */

/* At the server's end, memory is handed over for so long. */
#define FLUSH_NS (UINT64_C(5) * 1000000000)

/* Changes that were begun before the tier was attached are not known to it. */
static bool observe(void *opaque, char text[QM_TIER_STATE])
{
    struct qms_server *s = opaque;

    return atomic_load(&s->tiers.told_all) && qms_volume_observe(NULL, text);
}

static void warn(void *opaque, const char *message)
{
    const struct qms_server *s = opaque;

    qms_log(QMS_WARNING, "tier=%s: %s", s->config.tier, message);
}

static bool same_volume(void *opaque, const char *had, char *why, size_t len)
{
    const struct qms_server *s = opaque;
    char volume[QMS_VOLUME_NAME];

    qms_volume_name(volume);
    return !s->config.tier_volume && qms_volume_same(had, volume, why, len);
}

/* volume is where its name is kept. */
static struct qm_tier_config configure(const struct qms_config *c, uint64_t size,
                                       char volume[QMS_VOLUME_NAME])
{
    struct qm_tier_config config;

    qm_tier_config_init(&config);
    qms_volume_name(volume);
    config.identity.volume = c->tier_volume ? c->tier_volume : volume;
    config.identity.size = size;
    config.identity.block_size = c->block_size;
    config.path = c->tier;
    config.witness = c->tier_witness;
    config.size = c->tier_size;
    config.admit = c->tier_admit;
    config.update = QM_TIER_UPDATE_AUTO;
    config.write_rate = c->tier_write_rate;
    config.verify = c->tier_verify;
    config.threads = READERS;
    config.boot_id = getenv("QUICKMINE_TEST_BOOT_ID"); /* a crash of the machine */
    return config;
}

/* Whether there can be such a tier, of a volume of size bytes. */
static int try_tier(const struct qms_config *c, uint64_t size, char *why, size_t len)
{
    char volume[QMS_VOLUME_NAME], err[256];
    struct qm_tier_config config;
    bool device = false;

    if (qms_tier_try_file(c->tier, &device, why, len) == -1 ||
        (c->tier_witness &&
         qms_tier_try_witness(c->tier_witness, c->tier, why, len) == -1))
        return -1;
    if (c->tier_size == 0 && !device) {
        snprintf(why, len,
                 "tier=%s: give tier-size=SIZE, too: only that of a block device "
                 "is known",
                 c->tier);
        return -1;
    }
    config = configure(c, size, volume);
    if (qm_tier_check(&config, err, sizeof err) != 0) {
        snprintf(why, len, "tier-size=%" PRIu64 ", block-size=%" PRIu64 ": %s",
                 c->tier_size, c->block_size, err);
        return -1;
    }
    return 0;
}

int qms_tier_try(const struct qms_config *c)
{
    char why[PATH_MAX + 512];

    /* The volume's size is not known yet. */
    if (!c->tier || try_tier(c, c->block_size, why, sizeof why) == 0)
        return 0;
    nbdkit_error("%s", why);
    return -1;
}

unsigned qms_tier_threads(const struct qms_config *c)
{
    return c->tier ? READERS + 2 : 0;
}

/* What the tier has from before, and why it is compared, if it is. */
static void tell_recovered(const struct qms_server *s, struct qm_tier *tier,
                           const char *why)
{
    struct qm_tier_stats stats;

    qm_tier_get_stats(tier, &stats);
    if (stats.recovered > 0 && stats.unverified == 0)
        qms_log(QMS_NOTE, "tier=%s: %" PRIu64 " blocks are there from before",
                s->config.tier, stats.recovered);
    else if (stats.recovered > 0)
        qms_log(QMS_NOTE,
                "tier=%s: %" PRIu64 " blocks are there from before; %" PRIu64
                " of them are compared with the volume when they are first read, since "
                "%s",
                s->config.tier, stats.recovered, stats.unverified, why);
}

/* Opens the tier of s->config.  running: requests are served. */
static struct qm_tier *open_tier(struct qms_server *s, bool running, char *why,
                                 size_t len)
{
    char volume[QMS_VOLUME_NAME], before[QM_TIER_STATE], known[QM_TIER_STATE],
        err[512] = "";
    struct qm_tier_config config = configure(&s->config, s->size, volume);
    struct qm_tier *tier;
    bool observed;
    int error;

    config.warn = warn;
    config.same_volume = same_volume;
    config.opaque = s;
    qms_volume_state(before, known, &observed);
    if (running) {
        config.verify = QM_TIER_VERIFY_ALWAYS;
        if (observed)
            known[0] = '\0'; /* it changes now */
    }
    config.before = before;
    config.known = known;
    config.observe = observed ? observe : NULL;
    error = qm_tier_open(&config, &tier, err, sizeof err);
    if (error != 0) {
        /* What is not ours, or in use, is not to be removed. */
        snprintf(why, len, "tier=%s: %s%s", s->config.tier, err,
                 error == EINVAL || error == EBUSY || running
                     ? ""
                     : "; to go on without it, start without tier=");
        return NULL;
    }
    if (running)
        tell_recovered(s, tier, "this server has served the volume without it");
    else if (config.verify == QM_TIER_VERIFY_ALWAYS)
        tell_recovered(s, tier, "tier-verify=always");
    else if (config.verify == QM_TIER_VERIFY_NEVER)
        tell_recovered(s, tier,
                       "the server itself has changed the volume without the tier, "
                       "which was detached, or they were not compared yet");
    else if (before[0] == '\0')
        tell_recovered(s, tier, "nothing says whether others have changed the volume");
    else
        tell_recovered(s, tier,
                       "the volume may have been changed without the tier, which was "
                       "not closed, or not used last");
    return tier;
}

int qms_tier_open(struct qms_server *s)
{
    char why[PATH_MAX + 1024];
    struct qm_tier *tier;

    qms_quiesce_init(&s->tiers.grace);
    if (!s->config.tier)
        return 0;
    tier = open_tier(s, false, why, sizeof why);
    if (!tier) {
        nbdkit_error("%s", why);
        return -1;
    }
    atomic_store(&s->tiers.number, 1);
    atomic_store(&s->tiers.told, tier);
    atomic_store(&s->tiers.told_all, true);
    atomic_store(&s->tiers.served, tier);
    return 0;
}

/* Makes the parameters of a tier those of c. */
static void take_parameters(struct qms_config *c, const struct qms_config *from)
{
    c->tier = from->tier;
    c->tier_witness = from->tier_witness;
    c->tier_size = from->tier_size;
    c->tier_write_rate = from->tier_write_rate;
    c->tier_admit = from->tier_admit;
}

/* What was written before a tier was told of it, the layer below may still lose, and of
 * that the tier will have copies: it is flushed, here if possible, or by a client. */
static void cover_earlier(struct qms_server *s, struct qm_tier *tier)
{
    uint64_t flush;

    qm_tier_unflushed(tier);
    flush = qm_tier_flush_begin(tier);
    qm_tier_flush_end(tier, flush, qms_backend_flush(s));
}

int qms_tier_attach(struct qms_server *s, const struct qms_config *next, char *why,
                    size_t len)
{
    const struct qms_config was = s->config;
    char *path = strdup(next->tier);
    char *witness = next->tier_witness ? strdup(next->tier_witness) : NULL;
    struct qm_tier *tier = NULL;

    if (!path || (next->tier_witness && !witness)) {
        snprintf(why, len, "out of memory");
    } else if (try_tier(next, s->size, why, len) == 0) {
        take_parameters(&s->config, next);
        s->config.tier = path;
        s->config.tier_witness = witness;
        tier = open_tier(s, true, why, len);
    }
    if (!tier) {
        take_parameters(&s->config, &was);
        free(path);
        free(witness);
        return -1;
    }
    free(was.tier);
    free(was.tier_witness);
    atomic_store(&s->tiers.told, tier);
    qms_quiesce_wait(&s->tiers.grace);
    cover_earlier(s, tier);
    atomic_fetch_add(&s->tiers.number, 1);
    atomic_store(&s->tiers.told_all, qms_volume_sync());
    atomic_store(&s->tiers.served, tier);
    return 0;
}

int qms_tier_detach(struct qms_server *s, char *why, size_t len)
{
    struct qm_tier *tier = atomic_load(&s->tiers.told);
    int error;

    if (!tier) {
        snprintf(why, len, "there is no tier");
        return -1;
    }
    atomic_store(&s->tiers.served, NULL);
    qms_quiesce_wait(&s->tiers.grace);
    error = qm_tier_disclaim(tier);
    atomic_store(&s->tiers.told_all, false);
    atomic_store(&s->tiers.told, NULL);
    qms_quiesce_wait(&s->tiers.grace);
    error = qm_tier_close(tier, error ? QM_TIER_FORGET : QM_TIER_KEEP);
    if (error != 0)
        qms_log(QMS_WARNING,
                "tier=%s: %s; it is detached, and its file should be removed",
                s->config.tier, strerror(error));
    free(s->config.tier);
    free(s->config.tier_witness);
    s->config.tier = s->config.tier_witness = NULL;
    s->config.tier_size = 0;
    return 0;
}

int qms_tier_resize(struct qms_server *s, uint64_t size, char *why, size_t len)
{
    struct qm_tier *tier = atomic_load(&s->tiers.told);
    int error = tier ? qm_tier_resize(tier, size) : ENOENT;

    if (error == 0)
        s->config.tier_size = size;
    else
        snprintf(why, len, "tier-size=%" PRIu64 ": %s", size,
                 !tier ? "there is no tier"
                 : error == EINVAL
                     ? "it must hold at least 4 segments of the tier, and "
                       "be no larger than its device"
                     : strerror(error));
    return error == 0 ? 0 : -1;
}

/* A ticket: the tier's own, and above that the lower bits of the attachment's number.
 */
#define NUMBER_AT 48

static uint64_t attachment(struct qms_tiers *tiers)
{
    return atomic_load(&tiers->number) & 0xffff;
}

/* With a lock of the cache's. */
static uint64_t leaving(void *opaque, uint64_t block)
{
    struct qms_server *s = opaque;
    unsigned token;
    struct qm_tier *tier = qms_tiers_enter(&s->tiers, &token);
    uint64_t ticket = attachment(&s->tiers) << NUMBER_AT;

    /* Without a tier, it is of the one before, which does not come back. */
    if (tier)
        ticket |= qm_tier_ticket(tier);
    qms_tiers_leave(&s->tiers, token);
    return ticket;
}

static void hand_over(struct qms_server *s, struct qm_tier *tier, uint64_t block,
                      const void *data, uint64_t ticket)
{
    const struct qm_tier_insert insert = {.block = block,
                                          .data = data,
                                          .ticket = ticket,
                                          .frequency = QM_TIER_FREQUENCY_UNKNOWN};
    const bool at_end = s->tier_until != 0;

    /* Where connections need not see each other's writes, what a prefetch has read may
     * be old. */
    if (atomic_load_explicit(&s->uncached, memory_order_relaxed) ||
        (at_end && qms_now() > s->tier_until))
        return;
    while (qm_tier_insert(tier, &insert) == EAGAIN && at_end)
        qm_tier_drain(tier);
}

static void evicted(void *opaque, uint64_t block, const void *data, uint64_t ticket)
{
    struct qms_server *s = opaque;
    unsigned token;
    struct qm_tier *tier = qms_tiers_enter(&s->tiers, &token);

    if (tier && ticket >> NUMBER_AT == attachment(&s->tiers))
        hand_over(s, tier, block, data, ticket & ((UINT64_C(1) << NUMBER_AT) - 1));
    qms_tiers_leave(&s->tiers, token);
}

void qms_tier_below(struct qms_server *s, struct qm_cache_config *cache)
{
    /* With a control socket, one may come later. */
    if (!s->config.tier && !s->config.control)
        return;
    cache->leaving = leaving;
    cache->evicted = evicted;
}

static bool contains(void *opaque, uint64_t block)
{
    struct qms_server *s = opaque;
    unsigned token;
    struct qm_tier *tier = qms_tiers_enter(&s->tiers, &token);
    bool there = tier && qm_tier_contains(tier, block);

    qms_tiers_leave(&s->tiers, token);
    return there;
}

void qms_tier_place(struct qms_server *s)
{
    if (!s->config.tier && !s->config.control)
        return;
    s->engine.in_tier = contains;
}

void qms_tier_close(struct qms_server *s)
{
    struct qm_tier *tier = atomic_load(&s->tiers.told);
    int error;

    if (!tier)
        return;
    if (s->cache) {
        s->tier_until = qms_now() + FLUSH_NS;
        qm_cache_flush(s->cache);
        s->tier_until = 0;
    }
    atomic_store(&s->tiers.served, NULL);
    atomic_store(&s->tiers.told, NULL);
    error = qm_tier_close(tier, QM_TIER_KEEP);
    if (error != 0)
        qms_log(QMS_WARNING, "tier=%s: %s; some blocks are not kept", s->config.tier,
                strerror(error));
}
