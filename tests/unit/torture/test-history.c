/* SPDX-License-Identifier: BSD-3-Clause */
/* test-history.c - the judge of histories: what it lets pass and what it must not. */
#include "tests/harness.h"
#include <stdio.h>

#include "tests/live/torture/history.h"

static struct history *h;
static char said[1000];

static bool zero(void *opaque, uint32_t cell)
{
    return true;
}

static void complain(void *opaque, const char *text)
{
    snprintf(said, sizeof said, "%s", text);
}

static uint64_t judge(void)
{
    said[0] = '\0';
    return history_judge(h, zero, complain, NULL);
}

static void refused(const char *why)
{
    assert_true(judge() > 0);
    if (!strstr(said, why))
        fail_msg("\"%s\" instead of \"%s\"", said, why);
}

static int setup(void **state)
{
    h = history_new(16, 4, 100, 1000);
    return h ? 0 : -1;
}

static int teardown(void **state)
{
    history_free(h);
    return 0;
}

static uint32_t begin(enum did did, uint32_t first, uint32_t count)
{
    uint32_t number = history_begin(h, did, first, count);

    assert_true(number < 100);
    return number;
}

static void end(uint32_t number)
{
    history_end(h, number, true);
}

static uint32_t whole(enum did did, uint32_t first, uint32_t count)
{
    uint32_t number = begin(did, first, count);

    end(number);
    return number;
}

/* The end of a read of a cell or more that all show the same. */
static void end_seeing(uint32_t number, uint32_t count, uint32_t value)
{
    for (uint32_t i = 0; i < count; i++)
        history_looks(h, number)[i] = value;
    end(number);
}

static void sees(uint32_t first, uint32_t count, uint32_t value)
{
    end_seeing(begin(DID_READ, first, count), count, value);
}

TEST_WITH(test_one_after_the_other, setup, teardown)
{
    uint32_t w;

    sees(0, 16, SAW_ZERO);
    w = whole(DID_WRITE, 2, 5);
    sees(2, 5, w);
    sees(0, 2, SAW_ZERO);
    assert_int_equal(judge(), 0);

    /* The next round. */
    sees(3, 1, SAW_INITIAL);
    w = whole(DID_WRITE, 3, 1);
    sees(3, 1, w);
    whole(DID_ZERO, 3, 1);
    sees(3, 1, SAW_ZERO);
    assert_int_equal(judge(), 0);
}

TEST_WITH(test_stale, setup, teardown)
{
    uint32_t w = whole(DID_WRITE, 2, 5);

    sees(6, 1, SAW_INITIAL);
    refused("stale");

    w = whole(DID_WRITE, 2, 5);
    whole(DID_WRITE, 3, 1);
    sees(4, 1, w);
    assert_int_equal(judge(), 0);
    w = whole(DID_WRITE, 2, 5);
    whole(DID_WRITE, 3, 1);
    sees(3, 1, w);
    refused("stale");
    w = whole(DID_WRITE, 2, 5);
    whole(DID_ZERO, 3, 1);
    sees(3, 1, w);
    refused("stale");
}

TEST_WITH(test_during_a_write, setup, teardown)
{
    uint32_t old = whole(DID_WRITE, 0, 1), new = begin(DID_WRITE, 0, 1);

    sees(0, 1, old);
    sees(0, 1, old);
    sees(0, 1, new);
    end(new);
    sees(0, 1, new);
    assert_int_equal(judge(), 0);

    /* Once seen, it stays. */
    old = whole(DID_WRITE, 0, 1);
    new = begin(DID_WRITE, 0, 1);
    sees(0, 1, new);
    sees(0, 1, old);
    end(new);
    refused("stale");
}

