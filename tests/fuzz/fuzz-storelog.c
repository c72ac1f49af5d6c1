/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-storelog.c - a write-ahead log of the hybrid store that was damaged.
 *
 * The first byte is bits: checksums are made good after the damage, so that what is
 * behind them is read; the file is cut, the second byte says where; the machine has
 * another boot id; the last process did not close the log; the damage is in the state
 * file, too.  The rest is damage: where (2 bytes), how many bytes (1), which.
 *
 * Promised: it opens, or says why not; with checksums as they were found, the records
 * that are handed over are those that were appended, from the first on, in whole
 * batches, and a whole record behind them means that the file is damaged; what was cut
 * off stays away when the log goes on. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz.h"
#include "rowcache/store/log.h"

enum { GOOD = 1, CUT = 2, REBOOT = 4, KILLED = 8, STATE = 16 };
enum { RECORDS = 24, LONGEST = 90, HEADER = 24, HEAD = 40, STATE_SIZE = 4096 };

/* As state.c has it. */
struct state {
    char magic[8];
    uint32_t clean, durability;
    uint64_t acknowledged;
    char boot[40];
    uint64_t checksum;
};

struct image {
    char bytes[RECORDS * (HEAD + 2 * LONGEST) + HEADER];
    size_t length;
};

static struct image good, image;
static char good_state[STATE_SIZE], state[STATE_SIZE];
static size_t begins[RECORDS + 1]; /* of each record in the file */
static int dir = -1;

static struct store_log_record record_of(unsigned i, char *bytes)
{
    unsigned key = 1 + i * 7 % 30, value = i % 5 ? i * 13 % LONGEST : 0;

    memset(bytes, (int)('a' + i), key + value);
    return (struct store_log_record){
        .expires = i * 100,
        .frequency = i,
        .key = bytes,
        .key_len = (uint16_t)key,
        .value = bytes + key,
        .value_len = i % 6 == 5 ? 0 : value,
        .dead = i % 6 == 5,
        .more = i % 8 == 2 || i % 8 == 3,
    };
}

struct handed {
    unsigned count;
    bool exact, more;
};

static int see(void *opaque, const struct store_log_record *r)
{
    struct handed *h = opaque;
    char bytes[2 * LONGEST];
    volatile char sum = 0;

    promise(r->key_len > 0);
    for (size_t i = 0; i < r->key_len; i++)
        sum ^= ((const char *)r->key)[i];
    for (size_t i = 0; i < r->value_len; i++)
        sum ^= ((const char *)r->value)[i];
    if (h->exact && h->count < RECORDS) {
        struct store_log_record want = record_of(h->count, bytes);

        promise(r->sequence == h->count + 1 && r->expires == want.expires &&
                r->frequency == want.frequency && r->key_len == want.key_len &&
                r->value_len == want.value_len && r->dead == want.dead &&
                r->more == want.more);
        promise(memcmp(r->key, bytes, want.key_len + want.value_len) == 0);
    }
    h->more = r->more;
    h->count++;
    return 0;
}

static int open_log(struct store_log *l, struct handed *h, uint64_t *lost,
                    bool *damaged)
{
    enum qmstore_durability was;
    bool clean;

    *lost = 0;
    return store_log_open(l, dir, "log", "state", QMSTORE_LAZY, 4096, see, h, lost,
                          &clean, &was, damaged);
}

static void read_file(const char *name, char *bytes, size_t size, size_t *length)
{
    int fd = openat(dir, name, O_RDONLY);
    ssize_t n = read(fd, bytes, size);

    promise(fd != -1 && n > 0);
    close(fd);
    *length = (size_t)n;
}

static void write_file(const char *name, const char *bytes, size_t length)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    promise(fd != -1 && write(fd, bytes, length) == (ssize_t)length);
    close(fd);
}

static char path[64];

static void remove_files(void)
{
    unlinkat(dir, "log", 0);
    unlinkat(dir, "state", 0);
    rmdir(path);
}

