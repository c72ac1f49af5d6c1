/* SPDX-License-Identifier: BSD-3-Clause */
/* table-file.c - policy ppm's file in a rules directory (see table-file.h). */
#include "mining/markov/table-file.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define VERSION    1
#define SAVE_FROM  2 /* times seen */
#define BLOCK_BITS 48
#define CHUNK      ((size_t)256 << 10) /* is read or written at a time */

/* No table has more: a line of memory is 64 bytes, and there is at most 1 TiB. */
#define LINES_MAX (UINT64_C(1) << 34)

/* At offset 12 of what earlier versions saved, and of what policy quickmine saves. */
#define BERKELEY_DB 0x053162

/* All of it little-endian. */
struct header {
    char magic[8];
    uint32_t version, device_size;
    uint64_t block_size, lines, keys, pairs;
    uint64_t zero[2];
};

struct key {
    uint64_t line;
    uint32_t tag, n;
};

_Static_assert(sizeof(struct header) == 64 && sizeof(struct key) == 16 &&
                   QM_MARKOV_MAGIC_SIZE == 8,
               "layout");
_Static_assert(QM_MARKOV_BLOCKS <= UINT64_C(1) << BLOCK_BITS, "blocks have room");

static uint64_t seal(const struct header *header, uint64_t body)
{
    return XXH3_64bits_withSeed(header, sizeof *header, body);
}

/* Loading */

struct reader {
    FILE *file;
    struct header header;
    uint64_t size; /* of the file, bytes */
    uint64_t left; /* bytes of the keys and pairs that were not read yet */
    char *why;
    size_t len;
};

static int wrong(struct reader *r, const char *what)
{
    snprintf(r->why, r->len, "%s", what);
    return EINVAL;
}

static int damaged(struct reader *r)
{
    return wrong(r, "damaged");
}

static int get(struct reader *r, void *data, size_t n)
{
    if (fread(data, 1, n, r->file) == n)
        return 0;
    if (!ferror(r->file))
        return damaged(r);
    snprintf(r->why, r->len, "unreadable (%s)", strerror(errno));
    return EINVAL;
}

/* Whether the file has the hash that it should have.  Reads it all. */
static int check_seal(struct reader *r)
{
    XXH3_state_t *state = XXH3_createState();
    unsigned char *chunk = malloc(CHUNK);
    uint64_t left = r->size - sizeof r->header - sizeof(uint64_t), hash = 0;
    int error = state && chunk ? 0 : ENOMEM;

    if (error == 0)
        XXH3_64bits_reset(state);
    while (error == 0 && left > 0) {
        size_t n = left < CHUNK ? (size_t)left : CHUNK;

        error = get(r, chunk, n);
        if (error == 0)
            XXH3_64bits_update(state, chunk, n);
        left -= n;
    }
    if (error == 0)
        error = get(r, &hash, sizeof hash);
    if (error == 0 && le64toh(hash) != seal(&r->header, XXH3_64bits_digest(state)))
        error = damaged(r);
    free(chunk);
    XXH3_freeState(state);
    return error;
}

static bool is_berkeley_db(const struct header *h)
{
    return h->device_size == BERKELEY_DB ||
           h->device_size == __builtin_bswap32(BERKELEY_DB);
}

/* Reads the header, and checks that the file is whole. */
static int read_header(struct reader *r)
{
    struct header *h = &r->header;
    struct stat st;
    int error;

    if (fstat(fileno(r->file), &st) != 0 || st.st_size < 0 ||
        (uint64_t)st.st_size < sizeof *h + sizeof(uint64_t))
        return damaged(r);
    r->size = (uint64_t)st.st_size;
    error = get(r, h, sizeof *h);
    if (error != 0)
        return error;
    if (memcmp(h->magic, QM_MARKOV_MAGIC, sizeof h->magic) != 0) {
        return is_berkeley_db(h)
                   ? wrong(r, "of policy quickmine, or of an earlier version")
                   : damaged(r);
    }
    error = check_seal(r);
    if (error == 0 && le32toh(h->version) != VERSION) {
        snprintf(r->why, r->len, "of format version %u, not %d", le32toh(h->version),
                 VERSION);
        error = EINVAL;
    }
    return error;
}

/* Whether the file is of what is wanted, and as long as its header says.  Leaves it
 * where the keys begin. */
