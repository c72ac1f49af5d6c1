/* SPDX-License-Identifier: BSD-3-Clause */
/* cminer.c - C-Miner*'s rules (see cminer.h).
 *
 * A sequence that begins with a is kept as a 64-bit key: b << 32 for the pair a b, and
 * b << 32 | c + 1 for a b c.  Each first block a has a slice of one array of keys,
 * large enough for all of its windows.  A segment adds a key at most once, so when a
 * slice is sorted, the length of a run of equal keys is the support, and each pair
 * stands right before the triples whose prefix it is.
 *
 * Which keys a segment adds: those of a's only window there, of which the first b after
 * it and the first c after that are enough; or, if a is there several times, those of
 * all of its windows, and the slice's new end is sorted to remove what is twice.
 */
#include "mining/baselines/cminer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mining/baselines/keys.h"

#define ACCESSES_MAX ((uint32_t)1 << 31)

/* A sequence and its support, where they were folded. */
struct tally {
    uint64_t key;
    uint32_t support;
};

struct tallies {
    struct tally *v;
    size_t n, cap;
};

struct run {
    const struct qm_cminer_config *config;
    const struct qm_cminer_db *db;
    struct qm_cminer_counts *counts;
    int (*each)(void *opaque, const struct qm_cminer_prefix *prefix);
    void *opaque;
    size_t window;   /* keys of a window at most */
    uint32_t widest; /* accesses of the longest segment */

    /* Of each block: in how many segments it is, how often it was read, and where it
     * was read last in this pass: the access + 1, or 0. */
    uint32_t *support, *reads, *last;
    /* Of each access of the segment, where its block was read there before and next:
     * the access + 1, or 0. */
    uint32_t *before, *next;

    uint32_t lo, hi; /* the first blocks of this pass: lo <= a < hi */
    uint64_t *keys, *spare;
    size_t cap;   /* of keys */
    size_t *fill; /* of a - lo: where its slice is filled to; it begins where a's
                     predecessor's ends */
    struct tallies tallies, merged;
    struct qm_cminer_suffix *suffixes;
    size_t suffixes_n, suffixes_cap;
};

void qm_cminer_defaults(struct qm_cminer_config *config)
{
    *config = (struct qm_cminer_config){
        .max_gap = 10,
        .segment = 100,
        .min_support = 1,
        .min_confidence = 10,
        .memory = (size_t)64 << 20,
    };
}

static int wrong(char *err, size_t len, const char *what, unsigned long is,
                 unsigned long min, unsigned long max)
{
    snprintf(err, len, "%s is %lu; it must be from %lu to %lu", what, is, min, max);
    return EINVAL;
}

int qm_cminer_check(const struct qm_cminer_config *config, char *err, size_t len)
{
    if (config->max_gap < QM_CMINER_GAP_MIN || config->max_gap > QM_CMINER_GAP_MAX) {
        return wrong(err, len, "the gap", config->max_gap, QM_CMINER_GAP_MIN,
                     QM_CMINER_GAP_MAX);
    }
    if (config->segment < QM_CMINER_SEGMENT_MIN ||
        config->segment > QM_CMINER_SEGMENT_MAX) {
        return wrong(err, len, "the length of a segment", config->segment,
                     QM_CMINER_SEGMENT_MIN, QM_CMINER_SEGMENT_MAX);
    }
    if (config->min_support < 1) {
        return wrong(err, len, "the least support", config->min_support, 1, UINT32_MAX);
    }
    if (config->min_confidence > 100) {
        return wrong(err, len, "the least confidence", config->min_confidence, 0, 100);
    }
    if (config->memory < QM_CMINER_MEMORY_MIN) {
        return wrong(err, len, "the memory to mine in", config->memory,
                     QM_CMINER_MEMORY_MIN, SIZE_MAX);
    }
    err[0] = '\0';
    return 0;
}

