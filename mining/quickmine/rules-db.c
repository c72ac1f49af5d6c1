/* SPDX-License-Identifier: BSD-3-Clause */
/* rules-db.c - policy quickmine's file in a rules directory (see rules-db.h). */
#include "mining/quickmine/rules-db.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mining/quickmine/bdb.h"
#include "mining/quickmine/record.h"
#include "mining/quickmine/seal.h"

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

struct qm_rules_save {
    struct qm_rules_dir *dir;
    struct qm_bdb bdb;
    uint64_t prefixes;
    unsigned char *buf;
    size_t cap;
};

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
static void check_meta(const struct qm_rules_dir *dir, struct qm_bdb *bdb,
                       uint64_t *prefixes, char *why, size_t len)
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
    } else {
        qm_rules_compare(qm_rules_dir_device(dir), qm_rules_dir_block_size(dir),
                         (const char *)buf + sizeof meta, size - sizeof meta,
                         le64toh(meta.block_size), why, len);
        *prefixes = le64toh(meta.prefixes);
    }
    free(buf);
}

static bool is_pairs(int fd)
{
    char start[QM_MARKOV_MAGIC_SIZE];
    return pread(fd, start, sizeof start, 0) == sizeof start &&
           memcmp(start, QM_MARKOV_MAGIC, sizeof start) == 0;
}

/* Opens rules.db.  If it cannot be used, says in why what it is. */
static int open_file(struct qm_rules_dir *dir, struct qm_bdb *bdb, char *why,
                     size_t len)
{
    char path[PATH_MAX];
    int fd, r = qm_rules_dir_read(dir, &fd, why, len);
    if (r != 0) {
        return r;
    }
    r = qm_rules_dir_path(dir, false, path, sizeof path);
    r = r == 0 ? qm_seal_check(fd) : r;
    if (r == 0) {
        r = qm_bdb_open_file(bdb, path);
    } else if (is_pairs(fd)) {
        snprintf(why, len, "of policy ppm");
        r = EINVAL;
    }
    close(fd);
    if (why[0]) {
        return r;
    }
    if (r == EIO || r == EINVAL) {
        snprintf(why, len, "damaged");
    } else if (r != 0 && r != ENOMEM) {
        snprintf(why, len, "unreadable (%s)", strerror(r));
    }
    return r;
}

/* Reads and checks it all; if something is wrong, says in why what the file is. */
static int check_file(const struct qm_rules_dir *dir, struct qm_bdb *bdb,
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

int qm_rules_db_load(struct qm_rules_dir *dir, uint64_t max,
                     bool (*possible)(uint64_t a, uint64_t b, uint64_t c),
                     int (*prefix)(void *opaque, uint64_t a, uint64_t b),
                     int (*record)(void *opaque, uint64_t a, uint64_t b,
                                   const unsigned char *record, size_t size),
                     void *opaque, char *err, size_t len)
{
    char why[256] = "";
    err[0] = '\0';
    struct qm_bdb bdb = {0};
    struct loading loading = {.possible = possible, .record = record, .opaque = opaque};
    int r = open_file(dir, &bdb, why, sizeof why);
    if (r == ENOENT && !why[0]) {
        return 0;
    }
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
        return qm_rules_dir_set_aside(dir, why, err, len);
    }
    if (r != 0) {
        qm_rules_dir_explain(dir, r, err, len);
    }
    return r;
}

/* Saving */

int qm_rules_save_begin(struct qm_rules_dir *dir, struct qm_rules_save **save)
{
    char path[PATH_MAX];
    int r = qm_rules_dir_path(dir, true, path, sizeof path);
    if (r == 0) {
        r = qm_rules_dir_remove_new(dir);
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
        (void)qm_rules_dir_remove_new(dir);
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
    const char *device = qm_rules_dir_device(save->dir);
    size_t device_size = device ? strlen(device) : 0;
    struct meta meta = {.version = htole32(FORMAT_VERSION),
                        .device_size = htole32((uint32_t)device_size),
                        .block_size = htole64(qm_rules_dir_block_size(save->dir)),
                        .prefixes = htole64(save->prefixes)};
    memcpy(meta.magic, meta_magic, sizeof meta.magic);
    unsigned char *buf = malloc(sizeof meta + device_size);
    if (!buf) {
        return ENOMEM;
    }
    memcpy(buf, &meta, sizeof meta);
    if (device) {
        memcpy(buf + sizeof meta, device, device_size);
    }
    int r = qm_bdb_put(&save->bdb, meta_key, sizeof meta_key, buf,
                       sizeof meta + device_size);
    free(buf);
    return r;
}

static int seal_and_rename(struct qm_rules_dir *dir)
{
    char path[PATH_MAX];
    int r = qm_rules_dir_path(dir, true, path, sizeof path);
    int fd = r == 0 ? open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0) {
        return r != 0 ? r : errno;
    }
    r = qm_seal(fd);
    close(fd);
    return r == 0 ? qm_rules_dir_commit(dir) : r;
}

int qm_rules_save_end(struct qm_rules_save *save, bool keep)
{
    int r = keep ? put_meta(save) : 0;
    int r2 = qm_bdb_close(&save->bdb); /* writes the file */
    if (r == 0) {
        r = r2;
    }
    if (r == 0 && keep) {
        r = seal_and_rename(save->dir);
    }
    if (r != 0 || !keep) {
        (void)qm_rules_dir_remove_new(save->dir);
    }
    free(save->buf);
    free(save);
    return keep ? r : 0;
}
