/* rules-dir.c - a directory in which rules survive a restart (see rules-dir.h). */
#include "mining/rules-dir.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mining/bdb.h"
#include "mining/record.h"
#include "mining/seal.h"

#define FILE_NAME "rules.db"
#define NEW_NAME  "rules.db.new"
#define DB_NAME   "__db.rules.db.new" /* Berkeley DB's, while it makes the other */
#define BAD_MAX   9

#define FORMAT_VERSION 1
#define PLACE_SIZE     sizeof(uint64_t)

/* The key of the record that says what the file is: no prefix's key begins so. */
static const unsigned char meta_key[] = {0xff};
static const char meta_magic[8] = "QMRULES\n";

/* All of it little-endian. */
struct meta {
    char magic[8];
    uint32_t version;
    uint32_t device_size; /* bytes of the device's name, which follows */
    uint64_t block_size;
    uint64_t prefixes; /* records beside this one */
};

struct qm_rules_dir {
    int fd;
    char path[PATH_MAX]; /* absolute: a server may change its working directory */
    char *device;        /* NULL: any */
    uint64_t block_size;
};

struct qm_rules_save {
    struct qm_rules_dir *dir;
    struct qm_bdb bdb;
    uint64_t prefixes;
    unsigned char *buf;
    size_t cap;
};

/* One sentence for a person; returns what is to be returned. */
static int __attribute__((format(printf, 4, 5)))
explain(int error, char *err, size_t len, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, len, format, args);
    va_end(args);
    return error;
}

static int file_path(const struct qm_rules_dir *dir, const char *name,
                     char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/%s", dir->path, name);
    return n > 0 && n < PATH_MAX ? 0 : ENAMETOOLONG;
}

/* Removes what a server that was killed has left. */
static int remove_new(const struct qm_rules_dir *dir)
{
    if ((unlinkat(dir->fd, NEW_NAME, 0) != 0 && errno != ENOENT) ||
        (unlinkat(dir->fd, DB_NAME, 0) != 0 && errno != ENOENT)) {
        return errno;
    }
    return 0;
}

/* That a file can be written there is better known at once than hours later. */
static int try_to_write(const struct qm_rules_dir *dir)
{
    int r = remove_new(dir);
    if (r != 0) {
        return r;
    }
    int fd = openat(dir->fd, NEW_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno;
    }
    close(fd);
    return remove_new(dir);
}

static int open_dir(struct qm_rules_dir *dir, const char *name, char *err, size_t len)
{
    if (mkdir(name, 0700) != 0 && errno != EEXIST) {
        int e = errno;
        return explain(e, err, len, "cannot make the rules directory %s: %s", name,
                       strerror(e));
    }
    dir->fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char path[PATH_MAX];
    if (dir->fd < 0 || !realpath(name, dir->path)) {
        int e = errno;
        return explain(e, err, len,
                       e == ENOTDIR ? "the rules directory %s is not a directory (%s)"
                                    : "cannot open the rules directory %s: %s",
                       name, strerror(e));
    }
    if (file_path(dir, DB_NAME, path) != 0) {
        return explain(ENAMETOOLONG, err, len,
                       "the path of the rules directory %s is too long", name);
    }
    if (flock(dir->fd, LOCK_EX | LOCK_NB) != 0) {
        int e = errno;
        return explain(e == EWOULDBLOCK ? EBUSY : e, err, len,
                       e == EWOULDBLOCK
                           ? "the rules directory %s is in use by another server (%s)"
                           : "cannot lock the rules directory %s: %s",
                       name, strerror(e));
    }
    int e = try_to_write(dir);
    if (e != 0) {
        return explain(e, err, len, "cannot write into the rules directory %s: %s",
                       name, strerror(e));
    }
    return 0;
}

int qm_rules_dir_open(const struct qm_mining_config *config, struct qm_rules_dir **dir,
                      char *err, size_t len)
{
    struct qm_rules_dir *d = calloc(1, sizeof *d);
    if (!d) {
        return explain(ENOMEM, err, len, "out of memory");
    }
    d->fd = -1;
    d->block_size = config->block_size;
    int r = 0;
    if (config->rules_for) {
        d->device = strdup(config->rules_for);
        if (!d->device) {
            r = explain(ENOMEM, err, len, "out of memory");
        }
    }
    if (r == 0) {
        r = open_dir(d, config->rules_dir, err, len);
    }
    if (r != 0) {
        qm_rules_dir_close(d);
        return r;
    }
    *dir = d;
    return 0;
}

