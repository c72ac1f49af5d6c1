/* SPDX-License-Identifier: BSD-3-Clause */
/* test-names.c - names of records: of short keys, which are in them, and of others,
 * also where many hashes begin with the same bytes. */
#include <sys/stat.h>

#include "rowcache/store/store.h"

#include "testing.h"

static const char *const layers[] = {"lmdb", "bdb", "files"};
static uint64_t now_is = 1000000;
static bool crowded; /* hashes begin with few bits, and then zeros up to DISK_PLACE */

uint64_t __wrap_store_now(void);
struct store_hash __real_store_hash_of(const void *bytes, size_t len);
struct store_hash __wrap_store_hash_of(const void *bytes, size_t len);

/* Linked with --wrap. */
uint64_t __wrap_store_now(void)
{
    return now_is;
}

struct store_hash __wrap_store_hash_of(const void *bytes, size_t len)
{
    struct store_hash h = __real_store_hash_of(bytes, len);

    if (crowded)
        h.high = (h.high & UINT32_MAX) | (uint64_t)(h.low % 8) << 61;
    return h;
}

enum { KEYS = 3000, LENGTHS = 14, VALUE = 700 };

_Static_assert(KEYS / LENGTHS <= UINT8_MAX, "keys of a byte");

/* Keys of 1 to 14 bytes: most end with zeros, and are the beginning of longer ones. */
static size_t key_of(unsigned i, uint8_t key[LENGTHS])
{
    memset(key, 0, LENGTHS);
    key[0] = (uint8_t)(i / LENGTHS);
    return 1 + i % LENGTHS;
}

static unsigned number_of(const void *key, size_t len)
{
    const uint8_t *bytes = key;
    unsigned i = bytes[0] * LENGTHS + (unsigned)len - 1;
    uint8_t is[LENGTHS];

    assert_in_range(len, 1, LENGTHS);
    assert_in_range(i, 0, KEYS - 1);
    (void)key_of(i, is);
    assert_memory_equal(is, key, len);
    return i;
}

static struct qmstore_config config(const char *layer)
{
    struct qmstore_config c = small_config();

    c.disk = layer;
    c.policy = "lru";
    c.write_buffer = 16 << 10;
    c.disk_cache = 300 << 10;
    c.log_buffer = 16 << 10;
    return c;
}

static void put(struct qmstore *s, unsigned i, unsigned version, uint64_t expires)
{
    uint8_t key[LENGTHS];
    size_t len = key_of(i, key);
    char value[VALUE];

    memset(value, (int)(i + version), sizeof value);
    assert_int_equal(qmstore_put(s, key, len, value, sizeof value - i % 50, expires),
                     0);
}

static void check_value(unsigned i, unsigned version, const char *value, size_t len)
{
    assert_int_equal(len, VALUE - i % 50);
    for (size_t at = 0; at < len; at++)
        assert_int_equal(value[at], (char)(i + version));
}

static unsigned told[KEYS];

static int tell(void *opaque, const void *key, size_t key_len, const void *value,
                size_t value_len, uint64_t expires)
{
    unsigned i = number_of(key, key_len);

    told[i]++;
    check_value(i, *(unsigned *)opaque, value, value_len);
    return 0;
}

static void check_told(void)
{
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(told[i], 1);
    memset(told, 0, sizeof told);
}

static const struct disk_ops *below;
static unsigned batches;

/* What a layer may rely on. */
static int checked_apply(struct disk *d, const struct disk_record *changes, size_t n)
{
    for (size_t i = 1; i < n; i++)
        assert_true(store_disk_compare(changes[i - 1].name, changes[i].name) < 0);
    batches += n > 1;
    return below->apply(d, changes, n);
}

static struct qmstore *open_checked(const struct qmstore_config *c)
{
    static struct disk_ops checked;
    struct qmstore *s = open_ok(c);

    below = s->partitions[0].disk_ops;
    checked = *below;
    checked.apply = checked_apply;
    s->partitions[0].disk_ops = &checked;
    batches = 0;
    return s;
}

struct seen {
    struct disk_name last;
    unsigned short_keys, others;
};

static int see(void *opaque, const struct disk_name *name, const void *bytes,
               size_t len)
{
    struct seen *s = opaque;

    assert_true(store_disk_compare(&s->last, name) < 0);
    s->last = *name;
    if (name->len == DISK_HASH_NAME)
        s->others++;
    else if (name->len > DISK_PLACE && name->len <= DISK_PLACE + DISK_SHORT_KEY)
        s->short_keys++;
    else
        fail_msg("a name of %u bytes", name->len);
    return 0;
}

/* All records, in the order of their names, which are as the format file says. */
static void check_names(struct qmstore *s)
{
    struct partition *p = &s->partitions[0];
    struct disk_name from = {0};
    struct seen all = {0}, rest = {0};

    assert_int_equal(p->disk_ops->walk(p->disk, &from, see, &all), 0);
    assert_int_equal(all.short_keys + all.others, p->disk_copies);
    assert_true(all.others > 0);
    assert_int_equal(all.short_keys > 0, p->has_short);
    from = all.last; /* what begins behind a name */
    from.bytes[from.len++] = 0;
    assert_int_equal(p->disk_ops->walk(p->disk, &from, see, &rest), 0);
    assert_int_equal(rest.short_keys + rest.others, 0);
    assert_int_equal(p->disk_ops->walk(p->disk, &all.last, see, &rest), 0);
    assert_int_equal(rest.short_keys + rest.others, 1);
}

