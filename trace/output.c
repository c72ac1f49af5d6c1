/* SPDX-License-Identifier: BSD-3-Clause */
/* output.c - a text file that is compressed if its name says so.
 *
 * Text is gathered in text[]; when it is full, it goes through the compressor into
 * raw[], and from there to the file.  The first error sticks, so that a caller may
 * check only at the end.
 *
 * What is there under that name is kept until the first write, so that a program that
 * opens its output and then fails for another reason destroys nothing.
 *
 * The process may not be ours: a program that is recorded may close all descriptors,
 * and get the number again for a file of its own.  So it is looked at before each
 * write.
 */
#include "trace/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "trace/old.h"

#define TEXT_SIZE (64 * 1024)
#define RAW_SIZE  (64 * 1024)

/* How long the reader of a pipe may keep a recording waiting, at the end, too. */
#define PATIENCE_MS 10000

enum format { PLAIN, GZIP, ZSTD };
enum how { MORE, FLUSH, FINISH };
/* What becomes of a file that is there: see output.h. */
enum there { EMPTIED, CHECKED, KEPT, REPLACED };

struct qm_output {
    int fd;
    enum format format;
    int error;    /* errno value; 0: none */
    bool regular; /* fd is of a regular file */
    bool pipe;    /* of a recording; its reader is not waited for without end */
    bool begun;   /* it has been written to: what was there before is gone */
    dev_t dev;
    ino_t ino;  /* of the file */
    char *made; /* the path, if the file did not exist; else NULL */
    struct qm_old old;
    bool replaces;        /* what is there is replaced only by all of it */
    char *beside, *place; /* the names of what is written, now and at the end; NULL: it
                             has its name */
    int there;            /* the file that is to be replaced, locked, or -1 */
    z_stream z;
    ZSTD_CStream *zstd;
    size_t used; /* of text[] */
    char text[TEXT_SIZE];
    unsigned char raw[RAW_SIZE];
};

/* Whether the descriptor is still the file's, and not another's by now. */
static bool is_ours(const struct qm_output *out)
{
    struct stat st;

    return out->fd == STDOUT_FILENO ||
           (fstat(out->fd, &st) == 0 && st.st_dev == out->dev && st.st_ino == out->ino);
}

/* Returns 0, or an errno value. */
static int await_reader(const struct qm_output *out)
{
    struct pollfd fd = {.fd = out->fd, .events = POLLOUT};
    int n = poll(&fd, 1, out->pipe ? PATIENCE_MS : -1);

    return n == 0 ? ETIMEDOUT : n == -1 && errno != EINTR ? errno : 0;
}

static void write_all(struct qm_output *out, const void *buf, size_t count)
{
    const char *p = buf;

    if (!out->error && !is_ours(out))
        out->error = EBADF;
    if (out->error)
        return;
    if (!out->begun && out->regular && ftruncate(out->fd, 0) == -1)
        out->error = errno;
    out->begun = true;
    while (count > 0 && !out->error) {
        ssize_t n = write(out->fd, p, count);

        if (n >= 0) {
            p += n;
            count -= (size_t)n;
        } else if (errno == EAGAIN) {
            out->error = await_reader(out);
        } else if (errno != EINTR) {
            out->error = errno;
        }
    }
}

static void deflate_text(struct qm_output *out, enum how how)
{
    static const int flush[] = {Z_NO_FLUSH, Z_SYNC_FLUSH, Z_FINISH};

    out->z.next_in = (unsigned char *)out->text;
    out->z.avail_in = (uInt)out->used;
    do {
        out->z.next_out = out->raw;
        out->z.avail_out = sizeof out->raw;
        /* Z_BUF_ERROR only says that there was nothing left to do. */
        if (deflate(&out->z, flush[how]) == Z_STREAM_ERROR) {
            out->error = EIO;
            return;
        }
        write_all(out, out->raw, sizeof out->raw - out->z.avail_out);
    } while (out->z.avail_out == 0 && !out->error);
}

static void zstd_text(struct qm_output *out, enum how how)
{
    static const ZSTD_EndDirective end[] = {ZSTD_e_continue, ZSTD_e_flush, ZSTD_e_end};
    ZSTD_inBuffer from = {out->text, out->used, 0};
    size_t left;

    do {
        ZSTD_outBuffer to = {out->raw, sizeof out->raw, 0};

        left = ZSTD_compressStream2(out->zstd, &to, &from, end[how]);
        if (ZSTD_isError(left)) {
            out->error = EIO;
            return;
        }
        write_all(out, out->raw, to.pos);
    } while ((how == MORE ? from.pos < from.size : left > 0) && !out->error);
}

