/* SPDX-License-Identifier: BSD-3-Clause */
/* tier-thesis.c - the experiments of the thesis (tables 5.2 to 5.6) with our tier as
 * its disk layer: a memory layer of key frequencies that evicts to the tier and
 * restores from it.
 *
 * What is corrected against the thesis: its LRU and MRU evict each other's victims; its
 * LFU's put counts a new key as frequent as the victim; memory holds one key more than
 * its capacity; formula 4.1 has the wrong sign (k = m/n ln 2); and table 5.6 has a
 * tenth of the operations in its first column (its hits and misses, of the last 20 %,
 * are those of 10, 50 and 100 million).  The thesis writes back; here each update goes
 * through to the backend, an array in memory, and to the tier's journal. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/tier-bench.h"
#include "tier/tier.h"

#define NONE UINT32_MAX

enum { LRU, MRU, LFU };

struct layer {
    int policy;
    uint32_t capacity, n;
    uint32_t *next, *prev; /* of keys in memory: in their list */
    uint32_t *frequency;   /* of all keys */
    bool *in_memory, *seen;
    uint32_t *heads, *tails; /* lists: LFU one for each frequency, else one */
    uint32_t lists, least;
};

static uint32_t list_of(const struct layer *l, uint32_t key)
{
    if (l->policy != LFU)
        return 0;
    return l->frequency[key] < l->lists ? l->frequency[key] : l->lists - 1;
}

static void link_key(struct layer *l, uint32_t key)
{
    uint32_t list = list_of(l, key), head = l->heads[list];

    l->next[key] = head;
    l->prev[key] = NONE;
    if (head != NONE)
        l->prev[head] = key;
    else
        l->tails[list] = key;
    l->heads[list] = key;
    if (list < l->least)
        l->least = list;
}

static void unlink_key(struct layer *l, uint32_t key)
{
    uint32_t list = list_of(l, key);

    if (l->prev[key] != NONE)
        l->next[l->prev[key]] = l->next[key];
    else
        l->heads[list] = l->next[key];
    if (l->next[key] != NONE)
        l->prev[l->next[key]] = l->prev[key];
    else
        l->tails[list] = l->prev[key];
}

static uint32_t victim(struct layer *l)
{
    while (l->least + 1 < l->lists && l->heads[l->least] == NONE)
        l->least++;
    return l->policy == MRU ? l->heads[l->least] : l->tails[l->least];
}

/* A Zipf sampler by inversion of a table: exact, and no part of what is timed. */
static uint32_t *make_stream(uint64_t n, uint32_t keys, double s, uint64_t seed)
{
    uint32_t *stream = malloc(n * sizeof *stream);
    double *sum = malloc(keys * sizeof *sum), total = 0;

    if (!stream || !sum)
        return NULL;
    for (uint32_t i = 0; i < keys; i++)
        sum[i] = total += pow(i + 1., -s);
    for (uint64_t i = 0; i < n; i++) {
        double x = (double)(bench_rnd(&seed) >> 11) / 9007199254740992. * total;
        uint32_t low = 0, high = keys - 1;

        while (low < high) {
            uint32_t middle = (low + high) / 2;

            if (sum[middle] < x)
                low = middle + 1;
            else
                high = middle;
        }
        stream[i] = low;
    }
    free(sum);
    return stream;
}

struct run {
    struct qm_tier *tier;
    uint32_t size;
    char *memory;  /* a block for each key; that of one in the tier is not looked at */
    char *backend; /* the first bytes of each block, which tell versions */
    uint64_t *versions;
    uint64_t backend_reads, tier_hits, wrong;
};

static void stamp(struct run *r, uint32_t key)
{
    uint64_t word[2] = {key, r->versions[key]};

    memcpy(r->memory + (size_t)key * r->size, word, sizeof word);
}

static void to_tier(struct run *r, uint32_t key)
{
    struct qm_tier_insert insert = {
        .block = key,
        .data = r->memory + (size_t)key * r->size,
        .ticket = qm_tier_ticket(r->tier),
        .frequency = 15,
    };

    while (qm_tier_insert(r->tier, &insert) == EAGAIN)
        qm_tier_drain(r->tier); /* nothing is dropped, as the thesis drops nothing */
}

static void from_tier(struct run *r, uint32_t key)
{
    char *buf = r->memory + (size_t)key * r->size;
    struct qm_tier_read read = {.block = key, .buf = buf};
    uint64_t word[2];

    if (qm_tier_read(r->tier, &read, 1) == 1) {
        memcpy(word, buf, sizeof word);
        r->wrong += word[0] != key || word[1] != r->versions[key];
        r->tier_hits++;
    } else {
        r->backend_reads++;
        stamp(r, key);
    }
}

static void update(struct run *r, uint32_t key)
{
    struct qm_tier_write w;

    qm_tier_write_begin(r->tier, &w, (uint64_t)key * r->size, r->size);
    r->versions[key]++;
    stamp(r, key);
    qm_tier_write_end(r->tier, &w, QM_TIER_DROPPED, NULL);
}

