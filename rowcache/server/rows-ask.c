/* SPDX-License-Identifier: BSD-3-Clause */
/* rows-ask.c - asking for rows of MariaDB; see rows-ask.h.
 *
 * A command asks for its rows; what is not kept becomes a flight: one read of MariaDB,
 * however many wait for it.  A connection may join a flight unless its SELECT was sent
 * before the connection was last given a row: the answer could be older than that.
 *
 * Of its own early flights (rows-early.c) most are too old in this sense.  There it
 * waits until the row has landed and looks whether it is kept: what is kept is as new
 * as all that is applied, whenever it was read (rows.h).  Only if it is not found is
 * the row read again.
 *
 * Rows that are kept in a Redis are looked for there first: an answer that comes when
 * the connection may not be given it any more is none. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rowcache/server/rows-ask-internal.h"

enum { PORTION = 4 }; /* reads of a command, for each connection to the database */

/* --- asking --- */

static void set_error(struct answer *a, const char *kind, const char *what)
{
    char *text = NULL;
    int n = asprintf(&text, "%s %s", kind, what);

    a->outcome = QM_FILL_ERROR;
    a->value = n > 0 ? text : NULL;
    a->text = n > 0 ? text : "ERR out of memory";
    a->length = strlen(a->text);
}

/* The answer of the row that is kept.  text: of the row, or NULL. */
static void count_found(struct client *c, struct answer *a, enum qm_rows_kind kind,
                        const char *text, const char *key, size_t length)
{
    struct server *s = c->server;
    uint64_t took = 0;
    bool early;

    a->outcome = kind == QM_ROWS_ROW ? QM_FILL_ROW : QM_FILL_ABSENT;
    c->last_read = atomic_load(&s->tick);
    early = rows_take_landed(&c->early, key, length, &took) ||
            rows_take_flying(c, key, length, &took);
    s->misses += early;
    s->hits += !early;
    s->absent_hits += !early && kind == QM_ROWS_ABSENT;
    if (kind == QM_ROWS_ROW)
        readahead_read(c, key, length, text, a->length, !early, s->now - took);
}

static bool look(struct client *c, struct answer *a, bool bare, const char *key,
                 size_t length)
{
    struct server *s = c->server;
    enum qm_rows_kind kind;

    /* Anew for each key: a wake-up with a long pipeline may take longer than max-lag.
     */
    s->now = qm_rows_now();
    kind = qm_rows_get(s->rows, &c->reader, s->now, key, length,
                       bare ? NULL : &a->value, &a->text, &a->length);
    if (kind != QM_ROWS_NONE)
        count_found(c, a, kind, a->text, key, length);
    return kind != QM_ROWS_NONE;
}

static bool may_join(const struct client *c, const struct flight *f)
{
    uint64_t sent = atomic_load(&((struct flight *)f)->job.sent);

    /* After WAITGTID, the server of another's flight may be behind; of several servers,
     * one may be behind what this reader has seen. */
    if (c->reader.told ||
        (c->reader.seen && qm_fill_has_several(c->server->fill) &&
         !(f->job.seen && qm_gtid_covers(f->job.seen, c->reader.seen))))
        return false;
    return sent == 0 || c->last_read < sent;
}

/* What the job's server must have committed.  False: there is no memory. */
static bool note_seen(struct qm_fill_job *job, const struct qm_reader *reader)
{
    struct qm_gtid_list *seen = NULL;

    if (reader->seen) {
        seen = malloc(sizeof *seen);
        if (!seen)
            return false;
        *seen = *reader->seen;
    }
    job->seen = seen;
    job->told = reader->told;
    return true;
}

static void free_flight(struct flight *f)
{
    qm_text_free(&f->job.text);
    free((void *)(uintptr_t)f->job.seen);
    free(f);
}

/* The read of the name that the connection may wait for; NULL: a has the error.  *look:
 * not for its answer. */
static struct flight *board(struct client *c, struct answer *a,
                            const struct qm_row_name *name, bool *look)
{
    struct server *s = c->server;
    struct flight *f;

    *look = false;
    HASH_FIND(hh, s->flights, name->key, name->length, f);
    if (f && may_join(c, f)) {
        if (f->early == c) {
            s->misses++;
            rows_end_early(f);
        } else {
            s->shared++;
        }
        return f;
    }
    if (f && f->early == c) {
        *look = true;
        return f;
    }
    if (f && !c->reader.told) {
        HASH_DEL(s->flights, f);
        f->newest = false;
    }
    f = calloc(1, sizeof *f);
    if (!f || !note_seen(&f->job, &c->reader)) {
        free(f);
        set_error(a, "TRYAGAIN", "out of memory");
        return NULL;
    }
    f->job.name = *name;
    s->misses++;
    if (!qm_fill_give(s->fill, &f->job)) {
        char what[80];

        snprintf(what, sizeof what, "the database is slow: %llu reads wait already",
                 (unsigned long long)s->config->queue);
        free_flight(f);
        set_error(a, "TRYAGAIN", what);
        return NULL;
    }
    if (c->reader.told) /* which may wait for its server: not for others */
        return f;
    f->newest = true;
    HASH_ADD_KEYPTR(hh, s->flights, f->job.name.key, f->job.name.length, f);
    return f;
}

