/* SPDX-License-Identifier: BSD-3-Clause */
/* record.c - which files are recorded, and what happens in them. */
#include "clients/preload/record.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clients/preload/files.h"
#include "clients/preload/say.h"
#include "trace/trace.h"

#define RECORD     "QMCTX_PRELOAD_RECORD"
#define FILES      "QMCTX_PRELOAD_RECORD_FILES"
#define MAX_PATHS  64
#define BLOCK_SIZE UINT64_C(16384)
/* What a file gets of the device at a time, in bits, and how much there is of that. */
#define CHUNK_BITS 34
#define CHUNK      (UINT64_C(1) << CHUNK_BITS)
#define MAX_CHUNKS (QM_TRACE_END_MAX >> CHUNK_BITS)
#define FLUSH_US   UINT64_C(1000000)
/* The trace's descriptor, if the limit allows: programs and shells use lower ones. */
#define TRACE_FD 512

/* A chunk of a file, and which of the device it has. */
struct chunk {
    uint64_t of_file, of_device;
};

struct recorded {
    dev_t dev;
    ino_t ino;
    struct chunk *chunks; /* those in which something was read, in ascending order */
    size_t count;
};

_Atomic bool qm_recording;
static char *paths[MAX_PATHS]; /* constant since configure(), as they were given */
static char *real_paths[MAX_PATHS];
static unsigned path_count;

/* The number of the file that a descriptor is of; 0: it is not recorded. */
static _Atomic uint32_t descriptors[QM_MAX_FD];
static _Atomic int highest = -1; /* of those that have one */
static _Atomic int trace_fd = -1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct qm_trace_writer *writer; /* lock; NULL: it has ended */
static struct recorded *files;         /* lock; number 1 is files[0] */
static size_t file_count;              /* lock */
static uint64_t chunk_count;           /* lock; of the device */
static uint64_t start_us, flushed_us;  /* lock */
/* This thread has the lock, or is about to, or opens the trace, which is no file of the
 * program's.  So a signal handler within knows that it cannot have it. */
static _Thread_local volatile bool within __attribute__((tls_model("initial-exec")));

static uint64_t now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

void qm_record_lock(void)
{
    within = true;
    pthread_mutex_lock(&lock);
}

void qm_record_unlock(void)
{
    pthread_mutex_unlock(&lock);
    within = false;
}

/* The lock is held: the trace has ended, and the program goes on without. */
static void give_up(int err)
{
    qm_say("libqmctx-preload: the trace ends here: %s\n", strerror(err));
    atomic_store(&qm_recording, false);
    atomic_store(&trace_fd, -1);
    qm_trace_close(writer);
    writer = NULL;
}

int qm_record_kept(void)
{
    int fd = atomic_load_explicit(&trace_fd, memory_order_relaxed);

    return fd != -1 && !within && qm_files_ours() ? fd : -1;
}

void qm_record_make_way(int fd)
{
    int err = errno, moved;

    if (fd < 0 || fd != atomic_load(&trace_fd) || fd != qm_record_kept())
        return;
    qm_record_lock();
    if (writer && fd == atomic_load(&trace_fd)) {
        moved = qm_trace_move(writer, fd + 1);
        if (moved == -1)
            moved = qm_trace_move(writer, STDERR_FILENO + 1);
        if (moved == -1)
            give_up(errno);
        else
            atomic_store(&trace_fd, moved);
    }
    qm_record_unlock();
    errno = err;
}

void qm_record_event(struct qm_event *event)
{
    uint64_t us = now_us() - start_us;
    int err;

    if (!writer)
        return;
    event->us = us;
    err = qm_trace_write(writer, event);
    /* So that a program that is killed leaves a trace of all but its last second. */
    if ((err == 0 || err == EINVAL) && us - flushed_us >= FLUSH_US) {
        flushed_us = us;
        err = qm_trace_flush(writer);
    }
    if (err != 0 && err != EINVAL)
        give_up(err);
}

/* --- files --- */

static bool is_below(const char *path, const char *top)
{
    size_t n = strlen(top);

    return strncmp(path, top, n) == 0 &&
           (path[n] == '\0' || path[n] == '/' || top[n - 1] == '/');
}

