/* SPDX-License-Identifier: BSD-3-Clause */
/* test-power.c - the machine ends at a random point, and what was not synced is lost in
 * any order.
 *
 * A child works on a store whose file calls pass by here.  What they sync is kept, file
 * contents and names apart.  At a random call the child writes down what a disk could
 * hold then - of each name, the synced or the newest; of each sector, too - and ends.
 * The store is opened from that: it must hold a prefix of the changes, in QMSTORE_SYNC
 * and up to the last qmstore_flush() all that were acknowledged.
 *
 *   store-power [SEED [RUNS]] */
#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { KEYS = 250, LONGEST = 4000, CHANGES = 4000, FILES = 6000, SECTOR = 512 };

int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);
int __real_ftruncate64(int fd, off64_t len);
int __wrap_ftruncate64(int fd, off64_t len);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off64_t at);
ssize_t __wrap_write(int fd, const void *bytes, size_t len);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_syncfs(int fd);
int __wrap_msync(void *at, size_t len, int flags);

/* ---- the disk ---- */
struct file {
    ino_t inode;
    char *bytes; /* as synced */
    size_t len;
};

struct name {
    char dir[200], name[256]; /* dir below the store's, "" for itself */
    ino_t inode;
    bool is_dir;
};

static struct file files[FILES];
static struct name names[FILES]; /* as synced */
static unsigned file_count, name_count;
static char base[80], hold[80],
    image[80]; /* the store; links to inodes; what is left */
static int until_crash = -1;
static uint64_t seed = 1, crash_seed;

static char *path_of(int fd, char *path, size_t len)
{
    char link[40];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, len - 1);
    path[n > 0 ? n : 0] = 0;
    return path;
}

static bool is_ours(const char *path)
{
    size_t len = strlen(base);

    return len > 0 && strncmp(path, base, len) == 0 && (!path[len] || path[len] == '/');
}

static char *read_whole(const char *path, size_t *len)
{
    int fd = open(path, O_RDONLY);
    char *bytes = NULL;
    struct stat st;

    if (fd == -1)
        return NULL;
    if (fstat(fd, &st) == 0 && (bytes = malloc((size_t)st.st_size + 1))) {
        ssize_t n = read(fd, bytes, (size_t)st.st_size);

        *len = n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return bytes;
}

static struct file *file_of(ino_t inode)
{
    for (unsigned i = 0; i < file_count; i++)
        if (files[i].inode == inode)
            return &files[i];
    return NULL;
}

/* A link keeps the inode's number from being used again. */
static void keep(const char *path, ino_t inode)
{
    char link_name[200];

    snprintf(link_name, sizeof link_name, "%s/%lu", hold, (unsigned long)inode);
    (void)!link(path, link_name);
}

static void sync_file(const char *path)
{
    struct file *f;
    struct stat st;

    if (stat(path, &st) == -1)
        return;
    keep(path, st.st_ino);
    if (!(f = file_of(st.st_ino))) {
        assert_true(file_count < FILES);
        f = &files[file_count++];
        f->inode = st.st_ino;
    }
    free(f->bytes);
    f->bytes = read_whole(path, &f->len);
}

static void sync_dir(const char *path)
{
    const char *below = path + strlen(base) + (path[strlen(base)] == '/');
    DIR *stream = opendir(path);
    struct dirent *e;
    unsigned n = 0;

    for (unsigned i = 0; i < name_count; i++)
        if (strcmp(names[i].dir, below) != 0)
            names[n++] = names[i];
    name_count = n;
    while (stream && (e = readdir(stream))) {
        char full[600];

        if (e->d_name[0] == '.')
            continue;
        assert_true(name_count < FILES);
        snprintf(names[name_count].dir, 200, "%s", below);
        snprintf(names[name_count].name, 256, "%s", e->d_name);
        names[name_count].inode = e->d_ino;
        names[name_count++].is_dir = e->d_type == DT_DIR;
        snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        if (e->d_type != DT_DIR)
            keep(full, e->d_ino);
    }
    if (stream)
        closedir(stream);
}

static int sync_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    if (type == FTW_F)
        sync_file(path);
    else
        sync_dir(path);
    return 0;
}

