/* SPDX-License-Identifier: BSD-3-Clause */
/* test-values.c - what is no value of a parameter of the filter, and what it says then:
 * which parameter, what is allowed, and what was given.  That a server with such a
 * value does not start, tests/live/server/parameters sees. */
#include <stdio.h>

#include "tests/harness.h"

#include "server/log.h"
#include "server/parameters.h"
#include "server/values.h"

/* nbdkit's, which the filter finds in the program that loads it. */
void nbdkit_error(const char *format, ...)
{
    fail_msg("%s is logged", format);
}

char *nbdkit_absolute_path(const char *path)
{
    return strdup(path);
}

/* log.c needs more of nbdkit. */
int qms_log_parse(const char *name)
{
    return strcmp(name, "note") == 0 ? QMS_NOTE : -1;
}

static const char *const numbers[] = {
    "cache-blocks",
    "lookahead",
    "degree",
    "max-prefix",
    "max-suffix",
    "grace",
    "segment",
    "prefetch-share",
    "prefetch-threads",
    "prefetch-connections",
    "prefetch-queue",
    "rules-save",
    "rules-purge",
    "retrain",
    "readahead-cap",
    "readahead-cap-disk",
    "readahead-cap-ssd",
    "shards",
};

static const char *const sizes[] = {"cache-size", "block-size", "miner-queue",
                                    "rules-pool", "rules-memory"};

static const char *const words[] = {
    "readahead-preset", "policy",        "eviction",          "level",     "preset",
    "prefetch-on",      "throttle",      "skip-hits",         "requests",  "admission",
    "prefetching",      "prefetch-rate", "prefetch-priority", "log-level", "check-only",
};

static size_t key_of(const char *name)
{
    for (size_t i = 0; i < qms_key_count; i++)
        if (strcmp(qms_keys[i].key, name) == 0)
            return i;
    fail_msg("there is no %s", name);
    return 0;
}

static void refuse(const char *name, const char *value)
{
    static struct qms_config config;
    char err[400] = "", begin[60], end[80];
    int r;

    snprintf(begin, sizeof begin, "%s must be ", name);
    snprintf(end, sizeof end, ", not \"%s\"", value);
    qms_value_tell(err, sizeof err);
    r = qms_key_set(key_of(name), value, &config);
    qms_value_tell(NULL, 0);
    if (r != -1)
        fail_msg("%s=%s is taken", name, value);
    if (strncmp(err, begin, strlen(begin)) != 0 || strlen(err) < strlen(end) ||
        strcmp(err + strlen(err) - strlen(end), end) != 0)
        fail_msg("%s=%s: it says: %s", name, value, err);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void refuse_all(const char *const *names, size_t n, const char *const *values,
                       size_t m)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++)
            refuse(names[i], values[k]);
}

TEST(test_no_number)
{
    static const char *const values[] = {
        "",     " ",   "x",     "-1",  "+1",  "16 ",  " 16",
        "0x10", "1,5", "1.5.5", "1e3", "1K1", "16\n", "99999999999999999999"};

    refuse_all(numbers, COUNT(numbers), values, COUNT(values));
    refuse_all(sizes, COUNT(sizes), values, COUNT(values));
}

TEST(test_no_size)
{
    static const char *const values[] = {"64K ", "64KK",        "64Q",
                                         "1.5M", "K",           "9223372036854775808",
                                         "16E",  "17179869184G"};

    refuse_all(sizes, COUNT(sizes), values, COUNT(values));
}

TEST(test_no_word)
{
    static const char *const values[] = {"", " ", "x", "1", "on ", "On"};

    refuse_all(words, COUNT(words), values, COUNT(values));
}

/* Lower and upper bounds of those that have some, and the nearest allowed. */
TEST(test_bounds)
{
    static const struct {
        const char *name, *low, *least, *most, *high;
    } bounds[] = {
        {"cache-blocks", "0", "1", "4294967295", "4294967296"},
        {"lookahead", "1", "2", "64", "65"},
        {"degree", "0", "1", "64", "65"},
        {"prefetch-share", "0", "0.001", "99.999", "100"},
        {"prefetch-threads", "0", "1", "256", "257"},
        {"prefetch-connections", "0", "1", "256", "257"},
        {"prefetch-queue", "0", "1", "65536", "65537"},
        {"rules-save", NULL, "0", "86400", "86401"},
        {"retrain", NULL, "0", "100000000", "100000001"},
        {"shards", NULL, "0", "1024", "2048"},
        {"block-size", "2K", "4K", "1M", "2M"},
        {"tier-write-rate", NULL, "0", "1023P", "1E"},
    };

    for (size_t i = 0; i < COUNT(bounds); i++) {
        struct qms_config config = {0};
        size_t key = key_of(bounds[i].name);

        if (bounds[i].low)
            refuse(bounds[i].name, bounds[i].low);
        assert_int_equal(qms_key_set(key, bounds[i].least, &config), 0);
        assert_int_equal(qms_key_set(key, bounds[i].most, &config), 0);
        refuse(bounds[i].name, bounds[i].high);
    }
}
