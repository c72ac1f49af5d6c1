/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c - see log.h. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rowcache/store/log.h"

/* Little endian, all of them. */
struct header {
    char magic[8];
    uint64_t sequence; /* of the last record before this file */
    uint64_t checksum; /* of the two */
};

struct record {
    uint64_t checksum; /* XXH3 of what follows, key and value included */
    uint64_t sequence, expires;
    uint32_t frequency, value_len, key_len, flags;
};

enum { DEAD = 1, MORE = 2 };

static const char magic[8] = "QMSTLOG1";

enum { LEAST_BUFFER = 4096 };

static int write_all(int fd, const char *bytes, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, bytes, len, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        bytes += n;
        len -= (size_t)n;
        offset += (size_t)n;
    }
    return 0;
}

static int write_header(int fd, uint64_t sequence)
{
    struct header h = {.sequence = htole64(sequence)};

    memcpy(h.magic, magic, sizeof magic);
    h.checksum = htole64(XXH3_64bits(&h, offsetof(struct header, checksum)));
    return write_all(fd, (const char *)&h, sizeof h, 0);
}

/* The record at an offset of a mapped file, or false. */
static bool parse(const char *map, uint64_t size, uint64_t offset,
                  struct store_log_record *r, uint64_t *next)
{
    struct record d;
    uint64_t left = size - offset, len;

    if (left < sizeof d)
        return false;
    memcpy(&d, map + offset, sizeof d);
    len = sizeof d + (uint64_t)le32toh(d.key_len) + le32toh(d.value_len);
    if (le32toh(d.key_len) == 0 || le32toh(d.key_len) > QMSTORE_KEY_MAX || len > left ||
        le64toh(d.checksum) != XXH3_64bits(map + offset + 8, len - 8))
        return false;
    *r = (struct store_log_record){
        .sequence = le64toh(d.sequence),
        .expires = le64toh(d.expires),
        .frequency = le32toh(d.frequency),
        .key = map + offset + sizeof d,
        .value = map + offset + sizeof d + le32toh(d.key_len),
        .value_len = le32toh(d.value_len),
        .key_len = (uint16_t)le32toh(d.key_len),
        .dead = le32toh(d.flags) & DEAD,
        .more = le32toh(d.flags) & MORE,
    };
    *next = offset + len;
    return true;
}

/* Hands over whole batches; l->offset and l->appended are then behind the last, and
 * *torn is where what is no record begins. */
static int replay(struct store_log *l, const char *map, uint64_t size,
                  int (*each)(void *opaque, const struct store_log_record *r),
                  void *opaque, uint64_t *torn)
{
    struct store_log_record r;
    uint64_t next;

    for (;;) {
        uint64_t end = l->offset, sequence = l->appended;

        do {
            *torn = end;
            if (!parse(map, size, end, &r, &next) || r.sequence != sequence + 1)
                return 0;
            end = next;
            sequence++;
        } while (r.more);
        for (uint64_t at = l->offset; at < end; at = next) {
            int error;

            (void)parse(map, size, at, &r, &next);
            if ((error = each(opaque, &r)) != 0)
                return error;
        }
        l->offset = end;
        l->appended = sequence;
    }
}

/* Whether there is a whole record behind the first that is not: then it is no torn end.
 * Whole records before it, of the batch that it belongs to, say nothing. */
static bool goes_on(const struct store_log *l, const char *map, uint64_t size,
                    uint64_t torn)
{
    struct store_log_record r;
    uint64_t next;

    for (uint64_t at = torn + 1; at + sizeof(struct record) <= size; at++)
        if (parse(map, size, at, &r, &next) && r.sequence > l->appended)
            return true;
    return false;
}

static int read_log(struct store_log *l, uint64_t size,
                    int (*each)(void *opaque, const struct store_log_record *r),
                    void *opaque, bool *damaged)
{
    struct header h;
    uint64_t torn = 0;
    char *map;
    int r;

    map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, l->fd, 0);
    if (map == MAP_FAILED)
        return errno;
    memcpy(&h, map, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 ||
        le64toh(h.checksum) != XXH3_64bits(&h, offsetof(struct header, checksum))) {
        munmap(map, size);
        return EBADMSG;
    }
    l->appended = le64toh(h.sequence);
    l->offset = sizeof h;
    r = replay(l, map, size, each, opaque, &torn);
    *damaged = r == 0 && l->offset < size && goes_on(l, map, size, torn);
    munmap(map, size);
    return r;
}

int store_log_open(struct store_log *l, int dir, const char *name,
                   const char *state_name, enum qmstore_durability durability,
                   size_t limit,
                   int (*each)(void *opaque, const struct store_log_record *r),
                   void *opaque, uint64_t *lost, bool *clean,
                   enum qmstore_durability *was, bool *damaged)
{
    struct store_state_was last;
    struct stat st;
    int r;

