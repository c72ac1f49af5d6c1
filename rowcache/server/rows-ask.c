/* SPDX-License-Identifier: BSD-3-Clause */
/* rows-ask.c - asking for rows of MariaDB; see rows-ask.h.
 *
 * A command asks for its rows; what is not kept becomes a flight: one read of MariaDB,
 * however many wait for it.  A connection may join a flight unless its SELECT was sent
 * before the connection was last given a row: the answer could be older than that. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rowcache/server/rows-ask.h"

struct waiter {
    struct waiter *next;
    struct request *request;
    unsigned index;
};

struct flight {
    struct qm_fill_job job; /* first: a job is a flight */
    struct waiter *waiters;
    bool newest; /* it is in the table */
    UT_hash_handle hh;
};

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

static bool look(struct client *c, struct answer *a, const char *key, size_t length)
{
    struct server *s = c->server;
    enum qm_rows_kind kind;

    /* Anew for each key: a wake-up with a long pipeline may take longer than max-lag.
     */
    s->now = qm_rows_now();
    kind = qm_rows_get(s->rows, &c->reader, s->now, key, length, &a->value, &a->text,
                       &a->length);
    if (kind == QM_ROWS_NONE)
        return false;
    a->outcome = kind == QM_ROWS_ROW ? QM_FILL_ROW : QM_FILL_ABSENT;
    c->last_read = atomic_load(&s->tick);
    s->hits++;
    s->absent_hits += kind == QM_ROWS_ABSENT;
    if (kind == QM_ROWS_ROW)
        readahead_read(c, key, length, a->text, a->length, true, 0);
    return true;
}

static bool may_join(const struct client *c, const struct flight *f)
{
    uint64_t sent = atomic_load(&((struct flight *)f)->job.sent);

    return sent == 0 || c->last_read < sent;
}

/* The read of the name that the connection may wait for; NULL: a has the error. */
static struct flight *board(struct client *c, struct answer *a,
                            const struct qm_row_name *name)
{
    struct server *s = c->server;
    struct flight *f;

    HASH_FIND(hh, s->flights, name->key, name->length, f);
    if (f && may_join(c, f)) {
        s->shared++;
        return f;
    }
    if (f) {
        HASH_DEL(s->flights, f);
        f->newest = false;
    }
    f = calloc(1, sizeof *f);
    if (!f) {
        set_error(a, "TRYAGAIN", "out of memory");
        return NULL;
    }
    f->job.name = *name;
    s->misses++;
    if (!qm_fill_give(s->fill, &f->job)) {
        char what[80];

        snprintf(what, sizeof what, "the database is slow: %llu reads wait already",
                 (unsigned long long)s->config->queue);
        free(f);
        set_error(a, "TRYAGAIN", what);
        return NULL;
    }
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

/* Finds the answer at once, or has it waited for. */
static void find(struct client *c, struct request *r, unsigned i, const char *key,
                 size_t length)
{
    struct answer *a = &r->answer[i];
    struct qm_row_name name;
    const char *wrong;
    struct flight *f;
    struct waiter *w;

    if (length > 0 && length <= QM_KEY_MAX && look(c, a, key, length))
        return;
    wrong = qm_row_name_parse(&name, key, length, c->server->config->schema);
    if (wrong) {
        set_error(a, "ERR", wrong);
        return;
    }
    if ((name.length != length || memcmp(name.key, key, length) != 0) &&
        look(c, a, name.key, name.length))
        return;
    f = board(c, a, &name);
    if (!f)
        return;
    w = malloc(sizeof *w);
    if (!w) {
        set_error(a, "TRYAGAIN", "out of memory");
        return;
    }
    *w = (struct waiter){f->waiters, r, i};
    f->waiters = w;
    r->left++;
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

    if (count == 1 && word_length(c, first) > 0 &&
        look(c, &one, word(c, first), word_length(c, first))) {
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
    for (unsigned i = 0; i < count && !r->failed; i++) {
        unsigned left = r->left;

        find(c, r, i, word(c, first + i), word_length(c, first + i));
        if (r->left == left)
            count_answer(c->server, r, &r->answer[i]);
    }
    if (r->left > 0) {
        c->request = r;
        return;
    }
    finish(c, r);
    free_request(r);
}

void rows_abandon(struct client *c)
{
    c->request->c = NULL;
    c->request = NULL;
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

static void answer(struct server *s, struct request *r, unsigned i,
                   const struct qm_fill_job *job)
{
    struct answer *a = &r->answer[i];

    r->left--;
    if (r->c) {
        take(s, r, a, job);
        qm_reader_saw(&r->c->reader, &job->position);
        r->c->last_read = atomic_load(&s->tick);
    }
    if (r->left == 0) {
        struct client *c = r->c;

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
}

static void land(struct server *s, struct flight *f)
{
    struct waiter *w = f->waiters, *next;

    if (f->newest)
        HASH_DEL(s->flights, f);
    for (; w; w = next) {
        next = w->next;
        if (w->request->c && f->job.outcome == QM_FILL_ROW &&
            f->job.name.index[0] == '\0')
            readahead_read(w->request->c, f->job.name.key, f->job.name.length,
                           f->job.text.bytes, f->job.text.length, false, f->job.queued);
        answer(s, w->request, w->index, &f->job);
        free(w);
    }
    qm_text_free(&f->job.text);
    free(f);
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