static void empty_text(struct qm_output *out, enum how how)
{
    if (out->error)
        return;
    switch (out->format) {
    case PLAIN:
        write_all(out, out->text, out->used);
        break;
    case GZIP:
        deflate_text(out, how);
        break;
    case ZSTD:
        zstd_text(out, how);
        break;
    }
    out->used = 0;
}

int qm_output_write(struct qm_output *out, const void *text, size_t count)
{
    const char *p = text;

    while (count > 0 && !out->error) {
        size_t n = sizeof out->text - out->used;

        if (n > count)
            n = count;
        memcpy(out->text + out->used, p, n);
        out->used += n;
        p += n;
        count -= n;
        if (out->used == sizeof out->text)
            empty_text(out, MORE);
    }
    return out->error;
}

int qm_output_printf(struct qm_output *out, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    int n;

    va_start(args, format);
    n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        if (!out->error)
            out->error = ENOMEM;
        return out->error;
    }
    qm_output_write(out, text, (size_t)n);
    free(text);
    return out->error;
}

int qm_output_move(struct qm_output *out, int least)
{
    int fd = is_ours(out) ? fcntl(out->fd, F_DUPFD_CLOEXEC, least) : -1;

    if (fd != -1) {
        close(out->fd);
        out->fd = fd;
    }
    return fd;
}

int qm_output_flush(struct qm_output *out)
{
    empty_text(out, FLUSH);
    return out->error;
}

static bool ends_in(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);

    return n > m && strcmp(path + n - m, suffix) == 0;
}

/* Sets up the compressor.  Returns 0 or ENOMEM. */
static int set_format(struct qm_output *out, const char *path)
{
    if (ends_in(path, ".gz")) {
        if (deflateInit2(&out->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
                         Z_DEFAULT_STRATEGY) != Z_OK)
            return ENOMEM;
        out->format = GZIP;
    } else if (ends_in(path, ".zst")) {
        out->zstd = ZSTD_createCStream();
        if (!out->zstd)
            return ENOMEM;
        ZSTD_CCtx_setParameter(out->zstd, ZSTD_c_checksumFlag, 1);
        out->format = ZSTD;
    }
    return 0;
}

/* Where files cannot be locked, another program may write to the same one. */
static int lock_file(struct qm_output *out, const char *path, char *err, size_t len)
{
    struct stat st;

    if (fstat(out->fd, &st) == -1) {
        snprintf(err, len, "%s: cannot be created: %s", path, strerror(errno));
        return -1;
    }
    out->regular = S_ISREG(st.st_mode);
    out->dev = st.st_dev;
    out->ino = st.st_ino;
    if (out->regular && flock(out->fd, LOCK_EX | LOCK_NB) == -1 &&
        errno == EWOULDBLOCK) {
        snprintf(err, len, "%s: another program is writing to it", path);
        free(out->made); /* not ours to remove */
        out->made = NULL;
        qm_old_forget(&out->old);
        return -1;
    }
    return 0;
}

/* Makes way for the recording, if there is something to keep. */
static int keep_file(struct qm_output *out, const char *path, char *err, size_t len)
{
    struct stat st;
    int fd;

    if (!out->regular || fstat(out->fd, &st) == -1 || st.st_size == 0)
        return 0;
    fd = qm_old_keep(&out->old, out->fd, path, err, len);
    if (fd == -1)
        return err[0] ? -1 : 0;
    close(out->fd);
    out->fd = fd;
    return lock_file(out, path, err, len);
}

/* Writes to another file, if one can be made, until all is written. */
static void write_beside(struct qm_output *out, const char *path)
{
    struct stat st;
    int fd = -1;

    if (!out->regular || qm_old_is_anothers(path))
        return;
    out->place = realpath(path, NULL);
    if (out->place && asprintf(&out->beside, "%s.XXXXXX", out->place) == -1)
        out->beside = NULL;
    if (out->beside && fstat(out->fd, &st) == 0)
        fd = mkostemp(out->beside, O_CLOEXEC);
    /* Another's file stays another's. */
    if (fd != -1 && !qm_old_rights(fd, &st)) {
        unlink(out->beside);
        close(fd);
        fd = -1;
    }
    if (fd == -1) {
        free(out->beside);
        out->beside = NULL;
        return;
    }
    out->there = out->fd;
    out->fd = fd;
    if (fstat(fd, &st) == 0) {
        out->dev = st.st_dev;
        out->ino = st.st_ino;
    }
}

/* What was written gets its name, or makes way for what was there. */
static void end_beside(struct qm_output *out, bool complete)
{
    if (!out->beside)
        return;
    if (complete && rename(out->beside, out->place) == -1) {
        out->error = errno;
        complete = false;
    }
    if (!complete) {
        unlink(out->beside);
        if (out->made)
            unlink(out->made);
    }
    close(out->there);
    out->there = -1;
}