/* Makes room for n elements of that size in *array, which has *cap. */
static int reserve(void *array, uint32_t *cap, uint32_t n, size_t size)
{
    void **v = array;
    if (n <= *cap) {
        return 0;
    }
    uint32_t room = *cap < 1024 ? 1024 : *cap;
    while (room < n) {
        room += room / 2;
    }
    void *larger = reallocarray(*v, room, size);
    if (!larger) {
        return ENOMEM;
    }
    *v = larger;
    *cap = room;
    return 0;
}

void qm_cminer_db_free(struct qm_cminer_db *db)
{
    free(db->accesses);
    free(db->numbers);
    free(db->ends);
    free(db->blocks);
    memset(db, 0, sizeof *db);
}

int qm_cminer_add(struct qm_cminer_db *db, const uint64_t *blocks, size_t n)
{
    if (n == 0) {
        return 0;
    }
    if (n > ACCESSES_MAX - db->n) {
        return EFBIG;
    }
    int r =
        reserve(&db->accesses, &db->cap, db->n + (uint32_t)n, sizeof db->accesses[0]);
    if (r == 0) {
        r = reserve(&db->ends, &db->ends_cap, db->segments + 1, sizeof db->ends[0]);
    }
    if (r == 0) {
        memcpy(db->accesses + db->n, blocks, n * sizeof blocks[0]);
        db->n += (uint32_t)n;
        db->ends[db->segments++] = db->n;
    }
    return r;
}

/* The number of a block that is among them. */
static uint32_t number_of(const uint64_t *blocks, uint32_t distinct, uint64_t block)
{
    uint32_t lo = 0;
    while (distinct > 1) {
        uint32_t half = distinct / 2;
        if (blocks[lo + half] <= block) {
            lo += half;
        }
        distinct -= half;
    }
    return lo;
}

int qm_cminer_number(struct qm_cminer_db *db)
{
    size_t n = db->n ? db->n : 1;
    uint64_t *blocks = malloc(n * sizeof blocks[0]);
    uint64_t *spare = malloc(n * sizeof spare[0]);
    uint32_t *numbers = malloc(n * sizeof numbers[0]);
    if (!blocks || !spare || !numbers) {
        free(blocks);
        free(spare);
        free(numbers);
        return ENOMEM;
    }
    if (db->n > 0) {
        memcpy(blocks, db->accesses, db->n * sizeof blocks[0]);
    }
    qm_keys_sort(blocks, db->n, spare);
    free(spare);
    db->distinct = (uint32_t)qm_keys_unique(blocks, db->n);
    uint64_t *fewer =
        realloc(blocks, (db->distinct ? db->distinct : 1) * sizeof blocks[0]);
    db->blocks = fewer ? fewer : blocks;
    for (uint32_t i = 0; i < db->n; i++) {
        numbers[i] = number_of(db->blocks, db->distinct, db->accesses[i]);
    }
    db->numbers = numbers;
    free(db->accesses);
    db->accesses = NULL;
    return 0;
}

static uint32_t begin_of(const struct qm_cminer_db *db, uint32_t segment)
{
    return segment > 0 ? db->ends[segment - 1] : 0;
}

static bool frequent(const struct run *r, uint32_t block)
{
    return r->support[block] >= r->config->min_support;
}

static void count_blocks(struct run *r)
{
    const struct qm_cminer_db *db = r->db;
    for (uint32_t s = 0; s < db->segments; s++) {
        uint32_t begin = begin_of(db, s), end = db->ends[s];
        if (end - begin > r->widest) {
            r->widest = end - begin;
        }
        for (uint32_t i = begin; i < end; i++) {
            uint32_t block = db->numbers[i];
            r->support[block] += r->last[block] <= begin;
            r->reads[block]++;
            r->last[block] = i + 1;
        }
    }
    for (uint32_t block = 0; block < db->distinct; block++) {
        r->counts->blocks += frequent(r, block);
    }
}

