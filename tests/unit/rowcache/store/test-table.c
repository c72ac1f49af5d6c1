/* SPDX-License-Identifier: BSD-3-Clause */
/* test-table.c - the table of entries, compared with a plain one, and the memory that
 * entries are in. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "rowcache/store/internal.h"

#include "testing.h"

enum { KEYS = 20000 };

static struct entry *model[KEYS];

/* So that many have the same line, and tag: a hash of few bits. */
static struct store_hash hash_of(uint32_t key)
{
    uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c15);

    if (key % 4 == 0)
        return (struct store_hash){mixed >> 40 << 40, (uint32_t)(mixed >> 60 << 28), 0};
    return (struct store_hash){mixed, (uint32_t)(mixed * mixed >> 32), 0};
}

struct store_hash __wrap_store_hash_of(const void *bytes, size_t len);

/* Linked with --wrap. */
struct store_hash __wrap_store_hash_of(const void *bytes, size_t len)
{
    uint32_t key;

    memcpy(&key, bytes, sizeof key);
    return hash_of(key);
}

static int advice; /* the last that the kernel got */

int __real_madvise(void *at, size_t len, int what);
int __wrap_madvise(void *at, size_t len, int what);

/* Linked with --wrap, too. */
int __wrap_madvise(void *at, size_t len, int what)
{
    advice = what;
    return __real_madvise(at, len, what);
}

static struct entry *make(struct table *t, uint32_t key, uint32_t len)
{
    struct entry *e = store_entry_alloc(t, sizeof key, len, key % 3 == 0);

    assert_non_null(e);
    memcpy(e->bytes, &key, sizeof key);
    memset(e->bytes + sizeof key, (char)key, len);
    store_entry_set_expires(e, key);
    return e;
}

/* Each entry comes once, in the line of its hash. */
static void check_walk(const struct table *t)
{
    size_t n = 0;

    for (uint64_t l = 0; l < t->n; l++) {
        struct table_walk w = store_table_walk(t, l);

        for (struct entry *e; (e = store_table_next(&w)); n++) {
            uint32_t key;

            memcpy(&key, e->bytes, sizeof key);
            assert_ptr_equal(model[key], e);
            assert_int_equal(store_entry_expires(e), key % 3 == 0 ? key : 0);
            assert_int_equal(store_table_line(t, store_entry_hash(e).high), l);
        }
        assert_null(store_table_next(&w));
    }
    assert_int_equal(n, t->count);
}

static void check_all(const struct table *t)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        assert_ptr_equal(store_table_find(t, hash_of(key), &key, sizeof key),
                         model[key]);
        if (model[key])
            assert_true(store_table_has(t, hash_of(key)));
    }
    check_walk(t);
}

static void work(uint64_t bytes)
{
    uint64_t seed = 3;
    struct table t;

    memset(model, 0, sizeof model);
    assert_int_equal(store_table_init(&t, bytes), 0);
    for (unsigned i = 0; i < 8 * KEYS; i++) {
        /* More and more keys at first, then fewer. */
        uint32_t key = (uint32_t)rnd_below(&seed, KEYS);
        bool grows = rnd_below(&seed, 8) < (i < 5 * KEYS ? 6 : 2);
        struct entry *e = model[key];

        if (!e && grows) {
            model[key] = make(&t, key, (uint32_t)rnd_below(&seed, 200));
            store_table_add(&t, model[key]);
        } else if (e && grows) {
            model[key] = make(&t, key, (uint32_t)rnd_below(&seed, 200));
            store_table_replace(&t, e, model[key]);
            store_entry_free(&t, e);
        } else if (e) {
            store_table_remove(&t, e);
            store_entry_free(&t, e);
            model[key] = NULL;
        }
        if (i % KEYS == 0)
            check_all(&t);
    }
    check_all(&t);
    assert_true(t.arena.count <= bytes / STORE_ARENA_CHUNK);
    store_table_free(&t);
}

TEST(test_table)
{
    work(0);                     /* malloc()'s */
    work(1 * STORE_ARENA_CHUNK); /* both */
    work(16 * STORE_ARENA_CHUNK);
}

