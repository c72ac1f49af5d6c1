/* SPDX-License-Identifier: BSD-3-Clause */
/* test-basic.c - a tier in a file: insert, read, write, update, evict, close and open
 * again; a file that vanishes. */
#include <signal.h>
#include <sys/wait.h>

#include "basic.h"

TEST_WITH(test_insert_read_write, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier *t = open_ok(&c);
    struct qm_tier_read reads[100];
    static _Alignas(4096) char many[100][BLOCK];

    assert_int_equal(get(t, 5), 0);
    for (uint64_t b = 0; b < 100; b++) {
        assert_int_equal(put(t, b, 1), 0);
        qm_tier_drain(t);
    }
    assert_int_equal(put(t, 5, 1), EEXIST);
    assert_int_equal(put(t, VOLUME / BLOCK, 1), EINVAL);
    assert_int_equal(get(t, 5), 1);
    change(t, 5, 3);
    assert_int_equal(get(t, 4), 1);
    for (uint64_t b = 5; b < 8; b++)
        assert_int_equal(get(t, b), 0);
    assert_int_equal(get(t, 8), 1);
    assert_int_equal(put(t, 5, 2), 0);
    qm_tier_drain(t);
    assert_int_equal(get(t, 5), 2);
    for (size_t i = 0; i < 100; i++)
        reads[i] = (struct qm_tier_read){.block = 99 - i, .buf = many[i]};
    assert_int_equal(qm_tier_read(t, reads, 100), 98);
    for (size_t i = 0; i < 100; i++)
        if (reads[i].hit)
            assert_int_equal(version_of(many[i], BLOCK, 99 - i), i == 94 ? 2 : 1);
    assert_int_equal(stats(t).lookups, stats(t).hits + stats(t).misses);
    assert_int_equal(stats(t).inserted, 101);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    assert_int_equal(told.n, 0);
}