void qm_rules_dir_close(struct qm_rules_dir *dir)
{
    if (dir->fd >= 0) {
        close(dir->fd);
    }
    free(dir->device);
    free(dir);
}

int qm_rules_dir_try(const char *name, char *err, size_t len)
{
    const struct qm_mining_config config = {.rules_dir = name};
    struct qm_rules_dir *dir;
    struct stat st;
    bool made = lstat(name, &st) != 0 && errno == ENOENT;
    int r = qm_rules_dir_open(&config, &dir, err, len);

    if (r == 0) {
        qm_rules_dir_close(dir);
        err[0] = '\0';
    }
    if (made) {
        (void)rmdir(name); /* fails unless it is there and empty */
    }
    return r;
}

/* Loading */

struct loading {
    struct saved {
        uint64_t a, b, place;
    } * saved;
    size_t n, cap;
    struct qm_suffixes list;
    int error; /* other than that the file is damaged */

    /* Where it goes, once all was found in order. */
    uint64_t first_place; /* what was used longer ago is left out */
    bool (*possible)(uint64_t a, uint64_t b, uint64_t c);
    int (*record)(void *opaque, uint64_t a, uint64_t b, const unsigned char *record,
                  size_t size);
    void *opaque;
};

static int by_block(const void *x, const void *y)
{
    const struct qm_suffix *s = x, *t = y;
    return s->block < t->block ? -1 : s->block > t->block;
}

/* Whether a record is one that we wrote.  Nothing else is trusted later. */
static int check_record(struct loading *loading, uint64_t a, uint64_t b,
                        const unsigned char *record, size_t size)
{
    struct qm_suffixes *list = &loading->list;
    int r = qm_record_decode(record, size, list);
    if (r != 0) {
        return r;
    }
    qsort(list->v, list->n, sizeof list->v[0], by_block);
    for (size_t i = 0; i < list->n; i++) {
        uint64_t c = list->v[i].block;
        if ((loading->possible && !loading->possible(a, b, c)) ||
            (i > 0 && c == list->v[i - 1].block)) {
            return EINVAL;
        }
    }
    return 0;
}

static bool is_meta(const void *key, size_t size)
{
    return size == sizeof meta_key && memcmp(key, meta_key, size) == 0;
}

static int read_saved(const void *key, size_t key_size, const void *data, size_t size,
                      struct saved *saved)
{
    if (size < PLACE_SIZE || qm_key_decode(key, key_size, &saved->a, &saved->b) != 0) {
        return EINVAL;
    }
    memcpy(&saved->place, data, PLACE_SIZE);
    saved->place = le64toh(saved->place);
    return 0;
}

static int check_one(void *opaque, const void *key, size_t key_size, const void *data,
                     size_t size)
{
    struct loading *loading = opaque;
    struct saved s;
    if (is_meta(key, key_size)) {
        return 0;
    }
    int r = read_saved(key, key_size, data, size, &s);
    if (r == 0) {
        r = check_record(loading, s.a, s.b, (const unsigned char *)data + PLACE_SIZE,
                         size - PLACE_SIZE);
    }
    if (r == 0 && loading->n == loading->cap) {
        size_t cap = loading->cap ? 2 * loading->cap : 1024;
        struct saved *larger = reallocarray(loading->saved, cap, sizeof *larger);
        if (larger) {
            loading->saved = larger;
            loading->cap = cap;
        } else {
            r = ENOMEM;
        }
    }
    if (r == ENOMEM) {
        loading->error = r;
    }
    if (r == 0) {
        loading->saved[loading->n++] = s;
    }
    return r;
}

static int deliver_one(void *opaque, const void *key, size_t key_size, const void *data,
                       size_t size)
{
    const struct loading *loading = opaque;
    struct saved s;
    if (is_meta(key, key_size)) {
        return 0;
    }
    int r = read_saved(key, key_size, data, size, &s);
    if (r == 0 && s.place >= loading->first_place) {
        r = loading->record(loading->opaque, s.a, s.b,
                            (const unsigned char *)data + PLACE_SIZE,
                            size - PLACE_SIZE);
    }
    return r;
}

static int by_place(const void *x, const void *y)
{
    const struct saved *s = x, *t = y;
    return s->place < t->place ? -1 : s->place > t->place;
}

