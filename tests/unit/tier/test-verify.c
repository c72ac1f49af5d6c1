/* SPDX-License-Identifier: BSD-3-Clause */
/* test-verify.c - a volume that was changed without its tier: what the tier has from
 * before is believed if the states say so, and compared with the volume otherwise. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "testing.h"
#include "tests/unit/check.h"

#define BLOCK  4096u
#define BLOCKS 256u
#define SIZE   (UINT64_C(4) << 20)
#define ROUNDS 30

static char dir[] = "/tmp/tier-verify.XXXXXX", path[64], observed[QM_TIER_STATE];
static struct told told;
static _Alignas(4096) char buf[BLOCK];

static struct qm_tier_config config(const char *before, const char *now)
{
    struct qm_tier_config c;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"volume", BLOCKS * BLOCK, BLOCK, 0};
    c.path = path;
    c.size = SIZE;
    c.segment = 64 << 10;
    c.admit = QM_TIER_ADMIT_ALL;
    c.verify = QM_TIER_VERIFY_AUTO;
    c.before = before;
    c.known = now;
    c.warn = keep_warning;
    c.opaque = &told;
    return c;
}

static struct qm_tier *open_at(const char *before, const char *now)
{
    struct qm_tier_config c = config(before, now);

    return open_ok(&c);
}

static bool observe(void *opaque, char text[QM_TIER_STATE])
{
    snprintf(text, QM_TIER_STATE, "%s", observed);
    return observed[0] != 0;
}

static struct qm_tier *open_observing(const char *state)
{
    struct qm_tier_config c = config(state, state);

    c.observe = observe;
    return open_ok(&c);
}

static void put(struct qm_tier *t, uint64_t block, uint64_t version)
{
    struct qm_tier_insert insert = {
        .block = block,
        .data = buf,
        .ticket = qm_tier_ticket(t),
        .frequency = QM_TIER_FREQUENCY_UNKNOWN,
    };

    make_block(buf, BLOCK, block, version);
    while (qm_tier_insert(t, &insert) == EAGAIN)
        qm_tier_drain(t);
}

static uint64_t get(struct qm_tier *t, uint64_t block)
{
    return read_version(t, buf, BLOCK, block);
}

/* The volume is read, and has that version. */
static void verify(struct qm_tier *t, uint64_t block, uint64_t version)
{
    make_block(buf, BLOCK, block, version);
    qm_tier_verify(t, block, buf, 1);
}

static void change(struct qm_tier *t, uint64_t block)
{
    struct qm_tier_write w;

    qm_tier_write_begin(t, &w, block * BLOCK, BLOCK);
    qm_tier_write_end(t, &w, QM_TIER_DROPPED, NULL);
}

/* A tier with all blocks, version 1, of a volume in that state. */
static void fill(const char *state)
{
    struct qm_tier *t;

    unlink(path);
    memset(&told, 0, sizeof told);
    t = open_at("", state);
    for (uint64_t b = 0; b < BLOCKS; b++)
        put(t, b, 1);
    qm_tier_drain(t);
    assert_int_equal(stats(t).blocks, BLOCKS);
    assert_int_equal(stats(t).unverified, 0);
    qm_tier_close(t, QM_TIER_KEEP);
}

TEST(test_states)
{
    static const char *const before[] = {"", NULL, "another", "stat", "state1"};
    struct qm_tier *t;

    fill("state");
    t = open_at("state", "state2");
    assert_int_equal(stats(t).unverified, 0);
    assert_int_equal(get(t, 7), 1);
    qm_tier_close(t, QM_TIER_KEEP);
    t = open_at("state", "state3"); /* it is at 2 now */
    assert_int_equal(stats(t).unverified, BLOCKS);
    assert_int_equal(get(t, 7), 0);
    qm_tier_close(t, QM_TIER_KEEP);
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        fill(i < 2 ? "" : "state"); /* no state is not a state */
        t = open_at(before[i], "state");
        assert_int_equal(stats(t).unverified, BLOCKS);
        qm_tier_close(t, QM_TIER_KEEP);
    }
    assert_int_equal(told.n, 0);
}

