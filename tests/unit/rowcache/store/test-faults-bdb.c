/* SPDX-License-Identifier: BSD-3-Clause */
/* test-faults-bdb.c - Berkeley DB's faults when a store is opened: a disk that is full,
 * temporary files that cannot be made, reads that fail or say what is wrong.
 *
 * The C library's calls that Berkeley DB makes are this file's. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "rowcache/store/disk.h"

#include "faults.h"

/* Writes that Berkeley DB makes until they are refused, with this error; -1: none is.
 */
static int writes_left = -1, refused_with = ENOSPC;

/* Takes the place of the C library's in the libraries, too. */
__attribute__((visibility("default"))) ssize_t write(int fd, const void *buf,
                                                     size_t count)
{
    if (writes_left > 0)
        writes_left--;
    if (writes_left == 0) {
        errno = refused_with;
        return -1;
    }
    return syscall(SYS_write, fd, buf, count);
}

/* Files that are made outside of the test's directory are refused, as where /var/tmp
 * may only be read, and counted. */
static bool only_inside, none_temporary; /* no such files anywhere */
static unsigned made_outside;

/* A library may call open() and pread() by these names, whatever this file calls. */
__attribute__((visibility("default"))) int open_of_library(const char *path, int flags,
                                                           ...) __asm__("open");
__attribute__((visibility("default"))) ssize_t
pwrite_of_library(int fd, const void *buf, size_t count,
                  off_t offset) __asm__("pwrite");
__attribute__((visibility("default"))) ssize_t
pread_of_library(int fd, void *buf, size_t count, off_t offset) __asm__("pread");
/* The store's own reads, which have that name. */
__attribute__((visibility("default"))) ssize_t
pread_of_store(int fd, void *buf, size_t count, off_t offset) __asm__("pread64");

/* As write(); Berkeley DB then tries that. */
ssize_t pwrite_of_library(int fd, const void *buf, size_t count, off_t offset)
{
    if (writes_left == 0) {
        errno = refused_with;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, buf, count, offset);
}

