/* SPDX-License-Identifier: BSD-3-Clause */
/* input.c - the lines of a text file that may be compressed.
 *
 * Two buffers: raw[] holds bytes of the file, text[] what they decompress to.  Plain
 * files are read into text[] directly.  A line is handed out where it lies in text[];
 * only one that straddles the end of the buffer is moved.
 *
 * Both formats allow several streams one after the other in a file (gzip members, zstd
 * frames), as concatenating files gives them, and so does this.
 */
#include "trace/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define RAW_SIZE  (128 * 1024)
#define TEXT_SIZE (256 * 1024)

_Static_assert(TEXT_SIZE > 2 * QM_LINE_MAX, "a line fits, and half of it is no waste");

enum format { PLAIN, GZIP, ZSTD };

struct qm_input {
    char *name; /* for messages */
    int fd;
    enum format format;
    bool ended; /* the file has no more bytes */
    bool whole; /* compressed: at the boundary of two streams */
    bool failed;
    uint64_t at, size;
    uint64_t line;

    z_stream z;
    ZSTD_DStream *zstd;

    size_t raw_at, raw_end;   /* raw[raw_at..raw_end) is not decompressed yet */
    size_t text_at, text_end; /* text[text_at..text_end) is not handed out yet */
    unsigned char raw[RAW_SIZE];
    char text[TEXT_SIZE];
    char error[512];
};