/* Opens the file, and makes it if need be.  Returns 0, or -1 with a sentence in err. */
static int open_file(struct qm_output *out, const char *path, enum there there,
                     char *err, size_t len)
{
    const bool recording = there == CHECKED || there == KEPT;
    /* A pipe's reader is not waited for: nobody watches. */
    const int flags =
        O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | (recording ? O_NONBLOCK : 0);
    struct stat st;

    out->fd = open(path, flags | O_EXCL, 0600);
    if (out->fd != -1) {
        out->made = strdup(path); /* without memory it is not removed later */
    } else if (errno == EEXIST) {
        out->fd = open(path, flags, 0600);
        if (out->fd == -1 && errno == ENXIO) /* a pipe that nobody reads yet */
            out->fd = open(path, (flags & ~(O_WRONLY | O_CREAT)) | O_RDWR);
    }
    if (out->fd == -1 && recording)
        qm_old_unopened(path, errno, err, len);
    else if (out->fd == -1)
        snprintf(err, len, "%s: cannot be created: %s", path, strerror(errno));
    if (out->fd == -1)
        return -1;
    if (lock_file(out, path, err, len) == -1 ||
        (recording && qm_old_check(out->fd, path, err, len) == -1))
        return -1;
    out->pipe = recording && fstat(out->fd, &st) == 0 && S_ISFIFO(st.st_mode);
    /* A terminal that has to wait is no error. */
    if (recording && !out->pipe && fcntl(out->fd, F_SETFL, 0) == -1) {
        snprintf(err, len, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (there == REPLACED)
        write_beside(out, path);
    return there == KEPT ? keep_file(out, path, err, len) : 0;
}

/* Half of an output would pass for all of it. */
static void empty_half(struct qm_output *out)
{
    if (out->replaces && out->regular && !out->beside && out->begun && is_ours(out) &&
        ftruncate(out->fd, 0) == 0)
        out->begun = false;
}

static void free_output(struct qm_output *out)
{
    qm_old_forget(&out->old);
    free(out->beside);
    free(out->place);
    free(out->made);
    free(out);
}

void qm_output_abandon(struct qm_output *out)
{
    struct stat st;

    if (out->replaces && !out->regular)
        empty_text(out, FINISH);
    if (out->format == GZIP)
        deflateEnd(&out->z);
    ZSTD_freeCStream(out->zstd);
    empty_half(out);
    if (out->made && !out->beside && !out->begun && fstat(out->fd, &st) == 0 &&
        st.st_size == 0)
        unlink(out->made);
    end_beside(out, false);
    if (!out->begun)
        qm_old_restore(&out->old, out->fd);
    if (out->fd != -1 && out->fd != STDOUT_FILENO && is_ours(out))
        close(out->fd);
    free_output(out);
}

static struct qm_output *create(const char *path, enum there there, char *err,
                                size_t len)
{
    bool is_stdout = strcmp(path, "-") == 0;
    struct qm_output *out = malloc(sizeof *out);

    if (!out) {
        snprintf(err, len, "out of memory");
        return NULL;
    }
    memset(out, 0, offsetof(struct qm_output, text));
    out->old.dir = out->there = -1;
    out->replaces = there == REPLACED;
    out->fd = STDOUT_FILENO;
    if (is_stdout)
        return out;
    if (open_file(out, path, there, err, len) == 0) {
        if (set_format(out, path) == 0)
            return out;
        snprintf(err, len, "%s: out of memory", path);
    }
    qm_output_abandon(out);
    return NULL;
}

struct qm_output *qm_output_create(const char *path, char *err, size_t len)
{
    return create(path, EMPTIED, err, len);
}

struct qm_output *qm_output_record(const char *path, char *err, size_t len)
{
    return create(path, CHECKED, err, len);
}

struct qm_output *qm_output_keep(const char *path, char *err, size_t len)
{
    return create(path, KEPT, err, len);
}

struct qm_output *qm_output_replace(const char *path, char *err, size_t len)
{
    return create(path, REPLACED, err, len);
}

int qm_output_close(struct qm_output *out)
{
    int error;

    empty_text(out, FINISH);
    if (out->format == GZIP)
        deflateEnd(&out->z);
    ZSTD_freeCStream(out->zstd);
    if (out->error)
        empty_half(out);
    /* Else the end of the machine may leave neither the old file nor the new one. */
    if (out->beside && !out->error && fsync(out->fd) == -1)
        out->error = errno;
    /* Some file systems report a failed write only now. */
    if (out->fd != STDOUT_FILENO && is_ours(out) && close(out->fd) == -1 && !out->error)
        out->error = errno;
    end_beside(out, !out->error);
    error = out->error;
    free_output(out);
    return error;
}
