/* SPDX-License-Identifier: BSD-3-Clause */
/* scratch.c - a store whose contents need not outlive its process
 * (qmstore_open_scratch()): a cache of what is elsewhere.
 *
 * What an earlier process left is removed before the store opens, damaged or not.  If
 * the disk layer refuses something, all that is on disk is dropped, and the layer
 * begins anew; until it opens, memory alone has keys.  If records take more than they
 * may, some leave in the order of their hashes, which is at random; what is asked for
 * comes back. */
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rowcache/store/internal.h"

enum {
    AGAIN_MS = 1000,  /* between tries to open a layer that refuses */
    WARN_MS = 10000,  /* between messages */
    LEAVE = 512,      /* records that leave in one batch */
    BATCHES = 4,      /* at a time, at least */
    LOOKED_AT = 4096, /* records for one of these, at most */
};

/* --- files --- */

/* Removes what is below a directory, and the directory.  Links are not followed. */
static int remove_tree(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct dirent *entry;
    DIR *stream;
    int r = 0;

    if (fd == -1 && errno == ENOENT)
        return 0;
    if (fd == -1)
        return unlinkat(parent, name, 0) == -1 ? errno : 0;
    if (!(stream = fdopendir(fd))) {
        r = errno;
        close(fd);
        return r;
    }
    while (r == 0 && (entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, entry->d_name, 0) == -1)
            r = errno == EISDIR || errno == EPERM ? remove_tree(fd, entry->d_name)
                                                  : errno;
    }
    closedir(stream);
    return r == 0 && unlinkat(parent, name, AT_REMOVEDIR) == -1 ? errno : r;
}

/* N, N.damaged or N.damaged-M. */
static bool is_partition(const char *name)
{
    static const char digits[] = "0123456789", aside[] = ".damaged";
    const char *at = name + strspn(name, digits);

    if (at == name)
        return false;
    if (strncmp(at, aside, sizeof aside - 1) == 0) {
        at += sizeof aside - 1;
        if (*at == '-')
            at += 1 + strspn(at + 1, digits);
    }
    return *at == '\0';
}

int store_scratch_remove(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *stream = fd == -1 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!stream) {
        r = errno;
        if (fd != -1)
            close(fd);
        return r;
    }
    while (r == 0 && (entry = readdir(stream)))
        if (is_partition(entry->d_name))
            r = remove_tree(dir, entry->d_name);
    closedir(stream);
    return r;
}

/* --- a disk layer that refuses --- */

/* No entry has a copy on disk, and none is on its way there. */
static void forget_disk(struct partition *p)
{
    while (p->buffer.oldest)
        store_partition_drop(p, p->buffer.oldest);
    for (uint64_t i = 0; i < p->table.n; i++) {
        struct table_walk w = store_table_walk(&p->table, i);

        for (struct entry *e; (e = store_table_next(&w));) {
            e->on_disk = e->clean = false;
            e->copy = 0;
        }
    }
    p->disk_copies = p->damaged_copies = p->shadowed = 0;
    p->doubtful = false;
    p->swept = p->scratch->at = (struct disk_name){0};
}

/* An empty layer, or none, for the moment. */
static void begin_anew(struct partition *p)
{
    struct scratch *s = p->scratch;
    uint64_t now = store_now();
    int r;

    if (p->disk)
        p->disk_ops->close(p->disk);
    else if (s->tried <= now && now - s->tried < AGAIN_MS)
        return;
    p->disk = NULL;
    s->tried = now;
    r = remove_tree(p->dir, "disk");
    if (r == 0)
        r = store_disk_open(p, s->path, NULL, 0);
    if (r == 0 && (r = store_filter_make(p)) != 0) {
        p->disk_ops->close(p->disk);
        p->disk = NULL;
    }
    p->disk_error = r;
}

static void drop_disk(struct partition *p)
{
    struct scratch *s = p->scratch;
    uint64_t now = store_now();

    if (p->disk && (s->warned > now || now - s->warned >= WARN_MS)) {
        store_warn(p->config, "%s: %s: what was on disk is dropped", s->path,
                   strerror(s->refused));
        s->warned = now;
    }
    s->lately = s->refused;
    s->refused = 0;
    forget_disk(p);
    begin_anew(p);
}