/* One operation; whether memory had the key. */
static bool operate(struct layer *l, struct run *r, uint32_t key, bool put)
{
    bool hit = l->in_memory[key], restore;
    uint32_t out;

    if (hit)
        unlink_key(l, key);
    l->frequency[key]++;
    if (!hit && l->seen[key])
        from_tier(r, key);
    else if (!hit)
        stamp(r, key);
    l->seen[key] = true;
    if (put)
        update(r, key);
    if (hit) {
        link_key(l, key);
        return true;
    }
    if (l->n < l->capacity) {
        l->n++;
    } else {
        out = victim(l);
        restore = l->policy != LFU || l->frequency[key] >= l->frequency[out];
        if (!restore) {
            to_tier(r, key); /* which it does not leave, or enters */
            return false;
        }
        unlink_key(l, out);
        l->in_memory[out] = false;
        to_tier(r, out);
    }
    l->in_memory[key] = true;
    link_key(l, key);
    return false;
}

static int one(const struct bench_options *o, int policy, const char *label,
               const uint32_t *stream, uint64_t ops, uint32_t keys, unsigned in_memory,
               unsigned puts, double theirs)
{
    static const char *const names[] = {"LRU", "MRU", "LFU"};
    struct layer l = {.policy = policy,
                      .capacity = (uint32_t)(keys * 1. * in_memory / 100)};
    struct run r = {.size = o->block};
    struct qm_tier_stats s;
    uint64_t hits = 0, start, last = ops - ops / 5, late = 0;
    double seconds, cpu;

    r.tier = bench_open(o, (uint64_t)keys * o->block, QM_TIER_EXCLUSIVE, 1.5);
    r.memory = calloc(keys, o->block);
    r.versions = calloc(keys, sizeof *r.versions);
    l.lists = policy == LFU ? 1u << 20 : 1;
    l.next = malloc(keys * sizeof(uint32_t));
    l.prev = malloc(keys * sizeof(uint32_t));
    l.frequency = calloc(keys, sizeof(uint32_t));
    l.in_memory = calloc(keys, sizeof(bool));
    l.seen = calloc(keys, sizeof(bool));
    l.heads = malloc(l.lists * sizeof(uint32_t));
    l.tails = malloc(l.lists * sizeof(uint32_t));
    if (!r.tier || !r.memory || !r.versions || !l.next || !l.prev || !l.frequency ||
        !l.in_memory || !l.seen || !l.heads || !l.tails)
        return 1;
    memset(r.memory, 1, (size_t)keys * o->block);
    memset(l.heads, 0xff, l.lists * sizeof(uint32_t));
    memset(l.tails, 0xff, l.lists * sizeof(uint32_t));
    l.least = l.lists - 1;
    cpu = bench_cpu();
    start = bench_now();
    for (uint64_t i = 0; i < ops; i++) {
        if (i == last)
            late = bench_now();
        hits += operate(&l, &r, stream[i], puts == 100 || (puts == 50 && (i & 1))) &&
                i >= last;
    }
    seconds = (double)(bench_now() - start) / 1e9;
    late = bench_now() - late;
    cpu = bench_cpu() - cpu;
    qm_tier_get_stats(r.tier, &s);
    printf(
        "%s %u/%u %-7s %-10s %5.1f %% %7.2f s %6.0f ms %9.0f ops/s, %9.0f a CPU second",
        names[policy], in_memory, 100 - in_memory, label,
        puts == 0    ? "get"
        : puts == 50 ? "get/update"
                     : "update",
        100. * (double)hits / (double)(ops - last), seconds, (double)late / 1e6,
        (double)ops / seconds, (double)ops / cpu);
    if (theirs > 0)
        printf(", %5.1f x (%5.1f x)", (double)ops / seconds / theirs,
               (double)ops / cpu / theirs);
    printf("   tier: %llu hits, %llu from the backend%s\n",
           (unsigned long long)r.tier_hits, (unsigned long long)r.backend_reads,
           r.wrong ? "  WRONG DATA" : "");
    fflush(stdout);
    qm_tier_close(r.tier, QM_TIER_FORGET);
    bench_remove(o);
    free(r.memory);
    free(r.versions);
    free(l.next);
    free(l.prev);
    free(l.frequency);
    free(l.in_memory);
    free(l.seen);
    free(l.heads);
    free(l.tails);
    return r.wrong != 0;
}

int bench_thesis(const struct bench_options *o)
{
    /* Seconds of tables 5.3 to 5.5, for a million operations: by distribution, share in
     * memory (75, 50, 25), get, update, both.  Those of 5.2 are a picture. */
    static const double theirs[3][3][3] = {
        {{4, 4, 4}, {5, 5, 6}, {8, 8, 8}},
        {{2, 2, 2}, {2, 2, 2}, {2, 2, 2}},
        {{8, 9, 9}, {14, 14, 14}, {21, 23, 21}},
    };
    static const char *const labels[] = {"zipf 1", "zipf 2", "uniform"};
    static const double exponents[] = {1, 2, 0};
    int wrong = 0;

    printf("%llu operations on %u keys of %u bytes; hits in memory of the last 20 %%; "
           "x: against the thesis (by CPU time, all threads)\n",
           (unsigned long long)o->ops, o->keys, o->block);
    for (unsigned d = 0; d < 3; d++) {
        uint32_t *stream = make_stream(o->ops, o->keys, exponents[d], d + 1);

        if (!stream)
            return 1;
        for (unsigned m = 0; m < 3; m++)
            for (unsigned a = 0; a < 3; a++)
                wrong |= one(o, LFU, labels[d], stream, o->ops, o->keys, 75 - 25 * m,
                             a == 0   ? 0
                             : a == 1 ? 100
                                      : 50,
                             1e6 / theirs[d][m][a]);
        for (int policy = LRU; policy <= MRU; policy++)
            wrong |= one(o, policy, labels[d], stream, o->ops, o->keys, 50, 50, 0);
        free(stream);
    }
    return wrong;
}
