/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.c - one program that announces its threads' contexts: its shared memory.
 *
 * The program can write to the memory at any moment, and may be hostile.  So an entry
 * is copied word by word under its version number, only the copy is looked at, and all
 * that it can say is checked.  The memory cannot shrink under us: it is sealed.
 * Whatever is in it, the harm is the program's own: its reads count to the wrong
 * context or to none.
 *
 * For each shared entry there is one of ours, with a lock.  Under it:
 *  - `version` is what `tag` was begun for, if `begun`;
 *  - the shared memory may be looked at, if `number` is the one that the request named:
 *    qm_peer_detach() takes it away, then takes each lock in turn, and then unmaps.
 *
 * A context's enclosing ones are in other entries.  No two entry locks are held at the
 * same time, so that entries that enclose each other cannot deadlock: the chain is
 * copied first, innermost to outermost, and then begun in the opposite order.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#include "clients/mount/peer.h"
#include "clients/protocol/quickmine-mount.h"
#include "clients/protocol/quickmine-protocol.h"

/* Contexts within contexts that are looked at; deeper ones lose their outermost. */
#define MAX_DEPTH 16

#define SHARED_BYTES (QM_PEER_ENTRIES * sizeof(struct qm_mount_entry))

struct entry {
    pthread_mutex_t lock;
    bool begun;
    uint64_t version;
    struct qm_tag *tag; /* NULL although begun: the server would not have it */
};

struct qm_peer {
    struct qm_device *device;
    atomic_uint number;
    struct qm_mount_entry *shared;
    atomic_uint used; /* entries from here on were never begun */
    struct entry entries[QM_PEER_ENTRIES];
};

/* A copy of a shared entry, checked. */
struct snapshot {
    uint32_t index;
    uint64_t version;
    uint32_t kind;
    uint32_t parent; /* index + 1; 0: none */
    uint64_t parent_version;
    uint64_t klass;
    char name[QM_MOUNT_NAME_MAX + 1]; /* terminated */
};

struct qm_peer *qm_peer_new(struct qm_device *device)
{
    struct qm_peer *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->device = device;
    atomic_init(&p->number, QM_PEER_NOBODY);
    for (unsigned i = 0; i < QM_PEER_ENTRIES; i++)
        pthread_mutex_init(&p->entries[i].lock, NULL);
    return p;
}

void qm_peer_free(struct qm_peer *peer)
{
    if (!peer)
        return;
    for (unsigned i = 0; i < QM_PEER_ENTRIES; i++)
        pthread_mutex_destroy(&peer->entries[i].lock);
    free(peer);
}

