/* SPDX-License-Identifier: BSD-3-Clause */
/* test-trace-errors.c - every way in which a trace can be wrong, and what is said. */
#include "tests/unit/trace/files.h"

#include "trace/trace.h"

#define HEADER "#quickmine-trace 1 block=16384\n"

/* Reads name to its end.  Returns the error, or "" if there was none. */
static const char *read_all(const char *name)
{
    static char err[600];
    struct qm_trace_reader *r = qm_trace_open(files_path(name), err, sizeof err);
    struct qm_event e;
    int n;

    if (!r)
        return err;
    while ((n = qm_trace_next(r, &e)) == 1)
        ;
    snprintf(err, sizeof err, "%s", n == 0 ? "" : qm_trace_error(r));
    if (n == -1) /* and it stays so */
        assert_int_equal(qm_trace_next(r, &e), -1);
    qm_trace_free(r);
    return err;
}

struct bad {
    const char *text;
    const char *line; /* "line 2" */
    const char *why;
};

static void assert_error(const char *err, const struct bad *bad)
{
    char line[40];

    snprintf(line, sizeof line, "%s: ", bad->line);
    if (!strstr(err, line) || !strstr(err, bad->why))
        fail_msg("\"%s\" gives \"%s\", not \"%s: %s\"", bad->text, err, bad->line,
                 bad->why);
}

static void check(const struct bad *bad, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        files_put("t", bad[i].text, strlen(bad[i].text));
        assert_error(read_all("t"), &bad[i]);
    }
}
#define CHECK(bad) check(bad, sizeof(bad) / sizeof *(bad))

TEST(headers)
{
    static const struct bad bad[] = {
        {"", "t", "empty"},
        {"\n", "line 1", "not a trace"},
        {"R 0 0 0 1\n", "line 1", "not a trace"},
        {"#quickmine-trace\n", "line 1", "not a trace"},
        {"#quickmine-trace 2 block=16384\n", "line 1", "version 2"},
        {"#quickmine-trace x block=16384\n", "line 1", "must be"},
        {"#quickmine-trace 1\n", "line 1", "must be"},
        {"#quickmine-trace 1 \n", "line 1", "must be"},
        {"#quickmine-trace 1 block=\n", "line 1", "power of two"},
        {"#quickmine-trace 1 block=0\n", "line 1", "power of two"},
        {"#quickmine-trace 1 block=256\n", "line 1", "power of two"},
        {"#quickmine-trace 1 block=5000\n", "line 1", "power of two"},
        {"#quickmine-trace 1 block=33554432\n", "line 1", "power of two"},
        {"#quickmine-trace 1 block=16384 \n", "line 1", "power of two"},
        {"#quickmine-trace 1 block=16384 x\n", "line 1", "power of two"},
        {"#quickmine-trace 1 block=16384\r\n", "line 1", "power of two"},
        {"#quickmine-trace 1 block=16384", "line 1", "truncated"},
    };

    CHECK(bad);
}

TEST(lines)
{
    static const struct bad bad[] = {
        {HEADER "\n", "line 2", "does not begin with"},
        {HEADER "#\n", "line 2", "does not begin with"},
        {HEADER "X 0 0 0 1\n", "line 2", "does not begin with"},
        {HEADER "r 0 0 0 1\n", "line 2", "does not begin with"},
        {HEADER " R 0 0 0 1\n", "line 2", "does not begin with"},
        {HEADER "R\t0 0 0 1\n", "line 2", "does not begin with"},
        {HEADER "R 0 0 0 1\nR 0 0 0 1\r\n", "line 3", "CR LF"},
        {HEADER "R\n", "line 2", "does not begin with"},
        {HEADER "R \n", "line 2", "time"},
        {HEADER "R x 0 0 1\n", "line 2", "time"},
        {HEADER "R -1 0 0 1\n", "line 2", "time"},
        {HEADER "R +1 0 0 1\n", "line 2", "time"},
        {HEADER "R 1.5 0 0 1\n", "line 2", "time"},
        {HEADER "R 18446744073709551616 0 0 1\n", "line 2", "time"},
        {HEADER "R 0\n", "line 2", "context"},
        {HEADER "R 0  0 0 1\n", "line 2", "context"},
        {HEADER "R 0 0x1 0 1\n", "line 2", "context"},
        {HEADER "R 0 0\n", "line 2", "offset"},
        {HEADER "R 0 0 ?\n", "line 2", "offset"},
        {HEADER "R 0 0 0\n", "line 2", "length"},
        {HEADER "R 0 0 0 0\n", "line 2", "length"},
        {HEADER "R 0 0 0 4294967296\n", "line 2", "length"},
        {HEADER "R 0 0 0 1 \n", "line 2", "after the last field"},
        {HEADER "R 0 0 0 1 2\n", "line 2", "after the last field"},
        {HEADER "W 0 0 9223372036854775807 1\n", "line 2", "2^63"},
        {HEADER "W 0 0 18446744073709551615 2\n", "line 2", "2^63"},
        {HEADER "R 0 0 0 1\nR 0 0 0 1", "line 3", "truncated"},
    };

    CHECK(bad);
}