/* --- records that take too much --- */

struct leaving {
    struct partition *p;
    struct disk_name names[LEAVE];
    struct entry *entries[LEAVE]; /* of the same keys; NULL: none */
    unsigned count, looked_at;
    struct disk_name last;
};

static int look_at(void *opaque, const struct disk_name *name, const void *bytes,
                   size_t len)
{
    struct leaving *l = opaque;
    struct entry *e = store_table_find(&l->p->table, store_name_hash(name), NULL, 0);

    l->last = *name;
    if (!e || (e->on_disk && !e->dead)) { /* a tombstone will delete it */
        l->entries[l->count] = e;
        l->names[l->count++] = *name;
    }
    return ++l->looked_at == LOOKED_AT || l->count == LEAVE;
}

/* One batch leaves.  0 or an errno value. */
static int leave(struct partition *p, struct leaving *l)
{
    struct disk_record changes[LEAVE];
    int r;

    l->count = l->looked_at = 0;
    r = p->disk_ops->walk(p->disk, &p->scratch->at, look_at, l);
    if (r != 0 && l->looked_at < LOOKED_AT && l->count < LEAVE)
        return r;
    p->scratch->at = (struct disk_name){0}; /* the end */
    if (l->looked_at == LOOKED_AT || l->count == LEAVE) {
        p->scratch->at = l->last;
        p->scratch->at.bytes[p->scratch->at.len++] = 0; /* the next that can be */
    }
    for (unsigned i = 0; i < l->count; i++)
        changes[i] = (struct disk_record){.name = &l->names[i], .dead = true};
    r = l->count > 0 ? p->disk_ops->apply(p->disk, changes, l->count) : 0;
    if (r != 0)
        return r;
    p->disk_copies -= l->count;
    p->bloom.removed += l->count;
    for (unsigned i = 0; i < l->count; i++)
        if (l->entries[i]) {
            l->entries[i]->on_disk = l->entries[i]->clean = false;
            l->entries[i]->copy = 0;
            p->shadowed--;
        }
    return 0;
}

void store_scratch_wrote(struct partition *p, const struct disk_record *changes,
                         size_t n)
{
    struct scratch *s = p->scratch;

    s->lately = 0;
    for (size_t i = 0; i < n; i++)
        if (!changes[i].dead) {
            s->bytes += store_disk_size(&changes[i]);
            s->records++;
        }
}

static uint64_t used(const struct partition *p)
{
    const struct scratch *s = p->scratch;

    if (p->disk_ops->used)
        return p->disk_ops->used(p->disk);
    return s->records > 0 ? p->disk_copies * (s->bytes / s->records) : 0;
}

static void stay_within(struct partition *p)
{
    struct scratch *s = p->scratch;
    /* Twice what came since, and more, so that it ends. */
    uint64_t batches = BATCHES + 2 * (s->records - s->writes) / LEAVE;
    struct leaving *l;
    int r = 0;

    s->batches = p->stats.disk_batches;
    s->writes = s->records;
    if (used(p) <= s->most)
        return;
    l = malloc(sizeof *l);
    if (!l)
        return;
    l->p = p;
    for (uint64_t i = 0; i < batches && r == 0 && used(p) > s->most; i++)
        r = leave(p, l);
    free(l);
    if (r != 0) {
        s->refused = r;
        drop_disk(p);
    }
}

void store_scratch_mend(struct partition *p)
{
    struct scratch *s = p->scratch;

    if (!s)
        return;
    if (s->refused != 0)
        drop_disk(p);
    else if (s->most > 0 && p->disk && s->batches != p->stats.disk_batches)
        stay_within(p);
}

void store_scratch_clear(struct partition *p)
{
    for (uint64_t i = 0; i < p->table.n; i++) {
        struct table_walk w = store_table_walk(&p->table, i);

        for (struct entry *e; (e = store_table_next(&w));) {
            store_partition_drop(p, e);
            w = store_table_walk(&p->table, i); /* the line is another */
        }
    }
    forget_disk(p);
    begin_anew(p);
}