    *l = (struct store_log){.dir = dir,
                            .fd = -1,
                            .state = {.fd = -1},
                            .sync = durability == QMSTORE_SYNC,
                            .durability = durability,
                            .limit = limit};
    *damaged = false;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->written, NULL);
    if (!(l->path = strdup(name)))
        return ENOMEM;
    if ((r = store_state_open(&l->state, dir, state_name, &last)) != 0)
        return r;
    l->is_new = last.is_new;
    *clean = last.clean;
    *was = last.is_new ? durability : last.durability;
    l->fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->fd == -1 || fstat(l->fd, &st) == -1)
        return errno;
    *lost = 0;
    if (st.st_size < (off_t)sizeof(struct header)) { /* new, or torn when it was */
        /* None is acknowledged before the header is on disk. */
        if (last.acknowledged > 0)
            return EBADMSG;
        l->offset = sizeof(struct header);
        r = write_header(l->fd, 0);
    } else if (last.is_new && st.st_size > (off_t)sizeof(struct header)) {
        return EBADMSG; /* the state was on disk before any record */
    } else {
        r = read_log(l, (uint64_t)st.st_size, each, opaque, damaged);
        *lost = last.acknowledged > l->appended ? last.acknowledged - l->appended : 0;
    }
    /* When the machine ended, what was not synced was written in any order, or not. */
    if (!*clean && !last.same_boot)
        *damaged = false;
    if (r == 0 && !*damaged && ftruncate(l->fd, (off_t)l->offset) == -1)
        r = errno;
    if (r != 0)
        return r;
    /* What is torn off must not come back behind what is appended now. */
    if (!*damaged && (fdatasync(l->fd) == -1 || fsync(dir) == -1))
        return errno;
    l->durable = l->appended;
    l->live = l->offset;
    l->opened = true;
    return store_state_write(&l->state, durability, false, l->appended);
}

static int reserve(struct store_log *l, size_t more)
{
    size_t size = l->size ? l->size : LEAST_BUFFER;
    char *buffer;

    while (size < l->filled + more)
        size *= 2;
    if (size == l->size)
        return 0;
    buffer = realloc(l->buffer, size);
    if (!buffer)
        return ENOMEM;
    l->buffer = buffer;
    l->size = size;
    return 0;
}

static int append(struct store_log *l, struct store_log_record *r)
{
    struct record d = {
        .sequence = htole64(r->sequence),
        .expires = htole64(r->expires),
        .frequency = htole32(r->frequency),
        .value_len = htole32(r->value_len),
        .key_len = htole32(r->key_len),
        .flags = htole32((r->dead ? DEAD : 0u) | (r->more ? MORE : 0u)),
    };
    size_t len = sizeof d + r->key_len + r->value_len;
    char *at;
    int error = reserve(l, len);

    if (error != 0)
        return error;
    at = l->buffer + l->filled;
    memcpy(at, &d, sizeof d);
    memcpy(at + sizeof d, r->key, r->key_len);
    if (r->value_len > 0)
        memcpy(at + sizeof d + r->key_len, r->value, r->value_len);
    d.checksum = htole64(XXH3_64bits(at + 8, len - 8));
    memcpy(at, &d.checksum, sizeof d.checksum);
    l->filled += len;
    return 0;
}

/* Writes what is in the buffer; the lock is held, and given back meanwhile. */
static int write_out(struct store_log *l, bool sync)
{
    char *bytes = l->buffer;
    size_t len = l->filled, size = l->size;
    uint64_t sequence = l->appended;
    int r = l->error;

    if (r != 0)
        return r;
    l->writing = true;
    l->buffer = l->spare;
    l->size = l->spare_size;
    l->filled = 0;
    l->spare = NULL;
    l->spare_size = 0;
    pthread_mutex_unlock(&l->lock);
    r = write_all(l->fd, bytes, len, l->offset);
    if (r == 0 && sync && fdatasync(l->fd) == -1)
        r = errno;
    pthread_mutex_lock(&l->lock);
    l->writing = false;
    /* One that a large value needed is not kept. */
    if (l->spare_size < size && size <= 2 * (l->limit + LEAST_BUFFER)) {
        free(l->spare);
        l->spare = bytes;
        l->spare_size = size;
    } else {
        free(bytes);
    }
    if (r == 0) {
        l->offset += len;
        if (sync) {
            l->durable = sequence;
            l->syncs++;
        }
    } else {
        l->error = r;
    }
    pthread_cond_broadcast(&l->written);
    return r;
}

