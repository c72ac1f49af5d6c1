/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.c - the rows that are kept; see rows.h.
 *
 * A kept value begins with a header: its kind, and the generation of its table when it
 * was stored.  A table is emptied by raising its generation.  Tables share 1024
 * generations, and keys 65536 versions, by their hashes: a collision drops more than it
 * must, never less.  Versions, positions and what waits are under one lock.
 *
 * At another place (qm_rows_new_at()) values have no header, for others may read them:
 * to empty a table there is to empty the place, if rows of that table may be there. */
#include "rowcache/rows.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rowcache/key/keytext.h"

enum { SLOTS = 65536, TABLES = 1024, WAITING = 8192, WAITING_BYTES = 32 << 20 };

struct header {
    uint64_t generation;
    uint16_t table;
    uint8_t kind;
    uint8_t padding[5];
};

struct touched {
    uint64_t version, number; /* how often, and by which transaction last */
};

/* An answer that waits until what it may have seen is applied. */
struct waiting {
    struct waiting *next;
    struct qm_rows_token token;
    struct qm_gtid_list position;
    size_t key_length, length;
    char bytes[]; /* key, then header and value */
};

struct qm_rows {
    struct qmstore *store;      /* or NULL: */
    struct qm_rows_place place; /* if put is set */
    bool placed[TABLES];        /* rows of it may be there */
    pthread_mutex_t lock;
    struct touched slot[SLOTS], table[TABLES];
    _Atomic uint64_t generation[TABLES];
    _Atomic bool following;
    _Atomic uint32_t server; /* whose log is followed, or was last; 0: none yet */
    _Atomic uint64_t fresh, max_lag; /* ns */
    uint64_t settled;
    struct qm_gtid_list applied;
    struct waiting *first, **last;
    size_t count, bytes;
    struct qm_rows_stats stats;
    void (*watch)(void *opaque, const char *schema, const char *table, const char *row,
                  size_t length);
    void *watcher;
};

uint64_t qm_rows_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static unsigned slot_of(const char *key, size_t length)
{
    return (unsigned)(XXH3_64bits(key, length) % SLOTS);
}

static unsigned table_of(const char *table, size_t length)
{
    return (unsigned)(XXH3_64bits(table, length) % TABLES);
}

static struct qm_rows *new_rows(unsigned max_lag_ms)
{
    struct qm_rows *rows = calloc(1, sizeof *rows);

    if (!rows)
        return NULL;
    rows->last = &rows->first;
    pthread_mutex_init(&rows->lock, NULL);
    snprintf(rows->stats.why, sizeof rows->stats.why, "the binary log is not followed");
    qm_rows_set_max_lag(rows, max_lag_ms);
    return rows;
}

struct qm_rows *qm_rows_new(struct qmstore *store, unsigned max_lag_ms)
{
    struct qm_rows *rows = qmstore_clear(store) == 0 ? new_rows(max_lag_ms) : NULL;

    if (rows)
        rows->store = store;
    return rows;
}

struct qm_rows *qm_rows_new_at(const struct qm_rows_place *place, unsigned max_lag_ms)
{
    struct qm_rows *rows = new_rows(max_lag_ms);

    if (rows)
        rows->place = *place;
    return rows;
}

static void forget_waiting(struct qm_rows *rows)
{
    while (rows->first) {
        struct waiting *w = rows->first;

        rows->first = w->next;
        free(w);
    }
    rows->last = &rows->first;
    rows->count = rows->bytes = 0;
}

void qm_rows_free(struct qm_rows *rows)
{
    if (!rows)
        return;
    forget_waiting(rows);
    pthread_mutex_destroy(&rows->lock);
    free(rows);
}

void qm_rows_set_max_lag(struct qm_rows *rows, unsigned ms)
{
    rows->max_lag = (uint64_t)ms * 1000000;
}

bool qm_rows_is_following(struct qm_rows *rows)
{
    return rows->following;
}

static bool is_fresh(struct qm_rows *rows, uint64_t now)
{
    uint64_t fresh = atomic_load_explicit(&rows->fresh, memory_order_acquire);

    return rows->following && (now <= fresh || now - fresh <= rows->max_lag);
}

bool qm_rows_is_fresh(struct qm_rows *rows, uint64_t now)
{
    return is_fresh(rows, now);
}

/* --- readers --- */