TEST(test_compare)
{
    struct qm_tier *t;

    fill("a");
    t = open_at("b", "b");
    verify(t, 1, 1);
    assert_int_equal(get(t, 1), 1);
    assert_int_equal(told.n, 0);
    verify(t, 2, 2); /* the volume has another version */
    verify(t, 3, 3);
    assert_int_equal(told.n, 1);
    assert_non_null(strstr(told.text, "changed without the tier: block 2"));
    assert_int_equal(get(t, 2), 0);
    assert_false(qm_tier_contains(t, 2));
    change(t, 4);
    verify(t, 4, 1); /* it is not there any more */
    assert_int_equal(get(t, 4), 0);
    put(t, 2, 2); /* new copies are right */
    qm_tier_drain(t);
    assert_int_equal(get(t, 2), 2);
    assert_int_equal(stats(t).unverified, BLOCKS - 4);
    assert_int_equal(stats(t).verified, 1);
    assert_int_equal(stats(t).outdated, 2);
    assert_int_equal(stats(t).unread, 0);
    assert_int_equal(get(t, 5), 0);
    assert_int_equal(stats(t).unread, 1);
    for (uint64_t b = 0; b < BLOCKS; b++)
        verify(t, b, 1);
    assert_int_equal(qm_tier_unverified(t), 0);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* What is unverified stays so, whatever the next states say and however it ends. */
TEST(test_stays)
{
    struct qm_tier *t;
    pid_t child;
    int status;

    fill("a");
    t = open_at("b", "c");
    for (uint64_t b = 0; b < 100; b++)
        verify(t, b, 1);
    qm_tier_close(t, QM_TIER_KEEP);
    child = fork();
    if (child == 0) {
        t = open_at("c", "d");
        for (uint64_t b = 100; b < 120; b++)
            verify(t, b, 1);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    t = open_at("d", "e");
    assert_int_equal(stats(t).unverified, BLOCKS - 120);
    for (uint64_t b = 0; b < BLOCKS; b++)
        assert_int_equal(get(t, b), b < 120);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* A state that changes with each write: recorded when nothing changes, erased before
 * the first change, also if the process is killed then. */
TEST(test_observed)
{
    struct qm_tier *t;
    pid_t child;
    int status;

    strcpy(observed, "s1");
    fill("s1");
    t = open_observing("s1");
    assert_int_equal(stats(t).unverified, 0);
    qm_tier_close(t, QM_TIER_KEEP);
    for (int changes = 0; changes < 2; changes++) {
        child = fork();
        if (child == 0) {
            t = open_observing("s1");
            if (changes)
                change(t, 1);
            kill(getpid(), SIGKILL);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        /* Also if the volume is set back to what it was. */
        t = open_observing("s1");
        assert_int_equal(stats(t).unverified, changes ? BLOCKS - 1 : 0);
        qm_tier_close(t, QM_TIER_KEEP);
    }
    fill("s1");
    t = open_observing("s1");
    change(t, 1);
    strcpy(observed, ""); /* not known yet */
    qm_tier_tick(t, true);
    strcpy(observed, "s2");
    qm_tier_tick(t, true);
    change(t, 2);
    strcpy(observed, "s3");
    qm_tier_close(t, QM_TIER_KEEP); /* looks once more */
    t = open_observing("s3");
    assert_int_equal(stats(t).unverified, 0);
    qm_tier_close(t, QM_TIER_KEEP);
    strcpy(observed, "");
    t = open_observing("s3");
    change(t, 3);
    qm_tier_close(t, QM_TIER_KEEP);
    t = open_observing("s3");
    assert_int_equal(stats(t).unverified, BLOCKS - 3);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* Somebody changes the volume while the tier is open, and this program does not: that
 * is said, and no later state hides it. */
TEST(test_others)
{
    struct qm_tier *t;

    strcpy(observed, "s1");
    fill("s1");
    t = open_observing("s1");
    qm_tier_tick(t, true);
    assert_int_equal(told.n, 0);
    strcpy(observed, "s2");
    qm_tier_tick(t, true);
    assert_int_equal(told.n, 1);
    assert_non_null(strstr(told.text, "another program has changed the volume"));
    qm_tier_tick(t, true);
    change(t, 1);
    qm_tier_tick(t, true);
    assert_int_equal(told.n, 1);
    qm_tier_close(t, QM_TIER_KEEP);
    t = open_observing("s2");
    assert_int_equal(stats(t).unverified, BLOCKS - 1);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* The same before the first change of this program: what it records later is not
 * believed, since blocks that the others have changed are still there. */
TEST(test_others_first)
{
    static const char *const texts[] = {"s2", ""}; /* "": that cannot be known now */
    struct qm_tier *t;

    for (unsigned i = 0; i < 2; i++) {
        strcpy(observed, "s1");
        fill("s1");
        t = open_observing("s1");
        strcpy(observed, texts[i]);
        change(t, 1);
        assert_int_equal(told.n, i == 0);
        strcpy(observed, "s3");
        change(t, 2);
        qm_tier_tick(t, true);
        assert_int_equal(told.n, i == 0);
        qm_tier_close(t, QM_TIER_KEEP);
        t = open_observing("s3");
        assert_int_equal(stats(t).unverified, BLOCKS - 2);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}

static struct qm_tier *open_vouching(enum qm_tier_verify verify)
{
    struct qm_tier_config c;
    struct qm_tier *t;
    char err[400] = "";

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"volume", BLOCKS * BLOCK, BLOCK, 0};
    c.path = path;
    c.size = SIZE;
    c.segment = 64 << 10;
    c.verify = verify;
    if (qm_tier_open(&c, &t, err, sizeof err) != 0)
        fail_msg("%s", err);
    return t;
}

/* Who vouches for the volume does not vouch for what the server itself has changed
 * without the tier, after it was disclaimed, nor for what was not compared yet. */
TEST(test_vouched)
{
    struct qm_tier *t;

    fill("state");
    t = open_vouching(QM_TIER_VERIFY_NEVER);
    assert_int_equal(stats(t).unverified, 0);
    assert_int_equal(qm_tier_disclaim(t), 0);
    qm_tier_close(t, QM_TIER_KEEP);
    for (uint64_t i = 0; i < 2; i++) {
        t = open_vouching(QM_TIER_VERIFY_NEVER);
        assert_int_equal(stats(t).unverified, BLOCKS - 10 * i);
        for (uint64_t b = 10 * i; b < 10 * i + 10; b++) {
            assert_int_equal(get(t, b), 0);
            verify(t, b, 1);
            assert_int_equal(get(t, b), 1);
        }
        qm_tier_close(t, QM_TIER_KEEP);
    }
    t = open_vouching(QM_TIER_VERIFY_ALWAYS);
    assert_int_equal(stats(t).unverified, BLOCKS);
    for (uint64_t b = 0; b < BLOCKS; b++)
        verify(t, b, 1);
    qm_tier_close(t, QM_TIER_KEEP);
    t = open_vouching(QM_TIER_VERIFY_NEVER);
    assert_int_equal(stats(t).unverified, 0);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* Threads that change blocks, and others that compare them with a volume in which a
 * third has changed before: nothing old is read, then and after the next start. */
static _Atomic uint64_t volume[BLOCKS];
static _Atomic unsigned running;
static struct qm_tier *tier;

static void *comparing(void *opaque)
{
    _Alignas(4096) char data[BLOCK];
    uint64_t seed = (uintptr_t)opaque;

    while (atomic_load(&running) > 0) {
        uint64_t b = rnd_below(&seed, BLOCKS);
        struct qm_tier_read read = {.block = b, .buf = data};
        uint64_t before = atomic_load(&volume[b]);

        if (qm_tier_read(tier, &read, 1))
            check(version_of(data, BLOCK, b) >= before);
        make_block(data, BLOCK, b, atomic_load(&volume[b]));
        qm_tier_verify(tier, b, data, 1);
    }
    return NULL;
}

static void *changing(void *opaque)
{
    uint64_t seed = (uintptr_t)opaque;

    for (int i = 0; i < 200; i++) {
        uint64_t b = rnd_below(&seed, BLOCKS) / 2 * 2 + (uintptr_t)opaque % 2;
        struct qm_tier_write w;

        qm_tier_write_begin(tier, &w, b * BLOCK, BLOCK);
        atomic_fetch_add(&volume[b], 1);
        qm_tier_write_end(tier, &w, QM_TIER_DROPPED, NULL);
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

TEST(test_threads)
{
    pthread_t threads[4];
    unsigned kept = 0;

    for (uintptr_t round = 0; round < ROUNDS; round++) {
        fill("a");
        for (uint64_t b = 0; b < BLOCKS; b++)
            volume[b] = b % 3 == 0 ? 2 : 1;
        tier = open_at("b", "c");
        running = 2;
        for (uintptr_t i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, i < 2 ? changing : comparing,
                           (void *)(round * 4 + i));
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        qm_tier_close(tier, QM_TIER_KEEP);
        tier = open_at("c", "d");
        for (uint64_t b = 0; b < BLOCKS; b++) {
            uint64_t version = get(tier, b);

            assert_true(version == 0 || version == volume[b]);
            kept += version != 0;
        }
        qm_tier_close(tier, QM_TIER_KEEP);
    }
    print_message("%u of %u blocks kept\n", kept, (unsigned)(ROUNDS * BLOCKS));
    assert_true(kept > 0); /* not everything was dropped */
}

int main(void)
{
    int r;

    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/tier", dir);
    r = run_listed(NULL, NULL);
    unlink(path);
    rmdir(dir);
    return r;
}