int open_of_library(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list args;

    if (flags & O_CREAT) {
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    if (only_inside && (flags & O_CREAT) &&
        strncmp(path, test_dir, strlen(test_dir)) != 0) {
        made_outside++;
        errno = EROFS;
        return -1;
    }
    if (none_temporary && (flags & O_CREAT) && strstr(path, "/BDB")) {
        errno = EROFS;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* What reading Berkeley DB's records comes to. */
static enum {
    RIGHT,
    FAILS, /* after reads_left that do not */
    FAILS_ONCE,
    WRONG_ONCE, /* the next page is another than on disk */
    WRONG
} reading;

static char message_before[sizeof message];

static void warn_and_mend(void *opaque, const char *text)
{
    memcpy(message_before, message, sizeof message);
    warn(opaque, text);
    if (strstr(text, "set aside"))
        reading = RIGHT; /* of what takes its place */
}

static bool is_records(int fd)
{
    char link[40], path[200];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path);
    return n > 13 && memcmp(path + n - 13, "/disk/records", 13) == 0;
}

static int reads_left;
static bool has_failed; /* a read has */

static ssize_t spoil(int fd, char *bytes, ssize_t n)
{
    enum { TRIES = 101 }; /* Berkeley DB's, of one read */
    static unsigned tried;

    if (reading == RIGHT || !is_records(fd))
        return n;
    if (reading == FAILS && reads_left > 0) {
        reads_left--;
        return n;
    }
    if (reading == FAILS || reading == FAILS_ONCE) {
        if (reading == FAILS_ONCE && ++tried == TRIES)
            reading = RIGHT;
        has_failed = true;
        errno = EIO;
        return -1;
    }
    if (n == 4096) {
        memset(bytes + 20, 0xff, 6); /* how much is on the page, and its kind */
        if (reading == WRONG_ONCE)
            reading = RIGHT;
    }
    return n;
}

__attribute__((visibility("default"))) ssize_t read(int fd, void *buf, size_t count)
{
    return spoil(fd, buf, syscall(SYS_read, fd, buf, count));
}

ssize_t pread_of_library(int fd, void *buf, size_t count, off_t offset)
{
    return spoil(fd, buf, syscall(SYS_pread64, fd, buf, count, offset));
}

static int store_reads_left = -1; /* of records, before one fails; -1: none does */

ssize_t pread_of_store(int fd, void *buf, size_t count, off_t offset)
{
    if (store_reads_left >= 0 && is_records(fd) && store_reads_left-- == 0) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, buf, count, offset);
}

static void make(const char *name)
{
    char path[160];
    int fd;

    snprintf(path, sizeof path, "%s/%s", test_dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd != -1);
    close(fd);
}

/* Berkeley DB's verification takes the square of their pages. */
enum { KEYS = 550 };

/* A store on Berkeley DB that has KEYS keys and is closed. */
static struct qmstore_config closed_bdb(void)
{
    struct qmstore_config c = config();
    struct qmstore *s;

    c.disk = "bdb";
    c.warn = warn_and_mend;
    s = open_ok(&c);
    fill(s, 0, KEYS);
    assert_int_equal(qmstore_close(s), 0);
    message[0] = 0;
    return c;
}

static void all_are_there(const struct qmstore_config *c)
{
    struct qmstore *s = open_ok(c);

    assert_int_equal(count(s, KEYS), KEYS);
    assert_int_equal(qmstore_close(s), 0);
}

/* What `how` returns in a child, since Berkeley DB frees not all when it gives up. */
static int in_child(int (*how)(const struct qmstore_config *c, int with),
                    const struct qmstore_config *c, int with)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        _exit(how(c, with));
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

/* `how` returns what was wrong, or 0.  Nothing is set aside. */
static void refuses_to_open(int (*how)(const struct qmstore_config *c, int with),
                            const struct qmstore_config *c, int with)
{
    int wrong = in_child(how, c, with);

    if (wrong != 0)
        fail_msg("with %d: %d", with, wrong);
    assert_false(exists("0.damaged"));
}

/* Opens a store on a disk that refuses after some writes.  Returns what was wrong, or
 * 0. */
static int open_refused(const struct qmstore_config *c, int writes)
{
    struct qmstore *s;
    char err[400] = "";

    writes_left = writes;
    if (qmstore_open(c, &s, err, sizeof err) != refused_with)
        return 1;
    if (writes_left != 0)
        return 2;
    return message[0] != 0 || !strstr(err, strerror(refused_with)) ? 3 : 0;
}

/* A disk that is full, or fails, when the store is opened is no damage: the open is
 * refused, and finds everything when the disk takes writes again. */
TEST_WITH(test_refused_at_opening, make_test_dir, remove_test_dir)
{
    static const int errors[] = {ENOSPC, EIO};
    struct qmstore_config c = closed_bdb();

    for (unsigned i = 0; i < 2; i++) {
        refused_with = errors[i];
        for (int writes = 1; writes < 1000; writes *= 3)
            refuses_to_open(open_refused, &c, writes);
        all_are_there(&c);
    }
    refused_with = ENOSPC;
}

/* A batch whose commit alone is refused is not acknowledged. */
TEST_WITH(test_commit_refused, make_test_dir, remove_test_dir)
{
    static char why[200];
    struct disk_config c = {.dir = test_dir,
                            .hash = DISK_HASH_NAME,
                            .cache = 4 << 20,
                            .why = why,
                            .why_len = sizeof why};
    static const struct disk_name name = {DISK_HASH_NAME, "hash"};
    struct disk_record r = {
        .name = &name, .key = "key", .key_len = 3, .value = big, .value_len = 9};
    struct disk *d;

    assert_int_equal(disk_bdb.open(&c, &d), 0);
    assert_int_equal(disk_bdb.apply(d, &r, 1), 0);
    writes_left = 0;
    assert_int_equal(disk_bdb.apply(d, &r, 1), ENOSPC);
    writes_left = -1;
    disk_bdb.close(d);
}

static int open_without_temporary(const struct qmstore_config *c, int with)
{
    struct qmstore *s;
    char err[400] = "";

    none_temporary = true;
    if (qmstore_open(c, &s, err, sizeof err) == 0)
        return 1;
    return message[0] != 0 || !strstr(err, "temporary open") ? 2 : 0;
}

/* Berkeley DB makes temporary files when it verifies with a small cache: in the store's
 * directory, and if it cannot, nothing is damaged. */
TEST_WITH(test_temporary_files, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = closed_bdb();
    struct qmstore *s;

    made_outside = 0;
    only_inside = true;
    s = open_ok(&c);
    only_inside = false;
    assert_string_equal(message, "");
    assert_int_equal(made_outside, 0);
    assert_int_equal(count(s, KEYS), KEYS);
    assert_int_equal(qmstore_close(s), 0);
    refuses_to_open(open_without_temporary, &c, 0);
    all_are_there(&c);
    /* One that a killed process has left. */
    make("0/disk/BDB01234");
    make("0/disk/BDB0123");
    make("0/disk/bdb01234");
    all_are_there(&c);
    assert_false(exists("0/disk/BDB01234"));
    assert_true(exists("0/disk/BDB0123") && exists("0/disk/bdb01234"));
}

/* As open_full(), where reads of Berkeley DB's are of that kind. */
static int open_reading(const struct qmstore_config *c, int kind)
{
    struct qmstore *s;
    char err[400] = "";

    reading = kind;
    if (qmstore_open(c, &s, err, sizeof err) != EIO)
        return 1;
    if (message[0] != 0 || !strstr(err, "0: Input/output error: BDB"))
        return 2;
    return strstr(err, kind == WRONG_ONCE ? "Page 0" : "read:") ? 0 : 3;
}

enum { NOT_SO_MANY = 100 };

/* The same from a later read on; NOT_SO_MANY: opening does not read that often. */
static int open_failing_later(const struct qmstore_config *c, int reads)
{
    int wrong;

    reads_left = reads;
    has_failed = false;
    wrong = open_reading(c, FAILS);
    return wrong == 1 && !has_failed ? NOT_SO_MANY : wrong;
}

static void fails_later(const struct qmstore_config *c)
{
    int reads = 1, wrong;

    while ((wrong = in_child(open_failing_later, c, reads)) == 0)
        reads += reads / 3 + 1;
    if (wrong != NOT_SO_MANY || reads < 200)
        fail_msg("after %d reads: %d", reads, wrong);
    assert_false(exists("0.damaged"));
}

/* Damages a value that is in no memory: each has a page of its own. */
static void damage_one(void)
{
    enum { VALUE = 7 }; /* a page's kind */
    uint8_t kind = 0;
    char path[160];
    struct stat st;
    off_t page;
    int fd;

    snprintf(path, sizeof path, "%s/0/disk/records", test_dir);
    fd = open(path, O_RDWR);
    assert_true(fd != -1 && fstat(fd, &st) == 0);
    for (page = st.st_size / 16384 * 4096; kind != VALUE; page += 4096)
        assert_int_equal(pread(fd, &kind, sizeof kind, page + 25), sizeof kind);
    assert_int_equal(pwrite(fd, "damage", 6, page - 4096 + 1000), 6);
    close(fd);
}

/* ... whenever that is: in recovery, in verification, in the walk over all keys, or in
 * the second walk, which counts damaged records if there are any. */
TEST_WITH(test_failing_later, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = closed_bdb();

    fails_later(&c);
    all_are_there(&c);
    damage_one();
    fails_later(&c);
    assert_int_equal(qmstore_close(open_ok(&c)), 0);
    assert_non_null(strstr(message, "1 records on disk are damaged"));
}

/* What is not certainly damage is an error of qmstore_open(), and all is there when it
 * is over: a device that fails, pages that one of two verifications finds damaged.  If
 * both do, they are.  Berkeley DB's words are told. */
TEST_WITH(test_certain, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = closed_bdb();
    struct qmstore *s;

    for (int kind = FAILS; kind <= WRONG_ONCE; kind++) {
        refuses_to_open(open_reading, &c, kind);
        all_are_there(&c);
    }
    reading = WRONG;
    s = open_ok(&c);
    reading = RIGHT;
    if (!strstr(message_before, "0/disk: Bad message: BDB") ||
        !strstr(message, "set aside as 0.damaged"))
        fail_msg("'%s' '%s'", message_before, message);
    assert_int_equal(count(s, KEYS), 0);
    assert_int_equal(qmstore_close(s), 0);
}

static int open_failing_once(const struct qmstore_config *c, int reads)
{
    struct qmstore *s;
    char err[400] = "";

    store_reads_left = reads;
    if (qmstore_open(c, &s, err, sizeof err) != EIO)
        return 1;
    return message[0] != 0 || store_reads_left != -1 ? 2 : 0;
}

/* Nor is a read of the store's own that fails once: of the first page, which is checked
 * before Berkeley DB sees it, and of each page's last change. */
TEST_WITH(test_failing_once, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = closed_bdb();

    for (int reads = 0; reads < 4; reads++) {
        refuses_to_open(open_failing_once, &c, reads);
        all_are_there(&c);
    }
}
