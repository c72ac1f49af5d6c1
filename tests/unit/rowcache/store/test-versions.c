/* SPDX-License-Identifier: BSD-3-Clause */
/* test-versions.c - records as bytes, and stores of version 1: they are read, and
 * changed, and an earlier library does not open what became of them. */
#include <glob.h>
#include <sys/stat.h>

#include "rowcache/store/store.h"

#include "records-1.h"
#include "testing.h"

enum { KEYS = 6000, EXPIRING = 7 };

static const uint64_t later = UINT64_C(40000000000000); /* ms */
static const char *const layers[] = {"lmdb", "bdb", "files"};
static unsigned warnings;

static void warn(void *opaque, const char *text)
{
    warnings++;
}

static struct qmstore_config config(const char *layer)
{
    struct qmstore_config c = small_config();

    c.disk = layer;
    c.policy = "lru";
    c.write_buffer = 16 << 10;
    c.disk_cache = 256 << 10;
    c.log_buffer = 16 << 10;
    c.warn = warn;
    return c;
}

static void write_format(const char *text)
{
    char name[100];
    FILE *f;

    snprintf(name, sizeof name, "%s/qmstore", test_dir);
    f = fopen(name, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void check_format(const char *text)
{
    char name[100], is[200] = "";
    FILE *f;

    snprintf(name, sizeof name, "%s/qmstore", test_dir);
    f = fopen(name, "re");
    assert_non_null(f);
    is[fread(is, 1, sizeof is - 1, f)] = 0;
    fclose(f);
    assert_string_equal(is, text);
}

/* Records have names of that many bytes (with keys in them of 8); with the layer files,
 * of two digits each. */
static void check_names(const struct qmstore_config *c, unsigned bytes)
{
    char pattern[100];
    glob_t names;

    if (strcmp(c->disk, "files") != 0)
        return;
    snprintf(pattern, sizeof pattern, "%s/0/disk/*/*", test_dir);
    assert_int_equal(glob(pattern, 0, NULL, &names), 0);
    for (size_t i = 0; i < names.gl_pathc; i++)
        assert_int_equal(strlen(strrchr(names.gl_pathv[i], '/') + 1), 2 * bytes);
    globfree(&names);
}

static void put(struct qmstore *s, unsigned key, unsigned version)
{
    char value[600];
    size_t len = (size_t)snprintf(value, sizeof value, "%u of %u", version, key);

    len += key % 60 * 8;
    memset(value + len - key % 60 * 8, 'x', key % 60 * 8);
    assert_int_equal(qmstore_put(s, &key, sizeof key, value, len,
                                 key % EXPIRING == 0 ? later + key : 0),
                     0);
}

static void check(struct qmstore *s, unsigned key, unsigned version)
{
    char want[100], *value;
    size_t n = (size_t)snprintf(want, sizeof want, "%u of %u", version, key), len;
    uint64_t expires;

    assert_int_equal(qmstore_get(s, &key, sizeof key, (void **)&value, &len, &expires),
                     0);
    assert_int_equal(len, n + key % 60 * 8);
    assert_memory_equal(value, want, n);
    assert_true(expires == (key % EXPIRING == 0 ? later + key : 0));
    free(value);
}

static void check_all(struct qmstore *s, unsigned changed)
{
    struct qmstore_stats stats = stats_of(s);

    assert_int_equal(stats.keys, KEYS);
    assert_int_equal(stats.damaged, 0);
    assert_true(stats.disk_keys > KEYS / 4);
    for (unsigned key = 0; key < KEYS; key++)
        check(s, key, key < changed ? 2 : 1);
    assert_int_equal(stats_of(s).damaged, 0);
    assert_int_equal(warnings, 0);
}

static void work(const char *layer)
{
    struct qmstore_config c = config(layer);
    char text[100];
    struct qmstore *s;

    warnings = 0;
    snprintf(text, sizeof text, "qmstore 1\npartitions 1\ndisk %s\n", layer);
    write_format(text);
    version_1 = true;
    s = open_ok(&c);
    for (unsigned key = 0; key < KEYS; key++)
        put(s, key, 1);
    assert_int_equal(qmstore_close(s), 0);
    write_format(text); /* as an earlier library left it */
    version_1 = false;

    s = open_ok(&c);
    snprintf(text, sizeof text, "qmstore 2\npartitions 1\ndisk %s\nhash 16\n", layer);
    check_format(text);
    check_all(s, 0);
    for (unsigned key = 0; key < KEYS / 2; key++)
        put(s, key, 2);
    check_all(s, KEYS / 2);
    assert_int_equal(s->partitions[0].hash, DISK_HASH);
    assert_int_equal(qmstore_close(s), 0);
    check_names(&c, DISK_HASH);
    s = open_ok(&c);
    check_all(s, KEYS / 2);
    for (unsigned key = 0; key < KEYS; key++)
        assert_int_equal(qmstore_delete(s, &key, sizeof key), 0);
    assert_int_equal(stats_of(s).keys, 0);
    assert_int_equal(qmstore_close(s), 0);
    s = open_ok(&c);
    assert_int_equal(stats_of(s).keys, 0);
    assert_int_equal(qmstore_close(s), 0);
    check_format(text);
}

TEST_WITH(test_version_1, make_memory_dir, remove_test_dir)
{
    for (unsigned i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        if (!store_disk_find(layers[i]))
            continue;
        work(layers[i]);
        remove_below(test_dir);
        assert_int_equal(mkdir(test_dir, 0700), 0);
    }
}

static void refuse(const char *text)
{
    struct qmstore_config c = config("files");
    char err[400] = "";
    struct qmstore *s;

    write_format(text);
    assert_int_equal(qmstore_open(&c, &s, err, sizeof err), ENOTEMPTY);
    assert_non_null(strstr(err, "version 1, 2 or 3"));
    check_format(text);
}

/* A store that was made now; one whose version a crash left half raised; others. */
TEST_WITH(test_format, make_memory_dir, remove_test_dir)
{
    struct qmstore_config c = config("files");
    struct qmstore *s = open_ok(&c);
    char command[300];

    check_format("qmstore 3\npartitions 1\ndisk files\nhash 12\nshort 7\n");
    for (unsigned key = 0; key < KEYS; key++)
        put(s, key, 1);
    assert_int_equal(qmstore_close(s), 0);
    check_names(&c, DISK_PLACE + sizeof(unsigned));
    snprintf(command, sizeof command,
             "set -- %s/0/disk/*/*; for f in $1 $2; do cp $f ${f}0; "
             "cp $f ${f}0000000000000000; cp $f ${f%%????????}; done",
             test_dir);
    assert_int_equal(system(command), 0); /* no names of this version */
    s = open_ok(&c);
    assert_int_equal(stats_of(s).keys, KEYS);
    check_format("qmstore 3\npartitions 1\ndisk files\nhash 12\nshort 7\n");
    assert_int_equal(qmstore_close(s), 0);
    refuse("qmstore 4\npartitions 1\ndisk files\nhash 12\nshort 7\n");
    refuse("qmstore 3\npartitions 1\ndisk files\nhash 12\nshort 8\n");
    refuse("qmstore 3\npartitions 1\ndisk files\nhash 16\nshort 7\n");
    refuse("qmstore 3\npartitions 1\ndisk files\nhash 12\n");
    refuse("qmstore 2\npartitions 1\ndisk files\nhash 12\nshort 7\n");
    refuse("qmstore 2\npartitions 1\ndisk files\nhash 13\n");
    refuse("qmstore 2\npartitions 1\ndisk files\n");
    refuse("qmstore 1\npartitions 1\n");
    remove_below(test_dir);
    assert_int_equal(mkdir(test_dir, 0700), 0);
    write_format("qmstore 1\npartitions 1\ndisk files\nhash 16\n");
    s = open_ok(&c);
    check_format("qmstore 2\npartitions 1\ndisk files\nhash 16\n");
    assert_int_equal(qmstore_close(s), 0);
    c.partitions = 2; /* a store that is refused is not changed */
    write_format("qmstore 1\npartitions 1\ndisk files\n");
    assert_int_equal(qmstore_open(&c, &s, NULL, 0), EINVAL);
    check_format("qmstore 1\npartitions 1\ndisk files\n");
}

static const uint32_t lengths[] = {1, 4, 63, 64, 127, 128, 16383, 16384, 65535};
static const uint32_t numbers[] = {0, 1, 127, 128, 16384, 1 << 28, UINT32_MAX};
static const uint64_t lives[] = {0, 1, 1700000000000, UINT64_MAX};

static void check_record(const struct disk_record *r)
{
    size_t len = store_disk_size(r);
    uint8_t *bytes = malloc(len); /* of that length, for the sanitizer */
    struct disk_record is;

    store_disk_pack(r, bytes);
    assert_int_equal(store_disk_unpack(NULL, bytes, len, &is), 0);
    assert_int_equal(is.key_len, r->key_len);
    assert_int_equal(is.value_len, r->value_len);
    assert_int_equal(is.frequency, r->frequency);
    assert_true(is.expires == r->expires);
    assert_memory_equal(is.key, r->key, r->key_len);
    assert_memory_equal(is.value, r->value, r->value_len);
    assert_int_equal(store_disk_unpack_1(bytes, len, &is), EBADMSG);
    free(bytes);
}

TEST(test_records)
{
    static char key[65535], value[1000];

    memset(key, 'k', sizeof key);
    memset(value, 'v', sizeof value);
    for (unsigned l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
        for (unsigned f = 0; f < sizeof numbers / sizeof numbers[0]; f++)
            for (unsigned x = 0; x < sizeof lives / sizeof lives[0]; x++)
                for (uint32_t n = 0; n <= sizeof value; n += 500) {
                    struct disk_record r = {.expires = lives[x],
                                            .frequency = numbers[f],
                                            .key = key,
                                            .value = value,
                                            .value_len = n,
                                            .key_len = (uint16_t)lengths[l]};

                    check_record(&r);
                }
    /* A key of 4 bytes that was asked for rarely and ends never. */
    assert_int_equal(store_disk_size(&(struct disk_record){
                         .frequency = 100, .key_len = 4, .value_len = 64}),
                     6 + 4 + 64);
}

/* Any byte that is wrong, and any that is missing. */
TEST(test_damage)
{
    struct disk_record r = {.expires = 1700000000000,
                            .frequency = 300,
                            .key = "a key",
                            .value = "and its value",
                            .value_len = 13,
                            .key_len = 5},
                       is;
    size_t len = store_disk_size(&r);
    uint8_t *bytes = malloc(len);

    store_disk_pack(&r, bytes);
    for (size_t at = 0; at < len; at++) {
        uint8_t *cut = malloc(at + 1);

        memcpy(cut, bytes, at);
        assert_int_equal(store_disk_unpack(NULL, cut, at, &is), EBADMSG);
        free(cut);
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[at] ^= (uint8_t)(1u << bit);
            assert_int_equal(store_disk_unpack(NULL, bytes, len, &is), EBADMSG);
            bytes[at] ^= (uint8_t)(1u << bit);
        }
    }
    free(bytes);
}

/* Records whose checksum is right and which are none: nothing behind them is read. */
TEST(test_no_records)
{
    static const struct {
        uint8_t bytes[12];
        size_t len;
    } none[] = {
        {{0x84}, 1},                                       /* no frequency */
        {{0x84, 0x80}, 2},                                 /* half of one */
        {{0x81, 0x80, 0x80, 0x80, 0x80, 0x10, 'k'}, 7},    /* of 33 bits */
        {{0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 'k'}, 8}, /* of 6 bytes */
        {{0x80, 1}, 2},                                    /* no length */
        {{0x80, 1, 0, 'k'}, 4},                            /* an empty key */
        {{0x80, 1, 0x80, 0x80, 4, 'k'}, 6},                /* of 65536 bytes */
        {{0x82, 1, 'k'}, 3},                               /* shorter than it says */
        {{0xc1, 1, 1, 2, 3, 4, 5, 6, 7}, 9},               /* half of a time */
        {{0x01, 1, 'k'}, 3},                               /* of another kind */
    };

    for (unsigned i = 0; i < sizeof none / sizeof none[0]; i++) {
        size_t len = 4 + none[i].len;
        uint8_t *bytes = malloc(len);
        struct disk_record r;
        uint32_t sum;

        memcpy(bytes + 4, none[i].bytes, none[i].len);
        sum = htole32((uint32_t)XXH3_64bits(bytes + 4, none[i].len));
        memcpy(bytes, &sum, 4);
        if (store_disk_unpack(NULL, bytes, len, &r) != EBADMSG)
            fail_msg("record %u", i);
        free(bytes);
    }
}

/* A record whose key is in its name: any byte that is wrong in either, and another's
 * name. */
TEST(test_short)
{
    static const struct disk_name none = {0};
    struct disk_name name = {DISK_PLACE + 5, "hasha key"}, other = name;
    struct disk_record r = {.name = &name,
                            .expires = 1700000000000,
                            .frequency = 300,
                            .key = name.bytes + DISK_PLACE,
                            .value = "and its value",
                            .value_len = 13,
                            .key_len = 5},
                       is;
    size_t len = store_disk_size(&r);
    uint8_t *bytes = malloc(len);

    assert_int_equal(len, 4 + 1 + 2 + 8 + 13);
    store_disk_pack(&r, bytes);
    assert_int_equal(store_disk_unpack(&name, bytes, len, &is), 0);
    assert_int_equal(is.key_len, 5);
    assert_memory_equal(is.key, "a key", 5);
    assert_int_equal(is.value_len, 13);
    assert_memory_equal(is.value, "and its value", 13);
    assert_true(is.expires == r.expires && is.frequency == 300);
    for (size_t at = 0; at < len; at++) {
        assert_int_equal(store_disk_unpack(&name, bytes, at, &is), EBADMSG);
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[at] ^= (uint8_t)(1u << bit);
            assert_int_equal(store_disk_unpack(&name, bytes, len, &is), EBADMSG);
            bytes[at] ^= (uint8_t)(1u << bit);
        }
    }
    for (unsigned at = DISK_PLACE; at < name.len; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            other.bytes[at] ^= (uint8_t)(1u << bit);
            assert_int_equal(store_disk_unpack(&other, bytes, len, &is), EBADMSG);
            other.bytes[at] ^= (uint8_t)(1u << bit);
        }
    for (other.len = 0; other.len <= DISK_HASH; other.len++)
        assert_int_equal(store_disk_unpack(&other, bytes, len, &is),
                         other.len == name.len ? 0 : EBADMSG);
    assert_int_equal(store_disk_unpack(&none, bytes, len, &is), EBADMSG);
    assert_int_equal(store_disk_unpack(NULL, bytes, len, &is), EBADMSG);
    /* The place is no part of the checksum: it is compared with the key's hash. */
    name = (struct disk_name){DISK_PLACE + 5, "othra key"};
    assert_int_equal(store_disk_unpack(&name, bytes, len, &is), 0);
    assert_int_equal(
        store_record_unpack(&name, store_name_hash(&name), bytes, len, &is), EBADMSG);
    free(bytes);
}

/* A record of version 1 has its key: it is none of a name that has it, too. */
TEST(test_short_1)
{
    const struct partition short_keys = {.hash = DISK_HASH_NAME, .has_short = true},
                           others = {.hash = DISK_HASH};
    const struct store_key key = {store_hash_of("a key", 5), "a key", 5};
    struct disk_name with = store_name_of(&short_keys, &key),
                     without = store_name_of(&others, &key);
    struct disk_record r = {.frequency = 1, .key = key.bytes, .key_len = key.len}, is;
    uint8_t bytes[HEAD_1 + 5];

    pack_1(&r, bytes);
    assert_int_equal(store_record_unpack(&without, key.hash, bytes, sizeof bytes, &is),
                     0);
    assert_int_equal(store_record_unpack(&with, key.hash, bytes, sizeof bytes, &is),
                     EBADMSG);
}

/* Records of short keys whose checksum is right and which are none. */
TEST(test_no_short)
{
    static const struct {
        uint8_t bytes[12];
        size_t len;
    } none[] = {
        {{0x84, 1, 'v'}, 3}, /* of another length than its name's */
        {{0x86, 1, 'v'}, 3},     {{0x80, 1, 0, 'v'}, 4}, {{0x85}, 1}, /* no frequency */
        {{0xc5, 1, 1, 2, 3}, 5}, /* half of a time */
        {{0x05, 1, 'v'}, 3},     /* of another kind */
    };
    const struct disk_name name = {DISK_PLACE + 5, "hasha key"};

    for (unsigned i = 0; i <= sizeof none / sizeof none[0]; i++) {
        static const uint8_t right[] = {0x85, 1, 'v'};
        bool is_right = i == sizeof none / sizeof none[0];
        size_t n = is_right ? sizeof right : none[i].len, len = 4 + n;
        uint8_t *bytes = malloc(len);
        struct disk_record r;
        uint64_t seed = 0;
        uint32_t sum;

        memcpy(bytes + 4, is_right ? right : none[i].bytes, n);
        memcpy(&seed, "a key", 5);
        seed = le64toh(seed) | (uint64_t)name.len << 56;
        sum = htole32((uint32_t)XXH3_64bits_withSeed(bytes + 4, n, seed));
        memcpy(bytes, &sum, 4);
        if (store_disk_unpack(&name, bytes, len, &r) != (is_right ? 0 : EBADMSG))
            fail_msg("record %u", i);
        free(bytes);
    }
}

/* The names of version 3 are none in a store of version 2: LMDB's file is no such one.
 */
TEST_WITH(test_names_of_another, make_memory_dir, remove_test_dir)
{
    struct qmstore_config c = config("lmdb");
    struct qmstore *s;

    if (!store_disk_find("lmdb"))
        skip();
    s = open_ok(&c);
    for (unsigned key = 0; key < KEYS; key++)
        put(s, key, 1);
    assert_int_equal(qmstore_close(s), 0);
    write_format("qmstore 2\npartitions 1\ndisk lmdb\nhash 12\n");
    warnings = 0;
    s = open_ok(&c);
    assert_int_equal(warnings, 2); /* what is damaged, and that it is set aside */
    assert_int_equal(stats_of(s).keys, 0);
    assert_int_equal(qmstore_close(s), 0);
}

/* Keys whose hashes differ behind the bytes that name a record are one to the disk
 * layer: what differs earlier is not. */
TEST(test_names)
{
    struct store_hash a = {.high = 7, .low = 1, .rest = 1}, b = a;
    struct disk_name name = {.len = DISK_HASH_NAME};
    uint8_t bytes[DISK_HASH];

    store_hash_bytes(a, bytes);
    assert_true(store_hash_same(store_hash_from(bytes), a));
    assert_int_equal(store_hash_from(bytes).rest, 1);
    memcpy(name.bytes, bytes, DISK_HASH_NAME);
    assert_true(store_hash_same(store_name_hash(&name), a));
    assert_int_equal(store_name_hash(&name).rest, 0);
    b.rest = 2;
    assert_true(store_hash_same(a, b));
    b.low = 2;
    assert_false(store_hash_same(a, b));
}
