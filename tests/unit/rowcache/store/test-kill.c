/* SPDX-License-Identifier: BSD-3-Clause */
/* test-kill.c - a process with four writers is killed at random moments, again and
 * again over the same store, and what the next process finds is compared with what they
 * did.
 *
 * Each writer has keys of its own and writes down, in memory that outlives it, what it
 * does before it does it, and how far it was acknowledged.  What is found must be what
 * the first k changes of each writer made, for some k: with QMSTORE_SYNC at least those
 * that were acknowledged, with QMSTORE_LAZY as many less as qmstore_open() says, which
 * is at most what fits into the log's buffers; with QMSTORE_NONE nothing, and a
 * warning.
 *
 *   store-kill [KILLS [SEED]]     of each durability and disk layer */
#include <signal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "testing.h"

enum {
    WRITERS = 4,
    KEYS = 600,
    CHANGES = 200000,
    LOG_BUFFER = 16 << 10,
    LONGEST = 1500
};

struct writer {
    uint32_t began; /* changes that may have been made */
    _Atomic uint32_t acknowledged;
    uint16_t keys[CHANGES]; /* of each change */
    bool deletes[CHANGES];
    bool idle[CHANGES]; /* there was nothing to delete */
};

static struct shared {
    struct writer writers[WRITERS];
} * shared;

/* The value's number of each key, as the last process that was looked at had it; 0:
 * none. */
static uint64_t known[WRITERS][KEYS];
static uint64_t seed = 1;
static unsigned kills = 25, round_number, warnings;
static struct qmstore *store;

static void warn(void *opaque, const char *message)
{
    warnings++;
}

static size_t value_of(uint64_t number, char *value)
{
    uint64_t s = number;
    size_t len = 8 + rnd(&s) % LONGEST;

    memcpy(value, &number, 8);
    for (size_t i = 8; i < len; i++)
        value[i] = (char)(number + i);
    return len;
}

static uint64_t number_of(unsigned change)
{
    return (uint64_t)(round_number + 1) << 32 | change;
}

static void *write_on(void *opaque)
{
    unsigned number = (unsigned)(uintptr_t)opaque;
    struct writer *w = &shared->writers[number];
    uint64_t s = seed * 31 + round_number * 7 + number;
    char value[LONGEST + 8], key[32];

    for (uint32_t i = 0; i < CHANGES; i++) {
        unsigned k = (unsigned)rnd_below(&s, rnd(&s) % 2 ? KEYS : KEYS / 20);
        size_t len = (size_t)sprintf(key, "%u:%u", number, k);
        int r;

        w->keys[i] = (uint16_t)k;
        w->deletes[i] = rnd(&s) % 8 == 0;
        w->began = i + 1;
        if (w->deletes[i])
            r = qmstore_delete(store, key, len);
        else
            r = qmstore_put(store, key, len, value, value_of(number_of(i), value), 0);
        w->idle[i] = w->deletes[i] && r == ENOENT;
        if (r != 0 && !w->idle[i])
            _exit(1);
        atomic_store(&w->acknowledged, i + 1);
        if (rnd(&s) % 4 == 0) { /* readers restore keys */
            void *v;

            if (qmstore_get(store, key, len, &v, NULL, NULL) == 0)
                free(v);
        }
    }
    pause();
    return NULL;
}

static _Noreturn void live(const struct qmstore_config *c)
{
    pthread_t threads[WRITERS];

    store = open_ok(c);
    for (uintptr_t i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, write_on, (void *)i);
    for (;;)
        pause();
}

static uint64_t found_at(struct qmstore *s, unsigned writer, unsigned key)
{
    char name[32], want[LONGEST + 8];
    size_t len, name_len = (size_t)sprintf(name, "%u:%u", writer, key);
    uint64_t number;
    void *value;
    int r = qmstore_get(s, name, name_len, &value, &len, NULL);

    if (r == ENOENT)
        return 0;
    assert_int_equal(r, 0);
    memcpy(&number, value, 8);
    assert_int_equal(len, value_of(number, want));
    assert_memory_equal(value, want, len);
    free(value);
    return number;
}

