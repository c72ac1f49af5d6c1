/* SPDX-License-Identifier: BSD-3-Clause */
/* test-disk.c - seek curve, rotation and buffer of one disk. */
#include "testing.h"

enum { TRACK = 360000, KB16 = 16384 };

#define SPAN UINT64_C(73000000000)

static const struct qm_disk_config savvio = {
    .single_ns = 0.2e6,
    .average_ns = 4.0e6,
    .full_ns = 8.1e6,
    .write_ns = 0.4e6,
    .overhead_ns = 0.2e6,
    .revolution_ns = 6e6,
    .track = TRACK,
    .span = SPAN,
    .buffer = 1 << 20,
};

TEST(test_curve_meets_what_the_manual_states)
{
    struct qm_disk_model m;
    double sum = 0, weights = 0, last = 0;
    const int n = 200000;

    assert_int_equal(qm_disk_model_init(&m, &savvio), 0);
    assert_near(qm_disk_seek_ns(&m, 0), 0.2e6, 1);
    assert_near(qm_disk_seek_ns(&m, SPAN), 8.1e6, 1);
    for (int i = 0; i < n; i++) {
        double x = (i + 0.5) / n, t = qm_disk_seek_ns(&m, (uint64_t)(x * SPAN));

        assert_true(t > last);
        if (i > n / 1000) /* it has no jumps; at the start it is steep */
            assert_true(t - last < 1000);
        last = t;
        sum += t * (1 - x);
        weights += 1 - x;
    }
    assert_near(sum / weights, 4.0e6, 100);
}

TEST(test_curve_is_root_then_line)
{
    struct qm_disk_model m;
    const double h = SPAN / 100.0;
    double knee;

    assert_int_equal(qm_disk_model_init(&m, &savvio), 0);
    knee = m.knee * SPAN;
    assert_true(m.knee > 0.05 && m.knee < 0.95);
    /* On the root's side, a quarter of the distance takes half the time. */
    assert_near(2 * (qm_disk_seek_ns(&m, (uint64_t)(knee / 16)) - 0.2e6),
                qm_disk_seek_ns(&m, (uint64_t)(knee / 4)) - 0.2e6, 1);
    /* On the other, equal steps take equal times. */
    assert_near(qm_disk_seek_ns(&m, (uint64_t)(SPAN - h)) -
                    qm_disk_seek_ns(&m, (uint64_t)(SPAN - 2 * h)),
                qm_disk_seek_ns(&m, SPAN) - qm_disk_seek_ns(&m, (uint64_t)(SPAN - h)),
                1);
}

TEST(test_curve_refuses_what_cannot_be)
{
    struct qm_disk_config c = savvio;
    struct qm_disk_model m;

    c.average_ns = c.full_ns;
    assert_int_equal(qm_disk_model_init(&m, &c), -1);
    c.average_ns = 1e6;
    assert_int_equal(qm_disk_model_init(&m, &c), -1);
    c = savvio;
    c.full_ns = c.single_ns;
    assert_int_equal(qm_disk_model_init(&m, &c), -1);
}

static void set_up(struct qm_disk_model *m, struct qm_disk *d, uint64_t buffer)
{
    struct qm_disk_config c = savvio;

    c.buffer = buffer;
    assert_int_equal(qm_disk_model_init(m, &c), 0);
    qm_disk_init(d, m, 0);
}

/* On the head's own track there is no seek, so that the time is known exactly: at time
 * 0 position 0 comes by. */
TEST(test_rotation_follows_from_the_position)
{
    struct qm_disk_model m;
    struct qm_disk d;
    const double per_byte = 6e6 / TRACK;

    set_up(&m, &d, 0);
    /* 0.2 ms are over at byte 12,000; it comes to 18,000 at 0.3 ms. */
    assert_near(qm_disk_serve(&d, &m, 0, false, 18000, 6000), 24000 * per_byte, 1);
    /* What has just gone by comes again a revolution later. */
    assert_near(qm_disk_serve(&d, &m, 24000 * per_byte, false, 24000, 6000),
                6e6 + 30000 * per_byte, 1);
    /* To another track: seek first, then the wait that is left. */
    set_up(&m, &d, 0);
    {
        double seek = qm_disk_seek_ns(&m, 10 * TRACK), there = 0.2e6 + seek;
        double end = qm_disk_serve(&d, &m, 0, false, 10 * TRACK, KB16);

        assert_near(fmod(end - KB16 * per_byte, 6e6), 0, 1);
        assert_true(end - KB16 * per_byte >= there);
        assert_true(end - KB16 * per_byte < there + 6e6);
    }
}

