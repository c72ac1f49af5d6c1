/* SPDX-License-Identifier: BSD-3-Clause */
/* test-trace.c - what is written is read again, plain and compressed. */
#include "tests/unit/trace/files.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "trace/old.h"
#include "trace/trace.h"

static const char *const names[] = {"t", "t.gz", "t.zst"};

static struct qm_trace_writer *create(const char *name, uint64_t block_size)
{
    char err[256];
    struct qm_trace_writer *w = qm_trace_create(files_path(name), block_size, err, 256);

    assert_non_null(w);
    return w;
}

static struct qm_trace_reader *open_trace(const char *name)
{
    char err[600] = "";
    struct qm_trace_reader *r = qm_trace_open(files_path(name), err, sizeof err);

    if (!r)
        fail_msg("%s", err);
    return r;
}

/* The events that a case writes, and their slots. */
static const struct qm_event events[] = {
    {.type = 'B', .us = 0, .ctx = 7, .slot = 1, .kind = QM_CONNECTION, .klass = "c"},
    {.type = 'B',
     .us = 1,
     .ctx = 8,
     .slot = 2,
     .kind = QM_THREAD,
     .klass = "worker\xc3\xa9",
     .parent = 7,
     .parent_slot = 1},
    {.type = 'R', .us = 2, .ctx = 8, .slot = 2, .offset = 0, .length = 1},
    {.type = 'R', .us = 2, .ctx = 0, .slot = 0, .offset = 16384, .length = UINT32_MAX},
    {.type = 'W',
     .us = UINT64_MAX,
     .ctx = 7,
     .slot = 1,
     .offset = INT64_MAX - 1,
     .length = 1},
    {.type = 'B',
     .us = 3,
     .ctx = 9,
     .slot = 3,
     .kind = QM_TRANSACTION,
     .klass = "t",
     .parent = 8,
     .parent_slot = 2},
    {.type = 'B',
     .us = 3,
     .ctx = 10,
     .slot = 4,
     .kind = QM_QUERY,
     .klass = "q",
     .parent = 9,
     .parent_slot = 3},
    {.type = 'E', .us = 4, .ctx = 8, .slot = 2}, /* ends 9 and 10, too */
    {.type = 'R', .us = 5, .ctx = 7, .slot = 1, .offset = 5, .length = 6},
    {.type = 'E', .us = 6, .ctx = 7, .slot = 1},
    {.type = 'W', .us = 7, .ctx = 0, .slot = 0, .offset = 512, .length = 512},
};
enum { EVENTS = sizeof events / sizeof *events };

static void assert_same(const struct qm_event *a, const struct qm_event *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->us, b->us);
    assert_int_equal(a->ctx, b->ctx);
    assert_int_equal(a->slot, b->slot);
    if (a->type == 'B') {
        assert_int_equal(a->kind, b->kind);
        assert_int_equal(a->parent, b->parent);
        assert_int_equal(a->parent_slot, b->parent_slot);
        assert_string_equal(a->klass, b->klass);
    } else if (a->type != 'E') {
        assert_int_equal(a->offset, b->offset);
        assert_int_equal(a->length, b->length);
    }
}

TEST(round_trip)
{
    for (int i = 0; i < 3; i++) {
        struct qm_trace_writer *w = create(names[i], 4096);
        struct qm_trace_reader *r;
        struct qm_event e;

        for (int j = 0; j < EVENTS; j++)
            assert_int_equal(qm_trace_write(w, &events[j]), 0);
        assert_int_equal(qm_trace_close(w), 0);

        r = open_trace(names[i]);
        assert_int_equal(qm_trace_block_size(r), 4096);
        for (int j = 0; j < EVENTS; j++) {
            assert_int_equal(qm_trace_next(r, &e), 1);
            assert_same(&e, &events[j]);
            assert_int_equal(qm_trace_line(r), j + 2);
        }
        assert_int_equal(qm_trace_next(r, &e), 0);
        assert_int_equal(qm_trace_next(r, &e), 0);
        qm_trace_free(r);
    }
}