/* Whether what it has seen is applied. */
static bool caught_up(struct qm_rows *rows, struct qm_reader *reader)
{
    bool covers;

    pthread_mutex_lock(&rows->lock);
    covers = qm_gtid_covers(&rows->applied, reader->seen);
    pthread_mutex_unlock(&rows->lock);
    if (covers) {
        free(reader->seen);
        reader->seen = NULL;
        reader->told = false;
    }
    return covers;
}

bool qm_rows_serves(struct qm_rows *rows, struct qm_reader *reader, uint64_t now)
{
    return is_fresh(rows, now) && !reader->blind &&
           (!reader->seen || caught_up(rows, reader));
}

enum qm_rows_kind qm_rows_get(struct qm_rows *rows, struct qm_reader *reader,
                              uint64_t now, const char *key, size_t length,
                              void **value, const char **text, size_t *text_length)
{
    struct header header;
    size_t n;
    int error;

    if (rows->place.put || !qm_rows_serves(rows, reader, now))
        return QM_ROWS_NONE;
    error = value ? qmstore_get(rows->store, key, length, value, &n, NULL)
                  : qmstore_head(rows->store, key, length, &header, sizeof header, &n,
                                 NULL);
    if (error != 0)
        return QM_ROWS_NONE;
    if (value)
        memcpy(&header, *value, n < sizeof header ? 0 : sizeof header);
    if (n < sizeof header || header.generation != rows->generation[header.table]) {
        if (value)
            free(*value);
        return QM_ROWS_NONE;
    }
    *text = value ? (const char *)*value + sizeof header : NULL;
    *text_length = n - sizeof header;
    return header.kind;
}

bool qm_rows_has(struct qm_rows *rows, const char *key, size_t length)
{
    struct qm_reader reader = {0};
    const char *text;
    size_t n;

    if (rows->place.put)
        return is_fresh(rows, qm_rows_now()) &&
               rows->place.has(rows->place.opaque, key, length);
    return qm_rows_get(rows, &reader, qm_rows_now(), key, length, NULL, &text, &n) !=
           QM_ROWS_NONE;
}

void qm_reader_saw(struct qm_reader *reader, const struct qm_gtid_list *position)
{
    if (position->count == 0)
        return;
    if (!reader->seen)
        reader->seen = calloc(1, sizeof *reader->seen);
    if (!reader->seen || !qm_gtid_raise(reader->seen, position))
        reader->blind = true;
}

static void empty_table(struct qm_rows *rows, unsigned table, uint64_t number)
{
    rows->generation[table]++;
    if (number > rows->table[table].number)
        rows->table[table].number = number;
    if (rows->placed[table]) {
        rows->place.clear(rows->place.opaque);
        memset(rows->placed, 0, sizeof rows->placed);
    }
}

/* Removes a key.  What the store cannot remove must not be found: then its table is
 * emptied, for the rows' versions are in memory. */
static bool forget(struct qm_rows *rows, unsigned table, const char *key, size_t length)
{
    int error;

    if (rows->place.put) {
        bool there = rows->place.has(rows->place.opaque, key, length);

        rows->place.remove(rows->place.opaque, key, length);
        return there;
    }
    error = qmstore_delete(rows->store, key, length);
    if (error != 0 && error != ENOENT)
        empty_table(rows, table, 0);
    return error == 0;
}

/* --- fills --- */

struct qm_rows_token qm_rows_begin(struct qm_rows *rows, const char *table,
                                   size_t table_length, const char *key, size_t length)
{
    struct qm_rows_token t = {
        slot_of(key, length), table_of(table, table_length), 0, 0, false, 0, 0};

    pthread_mutex_lock(&rows->lock);
    t.version = rows->slot[t.slot].version;
    t.generation = rows->generation[t.table];
    t.storable = rows->following && rows->slot[t.slot].number <= rows->settled &&
                 rows->table[t.table].number <= rows->settled;
    if (rows->following && !t.storable)
        rows->stats.unsettled++;
    pthread_mutex_unlock(&rows->lock);
    return t;
}

/* When its life ends, as the store has it. */
static uint64_t end_of(const struct qm_rows_token *t)
{
    struct timespec ts;

    if (t->life_ms == 0)
        return 0;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000 + t->life_ms;
}

/* Keeps what store() has found to be right.  It may have been kept, or not, if this
 * fails: then nothing must be there.  (A scratch store has no errors of a disk.) */
