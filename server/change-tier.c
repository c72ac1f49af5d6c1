/* SPDX-License-Identifier: BSD-3-Clause */
/* change-tier.c - see change-tier.h. */
#include "server/change-tier.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/parameters.h"
#include "server/server.h"
#include "server/values.h"

static const char *const keys[] = {"tier", "tier-size", "tier-admit", "tier-write-rate",
                                   "tier-witness"};

#define KEYS (sizeof keys / sizeof keys[0])

bool qms_change_tier_is(const char *key)
{
    for (size_t i = 0; i < KEYS; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static bool get(const struct qms_config *c, const char *key, char *text, size_t len)
{
    static const char *const admit[] = {[QM_TIER_ADMIT_AUTO] = "auto",
                                        [QM_TIER_ADMIT_ALL] = "all",
                                        [QM_TIER_ADMIT_NONE] = "none"};

    if (strcmp(key, "tier") == 0)
        snprintf(text, len, "%s", c->tier ? c->tier : "");
    else if (strcmp(key, "tier-size") == 0)
        snprintf(text, len, "%" PRIu64, c->tier_size);
    else if (strcmp(key, "tier-admit") == 0)
        snprintf(text, len, "%s", admit[c->tier_admit]);
    else if (strcmp(key, "tier-write-rate") == 0)
        snprintf(text, len, "%" PRIu64, c->tier_write_rate);
    else if (strcmp(key, "tier-witness") == 0)
        snprintf(text, len, "%s", c->tier_witness ? c->tier_witness : "");
    else
        return false;
    return true;
}

bool qms_change_tier_get(const struct qms_server *s, const char *key, char *text,
                         size_t len)
{
    return get(&s->config, key, text, len);
}

static const struct qms_setting *find(const struct qms_setting *settings, size_t n,
                                      const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(settings[i].key, key) == 0)
            return &settings[i];
    return NULL;
}

/* Parses the settings into next, which has copies of its own of what it names. */
static int parse(const struct qms_setting *settings, size_t n, struct qms_config *next,
                 char *err, size_t len)
{
    int r = 0;

    qms_value_tell(err, len);
    for (size_t i = 0; i < n && r == 0; i++) {
        const struct qms_setting *x = &settings[i];

        if (strcmp(x->key, "tier") != 0 && strcmp(x->key, "tier-witness") != 0) {
            for (size_t k = 0; k < qms_key_count; k++)
                if (strcmp(qms_keys[k].key, x->key) == 0)
                    r = qms_key_set(k, x->value, next);
        } else if (x->value[0] != '/' || strlen(x->value) >= PATH_MAX) {
            /* The server's directory is not the client's. */
            r = qms_value_wrong(x->key, x->value, "an absolute path");
        } else {
            char **to = strcmp(x->key, "tier") == 0 ? &next->tier : &next->tier_witness;

            *to = strdup(x->value);
            if (!*to) {
                snprintf(err, len, "out of memory");
                r = -1;
            }
        }
    }
    qms_value_tell(NULL, 0);
    return r;
}

static bool is_same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool is_dead(struct qms_server *s)
{
    struct qm_tier *tier = atomic_load(&s->tiers.told);
    struct qm_tier_stats stats = {0};

    if (tier)
        qm_tier_get_stats(tier, &stats);
    return stats.dead;
}

/* What is to be done, and does it: next has the parameters of all keys.  A tier that
 * has failed does not come back by itself: it is detached and attached anew. */
static int carry_out(struct qms_server *s, const struct qms_config *next, bool failed,
                     char *err, size_t len)
{
    const struct qms_config *now = &s->config;
    bool others = failed || !is_same(next->tier, now->tier) ||
                  !is_same(next->tier_witness, now->tier_witness) ||
                  next->tier_admit != now->tier_admit ||
                  next->tier_write_rate != now->tier_write_rate;

    if (!others && next->tier_size == now->tier_size)
        return 0;
    if (!others && now->tier)
        return qms_tier_resize(s, next->tier_size, err, len);
    if (now->tier && qms_tier_detach(s, err, len) == -1)
        return -1;
    return next->tier ? qms_tier_attach(s, next, err, len) : 0;
}

static int change(struct qms_server *s, const struct qms_setting *settings, size_t n,
                  bool failed, char *err, size_t len)
{
    const struct qms_setting *tier = find(settings, n, "tier");
    struct qms_config next = s->config;
    int r;

    if (tier && (tier->value[0] == '\0' || strcmp(tier->value, "none") == 0)) {
        if (n > 1) {
            snprintf(err, len, "a tier that is detached has no parameters");
            return -1;
        }
        return qms_tier_detach(s, err, len);
    }
    if (!tier && !s->config.tier) {
        snprintf(err, len, "there is no tier: give tier=PATH");
        return -1;
    }
    /* What is not given stays as it is, but not from one file to another. */
    next.tier = next.tier_witness = NULL;
    if (tier && !is_same(tier->value, s->config.tier)) {
        next.tier_size = next.tier_write_rate = 0;
        next.tier_admit = QM_TIER_ADMIT_AUTO;
    } else {
        next.tier = s->config.tier ? strdup(s->config.tier) : NULL;
        next.tier_witness =
            s->config.tier_witness ? strdup(s->config.tier_witness) : NULL;
        if (tier)
            free(next.tier);
        if (find(settings, n, "tier-witness")) {
            free(next.tier_witness);
            next.tier_witness = NULL;
        }
    }
    r = parse(settings, n, &next, err, len);
    if (r == 0 && !next.tier) {
        snprintf(err, len, "out of memory");
        r = -1;
    }
    if (r == 0)
        r = carry_out(s, &next, failed, err, len);
    free(next.tier);
    free(next.tier_witness);
    return r;
}

json_t *qms_change_tier(struct qms_server *s, const struct qms_setting *settings,
                        size_t n, uid_t user, char *err, size_t len)
{
    char before[KEYS][PATH_MAX + 1], now[PATH_MAX + 1], note[200];
    json_t *o = json_object(), *changed = json_array(), *notes = json_array();
    struct qm_tier_stats stats;
    struct qm_tier *tier;
    const bool failed = is_dead(s);
    int r;

    for (size_t i = 0; i < KEYS; i++)
        (void)get(&s->config, keys[i], before[i], sizeof before[i]);
    json_object_set_new(o, "changed", changed);
    json_object_set_new(o, "notes", notes);
    r = change(s, settings, n, failed, err, len);
    for (size_t i = 0; i < KEYS; i++) {
        (void)get(&s->config, keys[i], now, sizeof now);
        if (strcmp(before[i], now) == 0)
            continue;
        json_array_append_new(changed, json_pack("{s:s,s:o,s:o}", "key", keys[i], "old",
                                                 qms_json_text(before[i]), "new",
                                                 qms_json_text(now)));
        qms_log(QMS_NOTE, "%s was changed from \"%s\" to \"%s\" by user %u", keys[i],
                before[i], now, (unsigned)user);
    }
    if (r == -1) {
        size_t at = strlen(err);

        if (json_array_size(changed) > 0)
            snprintf(err + at, len - at, "; there is no tier now");
        qms_log(QMS_WARNING, "a change of the tier by user %u failed: %s",
                (unsigned)user, err);
        json_decref(o);
        return NULL;
    }
    tier = atomic_load(&s->tiers.told);
    if (tier && failed && is_same(before[0], s->config.tier)) {
        json_array_append_new(
            notes,
            json_string("the tier had failed; it was detached and attached anew"));
        qms_log(QMS_NOTE, "the tier had failed; user %u has had %s attached",
                (unsigned)user, s->config.tier);
    }
    if (tier && (failed || json_array_size(changed) > 0)) {
        qm_tier_get_stats(tier, &stats);
        if (stats.unverified > 0) {
            snprintf(note, sizeof note,
                     "%" PRIu64 " blocks that it has from before are compared with the "
                     "device when they are first read",
                     stats.unverified);
            json_array_append_new(notes, json_string(note));
        }
    }
    return o;
}

json_t *qms_change_tier_status(struct qms_server *s)
{
    json_t *o = json_object(), *status = json_object();
    char text[PATH_MAX + 1];

    for (size_t i = 0; i < KEYS; i++) {
        (void)get(&s->config, keys[i], text, sizeof text);
        json_object_set_new(o, keys[i], qms_json_text(text));
    }
    qms_report_tier(s, status);
    json_object_set_new(o, "status", status);
    return o;
}
