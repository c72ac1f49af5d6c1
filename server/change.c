/* SPDX-License-Identifier: BSD-3-Clause */
/* change.c - changes parameters while the server runs.
 *
 * A request of the control socket is a JSON object:
 *
 *   {"set": {"policy": "none", "degree": "8"}}
 *   {"set": {"statistics": "reset"}}
 *   {"get": ["policy"]}       all of them: {"get": []}
 *   {"record": {...}}         a recording for a while (shadow.c)
 *
 * and what change-tier.h says of the second tier.
 *
 * The settings of a request are put together with those of the command line, and go
 * through the same checks (qms_config_change()).  Then what cannot be done is refused,
 * and only then is anything done: a request is carried out as a whole or not at all.
 *
 * What readers use is changed with the write lock (rwlock.h), which is held for a
 * millisecond at most.  A policy is replaced in two steps, so that two never have the
 * rules' directory or the rules' memory at a time: "none" takes over; the old one's
 * miner ends, and it saves its rules; the new one is made, loads its, and takes over.
 * Readers go on meanwhile.
 *
 * Only the control socket's thread calls this, so there is one change at a time.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "server/change-tier.h"
#include "server/server.h"
#include "trace/text.h"

#define SETTINGS_MAX 16
#define VALUE_MAX    64

/* What takes over. */
struct takeover {
    struct qms_server *s;
    struct qm_prefetcher *prefetcher;
    struct qms_miner *miner; /* NULL: nothing to learn */
    const struct qms_config *config;
};

static void restart_slot(void *opaque, struct qms_slot *slot)
{
    const struct takeover *t = opaque;

    qms_contexts_restart(&t->s->contexts, slot, t->prefetcher, t->config->params.level);
}

static void restart_contexts(struct takeover *t)
{
    struct qms_server *s = t->s;
    struct cds_list_head *at;
    bool mining = strcmp(t->prefetcher->ops->name, "none") != 0;

    qms_sessions_each_slot(&s->sessions, restart_slot, t);
    cds_list_for_each(at, &s->connections)
        restart_slot(t, &caa_container_of(at, struct qms_connection, list)->slot);
    qms_contexts_restart(&s->contexts, NULL, t->prefetcher,
                         mining ? t->config->params.level : QM_LEVEL_INNERMOST);
    s->contexts.level = t->config->params.level;
    s->contexts.mining = mining;
}

/* Makes the parameters of t->config those of the server, and its prefetcher and miner
 * the server's.  The present ones of these are the caller's afterwards, if they are
 * others. */
static void take_over(struct takeover *t)
{
    struct qms_server *s = t->s;
    const struct qm_params *params = &t->config->params;
    bool other = t->prefetcher != s->engine.prefetcher;

    pthread_mutex_lock(&s->sessions.lock);
    pthread_mutex_lock(&s->lock);
    qms_rwlock_write(&s->contexts.lock);
    if (other || params->level != s->config.params.level)
        restart_contexts(t);
    s->miner = s->contexts.miner = t->miner;
    if (other) {
        qm_engine_set_prefetcher(&s->engine, t->prefetcher, &params->mining);
        s->prefetcher_number++;
        qms_clients_tell(&s->clients, t->prefetcher);
        if (s->throttle)
            qm_throttle_reset(s->throttle);
    } else if (t->prefetcher->ops->set_degree) {
        t->prefetcher->ops->set_degree(t->prefetcher, params->mining.degree);
    }
    qms_server_tune(s, t->config);
    s->config.policy = t->config->policy;
    s->config.params.policy = params->policy;
    s->config.params.level = params->level;
    s->config.params.on_prefetch_hit = params->on_prefetch_hit;
    s->config.params.throttle = params->throttle;
    s->config.params.admission = params->admission;
    s->config.params.budget = params->budget;
    s->config.params.mining = params->mining;
    s->config.prefetching = t->config->prefetching;
    s->config.log_level = t->config->log_level;
    qms_rwlock_write_unlock(&s->contexts.lock);
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->sessions.lock);
}

/* Of cache-size, the rules' part at present. */
static uint64_t rules_part(struct qms_server *s)
{
    struct qm_memory_stats memory;

    qm_memory_get_stats(&s->memory, &memory);
    return memory.rules;
}