static bool keep(struct qm_rows *rows, const struct qm_rows_token *t, const char *key,
                 size_t key_length, const char *value, size_t length)
{
    size_t header = sizeof(struct header);

    if (!rows->place.put) {
        if (qmstore_put(rows->store, key, key_length, value, length, end_of(t)) == 0)
            return true;
        forget(rows, t->table, key, key_length);
        return false;
    }
    if (!rows->place.put(rows->place.opaque, key, key_length, value + header,
                         length - header, t->life_ms))
        return false;
    rows->placed[t->table] = true;
    return true;
}

static bool store(struct qm_rows *rows, const struct qm_rows_token *t, const char *key,
                  size_t key_length, const char *value, size_t length)
{
    if (!rows->following || rows->slot[t->slot].version != t->version ||
        rows->generation[t->table] != t->generation) {
        rows->stats.raced++;
        return false;
    }
    if (!keep(rows, t, key, key_length, value, length))
        return false;
    rows->stats.stored++;
    rows->stats.stored_of[t->source]++;
    return true;
}

bool qm_rows_put(struct qm_rows *rows, const struct qm_rows_token *token,
                 const char *key, size_t length, enum qm_rows_kind kind,
                 const char *value, size_t value_length,
                 const struct qm_gtid_list *position)
{
    struct header header = {.kind = (uint8_t)kind,
                            .table = (uint16_t)token->table,
                            .generation = token->generation};
    struct waiting *w;
    bool stored = false;

    if (!token->storable || position->count == 0 || length > QMSTORE_KEY_MAX)
        return false;
    w = malloc(sizeof *w + length + sizeof header + value_length);
    if (!w)
        return false;
    *w = (struct waiting){.token = *token,
                          .position = *position,
                          .key_length = length,
                          .length = sizeof header + value_length};
    memcpy(w->bytes, key, length);
    memcpy(w->bytes + length, &header, sizeof header);
    if (value_length > 0)
        memcpy(w->bytes + length + sizeof header, value, value_length);
    pthread_mutex_lock(&rows->lock);
    if (qm_gtid_covers(&rows->applied, position)) {
        stored = store(rows, token, w->bytes, length, w->bytes + length, w->length);
    } else if (rows->following && rows->count < WAITING &&
               rows->bytes + w->length < WAITING_BYTES) {
        *rows->last = w;
        rows->last = &w->next;
        rows->count++;
        rows->bytes += w->length;
        w = NULL;
    }
    pthread_mutex_unlock(&rows->lock);
    free(w);
    return stored;
}

/* In their order: one that cannot be stored yet holds up those behind it. */
static void store_waiting(struct qm_rows *rows)
{
    while (rows->first && qm_gtid_covers(&rows->applied, &rows->first->position)) {
        struct waiting *w = rows->first;

        rows->first = w->next;
        if (!rows->first)
            rows->last = &rows->first;
        rows->count--;
        rows->bytes -= w->length;
        store(rows, &w->token, w->bytes, w->key_length, w->bytes + w->key_length,
              w->length);
        free(w);
    }
}

/* --- changes --- */

/* The key begins with its table, and a ':'. */
static bool drop(struct qm_rows *rows, const char *key, size_t length, uint64_t number)
{
    struct touched *slot = &rows->slot[slot_of(key, length)];
    const char *colon = memchr(key, ':', length);

    slot->version++;
    if (number > slot->number)
        slot->number = number;
    return forget(rows, table_of(key, colon ? (size_t)(colon - key) : length), key,
                  length);
}

bool qm_rows_drop(struct qm_rows *rows, const char *key, size_t length)
{
    bool there;

    pthread_mutex_lock(&rows->lock);
    there = drop(rows, key, length, 0);
    pthread_mutex_unlock(&rows->lock);
    return there;
}

static void empty_all(struct qm_rows *rows, uint64_t number)
{
    for (unsigned i = 0; i < TABLES; i++)
        empty_table(rows, i, number);
    forget_waiting(rows);
}

void qm_rows_drop_all(struct qm_rows *rows)
{
    pthread_mutex_lock(&rows->lock);
    empty_all(rows, 0);
    pthread_mutex_unlock(&rows->lock);
    if (!rows->place.put)
        qmstore_clear(rows->store);
}

