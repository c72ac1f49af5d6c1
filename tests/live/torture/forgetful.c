/* SPDX-License-Identifier: BSD-3-Clause */
/* forgetful.c - to be preloaded: files of which a crash of the machine loses what was
 * not synced.
 *
 *   FORGETFUL=DIR      regular files in DIR, by name; "DIR.kept/NAME" is what would be
 *                      left of one, and "DIR.dirty/NAME" has a byte for each sector in
 *                      which that may differ.  Both directories are there, and
 *                      "DIR.syncs", which becomes a byte longer by each sync.
 *
 * Files are written to as ever: when only the process ends, nothing is lost.  Sectors
 * that were written become durable by fdatasync(), fsync() or RWF_DSYNC, and now and
 * then by themselves; a file's size does at once.  To simulate the crash,
 * tests/live/torture/tier puts back the old content of some sectors that are not. */
/* With it, the headers would make two of the names below the same. */
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define SECTOR  512u
#define SECTORS (1u << 18) /* of a file at most: 128 MiB */
#define FILES   16
#define EXPORT  __attribute__((visibility("default")))

struct file {
    char name[64];
    int kept;
    uint8_t *dirty;
};

static struct file files[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_pwritev2)(int, const struct iovec *, int, off_t, int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fdatasync)(int), (*real_ftruncate)(int, off_t);

__attribute__((constructor)) static void find(void)
{
    *(void **)&real_pwritev2 = dlsym(RTLD_NEXT, "pwritev2");
    *(void **)&real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    *(void **)&real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    *(void **)&real_ftruncate = dlsym(RTLD_NEXT, "ftruncate");
}

static void give_up(const char *what)
{
    fprintf(stderr, "forgetful: %s: %s\n", what, strerror(errno));
    abort();
}

static int open_beside(const char *directory, const char *kind, const char *name)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s.%s/%s", directory, kind, name);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd == -1)
        give_up(path);
    return fd;
}

/* With lock.  NULL: none of ours. */
static struct file *file_of(int fd)
{
    const char *directory = getenv("FORGETFUL");
    char link[40], path[PATH_MAX];
    size_t n = directory ? strlen(directory) : 0;
    ssize_t length;
    int dirty;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (n == 0 || (length = readlink(link, path, sizeof path - 1)) <= 0)
        return NULL;
    path[length] = 0;
    if (strncmp(path, directory, n) != 0 || path[n] != '/' || strchr(path + n + 1, '/'))
        return NULL;
    for (unsigned i = 0; i < FILES; i++) {
        struct file *f = &files[i];

        if (strcmp(f->name, path + n + 1) == 0)
            return f;
        if (f->name[0])
            continue;
        snprintf(f->name, sizeof f->name, "%s", path + n + 1);
        f->kept = open_beside(directory, "kept", f->name);
        dirty = open_beside(directory, "dirty", f->name);
        f->dirty = MAP_FAILED;
        if (real_ftruncate(dirty, SECTORS) == 0)
            f->dirty =
                mmap(NULL, SECTORS, PROT_READ | PROT_WRITE, MAP_SHARED, dirty, 0);
        if (f->dirty == MAP_FAILED)
            give_up(f->name);
        close(dirty);
        return f;
    }
    errno = ENFILE;
    give_up(path);
    return NULL;
}

/* Makes the dirty ones of some sectors durable.  A descriptor that is for O_DIRECT
 * only cannot be read from with this buffer: another one is opened. */
static void keep(struct file *f, int fd, uint64_t first, uint64_t n)
{
    char link[40], sector[SECTOR];
    int from = -1;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    for (uint64_t i = first; i < first + n; i++) {
        ssize_t r;

        if (!f->dirty[i])
            continue;
        if (from == -1)
            from = open(link, O_RDONLY | O_CLOEXEC);
        r = from == -1 ? -1 : pread(from, sector, SECTOR, (off_t)(i * SECTOR));
        if (r == -1 ||
            real_pwrite(f->kept, sector, (size_t)r, (off_t)(i * SECTOR)) != r)
            give_up(f->name);
        f->dirty[i] = 0;
    }
    if (from != -1)
        close(from);
}

static ssize_t write_file(int fd, const struct iovec *v, int count, off_t at, int flags)
{
    static unsigned turn;
    size_t bytes = 0;
    uint64_t first, n;
    struct file *f;
    ssize_t r;

    pthread_mutex_lock(&lock);
    f = file_of(fd);
    if (!f) {
        pthread_mutex_unlock(&lock);
        return real_pwritev2(fd, v, count, at, flags);
    }
    for (int i = 0; i < count; i++)
        bytes += v[i].iov_len;
    first = (uint64_t)at / SECTOR;
    n = bytes == 0 ? 0 : ((uint64_t)at + bytes - 1) / SECTOR - first + 1;
    if (first + n > SECTORS) {
        errno = EFBIG;
        give_up(f->name);
    }
    memset(f->dirty + first, 1, n);
    r = real_pwritev2(fd, v, count, at, flags & ~RWF_DSYNC);
    if (r > 0 && ((flags & RWF_DSYNC) || turn++ % 5 == 0))
        keep(f, fd, first, n);
    pthread_mutex_unlock(&lock);
    return r;
}

static void count_sync(void)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s.syncs", getenv("FORGETFUL"));
    fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd == -1 || write(fd, "", 1) != 1)
        give_up(path);
    close(fd);
}

static int sync_file(int fd)
{
    struct file *f;

    pthread_mutex_lock(&lock);
    f = file_of(fd);
    if (f) {
        keep(f, fd, 0, SECTORS);
        count_sync();
    }
    pthread_mutex_unlock(&lock);
    return f ? 0 : real_fdatasync(fd);
}

static int resize_file(int fd, off_t size)
{
    struct file *f;
    int r;

    pthread_mutex_lock(&lock);
    f = file_of(fd);
    r = real_ftruncate(fd, size);
    if (f && r == 0) {
        uint64_t end = ((uint64_t)size + SECTOR - 1) / SECTOR;

        if (real_ftruncate(f->kept, size) == -1)
            give_up(f->name);
        if (end < SECTORS)
            memset(f->dirty + end, 0, SECTORS - end);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

/* What is called depends on how the caller was built. */
EXPORT ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
    return write_file(fd, v, n, at, flags);
}

EXPORT ssize_t pwritev64v2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
    return write_file(fd, v, n, at, flags);
}

EXPORT ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
    struct iovec v = {(void *)buf, n};

    return write_file(fd, &v, 1, at, 0);
}

EXPORT ssize_t pwrite64(int fd, const void *buf, size_t n, off_t at)
{
    return pwrite(fd, buf, n, at);
}

EXPORT int fdatasync(int fd)
{
    return sync_file(fd);
}

EXPORT int fsync(int fd)
{
    return sync_file(fd);
}

EXPORT int ftruncate(int fd, off_t size)
{
    return resize_file(fd, size);
}

EXPORT int ftruncate64(int fd, off_t size)
{
    return resize_file(fd, size);
}
