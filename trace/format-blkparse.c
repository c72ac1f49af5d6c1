/* SPDX-License-Identifier: BSD-3-Clause */
/* format-blkparse.c - the text that blkparse(1) prints by default.
 *
 *   8,0    3       11     0.009507758   697  Q   R 223490 + 8 [kjournald]
 *   device cpu sequence   seconds       pid action rwbs sector + sectors [command]
 *
 * A request goes through several actions (queued, issued, completed...); one of them is
 * picked.  A process is a context of kind thread, whose class is the command; it ends
 * with the trace.  Kernel threads have no other number than 0 in some actions: no
 * context.
 *
 * Written the other way, a context's number is the pid and its class the command, and
 * what is not aligned to sectors is widened to them.
 */
#include "trace/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM        1
#define uthash_nonfatal_oom(elt) ((elt)->lost = true)
#include <uthash.h>

enum { SECTOR = 512 };

struct process {
    uint64_t pid;
    uint32_t ctx;
    bool lost; /* no memory for the hash table */
    UT_hash_handle hh;
};

struct blkparse_source {
    struct qm_source source;
    char action;
    const char *asked;         /* --device */
    char *device;              /* the device that is read; NULL: none was named yet */
    struct process *processes; /* hash table by pid */
    uint32_t contexts;         /* begun */
    uint32_t ended;            /* of these, at the end */
    bool at_end;
    uint64_t us; /* of the last request */
    bool held;   /* after B, the request that it was for */
    struct qm_event event;
    char klass[QM_TRACE_CLASS_MAX + 1];
};

static void free_blkparse(struct qm_source *source)
{
    struct blkparse_source *s = (struct blkparse_source *)source;
    struct process *p, *next_one;

    if (!s)
        return;
    HASH_ITER(hh, s->processes, p, next_one)
    {
        HASH_DEL(s->processes, p);
        free(p);
    }
    free(s->device);
    qm_source_free(source);
}

static struct qm_source *open_blkparse(const char *path,
                                       const struct qm_format_options *options,
                                       char *err, size_t len)
{
    struct blkparse_source *s =
        qm_source_new(&qm_format_blkparse, sizeof *s, path, options, err, len);

    if (!s)
        return NULL;
    s->asked = options->device;
    s->action = options->action ? options->action : 'Q';
    return &s->source;
}

/* "8,0" */
static bool is_device(const char *word)
{
    size_t major = strspn(word, "0123456789"), minor;

    if (major == 0 || word[major] != ',')
        return false;
    minor = strspn(word + major + 1, "0123456789");
    return minor > 0 && word[major + 1 + minor] == '\0';
}

/* Whether the device's requests are read.  Returns 1, 0, or -1: two devices. */
static int is_ours(struct blkparse_source *s, const char *device)
{
    if (s->asked)
        return strcmp(device, s->asked) == 0;
    if (!s->device) {
        s->device = strdup(device);
        if (!s->device)
            return qm_input_fail(s->source.in, "out of memory");
    }
    if (strcmp(device, s->device) != 0)
        return qm_input_fail(s->source.in,
                             "a second device, %s beside %s: choose one by --device",
                             device, s->device);
    return 1;
}

/* "0.009507758" in microseconds. */
static bool parse_time(const char *word, uint64_t *us)
{
    uint64_t seconds, nanos;
    char digits[24];
    const char *dot = strchr(word, '.');

    if (!dot || (size_t)(dot - word) >= sizeof digits || strlen(dot + 1) != 9)
        return false;
    memcpy(digits, word, (size_t)(dot - word));
    digits[dot - word] = '\0';
    if (!qm_word_number(digits, &seconds) || !qm_word_number(dot + 1, &nanos) ||
        seconds > UINT64_MAX / 1000000 - 1)
        return false;
    *us = seconds * 1000000 + nanos / 1000;
    return true;
}

