/* SPDX-License-Identifier: BSD-3-Clause */
/* test-owner.c - who owns an image, whom others can have overtaken, and at which
 * moments. */
#include <errno.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness.h"

#include "ceph.h"
#include "plugins/rbd/owner.h"
#include "plugins/rbd/volume.h"

static atomic_bool lost;
static atomic_uint waits;
static atomic_bool patient; /* nothing happens because time has passed */

int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    waits++;
    return patient ? pthread_cond_wait(cond, lock)
                   : __real_pthread_cond_timedwait(cond, lock, until);
}

static void say(const char *text)
{
}

static void is_lost(unsigned seconds)
{
    lost = true;
}

static const struct qmr_events events = {say, is_lost};

static struct qmr_volume *open_it(bool takeover)
{
    struct qmr_config config = {.pool = "rbd",
                                .image = "v",
                                .user = "admin",
                                .lock = QMR_LOCK_EXCLUSIVE,
                                .takeover = takeover,
                                .connect_timeout = 10};
    struct qmr_volume *v = NULL;
    char err[300] = "";

    lost = false;
    if (qmr_volume_open(&config, &events, &v, err, sizeof err) == -1)
        fail_msg("%s", err);
    return v;
}

/* Who owned it before; "": not known. */
static const char *before(struct qmr_volume *v, char known[QMR_OWNER_TEXT])
{
    static char text[QMR_OWNER_TEXT];

    assert_int_equal(qmr_volume_state(v, text, known, QMR_OWNER_TEXT), 0);
    return text;
}

/* Waits; a minute is for ever. */
static void wait_until_lost(void)
{
    for (int i = 0; i < 60000 && !lost; i++)
        usleep(1000);
    assert_true(lost);
}

/* What nobody else has owned since its release is known, and what anybody has is not.
 */
TEST(test_release)
{
    char known[QMR_OWNER_TEXT], again[QMR_OWNER_TEXT];
    struct qmr_volume *v = open_it(false);

    assert_string_equal(before(v, known), "");
    qmr_volume_close(v);
    v = open_it(false);
    assert_string_equal(before(v, again), known);
    assert_string_not_equal(again, known);
    qmr_volume_close(v);
    ceph_passes_by();
    v = open_it(false);
    assert_string_equal(before(v, known), "");
    qmr_volume_close(v);
}

/* Other objects of the placement group were written to while it was owned. */
TEST(test_written_beside)
{
    char known[QMR_OWNER_TEXT], again[QMR_OWNER_TEXT];
    struct qmr_volume *v = open_it(false);

    assert_int_equal(qmr_volume_state(v, again, known, QMR_OWNER_TEXT), 0);
    ceph.newest += 100;
    qmr_volume_close(v);
    v = open_it(false);
    assert_string_equal(before(v, again), known);
    qmr_volume_close(v);
}

/* Between the release and the look at the header. */
TEST(test_passes_by)
{
    char known[QMR_OWNER_TEXT];
    struct qmr_volume *v = open_it(false);

    ceph.released = ceph_passes_by;
    qmr_volume_close(v);
    v = open_it(false);
    assert_string_equal(before(v, known), "");
    /* Or it has it still. */
    ceph.released = ceph_takes;
    qmr_volume_close(v);
    v = open_it(true);
    assert_string_equal(before(v, known), "");
    qmr_volume_close(v);
}

/* Who died with the lock is known if it has it still. */
TEST(test_died)
{
    char known[QMR_OWNER_TEXT], again[QMR_OWNER_TEXT];
    struct qmr_volume *v = open_it(false), *next;

    assert_string_not_equal(before(v, known), "no");
    patient = true; /* the first one does not notice */
    next = open_it(true);
    assert_string_equal(before(next, again), known);
    patient = false;
    qmr_volume_close(next);
    ceph.locker[0] = '\0';
    qmr_volume_close(v);
}

static void overtake(void)
{
    ceph_takes();
    wait_until_lost();
}

/* A read that has ended well, but after another had taken the image over, is not
 * answered. */
TEST(test_overtaken_read)
{
    struct qmr_volume *v = open_it(false);
    char data[512];

    assert_int_equal(qmr_volume_read(v, data, sizeof data, 0), 0);
    assert_int_equal(data[511], 'd');
    ceph.reading = overtake;
    assert_int_equal(qmr_volume_read(v, data, sizeof data, 0), ESHUTDOWN);
    assert_int_equal(qmr_volume_read(v, data, sizeof data, 0), ESHUTDOWN);
    ceph.writes = 0;
    assert_int_equal(qmr_volume_write(v, data, sizeof data, 0), ESHUTDOWN);
    assert_int_equal(ceph.writes, 0); /* nor is it begun */
    qmr_volume_close(v);
    assert_string_equal(ceph.locker, "client.99"); /* it is not released */
    ceph.locker[0] = '\0';
}

/* A question finds out, and that ends the server at once, not when it looks next. */
TEST(test_verify)
{
    struct qmr_volume *v;

    v = open_it(false);
    assert_int_equal(qmr_volume_verify(v), 0);
    qmr_volume_close(v);
    patient = true;
    waits = 0;
    v = open_it(false);
    for (int i = 0; i < 60000 && waits == 0; i++) /* until its first look is over */
        usleep(1000);
    assert_int_equal(waits, 1);
    ceph_takes();
    assert_int_equal(qmr_volume_verify(v), ESHUTDOWN);
    wait_until_lost();
    qmr_volume_close(v);
    patient = false;
    ceph.locker[0] = '\0';
}