/* How many keys begin with the block at most. */
static size_t bound(const struct run *r, uint32_t block)
{
    return frequent(r, block) ? r->reads[block] * r->window : 0;
}

/* The range of first blocks after the last one, as large as there is room for, but at
 * least one; its slices are empty. */
static void next_range(struct run *r)
{
    size_t at = 0;
    r->lo = r->hi;
    do {
        r->fill[r->hi - r->lo] = at;
        at += bound(r, r->hi);
        r->hi++;
    } while (r->hi < r->db->distinct && bound(r, r->hi) <= r->cap &&
             at <= r->cap - bound(r, r->hi));
}

static int reserve_tallies(struct tallies *t, size_t n)
{
    if (n > t->cap) {
        size_t cap = n + n / 2;
        struct tally *v = reallocarray(t->v, cap, sizeof *v);
        if (!v) {
            return ENOMEM;
        }
        t->v = v;
        t->cap = cap;
    }
    return 0;
}

/* Sorts keys and adds them to the tallies. */
static int fold(struct run *r, uint64_t *keys, size_t n)
{
    struct tallies *to = &r->merged, *from = &r->tallies;
    qm_keys_sort(keys, n, r->spare);
    size_t different = n > 0;
    for (size_t k = 1; k < n; k++) {
        different += keys[k] != keys[k - 1];
    }
    int error = reserve_tallies(to, from->n + different);
    if (error != 0) {
        return error;
    }
    to->n = 0;
    for (size_t t = 0, k = 0; t < from->n || k < n;) {
        struct tally *next = &to->v[to->n++];
        if (k == n || (t < from->n && from->v[t].key < keys[k])) {
            *next = from->v[t++];
            continue;
        }
        *next = (struct tally){.key = keys[k]};
        if (t < from->n && from->v[t].key == keys[k]) {
            next->support = from->v[t++].support;
        }
        for (; k < n && keys[k] == next->key; k++) {
            next->support++;
        }
    }
    struct tallies swap = *to;
    *to = *from;
    *from = swap;
    return 0;
}

/* Adds the keys of the window that begins at access i of the segment begin..end; only:
 * its block is nowhere else in the segment. */
static size_t add_window(const struct run *r, uint32_t i, uint32_t begin, uint32_t end,
                         bool only, uint64_t *keys)
{
    const uint32_t *numbers = r->db->numbers, *before = r->before;
    uint32_t gap = r->config->max_gap, a = numbers[i];
    uint32_t stop = end - i > gap ? i + gap : end;
    size_t n = 0;
    for (uint32_t j = i + 1; j < stop; j++) {
        uint32_t b = numbers[j];
        if (b == a || !frequent(r, b) || (only && before[j - begin] > i + 1)) {
            continue;
        }
        keys[n++] = (uint64_t)b << 32;
        for (uint32_t k = j + 1; k < stop; k++) {
            uint32_t c = numbers[k];
            if (c != a && c != b && frequent(r, c) &&
                !(only && before[k - begin] > j + 1)) {
                keys[n++] = (uint64_t)b << 32 | (c + 1);
            }
        }
    }
    return n;
}

/* Adds what the segment holds of sequences that begin with the block of access first,
 * its first one there. */
static int collect_block(struct run *r, uint32_t first, uint32_t begin, uint32_t end)
{
    uint32_t a = r->db->numbers[first];
    size_t *fill = &r->fill[a - r->lo], n = 0;
    if (r->hi - r->lo == 1) {
        /* It may be more than there is room for. */
        size_t most = 0;
        for (uint32_t at = first + 1; at > 0; at = r->next[at - 1 - begin]) {
            most += r->window;
        }
        if (most > r->cap - *fill) {
            int error = fold(r, r->keys, *fill);
            if (error != 0) {
                return error;
            }
            *fill = 0;
        }
    }
    uint64_t *keys = r->keys + *fill;
    bool only = r->next[first - begin] == 0;
    for (uint32_t at = first + 1; at > 0; at = r->next[at - 1 - begin]) {
        n += add_window(r, at - 1, begin, end, only, keys + n);
    }
    if (!only) {
        qm_keys_sort(keys, n, r->spare);
        n = qm_keys_unique(keys, n);
    }
    *fill += n;
    return 0;
}