TEST(contexts)
{
    static const struct bad bad[] = {
        {HEADER "R 0 1 0 1\n", "line 2", "context 1 is not open"},
        {HEADER "W 0 1 0 1\n", "line 2", "context 1 is not open"},
        {HEADER "E 0 1\n", "line 2", "context 1 is not open"},
        {HEADER "E 0 0\n", "line 2", "context 0 is not open"},
        {HEADER "E 0\n", "line 2", "context"},
        {HEADER "B 0 1\n", "line 2", "kind"},
        {HEADER "B 0 1 process c 0\n", "line 2", "kind"},
        {HEADER "B 0 1 innermost c 0\n", "line 2", "kind"},
        {HEADER "B 0 1 query\n", "line 2", "class"},
        {HEADER "B 0 1 query  0\n", "line 2", "class"},
        {HEADER "B 0 1 query a\tb 0\n", "line 2", "class"},
        {HEADER "B 0 1 query a\x7f 0\n", "line 2", "class"},
        {HEADER "B 0 1 query c\n", "line 2", "parent"},
        {HEADER "B 0 1 query c d\n", "line 2", "parent"},
        {HEADER "B 0 1 query c 0 0\n", "line 2", "after the last field"},
        {HEADER "B 0 0 query c 0\n", "line 2", "1 or more"},
        {HEADER "B 0 1 query c 2\n", "line 2", "parent 2 is not open"},
        {HEADER "B 0 1 query c 1\n", "line 2", "parent 1 is not open"},
        {HEADER "B 0 1 query c 0\nB 0 1 query c 0\n", "line 3", "1 has begun before"},
        {HEADER "B 0 1 query c 0\nE 0 1\nE 0 1\n", "line 4", "context 1 is not open"},
        {HEADER "B 0 1 query c 0\nE 0 1 1\n", "line 3", "after the last field"},
        {HEADER "B 0 1 query c 0\nE 0 1\nR 0 1 0 1\n", "line 4",
         "context 1 is not open"},
        {HEADER "B 0 1 query c 0\nE 0 1\nB 0 1 query c 0\n", "line 4", "begun before"},
        {HEADER "B 0 1 thread c 0\nB 0 2 query c 1\nE 0 1\nR 0 2 0 1\n", "line 5",
         "context 2 is not open"},
        {HEADER "B 0 1 thread c 0\nB 0 2 query c 1\nE 0 1\nB 0 3 query c 2\n", "line 5",
         "parent 2 is not open"},
        /* of three siblings, the one in the middle ends first */
        {HEADER "B 0 1 thread c 0\nB 0 2 query c 1\nB 0 3 query c 1\nB 0 4 query c 1\n"
                "E 0 3\nR 0 2 0 1\nR 0 4 0 1\nE 0 1\nR 0 2 0 1\n",
         "line 10", "context 2 is not open"},
        {HEADER "B 0 1 thread c 0\nB 0 2 query c 1\nB 0 3 query c 1\nB 0 4 query c 1\n"
                "E 0 4\nR 0 2 0 1\nR 0 3 0 1\nE 0 2\nE 0 1\nR 0 3 0 1\n",
         "line 11", "context 3 is not open"},
    };

    CHECK(bad);
}