TEST(test_a_write_takes_longer_to_settle)
{
    struct qm_disk_model m;
    double read = 0, write = 0;

    for (int i = 0; i < 6000; i++) { /* all angles */
        struct qm_disk d;

        set_up(&m, &d, 0);
        read += qm_disk_serve(&d, &m, i * 1e3, false, SPAN / 2, KB16) - i * 1e3;
        set_up(&m, &d, 0);
        write += qm_disk_serve(&d, &m, i * 1e3, true, SPAN / 2, KB16) - i * 1e3;
    }
    assert_near((write - read) / 6000, 0.4e6, 3e3);
}

TEST(test_reading_on_costs_no_revolution)
{
    struct qm_disk_model m;
    struct qm_disk d;
    double now, end, first;

    set_up(&m, &d, 1 << 20);
    first = now = qm_disk_serve(&d, &m, 0, false, 0, KB16);
    for (int i = 1; i < 1000; i++) { /* each 0.1 ms after the one before */
        now += 0.1e6;
        end = qm_disk_serve(&d, &m, now, false, (uint64_t)i * KB16, KB16);
        assert_true(end - now < 0.5e6);
        now = end;
    }
    /* No faster than the surface goes by. */
    assert_true(now - first >= 999.0 * KB16 * 6e6 / TRACK - 1);

    /* Without a buffer each misses its turn. */
    set_up(&m, &d, 0);
    now = qm_disk_serve(&d, &m, 0, false, 0, KB16);
    end = qm_disk_serve(&d, &m, now + 0.1e6, false, KB16, KB16);
    assert_near(end - now, 6e6 + KB16 * 6e6 / TRACK, 1);
}

TEST(test_buffer_has_an_end)
{
    struct qm_disk_model m;
    struct qm_disk d;
    double now;

    set_up(&m, &d, 1 << 20);
    now = qm_disk_serve(&d, &m, 0, false, 0, KB16);
    /* Long after, half a buffer is there, and costs the overhead. */
    now += 1e9;
    assert_near(qm_disk_serve(&d, &m, now, false, 0, KB16) - now, 0.2e6, 1);
    assert_near(qm_disk_serve(&d, &m, now, false, 1 << 19, KB16) - now, 0.2e6, 1);
    /* That made it read on, when its end came by again. */
    now += 10e6;
    assert_near(qm_disk_serve(&d, &m, now, false, (1 << 19) + KB16, KB16) - now, 0.2e6,
                1);

    set_up(&m, &d, 1 << 20);
    (void)qm_disk_serve(&d, &m, 0, false, 0, KB16);
    /* What follows half a buffer is not there; the arm is: no seek, but the rotation.
     * 2 s are 333 revolutions and a third: byte 120,000. */
    now = 2e9;
    assert_near(
        qm_disk_serve(&d, &m, now, false, (1 << 19) + KB16, KB16) - now,
        fmod(((1 << 19) + KB16 - 120000) * 6e6 / TRACK, 6e6) + KB16 * 6e6 / TRACK, 2);
    /* What it reads on it has no sooner than that comes by. */
    set_up(&m, &d, 1 << 20);
    (void)qm_disk_serve(&d, &m, 0, false, 0, KB16);
    now = 2e9;
    for (uint64_t i = 0; i < 200; i++)
        now = qm_disk_serve(&d, &m, now, false, i * KB16, KB16);
    assert_true(now - 2e9 >= 200.0 * KB16 * 6e6 / TRACK - (1 << 19) * 6e6 / TRACK);
    assert_true(now - 2e9 < 200.0 * KB16 * 6e6 / TRACK + 6e6);
    /* A write goes to the surface, also of what is there, and leaves nothing. */
    set_up(&m, &d, 1 << 20);
    (void)qm_disk_serve(&d, &m, 0, false, 0, KB16);
    now = 2e9;
    assert_near(qm_disk_serve(&d, &m, now, true, KB16, KB16) - now,
                (2 * KB16 - 120000 + TRACK) * 6e6 / TRACK, 2);
    now = 3e9;
    assert_near(qm_disk_serve(&d, &m, now, false, KB16, KB16) - now,
                2 * KB16 * 6e6 / TRACK, 2);
    /* A write, or a read elsewhere, takes the arm and the buffer. */
    for (int write = 0; write < 2; write++) {
        set_up(&m, &d, 1 << 20);
        now = qm_disk_serve(&d, &m, 0, false, 0, KB16);
        now = qm_disk_serve(&d, &m, now + 1e8, write, SPAN / 2, KB16);
        assert_true(qm_disk_serve(&d, &m, now, false, KB16, KB16) - now > 4e6);
    }
}

TEST(test_buffer_forgets_what_is_far_behind)
{
    struct qm_disk_model m;
    struct qm_disk d;
    double now;

    set_up(&m, &d, 1 << 20);
    now = qm_disk_serve(&d, &m, 0, false, 0, 4 << 20);
    assert_true(qm_disk_serve(&d, &m, now, false, 0, KB16) - now > 0.5e6);
}