static void make_image(void)
{
    struct handed none = {0};
    struct store_log l;
    char bytes[2 * LONGEST];
    uint64_t lost;
    bool damaged;
    size_t n;

    if (dir != -1)
        return;
    snprintf(path, sizeof path, "%s/fuzz-storelog.XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    promise(mkdtemp(path) != NULL);
    dir = open(path, O_RDONLY | O_DIRECTORY);
    atexit(remove_files);
    promise(open_log(&l, &none, &lost, &damaged) == 0);
    begins[0] = HEADER;
    for (unsigned i = 0; i < RECORDS; i++) {
        struct store_log_record r = record_of(i, bytes);

        promise(store_log_append(&l, &r) == 0);
        begins[i + 1] = begins[i] + HEAD + r.key_len + r.value_len;
    }
    promise(store_log_commit(&l, RECORDS) == 0 && store_log_write(&l, true) == 0);
    store_log_close(&l, true);
    read_file("log", good.bytes, sizeof good.bytes, &good.length);
    promise(good.length == begins[RECORDS]);
    read_file("state", good_state, sizeof good_state, &n);
}

static void damage(struct food *f, uint8_t how)
{
    while (f->left > 3) {
        size_t at = (size_t)eat_number(f, 2), n = 1 + eat_number(f, 1) % 32;
        char *bytes = image.bytes;
        size_t size = image.length;

        if (how & STATE && at >= 0x8000) {
            bytes = state;
            size = sizeof(struct state);
        }
        at = size ? at % size : 0;
        if (n > size - at)
            n = size - at;
        eat(f, bytes + at, n);
    }
}

static void seal_state(void)
{
    uint64_t sum = XXH3_64bits(state, offsetof(struct state, checksum));

    memcpy(state + offsetof(struct state, checksum), &sum, sizeof sum);
}

static void make_good(void)
{
    uint64_t sum;
    uint32_t key, value;

    if (image.length < HEADER)
        return;
    sum = XXH3_64bits(image.bytes, 16);
    memcpy(image.bytes + 16, &sum, 8);
    for (size_t at = HEADER, len; image.length - at >= HEAD; at += len) {
        memcpy(&value, image.bytes + at + 28, 4);
        memcpy(&key, image.bytes + at + 32, 4);
        len = HEAD + (uint64_t)key + value;
        if (len > image.length - at)
            return;
        sum = XXH3_64bits(image.bytes + at + 8, len - 8);
        memcpy(image.bytes + at, &sum, 8);
    }
}

static bool is_whole(unsigned i)
{
    return image.length >= begins[i + 1] &&
           memcmp(image.bytes + begins[i], good.bytes + begins[i],
                  begins[i + 1] - begins[i]) == 0;
}

static void check_exact(const struct handed *h, bool damaged, bool only_cut,
                        bool may_be_torn)
{
    bool whole = false;
    unsigned torn = h->count;

    promise(h->count <= RECORDS && !h->more);
    for (unsigned i = 0; i < h->count; i++)
        promise(is_whole(i));
    while (torn < RECORDS && is_whole(torn)) /* of the batch that is torn */
        torn++;
    for (unsigned i = torn + 1; i < RECORDS; i++)
        whole |= is_whole(i);
    promise(may_be_torn || damaged || !whole);
    promise(!damaged || !only_cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct food f = {data, size};
    struct handed first = {0}, second = {0};
    struct store_log_record added = {.key = "added", .key_len = 5};
    struct store_log l;
    uint8_t how = (uint8_t)eat_number(&f, 1);
    struct state s;
    bool damaged, exact = !(how & GOOD), only_cut;
    uint64_t lost;
    int r;

    make_image();
    image = good;
    memcpy(state, good_state, sizeof state);
    memcpy(&s, state, sizeof s);
    s.clean = !(how & KILLED);
    s.boot[0] ^= how & REBOOT ? 1 : 0;
    memcpy(state, &s, sizeof s);
    seal_state();
    if (how & CUT)
        image.length = image.length * eat_number(&f, 1) / 256;
    only_cut = f.left <= 3;
    damage(&f, how);
    if (how & GOOD) {
        make_good();
        seal_state();
    }
    write_file("log", image.bytes, image.length);
    write_file("state", state, sizeof state);

    first.exact = second.exact = exact;
    r = open_log(&l, &first, &lost, &damaged);
    promise(r == 0 || r == EBADMSG);
    promise(r == 0 || !exact || !only_cut || image.length < HEADER);
    if (r == 0 && exact && image.length >= HEADER) {
        check_exact(&first, damaged, only_cut,
                    how & STATE || (how & REBOOT && how & KILLED));
        promise(how & STATE || lost == RECORDS - first.count);
    }
    if (r != 0 || damaged) { /* the store sets it aside */
        store_log_close(&l, false);
        return 0;
    }
    /* It goes on, and is found again as it was. */
    promise(store_log_append(&l, &added) == 0 && store_log_write(&l, false) == 0);
    store_log_close(&l, false);
    second.exact = false;
    promise(open_log(&l, &second, &lost, &damaged) == 0 && !damaged);
    promise(second.count == first.count + 1);
    store_log_close(&l, true);
    return 0;
}