/* An insert that a write has overtaken is refused, whenever it comes. */
TEST_WITH(test_tickets, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier *t = open_ok(&c);
    struct qm_tier_insert insert = {.block = 9, .data = buf};
    struct qm_tier_write w;

    insert.ticket = qm_tier_ticket(t);
    qm_tier_write_begin(t, &w, 9 * BLOCK + 100, 1);
    assert_int_equal(qm_tier_insert(t, &insert), ESTALE);
    insert.ticket = qm_tier_ticket(t);
    assert_int_equal(qm_tier_insert(t, &insert), ESTALE);
    qm_tier_write_end(t, &w, QM_TIER_DROPPED, NULL);
    assert_int_equal(qm_tier_insert(t, &insert), ESTALE);
    insert.ticket = qm_tier_ticket(t);
    assert_int_equal(qm_tier_insert(t, &insert), 0);
    insert.block = 10;
    change(t, 0, VOLUME / BLOCK);
    assert_int_equal(qm_tier_insert(t, &insert), ESTALE);
    insert.ticket = qm_tier_ticket(t);
    assert_int_equal(qm_tier_insert(t, &insert), 0);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* With update, a write of what the tier holds brings the new data, unless another write
 * to the same block has come between. */
TEST_WITH(test_update, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier_write a, b;
    struct qm_tier *t;

    c.update = QM_TIER_UPDATE_ALL;
    t = open_ok(&c);
    assert_int_equal(put(t, 3, 1), 0);
    qm_tier_drain(t);
    make_block(buf, BLOCK, 3, 2);
    qm_tier_write_begin(t, &a, 3 * BLOCK, BLOCK);
    qm_tier_write_end(t, &a, QM_TIER_WROTE, buf);
    qm_tier_drain(t);
    assert_int_equal(get(t, 3), 2);
    qm_tier_write_begin(t, &a, 3 * BLOCK, BLOCK);
    qm_tier_write_begin(t, &b, 3 * BLOCK + 5, 1);
    qm_tier_write_end(t, &b, QM_TIER_WROTE, buf);
    make_block(buf, BLOCK, 3, 3);
    qm_tier_write_end(t, &a, QM_TIER_WROTE, buf);
    qm_tier_drain(t);
    assert_int_equal(get(t, 3), 0);
    qm_tier_close(t, QM_TIER_KEEP);
}

/* Writes the blocks [first, last), all of each but for the last `less` bytes; data: 9.
 */
static void write_blocks(struct qm_tier *t, uint64_t first, uint64_t last,
                         uint64_t less)
{
    static char data[8 * BLOCK];
    struct qm_tier_write w;

    for (uint64_t b = first; b < last; b++)
        make_block(data + (b - first) * BLOCK, BLOCK, b, 9);
    qm_tier_write_begin(t, &w, first * BLOCK, (last - first) * BLOCK - less);
    qm_tier_write_end(t, &w, QM_TIER_WROTE, data);
    qm_tier_drain(t);
}

/* By QM_TIER_UPDATE_AUTO, what is written again and again without a read between is
 * dropped, but not at once; a read makes it worth it again. */
TEST_WITH(test_update_auto, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier_write w;
    struct qm_tier *t;

    c.update = QM_TIER_UPDATE_AUTO;
    t = open_ok(&c);
    write_blocks(t, 3, 4, 0);
    assert_false(qm_tier_contains(t, 3)); /* it was not held */
    for (uint64_t b = 3; b < 9; b++)
        assert_int_equal(put(t, b, 1), 0);
    qm_tier_drain(t);
    for (unsigned read = 0; read < 8; read++) {
        write_blocks(t, 3, 9, 0);
        for (uint64_t b = 3; b < 9; b++)
            assert_int_equal(get(t, b), 9);
    }
    assert_int_equal(stats(t).inserted, 6 + 8 * 6);
    assert_int_equal(stats(t).blocks, 6);
    write_blocks(t, 3, 9, 1);
    assert_false(qm_tier_contains(t, 8)); /* not all of it was written */
    for (uint64_t b = 3; b < 8; b++)
        assert_true(qm_tier_contains(t, b));
    for (unsigned i = 0; i < 4; i++)
        write_blocks(t, 3, 8, 0);
    for (uint64_t b = 3; b < 8; b++)
        assert_false(qm_tier_contains(t, b));
    assert_int_equal(get(t, 3), 0); /* the reader gets it from below */
    assert_int_equal(put(t, 3, 9), 0);
    qm_tier_drain(t);
    write_blocks(t, 3, 4, 0);
    assert_true(qm_tier_contains(t, 3));
    qm_tier_write_begin(t, &w, 3 * BLOCK, BLOCK);
    qm_tier_write_end(t, &w, QM_TIER_WROTE, NULL);
    assert_false(qm_tier_contains(t, 3)); /* there is no data */
    qm_tier_close(t, QM_TIER_KEEP);
}

/* A large write brings all of its blocks, as hot as they were; one of more than
 * QM_TIER_WIDE none; and of one that the queue cannot take, the rest is dropped. */
TEST_WITH(test_update_large, setup, NULL)
{
    enum { N = 300, ODD = QM_TIER_WIDE + 1 };
    struct qm_tier_config c = config();
    char *data = malloc((size_t)ODD * BLOCK);
    struct qm_tier_write w;
    struct qm_tier *t;
    uint64_t blocks;

    assert_non_null(data);
    c.update = QM_TIER_UPDATE_ALL;
    c.queue = 400;
    t = open_ok(&c);
    for (uint64_t b = 0; b < N; b++) {
        assert_int_equal(put(t, 7 + b, 1), 0);
        make_block(data + b * BLOCK, BLOCK, 7 + b, 2);
    }
    qm_tier_drain(t);
    assert_int_equal(get(t, 7 + N / 2), 1); /* heats it */
    qm_tier_write_begin(t, &w, 7 * BLOCK, N * BLOCK);
    assert_int_equal(stats(t).blocks, 0);
    assert_int_equal(w.renewed[N / 4] & 15, 2);
    assert_int_equal(w.renewed[N / 4] >> 4, 1);
    qm_tier_write_end(t, &w, QM_TIER_WROTE, data);
    memset(data, 0xff, N * BLOCK); /* it is the caller's again */
    qm_tier_drain(t);
    assert_int_equal(stats(t).blocks, N);
    for (uint64_t b = 0; b < N; b++)
        assert_int_equal(get(t, 7 + b), 2);

    for (uint64_t b = 0; b < ODD; b++)
        make_block(data + b * BLOCK, BLOCK, b, 3);
    qm_tier_write_begin(t, &w, 0, ODD * BLOCK);
    qm_tier_write_end(t, &w, QM_TIER_WROTE, data);
    qm_tier_drain(t);
    assert_int_equal(stats(t).blocks, 0);

    for (uint64_t b = 0; b < 600; b++) {
        assert_int_equal(put(t, b, 3), 0);
        if (b % 100 == 99)
            qm_tier_drain(t);
    }
    blocks = stats(t).inserted;
    qm_tier_write_begin(t, &w, 0, (QM_TIER_WIDE - 1) * BLOCK);
    qm_tier_write_end(t, &w, QM_TIER_WROTE, data);
    qm_tier_drain(t);
    assert_in_range(stats(t).inserted - blocks, 400, 600);
    for (uint64_t b = 0; b < 600; b++)
        assert_int_equal(get(t, b), qm_tier_contains(t, b) ? 3 : 0);
    qm_tier_close(t, QM_TIER_KEEP);
    free(data);
}

/* Several times what fits; then all that it holds is held again after opening. */
TEST_WITH(test_evict_and_reopen, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier *t = open_ok(&c);
    uint64_t n = 4 * SIZE / BLOCK, held = 0, again = 0, kept;

    for (uint64_t b = 0; b < n; b++) {
        while (put(t, b, b + 1) == EAGAIN)
            qm_tier_drain(t);
    }
    qm_tier_drain(t);
    for (uint64_t b = 0; b < n; b++) {
        uint64_t version = get(t, b);

        assert_true(version == 0 || version == b + 1);
        held += version != 0;
    }
    assert_int_equal(held, stats(t).blocks);
    assert_true(held > stats(t).capacity * 3 / 4);
    assert_true(stats(t).evicted > 0);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    t = open_ok(&c);
    assert_int_equal(stats(t).recovered, held);
    for (uint64_t b = 0; b < n; b++) {
        uint64_t version = get(t, b);

        assert_true(version == 0 || version == b + 1);
        again += version != 0;
    }
    assert_int_equal(again, held);
    kept = stats(t).blocks;
    change(t, 0, n);
    assert_int_equal(stats(t).blocks, 0);
    assert_int_equal(stats(t).invalidated, kept);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    t = open_ok(&c);
    assert_int_equal(stats(t).blocks, 0);
    qm_tier_close(t, QM_TIER_KEEP);
    assert_int_equal(told.n, 0);
}

/* Blocks that stayed in their segments when others left are there after an end, and
 * after a kill. */
TEST_WITH(test_stayed, setup, NULL)
{
    for (unsigned killed = 0; killed < 2; killed++) {
        struct qm_tier_config c = config();
        struct qm_tier *t;
        struct qm_tier_stats s;
        pid_t child;
        int status;

        unlink(path);
        child = fork();
        if (child == 0) {
            t = open_ok(&c);
            for (uint64_t b = 0; b < 2 * stats(t).capacity; b++) {
                put(t, b, 1);
                qm_tier_drain(t);
                for (uint64_t hot = 0; b % 16 == 0 && hot < 32; hot++)
                    get(t, hot);
            }
            qm_tier_sync(t);
            s = stats(t);
            if (s.kept < 32 || s.evicted < 32)
                _exit(1);
            if (killed)
                kill(getpid(), SIGKILL);
            qm_tier_close(t, QM_TIER_KEEP);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(killed ? WIFSIGNALED(status) : status == 0);
        t = open_ok(&c);
        assert_true(stats(t).recovered >= stats(t).capacity * 95 / 100);
        for (uint64_t hot = 0; hot < 32; hot++)
            assert_int_equal(get(t, hot), 1);
        qm_tier_close(t, QM_TIER_KEEP);
    }
}

/* The file's name goes: it is used to the end, and said once.  The file is cut: that is
 * the end. */
TEST_WITH(test_vanished, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier *t = open_ok(&c);

    assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    unlink(path);
    qm_tier_tick(t, false);
    qm_tier_tick(t, false);
    assert_int_equal(get(t, 1), 1);
    assert_int_equal(told.n, 1);
    assert_non_null(strstr(told.text, "was removed"));
    qm_tier_close(t, QM_TIER_KEEP);
    memset(&told, 0, sizeof told);
    t = open_ok(&c);
    assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    assert_int_equal(truncate(path, 100000), 0);
    qm_tier_tick(t, false);
    assert_true(stats(t).dead);
    assert_int_equal(get(t, 1), 0);
    assert_int_equal(put(t, 2, 1), ENODEV);
    change(t, 1, 1);
    assert_int_equal(told.n, 1);
    qm_tier_close(t, QM_TIER_KEEP);
    memset(&told, 0, sizeof told);
    expect_emptied(&c, "it was detached or had failed");
}

TEST_WITH(test_forget, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier *t;

    fill(&c);
    t = open_ok(&c);
    assert_int_equal(get(t, 1), 1);
    assert_int_equal(qm_tier_close(t, QM_TIER_FORGET), 0);
    expect_emptied(&c, "it was detached");
}

int main(int argc, char **argv)
{
    return begin(argc) ? end(run_listed(NULL, NULL)) : 1;
}
