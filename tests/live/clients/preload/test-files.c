/* SPDX-License-Identifier: BSD-3-Clause */
/* test-files.c - the C library's functions, on a routed file and on one of this
 * machine.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

/* What both must answer alike: f(fd) for the two. */
#define BOTH(fd, call)                                                                 \
    do {                                                                               \
        int fd;                                                                        \
        long long got_[2];                                                             \
        int err_[2];                                                                   \
        for (int i_ = 0; i_ < 2; i_++) {                                               \
            fd = pair[i_];                                                             \
            errno = 0;                                                                 \
            got_[i_] = (long long)(call);                                              \
            err_[i_] = got_[i_] == -1 ? errno : 0;                                     \
        }                                                                              \
        CHECK(got_[0] == got_[1] && err_[0] == err_[1],                                \
              "routed: %lld %s, other: %lld %s", got_[0], strerrorname_np(err_[0]),    \
              got_[1], strerrorname_np(err_[1]));                                      \
    } while (0)

static void open_pair(int pair[2], int flags)
{
    pair[0] = must_open(routed, flags);
    pair[1] = must_open(other, flags);
}

static void close_pair(int pair[2])
{
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

static void test_open(void)
{
    struct stat st, other_st;
    struct statx stx;
    char name[PATH_MAX], again[PATH_MAX + 10], *slash;
    int dir, fd;

    FAILS(open(routed, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    FAILS(open(routed, O_RDONLY | O_DIRECTORY), ENOTDIR);
    fd = creat(routed, 0600);
    CHECK(fd != -1, "a device is not truncated");
    FAILS(read(fd, name, 1), EBADF);
    close(fd);

    /* By other ways to write the same path. */
    strcpy(name, routed);
    slash = strrchr(name, '/');
    *slash = '\0';
    dir = must_open(name, O_RDONLY | O_DIRECTORY);
    fd = openat(dir, slash + 1, O_RDONLY);
    CHECK(fd != -1 && fstat(fd, &st) == 0 && st.st_size == size);
    close(fd);
    CHECK(fstatat(dir, slash + 1, &st, 0) == 0 && st.st_size == size);
    CHECK(faccessat(dir, slash + 1, R_OK | W_OK, 0) == 0);
    close(dir);
    CHECK(chdir(name) == 0);
    CHECK(stat(slash + 1, &st) == 0 && st.st_size == size);
    snprintf(again, sizeof again, "%s//./%s", name, slash + 1);
    CHECK(stat(again, &st) == 0 && st.st_size == size, "%s", again);

    CHECK(stat(other, &other_st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1);
    CHECK(st.st_dev != other_st.st_dev);
    CHECK(statx(AT_FDCWD, routed, 0, STATX_SIZE, &stx) == 0 &&
          stx.stx_size == (uint64_t)size);
    CHECK(access(routed, R_OK | W_OK) == 0);
    FAILS(access(routed, X_OK), EACCES);

    /* What a device cannot have done to it. */
    FAILS(unlink(routed), EPERM);
    FAILS(rename(routed, other), EPERM);
    FAILS(rename(other, routed), EPERM);
    FAILS(truncate(routed, 0), EINVAL);
    CHECK(truncate(routed, size) == 0);
    errno = 0;
    CHECK(fopen(routed, "r") == NULL && errno == EOPNOTSUPP);
}

static void test_reads(void)
{
    static const size_t counts[] = {0, 1, 511, 512, 4096, 16384, 100000, 3000000};
    const off_t offsets[] = {0, 1, 16383, 16384, size / 2, size - 1, size, size + 5};
    static char a[100], b[16384];
    struct iovec iov[3] = {{a, sizeof a}, {NULL, 0}, {b, sizeof b}};
    volatile int bad_count = -1;
    int pair[2];

    open_pair(pair, O_RDONLY);
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
            check_same(offsets[i], counts[k]);
        BOTH(fd, preadv(fd, iov, 3, offsets[i]));
        BOTH(fd, preadv2(fd, iov, 3, offsets[i], 0));
    }
    BOTH(fd, pread(fd, b, sizeof b, -1));
    BOTH(fd, preadv(fd, iov, bad_count, 0));
    BOTH(fd, pwrite(fd, b, 1, 0));
    BOTH(fd, write(fd, b, 1));
    BOTH(fd, fallocate(fd, 0, 0, 1));
    close_pair(pair);
}

static void test_position(void)
{
    static char buf[20000];
    struct iovec iov[2] = {{buf, 100}, {buf + 100, 5000}};
    int pair[2];

    open_pair(pair, O_RDWR);
    for (int i = 0; i < 5; i++) {
        BOTH(fd, read(fd, buf, sizeof buf));
        BOTH(fd, readv(fd, iov, 2));
        BOTH(fd, preadv2(fd, iov, 2, -1, 0));
        BOTH(fd, lseek(fd, -i, SEEK_CUR));
    }
    BOTH(fd, lseek(fd, -100, SEEK_END));
    BOTH(fd, read(fd, buf, sizeof buf));
    BOTH(fd, read(fd, buf, sizeof buf));
    BOTH(fd, lseek(fd, -1, SEEK_SET));
    BOTH(fd, lseek(fd, 0, 17));
    BOTH(fd, lseek(fd, 0, SEEK_CUR));
    BOTH(fd, lseek(fd, 100, SEEK_DATA));
    BOTH(fd, lseek(fd, 100, SEEK_HOLE));
    BOTH(fd, lseek(fd, size, SEEK_DATA));
    BOTH(fd, lseek(fd, 777, SEEK_SET));
    memset(buf, 'w', sizeof buf);
    BOTH(fd, write(fd, buf, 333));
    BOTH(fd, writev(fd, iov, 2));
    BOTH(fd, lseek(fd, 0, SEEK_CUR));
    check_same(0, 20000);
    close_pair(pair);
}

static void test_writes(void)
{
    static char buf[70000];
    struct iovec iov[3] = {{buf, 1000}, {buf + 1000, 1}, {buf + 2000, 60000}};
    unsigned seed = 1;
    int pair[2], dev;

    open_pair(pair, O_RDWR | O_DSYNC);
    for (int i = 0; i < 200; i++) {
        size_t count = dice(&seed, sizeof buf);
        off_t at = (off_t)dice(&seed, (uint64_t)size - sizeof buf);

        memset(buf, 'a' + i % 26, sizeof buf);
        switch (i % 3) {
        case 0:
            BOTH(fd, pwrite(fd, buf, count, at));
            break;
        case 1:
            BOTH(fd, pwritev(fd, iov, 3, at));
            break;
        default:
            BOTH(fd, pwritev2(fd, iov, 3, at, RWF_DSYNC));
        }
    }
    check_same(0, (size_t)size);
    close_pair(pair);

    /* At the end, a device is full. */
    dev = must_open(routed, O_RDWR);
    CHECK(pread(dev, buf, 100, size - 100) == 100);
    CHECK(pwrite(dev, buf, 1000, size - 100) == 100);
    FAILS(pwrite(dev, buf, 1, size), ENOSPC);
    CHECK(pwrite(dev, buf, 0, size) == 0);
    CHECK(fcntl(dev, F_SETFL, O_APPEND) == 0);
    FAILS(write(dev, buf, 1), ENOSPC);
    close(dev);
    dev = must_open(routed, O_WRONLY);
    FAILS(pread(dev, buf, 1, 0), EBADF);
    close(dev);
    check_same(0, (size_t)size);
}

static void test_allocate(void)
{
    int pair[2], dev;

    open_pair(pair, O_RDWR);
    BOTH(fd, fallocate(fd, 0, 0, size));
    BOTH(fd, posix_fallocate(fd, 100, 1000));
    BOTH(fd, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 30000, 70001));
    BOTH(fd,
         fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, size - 500, 100000));
    BOTH(fd, fallocate(fd, 0, 0, 0));
    BOTH(fd, fallocate(fd, 0, -1, 10));
    BOTH(fd, ftruncate(fd, size));
    BOTH(fd, fsync(fd));
    BOTH(fd, fdatasync(fd));
    BOTH(fd, sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
    BOTH(fd, posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    close_pair(pair);
    dev = must_open(routed, O_RDWR);
    FAILS(fallocate(dev, 0, 0, size + 1), ENOSPC);
    FAILS(ftruncate(dev, size - 1), EINVAL);
    FAILS(fallocate(dev, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), EOPNOTSUPP);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, dev, 0) == MAP_FAILED &&
          errno == ENODEV);
    close(dev);
    check_same(0, (size_t)size);
}

void test_files(void)
{
    test_open();
    test_reads();
    test_position();
    test_writes();
    test_allocate();
}

/* --- descriptors --- */

/* Whether another process gets a lock of the file's first bytes. */
static bool other_can_lock(void)
{
    int status, fd;
    pid_t pid = fork();

    if (pid == 0) {
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};

        fd = open(routed, O_RDWR);
        _exit(fd == -1 ? 2 : fcntl(fd, F_SETLK, &l) == 0 ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 0;
}

static void test_locks(void)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    int fd = must_open(routed, O_RDWR);

    CHECK(other_can_lock());
    CHECK(fcntl(fd, F_SETLK, &l) == 0);
    CHECK(!other_can_lock());
    l.l_type = F_UNLCK;
    CHECK(fcntl(fd, F_SETLK, &l) == 0);
    CHECK(other_can_lock());
    l.l_type = F_WRLCK;
    CHECK(fcntl(fd, F_SETLK, &l) == 0);
    close(fd);
    CHECK(other_can_lock(), "closing gives it up");
    fd = must_open(routed, O_RDWR);
    CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
    close(fd);
}

/* Takes the right to pass by files' modes, which root has. */
static void set_override(bool has)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    uint32_t bits = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;

    CHECK(syscall(SYS_capget, &header, data) == 0);
    data[0].effective = (data[0].effective & ~bits) | (has ? bits : 0);
    CHECK(syscall(SYS_capset, &header, data) == 0);
}

