/* SPDX-License-Identifier: BSD-3-Clause */
/* cminer-file.c - a file of C-Miner*'s rules (see cminer-file.h). */
#include "mining/baselines/cminer-file.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define VERSION   1
#define CHUNK     65536
#define MODE_FILE 0666 /* what the umask leaves of it */

static const char file_magic[8] = "QMCMINER";

/* All of it little-endian. */
struct header {
    char magic[8];
    uint32_t version, level;
    uint64_t block_size;
    uint32_t max_gap, segment, min_support, min_confidence;
    uint64_t accesses, segments, blocks, prefixes, rules;
    uint64_t zero[2];
};

struct prefix {
    uint32_t a, second, support, n;
};

struct suffix {
    uint32_t c, support;
};

_Static_assert(sizeof(struct header) == 96 && sizeof(struct prefix) == 16 &&
                   sizeof(struct suffix) == 8,
               "layout");

struct qm_cminer_writer {
    FILE *file;
    char *path, *beside; /* beside: where it is written */
    struct header header;
    uint64_t prefixes, rules;
    XXH3_state_t *hash;
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

uint64_t qm_cminer_file_size(uint64_t blocks, uint64_t prefixes, uint64_t rules)
{
    return sizeof(struct header) + blocks * sizeof(uint64_t) +
           prefixes * sizeof(struct prefix) + rules * sizeof(struct suffix) +
           sizeof(uint64_t);
}

static uint64_t seal(const struct header *header, uint64_t body)
{
    return XXH3_64bits_withSeed(header, sizeof *header, body);
}

static void free_writer(struct qm_cminer_writer *w)
{
    if (w->hash) {
        XXH3_freeState(w->hash);
    }
    free(w->path);
    free(w->beside);
    free(w);
}

static int put(struct qm_cminer_writer *w, const void *data, size_t n)
{
    XXH3_64bits_update(w->hash, data, n);
    return fwrite(data, n, 1, w->file) == 1 ? 0 : errno ? errno : EIO;
}

static void fill_header(struct header *h, const struct qm_cminer_info *info,
                        const struct qm_cminer_db *db)
{
    memcpy(h->magic, file_magic, sizeof h->magic);
    h->version = htole32(VERSION);
    h->level = htole32(info->level);
    h->block_size = htole64(info->block_size);
    h->max_gap = htole32(info->config.max_gap);
    h->segment = htole32(info->config.segment);
    h->min_support = htole32(info->config.min_support);
    h->min_confidence = htole32(info->config.min_confidence);
    h->accesses = htole64(db->n);
    h->segments = htole64(db->segments);
    h->blocks = htole64(db->distinct);
}

/* Creates the file beside path.  Returns 0 or an errno value. */
static int create_beside(struct qm_cminer_writer *w, const char *path)
{
    size_t len = strlen(path) + sizeof ".XXXXXX";
    w->path = strdup(path);
    w->beside = malloc(len);
    w->hash = XXH3_createState();
    if (!w->path || !w->beside || !w->hash) {
        return ENOMEM;
    }
    XXH3_64bits_reset(w->hash);
    snprintf(w->beside, len, "%s.XXXXXX", path);
    int fd = mkostemp(w->beside, O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    w->file = fdopen(fd, "wb");
    if (!w->file) {
        int e = errno;
        close(fd);
        unlink(w->beside);
        return e;
    }
    return 0;
}

static int put_blocks(struct qm_cminer_writer *w, const struct qm_cminer_db *db)
{
    int r = fwrite(&w->header, sizeof w->header, 1, w->file) == 1 ? 0 : errno;
    for (uint32_t i = 0; i < db->distinct && r == 0; i++) {
        uint64_t block = htole64(db->blocks[i]);
        r = put(w, &block, sizeof block);
    }
    return r;
}

int qm_cminer_write(const char *path, const struct qm_cminer_info *info,
                    const struct qm_cminer_db *db, struct qm_cminer_writer **writer,
                    char *err, size_t len)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return explain(EINVAL, err, len,
                       "%s is not a plain file: rules are not put there", path);
    }
    struct qm_cminer_writer *w = calloc(1, sizeof *w);
    if (!w) {
        return explain(ENOMEM, err, len, "out of memory");
    }
    fill_header(&w->header, info, db);
    int r = create_beside(w, path);
    if (r != 0) {
        free_writer(w);
        return explain(r, err, len, "%s cannot be written: %s", path, strerror(r));
    }
    r = put_blocks(w, db);
    if (r != 0) {
        char why[8];
        qm_cminer_write_end(w, false, why, sizeof why);
        return explain(r, err, len, "%s cannot be written: %s", path, strerror(r));
    }
    *writer = w;
    err[0] = '\0';
    return 0;
}