TEST(exact_text)
{
    static const char want[] = "#quickmine-trace 1 block=16384\n"
                               "B 0 1 transaction 5c1f 0\n"
                               "R 10 1 32768 32768\n"
                               "W 11 0 0 512\n"
                               "E 12 1\n";
    const struct qm_event in[] = {
        {.type = 'B', .us = 0, .ctx = 1, .kind = QM_TRANSACTION, .klass = "5c1f"},
        {.type = 'R', .us = 10, .ctx = 1, .offset = 32768, .length = 32768},
        {.type = 'W', .us = 11, .ctx = 0, .offset = 0, .length = 512},
        {.type = 'E', .us = 12, .ctx = 1},
    };
    struct qm_trace_writer *w = create("t", 16384);
    char *text;
    size_t n;

    for (int i = 0; i < 4; i++)
        assert_int_equal(qm_trace_write(w, &in[i]), 0);
    assert_int_equal(qm_trace_close(w), 0);
    n = files_get("t", &text);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(text, want, n);
    free(text);
}

/* An event that a reader would refuse is refused, and the file stays readable. */
TEST(writer_refuses)
{
    char long_class[QM_TRACE_CLASS_MAX + 2];
    struct qm_event bad[] = {
        {.type = 'B', .ctx = 0, .kind = QM_QUERY, .klass = "q"},
        {.type = 'B', .ctx = 1, .kind = 0, .klass = "q"},
        {.type = 'B', .ctx = 1, .kind = QM_QUERY, .klass = ""},
        {.type = 'B', .ctx = 1, .kind = QM_QUERY, .klass = "a b"},
        {.type = 'B', .ctx = 1, .kind = QM_QUERY, .klass = "a\n"},
        {.type = 'B', .ctx = 1, .kind = QM_QUERY, .klass = NULL},
        {.type = 'B', .ctx = 1, .kind = QM_QUERY, .klass = long_class},
        {.type = 'R', .ctx = 0, .offset = 0, .length = 0},
        {.type = 'R', .ctx = 0, .offset = 0, .length = UINT64_C(1) << 32},
        {.type = 'W', .ctx = 0, .offset = INT64_MAX, .length = 1},
        {.type = 'E', .ctx = 0},
        {.type = 'X', .ctx = 1},
    };
    struct qm_trace_writer *w = create("t", 512);
    struct qm_trace_reader *r;
    struct qm_event e = {.type = 'R', .offset = 1, .length = 2};

    memset(long_class, 'x', sizeof long_class - 1);
    long_class[sizeof long_class - 1] = '\0';
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(qm_trace_write(w, &bad[i]), EINVAL);
    assert_int_equal(qm_trace_write(w, &e), 0);
    long_class[QM_TRACE_CLASS_MAX] = '\0'; /* the longest that is allowed */
    e = (struct qm_event){.type = 'B', .ctx = 1, .kind = QM_QUERY, .klass = long_class};
    assert_int_equal(qm_trace_write(w, &e), 0);
    assert_int_equal(qm_trace_close(w), 0);

    r = open_trace("t");
    assert_int_equal(qm_trace_next(r, &e), 1);
    assert_int_equal(e.offset, 1);
    assert_int_equal(qm_trace_next(r, &e), 1);
    assert_string_equal(e.klass, long_class);
    assert_int_equal(qm_trace_next(r, &e), 0);
    qm_trace_free(r);
}

TEST(bad_files)
{
    char err[600];

    assert_null(qm_trace_create(files_path("t"), 1000, err, sizeof err));
    assert_non_null(strstr(err, "power of two"));
    assert_null(qm_trace_create(files_path("none/t"), 512, err, sizeof err));
    assert_non_null(strstr(err, "cannot be created"));
    assert_null(qm_trace_open(files_path("u"), err, sizeof err));
    assert_non_null(strstr(err, "cannot be opened"));
    assert_null(qm_trace_open(files_dir, err, sizeof err));
    assert_non_null(strstr(err, "cannot be read"));
}