int qm_peer_attach(struct qm_peer *peer, uint32_t number, int *memory)
{
    int fd = memfd_create("quickmine-contexts", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *map = MAP_FAILED;
    int r;

    if (fd == -1)
        return errno;
    if (ftruncate(fd, SHARED_BYTES) == -1 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == -1 ||
        (map = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) ==
            MAP_FAILED) {
        r = errno;
        close(fd);
        return r;
    }
    peer->shared = map;
    atomic_store(&peer->used, 0);
    /* Last: a thread that sees the number may use the memory. */
    atomic_store_explicit(&peer->number, number, memory_order_release);
    *memory = fd;
    return 0;
}

/* --- one entry; its lock is held --- */

static bool attached_as(struct qm_peer *peer, uint32_t number)
{
    return atomic_load_explicit(&peer->number, memory_order_acquire) == number;
}

static uint64_t version_of(const struct qm_mount_entry *shared)
{
    return atomic_load_explicit(&shared->version, memory_order_acquire);
}

/* Forgets what entry had begun, and returns its reference. */
static struct qm_tag *take(struct entry *entry)
{
    struct qm_tag *tag = entry->tag;

    entry->begun = false;
    entry->tag = NULL;
    return tag;
}

/* Copies an entry as it was at one moment.  False if it holds no valid context. */
static bool copy(const struct qm_mount_entry *shared, uint32_t index,
                 struct snapshot *snapshot)
{
    typedef uint64_t __attribute__((may_alias)) word;
    union {
        uint64_t words[sizeof *shared / 8];
        struct {
            uint64_t version, seen;
            uint32_t kind, parent;
            uint64_t parent_version, klass;
            uint32_t name_len;
            char name[QM_MOUNT_NAME_MAX + 1];
        };
    } now;
    _Static_assert(offsetof(struct qm_mount_entry, kind) == 16, "layout");
    _Static_assert(offsetof(struct qm_mount_entry, klass) == 32, "layout");
    _Static_assert(offsetof(struct qm_mount_entry, name) == 44, "layout");
    const word *from = (const word *)shared;
    uint64_t version = version_of(shared);

    if (version & 1)
        return false;
    for (unsigned i = 0; i < sizeof now.words / sizeof *now.words; i++)
        /* None of these loads can come after the version's below. */
        now.words[i] = __atomic_load_n(from + i, __ATOMIC_ACQUIRE);
    if (atomic_load_explicit(&shared->version, memory_order_relaxed) != version)
        return false;

    if (now.kind < QM_WIRE_CONNECTION || now.kind > QM_WIRE_QUERY ||
        now.name_len > QM_MOUNT_NAME_MAX)
        return false;
    *snapshot = (struct snapshot){
        .index = index,
        .version = version,
        .kind = now.kind,
        .parent = now.parent <= QM_PEER_ENTRIES ? now.parent : 0,
        .parent_version = now.parent_version,
        .klass = now.klass,
    };
    memcpy(snapshot->name, now.name, now.name_len);
    return true;
}

/* --- the read path --- */

/* Begins what snapshot says within parent, unless it is begun already or has changed
 * since.  Returns a reference, or NULL. */
static struct qm_tag *begin(struct qm_peer *peer, uint32_t number,
                            const struct snapshot *snapshot, struct qm_tag *parent)
{
    struct entry *entry = &peer->entries[snapshot->index];
    struct qm_mount_entry *shared;
    struct qm_tag *tag = NULL, *drop = NULL;
    unsigned used;
    int r;

    pthread_mutex_lock(&entry->lock);
    if (!attached_as(peer, number))
        goto out;
    shared = &peer->shared[snapshot->index];
    if (version_of(shared) != snapshot->version)
        goto out;
    if (!entry->begun || entry->version != snapshot->version) {
        qm_tag_put(take(entry));
        r = qm_tag_begin(peer->device, parent, (enum qmctx_kind)snapshot->kind,
                         snapshot->klass, snapshot->name[0] ? snapshot->name : NULL,
                         &entry->tag);
        if (r == EIO || r == ENOMEM)
            goto out;
        /* What the server refuses it would refuse again: that is settled, too. */
        entry->begun = true;
        entry->version = snapshot->version;
        used = atomic_load(&peer->used);
        while (used <= snapshot->index &&
               !atomic_compare_exchange_weak(&peer->used, &used, snapshot->index + 1))
            ;
        /* The owner changes the version, then looks at `seen`; we set `seen`, then look
         * at the version: one of us notices. */
        atomic_store(&shared->seen, snapshot->version);
        if (entry->tag)
            tag = qm_tag_get(entry->tag);
        if (atomic_load(&shared->version) != snapshot->version)
            drop = take(entry);
    } else if (entry->tag) {
        tag = qm_tag_get(entry->tag);
    }
out:
    pthread_mutex_unlock(&entry->lock);
    qm_tag_put(drop);
    return tag;
}

/* Copies the context at index into *snapshot.  Returns false if there is none.  If it
 * has been begun already, *tag is a reference and nothing is copied. */
static bool look(struct qm_peer *peer, uint32_t number, uint32_t index,
                 struct snapshot *snapshot, struct qm_tag **tag)
{
    struct entry *entry = &peer->entries[index];
    const struct qm_mount_entry *shared;
    bool found = false;

    *tag = NULL;
    snapshot->version = 0;
    pthread_mutex_lock(&entry->lock);
    if (attached_as(peer, number)) {
        shared = &peer->shared[index];
        if (entry->begun && entry->version == version_of(shared)) {
            found = entry->tag != NULL;
            if (found) {
                snapshot->version = entry->version;
                *tag = qm_tag_get(entry->tag);
            }
        } else {
            found = copy(shared, index, snapshot);
        }
    }
    pthread_mutex_unlock(&entry->lock);
    return found;
}

struct qm_tag *qm_peer_tag(struct qm_peer *peer, uint32_t number, uint32_t index)
{
    struct snapshot chain[MAX_DEPTH];
    struct qm_tag *tag, *inner;
    unsigned depth = 0;

    if (!look(peer, number, index, &chain[0], &tag))
        return NULL;
    if (tag)
        return tag;

    for (depth = 1; depth < MAX_DEPTH && chain[depth - 1].parent != 0; depth++) {
        if (!look(peer, number, chain[depth - 1].parent - 1, &chain[depth], &tag))
            break;
        if (chain[depth].version != chain[depth - 1].parent_version) {
            /* It has ended, and another context stands there now. */
            qm_tag_put(tag);
            tag = NULL;
            break;
        }
        if (tag)
            break;
    }
    while (depth-- > 0) {
        inner = begin(peer, number, &chain[depth], tag);
        qm_tag_put(tag);
        tag = inner;
    }
    return tag;
}

/* --- ends --- */

void qm_peer_ended(struct qm_peer *peer, uint32_t index, uint64_t version)
{
    struct entry *entry;
    struct qm_tag *tag = NULL;

    if (index >= QM_PEER_ENTRIES)
        return;
    entry = &peer->entries[index];
    pthread_mutex_lock(&entry->lock);
    if (entry->begun && entry->version == version)
        tag = take(entry);
    pthread_mutex_unlock(&entry->lock);
    qm_tag_put(tag);
}

void qm_peer_sweep(struct qm_peer *peer)
{
    unsigned used = atomic_load(&peer->used);

    for (unsigned i = 0; i < used; i++) {
        struct entry *entry = &peer->entries[i];
        struct qm_tag *tag = NULL;

        /* Another thread holds it, and is just looking at the entry itself. */
        if (pthread_mutex_trylock(&entry->lock) != 0)
            continue;
        if (entry->begun && entry->version != version_of(&peer->shared[i]))
            tag = take(entry);
        pthread_mutex_unlock(&entry->lock);
        qm_tag_put(tag);
    }
}

void qm_peer_detach(struct qm_peer *peer)
{
    atomic_store(&peer->number, QM_PEER_NOBODY);
    for (unsigned i = 0; i < QM_PEER_ENTRIES; i++) {
        struct entry *entry = &peer->entries[i];
        struct qm_tag *tag;

        pthread_mutex_lock(&entry->lock);
        tag = take(entry);
        pthread_mutex_unlock(&entry->lock);
        qm_tag_put(tag);
    }
    munmap(peer->shared, SHARED_BYTES);
    peer->shared = NULL;
}