TEST_WITH(test_two_writes_at_once, setup, teardown)
{
    uint32_t a = begin(DID_WRITE, 0, 1), b = begin(DID_WRITE, 0, 1);

    end(a);
    end(b);
    sees(0, 1, a); /* either may be the last */
    sees(0, 1, a);
    assert_int_equal(judge(), 0);
    a = begin(DID_WRITE, 0, 1);
    b = begin(DID_WRITE, 0, 1);
    end(a);
    end(b);
    sees(0, 1, b);
    sees(0, 1, b);
    assert_int_equal(judge(), 0);
    a = begin(DID_WRITE, 0, 1);
    b = begin(DID_WRITE, 0, 1);
    end(a);
    end(b);
    sees(0, 1, a); /* but not both in turns */
    sees(0, 1, b);
    sees(0, 1, a);
    refused("in turns");
}

TEST_WITH(test_readers_at_once, setup, teardown)
{
    uint32_t w = begin(DID_WRITE, 0, 1), r = begin(DID_READ, 0, 1);

    end(w);
    end_seeing(r, 1, SAW_ZERO); /* it may have been carried out before the write */
    assert_int_equal(judge(), 0);

    /* Not if another has seen the write before this one began. */
    w = begin(DID_WRITE, 0, 1);
    sees(0, 1, w);
    r = begin(DID_READ, 0, 1);
    end(w);
    end_seeing(r, 1, SAW_INITIAL);
    refused("stale");
}

TEST_WITH(test_zeros, setup, teardown)
{
    uint32_t z;

    whole(DID_WRITE, 0, 1);
    sees(0, 1, SAW_ZERO);
    refused("stale");

    whole(DID_WRITE, 0, 1);
    z = begin(DID_ZERO, 0, 1);
    sees(0, 1, SAW_ZERO);
    sees(0, 1, SAW_ZERO);
    end(z);
    assert_int_equal(judge(), 0);

    whole(DID_ZERO, 0, 1); /* several that could be meant, all too old */
    whole(DID_ZERO, 0, 1);
    whole(DID_WRITE, 0, 1);
    sees(0, 1, SAW_ZERO);
    refused("stale zeros");
}

TEST_WITH(test_failed, setup, teardown)
{
    uint32_t w = begin(DID_WRITE, 0, 4), r;

    history_end(h, w, false);
    sees(0, 2, w);
    sees(2, 2, SAW_ZERO);
    assert_int_equal(judge(), 0);
    w = begin(DID_WRITE, 0, 4);
    history_end(h, w, false);
    sees(0, 4, SAW_INITIAL);
    assert_int_equal(judge(), 0);
    w = begin(DID_WRITE, 0, 4); /* it was, and then it was not */
    history_end(h, w, false);
    sees(0, 4, w);
    sees(0, 4, SAW_INITIAL);
    refused("stale");
    r = begin(DID_READ, 0, 4); /* what a failed read brought is nobody's business */
    history_looks(h, r)[0] = SAW_GARBAGE;
    history_end(h, r, false);
    assert_int_equal(judge(), 0);
}

TEST_WITH(test_garbage, setup, teardown)
{
    uint32_t w = begin(DID_WRITE, 0, 4);

    end(w);
    sees(1, 1, SAW_GARBAGE);
    refused("garbage");
    w = whole(DID_WRITE, 0, 4);
    sees(5, 1, w);
    refused("another place");
    w = begin(DID_READ, 0, 1); /* a write that came later */
    history_looks(h, w)[0] = 1;
    end(w);
    whole(DID_WRITE, 0, 1);
    refused("another place or time");
    begin(DID_READ, 0, 1);
    refused("has not ended");
}

TEST_WITH(test_halves, setup, teardown)
{
    uint32_t w = begin(DID_WRITE, 2, 4), r = begin(DID_READ, 0, 8);
    uint32_t *looks = history_looks(h, r);

    for (uint32_t i = 0; i < 8; i++)
        looks[i] = i == 4 || i == 5 ? w : SAW_INITIAL;
    end(w);
    end(r);
    assert_int_equal(judge(), 0); /* the blocks differ, but each is whole */

    w = begin(DID_WRITE, 2, 4);
    r = begin(DID_READ, 0, 8);
    looks = history_looks(h, r);
    for (uint32_t i = 0; i < 8; i++)
        looks[i] = i == 4 ? w : SAW_INITIAL;
    end(w);
    end(r);
    refused("half of a write");
}