static const char *refusal(const char *name)
{
    static char err[600];
    struct qm_trace_writer *w = qm_trace_record(files_path(name), 512, err, sizeof err);

    if (w)
        qm_trace_abandon(w);
    return w ? "" : err;
}

/* A recording takes the place of a trace or of nothing, of no other file. */
TEST(recorded_over)
{
    static const char other[] = "a file of somebody's, more than 32 bytes of it";
    const size_t size = sizeof other;
    struct qm_trace_writer *w;
    char err[256], *after;

    files_put("t", other, size);
    assert_non_null(strstr(refusal("t"), "is no trace, and is not overwritten"));
    assert_int_equal(files_get("t", &after), size);
    assert_memory_equal(after, other, size);
    free(after);
    files_put("t", "#quickmine-rules 1\n", 19);
    assert_non_null(strstr(refusal("t"), "is no trace"));
    files_put("t", "\x1f", 1);
    assert_non_null(strstr(refusal("t"), "is no trace"));
    files_put("t", "", 0);
    assert_string_equal(refusal("t"), "");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(qm_trace_close(create(names[i], 512)), 0);
        assert_string_equal(refusal(names[i]), "");
    }
    /* What a person names as the output of a conversion is. */
    files_put("t", other, size);
    w = qm_trace_create(files_path("t"), 512, err, sizeof err);
    assert_non_null(w);
    assert_int_equal(qm_trace_close(w), 0);
    assert_string_equal(refusal("t"), "");
    w = qm_trace_record("/dev/null", 512, err, sizeof err);
    assert_non_null(w);
    assert_int_equal(qm_trace_close(w), 0);
}

static struct qm_trace_writer *keep(const char *name)
{
    char err[600] = "";
    struct qm_trace_writer *w = qm_trace_keep(files_path(name), 512, err, sizeof err);

    if (!w)
        fail_msg("%s", err);
    return w;
}

static void write_one(struct qm_trace_writer *w, uint64_t offset)
{
    const struct qm_event e = {.type = 'R', .offset = offset, .length = 2};

    assert_int_equal(qm_trace_write(w, &e), 0);
    assert_int_equal(qm_trace_close(w), 0);
}

static uint64_t first_offset(const char *name)
{
    struct qm_trace_reader *r = open_trace(name);
    struct qm_event e = {0};

    assert_int_equal(qm_trace_next(r, &e), 1);
    qm_trace_free(r);
    return e.offset;
}

static mode_t mode_of(const char *name)
{
    struct stat st;

    assert_int_equal(lstat(files_path(name), &st), 0);
    return st.st_mode;
}

static struct qm_trace_writer *(*const recorders[])(const char *, uint64_t, char *,
                                                    size_t) = {qm_trace_record,
                                                               qm_trace_keep};

/* A pipe need not have a reader when it is opened; and one that takes nothing does not
 * keep the writer for ever. */