/* Whether what is at the path on this machine is locked by flock(). */
static bool is_locked(void)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, routed, O_RDONLY | O_CLOEXEC);
    bool is = syscall(SYS_flock, fd, LOCK_EX | LOCK_NB) == -1;

    CHECK(fd != -1);
    syscall(SYS_close, fd);
    return is;
}

/* A lock that cannot be had is not granted. */
static void test_locks_without_rights(void)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    int fd;

    if (geteuid() != 0)
        return;
    for (int mode = 0444; mode >= 0; mode -= 0444) {
        CHECK(syscall(SYS_fchmodat, AT_FDCWD, routed, mode) == 0);
        fd = must_open(routed, O_RDWR);
        set_override(false);
        l.l_type = F_WRLCK;
        FAILS(fcntl(fd, F_SETLK, &l), ENOLCK);
        l.l_type = F_RDLCK;
        if (mode == 0) {
            FAILS(fcntl(fd, F_SETLK, &l), ENOLCK);
            FAILS(flock(fd, LOCK_EX | LOCK_NB), ENOLCK);
        } else {
            CHECK(fcntl(fd, F_SETLK, &l) == 0);
            CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
            CHECK(is_locked());
        }
        set_override(true);
        close(fd);
        CHECK(!is_locked());
    }
    CHECK(syscall(SYS_fchmodat, AT_FDCWD, routed, 0644) == 0);
}