/* A prefetcher that is made now has the memory for rules that there is; c was completed
 * for another division of it. */
static void keep_division(struct qms_server *s, struct qms_config *c)
{
    uint64_t rules = rules_part(s);

    if (rules == 0 || c->rules_bytes == 0)
        return;
    c->params.mining.rules_memory = rules;
    c->params.mining.rules_most = qm_memory_most_rules(c->cache_size);
}

/* What other policies may not be able to: the parts were made for the one that the
 * server was started with. */
static int check_policy(struct qms_server *s, const struct qms_config *next, char *err,
                        size_t len)
{
    if (strcmp(next->params.policy, "none") == 0)
        return 0;
    if (s->thread_model < NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS) {
        snprintf(err, len,
                 "policy cannot be changed to %s: this plugin serves one "
                 "request at a time, so nothing can be prefetched",
                 next->params.policy);
        return -1;
    }
    if (!s->prefetch) {
        snprintf(err, len,
                 "policy cannot be changed to %s: the server was started with "
                 "policy=none and has no prefetch threads; start it with another "
                 "policy, and with prefetching=off",
                 next->params.policy);
        return -1;
    }
    if (s->config.cache_blocks == 0 && rules_part(s) == 0 && next->rules_bytes > 0) {
        snprintf(err, len,
                 "policy cannot be changed to %s: its rules are a part of cache-size, "
                 "all of which blocks have; start the server with it, or with "
                 "rules-memory=SIZE",
                 next->params.policy);
        return -1;
    }
    return 0;
}

static int make_prefetcher(struct qms_server *s, const struct qms_config *c,
                           bool with_rules, struct qm_prefetcher **p, char *err,
                           size_t len)
{
    char device[64], why[512] = "";
    struct qm_mining_config mining = qms_mining_config(s, c, with_rules, device);

    if (qm_engine_create_prefetcher(&s->engine, c->policy, &mining, p, why,
                                    sizeof why) != 0) {
        snprintf(err, len, "policy=%s: %s", c->policy->name, why);
        return -1;
    }
    if (why[0] != '\0')
        qms_log(QMS_WARNING, "%s", why);
    return 0;
}

/* Makes the prefetcher, and a miner for it unless it has nothing to learn. */
static int make_both(struct qms_server *s, const struct qms_config *c,
                     struct takeover *t, char *err, size_t len)
{
    if (make_prefetcher(s, c, true, &t->prefetcher, err, len) == -1)
        return -1;
    t->miner = NULL;
    t->config = c;
    if (!qm_params_prefetch(&c->params))
        return 0;
    t->miner = qms_miner_start(t->prefetcher, c->miner_queue, c->rules_purge);
    if (!t->miner) {
        (void)t->prefetcher->ops->destroy(t->prefetcher);
        snprintf(err, len, "cannot start the mining thread: out of memory or threads");
        return -1;
    }
    qms_miner_tick_every(t->miner, qms_memory_tick, s);
    if (c->rules)
        qms_miner_save_every(t->miner, (unsigned)c->rules_save, qms_server_saved, s);
    return 0;
}

/* Ends the miner and the prefetcher, which nobody uses any more. */
static void end_both(struct qms_server *s, struct qms_miner *miner,
                     struct qm_prefetcher *p)
{
    int error;

    if (miner)
        qms_miner_stop(miner);
    error = p->ops->destroy(p);
    if (error != 0)
        qms_log(QMS_ERROR,
                "rules=%s: the rules cannot be saved, and stay as they were saved "
                "before: %s",
                s->config.rules, strerror(error));
}