static int check_header(struct reader *r, const char *device, uint64_t block_size)
{
    const struct header *h = &r->header;
    uint64_t keys = le64toh(h->keys), pairs = le64toh(h->pairs);
    size_t n = le32toh(h->device_size);
    char *name;
    int error;

    r->left = r->size - sizeof *h - sizeof(uint64_t);
    if (n > r->left)
        return damaged(r);
    r->left -= n;
    if (keys > r->left / sizeof(struct key) || pairs > r->left / sizeof(uint64_t) ||
        keys * sizeof(struct key) + pairs * sizeof(uint64_t) != r->left ||
        le64toh(h->lines) < 1 || le64toh(h->lines) > LINES_MAX)
        return damaged(r);
    if (fseek(r->file, sizeof *h, SEEK_SET) != 0)
        return damaged(r);
    name = malloc(n + 1);
    if (!name)
        return ENOMEM;
    error = get(r, name, n);
    if (error == 0)
        qm_rules_compare(device, block_size, name, n, le64toh(h->block_size), r->why,
                         r->len);
    free(name);
    return r->why[0] ? EINVAL : error;
}

/* The next key and its pairs. */
static int read_key(struct reader *r, struct key *key,
                    uint64_t pairs[QM_MARKOV_FOUND_MAX])
{
    int error = r->left < sizeof *key ? damaged(r) : get(r, key, sizeof *key);

    if (error != 0)
        return error;
    r->left -= sizeof *key;
    key->line = le64toh(key->line);
    key->tag = le32toh(key->tag);
    key->n = le32toh(key->n);
    if (key->n < 1 || key->n > QM_MARKOV_FOUND_MAX ||
        r->left < key->n * sizeof pairs[0])
        return damaged(r);
    r->left -= key->n * sizeof pairs[0];
    error = get(r, pairs, key->n * sizeof pairs[0]);
    for (unsigned i = 0; error == 0 && i < key->n; i++) {
        pairs[i] = le64toh(pairs[i]);
        for (unsigned k = 0; k < i; k++)
            if ((pairs[i] ^ pairs[k]) << (64 - BLOCK_BITS) == 0)
                return damaged(r);
    }
    return error;
}

/* Reads all keys and pairs; with put, puts them into the table, else sees whether they
 * can be in it, each key after the one before. */
static int walk(struct reader *r, struct qm_markov *pairs, bool put)
{
    static const uint64_t block_mask = (UINT64_C(1) << BLOCK_BITS) - 1;
    uint64_t words[QM_MARKOV_FOUND_MAX], keys = le64toh(r->header.keys);
    off_t begin = (off_t)(sizeof r->header + le32toh(r->header.device_size));
    struct key key, last = {0};

    r->left = r->size - (uint64_t)begin - sizeof(uint64_t);
    if (fseeko(r->file, begin, SEEK_SET) != 0)
        return damaged(r);
    for (uint64_t i = 0; i < keys; i++, last = key) {
        int error = read_key(r, &key, words);

        if (error != 0)
            return error;
        if (i > 0 &&
            (key.line < last.line || (key.line == last.line && key.tag <= last.tag)))
            return damaged(r);
        for (unsigned k = 0; k < key.n; k++) {
            uint64_t block = words[k] & block_mask, count = words[k] >> BLOCK_BITS;

            if (!(put ? qm_markov_put(pairs, key.line, key.tag, block, count)
                      : qm_markov_fits(pairs, key.line, key.tag, block, count)))
                return damaged(r);
        }
    }
    return r->left == 0 ? 0 : damaged(r);
}

/* The file is whole and what was wanted. */
static int read_pairs(struct reader *r, struct qm_markov *pairs)
{
    uint64_t lines = le64toh(r->header.lines);
    struct qm_markov *other = NULL, *to = pairs;
    int error;

    if (lines != qm_markov_lines(pairs)) {
        to = other = qm_markov_new_of_lines(lines);
        if (!other)
            return ENOMEM;
    }
    error = qm_markov_lines(to) == lines ? walk(r, to, false) : damaged(r);
    if (error == 0) {
        /* Keys come line by line, and not from all over the table. */
        qm_markov_reserve(to, le64toh(r->header.pairs));
        error = walk(r, to, true);
    }
    if (error == 0 && other)
        qm_markov_adopt(pairs, other);
    qm_markov_free(other);
    return error;
}

int qm_markov_read(struct qm_markov *pairs, int fd, const char *device,
                   uint64_t block_size, char *why, size_t len)
{
    struct reader r = {.file = fdopen(fd, "rb"), .why = why, .len = len};
    int error;

    why[0] = '\0';
    if (!r.file) {
        close(fd);
        return ENOMEM;
    }
    (void)setvbuf(r.file, NULL, _IOFBF, CHUNK);
    error = read_header(&r);
    if (error == 0)
        error = check_header(&r, device, block_size);
    if (error == 0)
        error = read_pairs(&r, pairs);
    fclose(r.file);
    return error;
}

int qm_markov_load(struct qm_markov *pairs, const struct qm_mining_config *config,
                   struct qm_rules_dir **dir, char *err, size_t len)
{
    char why[256];
    int fd, r = qm_rules_dir_open(config, dir, err, len);