/* The command's name, from the rest of the line after "sector + n", as a class. */
static void set_class(struct blkparse_source *s, const char *rest)
{
    const char *from = rest ? strchr(rest, '[') : NULL;
    const char *to = rest ? strrchr(rest, ']') : NULL;
    size_t n = 0;

    if (from && to)
        for (from++; from < to && n < QM_TRACE_CLASS_MAX; from++)
            s->klass[n++] = (unsigned char)*from > ' ' && *from != 0x7f ? *from : '_';
    if (n == 0)
        s->klass[n++] = '-';
    s->klass[n] = '\0';
}

/* Sets event's context to that of the process.  Returns 1, 0 if it is new, or -1. */
static int set_context(struct blkparse_source *s, uint64_t pid, struct qm_event *event)
{
    struct process *p;

    event->ctx = 0;
    event->slot = 0;
    if (pid == 0)
        return 1;
    HASH_FIND(hh, s->processes, &pid, sizeof pid, p);
    if (p) {
        event->ctx = event->slot = p->ctx;
        return 1;
    }
    p = malloc(sizeof *p);
    if (!p)
        return qm_input_fail(s->source.in, "out of memory");
    p->pid = pid;
    p->lost = false;
    HASH_ADD(hh, s->processes, pid, sizeof p->pid, p);
    if (p->lost) {
        free(p);
        return qm_input_fail(s->source.in, "out of memory");
    }
    p->ctx = ++s->contexts;
    event->ctx = event->slot = p->ctx;
    return 0;
}

/* A line that is an event, but not one to be delivered. */
static int skip(struct blkparse_source *s)
{
    s->source.skipped++;
    return 0;
}

/* One line.  Returns 1: *event is a request, and *pid its process; 0: it is none; -1.
 */
static int parse(struct blkparse_source *s, char *line, struct qm_event *event,
                 uint64_t *pid)
{
    enum {
        DEVICE,
        CPU,
        SEQUENCE,
        TIME,
        PID,
        ACTION,
        RWBS,
        AT,
        PLUS,
        COUNT,
        REST,
        WORDS
    };
    char *words[WORDS];
    unsigned n = qm_words(line, words, WORDS);
    uint64_t sector, sectors;
    int ours;

    if (n == 0)
        return 0;
    if (strncmp(words[DEVICE], "CPU", 3) == 0 || strcmp(words[DEVICE], "Total") == 0) {
        s->at_end = true; /* the summary */
        return 0;
    }
    if (!is_device(words[DEVICE]) || n <= ACTION)
        return qm_input_fail(s->source.in, "not a line of blkparse's default format");
    if (!parse_time(words[TIME], &event->us) || !qm_word_number(words[PID], pid))
        return qm_input_fail(s->source.in, "time or pid is not a number");
    ours = is_ours(s, words[DEVICE]);
    if (ours != 1)
        return ours == 0 ? skip(s) : ours;
    if (words[ACTION][0] != s->action || words[ACTION][1] != '\0' || n <= COUNT ||
        strcmp(words[PLUS], "+") != 0 || strchr(words[RWBS], 'D'))
        return skip(s); /* another action, a message, a flush, a discard */
    if (!qm_word_number(words[AT], &sector) ||
        !qm_word_number(words[COUNT], &sectors) ||
        sectors > QM_TRACE_LENGTH_MAX / SECTOR ||
        sector > QM_TRACE_END_MAX / SECTOR - sectors)
        return qm_input_fail(s->source.in,
                             "sector or count is not a number, or too large");
    if (strchr(words[RWBS], 'R'))
        event->type = QM_TRACE_READ;
    else if (strchr(words[RWBS], 'W'))
        event->type = QM_TRACE_WRITE;
    else
        return skip(s);
    if (sectors == 0)
        return skip(s);
    event->offset = sector * SECTOR;
    event->length = sectors * SECTOR;
    set_class(s, n > REST ? words[REST] : NULL);
    return 1;
}

/* The contexts end with the trace. */
static int end_next(struct blkparse_source *s, struct qm_event *event)
{
    if (s->ended == s->contexts)
        return 0;
    s->ended++;
    *event = (struct qm_event){
        .type = QM_TRACE_END, .us = s->us, .ctx = s->ended, .slot = s->ended};
    return 1;
}

