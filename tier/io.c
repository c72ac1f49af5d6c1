/* SPDX-License-Identifier: BSD-3-Clause */
/* io.c - the tier's file, and the file that is none. */
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tier/format.h"
#include "tier/ring.h"

struct file {
    int fd[2]; /* by enum qm_tier_file; may be the same */
    bool regular;
    struct qm_tier_rings *rings;
};

int qm_tier_pread(int fd, void *buf, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t r = pread(fd, buf, n, (off_t)at);

        if (r == -1 && errno == EINTR)
            continue;
        if (r <= 0)
            return r == 0 ? EIO : errno;
        buf = (char *)buf + r;
        n -= (size_t)r;
        at += (uint64_t)r;
    }
    return 0;
}

static int read_file(void *opaque, enum qm_tier_file which, void *buf, size_t n,
                     uint64_t at)
{
    struct file *f = opaque;

    return qm_tier_pread(f->fd[which], buf, n, at);
}

static bool read_many(void *opaque, const struct qm_tier_io_read *reads, size_t n,
                      qm_tier_io_done *done, void *done_opaque)
{
    struct file *f = opaque;

    return qm_tier_rings_read(f->rings, f->fd[QM_TIER_DATA], reads, n, done,
                              done_opaque);
}

static int write_file(void *opaque, enum qm_tier_file which, const void *buf, size_t n,
                      uint64_t at, bool durable)
{
    struct file *f = opaque;
    bool sync_after = false;

    while (n > 0) {
        struct iovec v = {(void *)buf, n};
        ssize_t r = pwritev2(f->fd[which], &v, 1, (off_t)at,
                             durable && !sync_after ? RWF_DSYNC : 0);

        if (r == -1 && errno == EINTR)
            continue;
        if (r == -1 && durable && !sync_after &&
            (errno == EOPNOTSUPP || errno == ENOSYS)) {
            sync_after = true;
            continue;
        }
        if (r <= 0)
            return r == 0 ? ENOSPC : errno;
        buf = (const char *)buf + r;
        n -= (size_t)r;
        at += (uint64_t)r;
    }
    return sync_after && fdatasync(f->fd[which]) == -1 ? errno : 0;
}

static int sync_file(void *opaque)
{
    struct file *f = opaque;

    return fdatasync(f->fd[QM_TIER_META]) == -1 ? errno : 0;
}

static int reserve_file(void *opaque, uint64_t at, size_t n)
{
    struct file *f = opaque;

    if (!f->regular ||
        fallocate(f->fd[QM_TIER_META], FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n) == 0)
        return 0;
    return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : errno;
}

static int resize_file(void *opaque, uint64_t size)
{
    struct file *f = opaque;

    return ftruncate(f->fd[QM_TIER_META], (off_t)size) == -1 ? errno : 0;
}

static int present(void *opaque, uint64_t size)
{
    struct file *f = opaque;
    struct stat st;

    if (fstat(f->fd[QM_TIER_META], &st) == -1)
        return errno;
    if (!f->regular)
        return 0;
    return (uint64_t)st.st_size < size ? EIO : st.st_nlink == 0 ? ENOENT : 0;
}

