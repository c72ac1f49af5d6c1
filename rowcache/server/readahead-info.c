/* SPDX-License-Identifier: BSD-3-Clause */
/* readahead-info.c - read-ahead's numbers, and what INFO says of tables. */
#include <stdio.h>
#include <string.h>

#include "rowcache/server/readahead-internal.h"

enum { SHOWN = 64 /* tables in INFO */ };

void readahead_get(struct server *s, struct readahead_stats *stats)
{
    struct readahead *ra = s->readahead;
    struct qm_seer_stats seer;
    struct qm_auto_stats learner;

    pthread_mutex_lock(&ra->lock);
    *stats = ra->stats;
    stats->preset = ra->preset;
    stats->rules = ra->rules;
    qm_seer_get_stats(ra->seer, &seer);
    qm_auto_get_stats(ra->learner, &learner);
    stats->price = qm_rule_yield_price(qm_auto_yield(ra->learner));
    stats->read_us = qm_rule_yield_read_us(qm_auto_yield(ra->learner));
    pthread_mutex_unlock(&ra->lock);
    for (unsigned i = 0; i < QM_AUTO_RULES; i++) {
        stats->asked[i] = learner.asked[i] + (i < 3 ? seer.requested[i] : 0);
        stats->fetched[i] += learner.fetched[i];
        stats->used[i] += learner.used[i];
        stats->wasted[i] += learner.wasted[i];
        stats->us[i] = learner.us[i];
    }
    stats->dropped += learner.dropped;
    stats->passive = seer.passive;
    stats->proactive = seer.proactive;
    stats->closed = seer.closed;
}

/* --- what INFO says of tables --- */

struct sum {
    unsigned arms[QM_RULE_YIELD_OFF + 1];
    double used, judged;
};

static void add_rule(struct qm_text *text, const char *name, const struct sum *sum,
                     bool *first)
{
    static const char *const states[] = {"trial", "on", "off"};
    enum qm_rule_yield_state state = sum->arms[QM_RULE_YIELD_ON] ? QM_RULE_YIELD_ON
                                     : sum->arms[QM_RULE_YIELD_TRIAL]
                                         ? QM_RULE_YIELD_TRIAL
                                         : QM_RULE_YIELD_OFF;
    char line[64];
    int n;

    if (sum->arms[0] + sum->arms[1] + sum->arms[2] == 0)
        return;
    n = snprintf(line, sizeof line, "%s%s=%s,%s_used=%.2f", *first ? "" : ",", name,
                 states[state], name, sum->judged > 0 ? sum->used / sum->judged : 0);
    *first = false;
    qm_text_add(text, line, (size_t)n);
}

/* Of the first tables, each rule's state, and which share of its rows is used. */
void readahead_add_tables(struct server *s, struct qm_text *text)
{
    struct readahead *ra = s->readahead;
    struct sum sum[SHOWN][QM_AUTO_RULES] = {0};
    const struct qm_rule_yield_arm *arm;
    const struct qm_rule_yield *yield;
    uint64_t now_ms;

    pthread_mutex_lock(&ra->lock);
    yield = qm_auto_yield(ra->learner);
    now_ms = readahead_clock_ms();
    for (unsigned i = 1; (arm = qm_rule_yield_get(yield, i)); i++)
        if (arm->table < SHOWN) {
            struct sum *to = &sum[arm->table][arm->rule];

            to->arms[arm->state == QM_RULE_YIELD_WATCHED ? QM_RULE_YIELD_TRIAL
                                                         : arm->state]++;
            to->used += arm->used;
            to->judged += qm_rule_yield_judged(yield, now_ms, i);
        }
    for (unsigned i = 0; i < SHOWN && i < ra->count; i++) {
        bool first = true;

        for (unsigned rule = 0; rule < QM_AUTO_RULES; rule++) {
            if (first &&
                sum[i][rule].arms[0] + sum[i][rule].arms[1] + sum[i][rule].arms[2] >
                    0) {
                qm_text_add(text, "readahead_of_", 13);
                qm_text_add(text, ra->by_id[i]->key, strlen(ra->by_id[i]->key));
                qm_text_add(text, ":", 1);
            }
            add_rule(text, qm_config_rule_names[rule], &sum[i][rule], &first);
        }
        if (!first)
            qm_text_add(text, "\r\n", 2);
    }
    pthread_mutex_unlock(&ra->lock);
}