int qm_cminer_write_prefix(void *writer, const struct qm_cminer_prefix *prefix)
{
    struct qm_cminer_writer *w = writer;
    struct prefix p = {
        .a = htole32(prefix->a),
        .second = htole32(prefix->b + 1), /* QM_CMINER_NONE: 0 */
        .support = htole32(prefix->support),
        .n = htole32(prefix->n),
    };
    int r = put(w, &p, sizeof p);
    for (uint32_t i = 0; i < prefix->n && r == 0; i++) {
        struct suffix s = {htole32(prefix->suffixes[i].c),
                           htole32(prefix->suffixes[i].support)};
        r = put(w, &s, sizeof s);
    }
    w->prefixes++;
    w->rules += prefix->n;
    return r;
}

/* The seal, and the header again, now that it is known. */
static int complete(struct qm_cminer_writer *w)
{
    w->header.prefixes = htole64(w->prefixes);
    w->header.rules = htole64(w->rules);
    uint64_t hash = htole64(seal(&w->header, XXH3_64bits_digest(w->hash)));
    mode_t mask = umask(0);
    umask(mask);
    if (fwrite(&hash, sizeof hash, 1, w->file) != 1 || fflush(w->file) != 0 ||
        fseek(w->file, 0, SEEK_SET) != 0 ||
        fwrite(&w->header, sizeof w->header, 1, w->file) != 1 || fflush(w->file) != 0 ||
        fchmod(fileno(w->file), MODE_FILE & ~mask) != 0 ||
        fsync(fileno(w->file)) != 0) {
        return errno;
    }
    return 0;
}

int qm_cminer_write_end(struct qm_cminer_writer *w, bool keep, char *err, size_t len)
{
    int r = keep ? complete(w) : 0;
    if (fclose(w->file) != 0 && r == 0 && keep) {
        r = errno;
    }
    if (keep && r == 0 && rename(w->beside, w->path) != 0) {
        r = errno;
    }
    if (!keep || r != 0) {
        unlink(w->beside);
    }
    err[0] = '\0';
    if (r != 0) {
        explain(r, err, len, "%s cannot be written: %s", w->path, strerror(r));
    }
    free_writer(w);
    return r;
}

struct reader {
    const char *path;
    FILE *file;
    uint64_t left; /* bytes of the body that were not read yet */
    struct qm_cminer_info *info;
    struct qm_cminer_suffix *suffixes;
    uint32_t cap;
    char *err;
    size_t len;
};

static int damaged(struct reader *r)
{
    return explain(EINVAL, r->err, r->len,
                   "%s is damaged: mine it again with quickmine mine --cminer",
                   r->path);
}

/* Reads n bytes of the body. */
static int get(struct reader *r, void *data, size_t n)
{
    if (n > r->left || fread(data, 1, n, r->file) != n) {
        return damaged(r);
    }
    r->left -= n;
    return 0;
}

/* Opens the file and reads its header; *size is that of the file. */
static int open_file(struct reader *r, struct header *h, uint64_t *size)
{
    struct stat st;
    /* One that is a pipe is not waited for. */
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || !(r->file = fdopen(fd, "rb"))) {
        int e = errno;
        if (fd >= 0) {
            close(fd);
        }
        return explain(e, r->err, r->len, "%s cannot be read: %s", r->path,
                       strerror(e));
    }
    *size = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode) || *size < sizeof *h + sizeof(uint64_t) ||
        fread(h, sizeof *h, 1, r->file) != 1 ||
        memcmp(h->magic, file_magic, sizeof file_magic) != 0) {
        return explain(EINVAL, r->err, r->len,
                       "%s is not a file of rules that quickmine mine --cminer made",
                       r->path);
    }
    if (le32toh(h->version) != VERSION) {
        return explain(EINVAL, r->err, r->len,
                       "%s is of version %" PRIu32 " of its format, not %d: mine it "
                       "again with quickmine mine --cminer",
                       r->path, le32toh(h->version), VERSION);
    }
    return 0;
}

/* Whether the file is as long as its header says, and has the hash that it should have.
 * Leaves the file where the body begins. */
static int check_seal(struct reader *r, const struct header *h, uint64_t size)
{
    static const uint64_t most = UINT64_C(1) << 56;
    unsigned char *chunk = malloc(CHUNK);
    XXH3_state_t *state = XXH3_createState();
    uint64_t hash, blocks = r->info->blocks, prefixes = r->info->prefixes,
                   rules = r->info->rules;
    int error = 0;
    if (!chunk || !state) {
        error = explain(ENOMEM, r->err, r->len, "out of memory");
    } else if (blocks >= UINT32_MAX || prefixes > most || rules > most ||
               size != qm_cminer_file_size(blocks, prefixes, rules)) {
        error = damaged(r);
    } else {
        XXH3_64bits_reset(state);
        r->left = size - sizeof *h;
        while (error == 0 && r->left > sizeof hash) {
            size_t n =
                r->left - sizeof hash < CHUNK ? (size_t)(r->left - sizeof hash) : CHUNK;
            error = get(r, chunk, n);
            if (error == 0) {
                XXH3_64bits_update(state, chunk, n);
            }
        }
        if (error == 0) {
            error = get(r, &hash, sizeof hash);
        }
        if (error == 0 && le64toh(hash) != seal(h, XXH3_64bits_digest(state))) {
            error = damaged(r);
        }
        r->left = size - sizeof *h - sizeof hash;
        if (error == 0 && fseek(r->file, sizeof *h, SEEK_SET) != 0) {
            error = damaged(r);
        }
    }
    free(chunk);
    if (state) {
        XXH3_freeState(state);
    }
    return error;
}