/* The lock is held; 0: out of memory. */
static uint32_t number_of(const struct stat *st)
{
    struct recorded *more;

    for (size_t i = 0; i < file_count; i++)
        if (files[i].dev == st->st_dev && files[i].ino == st->st_ino)
            return (uint32_t)i + 1;
    more = reallocarray(files, file_count + 1, sizeof *files);
    if (!more)
        return 0;
    files = more;
    files[file_count] = (struct recorded){.dev = st->st_dev, .ino = st->st_ino};
    return (uint32_t)++file_count;
}

static void set_number(int fd, uint32_t number)
{
    int most = atomic_load(&highest);

    atomic_store(&descriptors[fd], number);
    while (number != 0 && fd > most &&
           !atomic_compare_exchange_weak(&highest, &most, fd))
        ;
}

void qm_record_duplicated_(int fd, int copy)
{
    if (fd >= 0 && fd < QM_MAX_FD && copy < QM_MAX_FD && qm_files_ours())
        set_number(copy, atomic_load(&descriptors[fd]));
}

void qm_record_opened_(int fd)
{
    char link[32], path[PATH_MAX];
    int err = errno;
    struct stat st;
    ssize_t n;

    if (fd >= QM_MAX_FD || within || !qm_files_ours())
        return;
    atomic_store(&descriptors[fd], 0);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    for (unsigned i = 0; i < path_count; i++) {
        if (!is_below(path, real_paths[i]) || fstat(fd, &st) != 0 ||
            !S_ISREG(st.st_mode))
            continue;
        qm_record_lock();
        set_number(fd, number_of(&st));
        qm_record_unlock();
        break;
    }
    errno = err;
}

void qm_record_forget_(int fd)
{
    /* What a child of vfork() closes is its own; the table is its parent's, too. */
    if (fd < QM_MAX_FD &&
        atomic_load_explicit(&descriptors[fd], memory_order_relaxed) != 0 &&
        qm_files_ours())
        atomic_store_explicit(&descriptors[fd], 0, memory_order_relaxed);
}

void qm_record_forget_range(unsigned first, unsigned last)
{
    for (int fd = atomic_load(&highest); fd >= 0 && (unsigned)fd >= first; fd--)
        if ((unsigned)fd <= last)
            qm_record_forget(fd);
}

bool qm_is_recorded(int fd)
{
    return atomic_load_explicit(&qm_recording, memory_order_relaxed) && fd >= 0 &&
           fd < QM_MAX_FD &&
           atomic_load_explicit(&descriptors[fd], memory_order_relaxed) != 0;
}

/* --- reads and writes --- */

/* Where in the device that byte of the file is.  False: there is no room, or memory. */
static bool place(struct recorded *file, uint64_t offset, uint64_t *at)
{
    const uint64_t wanted = offset >> CHUNK_BITS;
    size_t first = 0, end = file->count;
    struct chunk *more;

    while (first < end) {
        size_t middle = first + (end - first) / 2;

        if (file->chunks[middle].of_file < wanted)
            first = middle + 1;
        else
            end = middle;
    }
    if (first == file->count || file->chunks[first].of_file != wanted) {
        if (chunk_count == MAX_CHUNKS)
            return false;
        more = reallocarray(file->chunks, file->count + 1, sizeof *more);
        if (!more)
            return false;
        file->chunks = more;
        memmove(more + first + 1, more + first, (file->count - first) * sizeof *more);
        more[first] = (struct chunk){wanted, chunk_count++};
        file->count++;
    }
    *at = (file->chunks[first].of_device << CHUNK_BITS) + offset % CHUNK;
    return true;
}

void qm_record_(int fd, bool write, off_t offset, size_t length)
{
    struct qm_event event = {.type = write ? QM_TRACE_WRITE : QM_TRACE_READ};
    uint64_t at = (uint64_t)offset, end;
    uint32_t number;
    int err = errno;

    if (!qm_is_recorded(fd) || offset < 0 || within)
        return;
    number = atomic_load(&descriptors[fd]);
    if (number == 0 || __builtin_add_overflow(at, length, &end))
        return;
    qm_record_lock();
    event.ctx = writer ? qm_record_context() : 0;
    for (; writer && at < end; at += event.length) {
        event.length = end - at;
        if (event.length > CHUNK - at % CHUNK)
            event.length = CHUNK - at % CHUNK;
        if (event.length > QM_TRACE_LENGTH_MAX)
            event.length = QM_TRACE_LENGTH_MAX;
        if (!place(&files[number - 1], at, &event.offset))
            break;
        qm_record_event(&event);
    }
    qm_record_unlock();
    errno = err;
}

