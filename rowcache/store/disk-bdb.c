/* SPDX-License-Identifier: BSD-3-Clause */
/* disk-bdb.c - the disk layer on Berkeley DB: a B-tree in a transactional environment.
 *
 * A batch is a transaction whose log goes to the kernel, not to the disk: the store's
 * own log is what makes a change durable, until checkpoint() is called.  Without a lock
 * subsystem, as one thread at a time is here.  Without checksums of pages, which took
 * half of the time: each record has one, and opening verifies the pages. */
#include <db.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rowcache/store/disk.h"

#define RECORDS "records" /* the file */

enum {
    LOG_FILE = 16 << 20,
    LOG_BUFFER = 1 << 20,
    PAGE = 4096,
    CACHE_LEAST = 100 << 10,
    CACHE_AGAIN = 512 << 10, /* for the second verification */
};

enum { WORDS = 200 };

struct disk {
    DB_ENV *env;
    DB *db;
    int panic;         /* the error for which the environment gave up, or 0 */
    bool unwritten;    /* a write failed */
    char words[WORDS]; /* the first thing that Berkeley DB said */
};

/* Berkeley DB's own errors are negative. */
static int error_of(int r)
{
    return r == DB_NOTFOUND ? ENOENT : r < 0 ? EIO : r;
}

static void bdb_close(struct disk *d)
{
    if (d->db)
        d->db->close(d->db, 0);
    if (d->env)
        d->env->close(d->env, 0);
    free(d);
}

static void notice(DB_ENV *env, uint32_t event, void *info)
{
    struct disk *d = env->app_private;

    if (event == DB_EVENT_PANIC && d->panic == 0)
        d->panic = *(int *)info;
    if (event == DB_EVENT_WRITE_FAILED)
        d->unwritten = true;
}

/* The first words tell the cause, those after it what came of it. */
static void listen(const DB_ENV *env, const char *prefix, const char *words)
{
    struct disk *d = env->app_private;

    if (!d->words[0])
        snprintf(d->words, sizeof d->words, "%s", words);
}

/* An environment in the directory.  What its cache has no room for goes to temporary
 * files there, too: a /var/tmp that cannot be written must not matter. */
static int make_env(struct disk *d, uint64_t cache)
{
    DB_ENV *env;
    int r = db_env_create(&d->env, 0);

    if (r != 0)
        return r;
    env = d->env;
    env->set_errfile(env, NULL);
    env->set_errcall(env, listen);
    env->app_private = d;
    if ((r = env->set_event_notify(env, notice)) != 0 ||
        (r = env->set_tmp_dir(env, ".")) != 0 ||
        (r = env->set_flags(env, DB_NOMMAP, 1)) != 0) /* no SIGBUS */
        return r;
    return env->set_cachesize(env, (uint32_t)(cache >> 30),
                              (uint32_t)(cache & ((1u << 30) - 1)), 1);
}

static int open_env(struct disk *d, const struct disk_config *c)
{
    /* Berkeley DB adds a quarter for its own tables. */
    uint64_t cache = c->cache / 5 * 4 < CACHE_LEAST ? CACHE_LEAST : c->cache / 5 * 4;
    int r = make_env(d, cache);
    DB_ENV *env = d->env;

    if (r != 0 || (r = env->set_lg_max(env, LOG_FILE)) != 0 ||
        (r = env->set_lg_bsize(env, LOG_BUFFER)) != 0 ||
        (r = env->set_flags(env, DB_TXN_WRITE_NOSYNC, 1)) != 0 ||
        (r = env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1)) != 0)
        return r;
    return env->open(env, c->dir,
                     DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL | DB_INIT_LOG |
                         DB_INIT_TXN | DB_RECOVER,
                     0600);
}

/* The file of records, to read; -1: there is none. */
static int open_file(const char *dir, int *fd)
{
    char name[PATH_MAX];

    if ((size_t)snprintf(name, sizeof name, "%s/" RECORDS, dir) >= sizeof name)
        return ENAMETOOLONG;
    *fd = open(name, O_RDONLY | O_CLOEXEC);
    return *fd == -1 && errno != ENOENT ? errno : 0;
}

/* Berkeley DB believes the beginning of the first page before it verifies anything: it
 * divides by the page size, takes memory for such a page, and follows the page's kind.
 * These bytes never change.  Of a file that the end of the machine left short, or with
 * zeros, recovery is to make what it was. */
static int check_first(const char *dir)
{
    enum { MAGIC = 0x053162, TREE = 9 }; /* of a file, and of its first page */
    struct {
        uint32_t file, at, number, magic, version, page_size;
        uint8_t cipher, type, file_flags, unused;
        uint32_t of_others[5], flags; /* of the tree */
    } first, none = {0};
    ssize_t n;
    int fd, r;

    if ((r = open_file(dir, &fd)) != 0 || fd == -1)
        return r;
    n = pread(fd, &first, sizeof first, 0);
    if (n == -1)
        r = errno;
    else if (n == sizeof first && memcmp(&first, &none, sizeof first) != 0 &&
             (first.magic != MAGIC || first.number != 0 || first.page_size != PAGE ||
              first.cipher != 0 || first.type != TREE || first.file_flags != 0 ||
              first.flags != 0))
        r = DB_VERIFY_BAD;
    close(fd);
    return r;
}