static int replace_policy(struct qms_server *s, struct qms_config *next, char *err,
                          size_t len)
{
    struct qms_config now = s->config, none = s->config;
    struct qms_miner *old_miner = s->miner;
    struct qm_prefetcher *old = s->engine.prefetcher, *nothing, *trial;
    struct takeover t = {.s = s};
    char again[512];
    int r;

    keep_division(s, next);
    keep_division(s, &now);
    if (make_prefetcher(s, next, false, &trial, err, len) == -1)
        return -1;
    (void)trial->ops->destroy(trial);
    none.policy = qm_prefetcher_find("none");
    none.params.policy = none.policy->name;
    if (make_prefetcher(s, &none, false, &nothing, err, len) == -1)
        return -1;
    t.prefetcher = nothing;
    t.config = &none;
    take_over(&t);
    qm_memory_use(&s->memory, nothing);
    end_both(s, old_miner, old);
    r = make_both(s, next, &t, err, len);
    if (r == -1 && make_both(s, &now, &t, again, sizeof again) == -1) {
        qms_log(QMS_ERROR, "%s; and the old policy cannot be made again: policy=none",
                again);
        return -1; /* it stays with what prefetches nothing */
    }
    take_over(&t);
    qm_memory_use(&s->memory, t.prefetcher);
    (void)nothing->ops->destroy(nothing);
    return r;
}

static int carry_out(struct qms_server *s, struct qms_config *next, char *err,
                     size_t len)
{
    struct takeover t = {s, s->engine.prefetcher, s->miner, next};
    const bool other = next->policy != s->config.policy;
    const uint64_t size = s->config.cache_size;
    char again[512];

    if (other && check_policy(s, next, err, len) == -1)
        return -1;
    if (!other && next->params.mining.degree != s->config.params.mining.degree &&
        qms_config_heeds(next, "degree") && !t.prefetcher->ops->set_degree) {
        snprintf(err, len, "degree cannot be changed while policy=%s runs",
                 next->policy->name);
        return -1;
    }
    if (next->cache_size != size &&
        qms_server_set_cache_size(s, next->cache_size, err, len) != 0)
        return -1;
    if (!other)
        take_over(&t);
    else if (replace_policy(s, next, err, len) == -1) {
        if (next->cache_size != size)
            (void)qms_server_set_cache_size(s, size, again, sizeof again);
        return -1;
    }
    return 0;
}

json_t *qms_refusal(const char *sentence)
{
    char *text = strdup(sentence);
    json_t *o;

    /* It quotes values and may be cut within a character, which no JSON string is. */
    if (text)
        qm_text_clean(text, text, strlen(text), true);
    o = json_pack("{s:s}", "error", text ? text : "out of memory");
    free(text);
    return o;
}

json_t *qms_json_text(const char *text)
{
    json_t *o = json_string(text);
    char *clean = o ? NULL : strdup(text);

    if (clean) {
        qm_text_clean(clean, clean, strlen(clean), true);
        o = json_string(clean);
        free(clean);
    }
    return o;
}

static json_t *get_values(const struct qms_server *s, const json_t *wanted)
{
    json_t *o = json_object(), *values = json_object(), *key;
    char text[PATH_MAX + 1];
    const char *name;
    size_t i;

    json_object_set_new(o, "values", values);
    if (json_array_size(wanted) == 0) {
        for (i = 0; (name = qms_config_changeable(i)); i++) {
            (void)qms_config_get(&s->config, name, text, sizeof text);
            json_object_set_new(values, name, qms_json_text(text));
        }
        return o;
    }
    json_array_foreach(wanted, i, key)
    {
        name = json_string_value(key);
        if (name && qms_change_tier_get(s, name, text, sizeof text)) {
            json_object_set_new(values, name, qms_json_text(text));
            continue;
        }
        if (name && qms_config_get(&s->config, name, text, sizeof text) == 0) {
            json_object_set_new(values, name, qms_json_text(text));
            continue;
        }
        json_decref(o);
        return qms_refusal(name ? text : "a key must be a string");
    }
    return o;
}

/* The changes, for the log and for the reply. */
static json_t *tell_changes(const struct qms_server *s,
                            const struct qms_setting *settings, size_t n,
                            char (*before)[VALUE_MAX], uid_t user)
{
    json_t *o = json_object(), *changed = json_array(), *notes = json_array();
    char now[VALUE_MAX], note[128];

    for (size_t i = 0; i < n; i++) {
        const char *key = settings[i].key;

        (void)qms_config_get(&s->config, key, now, sizeof now);
        if (strcmp(before[i], now) != 0) {
            json_array_append_new(changed, json_pack("{s:s,s:s,s:s}", "key", key, "old",
                                                     before[i], "new", now));
            qms_log(QMS_NOTE, "%s was changed from %s to %s by user %u", key, before[i],
                    now, (unsigned)user);
        }
        if (!qms_config_heeds(&s->config, key)) {
            snprintf(note, sizeof note, "policy=%s ignores %s", s->config.policy->name,
                     key);
            json_array_append_new(notes, json_string(note));
        }
    }
    json_object_set_new(o, "changed", changed);
    json_object_set_new(o, "notes", notes);
    return o;
}