static bool is_zero(const char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Whether [at, end) is zeros. */
static int look_through(int fd, off_t at, off_t end, bool *blank)
{
    char page[QM_TIER_PAGE];

    while (at < end && *blank) {
        size_t n = end - at < (off_t)sizeof page ? (size_t)(end - at) : sizeof page;
        int r = qm_tier_pread(fd, page, n, (uint64_t)at);

        if (r != 0)
            return r;
        *blank = is_zero(page, n);
        at += (off_t)n;
    }
    return 0;
}

int qm_tier_blank(int fd, bool *blank)
{
    off_t at = 0, end = lseek(fd, 0, SEEK_END);

    *blank = true;
    if (end == -1)
        return errno;
    while (at < end && *blank) {
        off_t data = lseek(fd, at, SEEK_DATA), hole;
        int r;

        if (data == -1 && errno == ENXIO) /* there is none from here on */
            return 0;
        if (data == -1) /* no file system of holes */
            data = at;
        hole = lseek(fd, data, SEEK_HOLE);
        if (hole <= data)
            hole = end;
        r = look_through(fd, data, hole, blank);
        if (r != 0)
            return r;
        at = hole;
    }
    return 0;
}

static int blank_file(void *opaque, bool *blank)
{
    struct file *f = opaque;

    return qm_tier_blank(f->fd[QM_TIER_META], blank);
}

static void close_file(void *opaque)
{
    struct file *f = opaque;

    qm_tier_rings_free(f->rings);
    if (f->fd[QM_TIER_DATA] != f->fd[QM_TIER_META])
        close(f->fd[QM_TIER_DATA]);
    close(f->fd[QM_TIER_META]); /* which unlocks */
    free(f);
}

/* The same file again, by way of /proc, since its name may mean another one by now. */
static int reopen(int fd, int flags)
{
    char path[40];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC | flags);
}

/* Whether the kernel says that direct I/O of pages is not possible: there is none, or
 * the device's blocks are larger.  Before Linux 6.1, and of some file systems, it says
 * nothing. */
static bool refuses_pages(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx stx;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
        stx.stx_mask & STATX_DIOALIGN)
        return stx.stx_dio_offset_align == 0 ||
               QM_TIER_PAGE % stx.stx_dio_offset_align != 0 ||
               stx.stx_dio_mem_align > QM_TIER_PAGE;
#endif
    return false;
}

/* A file system may take the flag and refuse the I/O.  To read tells that of a file
 * that is not empty. */
static int open_direct(int fd)
{
    int direct = refuses_pages(fd) ? -1 : reopen(fd, O_DIRECT);
    void *page;

    if (direct == -1)
        return -1;
    page = aligned_alloc(QM_TIER_PAGE, QM_TIER_PAGE);
    if (!page || pread(direct, page, QM_TIER_PAGE, 0) == -1) {
        close(direct);
        direct = -1;
    }
    free(page);
    return direct;
}

int qm_tier_io_file(struct qm_tier_io *io, const char *path, bool direct, bool ring,
                    char *err, size_t len)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct file *f = malloc(sizeof *f);
    struct statx stx;
    struct stat st;
    off_t end;
    int fd, r;

    memset(io, 0, sizeof *io);
    if (!f) {
        snprintf(err, len, "%s: out of memory", path);
        return ENOMEM;
    }
    /* O_EXCL: a device that is mounted, or a member of something, is not for us. */
    fd = open(path, O_RDWR | O_EXCL | O_CLOEXEC);
    if (fd == -1 && errno == ENOENT) {
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        io->fresh = fd != -1;
    }
    if (fd == -1) {
        r = errno;
        snprintf(err, len, "%s: %s", path,
                 r == EBUSY ? "it is mounted, or another process has this tier open"
                            : strerror(r));
        free(f);
        return r;
    }
    if (fcntl(fd, F_OFD_SETLK, &lock) == -1) {
        r = errno == EACCES || errno == EAGAIN ? EBUSY : errno;
        snprintf(err, len, "%s: %s", path,
                 r == EBUSY ? "another process has this tier open" : strerror(r));
        goto fail;
    }
    if (fstat(fd, &st) == -1) {
        r = errno;
        snprintf(err, len, "%s: %s", path, strerror(r));
        goto fail;
    }
    f->regular = S_ISREG(st.st_mode);
    if (!f->regular && !S_ISBLK(st.st_mode)) {
        snprintf(err, len, "%s is neither a regular file nor a block device", path);
        r = EINVAL;
        goto fail;
    }
    end = lseek(fd, 0, SEEK_END);
    if (end == -1) {
        r = errno;
        snprintf(err, len, "%s: %s", path, strerror(r));
        goto fail;
    }
    io->size = (uint64_t)end;
    io->fixed = !f->regular;
    if (f->regular &&
        statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &stx) == 0) {
        io->inode = stx.stx_ino;
        io->device = st.st_dev;
        if (stx.stx_mask & STATX_BTIME)
            io->birth =
                (uint64_t)stx.stx_btime.tv_sec * 1000000000u + stx.stx_btime.tv_nsec;
    }
    f->rings = NULL;
    f->fd[QM_TIER_META] = f->fd[QM_TIER_DATA] = fd;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    if (direct) {
        int other = open_direct(fd);

        if (other != -1) {
            f->fd[QM_TIER_DATA] = other;
            io->direct = true;
        }
    }
    /* From the page cache, threads copy at the same time, and a ring does not. */
    if (ring && io->direct)
        f->rings = qm_tier_rings_new(f->fd[QM_TIER_DATA]);
    io->rings = qm_tier_rings_count(f->rings);
    io->memory = qm_tier_rings_memory(f->rings);
    io->read_many = f->rings ? read_many : NULL;
    io->opaque = f;
    io->read = read_file;
    io->write = write_file;
    io->sync = sync_file;
    io->reserve = reserve_file;
    io->resize = resize_file;
    io->present = present;
    io->blank = blank_file;
    io->close = close_file;
    return 0;