/* --- the beginning and the end --- */

static void misconfigured(const char *what, const char *allowed)
{
    fprintf(stderr, "libqmctx-preload: %s: %s\n", what, allowed);
    _exit(2);
}

static void add_path(const char *text, size_t len)
{
    char *path = strndup(text, len);

    if (!path)
        misconfigured(FILES, "out of memory");
    if (path[0] != '/')
        misconfigured(path, "must be an absolute path");
    if (path_count == MAX_PATHS)
        misconfigured(path, "at most 64 paths can be recorded");
    for (size_t n = len; n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
    real_paths[path_count] = realpath(path, NULL);
    if (!real_paths[path_count])
        misconfigured(path, "must be there, to be recorded");
    paths[path_count++] = path;
}

/* As unsetenv(), of which some programs (bash) have a version of their own. */
static void forget_setting(const char *start)
{
    char **to = environ;

    for (char **from = environ; from && *from; from++)
        if (strncmp(*from, start, strlen(start)) != 0)
            *to++ = *from;
    if (to)
        *to = NULL;
}

void qm_record_configure(void)
{
    const char *trace = getenv(RECORD), *list = getenv(FILES);
    char err[256];
    size_t n;
    int fd;

    if ((!trace || !*trace) && (!list || !*list))
        return;
    if (!trace || trace[0] != '/')
        misconfigured(RECORD, "must be the absolute path of a trace, with " FILES);
    if (!list || !*list)
        misconfigured(FILES, "must name what " RECORD " records");
    for (; *list; list += n) {
        list += strspn(list, " \t\n");
        n = strcspn(list, " \t\n");
        if (n > 0)
            add_path(list, n);
    }
    start_us = now_us();
    within = true;
    writer = qm_trace_record(trace, BLOCK_SIZE, err, sizeof err);
    if (!writer)
        misconfigured(RECORD, err);
    fd = qm_trace_move(writer, TRACE_FD);
    if (fd == -1)
        fd = qm_trace_move(writer, STDERR_FILENO + 1);
    if (fd == -1)
        misconfigured(RECORD, strerror(errno));
    within = false;
    atomic_store(&trace_fd, fd);
    /* A program that this one executes would write to the same file. */
    forget_setting(RECORD "=");
    forget_setting(FILES "=");
    atomic_store(&qm_recording, true);
}

void qm_record_forked(void)
{
    atomic_store(&qm_recording, false);
    pthread_mutex_init(&lock, NULL);
    atomic_store(&trace_fd, -1);
    writer = NULL; /* the parent's */
}

static __attribute__((destructor)) void finish(void)
{
    int err;

    if (within)
        return; /* exit() in a signal handler: what is in memory is lost */
    qm_record_lock();
    atomic_store(&qm_recording, false);
    atomic_store(&trace_fd, -1);
    if (writer) {
        err = qm_trace_close(writer);
        writer = NULL;
        if (err)
            qm_say("libqmctx-preload: the trace: %s\n", strerror(err));
    }
    qm_record_unlock();
}

bool qm_record_announce(const char *socket, struct qmctx **ctx, int *result)
{
    static const char suffix[] = ".ctx";
    size_t len = socket ? strlen(socket) : 0, rest = sizeof suffix - 1;
    bool found = false;

    if (!atomic_load(&qm_recording))
        return false;
    if (len == 0) {
        found = path_count == 1;
    } else if (len > rest && strcmp(socket + len - rest, suffix) == 0) {
        char file[PATH_MAX];

        snprintf(file, sizeof file, "%.*s", (int)(len - rest), socket);
        for (unsigned i = 0; i < path_count; i++)
            found = found || is_below(file, paths[i]);
    }
    if (found)
        *result = qm_record_contexts(ctx);
    return found;
}
