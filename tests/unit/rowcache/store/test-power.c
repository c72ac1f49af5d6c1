/* SPDX-License-Identifier: BSD-3-Clause */
/* test-power.c - the machine ends at a random point, and what was not synced is lost in
 * any order.
 *
 * A child works on a store on a disk of power-disk.h, which ends at a random call.  The
 * store is opened from what is left: it must have a prefix of the changes, in
 * QMSTORE_SYNC and up to the last qmstore_flush() all that were acknowledged.
 *
 *   store-power [SEED [RUNS]] */
#include "testing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "power-disk.h"

enum { KEYS = 250, LONGEST = 4000, CHANGES = 4000 };

static uint64_t seed = 1;

struct change {
    uint16_t key, group; /* group: how many changes are to come of the same batch */
    bool removed;
};

static struct shared {
    struct change changes[CHANGES]; /* in their order */
    unsigned begun, durable;        /* how many were called; are promised */
} * work;

static uint32_t now[KEYS]; /* the number of the change that the value is of; 0: none */

static void value_of(unsigned key, uint32_t version, char *value, size_t *len)
{
    uint64_t s = (uint64_t)key << 32 | version;

    *len = 4 + rnd(&s) % (LONGEST - 4);
    memcpy(value, &version, 4);
    for (size_t i = 4; i < *len; i++)
        value[i] = (char)(version + i * key);
}

static struct qmstore_config config(const char *path, unsigned run)
{
    struct qmstore_config c = small_config();

    c.path = path;
    c.disk = "files";
    c.policy = run % 3 == 0 ? "lfu" : run % 3 == 1 ? "lru" : "wtinylfu";
    c.durability = run % 2 ? QMSTORE_SYNC : QMSTORE_LAZY;
    c.write_buffer = 32 << 10;
    c.disk_cache = 512 << 10;
    c.log_buffer = 32 << 10;
    return c;
}

static void change(struct qmstore *s, unsigned n, bool sync, uint32_t first)
{
    static char values[4][LONGEST];
    struct qmstore_change c[4] = {0};
    uint16_t keys[4];

    if (work->begun + n > CHANGES)
        return;
    for (unsigned i = 0; i < n; i++) {
        struct change *w = &work->changes[work->begun + i];

        *w = (struct change){(uint16_t)rnd_below(&seed, KEYS), (uint16_t)(n - 1 - i),
                             rnd(&seed) % 4 == 0};
        keys[i] = w->key;
        c[i] = (struct qmstore_change){.key = &keys[i], .key_len = 2};
        if (!w->removed) {
            value_of(w->key, first + work->begun + i, values[i], &c[i].value_len);
            c[i].value = values[i];
        }
    }
    work->begun += n;
    if (n == 1 && !c[0].value) {
        int r = qmstore_delete(s, c[0].key, 2);

        assert_true(r == 0 || r == ENOENT);
    } else {
        assert_int_equal(qmstore_batch(s, c, n), 0);
    }
    if (sync)
        work->durable = work->begun;
}

static void child(const struct qmstore_config *c, uint32_t first)
{
    bool sync = c->durability == QMSTORE_SYNC;
    struct qmstore *s = open_ok(c);

    for (;;) {
        unsigned what = (unsigned)rnd_below(&seed, 1000);
        uint16_t key = (uint16_t)rnd_below(&seed, rnd(&seed) % 2 ? KEYS : KEYS / 10);
        void *value = NULL;

        if (work->begun + 4 >= CHANGES)
            power_disk_end();
        if (what < 500) {
            (void)qmstore_get(s, &key, 2, &value, NULL, NULL);
            free(value);
        } else if (what < 900) {
            change(s, 1, sync, first);
        } else if (what < 970) {
            change(s, 2 + what % 3, sync, first);
        } else if (what < 990) {
            assert_int_equal(qmstore_flush(s), 0);
            work->durable = work->begun;
        } else if (what < 995) {
            assert_int_equal(qmstore_close(s), 0);
            work->durable = work->begun;
            s = open_ok(c);
        }
    }
}

static unsigned warnings;

static void warned(void *opaque, const char *message)
{
    if (!strstr(message, "lost")) {
        printf("%s\n", message);
        warnings++;
    }
}

/* Another machine, or this one since it was started again. */
static void reboot(void)
{
    char path[200], head[72];
    uint64_t sum;
    int fd;

    snprintf(path, sizeof path, "%s/0/state", disk.image);
    fd = open(path, O_RDWR);
    if (fd == -1)
        return;
    if (read(fd, head, sizeof head) == sizeof head && head[0] == 'Q') {
        head[24] = '?';
        sum = XXH3_64bits(head, 64);
        memcpy(head + 64, &sum, sizeof sum);
        assert_int_equal(pwritev(fd, &(struct iovec){head, sizeof head}, 1, 0),
                         sizeof head);
    }
    close(fd);
}