/* How many of a writer's changes it can be that were made: *least to *most. */
static void find_prefix(unsigned number, const uint64_t *found, uint32_t *least,
                        uint32_t *most)
{
    const struct writer *w = &shared->writers[number];
    uint64_t now[KEYS];
    unsigned wrong = 0;

    memcpy(now, known[number], sizeof now);
    for (unsigned k = 0; k < KEYS; k++)
        wrong += now[k] != found[k];
    *least = UINT32_MAX;
    *most = 0;
    for (uint32_t i = 0;; i++) {
        if (wrong == 0) {
            if (*least == UINT32_MAX)
                *least = i;
            *most = i;
        }
        if (i == w->began)
            break;
        wrong -= now[w->keys[i]] != found[w->keys[i]];
        now[w->keys[i]] = w->deletes[i] ? 0 : number_of(i);
        wrong += now[w->keys[i]] != found[w->keys[i]];
    }
}

static void look(const struct qmstore_config *c, uint64_t *lost_in_all)
{
    static uint64_t found[WRITERS][KEYS];
    struct qmstore *s = open_ok(c);
    struct qmstore_stats stats = stats_of(s);
    uint64_t missing = 0, count = 0;

    for (unsigned i = 0; i < WRITERS; i++) {
        uint32_t acknowledged = atomic_load(&shared->writers[i].acknowledged);
        uint32_t least, most;

        for (unsigned k = 0; k < KEYS; k++) {
            found[i][k] = found_at(s, i, k);
            count += found[i][k] != 0;
        }
        if (c->durability == QMSTORE_NONE)
            continue;
        find_prefix(i, found[i], &least, &most);
        if (least == UINT32_MAX)
            fail_msg("writer %u, round %u: what is there was never there", i,
                     round_number);
        if (c->durability == QMSTORE_SYNC && most < acknowledged)
            fail_msg("writer %u, round %u: %u changes, and %u were acknowledged", i,
                     round_number, most, acknowledged);
        for (uint32_t n = most; n < acknowledged; n++)
            missing += !shared->writers[i].idle[n];
    }
    assert_int_equal(stats.keys, count);
    if (c->durability == QMSTORE_NONE) {
        assert_int_equal(count, 0);
        memset(known, 0, sizeof known);
    } else {
        if (missing > stats.lost)
            fail_msg("round %u: %llu changes are missing, and it says %llu",
                     round_number, (unsigned long long)missing,
                     (unsigned long long)stats.lost);
        /* A buffer that is being written, one that is filled, and a record above each.
         */
        assert_true(stats.lost * 48 <= 2 * (LOG_BUFFER + LONGEST + 100));
        memcpy(known, found, sizeof known);
    }
    *lost_in_all += stats.lost;
    assert_int_equal(qmstore_close(s), 0);
}

static void kill_often(const struct qmstore_config *c)
{
    uint64_t changes = 0, lost = 0;

    remove_below(test_dir);
    memset(known, 0, sizeof known);
    warnings = 0;
    for (unsigned i = 0; i < kills; i++, round_number++) {
        bool early = rnd_below(&seed, 12) == 0;
        pid_t child;
        int status;

        memset(shared, 0, sizeof *shared);
        child = fork();
        if (child == 0)
            live(c);
        /* Some die while they open the store, most later. */
        while (!early && shared->writers[0].began == 0 &&
               waitpid(child, &status, WNOHANG) == 0)
            usleep(100);
        usleep((useconds_t)rnd_below(&seed, 20000));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* else a change failed */
        for (unsigned n = 0; n < WRITERS; n++)
            changes += shared->writers[n].acknowledged;
        look(c, &lost);
    }
    printf("%s, durability %d: %u kills, %llu changes, %llu lost, %u warnings\n",
           c->disk, c->durability, kills, (unsigned long long)changes,
           (unsigned long long)lost, warnings);
    assert_true(changes > 0);
    if (c->durability == QMSTORE_SYNC)
        assert_int_equal(lost, 0);
    else if (c->durability == QMSTORE_NONE || lost > 0)
        assert_true(warnings > 0);
}

TEST_WITH(test_kills, make_memory_dir, remove_test_dir)
{
    static const char *const disks[] = {"lmdb", "bdb", "files"};

    for (unsigned d = 0; d < 3; d++) {
        for (int durability = QMSTORE_SYNC; durability <= QMSTORE_NONE; durability++) {
            struct qmstore_config c;

            qmstore_config_init(&c);
            c.path = test_dir;
            c.memory = 1 << 20;
            c.write_buffer = 64 << 10;
            c.log_buffer = LOG_BUFFER;
            c.disk = disks[d];
            c.policy = d == 1 ? "lfu" : "wtinylfu";
            c.durability = (enum qmstore_durability)durability;
            c.warn = warn;
            kill_often(&c);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        kills = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED || run_listed(NULL, NULL);
}