static void info_of(const struct header *h, struct qm_cminer_info *info)
{
    qm_cminer_defaults(&info->config);
    info->level = (enum qm_level)le32toh(h->level);
    info->block_size = le64toh(h->block_size);
    info->config.max_gap = le32toh(h->max_gap);
    info->config.segment = le32toh(h->segment);
    info->config.min_support = le32toh(h->min_support);
    info->config.min_confidence = le32toh(h->min_confidence);
    info->accesses = le64toh(h->accesses);
    info->segments = le64toh(h->segments);
    info->blocks = le64toh(h->blocks);
    info->prefixes = le64toh(h->prefixes);
    info->rules = le64toh(h->rules);
}

static int read_blocks(struct reader *r, unsigned degree,
                       struct qm_cminer_rules **rules)
{
    uint32_t n = (uint32_t)r->info->blocks;
    uint64_t *blocks = malloc((n ? n : 1) * sizeof blocks[0]);
    if (!blocks) {
        return explain(ENOMEM, r->err, r->len, "out of memory");
    }
    int error = n > 0 ? get(r, blocks, n * sizeof blocks[0]) : 0;
    for (uint32_t i = 0; i < n && error == 0; i++) {
        blocks[i] = le64toh(blocks[i]);
        if (i > 0 && blocks[i] <= blocks[i - 1]) {
            error = damaged(r);
        }
    }
    if (error == 0 && !(*rules = qm_cminer_rules_new(blocks, n, degree))) {
        error = explain(ENOMEM, r->err, r->len, "out of memory");
    }
    free(blocks);
    return error;
}

static int read_suffixes(struct reader *r, uint32_t n)
{
    if (n > r->left / sizeof(struct suffix)) {
        return damaged(r);
    }
    if (n > r->cap) {
        struct qm_cminer_suffix *v = reallocarray(r->suffixes, n, sizeof *v);
        if (!v) {
            return explain(ENOMEM, r->err, r->len, "out of memory");
        }
        r->suffixes = v;
        r->cap = n;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct suffix s;
        int error = get(r, &s, sizeof s);
        if (error != 0) {
            return error;
        }
        r->suffixes[i] = (struct qm_cminer_suffix){le32toh(s.c), le32toh(s.support)};
    }
    return 0;
}

static int read_prefixes(struct reader *r, struct qm_cminer_rules *rules)
{
    for (uint64_t i = 0; i < r->info->prefixes; i++) {
        struct prefix p;
        int error = get(r, &p, sizeof p);
        if (error == 0) {
            error = read_suffixes(r, le32toh(p.n));
        }
        if (error != 0) {
            return error;
        }
        struct qm_cminer_prefix prefix = {
            .a = le32toh(p.a),
            .b = le32toh(p.second) - 1, /* 0: QM_CMINER_NONE */
            .support = le32toh(p.support),
            .n = le32toh(p.n),
            .suffixes = r->suffixes,
        };
        error = qm_cminer_rules_add(rules, &prefix);
        if (error == EINVAL) {
            return damaged(r);
        }
        if (error != 0) {
            return explain(error, r->err, r->len, "%s: %s", r->path, strerror(error));
        }
    }
    return r->left == 0 ? 0 : damaged(r);
}

static int read_file(struct reader *r, uint64_t block_size, unsigned degree,
                     struct qm_cminer_rules **rules)
{
    struct header header;
    char unused[8];
    uint64_t size = 0;
    int error = open_file(r, &header, &size);
    if (error != 0) {
        return error;
    }
    info_of(&header, r->info);
    error = check_seal(r, &header, size);
    if (error != 0) {
        return error;
    }
    if (qm_cminer_check(&r->info->config, unused, sizeof unused) != 0) {
        return damaged(r);
    }
    if (block_size != 0 && r->info->block_size != block_size) {
        return explain(EINVAL, r->err, r->len,
                       "%s is of blocks of %" PRIu64 " bytes, not %" PRIu64, r->path,
                       r->info->block_size, block_size);
    }
    error = read_blocks(r, degree, rules);
    if (error == 0) {
        error = read_prefixes(r, *rules);
    }
    return error;
}

int qm_cminer_read(const char *path, uint64_t block_size, unsigned degree,
                   struct qm_cminer_rules **rules, struct qm_cminer_info *info,
                   char *err, size_t len)
{
    struct reader r = {.path = path, .info = info, .err = err, .len = len};
    *rules = NULL;
    int error = read_file(&r, block_size, degree, rules);
    if (r.file) {
        fclose(r.file);
    }
    free(r.suffixes);
    if (error != 0) {
        qm_cminer_rules_free(*rules);
        *rules = NULL;
        return error;
    }
    qm_cminer_rules_finish(*rules);
    err[0] = '\0';
    return 0;
}