/* What is there must be what the first j changes make, for some j. */
static void check(struct qmstore *s, uint32_t first)
{
    uint32_t found[KEYS] = {0};
    unsigned j = 0, last = UINT32_MAX, wrong;

    for (uint16_t key = 0; key < KEYS; key++) {
        char want[LONGEST], *value = NULL;
        size_t len, want_len;
        int r = qmstore_get(s, &key, 2, (void **)&value, &len, NULL);

        if (r == ENOENT)
            continue;
        if (r != 0)
            fail_msg("key %u: %s", key, strerror(r));
        assert_true(len >= 4);
        memcpy(&found[key], value, 4);
        value_of(key, found[key], want, &want_len);
        if (len != want_len || memcmp(value, want, len) != 0)
            fail_msg("key %u: a value that nobody wrote", key);
        free(value);
    }
    for (;; j++) {
        if (j >= work->durable && (j == 0 || work->changes[j - 1].group == 0)) {
            wrong = 0;
            for (unsigned key = 0; key < KEYS; key++)
                wrong += now[key] != found[key];
            if (wrong == 0 || j == work->begun)
                last = j;
            if (wrong == 0)
                break;
        }
        if (j == work->begun)
            break;
        now[work->changes[j].key] = work->changes[j].removed ? 0 : first + j;
    }
    if (last == UINT32_MAX || memcmp(now, found, sizeof now) != 0) {
        for (unsigned key = 0, shown = 0; key < KEYS && shown < 8; key++)
            if (now[key] != found[key] && ++shown)
                printf("key %u: %u is there, the last is %u\n", key, found[key],
                       now[key]);
        fail_msg("no prefix of %u changes, %u durable, first %u", work->begun,
                 work->durable, first);
    }
}

static unsigned runs = 30;

TEST_WITH(test_power, make_memory_dir, remove_test_dir)
{
    uint32_t first = 1;

    work = mmap(NULL, sizeof *work, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    assert_true(work != MAP_FAILED);
    for (unsigned run = 0; run < runs; run++) {
        struct qmstore_config c;
        struct qmstore *s;
        int status;
        pid_t pid;

        snprintf(disk.base, sizeof disk.base, "%s/%u", test_dir, run);
        snprintf(disk.image, sizeof disk.image, "%s/%u", test_dir, run + 1);
        snprintf(disk.hold, sizeof disk.hold, "%s/hold-%u", test_dir, run);
        if (run % 10 == 0) { /* a new store; the directory is there */
            remove_below(disk.base);
            memset(now, 0, sizeof now);
            first = 1;
            mkdir(disk.base, 0700);
        }
        mkdir(disk.hold, 0700);
        memset(work, 0, sizeof *work);
        c = config(disk.base, run);
        rnd(&seed);
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
            disk.seed = seed ^ 12345;
            disk.until_crash = (int)(1 + rnd_below(&seed, run % 5 == 0 ? 60 : 3000));
            power_disk_sync();
            child(&c, first);
            _exit(1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        remove_below(disk.base);
        remove_below(disk.hold);
        disk.base[0] = 0;
        reboot();
        c = config(disk.image, run);
        c.warn = warned;
        warnings = 0;
        s = open_ok(&c);
        assert_int_equal(warnings, 0);
        check(s, first);
        assert_int_equal(qmstore_close(s), 0);
        first += work->begun;
    }
}

/* In QMSTORE_NONE what was closed is there, also if the machine ends right after. */
TEST_WITH(test_closed, make_memory_dir, remove_test_dir)
{
    struct qmstore_config c;
    struct qmstore *s;
    uint16_t key = 7;
    pid_t pid;

    snprintf(disk.base, sizeof disk.base, "%s/a", test_dir);
    snprintf(disk.image, sizeof disk.image, "%s/b", test_dir);
    snprintf(disk.hold, sizeof disk.hold, "%s/hold", test_dir);
    mkdir(disk.base, 0700);
    mkdir(disk.hold, 0700);
    c = config(disk.base, 0);
    c.durability = QMSTORE_NONE;
    c.warn = warned;
    fflush(NULL);
    if ((pid = fork()) == 0) {
        s = open_ok(&c);
        assert_int_equal(qmstore_put(s, &key, 2, "v", 1, 0), 0);
        assert_int_equal(qmstore_close(s), 0);
        power_disk_end();
    }
    child_ends_well(pid);
    disk.base[0] = 0;
    c.path = disk.image;
    warnings = 0;
    s = open_ok(&c);
    assert_int_equal(warnings, 0);
    assert_int_equal(qmstore_get(s, &key, 2, NULL, NULL, NULL), 0);
    assert_int_equal(qmstore_close(s), 0);
}

/* A batch that the disk layer carried out in part: what is deleted then stays so. */
TEST_WITH(test_part, make_memory_dir, remove_test_dir)
{
    struct qmstore_config c;
    struct qmstore *s;
    char value[2000] = "v", path[80];
    int r = 0;
    uint16_t key, put;

    snprintf(path, sizeof path, "%s/part", test_dir);
    c = config(path, 1);
    c.false_positives = 0;
    s = open_ok(&c);
    disk.fail_after = 6;
    for (key = 0; key < 2000 && r == 0; key++)
        r = qmstore_put(s, &key, 2, value, sizeof value, 0);
    assert_int_equal(r, ENOSPC);
    disk.fail_after = 0;
    put = key;
    for (key = 0; key < put; key++) {
        r = qmstore_delete(s, &key, 2);
        assert_true(r == 0 || r == ENOENT);
    }
    for (unsigned i = 0; i < 2; i++) {
        for (key = 0; key < put; key++)
            assert_int_equal(qmstore_get(s, &key, 2, NULL, NULL, NULL), ENOENT);
        assert_int_equal(qmstore_close(s), 0);
        s = open_ok(&c);
        assert_int_equal(stats_of(s).keys, 0);
    }
    assert_int_equal(qmstore_close(s), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        runs = (unsigned)strtoul(argv[2], NULL, 10);
    return run_listed(NULL, NULL);
}