/* Berkeley DB trusts its pages. */
static int verify(struct disk *d, const char *dir)
{
    char name[PATH_MAX];
    DB *db;
    int r;

    if ((size_t)snprintf(name, sizeof name, "%s/" RECORDS, dir) >= sizeof name)
        return ENAMETOOLONG;
    if (access(name, F_OK) == -1)
        return errno == ENOENT ? 0 : errno;
    if ((r = db_create(&db, d->env, 0)) != 0)
        return r;
    return db->verify(db, RECORDS, NULL, NULL, 0); /* frees db */
}

/* The verification does not look at the number of the last change that each page begins
 * with.  One that is behind the log's end would end the environment when the page is
 * read. */
static int check_changes(struct disk *d, const char *dir)
{
    struct {
        uint32_t file, at;
    } change;
    DB_LOG_STAT *log = NULL;
    int fd, r;

    if ((r = open_file(dir, &fd)) != 0 || fd == -1)
        return r;
    r = d->env->log_stat(d->env, &log, 0);
    for (off_t page = 0; r == 0; page += PAGE) {
        ssize_t n = pread(fd, &change, sizeof change, page);

        if (n == -1)
            r = errno;
        if (n != sizeof change)
            break;
        if (change.file > log->st_cur_file ||
            (change.file == log->st_cur_file && change.at > log->st_cur_offset))
            r = DB_VERIFY_BAD;
    }
    free(log);
    close(fd);
    return r;
}

/* Whether the records look damaged to a second verification, outside of the environment
 * in which they seemed to be, with a cache of its own. */
static int verify_again(const char *dir)
{
    struct disk d = {0};
    int r = make_env(&d, CACHE_AGAIN);

    if (r == 0)
        r = d.env->open(d.env, dir, DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL, 0600);
    if (r == 0)
        r = verify(&d, dir);
    if (d.env)
        d.env->close(d.env, 0);
    return r;
}

/* Whether a second look finds the damage of the first.  Where the log is damaged, it
 * ends for Berkeley DB; its verification then refuses pages whose last change is behind
 * that end, which one without the log does not see. */
static bool is_certain(struct disk *d, const char *dir)
{
    return verify_again(dir) == DB_VERIFY_BAD || check_changes(d, dir) == DB_VERIFY_BAD;
}

/* Whether all bytes of the files can be read: Berkeley DB's EIO is then its judgement
 * of what they say, and else the device's. */
static bool can_be_read(const char *dir)
{
    char bytes[16 << 10]; /* nobody looks at them */
    DIR *stream = opendir(dir);
    struct dirent *entry;
    ssize_t n = 0;

    if (!stream)
        return false;
    while (n == 0 && (entry = readdir(stream))) {
        int fd = openat(dirfd(stream), entry->d_name, O_RDONLY | O_CLOEXEC);
        struct stat st;

        if (fd == -1 || fstat(fd, &st) == -1)
            n = -1;
        else if (S_ISREG(st.st_mode))
            while ((n = read(fd, bytes, sizeof bytes)) > 0)
                ;
        if (fd != -1)
            close(fd);
    }
    closedir(stream);
    return n == 0;
}

/* The error for the caller: EBADMSG is for what is certainly damage.  Berkeley DB tells
 * its caller that it gave up, whatever the cause, and answers EIO for what it could not
 * write: a disk that is full must not count as a damaged file. */
static int error_at_opening(const struct disk *d, int r, const char *dir)
{
    if (r == DB_RUNRECOVERY && d->panic > 0)
        r = d->panic;
    switch (r) {
    case DB_VERIFY_BAD:
    case DB_PAGE_NOTFOUND:
    case DB_NOTFOUND:
    case DB_RUNRECOVERY:
    case EINVAL: /* of a log, or of pages that recovery meets */
        return d->unwritten ? EIO : EBADMSG;
    case DB_OLD_VERSION:
    case DB_VERSION_MISMATCH:
        return ENOTSUP;
    case EIO:
        return d->unwritten || !can_be_read(dir) ? EIO : EBADMSG;
    default:
        return error_of(r);
    }
}

static int open_records(struct disk *d)
{
    int r = db_create(&d->db, d->env, 0);

    if (r == 0)
        r = d->db->set_pagesize(d->db, PAGE);
    if (r == 0)
        r = d->db->open(d->db, NULL, RECORDS, NULL, DB_BTREE,
                        DB_CREATE | DB_AUTO_COMMIT, 0600);
    return r;
}

/* Berkeley DB unlinks a temporary file when it has made it; a process that was killed
 * between the two has left it.  One that cannot be removed does no harm. */
