/* SPDX-License-Identifier: BSD-3-Clause */
/* plain.c - database 1: plain keys over libqmstore; see server.h.  SCAN and DBSIZE are
 * those of both databases. */
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "rowcache/server/server.h"

enum { SCAN_ENOUGH = 1 << 20 /* bytes; COUNT is a hint */ };

static uint64_t now_ms(void)
{
    struct timeval tv;

    gettimeofday(&tv, NULL);
    return (uint64_t)tv.tv_sec * 1000 + (uint64_t)tv.tv_usec / 1000;
}

/* Replies with the store's error, if it is one. */
static bool failed(struct client *c, int error)
{
    if (error == 0 || error == ENOENT)
        return false;
    if (error == EINVAL)
        client_error(c, "ERR a key has 1 to %u bytes, a value up to %u",
                     QMSTORE_KEY_MAX, QMSTORE_VALUE_MAX);
    else
        client_error(c, "MISCONF the store refuses: %s", strerror(error));
    return true;
}

static int get(struct client *c, unsigned i, void **value, size_t *length,
               uint64_t *expires)
{
    return qmstore_get(c->server->plain_store, word(c, i), word_length(c, i), value,
                       length, expires);
}

static int put(struct client *c, unsigned i, const void *value, size_t length,
               uint64_t expires)
{
    return qmstore_put(c->server->plain_store, word(c, i), word_length(c, i), value,
                       length, expires);
}

void plain_get(struct client *c)
{
    void *value;
    size_t length;
    int error = get(c, 1, &value, &length, NULL);

    if (failed(c, error))
        return;
    if (error == ENOENT) {
        qm_reply_null(&c->out, c->resp3);
        return;
    }
    qm_reply_bulk(&c->out, value, length);
    free(value);
}

void plain_mget(struct client *c)
{
    size_t from = c->out.length;

    qm_reply_array(&c->out, word_count(c) - 1);
    for (unsigned i = 1; i < word_count(c); i++) {
        void *value;
        size_t length;
        int error = get(c, i, &value, &length, NULL);

        if (error == ENOENT || error == EINVAL) {
            qm_reply_null(&c->out, c->resp3);
            continue;
        }
        if (error) {
            c->out.length = from;
            failed(c, error);
            return;
        }
        qm_reply_bulk(&c->out, value, length);
        free(value);
        if (c->out.failed || !client_reply_fits(c, from))
            return;
    }
}

void plain_exists(struct client *c)
{
    int64_t there = 0;

    for (unsigned i = 1; i < word_count(c); i++) {
        int error = get(c, i, NULL, NULL, NULL);

        if (error != EINVAL && failed(c, error))
            return;
        there += error == 0;
    }
    qm_reply_integer(&c->out, there);
}

void plain_strlen(struct client *c)
{
    void *value = NULL;
    size_t length = 0;
    int error = get(c, 1, &value, &length, NULL);

    if (failed(c, error))
        return;
    free(value);
    qm_reply_integer(&c->out, error == 0 ? (int64_t)length : 0);
}

void plain_type(struct client *c)
{
    int error = get(c, 1, NULL, NULL, NULL);

    if (error == EINVAL || !failed(c, error))
        qm_reply_simple(&c->out, error == 0 ? "string" : "none");
}

/* TTL and PTTL. */
void plain_ttl(struct client *c)
{
    uint64_t expires = 0, now = now_ms();
    bool ms = strcmp(c->command, "pttl") == 0;
    int error = get(c, 1, NULL, NULL, &expires);

    if (failed(c, error))
        return;
    if (error == ENOENT)
        qm_reply_integer(&c->out, -2);
    else if (expires == 0)
        qm_reply_integer(&c->out, -1);
    else if (ms)
        qm_reply_integer(&c->out, expires > now ? (int64_t)(expires - now) : 0);
    else
        qm_reply_integer(&c->out,
                         expires > now ? (int64_t)(expires - now + 500) / 1000 : 0);
}

static int by_key(const void *a, const void *b)
{
    const struct qmstore_change *x = a, *y = b;

    if (x->key_len != y->key_len)
        return x->key_len < y->key_len ? -1 : 1;
    return memcmp(x->key, y->key, x->key_len);
}

/* Of those changes, the deletions of keys that are there, each once: they come first.
 * An error is replied: false. */