/* An answer is there.  What is not replied is not held; nor is more than max-reply. */
static void count_answer(const struct server *s, struct request *r, struct answer *a)
{
    if (a->outcome == QM_FILL_ERROR) {
        r->failed = true;
        return;
    }
    r->bytes += a->length;
    if (!r->bare && !r->failed && (r->count == 1 || r->bytes <= s->config->max_reply))
        return;
    free(a->value);
    a->value = NULL;
    a->text = NULL;
    if (!r->bare && !r->failed) {
        a->outcome = QM_FILL_ERROR;
        a->text = QM_REPLY_TOO_LONG;
        a->length = strlen(a->text);
        r->failed = true;
    }
}

static void wait_for(struct flight *f, struct waiter *w, bool look)
{
    struct request *r = w->request;

    w->look = look;
    w->next = f->waiters;
    f->waiters = w;
    w->flight = f;
    w->elder = NULL;
    w->sibling = r->waiters;
    if (r->waiters)
        r->waiters->elder = w;
    r->waiters = w;
}

/* It waits no more, or for another flight. */
static void end_wait(struct waiter *w)
{
    if (w->elder)
        w->elder->sibling = w->sibling;
    else
        w->request->waiters = w->sibling;
    if (w->sibling)
        w->sibling->elder = w->elder;
}

/* Has the row read, and the answer waited for.  False: a has an error. */
static bool want_read(struct client *c, struct request *r, unsigned i,
                      const struct qm_row_name *name)
{
    struct waiter *w = malloc(sizeof *w);
    struct flight *f;
    uint64_t took;
    bool again;

    if (!w) {
        set_error(&r->answer[i], "TRYAGAIN", "out of memory");
        return false;
    }
    /* it may not be given that */
    rows_take_landed(&c->early, name->key, name->length, &took);
    f = board(c, &r->answer[i], name, &again);
    if (!f) {
        free(w);
        return false;
    }
    *w = (struct waiter){.request = r, .index = i};
    wait_for(f, w, again);
    return true;
}

static void answered(struct request *r);

/* --- rows that are kept in a Redis --- */

struct lookup {
    struct qm_redis_lookup redis; /* first */
    struct request *request;
    unsigned index;
    size_t length;
    char key[]; /* canonical */
};

/* What is not replied is not copied.  False: there is no memory. */
static bool keep_text(const struct request *r, struct answer *a, const char *text,
                      size_t length)
{
    a->length = length;
    if (r->bare)
        return true;
    a->value = malloc(length + 1);
    if (!a->value)
        return false;
    memcpy(a->value, text, length);
    a->text = a->value;
    return true;
}

static void looked(struct qm_redis_lookup *redis, enum qm_rows_kind kind,
                   const char *text, size_t length)
{
    struct lookup *l = (struct lookup *)redis;
    struct request *r = l->request;
    struct answer *a = &r->answer[l->index];
    struct client *c = r->c;
    struct qm_row_name name;
    struct server *s;

    if (!c || r->failed) {
        a->outcome = QM_FILL_ABSENT; /* it does not matter */
        goto out;
    }
    s = c->server;
    s->now = qm_rows_now();
    if (c->closing) {
        set_error(a, "TRYAGAIN", "the server is shutting down");
    } else if (kind != QM_ROWS_NONE && qm_rows_serves(s->rows, &c->reader, s->now) &&
               keep_text(r, a, text, length)) {
        count_found(c, a, kind, text, l->key, l->length);
    } else if (qm_row_name_parse(&name, l->key, l->length, NULL)) {
        set_error(a, "ERR", "no key"); /* it was one */
    } else if (want_read(c, r, l->index, &name)) {
        free(l);
        return;
    }
    count_answer(s, r, a);
out:
    free(l);
    answered(r);
}