static void remove_temporary(const char *dir)
{
    static const char name[] = "BDBnnnnn"; /* digits, or letters */
    DIR *stream = opendir(dir);
    struct dirent *entry;

    while (stream && (entry = readdir(stream)))
        if (strlen(entry->d_name) == sizeof name - 1 &&
            strncmp(entry->d_name, name, 3) == 0)
            (void)unlinkat(dirfd(stream), entry->d_name, 0);
    if (stream)
        closedir(stream);
}

static int bdb_open(const struct disk_config *c, struct disk **disk)
{
    struct disk *d = calloc(1, sizeof *d);
    int r, error = 0;

    if (!d)
        return ENOMEM;
    remove_temporary(c->dir);
    r = check_first(c->dir);
    if (r > 0) /* the system's: of the device, not of what the file says */
        error = r;
    else if (r == 0)
        r = open_env(d, c);
    if (r == 0) {
        r = verify(d, c->dir);
        if (r == DB_VERIFY_BAD) {
            error = is_certain(d, c->dir) ? EBADMSG : EIO;
        } else if (r != 0) { /* it came to no judgement */
            error = error_of(r);
        } else if ((r = check_changes(d, c->dir)) > 0) {
            error = r;
        } else if (r == 0) {
            r = open_records(d);
        }
    }
    if (r == 0) {
        *disk = d;
        return 0;
    }
    if (error == 0)
        error = error_at_opening(d, r, c->dir);
    if (c->why)
        snprintf(c->why, c->why_len, "%s", d->words[0] ? d->words : db_strerror(r));
    bdb_close(d);
    return error;
}

static DBT key_of(const struct disk_name *name)
{
    return (DBT){.data = (void *)(uintptr_t)name->bytes, .size = name->len};
}

static int bdb_get(struct disk *d, const struct disk_name *name, void **bytes,
                   size_t *len)
{
    DBT key = key_of(name), data = {.flags = DB_DBT_MALLOC};
    int r = d->db->get(d->db, NULL, &key, &data, 0);

    if (r != 0)
        return error_of(r);
    *bytes = data.data;
    *len = data.size;
    return 0;
}

static int apply_one(struct disk *d, DB_TXN *txn, const struct disk_record *r,
                     void **room, size_t *size)
{
    DBT key = key_of(r->name), data = {0};
    size_t len = store_disk_size(r);
    int error;

    if (r->dead) {
        error = d->db->del(d->db, txn, &key, 0);
        return error == DB_NOTFOUND ? 0 : error;
    }
    if (len > *size) {
        void *larger = realloc(*room, len * 2);

        if (!larger)
            return ENOMEM;
        *room = larger;
        *size = len * 2;
    }
    store_disk_pack(r, *room);
    data.data = *room;
    data.size = (uint32_t)len;
    return d->db->put(d->db, txn, &key, &data, 0);
}

static int bdb_apply(struct disk *d, const struct disk_record *changes, size_t n)
{
    DB_TXN *txn;
    void *room = NULL;
    size_t size = 0;
    int r = d->env->txn_begin(d->env, NULL, &txn, 0);

    if (r != 0)
        return error_of(r);
    for (size_t i = 0; i < n && r == 0; i++)
        r = apply_one(d, txn, &changes[i], &room, &size);
    free(room);
    if (r != 0)
        txn->abort(txn);
    else
        r = txn->commit(txn, 0);
    if (r == 0) /* keeps the log short; costs nothing if little was written */
        r = d->env->txn_checkpoint(d->env, 4 * (LOG_FILE >> 10), 0, 0);
    return error_of(r);
}

static int bdb_walk(struct disk *d, const struct disk_name *from, disk_visit *visit,
                    void *opaque)
{
    struct disk_name at = *from;
    DBT key = {.data = at.bytes,
               .size = at.len,
               .ulen = sizeof at.bytes,
               .flags = DB_DBT_USERMEM};
    DBT data = {.flags = DB_DBT_REALLOC};
    DBC *cursor;
    int r, stopped = 0;

    if ((r = d->db->cursor(d->db, NULL, &cursor, 0)) != 0)
        return error_of(r);
    for (r = cursor->get(cursor, &key, &data, from->len ? DB_SET_RANGE : DB_FIRST);
         r == 0 && stopped == 0;) {
        at.len = (uint8_t)key.size;
        if (at.len <= DISK_HASH)
            stopped = visit(opaque, &at, data.data, data.size);
        if (stopped == 0)
            r = cursor->get(cursor, &key, &data, DB_NEXT);
    }
    free(data.data);
    cursor->close(cursor);
    return stopped ? stopped : r == DB_NOTFOUND ? 0 : error_of(r);
}

static const char *bdb_words(const struct disk *d)
{
    return d->words[0] ? d->words : NULL;
}

static int bdb_checkpoint(struct disk *d)
{
    return error_of(d->env->txn_checkpoint(d->env, 0, 0, DB_FORCE));
}

const struct disk_ops disk_bdb = {
    .name = "bdb",
    .has_pages = true,
    .open = bdb_open,
    .get = bdb_get,
    .apply = bdb_apply,
    .walk = bdb_walk,
    .checkpoint = bdb_checkpoint,
    .words = bdb_words,
    .close = bdb_close,
};
