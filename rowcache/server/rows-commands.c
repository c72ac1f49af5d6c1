/* SPDX-License-Identifier: BSD-3-Clause */
/* rows-commands.c - database 0: rows of MariaDB; see server.h.
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

#include "rowcache/server/server.h"

struct answer {
    enum qm_fill_outcome outcome;
    void *value; /* to be freed, or NULL */
    const char *text;
    size_t length;
};

struct request {
    struct client *c; /* NULL: it has gone */
    void (*finish)(struct client *c, struct request *r);
    unsigned count, left;
    struct answer *answer;
    bool bare;    /* whether the rows are there, without their texts */
    bool failed;  /* an answer is an error: the others do not matter */
    size_t bytes; /* of the answers' texts */
};

enum { FIELDS_MOST = 4096 /* MariaDB's tables have no more columns */ };

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

/* Asks for the rows that words first to first + count - 1 name, and has finish reply.
 */
static void ask_for(struct client *c, unsigned first, unsigned count, bool bare,
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

static void ask(struct client *c, unsigned first, unsigned count,
                void (*finish)(struct client *c, struct request *r))
{
    ask_for(c, first, count, false, finish);
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

/* --- replies --- */

static bool reply_failed(struct client *c, const struct answer *a)
{
    if (a->outcome != QM_FILL_ERROR)
        return false;
    client_error(c, "%.*s", (int)a->length, a->text);
    return true;
}

static void finish_get(struct client *c, struct request *r)
{
    const struct answer *a = &r->answer[0];

    if (a->outcome == QM_FILL_ROW)
        qm_reply_bulk(&c->out, a->text, a->length);
    else if (!reply_failed(c, a))
        qm_reply_null(&c->out, c->resp3);
}

void cmd_get(struct client *c)
{
    ask(c, 1, 1, finish_get);
}

/* The first error of several answers. */
static bool any_failed(struct client *c, const struct request *r)
{
    for (unsigned i = 0; i < r->count; i++)
        if (reply_failed(c, &r->answer[i]))
            return true;
    return false;
}

static void finish_mget(struct client *c, struct request *r)
{
    if (any_failed(c, r))
        return;
    qm_reply_array(&c->out, r->count);
    for (unsigned i = 0; i < r->count; i++) {
        if (r->answer[i].outcome == QM_FILL_ROW)
            qm_reply_bulk(&c->out, r->answer[i].text, r->answer[i].length);
        else
            qm_reply_null(&c->out, c->resp3);
    }
}

void cmd_mget(struct client *c)
{
    ask(c, 1, word_count(c) - 1, finish_mget);
}

static void finish_exists(struct client *c, struct request *r)
{
    int64_t there = 0;

    if (any_failed(c, r))
        return;
    for (unsigned i = 0; i < r->count; i++)
        there += r->answer[i].outcome == QM_FILL_ROW;
    qm_reply_integer(&c->out, there);
}

void cmd_exists(struct client *c)
{
    ask_for(c, 1, word_count(c) - 1, true, finish_exists);
}

static void finish_ttl(struct client *c, struct request *r)
{
    if (!any_failed(c, r))
        qm_reply_integer(&c->out, r->answer[0].outcome == QM_FILL_ROW ? -1 : -2);
}

void cmd_ttl(struct client *c)
{
    ask(c, 1, 1, finish_ttl);
}

static void finish_type(struct client *c, struct request *r)
{
    if (!any_failed(c, r))
        qm_reply_simple(&c->out, r->answer[0].outcome == QM_FILL_ROW ? "hash" : "none");
}

void cmd_type(struct client *c)
{
    ask(c, 1, 1, finish_type);
}

static void finish_strlen(struct client *c, struct request *r)
{
    if (!any_failed(c, r))
        qm_reply_integer(&c->out, (int64_t)r->answer[0].length);
}

void cmd_strlen(struct client *c)
{
    ask(c, 1, 1, finish_strlen);
}

/* --- columns --- */

static size_t count_members(const struct answer *a)
{
    struct qm_member m = {0};
    const char *at = a->text;
    size_t n = 0;

    while (a->outcome == QM_FILL_ROW && qm_json_next(&at, a->text + a->length, &m) == 1)
        n++;
    qm_member_free(&m);
    return n;
}

static void reply_value(struct client *c, const struct qm_member *m)
{
    if (m->null)
        qm_reply_null(&c->out, c->resp3);
    else
        qm_reply_bulk(&c->out, m->value.bytes, m->value.length);
}

static bool is_member(const struct client *c, unsigned i, const struct qm_member *m)
{
    return m->name.length == word_length(c, i) &&
           memcmp(m->name.bytes, word(c, i), m->name.length) == 0;
}

/* The column that word i names; false: there is none. */
static bool find_member(struct client *c, const struct answer *a, unsigned i,
                        struct qm_member *m)
{
    const char *at = a->text;

    while (a->outcome == QM_FILL_ROW && qm_json_next(&at, a->text + a->length, m) == 1)
        if (is_member(c, i, m))
            return true;
    return false;
}

static void reply_member(struct client *c, const struct answer *a, unsigned i)
{
    struct qm_member m = {0};

    if (find_member(c, a, i, &m))
        reply_value(c, &m);
    else
        qm_reply_null(&c->out, c->resp3);
    qm_member_free(&m);
}

static void finish_hget(struct client *c, struct request *r)
{
    if (!any_failed(c, r))
        reply_member(c, &r->answer[0], 2);
}

void cmd_hget(struct client *c)
{
    ask(c, 1, 1, finish_hget);
}

struct members {
    struct qm_member *at;
    size_t count, room;
};

/* All of a row, so that it is read once for however many fields.  False: there is no
 * memory. */
static bool read_members(const struct answer *a, struct members *m)
{
    const char *at = a->text;

    while (a->outcome == QM_FILL_ROW) {
        if (m->count == m->room) {
            size_t room = m->room ? 2 * m->room : 32;
            struct qm_member *more = realloc(m->at, room * sizeof *more);

            if (!more)
                return false;
            memset(more + m->room, 0, (room - m->room) * sizeof *more);
            m->at = more;
            m->room = room;
        }
        if (qm_json_next(&at, a->text + a->length, &m->at[m->count]) != 1)
            break;
        m->count++;
    }
    return true;
}

static void free_members(struct members *m)
{
    for (size_t i = 0; i < m->room; i++)
        qm_member_free(&m->at[i]);
    free(m->at);
}

static void finish_hmget(struct client *c, struct request *r)
{
    struct members m = {0};
    size_t from = c->out.length;

    if (any_failed(c, r))
        return;
    if (!read_members(&r->answer[0], &m)) {
        client_error(c, "TRYAGAIN out of memory");
        free_members(&m);
        return;
    }
    qm_reply_array(&c->out, word_count(c) - 2);
    for (unsigned i = 2; i < word_count(c) && !c->out.failed; i++) {
        size_t j = 0;

        while (j < m.count && !is_member(c, i, &m.at[j]))
            j++;
        if (j < m.count)
            reply_value(c, &m.at[j]);
        else
            qm_reply_null(&c->out, c->resp3);
        if (!client_reply_fits(c, from))
            break;
    }
    free_members(&m);
}

void cmd_hmget(struct client *c)
{
    if (word_count(c) - 2 > FIELDS_MOST)
        client_error(c, "ERR HMGET takes up to %d fields: a row has no more columns",
                     FIELDS_MOST);
    else
        ask(c, 1, 1, finish_hmget);
}

static void finish_hexists(struct client *c, struct request *r)
{
    struct qm_member m = {0};

    if (!any_failed(c, r))
        qm_reply_integer(&c->out, find_member(c, &r->answer[0], 2, &m));
    qm_member_free(&m);
}

void cmd_hexists(struct client *c)
{
    ask(c, 1, 1, finish_hexists);
}

static void reply_members(struct client *c, const struct answer *a, bool names,
                          bool values)
{
    struct qm_member m = {0};
    const char *at = a->text;

    while (a->outcome == QM_FILL_ROW &&
           qm_json_next(&at, a->text + a->length, &m) == 1) {
        if (names)
            qm_reply_bulk(&c->out, m.name.bytes, m.name.length);
        if (values)
            reply_value(c, &m);
    }
    qm_member_free(&m);
}

static void finish_hgetall(struct client *c, struct request *r)
{
    if (any_failed(c, r))
        return;
    qm_reply_map(&c->out, count_members(&r->answer[0]), c->resp3);
    reply_members(c, &r->answer[0], true, true);
}

void cmd_hgetall(struct client *c)
{
    ask(c, 1, 1, finish_hgetall);
}

static void finish_hkeys(struct client *c, struct request *r)
{
    if (any_failed(c, r))
        return;
    qm_reply_array(&c->out, count_members(&r->answer[0]));
    reply_members(c, &r->answer[0], true, false);
}

void cmd_hkeys(struct client *c)
{
    ask(c, 1, 1, finish_hkeys);
}

static void finish_hvals(struct client *c, struct request *r)
{
    if (any_failed(c, r))
        return;
    qm_reply_array(&c->out, count_members(&r->answer[0]));
    reply_members(c, &r->answer[0], false, true);
}

void cmd_hvals(struct client *c)
{
    ask(c, 1, 1, finish_hvals);
}

static void finish_hlen(struct client *c, struct request *r)
{
    if (!any_failed(c, r))
        qm_reply_integer(&c->out, (int64_t)count_members(&r->answer[0]));
}

void cmd_hlen(struct client *c)
{
    ask(c, 1, 1, finish_hlen);
}

/* --- OBJECT and MEMORY: redis's words for what the store does not count --- */

static bool object_refused(struct client *c)
{
    if (word_is(c, 1, "ENCODING") && word_count(c) == 3)
        return false;
    if (word_is(c, 1, "FREQ") && word_count(c) == 3)
        client_error(c, "ERR An LFU maxmemory policy is not selected, access frequency "
                        "not tracked. Please note that when switching between policies "
                        "at runtime LRU and LFU data will take some time to adjust.");
    else
        client_error(c,
                     "ERR unknown subcommand or wrong number of arguments for '%.*s'. "
                     "Only OBJECT ENCODING key is known here.",
                     word_length(c, 1) > 60 ? 60 : (int)word_length(c, 1), word(c, 1));
    return true;
}

static void finish_encoding(struct client *c, struct request *r)
{
    if (any_failed(c, r))
        return;
    if (r->answer[0].outcome == QM_FILL_ROW)
        qm_reply_string(&c->out, "hashtable");
    else
        qm_reply_null(&c->out, c->resp3);
}

void cmd_object(struct client *c)
{
    if (!object_refused(c))
        ask(c, 2, 1, finish_encoding);
}

void plain_object(struct client *c)
{
    int error;

    if (object_refused(c))
        return;
    error = qmstore_get(c->server->plain_store, word(c, 2), word_length(c, 2), NULL,
                        NULL, NULL);
    if (error == 0)
        qm_reply_string(&c->out, "raw");
    else if (error == ENOENT || error == EINVAL)
        qm_reply_null(&c->out, c->resp3);
    else
        client_error(c, "MISCONF the store refuses: %s", strerror(error));
}

void cmd_memory(struct client *c)
{
    client_error(c,
                 "ERR unknown subcommand or wrong number of arguments for '%.*s'. The "
                 "memory of one key is not counted here; INFO store has that of all",
                 word_length(c, 1) > 60 ? 60 : (int)word_length(c, 1), word(c, 1));
}

/* --- what is kept --- */

void cmd_del(struct client *c)
{
    int64_t dropped = 0;
    struct qm_row_name name;

    for (unsigned i = 1; i < word_count(c); i++)
        if (!qm_row_name_parse(&name, word(c, i), word_length(c, i),
                               c->server->config->schema))
            dropped += qm_rows_drop(c->server->rows, name.key, name.length);
    qm_reply_integer(&c->out, dropped);
}

void cmd_flushdb(struct client *c)
{
    qm_rows_drop_all(c->server->rows);
    qm_reply_simple(&c->out, "OK");
}

void cmd_waitgtid(struct client *c)
{
    struct qm_gtid_list position;

    if (!qm_gtid_parse(&position, word(c, 1), word_length(c, 1))) {
        client_error(c, "ERR a GTID is DOMAIN-SERVER-SEQUENCE, or several with commas");
        return;
    }
    /* Until it is applied, reads of this connection go to the database, which has it.
     */
    qm_reader_saw(&c->reader, &position);
    c->last_read = atomic_load(&c->server->tick);
    qm_reply_simple(&c->out, "OK");
}

void cmd_plain_only(struct client *c)
{
    client_error(c,
                 "ERR '%s' would change a row of MariaDB, and database 0 only reads "
                 "them; SELECT 1 has plain keys",
                 c->command);
}