fail:
    close(fd);
    free(f);
    return r;
}

/* ---- No file
 * -------------------------------------------------------------------------- */

struct null {
    char *image;
    uint64_t size;
};

static int read_null(void *opaque, enum qm_tier_file which, void *buf, size_t n,
                     uint64_t at)
{
    struct null *z = opaque;

    if (at > z->size || n > z->size - at)
        return EIO;
    if (which == QM_TIER_META)
        memcpy(buf, z->image + at, n);
    return 0;
}

static int write_null(void *opaque, enum qm_tier_file which, const void *buf, size_t n,
                      uint64_t at, bool durable)
{
    struct null *z = opaque;

    if (at > z->size || n > z->size - at)
        return ENOSPC;
    if (which == QM_TIER_META)
        memcpy(z->image + at, buf, n);
    return 0;
}

static int sync_null(void *opaque)
{
    return 0;
}

static int reserve_null(void *opaque, uint64_t at, size_t n)
{
    return 0;
}

static int resize_null(void *opaque, uint64_t size)
{
    struct null *z = opaque;
    void *image;

    if (size == 0) /* all zeros again; a mapping has at least a page */
        return madvise(z->image, z->size, MADV_DONTNEED) == -1 ? errno : 0;
    image = mremap(z->image, z->size, size, MREMAP_MAYMOVE);
    if (image == MAP_FAILED)
        return ENOMEM;
    z->image = image;
    z->size = size;
    return 0;
}

static int present_null(void *opaque, uint64_t size)
{
    return 0;
}

static void close_null(void *opaque)
{
    struct null *z = opaque;

    munmap(z->image, z->size);
    free(z);
}

int qm_tier_io_null(struct qm_tier_io *io, uint64_t size)
{
    struct null *z = malloc(sizeof *z);

    memset(io, 0, sizeof *io);
    if (!z)
        return ENOMEM;
    z->size = size;
    z->image = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (z->image == MAP_FAILED) {
        free(z);
        return ENOMEM;
    }
    *io = (struct qm_tier_io){
        .opaque = z,
        .read = read_null,
        .write = write_null,
        .sync = sync_null,
        .reserve = reserve_null,
        .resize = resize_null,
        .present = present_null,
        .close = close_null,
        .fresh = true,
        .size = size,
    };
    return 0;
}

void qm_tier_boot_id(char id[40])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    id[0] = 0;
    if (file) {
        if (fgets(id, 40, file))
            id[strcspn(id, "\n")] = 0;
        fclose(file);
    }
}