static int collect(struct run *r)
{
    const struct qm_cminer_db *db = r->db;
    memset(r->last, 0, db->distinct * sizeof r->last[0]);
    for (uint32_t s = 0; s < db->segments; s++) {
        uint32_t begin = begin_of(db, s), end = db->ends[s];
        for (uint32_t i = begin; i < end; i++) {
            uint32_t block = db->numbers[i], last = r->last[block];
            r->before[i - begin] = last > begin ? last : 0;
            r->next[i - begin] = 0;
            if (last > begin) {
                r->next[last - 1 - begin] = i + 1;
            }
            r->last[block] = i + 1;
        }
        for (uint32_t i = begin; i < end; i++) {
            uint32_t a = db->numbers[i];
            if (a >= r->lo && a < r->hi && r->before[i - begin] == 0 &&
                frequent(r, a)) {
                int error = collect_block(r, i, begin, end);
                if (error != 0) {
                    return error;
                }
            }
        }
    }
    return 0;
}

static int by_support(const void *x, const void *y)
{
    const struct qm_cminer_suffix *s = x, *t = y;
    if (s->support != t->support) {
        return s->support > t->support ? -1 : 1;
    }
    return s->c < t->c ? -1 : s->c > t->c;
}

/* A frequent sequence of this support, whose prefix has that: it is a rule, unless it
 * is pruned. */
static int add_rule(struct run *r, uint32_t c, uint32_t support, uint32_t of)
{
    if ((uint64_t)support * 100 < (uint64_t)r->config->min_confidence * of) {
        return 0;
    }
    if (r->suffixes_n == r->suffixes_cap) {
        size_t cap = r->suffixes_cap ? 2 * r->suffixes_cap : 64;
        struct qm_cminer_suffix *v = reallocarray(r->suffixes, cap, sizeof *v);
        if (!v) {
            return ENOMEM;
        }
        r->suffixes = v;
        r->suffixes_cap = cap;
    }
    r->suffixes[r->suffixes_n++] = (struct qm_cminer_suffix){c, support};
    return 0;
}

/* Hands out the rules added since the last time as those of this prefix. */
static int hand_out(struct run *r, uint32_t a, uint32_t b, uint32_t support)
{
    struct qm_cminer_prefix prefix = {
        .a = a,
        .b = b,
        .support = support,
        .n = (uint32_t)r->suffixes_n,
        .suffixes = r->suffixes,
    };
    if (prefix.n == 0) {
        return 0;
    }
    if (prefix.n > 1) {
        qsort(r->suffixes, prefix.n, sizeof r->suffixes[0], by_support);
    }
    r->suffixes_n = 0;
    r->counts->prefixes++;
    r->counts->rules += prefix.n;
    return r->each ? r->each(r->opaque, &prefix) : 0;
}

static bool is_pair(const struct tally *t)
{
    return (uint32_t)t->key == 0;
}

static uint32_t b_of(const struct tally *t)
{
    return (uint32_t)(t->key >> 32);
}

/* The rules a -> b. */
static int pairs_of(struct run *r, uint32_t a)
{
    const struct tallies *t = &r->tallies;
    int error = 0;
    for (size_t i = 0; i < t->n && error == 0; i++) {
        if (is_pair(&t->v[i]) && t->v[i].support >= r->config->min_support) {
            r->counts->pairs++;
            error = add_rule(r, b_of(&t->v[i]), t->v[i].support, r->support[a]);
        }
    }
    return error != 0 ? error : hand_out(r, a, QM_CMINER_NONE, r->support[a]);
}