static void changed(void *opaque, uint64_t number, const char *schema,
                    const char *table, const char *key, size_t length)
{
    struct qm_rows *rows = opaque;
    char text[2 * 256 + 2 + QM_KEY_MAX];
    int n = snprintf(text, sizeof text, "%s.%s:", schema, table);

    pthread_mutex_lock(&rows->lock);
    rows->stats.invalidations++;
    if (n > 0 && (size_t)n + length <= sizeof text) {
        memcpy(text + n, key, length);
        drop(rows, text, (size_t)n + length, number);
    } else {
        empty_all(rows, number);
    }
    pthread_mutex_unlock(&rows->lock);
    if (rows->watch)
        rows->watch(rows->watcher, schema, table, key, length);
}

static void all_changed(void *opaque, uint64_t number, const char *schema,
                        const char *table)
{
    struct qm_rows *rows = opaque;
    char text[2 * 256 + 2];
    int n = schema && table ? snprintf(text, sizeof text, "%s.%s", schema, table) : -1;

    pthread_mutex_lock(&rows->lock);
    rows->stats.tables_emptied++;
    if (n > 0 && (size_t)n < sizeof text)
        empty_table(rows, table_of(text, (size_t)n), number);
    else
        empty_all(rows, number);
    pthread_mutex_unlock(&rows->lock);
    if (rows->watch)
        rows->watch(rows->watcher, schema, table, NULL, 0);
}

static void gap(void *opaque, uint64_t number, const char *why)
{
    struct qm_rows *rows = opaque;

    pthread_mutex_lock(&rows->lock);
    rows->stats.gaps++;
    empty_all(rows, number);
    pthread_mutex_unlock(&rows->lock);
    if (rows->watch)
        rows->watch(rows->watcher, NULL, NULL, NULL, 0);
}

static void applied(void *opaque, uint64_t number, const struct qm_gtid_list *position)
{
    struct qm_rows *rows = opaque;

    pthread_mutex_lock(&rows->lock);
    rows->applied = *position;
    store_waiting(rows);
    pthread_mutex_unlock(&rows->lock);
}

static void settled(void *opaque, uint64_t number)
{
    struct qm_rows *rows = opaque;

    pthread_mutex_lock(&rows->lock);
    rows->settled = number;
    pthread_mutex_unlock(&rows->lock);
}

static void fresh(void *opaque, uint64_t ns)
{
    struct qm_rows *rows = opaque;

    atomic_store_explicit(&rows->fresh, ns, memory_order_release);
}

static void following(void *opaque, bool is, const char *why)
{
    struct qm_rows *rows = opaque;

    pthread_mutex_lock(&rows->lock);
    rows->following = is;
    if (!is)
        forget_waiting(rows);
    snprintf(rows->stats.why, sizeof rows->stats.why, "%s", is || !why ? "" : why);
    pthread_mutex_unlock(&rows->lock);
}

static void server(void *opaque, uint32_t id)
{
    struct qm_rows *rows = opaque;

    rows->server = id;
}

bool qm_rows_is_other(struct qm_rows *rows, uint32_t id)
{
    return rows->server != 0 && rows->server != id;
}

bool qm_rows_is_within(struct qm_rows *rows, const struct qm_gtid_list *position)
{
    bool within;

    pthread_mutex_lock(&rows->lock);
    within = qm_gtid_covers(position, &rows->applied);
    pthread_mutex_unlock(&rows->lock);
    return within;
}

void qm_rows_watch(struct qm_rows *rows,
                   void (*watch)(void *opaque, const char *schema, const char *table,
                                 const char *row, size_t length),
                   void *opaque)
{
    rows->watch = watch;
    rows->watcher = opaque;
}

void qm_rows_callbacks(struct qm_rows *rows, struct qm_follow_callbacks *calls)
{
    *calls = (struct qm_follow_callbacks){
        .opaque = rows,
        .changed = changed,
        .all_changed = all_changed,
        .gap = gap,
        .applied = applied,
        .settled = settled,
        .fresh = fresh,
        .following = following,
        .server = server,
        .message = calls->message,
    };
}

void qm_rows_get_stats(struct qm_rows *rows, struct qm_rows_stats *stats)
{
    uint64_t now = qm_rows_now(), at = rows->fresh;

    pthread_mutex_lock(&rows->lock);
    *stats = rows->stats;
    stats->waiting = rows->count;
    stats->following = rows->following;
    stats->applied = rows->applied;
    stats->behind = at == 0 ? -1 : now > at ? (double)(now - at) / 1e9 : 0;
    pthread_mutex_unlock(&rows->lock);
}