static void sync_all(void)
{
    nftw(base, sync_one, 16, FTW_PHYS);
}

/* A file of the image: of each sector, the synced or the newest. */
static void leave_file(ino_t inode, const char *to)
{
    char from[200];
    struct file *f = file_of(inode);
    size_t now_len = 0, old_len = f ? f->len : 0, len;
    char *now, *bytes;
    FILE *out;

    snprintf(from, sizeof from, "%s/%lu", hold, (unsigned long)inode);
    now = read_whole(from, &now_len);
    len = rnd(&crash_seed) % 2 ? now_len : old_len;
    bytes = calloc(1, len + 1);
    for (size_t at = 0; at < len; at += SECTOR) {
        size_t n = len - at < SECTOR ? len - at : SECTOR;
        bool newest = rnd(&crash_seed) % 2;
        const char *of = newest ? now : f ? f->bytes : NULL;
        size_t of_len = newest ? now_len : old_len;

        if (of && at < of_len)
            memcpy(bytes + at, of + at, of_len - at < n ? of_len - at : n);
    }
    out = fopen(to, "w");
    assert_true(out && fwrite(bytes, 1, len, out) == len);
    fclose(out);
    free(now);
    free(bytes);
}

static void leave_dir(const char *below);

static void leave_name(const char *below, const char *name, ino_t inode, bool is_dir)
{
    char to[600], next[500];

    snprintf(to, sizeof to, "%s/%s%s%s", image, below, *below ? "/" : "", name);
    if (!is_dir) {
        leave_file(inode, to);
        return;
    }
    mkdir(to, 0700);
    snprintf(next, sizeof next, "%s%s%s", below, *below ? "/" : "", name);
    leave_dir(next);
}

static void leave_dir(const char *below)
{
    char path[400], full[700];
    struct stat st;
    struct dirent *e;
    DIR *stream;

    snprintf(path, sizeof path, "%s/%s", base, below);
    /* Names that were synced: that, or what the name is now. */
    for (unsigned i = 0; i < name_count; i++) {
        bool there;

        if (strcmp(names[i].dir, below) != 0)
            continue;
        snprintf(full, sizeof full, "%s/%s", path, names[i].name);
        there = lstat(full, &st) == 0;
        if ((there && st.st_ino == names[i].inode) || rnd(&crash_seed) % 2)
            leave_name(below, names[i].name, names[i].inode, names[i].is_dir);
        else if (there) {
            keep(full, st.st_ino);
            leave_name(below, names[i].name, st.st_ino, S_ISDIR(st.st_mode));
        }
    }
    stream = opendir(path);
    while (stream && (e = readdir(stream))) {
        bool synced = false;

        for (unsigned i = 0; i < name_count && !synced; i++)
            synced =
                strcmp(names[i].dir, below) == 0 && !strcmp(names[i].name, e->d_name);
        if (e->d_name[0] == '.' || synced || rnd(&crash_seed) % 2)
            continue;
        snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        if (e->d_type != DT_DIR)
            keep(full, e->d_ino);
        leave_name(below, e->d_name, e->d_ino, e->d_type == DT_DIR);
    }
    if (stream)
        closedir(stream);
}

static void leave_image(void)
{
    until_crash = -1;
    mkdir(image, 0700);
    leave_dir("");
    _exit(0);
}

static void call(void)
{
    if (until_crash > 0 && --until_crash == 0)
        leave_image();
}