/* False: it cannot be looked for there now. */
static bool look_up(struct client *c, struct request *r, unsigned i,
                    const struct qm_row_name *name)
{
    struct server *s = c->server;
    struct lookup *l;

    s->now = qm_rows_now();
    if (name->index[0] != '\0' || !qm_rows_serves(s->rows, &c->reader, s->now))
        return false;
    l = malloc(sizeof *l + name->length);
    if (!l)
        return false;
    *l = (struct lookup){{NULL, looked}, r, i, name->length};
    memcpy(l->key, name->key, name->length);
    if (qm_redis_get(s->redis, &l->redis, l->key, l->length))
        return true;
    free(l);
    return false;
}

/* --- a command's rows --- */

/* Finds the answer at once, or has it waited for. */
static void find(struct client *c, struct request *r, unsigned i, const char *key,
                 size_t length)
{
    struct answer *a = &r->answer[i];
    bool redis = c->server->redis != NULL;
    struct qm_row_name name;
    const char *wrong;

    if (!redis && length > 0 && length <= QM_KEY_MAX &&
        look(c, a, r->bare, key, length))
        return;
    wrong = qm_row_name_parse(&name, key, length, c->server->config->schema);
    if (wrong) {
        set_error(a, "ERR", wrong);
        return;
    }
    if (redis && look_up(c, r, i, &name)) {
        r->left++;
        return;
    }
    if (!redis && (name.length != length || memcmp(name.key, key, length) != 0) &&
        look(c, a, r->bare, name.key, name.length))
        return;
    if (want_read(c, r, i, &name))
        r->left++;
}

/* How many rows of one command are waited for at a time: enough for all connections to
 * be busy, so that the reads of other clients do not wait behind thousands. */
static unsigned portion(const struct server *s)
{
    uint64_t most = s->config->queue / 4, n = PORTION * s->config->connections;

    if (!s->redis && most > n)
        most = n;
    return most > 0 ? (unsigned)most : 1;
}

/* Asks for more of its rows, as far as that is its turn. */
static void ask_more(struct client *c, struct request *r)
{
    const unsigned most = portion(c->server);

    while (r->asked < r->count && r->left < most && !r->failed) {
        unsigned i = r->asked++, left = r->left;

        if (c->closing)
            set_error(&r->answer[i], "TRYAGAIN", "the server is shutting down");
        else
            find(c, r, i, word(c, r->first + i), word_length(c, r->first + i));
        if (r->left == left)
            count_answer(c->server, r, &r->answer[i]);
    }
}

static void free_request(struct request *r)
{
    for (unsigned i = 0; i < r->count; i++)
        free(r->answer[i].value);
    free(r->answer);
    free(r);
}

void rows_ask(struct client *c, unsigned first, unsigned count, bool bare,
              void (*finish)(struct client *c, struct request *r))
{
    struct answer one = {0};
    struct request hit = {.c = c, .count = 1, .answer = &one}, *r;

    if (count == 1 && !c->server->redis && word_length(c, first) > 0 &&
        look(c, &one, bare, word(c, first), word_length(c, first))) {
        finish(c, &hit);
        free(one.value);
        return;
    }
    r = calloc(1, sizeof *r);
    if (r)
        r->answer = calloc(count, sizeof *r->answer);
    if (!r || !r->answer) {
        free(r);
        client_error(c, "TRYAGAIN out of memory");
        return;
    }
    r->c = c;
    r->count = count;
    r->finish = finish;
    r->bare = bare;
    r->first = first;
    ask_more(c, r);
    if (r->left > 0) {
        c->request = r;
        return;
    }
    finish(c, r);
    free_request(r);
}

/* No client waits for it but the one that leaves: it need not be read, and its place in
 * the queue is free. */
static bool cancel(struct server *s, struct flight *f)
{
    if (!s->fill || !qm_fill_take_back(s->fill, &f->job))
        return false;
    if (f->newest)
        HASH_DEL(s->flights, f);
    free_flight(f);
    s->cancelled++;
    return true;
}

void rows_abandon(struct client *c)
{
    struct request *r = c->request;
    struct waiter *w, *next;

    while (c->early.flying) {
        struct flight *f = c->early.flying;

        rows_end_early(f);
        if (!f->waiters)
            cancel(c->server, f);
    }
    free(c->early.landed);
    c->early.landed = NULL;
    if (!r)
        return;
    r->c = NULL;
    c->request = NULL;
    for (w = r->waiters; w; w = next) {
        struct flight *f = w->flight;

        next = w->sibling;
        if (f->waiters != w || w->next || f->early || !cancel(c->server, f))
            continue;
        end_wait(w);
        free(w);
        r->left--;
    }
    if (r->left == 0 && r->count > 0)
        free_request(r);
}

/* --- what the pool has done --- */

void rows_done(void *opaque, struct qm_fill_job *job)
{
    struct server *s = opaque;
    uint64_t one = 1;
    bool first;

    pthread_mutex_lock(&s->done_lock);
    first = s->done == NULL;
    job->next = s->done;
    s->done = job;
    pthread_mutex_unlock(&s->done_lock);
    if (first)
        (void)!write(s->done_fd, &one, sizeof one);
}

