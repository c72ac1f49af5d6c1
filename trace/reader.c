/* SPDX-License-Identifier: BSD-3-Clause */
/* reader.c - a trace, event by event, checked.
 *
 * Contexts that are open are in a hash table, and in a tree by what is nested in what,
 * so that the end of one ends what is nested in it.  Each has a slot, and its memory
 * stays with the slot for the next one.  Numbers that were ever used are in a set of
 * merged intervals: a recorder counts up, so that is one interval however long the
 * trace.
 */
#include "trace/trace.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM        1
#define uthash_nonfatal_oom(elt) ((elt)->lost = true)
#include <uthash.h>

#include "trace/ids.h"
#include "trace/input.h"

struct open_ctx {
    uint64_t id;
    uint32_t slot;
    bool lost;                                     /* no memory for the hash table */
    struct open_ctx *parent, *child, *prev, *next; /* child: any one; prev, next: its
                                                      siblings; next of a free one: the
                                                      next free one */
    UT_hash_handle hh;
};

struct qm_trace_reader {
    struct qm_input *in;
    uint64_t block_size;
    struct open_ctx *open;   /* hash table by id */
    struct open_ctx *last;   /* found last: reads come in bunches */
    struct open_ctx *free;   /* closed ones, to be used again */
    struct open_ctx **slots; /* all that were ever made; slot n is slots[n - 1] */
    uint32_t used, room;     /* of slots[] */
    struct qm_ids ids;
};

static const char HEADER[] = "#quickmine-trace ";

/* Reads a decimal number that ends at a space or at the line's end, and moves *text
 * past that.  At the line's end *text becomes NULL. */
static bool number(char **text, uint64_t *value)
{
    const char *p = *text;
    uint64_t v = 0;

    if (!p)
        return false;
    const char *start = p;
    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');

        if (v >= UINT64_MAX / 10 && (v > UINT64_MAX / 10 || digit > UINT64_MAX % 10))
            return false; /* no multiplication for it: numbers are most of a trace */
        v = v * 10 + digit;
    }
    if (p == start || (*p != ' ' && *p != '\0'))
        return false;
    *value = v;
    *text = *p == ' ' ? (char *)p + 1 : NULL;
    return true;
}

/* Cuts off a word at the next space, and moves *text past that. */
static char *word(char **text)
{
    char *start = *text, *p = start;

    if (!p)
        return NULL;
    while ((unsigned char)*p > ' ' && *p != 0x7f)
        p++;
    if (p == start || (*p != ' ' && *p != '\0'))
        return NULL;
    *text = *p == ' ' ? p + 1 : NULL;
    *p = '\0';
    return start;
}

static struct open_ctx *find(struct qm_trace_reader *r, uint64_t id)
{
    struct open_ctx *c;

    if (r->last && r->last->id == id)
        return r->last;
    HASH_FIND(hh, r->open, &id, sizeof id, c);
    if (c)
        r->last = c;
    return c;
}

/* A context's memory, with a slot; NULL if memory is out. */
static struct open_ctx *take(struct qm_trace_reader *r)
{
    struct open_ctx *c = r->free;

    if (c) {
        r->free = c->next;
        return c;
    }
    if (r->used == r->room) {
        uint32_t room = r->room ? r->room * 2 : 64;
        struct open_ctx **slots = NULL;

        if (room > r->room)
            slots = realloc(r->slots, room * sizeof *slots);
        if (!slots)
            return NULL;
        r->slots = slots;
        r->room = room;
    }
    c = malloc(sizeof *c);
    if (!c)
        return NULL;
    r->slots[r->used++] = c;
    c->slot = r->used;
    return c;
}

static void give_back(struct qm_trace_reader *r, struct open_ctx *c)
{
    c->next = r->free;
    r->free = c;
}