static int next(struct qm_source *source, struct qm_event *event)
{
    struct blkparse_source *s = (struct blkparse_source *)source;
    uint64_t pid = 0;
    char *line;
    size_t length;
    int n = 1;

    if (s->held) {
        s->held = false;
        *event = s->event;
        return 1;
    }
    while (!s->at_end && (n = qm_input_line(source->in, &line, &length)) == 1) {
        n = parse(s, line, event, &pid);
        if (n == -1)
            return -1;
        if (n == 0)
            continue;
        s->us = event->us;
        n = set_context(s, pid, event);
        if (n != 0)
            return n;
        s->event = *event;
        s->held = true;
        *event = (struct qm_event){.type = QM_TRACE_BEGIN,
                                   .us = s->event.us,
                                   .ctx = s->event.ctx,
                                   .slot = s->event.slot,
                                   .kind = QM_THREAD,
                                   .klass = s->klass};
        return 1;
    }
    if (n == -1)
        return -1;
    return end_next(s, event);
}

struct blkparse_sink {
    struct qm_sink sink;
    const char *device;
    uint64_t sequence;
    char **classes; /* by slot */
    uint32_t room;
};

static struct qm_sink *create(const char *path, const struct qm_format_options *options,
                              char *err, size_t len)
{
    struct blkparse_sink *s =
        qm_sink_new(&qm_format_blkparse, sizeof *s, path, err, len);

    if (!s)
        return NULL;
    s->device = options->device ? options->device : "0,0";
    return &s->sink;
}

/* Remembers the class of the context in event's slot. */
static int keep_class(struct blkparse_sink *s, const struct qm_event *event)
{
    char *klass;

    if (event->slot >= s->room) {
        uint32_t room = event->slot < 32               ? 64
                        : event->slot > UINT32_MAX / 2 ? 0
                                                       : event->slot * 2;
        char **classes = room ? reallocarray(s->classes, room, sizeof *classes) : NULL;

        if (!classes)
            return ENOMEM;
        memset(classes + s->room, 0, (room - s->room) * sizeof *classes);
        s->classes = classes;
        s->room = room;
    }
    klass = strdup(event->klass);
    if (!klass)
        return ENOMEM;
    free(s->classes[event->slot]);
    s->classes[event->slot] = klass;
    return 0;
}

static int write_blkparse(struct qm_sink *sink, const struct qm_event *event)
{
    struct blkparse_sink *s = (struct blkparse_sink *)sink;
    uint64_t first, end;

    if (event->type == QM_TRACE_BEGIN)
        return keep_class(s, event);
    if (event->type == QM_TRACE_END)
        return 0;
    first = event->offset / SECTOR;
    end = (event->offset + event->length - 1) / SECTOR + 1;
    return qm_output_printf(
        sink->out, "%3s %4d %8llu %5llu.%09llu %5llu  Q %3s %llu + %llu [%s]\n",
        s->device, 0, (unsigned long long)++s->sequence,
        (unsigned long long)(event->us / 1000000),
        (unsigned long long)(event->us % 1000000 * 1000),
        (unsigned long long)event->ctx, event->type == QM_TRACE_READ ? "R" : "W",
        (unsigned long long)first, (unsigned long long)(end - first),
        event->slot ? s->classes[event->slot] : "-");
}

static int close_blkparse(struct qm_sink *sink, bool complete)
{
    struct blkparse_sink *s = (struct blkparse_sink *)sink;
    int error = qm_sink_end(sink, complete);

    for (uint32_t i = 0; i < s->room; i++)
        free(s->classes[i]);
    free(s->classes);
    free(s);
    return error;
}

const struct qm_format qm_format_blkparse = {
    .name = "blkparse",
    .summary = "blkparse's default text",
    .open = open_blkparse,
    .next = next,
    .error = qm_source_error,
    .position = qm_source_position,
    .free = free_blkparse,
    .create = create,
    .write = write_blkparse,
    .close = close_blkparse,
};