static unsigned fail_after; /* renames that succeed; 0: all do */

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    int r;

    call();
    if (fail_after > 0 && fail_after-- == 1) {
        fail_after = 1;
        errno = ENOSPC;
        return -1;
    }
    r = __real_renameat(from_dir, from, to_dir, to);
    call();
    return r;
}

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    char path[300], full[400];
    struct stat st;

    call();
    if (fstatat(dir, name, &st, 0) == 0 && is_ours(path_of(dir, path, sizeof path))) {
        snprintf(full, sizeof full, "%s/%s", path, name);
        keep(full, st.st_ino);
    }
    return __real_unlinkat(dir, name, flags);
}

static ssize_t write_some(int fd, const void *bytes, size_t len, const off64_t *at)
{
    call();
    return at ? pwritev(fd, &(struct iovec){(void *)(uintptr_t)bytes, len}, 1, *at)
              : writev(fd, &(struct iovec){(void *)(uintptr_t)bytes, len}, 1);
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off64_t at)
{
    return write_some(fd, bytes, len, &at);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    return write_some(fd, bytes, len, NULL);
}

int __wrap_ftruncate64(int fd, off64_t len)
{
    call();
    return __real_ftruncate64(fd, len);
}

static int sync_fd(int fd)
{
    char path[300];
    struct stat st;

    call();
    if (is_ours(path_of(fd, path, sizeof path)) && fstat(fd, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            sync_dir(path);
        else
            sync_file(path);
    }
    call();
    return 0;
}

int __wrap_fsync(int fd)
{
    return sync_fd(fd);
}

int __wrap_fdatasync(int fd)
{
    return sync_fd(fd);
}

int __wrap_syncfs(int fd)
{
    call();
    sync_all();
    call();
    return 0;
}

/* The only mapping that is written is that of the file "state". */
int __wrap_msync(void *at, size_t len, int flags)
{
    char path[200];

    call();
    for (unsigned i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%u/state", base, i);
        sync_file(path);
    }
    call();
    return 0;
}

/* ---- the work ---- */
struct change {
    uint16_t key, group; /* group: how many changes are to come of the same batch */
    bool removed;
};

static struct shared {
    struct change changes[CHANGES]; /* in their order */
    unsigned begun, durable;        /* how many were called; are promised */
} * work;

static uint32_t now[KEYS]; /* the number of the change that the value is of; 0: none */

static void value_of(unsigned key, uint32_t version, char *value, size_t *len)
{
    uint64_t s = (uint64_t)key << 32 | version;

    *len = 4 + rnd(&s) % (LONGEST - 4);
    memcpy(value, &version, 4);
    for (size_t i = 4; i < *len; i++)
        value[i] = (char)(version + i * key);
}

static void configure(struct qmstore_config *c, const char *path, unsigned run)
{
    qmstore_config_init(c);
    c->path = path;
    c->memory = 1 << 20;
    c->disk = "files";
    c->policy = run % 3 == 0 ? "lfu" : run % 3 == 1 ? "lru" : "wtinylfu";
    c->durability = run % 2 ? QMSTORE_SYNC : QMSTORE_LAZY;
    c->write_buffer = 32 << 10;
    c->disk_cache = 512 << 10;
    c->log_buffer = 32 << 10;
    c->threadless = true;
}

static void change(struct qmstore *s, unsigned n, bool sync, uint32_t first)
{
    static char values[4][LONGEST];
    struct qmstore_change c[4] = {0};
    uint16_t keys[4];

    if (work->begun + n > CHANGES)
        return;
    for (unsigned i = 0; i < n; i++) {
        struct change *w = &work->changes[work->begun + i];

        *w = (struct change){(uint16_t)rnd_below(&seed, KEYS), (uint16_t)(n - 1 - i),
                             rnd(&seed) % 4 == 0};
        keys[i] = w->key;
        c[i] = (struct qmstore_change){.key = &keys[i], .key_len = 2};
        if (!w->removed) {
            value_of(w->key, first + work->begun + i, values[i], &c[i].value_len);
            c[i].value = values[i];
        }
    }
    work->begun += n;
    if (n == 1 && !c[0].value) {
        int r = qmstore_delete(s, c[0].key, 2);

        assert_true(r == 0 || r == ENOENT);
    } else {
        assert_int_equal(qmstore_batch(s, c, n), 0);
    }
    if (sync)
        work->durable = work->begun;
}

static void child(const struct qmstore_config *c, uint32_t first)
{
    bool sync = c->durability == QMSTORE_SYNC;
    struct qmstore *s = open_ok(c);

    for (;;) {
        unsigned what = (unsigned)rnd_below(&seed, 1000);
        uint16_t key = (uint16_t)rnd_below(&seed, rnd(&seed) % 2 ? KEYS : KEYS / 10);
        void *value = NULL;

        if (work->begun + 4 >= CHANGES)
            leave_image();
        if (what < 500) {
            (void)qmstore_get(s, &key, 2, &value, NULL, NULL);
            free(value);
        } else if (what < 900) {
            change(s, 1, sync, first);
        } else if (what < 970) {
            change(s, 2 + what % 3, sync, first);
        } else if (what < 990) {
            assert_int_equal(qmstore_flush(s), 0);
            work->durable = work->begun;
        } else if (what < 995) {
            assert_int_equal(qmstore_close(s), 0);
            work->durable = work->begun;
            s = open_ok(c);
        }
    }
}

static unsigned warnings;

static void warned(void *opaque, const char *message)
{
    if (!strstr(message, "lost")) {
        printf("%s\n", message);
        warnings++;
    }
}

/* Another machine, or this one since it was started again. */
static void reboot(void)
{
    char path[200], head[72];
    uint64_t sum;
    int fd;

    snprintf(path, sizeof path, "%s/0/state", image);
    fd = open(path, O_RDWR);
    if (fd == -1)
        return;
    if (read(fd, head, sizeof head) == sizeof head && head[0] == 'Q') {
        head[24] = '?';
        sum = XXH3_64bits(head, 64);
        memcpy(head + 64, &sum, sizeof sum);
        assert_int_equal(pwritev(fd, &(struct iovec){head, sizeof head}, 1, 0),
                         sizeof head);
    }
    close(fd);
}

/* What is there must be what the first j changes make, for some j. */
static void check(struct qmstore *s, uint32_t first)
{
    uint32_t found[KEYS] = {0};
    unsigned j = 0, last = UINT32_MAX, wrong;

    for (uint16_t key = 0; key < KEYS; key++) {
        char want[LONGEST], *value = NULL;
        size_t len, want_len;
        int r = qmstore_get(s, &key, 2, (void **)&value, &len, NULL);

        if (r == ENOENT)
            continue;
        if (r != 0)
            fail_msg("key %u: %s", key, strerror(r));
        assert_true(len >= 4);
        memcpy(&found[key], value, 4);
        value_of(key, found[key], want, &want_len);
        if (len != want_len || memcmp(value, want, len) != 0)
            fail_msg("key %u: a value that nobody wrote", key);
        free(value);
    }
    for (;; j++) {
        if (j >= work->durable && (j == 0 || work->changes[j - 1].group == 0)) {
            wrong = 0;
            for (unsigned key = 0; key < KEYS; key++)
                wrong += now[key] != found[key];
            if (wrong == 0 || j == work->begun)
                last = j;
            if (wrong == 0)
                break;
        }
        if (j == work->begun)
            break;
        now[work->changes[j].key] = work->changes[j].removed ? 0 : first + j;
    }
    if (last == UINT32_MAX || memcmp(now, found, sizeof now) != 0) {
        for (unsigned key = 0, shown = 0; key < KEYS && shown < 8; key++)
            if (now[key] != found[key] && ++shown)
                printf("key %u: %u is there, the last is %u\n", key, found[key],
                       now[key]);
        fail_msg("no prefix of %u changes, %u durable, first %u", work->begun,
                 work->durable, first);
    }
}

static unsigned runs = 30;

static void test_power(void **state)
{
    uint32_t first = 1;

    work = mmap(NULL, sizeof *work, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    assert_true(work != MAP_FAILED);
    for (unsigned run = 0; run < runs; run++) {
        struct qmstore_config c;
        struct qmstore *s;
        int status;
        pid_t pid;

        snprintf(base, sizeof base, "%s/%u", test_dir, run);
        snprintf(image, sizeof image, "%s/%u", test_dir, run + 1);
        snprintf(hold, sizeof hold, "%s/hold-%u", test_dir, run);
        if (run % 10 == 0) { /* a new store; the directory is there */
            remove_below(base);
            memset(now, 0, sizeof now);
            first = 1;
            mkdir(base, 0700);
        }
        mkdir(hold, 0700);
        memset(work, 0, sizeof *work);
        configure(&c, base, run);
        rnd(&seed);
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
            crash_seed = seed ^ 12345;
            until_crash = (int)(1 + rnd_below(&seed, run % 5 == 0 ? 60 : 3000));
            sync_all();
            child(&c, first);
            _exit(1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        remove_below(base);
        remove_below(hold);
        base[0] = 0;
        reboot();
        configure(&c, image, run);
        c.warn = warned;
        warnings = 0;
        s = open_ok(&c);
        assert_int_equal(warnings, 0);
        check(s, first);
        assert_int_equal(qmstore_close(s), 0);
        first += work->begun;
    }
}

/* In QMSTORE_NONE what was closed is there, also if the machine ends right after. */
static void test_closed(void **state)
{
    struct qmstore_config c;
    struct qmstore *s;
    uint16_t key = 7;
    int status;
    pid_t pid;

    snprintf(base, sizeof base, "%s/a", test_dir);
    snprintf(image, sizeof image, "%s/b", test_dir);
    snprintf(hold, sizeof hold, "%s/hold", test_dir);
    mkdir(base, 0700);
    mkdir(hold, 0700);
    configure(&c, base, 0);
    c.durability = QMSTORE_NONE;
    c.warn = warned;
    fflush(NULL);
    if ((pid = fork()) == 0) {
        s = open_ok(&c);
        assert_int_equal(qmstore_put(s, &key, 2, "v", 1, 0), 0);
        assert_int_equal(qmstore_close(s), 0);
        leave_image();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    base[0] = 0;
    c.path = image;
    warnings = 0;
    s = open_ok(&c);
    assert_int_equal(warnings, 0);
    assert_int_equal(qmstore_get(s, &key, 2, NULL, NULL, NULL), 0);
    assert_int_equal(qmstore_close(s), 0);
}

/* A batch that the disk layer carried out in part: what is deleted then stays so. */
static void test_part(void **state)
{
    struct qmstore_config c;
    struct qmstore *s;
    char value[2000] = "v", path[80];
    int r = 0;
    uint16_t key, put;

    snprintf(path, sizeof path, "%s/part", test_dir);
    configure(&c, path, 1);
    c.false_positives = 0;
    s = open_ok(&c);
    fail_after = 6;
    for (key = 0; key < 2000 && r == 0; key++)
        r = qmstore_put(s, &key, 2, value, sizeof value, 0);
    assert_int_equal(r, ENOSPC);
    fail_after = 0;
    put = key;
    for (key = 0; key < put; key++) {
        r = qmstore_delete(s, &key, 2);
        assert_true(r == 0 || r == ENOENT);
    }
    for (unsigned i = 0; i < 2; i++) {
        for (key = 0; key < put; key++)
            assert_int_equal(qmstore_get(s, &key, 2, NULL, NULL, NULL), ENOENT);
        assert_int_equal(qmstore_close(s), 0);
        s = open_ok(&c);
        assert_int_equal(stats_of(s).keys, 0);
    }
    assert_int_equal(qmstore_close(s), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_power, make_test_dir, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_closed, make_test_dir, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_part, make_test_dir, remove_test_dir),
    };

    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        runs = (unsigned)strtoul(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