int store_log_append(struct store_log *l, struct store_log_record *r)
{
    int error;

    pthread_mutex_lock(&l->lock);
    error = l->error;
    r->sequence = l->appended + 1;
    if (error == 0)
        error = append(l, r);
    if (error == 0)
        l->appended++;
    else
        l->error = error; /* a batch that is half there must not get another end */
    /* A batch is written as a whole. */
    while (error == 0 && l->filled > 0 && l->filled >= l->limit && !r->more) {
        if (l->writing)
            pthread_cond_wait(&l->written, &l->lock);
        else
            error = write_out(l, false);
    }
    pthread_mutex_unlock(&l->lock);
    return error;
}

int store_log_commit(struct store_log *l, uint64_t sequence)
{
    int error = 0;

    if (l->sync) {
        pthread_mutex_lock(&l->lock);
        while (error == 0 && l->durable < sequence) {
            if (l->writing)
                pthread_cond_wait(&l->written, &l->lock);
            else
                error = write_out(l, true);
            if (l->durable < sequence && error == 0)
                error = l->error;
        }
        pthread_mutex_unlock(&l->lock);
    }
    if (error == 0)
        store_state_acknowledge(&l->state, sequence);
    return error;
}

int store_log_write(struct store_log *l, bool sync)
{
    int error = 0;
    uint64_t until;

    pthread_mutex_lock(&l->lock);
    until = l->appended;
    while (l->writing)
        pthread_cond_wait(&l->written, &l->lock);
    error = l->error;
    if (error == 0 && (sync ? l->durable < until : l->filled > 0))
        error = write_out(l, sync);
    pthread_mutex_unlock(&l->lock);
    return error;
}

void store_log_look(struct store_log *l, struct store_log_look *look)
{
    pthread_mutex_lock(&l->lock);
    *look = (struct store_log_look){
        l->error, l->offset, l->live, l->offset + l->filled, l->size + l->spare_size,
        l->syncs};
    pthread_mutex_unlock(&l->lock);
}

/* Appends to the new file, by way of the buffer. */
static int append_new(struct store_log *l, struct store_log_record *r)
{
    int error;

    r->sequence = ++l->appended;
    error = append(l, r);
    if (error == 0 && l->filled >= l->limit) {
        error = write_all(l->fd, l->buffer, l->filled, l->offset);
        l->offset += l->filled;
        l->filled = 0;
    }
    return error;
}

int store_log_restart(struct store_log *l,
                      int (*fill)(void *opaque,
                                  int (*append)(struct store_log *,
                                                struct store_log_record *)),
                      void *opaque)
{
    struct store_log was;
    char new_name[64];
    int r, fd;

    snprintf(new_name, sizeof new_name, "%s.new", l->path);
    pthread_mutex_lock(&l->lock);
    while (l->writing)
        pthread_cond_wait(&l->written, &l->lock);
    fd = openat(l->dir, new_name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                0600);
    if (fd == -1) {
        r = errno;
        pthread_mutex_unlock(&l->lock);
        return r;
    }
    was = *l;
    l->fd = fd;
    l->offset = sizeof(struct header);
    l->buffer = NULL;
    l->filled = l->size = 0;
    r = write_header(fd, l->appended);
    if (r == 0)
        r = fill(opaque, append_new);
    if (r == 0)
        r = write_all(fd, l->buffer, l->filled, l->offset);
    if (r == 0 && fdatasync(fd) == -1)
        r = errno;
    if (r == 0 && renameat(l->dir, new_name, l->dir, l->path) == -1)
        r = errno;
    if (r == 0) {
        l->offset += l->filled;
        l->filled = 0;
        l->live = l->offset;
        l->durable = l->appended;
        l->syncs++;
        /* Until the name is durable, a crash may find the old file, without what is
         * appended from now on. */
        l->error = r = fsync(l->dir) == -1 ? errno : 0;
        store_state_set_acknowledged(&l->state, l->appended);
        close(was.fd);
        free(was.buffer);
    } else {
        close(fd);
        unlinkat(l->dir, new_name, 0);
        free(l->buffer);
        l->fd = was.fd;
        l->offset = was.offset;
        l->buffer = was.buffer;
        l->filled = was.filled;
        l->size = was.size;
        l->appended = was.appended;
    }
    pthread_cond_broadcast(&l->written);
    pthread_mutex_unlock(&l->lock);
    return r;
}

int store_log_close(struct store_log *l, bool clean)
{
    int r = 0;

    if (l->opened)
        r = store_state_write(&l->state, l->durability, clean,
                              store_state_acknowledged(&l->state));
    if (l->path)
        store_state_close(&l->state);
    if (l->fd != -1)
        close(l->fd);
    free(l->buffer);
    free(l->spare);
    free(l->path);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->written);
    *l = (struct store_log){.fd = -1};
    return r;
}