/* The last part of a request: it can fail for want of memory only, and says so. */
static void note_reset(struct qms_server *s, json_t *answer, uid_t user)
{
    const char *note = "the statistics count from now on";

    if (qms_report_reset(s) == -1)
        note = "the statistics were not reset: out of memory";
    qms_log(QMS_NOTE, "%s (by user %u)", note, (unsigned)user);
    json_array_append_new(json_object_get(answer, "notes"), json_string(note));
}

static json_t *set_values(struct qms_server *s, json_t *values, uid_t user)
{
    struct qms_setting settings[SETTINGS_MAX];
    char before[SETTINGS_MAX][VALUE_MAX], err[PATH_MAX + 1024] = "";
    struct qms_config next;
    const char *key;
    json_t *value, *o;
    bool reset = false;
    size_t n = 0, of_tier = 0;

    if (json_object_size(values) == 0 || json_object_size(values) > SETTINGS_MAX)
        return qms_refusal("give from 1 to 16 settings");
    json_object_foreach(values, key, value)
    {
        if (!json_is_string(value))
            return qms_refusal("a value must be a string");
        settings[n++] = (struct qms_setting){key, json_string_value(value)};
    }
    for (size_t i = 0; i < n; i++)
        if (strcmp(settings[i].key, "statistics") == 0) {
            if (strcmp(settings[i].value, "reset") != 0)
                return qms_refusal("statistics can be set to reset only");
            settings[i] = settings[--n];
            reset = true;
            break;
        }
    for (size_t i = 0; i < n; i++)
        of_tier += qms_change_tier_is(settings[i].key);
    if (of_tier > 0 && (of_tier < n || reset))
        return qms_refusal("the tier is changed by a request of its own");
    if (of_tier > 0) {
        o = qms_change_tier(s, settings, n, user, err, sizeof err);
        return o ? o : qms_refusal(err);
    }
    if (qms_config_change(&s->config, settings, n, &next, err, sizeof err) == -1)
        return qms_refusal(err);
    for (size_t i = 0; i < n; i++)
        (void)qms_config_get(&s->config, settings[i].key, before[i], VALUE_MAX);
    if (n > 0 && carry_out(s, &next, err, sizeof err) == -1) {
        qms_log(QMS_WARNING, "a change by user %u was refused: %s", (unsigned)user,
                err);
        return qms_refusal(err);
    }
    if (qms_config_keep(settings, n) == -1)
        qms_log(QMS_WARNING, "out of memory: the next change may undo this one");
    o = tell_changes(s, settings, n, before, user);
    if (reset)
        note_reset(s, o, user);
    qms_log_limit(s->config.log_level);
    return o;
}

char *qms_change_answer(void *opaque, uid_t user, const char *request)
{
    struct qms_server *s = opaque;
    json_t *asked = json_loads(request, JSON_REJECT_DUPLICATES, NULL), *o;
    json_t *set = json_object_get(asked, "set"), *get = json_object_get(asked, "get");
    json_t *record = json_object_get(asked, "record");
    const char *tier = json_string_value(json_object_get(asked, "tier"));
    char *text;

    if (json_object_size(asked) == 1 && json_is_object(set))
        o = set_values(s, set, user);
    else if (json_object_size(asked) == 1 && json_is_array(get))
        o = get_values(s, get);
    else if (json_object_size(asked) == 1 && record)
        o = qms_shadow_answer(s, record, user);
    else if (json_object_size(asked) == 1 && tier && strcmp(tier, "status") == 0)
        o = qms_change_tier_status(s);
    else
        o = qms_refusal("a request is {\"set\": {...}}, {\"get\": [...]}, "
                        "{\"record\": ...} or {\"tier\": \"status\"}");
    text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    json_decref(asked);
    return text;
}
