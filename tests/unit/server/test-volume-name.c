/* SPDX-License-Identifier: BSD-3-Clause */
/* test-volume-name.c - which parameters of the layers below name the volume. */
#include <stdio.h>
#include <unistd.h>

#include "tests/harness.h"

#include "server/volume-name.h"
#include "tier/format.h"

static char dir[] = "/tmp/volume-name.XXXXXX", image[64], log_file[64];
static const char *loaded; /* layers, between blanks */

/* In the place of that of volume.c: which layers nbdkit has loaded. */
bool __wrap_qms_volume_has_layer(const char *kind, const char *name);
bool __wrap_qms_volume_has_layer(const char *kind, const char *name)
{
    char text[80];

    snprintf(text, sizeof text, " %s%s ", name, kind);
    return strstr(loaded, text);
}

static void make(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    fputs(text, f);
    fclose(f);
}

/* The name of these keys and values, which end with NULL. */
static const char *name_of(const char *key, ...)
{
    static char names[8][QMS_VOLUME_NAME];
    static unsigned turn;
    va_list more;

    qms_volume_free();
    va_start(more, key);
    for (; key; key = va_arg(more, const char *))
        qms_volume_parameter(key, va_arg(more, const char *));
    va_end(more);
    turn = (turn + 1) % 8;
    qms_volume_name(names[turn]);
    assert_true(strlen(names[turn]) < QM_TIER_NAME);
    return names[turn];
}

/* Two names are of one volume (why is ""), or why says that. */
static void expect(const char *had, const char *has, const char *why)
{
    char told[200];
    bool same = qms_volume_same(had, has, told, sizeof told);

    if (same != (why[0] == '\0') || !strstr(told, why))
        fail_msg("%s, %s: %d, \"%s\"", had, has, same, told);
}

static int setup(void **state)
{
    loaded = " file-plugin.so stats-filter.so log-filter.so delay-filter.so ";
    make(image, "data");
    unlink(log_file);
    return 0;
}

/* Logs, delays and their like say how: whatever becomes of them, the name stays. */
TEST_WITH(test_manner, setup, NULL)
{
    const char *name = name_of("file", image, NULL);

    assert_string_equal(name_of("file", image, "statsfile", log_file, NULL), name);
    make(log_file, "it has come into being");
    assert_string_equal(name_of("file", image, "statsfile", log_file, NULL), name);
    assert_string_equal(name_of("logfile", log_file, "file", image, "delay-read", "9",
                                "fadvise", "random", NULL),
                        name);
    /* They are of these layers: another's may name the data. */
    loaded = " python-plugin.so ";
    assert_string_not_equal(name_of("file", image, "statsfile", log_file, NULL), name);
    expect(name, name_of("file", image, "statsfile", log_file, NULL),
           "the parameter statsfile is given now");
}

TEST_WITH(test_what_differs, setup, NULL)
{
    const char *name = name_of("file", image, "offset", "1M", NULL);

    expect(name, name_of("offset", "1M", "file", image, NULL), "");
    expect(name, name_of("file", image, NULL),
           "the parameter offset is not given any more");
    expect(name_of("file", image, NULL), name_of("file", image, "range", "1", NULL),
           "the parameter range is given now");
    expect(name_of("file", image, "offset", "1M", NULL),
           name_of("file", image, "offset", "2M", NULL),
           "the parameter offset has another value");
    expect(name_of("file", image, NULL), name_of("file", log_file, NULL),
           "the parameter file has another value");
}

/* A given name is not one of these; nor the reverse. */
TEST_WITH(test_given, setup, NULL)
{
    char why[100];

    assert_false(
        qms_volume_same("the UUID", name_of("file", image, NULL), why, sizeof why));
    assert_string_equal(why, "");
}

/* Of several values of one key, the order matters. */
TEST_WITH(test_order, setup, NULL)
{
    const char *name = name_of("file", "/a", "file", "/b", "offset", "1", NULL);

    expect(name, name_of("file", "/a", "offset", "1", "file", "/b", NULL), "");
    expect(name_of("file", "/a", "file", "/b", "offset", "1", NULL),
           name_of("file", "/b", "file", "/a", "offset", "1", NULL),
           "the parameter file has another value");
}

/* A file that was made anew holds other data; one that was not there yet may be one
 * that the layer below makes. */
TEST_WITH(test_files, setup, NULL)
{
    char other[80];
    const char *name = name_of("file", image, "config", log_file, NULL);

    make(log_file, "now it is there");
    expect(name, name_of("file", image, "config", log_file, NULL), "");
    name = name_of("file", image, "config", log_file, NULL);
    unlink(log_file);
    expect(name, name_of("file", image, "config", log_file, NULL),
           "the parameter config names no file any more");
    snprintf(other, sizeof other, "%s.other", image);
    make(other, "data");
    name = name_of("file", image, NULL);
    assert_int_equal(rename(other, image), 0);
    expect(name, name_of("file", image, NULL),
           "the parameter file names another file, or the file was made anew");
    assert_string_equal(qms_volume_file(), image);
}

/* A script is a program, and its plugin's other parameters are what they are. */
TEST_WITH(test_programs, setup, NULL)
{
    char other[80];
    const char *name;

    loaded = " python-plugin.so ";
    name = name_of("script", image, "disk", "7", NULL);
    snprintf(other, sizeof other, "%s.other", image);
    make(other, "data");
    assert_int_equal(rename(other, image), 0);
    expect(name, name_of("script", image, "disk", "7", NULL), "");
    expect(name, name_of("script", image, "disk", "8", NULL),
           "the parameter disk has another value");
}

/* More than a name has room for. */
TEST_WITH(test_many, setup, NULL)
{
    char key[40], had[QMS_VOLUME_NAME], has[QMS_VOLUME_NAME];

    for (unsigned changed = 0; changed < 60; changed++) {
        for (unsigned k = 0; k < 2; k++) {
            qms_volume_free();
            for (unsigned i = 0; i < 60; i++) {
                snprintf(key, sizeof key, "key%02u: a blank. and so on", i);
                qms_volume_parameter(key, k && i == changed ? "other" : "value");
            }
            qms_volume_name(k ? has : had);
        }
        assert_true(strlen(has) < QM_TIER_NAME);
        expect(had, has, "has another value");
    }
    expect(had, had, "");
}

/* The names of the versions before: their tiers are kept, and called anew. */
TEST_WITH(test_former, setup, NULL)
{
    char former[QMS_VOLUME_FORMER];
    const char *name = name_of("file", image, "statsfile", log_file, NULL);

    qms_volume_former(former);
    assert_int_equal(strlen(former), 23);
    expect(former, name, "");
    former[22] = former[22] == '0' ? '1' : '0';
    expect(former, name, "a version that did not record which");
}

int main(void)
{
    int r;

    if (!mkdtemp(dir))
        return 1;
    snprintf(image, sizeof image, "%s/image", dir);
    snprintf(log_file, sizeof log_file, "%s/log", dir);
    r = run_listed(NULL, NULL);
    qms_volume_free();
    unlink(image);
    unlink(log_file);
    rmdir(dir);
    return r;
}