/* Says in why what is wrong with a file that is not ours to use; "" if nothing is. */
static void check_meta(struct qm_rules_dir *dir, struct qm_bdb *bdb, uint64_t *prefixes,
                       char *why, size_t len)
{
    unsigned char *buf = NULL;
    size_t cap = 0, size = 0;
    struct meta meta;
    int r = qm_bdb_get(bdb, meta_key, sizeof meta_key, &buf, &cap, &size);
    why[0] = '\0';
    if (r == 0 && size >= sizeof meta) {
        memcpy(&meta, buf, sizeof meta);
    }
    if (r != 0 && r != ENOENT) {
        snprintf(why, len, "damaged");
    } else if (r != 0 || size < sizeof meta ||
               memcmp(meta.magic, meta_magic, sizeof meta_magic) != 0) {
        snprintf(why, len, "not a rule cache");
    } else if (le32toh(meta.version) != FORMAT_VERSION) {
        snprintf(why, len, "of format version %u, not %u", le32toh(meta.version),
                 FORMAT_VERSION);
    } else if (le32toh(meta.device_size) != size - sizeof meta) {
        snprintf(why, len, "inconsistent");
    } else if (dir->device &&
               (size - sizeof meta != strlen(dir->device) ||
                memcmp(buf + sizeof meta, dir->device, size - sizeof meta) != 0)) {
        snprintf(why, len, "of another device (\"%.*s\", not \"%s\")",
                 (int)(size - sizeof meta), (const char *)buf + sizeof meta,
                 dir->device);
    } else if (dir->block_size != 0 && le64toh(meta.block_size) != dir->block_size) {
        snprintf(why, len, "of another block size (%llu, not %llu)",
                 (unsigned long long)le64toh(meta.block_size),
                 (unsigned long long)dir->block_size);
    } else {
        *prefixes = le64toh(meta.prefixes);
    }
    free(buf);
}

static int set_aside(struct qm_rules_dir *dir, const char *why, char *err, size_t len)
{
    char name[sizeof FILE_NAME + 16];
    struct stat st;
    int n = 1;
    for (;; n++) {
        snprintf(name, sizeof name, FILE_NAME ".bad-%d", n);
        if (n == BAD_MAX || fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            break;
        }
    }
    if (renameat(dir->fd, FILE_NAME, dir->fd, name) != 0) {
        int e = errno;
        return explain(e, err, len, "%s/" FILE_NAME " is %s, and cannot be renamed: %s",
                       dir->path, why, strerror(e));
    }
    return explain(0, err, len,
                   "%s/" FILE_NAME
                   " is %s: it was renamed to %s, and the server starts "
                   "without rules",
                   dir->path, why, name);
}

/* Opens rules.db.  If it cannot be used, says in why what it is. */
static int open_file(struct qm_rules_dir *dir, struct qm_bdb *bdb, char *why,
                     size_t len)
{
    char path[PATH_MAX];
    int r = file_path(dir, FILE_NAME, path);
    int fd = openat(dir->fd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        r = errno;
    } else {
        r = r == 0 ? qm_seal_check(fd) : r;
        close(fd);
    }
    if (r == 0) {
        r = qm_bdb_open_file(bdb, path);
    }
    if (r == EIO || r == EINVAL) {
        snprintf(why, len, "damaged");
    } else if (r != 0 && r != ENOMEM) {
        snprintf(why, len, "unreadable (%s)", strerror(r));
    }
    return r;
}

/* Reads and checks it all; if something is wrong, says in why what the file is. */
static int check_file(struct qm_rules_dir *dir, struct qm_bdb *bdb,
                      struct loading *loading, char *why, size_t len)
{
    uint64_t prefixes = 0;
    check_meta(dir, bdb, &prefixes, why, len);
    if (why[0]) {
        return EINVAL;
    }
    int r = qm_bdb_each(bdb, check_one, loading);
    if (loading->error != 0) {
        return loading->error;
    }
    if (loading->n > 0) {
        qsort(loading->saved, loading->n, sizeof loading->saved[0], by_place);
    }
    for (size_t i = 1; r == 0 && i < loading->n; i++) {
        r = loading->saved[i].place == loading->saved[i - 1].place ? EINVAL : 0;
    }
    if (r != 0 || loading->n != prefixes) {
        snprintf(why, len, "damaged");
        return EINVAL;
    }
    return 0;
}