static void close_one(struct qm_trace_reader *r, struct open_ctx *c)
{
    if (c->next)
        c->next->prev = c->prev;
    if (c->prev)
        c->prev->next = c->next;
    else if (c->parent)
        c->parent->child = c->next;
    if (r->last == c)
        r->last = NULL;
    HASH_DELETE(hh, r->open, c);
    give_back(r, c);
}

/* Closes c after all that is nested in it; no recursion, a trace may nest deeply. */
static void close_tree(struct qm_trace_reader *r, struct open_ctx *c)
{
    struct open_ctx *at = c, *parent;

    for (;;) {
        while (at->child)
            at = at->child;
        parent = at->parent;
        close_one(r, at);
        if (at == c)
            return;
        at = parent;
    }
}

static int out_of_memory(struct qm_trace_reader *r)
{
    return qm_input_fail(r->in, "out of memory");
}

/* The fields after "B <us> <ctx>". */
static int read_begin(struct qm_trace_reader *r, struct qm_event *e, char *text)
{
    struct open_ctx *c, *parent = NULL;
    const char *kind = word(&text);
    int k = kind ? qm_kind_parse(kind) : -1;
    int error;

    if (k == -1)
        return qm_input_fail(
            r->in, "the kind must be connection, thread, transaction or query");
    e->kind = (enum qm_kind)k;
    e->klass = word(&text);
    if (!e->klass || strlen(e->klass) > QM_TRACE_CLASS_MAX)
        return qm_input_fail(
            r->in, "the class must be 1 to %d bytes, without control characters",
            QM_TRACE_CLASS_MAX);
    if (!number(&text, &e->parent))
        return qm_input_fail(r->in, "the parent must be a number: a context, or 0");
    if (text)
        return qm_input_fail(r->in, "there is more after the last field");
    if (e->ctx == 0)
        return qm_input_fail(r->in, "a context's number must be 1 or more");
    if (e->parent != 0) {
        parent = find(r, e->parent);
        if (!parent)
            return qm_input_fail(r->in, "parent %llu is not open",
                                 (unsigned long long)e->parent);
    }
    error = qm_ids_add(&r->ids, e->ctx);
    if (error == EEXIST)
        return qm_input_fail(r->in, "context %llu has begun before",
                             (unsigned long long)e->ctx);
    c = error ? NULL : take(r);
    if (!c)
        return out_of_memory(r);
    c->id = e->ctx;
    c->lost = false;
    HASH_ADD(hh, r->open, id, sizeof c->id, c);
    if (c->lost) {
        give_back(r, c);
        return out_of_memory(r);
    }
    c->child = c->prev = c->next = NULL;
    c->parent = parent;
    if (parent) {
        c->next = parent->child;
        if (c->next)
            c->next->prev = c;
        parent->child = c;
    }
    e->slot = c->slot;
    e->parent_slot = parent ? parent->slot : 0;
    return 1;
}

/* The fields after "R <us> <ctx>" or "W <us> <ctx>". */
static int read_request(struct qm_trace_reader *r, struct qm_event *e, char *text)
{
    if (!number(&text, &e->offset))
        return qm_input_fail(r->in, "the offset must be a number of bytes");
    if (!number(&text, &e->length) || e->length == 0 || e->length > QM_TRACE_LENGTH_MAX)
        return qm_input_fail(r->in,
                             "the length must be a number of bytes from 1 to 2^32 - 1");
    if (text)
        return qm_input_fail(r->in, "there is more after the last field");
    if (e->offset > QM_TRACE_END_MAX - e->length)
        return qm_input_fail(r->in, "offset + length must be less than 2^63");
    return 1;
}