void test_fds(void)
{
    static char buf[100], want[100];
    int fd = must_open(routed, O_RDWR), copy[6], pipes[2];
    int file = must_open(other, O_RDWR);

    CHECK(pread(file, want, sizeof want, 50) == sizeof want);
    CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    CHECK(fcntl(fd, F_SETFL, O_DIRECT) == 0 && (fcntl(fd, F_GETFL) & O_DIRECT));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);

    /* Duplicates share the position, and outlive each other. */
    copy[0] = dup(fd);
    copy[1] = fcntl(fd, F_DUPFD_CLOEXEC, 200);
    CHECK(copy[1] >= 200);
    copy[2] = dup2(fd, 300);
    copy[3] = dup3(fd, 301, O_CLOEXEC);
    copy[4] = dup2(copy[3], copy[3]);
    CHECK(copy[4] == 301);
    CHECK(lseek(fd, 50, SEEK_SET) == 50);
    close(fd);
    for (int i = 0; i < 4; i++) {
        CHECK(lseek(copy[i], 0, SEEK_CUR) == 50 + 10 * i, "copy %d", i);
        CHECK(read(copy[i], buf + 10 * i, 10) == 10);
    }
    CHECK(memcmp(buf, want, 40) == 0);

    /* Numbers that are given to something else. */
    CHECK(dup2(file, copy[0]) == copy[0]);
    CHECK(pread(copy[0], buf, 10, 0) == 10 && ftruncate(copy[0], size) == 0);
    CHECK(lseek(copy[0], 0, SEEK_END) == size);
    CHECK(pipe(pipes) == 0 && dup2(pipes[1], copy[1]) == copy[1]);
    CHECK(write(copy[1], "x", 1) == 1 && read(pipes[0], buf, 1) == 1 && *buf == 'x');
    close(copy[2]);
    FAILS(pread(copy[2], buf, 1, 0), EBADF);
    CHECK(pread(copy[3], buf, 10, 50) == 10 && memcmp(buf, want, 10) == 0);
    CHECK(close_range(301, 310, 0) == 0);
    FAILS(pread(copy[3], buf, 1, 0), EBADF);
    FAILS(close(copy[3]), EBADF);

    /* What nothing is done about does no harm. */
    fd = must_open(routed, O_RDWR);
    errno = 0;
    CHECK(fdopen(fd, "r") == NULL && errno == EOPNOTSUPP);
    FAILS(copy_file_range(fd, NULL, file, NULL, 10, 0), EBADF);
    close(fd);
    test_locks();
    test_locks_without_rights();
}