int qm_rules_dir_load(struct qm_rules_dir *dir, uint64_t max,
                      bool (*possible)(uint64_t a, uint64_t b, uint64_t c),
                      int (*prefix)(void *opaque, uint64_t a, uint64_t b),
                      int (*record)(void *opaque, uint64_t a, uint64_t b,
                                    const unsigned char *record, size_t size),
                      void *opaque, char *err, size_t len)
{
    char why[256] = "";
    struct stat st;
    err[0] = '\0';
    if (fstatat(dir->fd, FILE_NAME, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        int e = errno;
        return e == ENOENT ? 0
                           : explain(e, err, len, "cannot look at %s/" FILE_NAME ": %s",
                                     dir->path, strerror(e));
    }
    if (!S_ISREG(st.st_mode)) {
        return set_aside(dir, "not a file", err, len);
    }
    struct qm_bdb bdb = {0};
    struct loading loading = {.possible = possible, .record = record, .opaque = opaque};
    int r = open_file(dir, &bdb, why, sizeof why);
    if (r == 0) {
        r = check_file(dir, &bdb, &loading, why, sizeof why);
    }
    if (r == 0 && loading.n > 0) {
        size_t first = max > 0 && loading.n > max ? loading.n - max : 0;
        loading.first_place = loading.saved[first].place;
        for (size_t i = first; r == 0 && i < loading.n; i++) {
            r = prefix(opaque, loading.saved[i].a, loading.saved[i].b);
        }
    }
    if (r == 0) {
        r = qm_bdb_each(&bdb, deliver_one, &loading);
    }
    free(loading.saved);
    free(loading.list.v);
    (void)qm_bdb_close(&bdb); /* nothing was written */
    if (why[0]) {
        return set_aside(dir, why, err, len);
    }
    return r == 0
               ? 0
               : explain(r, err, len, "cannot load the rules from %s/" FILE_NAME ": %s",
                         dir->path, strerror(r));
}

/* Saving */

int qm_rules_save_begin(struct qm_rules_dir *dir, struct qm_rules_save **save)
{
    char path[PATH_MAX];
    int r = file_path(dir, NEW_NAME, path);
    if (r == 0) {
        r = remove_new(dir);
    }
    if (r != 0) {
        return r;
    }
    struct qm_rules_save *s = calloc(1, sizeof *s);
    if (!s) {
        return ENOMEM;
    }
    s->dir = dir;
    r = qm_bdb_create_file(&s->bdb, path);
    if (r != 0) {
        (void)remove_new(dir);
        free(s);
        return r;
    }
    *save = s;
    return 0;
}

int qm_rules_save_put(struct qm_rules_save *save, uint64_t a, uint64_t b,
                      uint64_t place, const unsigned char *record, size_t size)
{
    if (PLACE_SIZE + size > save->cap) {
        unsigned char *larger = realloc(save->buf, PLACE_SIZE + 2 * size);
        if (!larger) {
            return ENOMEM;
        }
        save->buf = larger;
        save->cap = PLACE_SIZE + 2 * size;
    }
    unsigned char key[QM_KEY_MAX];
    place = htole64(place);
    memcpy(save->buf, &place, PLACE_SIZE);
    memcpy(save->buf + PLACE_SIZE, record, size);
    int r = qm_bdb_put(&save->bdb, key, qm_key_encode(a, b, key), save->buf,
                       PLACE_SIZE + size);
    save->prefixes += r == 0;
    return r;
}

static int put_meta(struct qm_rules_save *save)
{
    const char *device = save->dir->device ? save->dir->device : "";
    size_t device_size = strlen(device);
    struct meta meta = {.version = htole32(FORMAT_VERSION),
                        .device_size = htole32((uint32_t)device_size),
                        .block_size = htole64(save->dir->block_size),
                        .prefixes = htole64(save->prefixes)};
    memcpy(meta.magic, meta_magic, sizeof meta.magic);
    unsigned char *buf = malloc(sizeof meta + device_size);
    if (!buf) {
        return ENOMEM;
    }
    memcpy(buf, &meta, sizeof meta);
    memcpy(buf + sizeof meta, device, device_size);
    int r = qm_bdb_put(&save->bdb, meta_key, sizeof meta_key, buf,
                       sizeof meta + device_size);
    free(buf);
    return r;
}

static int seal_and_rename(int dirfd)
{
    int fd = openat(dirfd, NEW_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    int r = qm_seal(fd);
    close(fd);
    if (r == 0 && renameat(dirfd, NEW_NAME, dirfd, FILE_NAME) != 0) {
        r = errno;
    }
    if (r == 0 && fsync(dirfd) != 0) {
        r = errno;
    }
    return r;
}

int qm_rules_save_end(struct qm_rules_save *save, bool keep)
{
    int r = keep ? put_meta(save) : 0;
    int r2 = qm_bdb_close(&save->bdb); /* writes the file */
    if (r == 0) {
        r = r2;
    }
    if (r == 0 && keep) {
        r = seal_and_rename(save->dir->fd);
    }
    if (r != 0 || !keep) {
        (void)remove_new(save->dir);
    }
    free(save->buf);
    free(save);
    return keep ? r : 0;
}