static void check_scan(struct qmstore *s, uint64_t cursor, unsigned version)
{
    unsigned calls = 0;

    do {
        assert_int_equal(qmstore_scan(s, &cursor, tell, &version), 0);
        assert_true(++calls <= KEYS);
        /* A range has all names that begin with the same, or none. */
        assert_true(cursor * 256 % (UINT64_C(1) << 8 * DISK_PLACE) == 0);
    } while (cursor != 0);
    check_told();
}

static void check_all(struct qmstore *s, unsigned version)
{
    assert_int_equal(stats_of(s).keys, KEYS);
    assert_int_equal(stats_of(s).damaged, 0);
    assert_true(stats_of(s).disk_keys > KEYS / 3);
    assert_int_equal(qmstore_each(s, tell, &version), 0);
    check_told();
    check_scan(s, 0, version);
    check_scan(s, UINT32_MAX / 256, version); /* the last of the first names' */
    for (unsigned i = 0; i < KEYS; i++) {
        uint8_t key[LENGTHS];
        size_t len = key_of(i, key);
        char *value;

        assert_int_equal(qmstore_get(s, key, len, (void **)&value, &len, NULL), 0);
        check_value(i, version, value, len);
        free(value);
    }
}

/* Ends those of the keys whose number is a multiple of that; sweeps find them, also
 * behind many names that begin with the same and stay. */
static void check_sweep(struct qmstore *s, unsigned each)
{
    struct partition *p = &s->partitions[0];
    unsigned left = KEYS - (KEYS + each - 1) / each;

    for (unsigned i = 0; i < KEYS; i++)
        put(s, i, 3, i % each == 0 ? now_is + 1000 : 0);
    assert_true(stats_of(s).disk_keys > KEYS / 3);
    now_is += 1000;
    for (unsigned n = 0; n < KEYS && stats_of(s).keys > left; n++)
        store_partition_sweep(p);
    assert_int_equal(stats_of(s).keys, left);
    assert_int_equal(store_buffer_write(p), 0);
    assert_true(p->disk_copies <= left);
}

static void work(const char *layer, const char *format)
{
    struct qmstore_config c = config(layer);
    struct qmstore *s;

    if (format) {
        char name[100];
        FILE *f;

        snprintf(name, sizeof name, "%s/qmstore", test_dir);
        assert_non_null(f = fopen(name, "we"));
        assert_true(fprintf(f, format, layer) > 0);
        assert_int_equal(fclose(f), 0);
    }
    s = open_checked(&c);
    for (unsigned version = 1; version <= 2; version++) {
        for (unsigned i = 0; i < KEYS; i++)
            put(s, i, version, 0);
        check_all(s, version);
    }
    assert_true(batches > 10);
    check_names(s);
    assert_int_equal(qmstore_close(s), 0);
    s = open_ok(&c);
    check_all(s, 2);
    check_names(s);
    check_sweep(s, 20);
    check_sweep(s, 1);
    assert_int_equal(qmstore_close(s), 0);
    s = open_ok(&c);
    assert_int_equal(stats_of(s).keys, 0);
    assert_int_equal(stats_of(s).damaged, 0);
    assert_int_equal(qmstore_close(s), 0);
}

static void work_all(const char *format)
{
    for (unsigned i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        if (!store_disk_find(layers[i]))
            continue;
        work(layers[i], format);
        remove_below(test_dir);
        assert_int_equal(mkdir(test_dir, 0700), 0);
    }
}

TEST_WITH(test_short_keys, make_memory_dir, remove_test_dir)
{
    crowded = false;
    work_all(NULL);
}

TEST_WITH(test_crowded, make_memory_dir, remove_test_dir)
{
    crowded = true;
    work_all(NULL);
    crowded = false;
}

/* A store of version 2 has no names with keys, and gets none. */
TEST_WITH(test_version_2, make_memory_dir, remove_test_dir)
{
    crowded = false;
    work_all("qmstore 2\npartitions 1\ndisk %s\nhash 12\n");
}

/* Names are in the order of hashes, as far as lines of the table are, and tell them. */
TEST(test_hashes)
{
    struct partition p = {.hash = DISK_HASH_NAME, .has_short = true};
    struct disk_name misfit;

    for (unsigned i = 0; i < KEYS; i++) {
        uint8_t bytes[LENGTHS];
        struct store_key key = {.bytes = bytes, .len = (uint16_t)key_of(i, bytes)};
        struct disk_name name, from;
        struct store_hash h;

        key.hash = store_hash_of(bytes, key.len);
        name = store_name_of(&p, &key);
        h = store_name_hash(&name);
        assert_true(store_hash_same(h, key.hash));
        assert_int_equal(store_disk_has_key(&name), key.len <= DISK_SHORT_KEY);
        from = store_name_from(key.hash.high);
        assert_true(store_disk_compare(&from, &name) < 0);
        from = store_name_from(key.hash.high + (UINT64_C(1) << 32));
        assert_true(from.len == DISK_PLACE && store_disk_compare(&name, &from) < 0);
        if (!store_disk_has_key(&name))
            continue;
        misfit = name; /* the place of another key */
        misfit.bytes[3] ^= 1;
        h = store_name_hash(&misfit);
        assert_false(store_hash_same(h, key.hash));
        assert_int_equal(h.high >> 32, (key.hash.high >> 32) ^ 1);
    }
}