int qm_trace_next(struct qm_trace_reader *r, struct qm_event *e)
{
    struct open_ctx *c = NULL;
    char *text;
    size_t length;
    int n = qm_input_line(r->in, &text, &length);

    if (n != 1)
        return n;
    if (length > 0 && text[length - 1] == '\r')
        return qm_input_fail(r->in, "ends in CR LF; a trace's lines end in LF");
    if (strlen(text) != length)
        return qm_input_fail(r->in, "holds a NUL byte");
    e->type = text[0];
    if (length < 2 || text[1] != ' ' || !strchr("BRWE", e->type))
        return qm_input_fail(r->in, "does not begin with B, R, W or E and a space");
    text += 2;
    if (!number(&text, &e->us))
        return qm_input_fail(r->in, "the time must be a number of microseconds");
    if (!number(&text, &e->ctx))
        return qm_input_fail(r->in, "the context must be a number");
    if (e->type == QM_TRACE_BEGIN)
        return read_begin(r, e, text);

    e->slot = 0;
    if (e->ctx != 0 || e->type == QM_TRACE_END) {
        c = find(r, e->ctx);
        if (!c)
            return qm_input_fail(r->in, "context %llu is not open",
                                 (unsigned long long)e->ctx);
        e->slot = c->slot;
    }
    if (e->type != QM_TRACE_END)
        return read_request(r, e, text);
    if (text)
        return qm_input_fail(r->in, "there is more after the last field");
    close_tree(r, c);
    return 1;
}

/* Reads the first line. */
static int read_header(struct qm_trace_reader *r)
{
    char *text;
    size_t length;
    uint64_t version, block;
    int n = qm_input_line(r->in, &text, &length);

    if (n == -1)
        return -1;
    if (n == 0)
        return qm_input_fail(r->in, "empty; a trace begins with '%s1 block=<bytes>'",
                             HEADER);
    if (strlen(text) != length || strncmp(text, HEADER, strlen(HEADER)) != 0)
        return qm_input_fail(
            r->in, "not a trace: it must begin with '%s1 block=<bytes>'", HEADER);
    text += strlen(HEADER);
    if (number(&text, &version) && version != 1)
        return qm_input_fail(r->in, "a trace of version %llu; only version 1 is known",
                             (unsigned long long)version);
    if (!text || strncmp(text, "block=", 6) != 0)
        return qm_input_fail(r->in, "the header must be '%s1 block=<bytes>'", HEADER);
    text += 6;
    if (!number(&text, &block) || text || block < QM_TRACE_BLOCK_MIN ||
        block > QM_TRACE_BLOCK_MAX || (block & (block - 1)) != 0)
        return qm_input_fail(r->in, "block= must be a power of two from %llu to %llu",
                             (unsigned long long)QM_TRACE_BLOCK_MIN,
                             (unsigned long long)QM_TRACE_BLOCK_MAX);
    r->block_size = block;
    return 0;
}

struct qm_trace_reader *qm_trace_open(const char *path, char *err, size_t len)
{
    struct qm_trace_reader *r = calloc(1, sizeof *r);

    if (!r) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    r->in = qm_input_open(path, err, len);
    if (!r->in) {
        free(r);
        return NULL;
    }
    if (read_header(r) == -1) {
        snprintf(err, len, "%s", qm_input_error(r->in));
        qm_trace_free(r);
        return NULL;
    }
    return r;
}

uint64_t qm_trace_block_size(const struct qm_trace_reader *r)
{
    return r->block_size;
}

const char *qm_trace_error(const struct qm_trace_reader *r)
{
    return qm_input_error(r->in);
}

uint64_t qm_trace_line(const struct qm_trace_reader *r)
{
    return qm_input_line_number(r->in);
}

void qm_trace_position(const struct qm_trace_reader *r, uint64_t *at, uint64_t *size)
{
    qm_input_position(r->in, at, size);
}

void qm_trace_free(struct qm_trace_reader *r)
{
    if (!r)
        return;
    HASH_CLEAR(hh, r->open);
    for (uint32_t i = 0; i < r->used; i++)
        free(r->slots[i]);
    free(r->slots);
    qm_ids_clear(&r->ids);
    qm_input_free(r->in);
    free(r);
}