static void take(struct server *s, struct request *r, struct answer *a,
                 const struct qm_fill_job *job)
{
    a->outcome = job->outcome;
    a->length = job->text.length;
    a->value = NULL;
    if (job->outcome == QM_FILL_ERROR || (!r->bare && !r->failed)) {
        a->value = malloc(job->text.length + 1);
        if (!a->value) {
            set_error(a, "TRYAGAIN", "out of memory");
        } else {
            if (job->text.length > 0)
                memcpy(a->value, job->text.bytes, job->text.length);
            a->text = a->value;
        }
    }
    count_answer(s, r, a);
}

/* One of its answers is there. */
static void answered(struct request *r)
{
    struct client *c = r->c;

    r->left--;
    if (c)
        ask_more(c, r);
    if (r->left > 0)
        return;
    if (c) {
        size_t from = c->out.length;

        c->request = NULL;
        r->finish(c, r);
        client_hush(c, from);
    }
    free_request(r);
    if (c)
        client_go_on(c);
}

static void answer(struct server *s, struct request *r, unsigned i,
                   const struct qm_fill_job *job)
{
    if (r->c) {
        take(s, r, &r->answer[i], job);
        qm_reader_saw(&r->c->reader, &job->position);
        r->c->last_read = atomic_load(&s->tick);
    }
    answered(r);
}

/* The row that it has waited for is kept now, or has to be read again.  True: it waits
 * for that. */
static bool look_again(struct server *s, struct waiter *w,
                       const struct qm_row_name *name)
{
    struct request *r = w->request;
    struct client *c = r->c;
    struct answer *a = &r->answer[w->index];
    struct flight *f;
    uint64_t took;
    bool again;

    if (!c)
        return false;
    if (r->failed) {
        a->outcome = QM_FILL_ABSENT; /* it does not matter */
    } else if (c->closing) {
        set_error(a, "TRYAGAIN", "the server is shutting down");
    } else if (s->redis && look_up(c, r, w->index, name)) {
        free(w);
        return true;
    } else if (s->redis || !look(c, a, r->bare, name->key, name->length)) {
        rows_take_landed(&c->early, name->key, name->length, &took);
        f = board(c, a, name, &again);
        if (f) {
            wait_for(f, w, again);
            return true;
        }
    }
    count_answer(s, r, a);
    return false;
}

static void land(struct server *s, struct flight *f)
{
    struct waiter *w = f->waiters, *next;

    if (f->newest)
        HASH_DEL(s->flights, f);
    if (f->job.outcome != QM_FILL_ERROR)
        s->calm = f->job.kept;
    if (f->early) {
        if (f->job.kept)
            rows_note_landed(&f->early->early, f, s->now);
        rows_end_early(f);
    }
    for (; w; w = next) {
        next = w->next;
        end_wait(w);
        if (w->look) {
            if (look_again(s, w, &f->job.name))
                continue;
            answered(w->request);
            free(w);
            continue;
        }
        if (w->request->c && f->job.outcome == QM_FILL_ROW &&
            f->job.name.index[0] == '\0')
            readahead_read(w->request->c, f->job.name.key, f->job.name.length,
                           f->job.text.bytes, f->job.text.length, false, f->job.queued);
        answer(s, w->request, w->index, &f->job);
        free(w);
    }
    free_flight(f);
}

static void answer_done(evutil_socket_t fd, short what, void *opaque)
{
    struct server *s = opaque;
    struct qm_fill_job *job, *next;
    uint64_t count;

    (void)!read(s->done_fd, &count, sizeof count);
    pthread_mutex_lock(&s->done_lock);
    job = s->done;
    s->done = NULL;
    pthread_mutex_unlock(&s->done_lock);
    s->now = qm_rows_now();
    for (; job; job = next) {
        next = job->next;
        land(s, (struct flight *)job);
    }
}

int rows_start(struct server *s)
{
    pthread_mutex_init(&s->done_lock, NULL);
    s->done_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->done_event = s->done_fd == -1 ? NULL
                                     : event_new(s->base, s->done_fd,
                                                 EV_READ | EV_PERSIST, answer_done, s);
    return s->done_event && event_add(s->done_event, NULL) == 0 ? 0 : -1;
}

void rows_end(struct server *s)
{
    if (s->done_event) {
        answer_done(s->done_fd, 0, s);
        event_free(s->done_event);
    }
    if (s->done_fd > 0)
        close(s->done_fd);
    pthread_mutex_destroy(&s->done_lock);
}