static int fail(struct qm_input *in, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* An error of the file as a whole. */
static int fail(struct qm_input *in, const char *format, ...)
{
    va_list args;
    int n = snprintf(in->error, sizeof in->error, "%s: ", in->name);

    if (n < 0 || (size_t)n >= sizeof in->error)
        n = 0;
    va_start(args, format);
    vsnprintf(in->error + n, sizeof in->error - (size_t)n, format, args);
    va_end(args);
    in->failed = true;
    return -1;
}

int qm_input_fail(struct qm_input *in, const char *format, ...)
{
    va_list args;
    char reason[300];

    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (in->line == 0)
        return fail(in, "%s", reason);
    return fail(in, "line %llu: %s", (unsigned long long)in->line, reason);
}

/* Reads at most count bytes of the file.  Returns how many, 0 at its end, -1. */
static ssize_t read_some(struct qm_input *in, void *buf, size_t count)
{
    ssize_t n;

    do
        n = read(in->fd, buf, count);
    while (n == -1 && errno == EINTR);
    if (n == -1)
        return fail(in, "cannot be read: %s", strerror(errno));
    if (n == 0)
        in->ended = true;
    in->at += (uint64_t)n;
    return n;
}

/* Makes raw[] non-empty unless the file has ended. */
static int fill_raw(struct qm_input *in)
{
    ssize_t n;

    if (in->raw_at < in->raw_end || in->ended)
        return 0;
    n = read_some(in, in->raw, sizeof in->raw);
    if (n < 0)
        return -1;
    in->raw_at = 0;
    in->raw_end = (size_t)n;
    return 0;
}

/* Decompress from raw[] to text[] what there is room for.  Return 0, or -1. */
static int inflate_some(struct qm_input *in)
{
    int r;

    if (in->whole) { /* another member follows */
        if (inflateReset(&in->z) != Z_OK)
            return fail(in, "damaged (gzip)");
        in->whole = false;
    }
    in->z.next_in = in->raw + in->raw_at;
    in->z.avail_in = (uInt)(in->raw_end - in->raw_at);
    in->z.next_out = (unsigned char *)in->text + in->text_end;
    in->z.avail_out = (uInt)(sizeof in->text - in->text_end);
    r = inflate(&in->z, Z_NO_FLUSH);
    in->raw_at = in->raw_end - in->z.avail_in;
    in->text_end = sizeof in->text - in->z.avail_out;
    if (r == Z_STREAM_END)
        in->whole = true;
    else if (r == Z_MEM_ERROR)
        return fail(in, "out of memory");
    else if (r != Z_OK && r != Z_BUF_ERROR)
        return fail(in, "damaged (gzip: %s)", in->z.msg ? in->z.msg : "data error");
    return 0;
}

static int unzstd_some(struct qm_input *in)
{
    ZSTD_inBuffer from = {in->raw, in->raw_end, in->raw_at};
    ZSTD_outBuffer to = {in->text, sizeof in->text, in->text_end};
    size_t r = ZSTD_decompressStream(in->zstd, &to, &from);

    in->raw_at = from.pos;
    in->text_end = to.pos;
    if (ZSTD_isError(r))
        return fail(in, "damaged (zstd: %s)", ZSTD_getErrorName(r));
    in->whole = r == 0;
    return 0;
}

/* Adds text to text[], which has room.  Returns 1; 0 at the end; -1. */
static int fill_text(struct qm_input *in)
{
    size_t before = in->text_end;

    if (in->format == PLAIN && in->raw_at == in->raw_end) {
        ssize_t n = 0;

        if (!in->ended)
            n = read_some(in, in->text + before, sizeof in->text - before);
        if (n > 0)
            in->text_end += (size_t)n;
        return n < 0 ? -1 : n > 0;
    }
    if (in->format == PLAIN) { /* the bytes that told the format */
        size_t n = in->raw_end - in->raw_at;

        memcpy(in->text + before, in->raw + in->raw_at, n);
        in->text_end += n;
        in->raw_at = in->raw_end;
        return 1;
    }
    while (in->text_end == before) {
        size_t had;

        if (fill_raw(in) == -1)
            return -1;
        had = in->raw_end - in->raw_at;
        if (had == 0 && in->whole)
            return 0;
        if ((in->format == GZIP ? inflate_some(in) : unzstd_some(in)) == -1)
            return -1;
        /* Given nothing more and giving nothing more: the middle of a stream. */
        if (had == 0 && in->text_end == before && !in->whole)
            return fail(in, "truncated: its compressed data end in the middle");
    }
    return 1;
}

int qm_input_line(struct qm_input *in, char **line, size_t *length)
{
    char *newline = NULL;
    size_t searched = 0;

    if (in->failed)
        return -1;
    in->line++;
    for (;;) {
        char *start = in->text + in->text_at;
        size_t have = in->text_end - in->text_at;
        int r;

        if (have > searched)
            newline = memchr(start + searched, '\n', have - searched);
        if ((newline ? (size_t)(newline - start) : have) > QM_LINE_MAX)
            return qm_input_fail(in, "longer than %d bytes", QM_LINE_MAX);
        if (newline)
            break;
        searched = have;
        if (in->text_at > 0) {
            memmove(in->text, start, have);
            in->text_at = 0;
            in->text_end = have;
        }
        r = fill_text(in);
        if (r == -1)
            return -1;
        if (r == 0) {
            if (have > 0)
                return qm_input_fail(in, "truncated: it does not end in a newline");
            in->line--;
            return 0;
        }
    }
    *line = in->text + in->text_at;
    *length = (size_t)(newline - *line);
    *newline = '\0';
    in->text_at += *length + 1;
    return 1;
}

uint64_t qm_input_line_number(const struct qm_input *in)
{
    return in->line;
}

const char *qm_input_error(const struct qm_input *in)
{
    return in->error;
}

void qm_input_position(const struct qm_input *in, uint64_t *at, uint64_t *size)
{
    *at = in->at;
    *size = in->size;
}

/* Reads the first bytes and sets up what they ask for. */
static int detect(struct qm_input *in)
{
    static const unsigned char gzip[] = {0x1f, 0x8b};
    static const unsigned char zstd[] = {0x28, 0xb5, 0x2f, 0xfd};

    while (in->raw_end < sizeof zstd && !in->ended) {
        ssize_t n = read_some(in, in->raw + in->raw_end, sizeof in->raw - in->raw_end);

        if (n < 0)
            return -1;
        in->raw_end += (size_t)n;
    }
    if (in->raw_end >= sizeof gzip && memcmp(in->raw, gzip, sizeof gzip) == 0) {
        in->format = GZIP;
        if (inflateInit2(&in->z, 15 + 16) != Z_OK) {
            in->format = PLAIN;
            return fail(in, "out of memory");
        }
    } else if (in->raw_end >= sizeof zstd && memcmp(in->raw, zstd, sizeof zstd) == 0) {
        in->format = ZSTD;
        in->zstd = ZSTD_createDStream();
        if (!in->zstd)
            return fail(in, "out of memory");
    }
    return 0;
}

struct qm_input *qm_input_open(const char *path, char *err, size_t len)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct qm_input *in = malloc(sizeof *in);
    struct stat st;

    if (!in) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    /* The buffers, which are most of it, need no clearing. */
    memset(in, 0, offsetof(struct qm_input, raw));
    in->error[0] = '\0';
    in->fd = -1;
    in->name = strdup(is_stdin ? "standard input" : path);
    if (!in->name) {
        free(in);
        snprintf(err, len, "out of memory");
        return NULL;
    }
    in->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (in->fd == -1)
        fail(in, "cannot be opened: %s", strerror(errno));
    else if (detect(in) == 0) {
        if (fstat(in->fd, &st) == 0 && S_ISREG(st.st_mode))
            in->size = (uint64_t)st.st_size;
        posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        return in;
    }
    snprintf(err, len, "%s", in->error);
    qm_input_free(in);
    return NULL;
}

void qm_input_free(struct qm_input *in)
{
    if (!in)
        return;
    if (in->format == GZIP)
        inflateEnd(&in->z);
    ZSTD_freeDStream(in->zstd);
    if (in->fd > STDIN_FILENO)
        close(in->fd);
    free(in->name);
    free(in);
}