static bool keep_found(struct client *c, struct qmstore_change *changes, size_t *count)
{
    size_t found = 0;

    qsort(changes, *count, sizeof *changes, by_key);
    for (size_t i = 0; i < *count; i++) {
        int error;

        if (found > 0 && by_key(&changes[found - 1], &changes[i]) == 0)
            continue;
        error = qmstore_get(c->server->plain_store, changes[i].key, changes[i].key_len,
                            NULL, NULL, NULL);
        if (error == EBADMSG) /* can be removed */
            error = 0;
        if (error != EINVAL && failed(c, error))
            return false;
        if (error == 0)
            changes[found++] = changes[i];
    }
    *count = found;
    return true;
}

/* All or none, with one sync. */
void plain_del(struct client *c)
{
    size_t count = word_count(c) - 1;
    struct qmstore_change *changes = calloc(count, sizeof *changes);

    if (!changes) {
        client_error(c, "OOM out of memory");
        return;
    }
    for (size_t i = 0; i < count; i++)
        changes[i] = (struct qmstore_change){
            .key = word(c, (unsigned)i + 1),
            .key_len = word_length(c, (unsigned)i + 1),
        };
    if (keep_found(c, changes, &count) &&
        !failed(c, qmstore_batch(c->server->plain_store, changes, count)))
        qm_reply_integer(&c->out, (int64_t)count);
    free(changes);
}

void plain_flushdb(struct client *c)
{
    if (!failed(c, qmstore_clear(c->server->plain_store)))
        qm_reply_simple(&c->out, "OK");
}

void cmd_flushall(struct client *c)
{
    qm_rows_drop_all(c->server->rows);
    readahead_dropped(c->server, NULL, 0);
    plain_flushdb(c);
}

/* --- SET and its kin --- */

/* A time in word i, in units of ms, since since. */
static bool read_time(struct client *c, unsigned i, int64_t unit, uint64_t since,
                      uint64_t *expires)
{
    int64_t value;

    if (!word_integer(c, i, &value)) {
        client_error(c, "ERR value is not an integer or out of range");
        return false;
    }
    if (value <= 0 || value > INT64_MAX / 2 / unit) {
        client_error(c, "ERR invalid expire time in '%s' command", c->command);
        return false;
    }
    *expires = since + (uint64_t)(value * unit);
    return true;
}

struct set_options {
    bool nx, xx, get, keep;
    uint64_t expires;
};

static bool read_options(struct client *c, struct set_options *o)
{
    static const struct {
        const char *word;
        int64_t unit;
        bool absolute;
    } times[] = {
        {"EX", 1000, false}, {"PX", 1, false}, {"EXAT", 1000, true}, {"PXAT", 1, true}};

    for (unsigned i = 3; i < word_count(c); i++) {
        unsigned t = 0;

        if (word_is(c, i, "NX") && !o->xx)
            o->nx = true;
        else if (word_is(c, i, "XX") && !o->nx)
            o->xx = true;
        else if (word_is(c, i, "GET"))
            o->get = true;
        else if (word_is(c, i, "KEEPTTL") && o->expires == 0)
            o->keep = true;
        else {
            while (t < 4 && !word_is(c, i, times[t].word))
                t++;
            if (t == 4 || i + 1 == word_count(c) || o->expires != 0 || o->keep) {
                client_error(c, "ERR syntax error");
                return false;
            }
            i++;
            if (!read_time(c, i, times[t].unit, times[t].absolute ? 0 : now_ms(),
                           &o->expires))
                return false;
        }
    }
    return true;
}

void plain_set(struct client *c)
{
    struct set_options o = {0};
    void *old = NULL;
    size_t old_length = 0;
    uint64_t old_expires = 0;
    bool there = false, set;
    int error = 0;

    if (!read_options(c, &o))
        return;
    if (o.nx || o.xx || o.get || o.keep) {
        error = get(c, 1, o.get ? &old : NULL, &old_length, &old_expires);
        if (failed(c, error))
            return;
        there = error == 0;
    }
    set = !(o.nx && there) && !(o.xx && !there);
    if (set)
        error = put(c, 1, word(c, 2), word_length(c, 2),
                    o.keep && there ? old_expires : o.expires);
    if (set && failed(c, error))
        ;
    else if (o.get && there)
        qm_reply_bulk(&c->out, old, old_length);
    else if (o.get || !set)
        qm_reply_null(&c->out, c->resp3);
    else
        qm_reply_simple(&c->out, "OK");
    free(old);
}

void plain_setnx(struct client *c)
{
    int error = get(c, 1, NULL, NULL, NULL);

    if (failed(c, error))
        return;
    if (error == ENOENT && failed(c, put(c, 1, word(c, 2), word_length(c, 2), 0)))
        return;
    qm_reply_integer(&c->out, error == ENOENT);
}