TEST_WITH(test_durable, setup, teardown)
{
    uint32_t w = whole(DID_WRITE, 0, 2), look = history_begin_fua(h, w);
    uint32_t later = begin(DID_WRITE, 1, 1);

    history_looks(h, look)[0] = w;
    history_looks(h, look)[1] = later;
    end(look);
    end(later);
    assert_int_equal(judge(), 0);
    w = whole(DID_WRITE, 0, 2);
    look = history_begin_fua(h, w);
    end_seeing(look, 2, SAW_INITIAL);
    refused("not durable");
    w = whole(DID_WRITE, 0, 2);
    look = history_begin_fua(h, w);
    end_seeing(look, 2, SAW_ZERO);
    refused("not durable");
    w = whole(DID_ZERO, 0, 2);
    look = history_begin_fua(h, w);
    end_seeing(look, 2, SAW_ZERO);
    assert_int_equal(judge(), 0);
}

static void lose(void)
{
    history_loss_begin(h);
    history_loss_end(h);
}

TEST_WITH(test_loss, setup, teardown)
{
    uint32_t old = whole(DID_WRITE, 0, 4), new = begin(DID_WRITE, 0, 4), r;

    sees(0, 4, new); /* it was, and it was not, and it is */
    lose();
    sees(0, 4, old);
    r = begin(DID_READ, 0, 2); /* half of it was lost */
    history_looks(h, r)[0] = old;
    history_looks(h, r)[1] = new;
    end(r);
    end(new);
    sees(0, 4, new);
    assert_int_equal(judge(), 0);

    new = begin(DID_ZERO, 0, 1);
    sees(0, 1, SAW_ZERO);
    lose();
    sees(0, 1, SAW_INITIAL);
    end(new);
    sees(0, 1, SAW_ZERO);
    assert_int_equal(judge(), 0);

    /* A loss that is not over when a round ends concerns the next. */
    history_loss_begin(h);
    assert_int_equal(judge(), 0);
    new = begin(DID_WRITE, 0, 1);
    sees(0, 1, new);
    sees(0, 1, SAW_INITIAL);
    history_loss_end(h);
    end(new);
    assert_int_equal(judge(), 0);
}

TEST_WITH(test_loss_of_what_was_answered, setup, teardown)
{
    uint32_t old = whole(DID_WRITE, 0, 1), new = whole(DID_WRITE, 0, 1);

    sees(0, 1, new);
    lose();
    sees(0, 1, old);
    refused("stale");
    whole(DID_ZERO, 0, 1);
    lose();
    sees(0, 1, SAW_INITIAL);
    sees(0, 1, SAW_ZERO);
    refused("stale");
    /* It must be there again when it has been answered. */
    old = whole(DID_WRITE, 0, 1);
    new = begin(DID_WRITE, 0, 1);
    lose();
    end(new);
    sees(0, 1, old);
    refused("stale");
    /* A loss that was over when it began is no excuse. */
    old = whole(DID_WRITE, 0, 1);
    lose();
    new = begin(DID_WRITE, 0, 1);
    sees(0, 1, new);
    sees(0, 1, old);
    end(new);
    refused("stale");
}

TEST_WITH(test_room, setup, teardown)
{
    for (uint32_t i = 0; i < 100; i++)
        whole(DID_WRITE, i % 16, 1);
    assert_int_equal(history_begin(h, DID_WRITE, 0, 1), UINT32_MAX);
    assert_int_equal(judge(), 0);
    for (uint32_t i = 0; i < 62; i++)
        sees(0, 16, SAW_INITIAL);
    assert_int_equal(history_begin(h, DID_READ, 0, 16), UINT32_MAX);
    sees(0, 8, SAW_INITIAL);
    assert_int_equal(judge(), 0);
}