/* The lines' ranges of hashes are all there are, in order. */
TEST(test_ranges)
{
    for (uint64_t n = 8; n < UINT64_C(1) << 31; n += n / 4) {
        struct table t = {.n = n};
        uint64_t step = n < 5000 ? 1 : n / 5000;

        assert_int_equal(store_table_line(&t, 0), 0);
        assert_true(store_table_last(&t, n - 1) == UINT64_MAX);
        for (uint64_t l = 0; l < n; l += step) {
            uint64_t last = store_table_last(&t, l);

            assert_int_equal(store_table_line(&t, last), l);
            if (last < UINT64_MAX)
                assert_int_equal(store_table_line(&t, last + 1), l + 1);
        }
    }
}

struct piece {
    unsigned char *p;
    size_t size;
    bool in_chunk;
};

static void check_piece(const struct piece *p, unsigned number)
{
    for (size_t i = 0; i < p->size; i++)
        if (p->p[i] != (unsigned char)number)
            fail_msg("byte %zu of piece %u was changed", i, number);
}

/* Small, large, and of a size that is malloc()'s. */
static size_t draw_size(uint64_t *seed)
{
    switch (rnd_below(seed, 8)) {
    case 0:
        return rnd_below(seed, 40000);
    case 1:
        return (size_t)1 << rnd_below(seed, 18);
    default:
        return rnd_below(seed, 300);
    }
}

TEST(test_arena)
{
    enum { PIECES = 4000, CHUNKS = 8 };
    static struct piece pieces[PIECES];
    unsigned in_chunks = 0, others = 0;
    uint64_t seed = 7;
    struct arena a;

    store_arena_init(&a, CHUNKS * STORE_ARENA_CHUNK + 1);
    for (unsigned i = 0; i < 60 * PIECES; i++) {
        unsigned number = (unsigned)rnd_below(&seed, PIECES);
        struct piece *p = &pieces[number];

        if (p->p) {
            check_piece(p, number);
            store_arena_free(&a, p->p, p->in_chunk);
            p->p = NULL;
        } else if (rnd_below(&seed, i < 40 * PIECES ? 2 : 8) == 0) {
            p->size = draw_size(&seed);
            p->p = store_arena_alloc(&a, p->size, &p->in_chunk);
            assert_non_null(p->p);
            assert_int_equal((uintptr_t)p->p % 16, 0);
            memset(p->p, (int)number, p->size);
            in_chunks += p->in_chunk;
            others += !p->in_chunk;
            assert_true(a.count <= CHUNKS);
        }
    }
    assert_true(in_chunks > others && others > 0);
    for (unsigned number = 0; number < PIECES; number++) {
        if (!pieces[number].p)
            continue;
        check_piece(&pieces[number], number);
        store_arena_free(&a, pieces[number].p, pieces[number].in_chunk);
    }
    /* All that was free is one block again, and was given back but for a chunk. */
    assert_int_equal(a.count, 1);
    assert_true(a.has_empty);
    store_arena_destroy(&a);
}

/* What was freed is used again: the bound is of what is allocated at a time. */
TEST(test_reuse)
{
    enum { PIECES = 15000 };
    static struct piece pieces[PIECES];
    struct arena a;

    store_arena_init(&a, UINT64_C(1) << 30);
    for (unsigned round = 0; round < 6; round++) {
        size_t size = 120 - round * 16;

        for (unsigned i = 0; i < PIECES; i++) {
            if (pieces[i].p)
                store_arena_free(&a, pieces[i].p, pieces[i].in_chunk);
            pieces[i].p = store_arena_alloc(&a, size, &pieces[i].in_chunk);
            assert_true(pieces[i].in_chunk);
        }
        assert_true(a.count <= PIECES * 128 / STORE_ARENA_CHUNK + 1);
    }
    for (unsigned i = 0; i < PIECES; i++)
        store_arena_free(&a, pieces[i].p, pieces[i].in_chunk);
    assert_int_equal(a.count, 1);
    store_arena_destroy(&a);
}

/* Entries of one size that has no class of its own: where all chunks are full, each
 * that leaves makes room for another. */