TEST(recorded_to_a_pipe)
{
    const struct qm_event e = {.type = 'R', .offset = 1024, .length = 2};
    char err[400], text[64];
    int reader = -1, error = 0;

    unlink(files_path("u"));
    assert_int_equal(mkfifo(files_path("u"), 0600), 0);
    alarm(120);
    for (int i = 0; i < 2; i++) {
        struct qm_trace_writer *w = recorders[i](files_path("u"), 512, err, sizeof err);

        assert_non_null(w);
        reader = open(files_path("u"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        assert_int_not_equal(reader, -1);
        assert_int_equal(qm_trace_write(w, &e), 0);
        assert_int_equal(qm_trace_close(w), 0);
        assert_true(read(reader, text, sizeof text) > 16);
        assert_memory_equal(text, "#quickmine-trace", 16);
        assert_int_equal(close(reader), 0);
    }
    reader = open(files_path("u"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_int_not_equal(reader, -1);
    {
        struct qm_trace_writer *w =
            qm_trace_keep(files_path("u"), 512, err, sizeof err);

        assert_non_null(w);
        for (unsigned i = 0; i < 100000 && error == 0; i++)
            error = qm_trace_write(w, &e);
        assert_int_equal(error, ETIMEDOUT);
        assert_int_equal(qm_trace_close(w), ETIMEDOUT);
    }
    alarm(0);
    assert_int_equal(close(reader), 0);
    assert_true(S_ISFIFO(mode_of("u")));
    assert_int_equal(unlink(files_path("u")), 0);
}

TEST(recorded_to_no_file)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char err[400];
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    unlink(files_path("u"));
    assert_true(strlen(files_path("u")) < sizeof address.sun_path);
    strcpy(address.sun_path, files_path("u"));
    assert_int_equal(bind(s, (struct sockaddr *)&address, sizeof address), 0);
    for (int i = 0; i < 2; i++) {
        assert_null(recorders[i](files_path("u"), 512, err, sizeof err));
        assert_non_null(strstr(err, "is a socket: a recording needs a file"));
        assert_null(recorders[i]("/", 512, err, sizeof err));
        assert_non_null(strstr(err, "is a directory: a recording needs a file"));
    }
    assert_int_equal(close(s), 0);
    assert_int_equal(unlink(files_path("u")), 0);
}

static bool is_there(const char *name)
{
    return access(files_path(name), F_OK) == 0;
}

/* Where a file cannot be given to the old one's group, that of the new one gets no
 * rights which were the old one's. */
TEST(rights)
{
    const struct stat old = {.st_uid = 4001, .st_gid = 4002, .st_mode = S_IFREG | 0664};
    int fds[2], status;

    if (geteuid() != 0)
        skip();
    files_put("t", "", 0);
    for (unsigned i = 0; i < 2; i++) {
        fds[i] = open(files_path("t"), O_WRONLY);
        assert_true(fds[i] >= 0);
        assert_int_equal(fchown(fds[i], 4001, i == 0 ? 4001 : 4002), 0);
        switch (fork()) {
        case 0: /* of that user, and not of the other group */
            if (setgroups(0, NULL) == 0 && setgid(i == 0 ? 4001 : 4002) == 0 &&
                setuid(4001) == 0)
                _exit(qm_old_rights(fds[i], &old));
            _exit(2);
        default:
            assert_true(wait(&status) > 0);
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), i);
        }
        assert_int_equal(mode_of("t") & 07777, i == 0 ? 0600 : 0664);
        close(fds[i]);
    }
    assert_int_equal(unlink(files_path("t")), 0);
}

/* What was recorded before is kept under the next free number. */
TEST(kept)
{
    struct qm_trace_writer *w, *other;
    char err[600], target[320], *other_file;

    unlink(files_path("t"));
    unlink(files_path("t.zst"));
    write_one(keep("t"), 1);
    assert_false(is_there("t.1"));
    assert_int_equal(chmod(files_path("t"), 0640), 0);
    write_one(keep("t"), 2);
    assert_int_equal(first_offset("t.1"), 1);
    assert_int_equal(first_offset("t"), 2);
    assert_int_equal(mode_of("t") & 07777, 0640);
    files_put("t.2", "x", 1);
    write_one(keep("t"), 3);
    assert_int_equal(first_offset("t.3"), 2);
    assert_int_equal(files_get("t.2", &other_file), 1);
    assert_memory_equal(other_file, "x", 1);
    free(other_file);

    /* Another program cannot, while it is being written. */
    w = keep("t");
    assert_int_equal(qm_trace_flush(w), 0);
    other = qm_trace_keep(files_path("t"), 512, err, sizeof err);
    assert_null(other);
    assert_non_null(strstr(err, "another program is writing to it"));
    assert_int_equal(first_offset("t.4"), 3);
    assert_int_equal(unlink(files_path("t.4")), 0);
    write_one(w, 4);

    /* What writes nothing leaves all as it was. */
    w = keep("t");
    assert_true(is_there("t.4"));
    qm_trace_abandon(w);
    assert_false(is_there("t.4"));
    assert_int_equal(first_offset("t"), 4);

    /* A link stays one. */
    snprintf(target, sizeof target, "%s", files_path("t"));
    assert_int_equal(symlink(target, files_path("link")), 0);
    write_one(keep("link"), 5);
    assert_true(S_ISLNK(mode_of("link")));
    assert_int_equal(first_offset("t.4"), 4);
    assert_int_equal(first_offset("t"), 5);

    /* An empty file is used as it is, and a compressed one is kept, too. */
    files_put("t.zst", "", 0);
    write_one(keep("t.zst"), 6);
    assert_false(is_there("t.zst.1"));
    write_one(keep("t.zst"), 7);
    assert_int_equal(first_offset("t.zst.1"), 6);
    assert_int_equal(first_offset("t.zst"), 7);
}

/* What is no file of ours to rename is not. */
TEST(kept_nothing)
{
    char err[256], path[64];
    struct qm_trace_writer *w;
    FILE *file;

    w = qm_trace_keep("/dev/null", 512, err, sizeof err);
    assert_non_null(w);
    assert_int_equal(qm_trace_close(w), 0);
    assert_int_equal(access("/dev/null.1", F_OK), -1);
    write_one(create("u", 512), 1);
    file = fopen(files_path("u"), "r+");
    assert_non_null(file);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    w = qm_trace_keep(path, 512, err, sizeof err);
    assert_non_null(w);
    write_one(w, 2);
    fclose(file);
    assert_false(is_there("u.1"));
    assert_int_equal(first_offset("u"), 2);
}

/* Files in memory are files. */
TEST(kept_in_memory)
{
    char err[256], path[] = "/dev/shm/qm-trace.XXXXXX", old[64];
    int fd = mkstemp(path);

    if (fd == -1)
        skip(); /* there is no such file system here */
    close(fd);
    snprintf(old, sizeof old, "%s.1", path);
    for (int i = 0; i < 2; i++) {
        struct qm_trace_writer *w = qm_trace_keep(path, 512, err, sizeof err);

        assert_non_null(w);
        write_one(w, 1);
    }
    assert_int_equal(unlink(old), 0);
    assert_int_equal(unlink(path), 0);
}

TEST(full_device)
{
    char err[256];
    struct qm_event e = {.type = 'R', .offset = 1, .length = 2};
    struct qm_trace_writer *w = qm_trace_create("/dev/full", 512, err, sizeof err);
    int error = 0;

    assert_non_null(w);
    for (int i = 0; i < 100000 && !error; i++)
        error = qm_trace_write(w, &e);
    assert_int_equal(error, ENOSPC);
    assert_int_equal(qm_trace_write(w, &e), ENOSPC);
    assert_int_equal(qm_trace_flush(w), ENOSPC);
    assert_int_equal(qm_trace_close(w), ENOSPC);
}

/* After flush() what was written can be read, though the file is not complete yet. */
TEST(flushed)
{
    const struct qm_event e = {.type = 'R', .offset = 1, .length = 2};

    for (int i = 0; i < 3; i++) {
        struct qm_trace_writer *w = create(names[i], 512);
        struct qm_trace_reader *r;
        struct qm_event got;

        assert_int_equal(qm_trace_write(w, &e), 0);
        assert_int_equal(qm_trace_flush(w), 0);
        r = open_trace(names[i]);
        assert_int_equal(qm_trace_next(r, &got), 1);
        assert_same(&got, &e);
        /* More is to come; but if nothing came, a compressed file is truncated. */
        assert_int_equal(qm_trace_next(r, &got), i == 0 ? 0 : -1);
        qm_trace_free(r);
        assert_int_equal(qm_trace_close(w), 0);
    }
}

/* A file of many buffers' length, in which lines straddle their ends; contexts begin
 * and end, so that slots stay few. */
TEST(long_trace)
{
    enum { COUNT = 60000 };

    for (int i = 0; i < 3; i++) {
        struct qm_trace_writer *w = create(names[i], 512);
        struct qm_trace_reader *r;
        struct qm_event e;
        uint64_t at, size;

        for (uint64_t n = 1; n <= COUNT; n++) {
            char klass[40];

            snprintf(klass, sizeof klass, "%0*d", (int)(n % 30) + 1, 7);
            e = (struct qm_event){
                .type = 'B', .ctx = n, .kind = QM_QUERY, .klass = klass};
            assert_int_equal(qm_trace_write(w, &e), 0);
            e = (struct qm_event){.type = 'R', .ctx = n, .offset = n * n, .length = n};
            assert_int_equal(qm_trace_write(w, &e), 0);
            e = (struct qm_event){.type = 'E', .ctx = n};
            assert_int_equal(qm_trace_write(w, &e), 0);
        }
        assert_int_equal(qm_trace_close(w), 0);

        r = open_trace(names[i]);
        for (uint64_t n = 1; n <= COUNT; n++) {
            assert_int_equal(qm_trace_next(r, &e), 1);
            assert_int_equal(e.ctx, n);
            assert_int_equal(e.slot, 1);
            assert_int_equal(strlen(e.klass), n % 30 + 1);
            assert_int_equal(qm_trace_next(r, &e), 1);
            assert_int_equal(e.offset, n * n);
            assert_int_equal(qm_trace_next(r, &e), 1);
            assert_int_equal(e.type, 'E');
        }
        assert_int_equal(qm_trace_next(r, &e), 0);
        qm_trace_position(r, &at, &size);
        assert_int_equal(at, size);
        assert_true(size > 0);
        qm_trace_free(r);
    }
}

/* Files that were concatenated, as `cat a.gz b.gz` does. */
TEST(concatenated)
{
    static const char *const more[] = {"u", "u.gz", "u.zst"};

    for (int i = 0; i < 3; i++) {
        struct qm_event e = {.type = 'R', .offset = 1, .length = 2};
        struct qm_trace_writer *w = create(names[i], 512);
        struct qm_trace_reader *r;
        char *a, *b, *both;
        size_t n, m;

        assert_int_equal(qm_trace_write(w, &e), 0);
        assert_int_equal(qm_trace_close(w), 0);
        /* The second half is a trace of its own, with a header: line 3 is wrong. */
        w = create(more[i], 512);
        assert_int_equal(qm_trace_write(w, &e), 0);
        assert_int_equal(qm_trace_close(w), 0);
        n = files_get(names[i], &a);
        m = files_get(more[i], &b);
        both = malloc(n + m);
        assert_non_null(both);
        memcpy(both, a, n);
        memcpy(both + n, b, m);
        files_put(names[i], both, n + m);
        free(a);
        free(b);
        free(both);

        r = open_trace(names[i]);
        assert_int_equal(qm_trace_next(r, &e), 1);
        assert_int_equal(qm_trace_next(r, &e), -1);
        assert_non_null(strstr(qm_trace_error(r), "line 3"));
        qm_trace_free(r);
    }
}

/* Contexts nested deeply end with the outermost one, without a deep stack. */
TEST(deep_nesting)
{
    enum { DEPTH = 200000 };
    struct qm_trace_writer *w = create("t", 512);
    struct qm_trace_reader *r;
    struct qm_event e;

    for (uint64_t n = 1; n <= DEPTH; n++) {
        e = (struct qm_event){
            .type = 'B', .ctx = n, .kind = QM_QUERY, .klass = "q", .parent = n - 1};
        assert_int_equal(qm_trace_write(w, &e), 0);
    }
    e = (struct qm_event){.type = 'E', .ctx = 1};
    assert_int_equal(qm_trace_write(w, &e), 0);
    e = (struct qm_event){.type = 'E', .ctx = DEPTH};
    assert_int_equal(qm_trace_write(w, &e), 0);
    assert_int_equal(qm_trace_close(w), 0);
    r = open_trace("t");
    for (uint64_t n = 1; n <= DEPTH + 1; n++)
        assert_int_equal(qm_trace_next(r, &e), 1);
    assert_int_equal(qm_trace_next(r, &e), -1);
    assert_non_null(strstr(qm_trace_error(r), "context 200000 is not open"));
    qm_trace_free(r);
}

int main(void)
{
    return run_listed(files_make, files_remove);
}