/* --- processes and threads --- */

void test_fork(void)
{
    int fd = must_open(routed, O_RDWR), status;
    char buf[1000], want[1000];

    CHECK(pread(fd, want, sizeof want, 12345) == sizeof want);
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();

        CHECK(pid != -1);
        if (pid == 0) {
            /* The child, over a connection of its own; and its child. */
            CHECK(pread(fd, buf, sizeof buf, 12345) == sizeof buf);
            CHECK(memcmp(buf, want, sizeof buf) == 0);
            buf[0] = (char)i;
            CHECK(pwrite(fd, buf, 1, i) == 1 && fsync(fd) == 0);
            pid = fork();
            if (pid == 0)
                _exit(pread(fd, buf, sizeof buf, 12345) == sizeof buf ? 0 : 1);
            CHECK(waitpid(pid, &status, 0) == pid && status == 0);
            _exit(0);
        }
        /* Meanwhile the parent's still works. */
        for (int k = 0; k < 100; k++) {
            CHECK(pread(fd, buf, sizeof buf, 12345) == sizeof buf);
            CHECK(memcmp(buf, want, sizeof buf) == 0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        CHECK(pread(fd, buf, 1, i) == 1 && buf[0] == (char)i);
    }
    close(fd);
}

enum { THREADS = 8, ROUNDS = 300, PART = 65536 };

static void *opener(void *stop)
{
    unsigned seed = 7;

    while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
        int fd = must_open(dice(&seed, 2) ? routed : other, O_RDONLY);
        int copy = dup(fd);
        char buf[64];

        CHECK(copy != -1 && close(fd) == 0);
        CHECK(pread(copy, buf, sizeof buf, 0) == sizeof buf && close(copy) == 0);
    }
    return NULL;
}

/* Each thread writes and reads a part of its own. */
static void *worker(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number;
    off_t base = (off_t)(seed - 1) * PART;
    int fd = must_open(routed, O_RDWR);
    char buf[512], want[512];

    for (int i = 0; i < ROUNDS; i++) {
        off_t at = base + (off_t)dice(&seed, PART / 512) * 512;

        memset(want, (int)dice(&seed, 256), sizeof want);
        CHECK(pwrite(fd, want, sizeof want, at) == sizeof want);
        CHECK(pread(fd, buf, sizeof buf, at) == sizeof buf);
        CHECK(memcmp(buf, want, sizeof buf) == 0);
        if (i % 50 == 0)
            CHECK(fdatasync(fd) == 0);
    }
    close(fd);
    return NULL;
}

void test_threads(void)
{
    pthread_t thread[THREADS], opening;
    bool stop = false;

    CHECK(size >= (off_t)THREADS * PART);
    CHECK(pthread_create(&opening, NULL, opener, &stop) == 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, worker, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(opening, NULL);
}
