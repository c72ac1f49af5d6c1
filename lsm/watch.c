/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - see watch.h.
 *
 * Files are in chains of a hash table that look-ups walk inside an epoch.  `lock`
 * orders those that change the chains, and the walks over all files.  Of a file,
 * `inserted` has a lock of its own: it is written at each insertion, which follows a
 * read of the device. */
#include "lsm/watch.h"
#include "lsm/epoch.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS  4096u
#define USED     1u
#define WARMED   2u
#define SEEN     4u /* looked up, too late for USED */
#define NO_BLOCK UINT32_MAX

struct file {
    _Atomic(struct file *) next; /* of the chain */
    struct file *all_next, **all_link;
    struct family *family;
    uint64_t name[2];
    int level;
    uint64_t born;           /* by the price's clock */
    uint32_t n, age;         /* blocks; intervals */
    bool learned;            /* what became of its blocks */
    uint32_t *ends;          /* of each block, a quarter of its offset */
    struct keys firsts;      /* first keys */
    _Atomic uint32_t *reads; /* of this interval */
    _Atomic uint8_t *state, *idle;
    uint8_t *class;
    pthread_mutex_t lock;
    uint64_t *inserted; /* a hash set of words + 1 */
    uint32_t inserted_n, inserted_room;
    _Atomic uint64_t *names; /* the watch's */
};

struct watch {
    struct epoch epoch;
    pthread_mutex_t lock;
    struct price *price;
    struct file *all;
    _Atomic uint64_t names; /* room for names of blocks, of all files */
    _Atomic(struct file *) bucket[BUCKETS];
};

struct watch *watch_new(void)
{
    struct watch *w = aligned_alloc(64, (sizeof *w + 63) & ~(size_t)63);

    if (!w)
        return NULL;
    memset(w, 0, sizeof *w);
    w->price = price_new();
    if (!w->price) {
        free(w);
        return NULL;
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->epoch.writers, NULL);
    return w;
}

static void file_free(struct file *f)
{
    pthread_mutex_destroy(&f->lock);
    keys_free(&f->firsts);
    free(f->ends);
    free(f->reads);
    free(f->state);
    free(f->idle);
    free(f->class);
    free(f->inserted);
    if (f->names)
        atomic_fetch_sub(f->names, f->inserted_room);
    free(f);
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    while (w->all) {
        struct file *f = w->all;
        w->all = f->all_next;
        file_free(f);
    }
    price_free(w->price);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->epoch.writers);
    free(w);
}