TEST(test_reuse_of_large)
{
    enum { PIECES = 4 * STORE_ARENA_CHUNK / 1104 };
    static struct piece pieces[PIECES];
    uint64_t seed = 5;
    unsigned others = 0;
    struct arena a;

    store_arena_init(&a, 4 * STORE_ARENA_CHUNK);
    for (unsigned i = 0; i < PIECES; i++)
        pieces[i].p = store_arena_alloc(&a, 1090, &pieces[i].in_chunk);
    for (unsigned i = 0; i < 20 * PIECES; i++) {
        struct piece *p = &pieces[rnd_below(&seed, PIECES)];

        store_arena_free(&a, p->p, p->in_chunk);
        p->p = store_arena_alloc(&a, 1090, &p->in_chunk);
        assert_non_null(p->p);
    }
    for (unsigned i = 0; i < PIECES; i++)
        others += !pieces[i].in_chunk;
    assert_true(others < PIECES / 100);
    for (unsigned i = 0; i < PIECES; i++)
        store_arena_free(&a, pieces[i].p, pieces[i].in_chunk);
    store_arena_destroy(&a);
}

/* Mappings of this process. */
static unsigned mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    unsigned n = 0;

    assert_non_null(f);
    for (int c; (c = getc(f)) != EOF;)
        n += c == '\n';
    fclose(f);
    return n;
}

/* A process may have 65,530 mappings, and 128 GiB of chunks.  Without a limit of the
 * stack the kernel maps upwards, and chunks are apart. */
TEST(test_adjacent)
{
    enum { CHUNKS = 64 };
    static void *pieces[CHUNKS * 40];
    unsigned before = mappings();
    struct rlimit stack;
    struct arena a;
    bool in_chunk;

    store_arena_init(&a, (uint64_t)CHUNKS * STORE_ARENA_CHUNK);
    for (unsigned i = 0; i < CHUNKS * 40; i++) {
        pieces[i] = store_arena_alloc(&a, 50 << 10, &in_chunk);
        assert_true(in_chunk);
    }
    assert_int_equal(a.count, CHUNKS);
    assert_int_equal(getrlimit(RLIMIT_STACK, &stack), 0);
    assert_true(stack.rlim_cur == RLIM_INFINITY || mappings() < before + CHUNKS / 4);
    for (unsigned i = 0; i < CHUNKS * 40; i++)
        store_arena_free(&a, pieces[i], true);
    store_arena_destroy(&a);
}

/* Huge pages are asked for, or declined, by how many chunks there may be. */
TEST(test_advice)
{
    enum { FEW = 3 };

    for (size_t chunks = 1; chunks <= 2 * FEW; chunks++) {
        struct arena a;
        bool in_chunk;
        void *p;

        store_arena_init(&a, chunks * STORE_ARENA_CHUNK);
        advice = -1;
        p = store_arena_alloc(&a, 100, &in_chunk);
        assert_true(p && in_chunk);
        assert_int_equal(advice, chunks <= FEW ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
        store_arena_free(&a, p, in_chunk);
        store_arena_destroy(&a);
    }
}

/* A chunk of few takes no memory for what nothing is in. */
TEST(test_few_chunks)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *there = malloc(STORE_ARENA_CHUNK / page);
    struct arena a;
    bool in_chunk;
    size_t n = 0;
    void *p;

    assert_non_null(there);
    store_arena_init(&a, 3 * STORE_ARENA_CHUNK);
    p = store_arena_alloc(&a, 100, &in_chunk);
    assert_true(p && in_chunk);
    assert_int_equal(mincore(a.chunks, STORE_ARENA_CHUNK, there), 0);
    for (size_t i = 0; i < STORE_ARENA_CHUNK / page; i++)
        n += there[i] & 1;
    assert_in_range(n, 1, 3);
    store_arena_free(&a, p, in_chunk);
    store_arena_destroy(&a);
    free(there);
}

TEST(test_pages)
{
    static const size_t sizes[] = {8, 64, 1000, 4 << 20, (8 << 20) + 64};

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p = store_pages_alloc(sizes[i]);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t at = 0; at < sizes[i]; at++)
            assert_int_equal(p[at], 0);
        memset(p, 1, sizes[i]);
        store_pages_free(p, sizes[i]);
    }
    store_pages_free(NULL, 1);
}