TEST(nul_bytes)
{
    static const char text[] = HEADER "R 0 0 0 1\0 2\n";
    static const char head[] = "#quickmine-trace 1 block=16384\0\n";

    files_put("t", text, sizeof text - 1);
    assert_error(read_all("t"), &(struct bad){"NUL", "line 2", "NUL"});
    files_put("t", head, sizeof head - 1);
    assert_error(read_all("t"), &(struct bad){"NUL", "line 1", "not a trace"});
}

/* Lines of exactly the limit, one more, and of a whole buffer without a newline. */
TEST(long_lines)
{
    size_t head = strlen(HEADER), size = 1 << 20;
    char *text = malloc(size);

    assert_non_null(text);
    memcpy(text, HEADER, head);
    memset(text + head, 'x', size - head);
    for (size_t length = 4094; length <= 4097; length++) {
        text[head + length] = '\n';
        files_put("t", text, head + length + 1);
        assert_error(read_all("t"), &(struct bad){"x...", "line 2",
                                                  length <= 4095 ? "does not begin with"
                                                                 : "longer than"});
        text[head + length] = 'x';
    }
    files_put("t", text, size);
    assert_error(read_all("t"), &(struct bad){"x...", "line 2", "longer than"});
    free(text);
}

/* Bytes that are no text at all must give an error, whatever they are. */
TEST(garbage)
{
    unsigned char bytes[3000];
    uint32_t x = 12345;

    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            x = x * 1664525 + 1013904223;
            bytes[i] = (unsigned char)(x >> 24);
        }
        if (round % 4 == 1)
            memcpy(bytes, "\x1f\x8b", 2);
        if (round % 4 == 2)
            memcpy(bytes, "\x28\xb5\x2f\xfd", 4);
        if (round % 4 == 3)
            memcpy(bytes, HEADER, strlen(HEADER));
        files_put("t", bytes, sizeof bytes);
        assert_int_not_equal(read_all("t")[0], '\0');
    }
}

/* A whole file in each format, its text the same. */
static size_t make_whole(const char *name, char **bytes)
{
    char err[256];
    struct qm_trace_writer *w = qm_trace_create(files_path(name), 512, err, sizeof err);

    assert_non_null(w);
    for (uint64_t i = 0; i < 400; i++) {
        struct qm_event e = {
            .type = 'R', .us = i, .offset = i * i * 977, .length = 512};

        assert_int_equal(qm_trace_write(w, &e), 0);
    }
    assert_int_equal(qm_trace_close(w), 0);
    assert_string_equal(read_all(name), "");
    return files_get(name, bytes);
}

/* A compressed file cut anywhere is an error; a plain one, unless between two lines. */
TEST(truncated)
{
    static const char *const names[] = {"t", "t.gz", "t.zst"};

    for (int i = 0; i < 3; i++) {
        char *bytes;
        size_t n = make_whole(names[i], &bytes);

        for (size_t cut = 0; cut < n; cut += cut < 64 || cut > n - 64 ? 1 : 13) {
            const char *err;

            files_put("u", bytes, cut);
            err = read_all("u");
            if (i == 0 && cut > 0 && bytes[cut - 1] == '\n')
                assert_string_equal(err, "");
            else if (err[0] == '\0')
                fail_msg("%s cut at %zu of %zu is no error", names[i], cut, n);
        }
        free(bytes);
    }
}

/* A compressed file with a byte changed: never a crash, and where the format has a
 * checksum over what was changed, an error. */
TEST(damaged)
{
    static const char *const names[] = {"t.gz", "t.zst"};

    for (int i = 0; i < 2; i++) {
        char *bytes;
        size_t n = make_whole(names[i], &bytes);

        for (size_t at = 20; at < n; at += 7) {
            bytes[at] ^= 0x55;
            files_put("u", bytes, n);
            if (read_all("u")[0] == '\0')
                fail_msg("%s changed at %zu of %zu is no error", names[i], at, n);
            bytes[at] ^= 0x55;
        }
        free(bytes);
    }
}

int main(void)
{
    return run_listed(files_make, files_remove);
}