struct price *watch_price(struct watch *w)
{
    return w->price;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static struct file *find(struct watch *w, uint64_t word)
{
    struct file *f =
        atomic_load_explicit(&w->bucket[mix(word) % BUCKETS], memory_order_acquire);

    while (f && f->name[0] != word)
        f = atomic_load_explicit(&f->next, memory_order_acquire);
    return f;
}

static uint32_t block_of(const struct file *f, uint64_t word)
{
    uint64_t offset = word ^ f->name[1];
    uint32_t low = 0, high = f->n;

    if (f->n == 0 || offset >= f->ends[f->n - 1])
        return NO_BLOCK;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (f->ends[middle] <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void watch_look(struct watch *w, const uint64_t name[2], bool hit)
{
    unsigned token = epoch_enter(&w->epoch);
    struct file *f = find(w, name[0]);
    uint32_t i = f ? block_of(f, name[1]) : NO_BLOCK;

    if (i != NO_BLOCK) {
        struct family *family = f->family;
        uint8_t state = atomic_load_explicit(&f->state[i], memory_order_relaxed);
        atomic_fetch_add_explicit(&f->reads[i], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(hit ? &family->hits : &family->misses, 1,
                                  memory_order_relaxed);
        if (!(state & (USED | SEEN))) {
            bool in_time =
                price_clock(w->price) - f->born < price_residence(w->price) ||
                (hit && (state & WARMED));
            atomic_fetch_or_explicit(&f->state[i], in_time ? USED : SEEN,
                                     memory_order_relaxed);
            if (in_time || !(state & WARMED))
                atomic_fetch_add_explicit(state & WARMED ? &family->used
                                                         : &family->late,
                                          1, memory_order_relaxed);
        }
        if (family->followed &&
            !atomic_load_explicit(&family->keyed, memory_order_relaxed)) {
            size_t len;
            const uint8_t *key = keys_get(&f->firsts, i, &len);
            collector_saw(family->collector, key, len);
        }
        price_look(w->price, mix(name[0] ^ mix(name[1])), hit);
    }
    epoch_leave(&w->epoch, token);
}

/* Under the file's lock. */
static void remember(struct file *f, uint64_t word)
{
    uint32_t i;

    if (f->inserted_n * 2 >= f->inserted_room) {
        uint32_t room = f->inserted_room ? f->inserted_room * 2 : 64;
        uint64_t *set;

        /* A block whose name is not kept leaves the cache by itself, like any other. */
        if (atomic_load(f->names) + (room - f->inserted_room) > WATCH_NAMES ||
            !(set = calloc(room, sizeof *set)))
            return;
        atomic_fetch_add(f->names, room - f->inserted_room);
        for (uint32_t k = 0; k < f->inserted_room; k++)
            if (f->inserted[k]) {
                for (i = (uint32_t)mix(f->inserted[k]) & (room - 1); set[i];)
                    i = (i + 1) & (room - 1);
                set[i] = f->inserted[k];
            }
        free(f->inserted);
        f->inserted = set;
        f->inserted_room = room;
    }
    for (i = (uint32_t)mix(word + 1) & (f->inserted_room - 1); f->inserted[i];) {
        if (f->inserted[i] == word + 1)
            return;
        i = (i + 1) & (f->inserted_room - 1);
    }
    f->inserted[i] = word + 1;
    f->inserted_n++;
}

void watch_adopt(struct file *f, const uint64_t name[2])
{
    pthread_mutex_lock(&f->lock);
    remember(f, name[1]);
    pthread_mutex_unlock(&f->lock);
}

void watch_insert(struct watch *w, const uint64_t name[2])
{
    unsigned token = epoch_enter(&w->epoch);
    struct file *f = find(w, name[0]);

    price_insert(w->price);
    if (f)
        watch_adopt(f, name);
    epoch_leave(&w->epoch, token);
}

void watch_erased(struct watch *w, const uint64_t name[2])
{
    price_forget(w->price, mix(name[0] ^ mix(name[1])));
}

static bool file_blocks(struct file *f, const struct shape *shape, uint64_t data_size,
                        const uint8_t *warmed)
{
    double total = 0, end = 0, scale;
    uint32_t n = shape->n;

    f->ends = malloc(n * sizeof *f->ends);
    f->reads = calloc(n, sizeof *f->reads);
    f->state = calloc(n, sizeof *f->state);
    f->idle = calloc(n, sizeof *f->idle);
    f->class = malloc(n);
    if (!f->ends || !f->reads || !f->state || !f->idle || !f->class)
        return false;
    /* A block has 5 bytes of type and checksum behind it; compression makes all smaller
     * by about the same factor. */
    for (uint32_t i = 0; i < n; i++)
        total += shape->raw[i] + 5.;
    scale = total > 0 ? (double)data_size / total : 1;
    for (uint32_t i = 0; i < n; i++) {
        size_t len;
        const uint8_t *key = keys_get(&shape->firsts, i, &len);
        if (keys_add(&f->firsts, key, len) != 0)
            return false;
        end += (shape->raw[i] + 5.) * scale;
        f->ends[i] = (uint32_t)((uint64_t)(end + .5) / 4);
        f->class[i] = choice_class(shape->heat[i]);
        if (warmed[i])
            atomic_init(&f->state[i], WARMED);
    }
    f->ends[n - 1] =
        (uint32_t)(data_size / 4); /* what follows may begin in these 4 bytes */
    f->n = n;
    return true;
}

struct file *watch_add(struct watch *w, struct family *family, const uint64_t first[2],
                       const struct shape *shape, uint64_t data_size,
                       const uint8_t *warmed, uint64_t max_blocks)
{
    struct file *f = calloc(1, sizeof *f);
    uint32_t b;

    if (!f)
        return NULL;
    pthread_mutex_init(&f->lock, NULL);
    f->names = &w->names;
    f->family = family;
    f->name[0] = first[0];
    f->name[1] = first[1];
    f->level = shape->level;
    f->born = price_clock(w->price);
    if (shape->n > 0 && !shape->failed && data_size / 4 < UINT32_MAX &&
        atomic_load(&family->blocks) + shape->n <= max_blocks) {
        if (!file_blocks(f, shape, data_size, warmed)) {
            file_free(f);
            return NULL;
        }
        atomic_fetch_add(&family->blocks, f->n);
    }
    b = mix(first[0]) % BUCKETS;
    pthread_mutex_lock(&w->lock);
    f->all_next = w->all;
    f->all_link = &w->all;
    if (w->all)
        w->all->all_link = &f->all_next;
    w->all = f;
    atomic_store(&f->next, atomic_load(&w->bucket[b]));
    atomic_store_explicit(&w->bucket[b], f, memory_order_release);
    pthread_mutex_unlock(&w->lock);
    return f;
}

const struct keys *watch_firsts(const struct file *f, uint32_t *n)
{
    *n = f->n;
    return &f->firsts;
}

struct family *watch_family(const struct file *f)
{
    return f->family;
}

uint64_t watch_names(struct file *f, unsigned cold, const uint8_t *hot,
                     uint64_t (**names)[2])
{
    uint64_t n = 0;

    pthread_mutex_lock(&f->lock);
    *names = f->inserted_n > 0 ? malloc(f->inserted_n * sizeof **names) : NULL;
    for (uint32_t i = 0; *names && i < f->inserted_room; i++) {
        uint64_t word = f->inserted[i] - 1;
        uint32_t block;
        if (!f->inserted[i])
            continue;
        block = cold || hot ? block_of(f, word) : 0;
        if (block == NO_BLOCK || (hot && hot[block]) ||
            (cold && (atomic_load(&f->idle[block]) < cold ||
                      atomic_load_explicit(&f->reads[block], memory_order_relaxed))))
            continue;
        (*names)[n][0] = f->name[0];
        (*names)[n++][1] = word;
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}

/* Under the lock: what became of the file's blocks. */
static void learn(struct file *f)
{
    double used[CHOICE_CLASSES] = {0}, n[CHOICE_CLASSES] = {0};

    if (f->learned)
        return;
    f->learned = true;
    for (uint32_t i = 0; i < f->n; i++) {
        n[f->class[i]]++;
        used[f->class[i]] += (atomic_load(&f->state[i]) & USED) != 0;
    }
    for (uint8_t class = 0; class < CHOICE_CLASSES; class ++)
        if (n[class] > 0)
            choice_learn(&f->family->choice, f->level, class, used[class], n[class]);
}

/* Under the lock: no new look-up finds it. */
static void unlink_file(struct watch *w, struct file *f)
{
    _Atomic(struct file *) *link = &w->bucket[mix(f->name[0]) % BUCKETS];

    while (atomic_load(link) != f)
        link = &atomic_load(link)->next;
    atomic_store(link, atomic_load(&f->next));
    *f->all_link = f->all_next;
    if (f->all_next)
        f->all_next->all_link = f->all_link;
    atomic_fetch_sub(&f->family->blocks, f->n);
}

/* Under the lock. */
static void fold(struct file *f)
{
    struct family *family = f->family;
    bool keyed = atomic_load(&family->keyed);

    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t reads =
            atomic_exchange_explicit(&f->reads[i], 0, memory_order_relaxed);
        uint8_t idle = atomic_load(&f->idle[i]);
        size_t first_len, last_len = 0;
        const uint8_t *first, *last = NULL;
        atomic_store(&f->idle[i], reads > 0 ? 0 : idle < UINT8_MAX ? idle + 1 : idle);
        if (reads == 0 || keyed)
            continue;
        first = keys_get(&f->firsts, i, &first_len);
        if (i + 1 < f->n)
            last = keys_get(&f->firsts, i + 1, &last_len);
        collector_spread(family->collector, first, first_len, last, last_len, reads);
    }
}

void watch_remove(struct watch *w, struct file *f)
{
    pthread_mutex_lock(&w->lock);
    fold(f);
    learn(f);
    unlink_file(w, f);
    pthread_mutex_unlock(&w->lock);
    epoch_wait(&w->epoch);
    file_free(f);
}

void watch_forget(struct watch *w, struct family *family)
{
    struct file *gone = NULL, *next;

    pthread_mutex_lock(&w->lock);
    for (struct file *f = w->all; f; f = next) {
        next = f->all_next;
        if (f->family != family)
            continue;
        unlink_file(w, f);
        f->all_next = gone;
        gone = f;
    }
    pthread_mutex_unlock(&w->lock);
    epoch_wait(&w->epoch);
    for (; gone; gone = next) {
        next = gone->all_next;
        file_free(gone);
    }
}

unsigned watch_enter(struct watch *w)
{
    return epoch_enter(&w->epoch);
}

void watch_leave(struct watch *w, unsigned token)
{
    epoch_leave(&w->epoch, token);
}

void watch_tick(struct watch *w, struct family *family, double window)
{
    pthread_mutex_lock(&w->lock);
    for (struct file *f = w->all; f; f = f->all_next) {
        if (f->family != family)
            continue;
        fold(f);
        if (f->age++ >= window ||
            price_clock(w->price) - f->born >= price_residence(w->price))
            learn(f);
    }
    pthread_mutex_unlock(&w->lock);
}
