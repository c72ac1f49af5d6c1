/* SPDX-License-Identifier: BSD-3-Clause */
/* test-faults-files.c - records in files of their own: damaged, named wrongly, or in a
 * directory that cannot be listed.
 *
 * Linked with --wrap for readdir64. */
#include <dirent.h>

#include "faults.h"

static bool listing_fails; /* of the layer's directories */

struct dirent *__real_readdir64(DIR *stream);
struct dirent *__wrap_readdir64(DIR *stream);

struct dirent *__wrap_readdir64(DIR *stream)
{
    char link[40], path[200];
    ssize_t n;

    if (listing_fails) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd(stream));
        n = readlink(link, path, sizeof path - 1);
        path[n > 0 ? n : 0] = 0;
        if (strstr(path, "/0/disk/")) {
            errno = EIO;
            return NULL;
        }
    }
    return __real_readdir64(stream);
}

/* A store on the layer that has 1,000 keys and is closed. */
static struct qmstore_config files_of_1000(void)
{
    struct qmstore_config c = config();
    struct qmstore *s;

    c.disk = "files";
    c.policy = "lru";
    s = open_ok(&c);
    fill(s, 0, 1000);
    assert_int_equal(qmstore_close(s), 0);
    return c;
}

/* A file of a record that was given another's name is that one's no more than damage
 * is: neither a look-up nor a walk tells its value. */
static int walked(void *opaque, const void *key, size_t key_len, const void *value,
                  size_t value_len, uint64_t expires)
{
    unsigned i;

    memcpy(&i, key, sizeof i);
    ++((unsigned char *)opaque)[i];
    return 0;
}

TEST_WITH(test_renamed_record, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = files_of_1000();
    static unsigned char seen[1000];
    char command[400];
    struct qmstore *s;
    unsigned wrong = 0;

    snprintf(command, sizeof command,
             "set -- %s/0/disk/*/*; first=$1; shift; for f; do cp \"$first\" \"$f\"; "
             "done",
             test_dir);
    assert_int_equal(system(command), 0);
    s = open_ok(&c);
    assert_int_equal(qmstore_each(s, walked, seen), 0);
    for (unsigned i = 0; i < 1000; i++) {
        int r = qmstore_get(s, &i, sizeof i, NULL, NULL, NULL);

        assert_true(r == 0 || r == EBADMSG);
        assert_int_equal(seen[i], r == 0);
        wrong += r == EBADMSG;
    }
    assert_true(wrong > 100);
    assert_int_equal(qmstore_close(s), 0);
}

/* A record on disk that is damaged is an error, not another value. */
TEST_WITH(test_damaged_record, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = files_of_1000();
    char command[300];
    struct qmstore *s;
    unsigned wrong = 0;
    uint64_t found;

    snprintf(command, sizeof command,
             "for f in %s/0/disk/*/*; do printf X | dd of=\"$f\" bs=1 seek=500 "
             "conv=notrunc status=none; done",
             test_dir);
    assert_int_equal(system(command), 0);
    message[0] = 0;
    s = open_ok(&c);
    found = stats_of(s).damaged;
    assert_non_null(strstr(message, "records on disk are damaged"));
    for (unsigned i = 0; i < 1000; i++) {
        int r = qmstore_get(s, &i, sizeof i, NULL, NULL, NULL);

        assert_true(r == 0 || r == EBADMSG);
        wrong += r == EBADMSG;
    }
    assert_true(wrong > 100);
    assert_int_equal(found, wrong);
    assert_int_equal(stats_of(s).damaged, 2 * wrong);
    fill(s, 0, 1000); /* a new value mends it */
    assert_int_equal(count(s, 1000), 1000);
    assert_int_equal(qmstore_close(s), 0);
}

/* Keys that are not listed are not taken for absent. */
TEST_WITH(test_listing_fails, make_test_dir, remove_test_dir)
{
    struct qmstore_config c = files_of_1000();
    struct qmstore *s;
    char err[400] = "";

    listing_fails = true;
    assert_int_equal(qmstore_open(&c, &s, err, sizeof err), EIO);
    listing_fails = false;
    assert_false(exists("0.damaged"));
    s = open_ok(&c);
    assert_int_equal(count(s, 1000), 1000);
    assert_int_equal(qmstore_close(s), 0);
}