/* SETEX and PSETEX. */
void plain_setex(struct client *c)
{
    uint64_t expires;

    if (read_time(c, 2, c->command[0] == 'p' ? 1 : 1000, now_ms(), &expires) &&
        !failed(c, put(c, 1, word(c, 3), word_length(c, 3), expires)))
        qm_reply_simple(&c->out, "OK");
}

/* All or none, with one sync. */
void plain_mset(struct client *c)
{
    unsigned count = word_count(c) / 2;
    struct qmstore_change *changes;

    if (word_count(c) % 2 == 0) {
        client_error(c, "ERR wrong number of arguments for '%s' command", c->command);
        return;
    }
    changes = calloc(count, sizeof *changes);
    if (!changes) {
        client_error(c, "OOM out of memory");
        return;
    }
    for (unsigned i = 0; i < count; i++)
        changes[i] = (struct qmstore_change){
            .key = word(c, 2 * i + 1),
            .value = word(c, 2 * i + 2),
            .key_len = word_length(c, 2 * i + 1),
            .value_len = word_length(c, 2 * i + 2),
        };
    if (!failed(c, qmstore_batch(c->server->plain_store, changes, count)))
        qm_reply_simple(&c->out, "OK");
    free(changes);
}

/* GETSET and GETDEL: the old value. */
static void replace(struct client *c, bool set)
{
    void *old = NULL;
    size_t length = 0;
    int error = get(c, 1, &old, &length, NULL), r;

    if (failed(c, error))
        return;
    r = set ? put(c, 1, word(c, 2), word_length(c, 2), 0)
            : qmstore_delete(c->server->plain_store, word(c, 1), word_length(c, 1));
    if (failed(c, r))
        ;
    else if (error == 0)
        qm_reply_bulk(&c->out, old, length);
    else
        qm_reply_null(&c->out, c->resp3);
    free(old);
}

void plain_getset(struct client *c)
{
    replace(c, true);
}

void plain_getdel(struct client *c)
{
    replace(c, false);
}

void plain_append(struct client *c)
{
    void *old = NULL;
    char *joined;
    size_t length = 0;
    uint64_t expires = 0;
    int error = get(c, 1, &old, &length, &expires);

    if (failed(c, error))
        return;
    joined = realloc(old, length + word_length(c, 2) + 1);
    if (!joined) {
        free(old);
        client_error(c, "OOM out of memory");
        return;
    }
    memcpy(joined + length, word(c, 2), word_length(c, 2));
    length += word_length(c, 2);
    if (!failed(c, put(c, 1, joined, length, expires)))
        qm_reply_integer(&c->out, (int64_t)length);
    free(joined);
}

/* EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT. */
void plain_expire(struct client *c)
{
    bool ms = c->command[0] == 'p', at = c->command[strlen(c->command) - 1] == 't';
    int64_t value, unit = ms ? 1 : 1000;
    uint64_t now = now_ms();
    void *old;
    size_t length;
    int error;

    if (!word_integer(c, 2, &value)) {
        client_error(c, "ERR value is not an integer or out of range");
        return;
    }
    if (value > INT64_MAX / 2 / unit || value < INT64_MIN / 2 / unit) {
        client_error(c, "ERR invalid expire time in '%s' command", c->command);
        return;
    }
    value = value * unit + (at ? 0 : (int64_t)now);
    error = get(c, 1, &old, &length, NULL);
    if (failed(c, error))
        return;
    if (error == ENOENT) {
        qm_reply_integer(&c->out, 0);
        return;
    }
    error = value <= (int64_t)now
                ? qmstore_delete(c->server->plain_store, word(c, 1), word_length(c, 1))
                : put(c, 1, old, length, (uint64_t)value);
    free(old);
    if (!failed(c, error))
        qm_reply_integer(&c->out, 1);
}

void plain_persist(struct client *c)
{
    void *old;
    size_t length;
    uint64_t expires;
    int error = get(c, 1, &old, &length, &expires);

    if (failed(c, error))
        return;
    if (error == 0 && expires != 0)
        error = put(c, 1, old, length, 0);
    else if (error == 0)
        expires = 0;
    if (error == ENOENT)
        expires = 0;
    else
        free(old);
    if (!failed(c, error))
        qm_reply_integer(&c->out, expires != 0);
}

