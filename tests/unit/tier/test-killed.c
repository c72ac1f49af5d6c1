/* SPDX-License-Identifier: BSD-3-Clause */
/* test-killed.c - what is left of a tier whose server was killed, or whose machine
 * crashed, between two writes. */
#include <signal.h>
#include <sys/wait.h>

#include "basic.h"
#include "tier/format.h"
#include "tier/io.h"

/* A change of more blocks than a write of tags has is whole after a kill. */
TEST_WITH(test_large_change_killed, setup, NULL)
{
    struct qm_tier_config c = config();
    const uint64_t n = 200;
    struct qm_tier *t;
    pid_t child;
    int status;

    c.segment = 1 << 20;
    c.size = 8 << 20;
    child = fork();
    if (child == 0) {
        t = open_ok(&c);
        for (uint64_t b = 0; b < n; b++) {
            while (put(t, b, 1) == EAGAIN)
                qm_tier_drain(t);
        }
        qm_tier_drain(t);
        qm_tier_sync(t);
        for (uint64_t b = 0; b < n; b++)
            if (get(t, b) != 1)
                _exit(1);
        change(t, 0, n);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    t = open_ok(&c);
    for (uint64_t b = 0; b < n; b++)
        assert_int_equal(get(t, b), 0);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* The file's operations, and what is written to the superblocks. */
static struct {
    struct qm_tier_io file;
    int (*sync)(void *opaque); /* in place of the file's; NULL: the file's */
    unsigned supers, undurable;
    uint64_t dies_at; /* epoch, when that is in the file; 0: never */
} seen;

static int write_seen(void *opaque, enum qm_tier_file which, const void *data, size_t n,
                      uint64_t at, bool durable)
{
    int r = seen.file.write(opaque, which, data, n, at, durable);
    struct qm_tier_super super;

    if (which != QM_TIER_META || at >= QM_TIER_SUPERS || n != QM_TIER_PAGE)
        return r;
    memcpy(&super, data, sizeof super);
    seen.supers++;
    seen.undurable += !durable;
    if (seen.dies_at != 0 && super.epoch == seen.dies_at)
        kill(getpid(), SIGKILL);
    return r;
}

static struct qm_tier *open_seen(const struct qm_tier_config *config)
{
    struct qm_tier_config c = *config;
    struct qm_tier_io io;
    char err[400];

    assert_int_equal(qm_tier_io_file(&seen.file, path, true, false, err, sizeof err),
                     0);
    io = seen.file;
    io.write = write_seen;
    if (seen.sync)
        io.sync = seen.sync;
    c.io = &io;
    return open_ok(&c);
}

/* A server that ends between the announcement of an epoch and the witness' last word
 * has served nothing: the tier is believed. */
TEST_WITH(test_killed_while_opening, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier *t;
    pid_t child;
    int status;

    c.witness = witness;
    t = open_ok(&c);
    assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    qm_tier_close(t, QM_TIER_KEEP);
    child = fork();
    if (child == 0) {
        seen.dies_at = 2;
        (void)open_seen(&c);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    t = open_ok(&c);
    assert_int_equal(get(t, 1), 1);
    qm_tier_close(t, QM_TIER_KEEP);
}

static struct qm_tier *changing; /* by the next sync of its file; NULL: none */

static int sync_seen(void *opaque)
{
    struct qm_tier *t = changing;

    changing = NULL;
    if (t)
        change(t, 1, 1);
    return seen.file.sync(opaque);
}

/* A change that comes and goes while regions are being unmarked leaves its region
 * marked: of what lies there, nothing is believed after a crash of the machine. */
TEST_WITH(test_changed_while_clearing, setup, NULL)
{
    for (unsigned changed = 0; changed < 2; changed++) {
        struct qm_tier_config c = config();
        struct qm_tier *t;
        pid_t child;
        int status;

        unlink(path);
        c.boot_id = "one";
        c.sync_ms = 3600000; /* the tick below is the only one */
        child = fork();
        if (child == 0) {
            seen.sync = sync_seen;
            t = open_seen(&c);
            change(t, 1, 1);
            assert_int_equal(put(t, 5, 1), 0);
            assert_int_equal(qm_tier_sync(t), 0);
            qm_tier_flush_end(t, qm_tier_flush_begin(t), true);
            changing = changed ? t : NULL;
            qm_tier_tick(t, true);
            if (changing || stats(t).regions_cleared != !changed)
                _exit(1);
            kill(getpid(), SIGKILL);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        c.boot_id = "two";
        t = open_ok(&c);
        assert_int_equal(get(t, 5), !changed);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}

static bool observe_one(void *opaque, char text[QM_TIER_STATE])
{
    snprintf(text, QM_TIER_STATE, "one");
    return true;
}

/* The state that was recorded is erased, durably, before the first change. */
TEST_WITH(test_erased_durably, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier_write w;
    struct qm_tier *t;

    c.verify = QM_TIER_VERIFY_AUTO;
    c.before = "one";
    c.known = "one";
    c.observe = observe_one;
    t = open_seen(&c);
    seen.supers = seen.undurable = 0;
    qm_tier_write_begin(t, &w, 0, BLOCK);
    assert_int_equal(seen.supers, 1);
    assert_int_equal(seen.undurable, 0);
    qm_tier_write_end(t, &w, QM_TIER_DROPPED, NULL);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* Killed without a word: what was written is there, what was changed is not. */
TEST_WITH(test_killed, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier *t;
    pid_t child = fork();
    int status;

    if (child == 0) {
        t = open_ok(&c);
        for (uint64_t b = 0; b < 200; b++) {
            put(t, b, 1);
            qm_tier_drain(t);
        }
        qm_tier_sync(t);
        change(t, 50, 10);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    t = open_ok(&c);
    for (uint64_t b = 0; b < 200; b++)
        assert_int_equal(get(t, b), b < 50 || b >= 60);
    qm_tier_close(t, QM_TIER_KEEP);
    assert_int_equal(told.n, 0);
}

/* The machine crashes, and before the tier was opened the volume was changed: with no
 * flush that covers that, nothing is kept, and with one everything is. */
TEST_WITH(test_unflushed, setup, NULL)
{
    for (unsigned flushes = 0; flushes < 3; flushes++) {
        struct qm_tier_config c = config();
        struct qm_tier *t;
        uint64_t token;
        pid_t child;
        int status;

        unlink(path);
        c.boot_id = "one";
        child = fork();
        if (child == 0) {
            t = open_ok(&c);
            qm_tier_unflushed(t);
            for (uint64_t b = 0; b < 100; b++)
                put(t, b, 1);
            qm_tier_sync(t);
            token = qm_tier_flush_begin(t);
            qm_tier_flush_end(t, token, flushes == 2);
            qm_tier_tick(t, true);
            if (flushes == 0)
                qm_tier_unflushed(t); /* what is there is not dropped by it */
            if (get(t, 5) == 1)
                kill(getpid(), SIGKILL);
            _exit(1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        c.boot_id = "two";
        t = open_ok(&c);
        assert_int_equal(stats(t).recovered, flushes == 2 ? 100 : 0);
        for (uint64_t b = 0; b < 100; b++)
            assert_int_equal(get(t, b), flushes == 2);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}

int main(int argc, char **argv)
{
    return begin(argc) ? end(run_listed(NULL, NULL)) : 1;
}
