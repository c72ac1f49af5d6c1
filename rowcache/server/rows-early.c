/* SPDX-License-Identifier: BSD-3-Clause */
/* rows-early.c - rows that are read before their command is carried out; see
 * rows-ask.h.
 *
 * Such a row is being read (flying), or was read and not yet asked for (landed).  A
 * connection has at most EARLY_MOST of both, and at most twice as many as the pool has
 * connections. */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rowcache/server/rows-ask-internal.h"

static uint64_t hash(const char *key, size_t length)
{
    uint64_t h = XXH3_64bits(key, length);

    return h ? h : 1;
}

static void begin_early(struct client *c, struct flight *f)
{
    f->early = c;
    f->prev = NULL;
    f->next = c->early.flying;
    if (f->next)
        f->next->prev = f;
    c->early.flying = f;
    c->early.count++;
}

void rows_end_early(struct flight *f)
{
    struct early *e = &f->early->early;

    if (f->next)
        f->next->prev = f->prev;
    if (f->prev)
        f->prev->next = f->next;
    else
        e->flying = f->next;
    e->count--;
    f->early = NULL;
}

void rows_note_landed(struct early *e, const struct flight *f, uint64_t now)
{
    for (unsigned i = 0; i < EARLY_MOST; i++)
        if (e->landed[i].key == 0) {
            e->landed[i].key = hash(f->job.name.key, f->job.name.length);
            e->landed[i].took = now - f->job.queued;
            e->landed_count++;
            return;
        }
}

bool rows_take_flying(struct client *c, const char *key, size_t length, uint64_t *took)
{
    for (struct flight *f = c->early.flying; f; f = f->next)
        if (f->job.name.length == length && memcmp(f->job.name.key, key, length) == 0) {
            *took = c->server->now - f->job.queued;
            rows_end_early(f);
            return true;
        }
    return false;
}

bool rows_take_landed(struct early *e, const char *key, size_t length, uint64_t *took)
{
    uint64_t wanted;

    if (e->landed_count == 0)
        return false;
    wanted = hash(key, length);
    for (unsigned i = 0; i < EARLY_MOST; i++)
        if (e->landed[i].key == wanted) {
            e->landed[i].key = 0;
            e->landed_count--;
            *took = e->landed[i].took;
            return true;
        }
    return false;
}

void rows_in_order(struct client *c)
{
    if (c->early.landed_count > 0)
        memset(c->early.landed, 0, EARLY_MOST * sizeof c->early.landed[0]);
    c->early.landed_count = 0;
    c->looked = 0;
}

bool rows_may_ask_early(struct client *c)
{
    struct server *s = c->server;

    /* While rows change all the time, what a client has been given is ahead of the log,
     * and it would have to read most rows again. */
    return s->calm && qm_rows_serves(s->rows, &c->reader, s->now);
}

bool rows_ask_early(struct client *c, const char *key, size_t length)
{
    struct server *s = c->server;
    uint64_t most = 2 * s->config->connections;
    struct qm_row_name name;
    struct flight *f;

    if (c->early.count + c->early.landed_count >=
        (most < EARLY_MOST ? most : EARLY_MOST))
        return false;
    if (qm_row_name_parse(&name, key, length, s->config->schema) ||
        name.index[0] != '\0')
        return true; /* its command says what is wrong; or it is not kept */
    HASH_FIND(hh, s->flights, name.key, name.length, f);
    if (f || qm_rows_has(s->rows, name.key, name.length))
        return true;
    if (!c->early.landed)
        c->early.landed = calloc(EARLY_MOST, sizeof c->early.landed[0]);
    f = c->early.landed ? calloc(1, sizeof *f) : NULL;
    if (!f)
        return false;
    f->job.name = name;
    if (!qm_fill_give_early(s->fill, &f->job)) {
        free(f);
        return false;
    }
    s->early++;
    begin_early(c, f);
    f->newest = true;
    HASH_ADD_KEYPTR(hh, s->flights, f->job.name.key, f->job.name.length, f);
    return true;
}