/* INCR, DECR, INCRBY, DECRBY. */
void plain_incr(struct client *c)
{
    int64_t by = 1, number = 0;
    void *old = NULL;
    size_t length = 0;
    uint64_t expires = 0;
    char text[24];
    int error;

    if (word_count(c) == 3 && !word_integer(c, 2, &by)) {
        client_error(c, "ERR value is not an integer or out of range");
        return;
    }
    if (c->command[0] == 'd' && by == INT64_MIN) {
        client_error(c, "ERR decrement would overflow");
        return;
    }
    if (c->command[0] == 'd')
        by = -by;
    error = get(c, 1, &old, &length, &expires);
    if (failed(c, error))
        return;
    if (error == 0) {
        if (!text_integer(old, length, &number)) {
            free(old);
            client_error(c, "ERR value is not an integer or out of range");
            return;
        }
        free(old);
    }
    if (__builtin_add_overflow(number, by, &number)) {
        client_error(c, "ERR increment or decrement would overflow");
        return;
    }
    snprintf(text, sizeof text, "%" PRId64, number);
    if (!failed(c, put(c, 1, text, strlen(text), expires)))
        qm_reply_integer(&c->out, number);
}

/* --- both databases --- */

static struct qmstore *store_of(const struct client *c)
{
    return c->db == 1 ? c->server->plain_store : c->server->row_store;
}

void cmd_dbsize(struct client *c)
{
    struct qmstore_stats stats;

    if (!store_of(c)) {
        rows_redis_dbsize(c);
        return;
    }
    qmstore_get_stats(store_of(c), &stats);
    qm_reply_integer(&c->out, (int64_t)stats.keys);
}

struct scan {
    const char *pattern; /* NULL: all */
    struct qm_text keys;
    size_t count;
};

static int add_key(void *opaque, const void *key, size_t key_len, const void *value,
                   size_t value_len, uint64_t expires)
{
    struct scan *scan = opaque;
    char *text = scan->pattern ? strndup(key, key_len) : NULL;
    bool matches = !scan->pattern || (text && fnmatch(scan->pattern, text, 0) == 0);

    free(text);
    if (matches) {
        qm_reply_bulk(&scan->keys, key, key_len);
        scan->count++;
    }
    return 0;
}

static bool read_scan(struct client *c, char **pattern, int64_t *count, bool *none)
{
    for (unsigned i = 2; i < word_count(c); i += 2) {
        if (i + 1 == word_count(c)) {
            client_error(c, "ERR syntax error");
            return false;
        }
        if (word_is(c, i, "MATCH")) {
            free(*pattern);
            *pattern = strndup(word(c, i + 1), word_length(c, i + 1));
        } else if (word_is(c, i, "COUNT")) {
            if (!word_integer(c, i + 1, count)) {
                client_error(c, "ERR value is not an integer or out of range");
                return false;
            }
            if (*count < 1) {
                client_error(c, "ERR syntax error");
                return false;
            }
        } else if (word_is(c, i, "TYPE")) {
            *none = !word_is(c, i + 1, c->db == 1 ? "string" : "hash");
        } else {
            client_error(c, "ERR syntax error");
            return false;
        }
    }
    return true;
}

void cmd_scan(struct client *c)
{
    struct scan scan = {0};
    char text[24], *pattern = NULL, *end;
    uint64_t cursor;
    int64_t count = 10;
    bool none = false;
    int error = 0;

    snprintf(text, sizeof text, "%.*s", (int)word_length(c, 1), word(c, 1));
    errno = 0;
    cursor = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 ||
        word_length(c, 1) >= sizeof text) {
        client_error(c, "ERR invalid cursor");
        return;
    }
    if (!read_scan(c, &pattern, &count, &none)) {
        free(pattern);
        return;
    }
    if (!store_of(c)) {
        rows_redis_scan(c, text, pattern, none ? 0 : count);
        free(pattern);
        return;
    }
    scan.pattern = pattern;
    do
        error = qmstore_scan(store_of(c), &cursor, add_key, &scan);
    while (error == 0 && cursor != 0 && scan.count < (size_t)count &&
           scan.keys.length < SCAN_ENOUGH && !pattern);
    if (error == EINVAL) { /* as Redis: a cursor that never was ends the walk */
        error = 0;
        cursor = 0;
    }
    if (!failed(c, error)) {
        snprintf(text, sizeof text, "%" PRIu64, cursor);
        qm_reply_array(&c->out, 2);
        qm_reply_string(&c->out, text);
        qm_reply_array(&c->out, none ? 0 : scan.count);
        if (!none)
            qm_text_add(&c->out, scan.keys.bytes, scan.keys.length);
    }
    qm_text_free(&scan.keys);
    free(pattern);
}