    if (r != 0)
        return r;
    err[0] = '\0';
    r = qm_rules_dir_read(*dir, &fd, why, sizeof why);
    if (r == ENOENT && !why[0])
        return 0;
    if (r == 0)
        r = qm_markov_read(pairs, fd, qm_rules_dir_device(*dir),
                           qm_rules_dir_block_size(*dir), why, sizeof why);
    if (why[0])
        r = qm_rules_dir_set_aside(*dir, why, err, len);
    else if (r == ENOMEM) {
        snprintf(err, len,
                 "the rules in %s are not used: there is no memory for a table as "
                 "large as they were saved from",
                 config->rules_dir);
        r = 0;
    } else if (r != 0)
        qm_rules_dir_explain(*dir, r, err, len);
    if (r != 0)
        qm_rules_dir_close(*dir);
    return r;
}

/* Saving */

struct writer {
    FILE *file;
    XXH3_state_t *hash; /* of what is behind the header */
    uint64_t keys, pairs;
};

static int put(struct writer *w, const void *data, size_t n)
{
    XXH3_64bits_update(w->hash, data, n);
    errno = 0;
    return n == 0 || fwrite(data, n, 1, w->file) == 1 ? 0 : errno ? errno : EIO;
}

static int save_key(void *opaque, uint64_t line, unsigned tag,
                    const struct qm_markov_pair *found, unsigned n)
{
    struct writer *w = opaque;
    uint64_t words[QM_MARKOV_FOUND_MAX];
    struct key key = {.line = htole64(line), .tag = htole32(tag)};
    unsigned pairs = 0;
    int r;

    for (unsigned i = 0; i < n; i++) {
        bool twice = false; /* one may be there twice for a while */

        for (unsigned k = 0; k < i && !twice; k++)
            twice = found[k].block == found[i].block;
        if (!twice)
            words[pairs++] =
                htole64(found[i].block | (uint64_t)found[i].count << BLOCK_BITS);
    }
    key.n = htole32(pairs);
    w->keys++;
    w->pairs += pairs;
    r = put(w, &key, sizeof key);
    return r == 0 ? put(w, words, pairs * sizeof words[0]) : r;
}

/* The hash, and the header, now that it is known. */
static int complete(struct writer *w, struct header *h)
{
    uint64_t hash;

    h->keys = htole64(w->keys);
    h->pairs = htole64(w->pairs);
    hash = htole64(seal(h, XXH3_64bits_digest(w->hash)));
    errno = 0;
    if (fwrite(&hash, sizeof hash, 1, w->file) != 1 || fflush(w->file) != 0 ||
        pwrite(fileno(w->file), h, sizeof *h, 0) != (ssize_t)sizeof *h ||
        fsync(fileno(w->file)) != 0)
        return errno ? errno : EIO;
    return 0;
}

static int write_file(struct writer *w, const struct qm_markov *pairs,
                      const struct qm_rules_dir *dir)
{
    const char *device = qm_rules_dir_device(dir) ? qm_rules_dir_device(dir) : "";
    size_t n = strlen(device);
    struct header h = {
        .magic = QM_MARKOV_MAGIC,
        .version = htole32(VERSION),
        .device_size = htole32((uint32_t)n),
        .block_size = htole64(qm_rules_dir_block_size(dir)),
        .lines = htole64(qm_markov_lines(pairs)),
    };
    int r;

    (void)setvbuf(w->file, NULL, _IOFBF, CHUNK);
    XXH3_64bits_reset(w->hash);
    errno = 0;
    if (fwrite(&h, sizeof h, 1, w->file) != 1)
        return errno ? errno : EIO;
    r = put(w, device, n);
    if (r == 0)
        r = qm_markov_each(pairs, SAVE_FROM, save_key, w);
    return r == 0 ? complete(w, &h) : r;
}

int qm_markov_save(const struct qm_markov *pairs, struct qm_rules_dir *dir)
{
    struct writer w = {.hash = XXH3_createState()};
    int fd, r = w.hash ? qm_rules_dir_remove_new(dir) : ENOMEM;

    if (r == 0)
        r = qm_rules_dir_create(dir, &fd);
    if (r == 0 && !(w.file = fdopen(fd, "wb"))) {
        r = errno;
        close(fd);
    }
    if (w.file) {
        r = write_file(&w, pairs, dir);
        if (fclose(w.file) != 0 && r == 0)
            r = errno;
    }
    if (r == 0)
        r = qm_rules_dir_commit(dir);
    if (r != 0 && w.hash)
        (void)qm_rules_dir_remove_new(dir);
    XXH3_freeState(w.hash);
    return r;
}