/* The rules a & b -> c: after each pair come its triples. */
static int triples_of(struct run *r, uint32_t a)
{
    const struct tallies *t = &r->tallies;
    for (size_t i = 0; i < t->n;) {
        const struct tally *pair = &t->v[i];
        for (i++; i < t->n && !is_pair(&t->v[i]); i++) {
            const struct tally *triple = &t->v[i];
            if (triple->support >= r->config->min_support) {
                r->counts->triples++;
                int error = add_rule(r, (uint32_t)triple->key - 1, triple->support,
                                     pair->support);
                if (error != 0) {
                    return error;
                }
            }
        }
        int error = hand_out(r, a, b_of(pair), pair->support);
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

static int finish_range(struct run *r)
{
    int error = 0;
    size_t begin = 0;
    for (uint32_t a = r->lo; a < r->hi && error == 0; a++) {
        error = fold(r, r->keys + begin, r->fill[a - r->lo] - begin);
        if (error == 0) {
            error = pairs_of(r, a);
        }
        if (error == 0) {
            error = triples_of(r, a);
        }
        r->tallies.n = 0;
        begin += bound(r, a);
    }
    return error;
}

static size_t min(size_t x, size_t y)
{
    return x < y ? x : y;
}

static bool allocate(struct run *r)
{
    size_t all = 0, largest = 0;
    for (uint32_t a = 0; a < r->db->distinct; a++) {
        size_t slice = bound(r, a);
        all += slice;
        largest = slice > largest ? slice : largest;
    }
    /* At least what one block has in one segment. */
    size_t least = min(largest, r->widest * r->window);
    r->cap = min(r->config->memory / sizeof r->keys[0], all);
    r->cap = r->cap > least ? r->cap : least;
    size_t spare = min(largest, r->cap); /* for sorting a slice */
    r->before = malloc(r->widest * sizeof r->before[0]);
    r->next = malloc(r->widest * sizeof r->next[0]);
    r->fill = malloc(r->db->distinct * sizeof r->fill[0]);
    r->keys = malloc((r->cap + 1) * sizeof r->keys[0]); /* not 0 */
    r->spare = malloc((spare + 1) * sizeof r->spare[0]);
    return r->before && r->next && r->fill && r->keys && r->spare;
}

static int mine(struct run *r)
{
    count_blocks(r);
    if (!allocate(r)) {
        return ENOMEM;
    }
    int error = 0;
    while (r->hi < r->db->distinct && error == 0) {
        r->counts->passes++;
        next_range(r);
        error = collect(r);
        if (error == 0) {
            error = finish_range(r);
        }
    }
    return error;
}

int qm_cminer_mine(const struct qm_cminer_config *config, const struct qm_cminer_db *db,
                   int (*each)(void *opaque, const struct qm_cminer_prefix *prefix),
                   void *opaque, struct qm_cminer_counts *counts)
{
    *counts = (struct qm_cminer_counts){.accesses = db->n, .segments = db->segments};
    if (db->n == 0) {
        return 0;
    }
    size_t gap = config->max_gap;
    struct run r = {
        .config = config,
        .db = db,
        .counts = counts,
        .each = each,
        .opaque = opaque,
        .window = gap * (gap - 1) / 2,
        .support = calloc(db->distinct, sizeof r.support[0]),
        .reads = calloc(db->distinct, sizeof r.reads[0]),
        .last = calloc(db->distinct, sizeof r.last[0]),
    };
    int error = r.support && r.reads && r.last ? mine(&r) : ENOMEM;
    free(r.support);
    free(r.reads);
    free(r.last);
    free(r.before);
    free(r.next);
    free(r.keys);
    free(r.spare);
    free(r.fill);
    free(r.tallies.v);
    free(r.merged.v);
    free(r.suffixes);
    return error;
}
