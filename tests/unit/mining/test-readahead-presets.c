/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of the presets: the published examples and factors. */
#include "testing.h"

#include "mining/readahead/paper.h"
#include "mining/readahead/presets.h"

static const struct qm_caps caps = {.any = 32, .disk = 128, .ssd = 8}; /* pages */
static const struct qm_layout disk = {.segment = 1000};
static const struct qm_layout ssd = {.ssd = true, .segment = 1000};

/* "user read size is 1 page ... the readahead size is four times": 4, and async 3. */
TEST(test_linux)
{
    uint32_t window;

    assert_int_equal(qm_linux_first(1, &caps), 4);
    assert_int_equal(qm_linux_first(2, &caps), 4);
    assert_int_equal(qm_linux_first(3, &caps), 8);
    assert_int_equal(qm_linux_first(8, &caps), 16);
    assert_int_equal(qm_linux_first(9, &caps), 32);
    assert_int_equal(qm_linux_first(40, &caps), 40);
    assert_int_equal(window = qm_linux_next(1, &caps), 4);
    assert_int_equal(window = qm_linux_next(window, &caps), 8);
    assert_int_equal(window = qm_linux_next(window, &caps), 16);
    assert_int_equal(window = qm_linux_next(window, &caps), 32);
    assert_int_equal(qm_linux_next(window, &caps), 32);
}

TEST(test_aware)
{
    const struct qm_layout mixed3 = {.mixed = true, .segment = 3};
    const struct qm_layout mixed20 = {.mixed = true, .ssd = true, .segment = 20};
    const struct qm_caps swapped = {.any = 32, .disk = 8, .ssd = 128};
    uint32_t window;

    assert_int_equal(qm_aware_first(4, &disk, &caps), 8); /* x2 */
    assert_int_equal(qm_aware_first(4, &ssd, &caps), 4);  /* x1 */
    assert_int_equal(qm_aware_first(4, &mixed3, &caps), 7);
    assert_int_equal(qm_aware_first(4, &mixed20, &caps), 8);
    assert_int_equal(window = qm_aware_next(2, 1, &disk, &caps), 8); /* x4 */
    assert_int_equal(window = qm_aware_next(window, 1, &disk, &caps), 32);
    assert_int_equal(window = qm_aware_next(window, 1, &disk, &caps), 128);
    assert_int_equal(qm_aware_next(window, 1, &disk, &caps), 128);
    assert_int_equal(qm_aware_next(2, 1, &ssd, &caps), 4); /* x2 */
    assert_int_equal(qm_aware_next(8, 1, &ssd, &caps), 8);
    assert_int_equal(qm_aware_next(8, 1, &ssd, &swapped), 16);
    assert_int_equal(qm_aware_next(8, 1, &disk, &swapped), 8);
    assert_int_equal(qm_aware_next(6, 4, &mixed3, &caps), 8); /* x 4/3 */
    assert_int_equal(qm_aware_next(6, 40, &mixed3, &caps), 12);
    assert_int_equal(qm_aware_next(6, 4, &mixed20, &caps), 1);
}

static void expect(struct qm_span span, uint64_t from, uint64_t to)
{
    assert_true(span.from >= span.to || span.from == from);
    assert_int_equal(span.from >= span.to ? 0 : span.to - span.from, to - from);
}

/* One page at a time: the second read is found to be sequential, and each marker is the
 * first page of the last window. */
TEST(test_linux_stream)
{
    const struct qm_paper_config c = {.caps = caps};
    struct qm_paper p = {0};

    expect(qm_paper_miss(&p, &c, 100, 1), 0, 0);
    expect(qm_paper_miss(&p, &c, 101, 1), 102, 105);
    expect(qm_paper_pass(&p, &c, 102, 1), 105, 113);
    expect(qm_paper_pass(&p, &c, 103, 1), 0, 0);
    expect(qm_paper_pass(&p, &c, 105, 1), 113, 129);
    expect(qm_paper_miss(&p, &c, 5000, 1), 0, 0); /* another */
    expect(qm_paper_pass(&p, &c, 113, 1), 129, 161);
    expect(qm_paper_pass(&p, &c, 129, 1), 161, 193);
    expect(qm_paper_miss(&p, &c, 5001, 4), 5005, 5009);
    expect(qm_paper_miss(&p, &c, 5009, 4), 5013, 5029); /* right behind the window */
    qm_paper_fini(&p);
}

static enum qm_place where(void *opaque, uint64_t block)
{
    return block < 1000 ? QM_PLACE_TIER : QM_PLACE_BACKEND;
}

TEST(test_aware_stream)
{
    const struct qm_paper_config c = {.aware = true, .caps = caps, .place = where};
    struct qm_paper p = {0};

    expect(qm_paper_miss(&p, &c, 100, 2), 0, 0);        /* SSD: nothing */
    expect(qm_paper_miss(&p, &c, 2000, 2), 2002, 2004); /* disk: even if random */
    expect(qm_paper_pass(&p, &c, 2002, 2), 2004, 2020); /* x 4 */
    expect(qm_paper_pass(&p, &c, 2004, 2), 2020, 2084);
    expect(qm_paper_pass(&p, &c, 2020, 2), 2084, 2212); /* the cap */
    expect(qm_paper_miss(&p, &c, 995, 4), 999, 1000);   /* mixed: the segment */
    qm_paper_fini(&p);
}
