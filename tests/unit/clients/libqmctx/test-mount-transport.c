/* SPDX-License-Identifier: BSD-3-Clause */
/* test-mount-transport.c - the program's side of announcing contexts to a mount: one
 * thread. */
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "fd-of-peer.h"
#include "mount-fixture.h"

TEST(test_begin_end)
{
    struct mock_mount m = {.greet = true, .gid_base = QM_MOUNT_GID_BASE + 0x1000};
    struct qm_mount_entry *e;
    struct qmctx *ctx = announce_to(&m);
    uint64_t version;
    char status[4096], pattern[64];
    FILE *f;
    size_t n;

    assert_string_equal(qmctx_transport(ctx), "mount");
    assert_int_equal(fsgid(), 0);
    assert_int_equal(qmctx_depth(ctx), 0);

    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0x1122334455667788, "SELECT ?"), 0);
    assert_int_equal(qmctx_depth(ctx), 1);
    e = entry_of(&m);
    version = e->version;
    assert_int_equal(version & 1, 0);
    assert_int_not_equal(version, 0);
    assert_int_equal(e->kind, QMCTX_QUERY);
    assert_int_equal(e->klass, 0x1122334455667788);
    assert_int_equal(e->name_len, 8);
    assert_memory_equal(e->name, "SELECT ?", 8);
    assert_int_equal(e->parent, 0);

    /* The kernel's own idea of it. */
    snprintf(status, sizeof status, "/proc/self/task/%d/status", gettid());
    f = fopen(status, "r");
    assert_non_null(f);
    n = fread(status, 1, sizeof status - 1, f);
    status[n] = '\0';
    fclose(f);
    snprintf(pattern, sizeof pattern, "Gid:\t0\t0\t0\t%u\n", fsgid());
    assert_non_null(strstr(status, pattern));

    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(fsgid(), 0);
    assert_int_equal(e->kind, 0);
    assert_int_equal(e->version & 1, 0);
    assert_true(e->version > version);

    assert_int_equal(qmctx_end(ctx), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_not_equal(strlen(qmctx_error()), 0);
    assert_int_equal(qmctx_begin(ctx, (enum qmctx_kind)5, 0, NULL), -1);
    assert_int_equal(errno, EINVAL);
    qmctx_close(ctx);
    assert_true(WAIT_FOR(m.gone == 1));
    assert_int_equal(m.ended, 0);
    mock_mount_stop(&m);
}

TEST(test_nesting)
{
    struct mock_mount m = {.greet = true};
    struct qm_mount_entry *e[3];
    struct qmctx *ctx = announce_to(&m);

    /* What the thread's fsgid was before comes back. */
    syscall(SYS_setfsgid, 4711);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(qmctx_begin(ctx, QMCTX_THREAD + i % 3, i, NULL), 0);
        e[i] = entry_of(&m);
    }
    assert_int_equal(qmctx_depth(ctx), 3);
    assert_int_equal(e[0]->parent, 0);
    for (unsigned i = 1; i < 3; i++) {
        assert_ptr_not_equal(e[i], e[i - 1]);
        assert_ptr_equal(&m.entry[e[i]->parent - 1], e[i - 1]);
        assert_int_equal(e[i]->parent_version, e[i - 1]->version);
    }
    assert_int_equal(qmctx_end(ctx), 0);
    assert_ptr_equal(entry_of(&m), e[1]);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 9, NULL), 0);
    assert_int_equal(entry_of(&m)->klass, 9);
    assert_int_equal(qmctx_end_to(ctx, 1), 0);
    assert_int_equal(qmctx_depth(ctx), 1);
    assert_ptr_equal(entry_of(&m), e[0]);
    assert_int_equal(e[1]->kind, 0);
    assert_int_equal(qmctx_end_to(ctx, 1), 0);
    assert_int_equal(qmctx_end_to(ctx, 0), 0);
    assert_int_equal(fsgid(), 4711);
    syscall(SYS_setfsgid, 0);
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

/* More than the thread keeps to itself. */
TEST(test_deep)
{
    struct mock_mount m = {.greet = true};
    struct qmctx *ctx = announce_to(&m);

    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 64; i++) {
            assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, i, NULL), 0);
            assert_int_equal(entry_of(&m)->klass, i);
        }
        for (unsigned i = 64; i-- > 0;) {
            assert_int_equal(entry_of(&m)->klass, i);
            assert_int_equal(qmctx_end(ctx), 0);
        }
        assert_int_equal(fsgid(), 0);
    }
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

TEST(test_no_entry_left)
{
    struct mock_mount m = {.greet = true, .entries = 2};
    struct qm_mount_entry *second;
    struct qmctx *ctx = announce_to(&m);

    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, i, NULL), 0);
    second = entry_of(&m);
    for (unsigned i = 2; i < 5; i++) {
        assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, i, NULL), 0);
        assert_ptr_equal(entry_of(&m), second);
        assert_int_equal(second->klass, 1);
    }
    assert_int_equal(qmctx_depth(ctx), 5);
    assert_int_equal(qmctx_end_to(ctx, 2), 0);
    assert_ptr_equal(entry_of(&m), second);
    assert_int_equal(qmctx_end_to(ctx, 0), 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

TEST(test_names)
{
    struct mock_mount m = {.greet = true};
    struct qm_mount_entry *e;
    struct qmctx *ctx = announce_to(&m);
    char name[1000];

    /* 198 bytes, and then one character of three, which does not fit. */
    memset(name, 'n', sizeof name);
    memcpy(name + 198, "\xe2\x82\xac", 3);
    name[sizeof name - 1] = '\0';
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, name), 0);
    e = entry_of(&m);
    assert_int_equal(e->name_len, 198);
    assert_memory_equal(e->name, name, 198);
    qmctx_end(ctx);
    /* 196 and three: just fits. */
    memcpy(name + 196,
           "\xe2\x82\xac"
           "n",
           4);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, name), 0);
    e = entry_of(&m);
    assert_int_equal(e->name_len, QM_MOUNT_NAME_MAX);
    assert_memory_equal(e->name, name, QM_MOUNT_NAME_MAX);
    qmctx_end(ctx);
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, ""), 0);
    assert_int_equal(entry_of(&m)->name_len, 0);
    qmctx_close(ctx);
    assert_int_equal(fsgid(), 0);
    mock_mount_stop(&m);
}

TEST(test_ended_messages)
{
    struct mock_mount m = {.greet = true};
    struct qm_mount_entry *e;
    struct qmctx *ctx = announce_to(&m);
    uint64_t version;

    qmctx_begin(ctx, QMCTX_TRANSACTION, 1, NULL);
    qmctx_begin(ctx, QMCTX_QUERY, 2, NULL);
    e = entry_of(&m);
    version = e->version;
    e->seen = version; /* as the mount does at the first read */
    qmctx_end(ctx);
    qmctx_end(ctx);
    assert_true(WAIT_FOR(m.ended == 1));
    assert_int_equal(m.last_index, e - m.entry);
    assert_int_equal(m.last_version, version);
    /* What was seen of the entry's last context says nothing of its next. */
    for (unsigned i = 0; i < 100; i++)
        nudge(ctx);
    qmctx_close(ctx);
    assert_true(WAIT_FOR(m.gone == 1));
    assert_int_equal(m.ended, 1);
    mock_mount_stop(&m);
}

/* A mount that does not receive must not keep the program waiting. */
TEST(test_full_socket)
{
    struct mock_mount m = {.greet = true, .deaf = true};
    struct qmctx *ctx = announce_to(&m);

    for (unsigned i = 0; i < 5000; i++) {
        struct qm_mount_entry *e;

        qmctx_begin(ctx, QMCTX_QUERY, i, NULL);
        e = entry_of(&m);
        e->seen = e->version;
        qmctx_end(ctx);
    }
    assert_true(qmctx_connected(ctx));
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

TEST(test_mount_comes_later)
{
    struct mock_mount m = {.greet = false};
    struct qmctx *ctx;

    assert_int_equal(qmctx_announce(path, &ctx), 0);
    assert_false(qmctx_connected(ctx));
    assert_non_null(strstr(qmctx_error(), path));
    assert_int_equal(qmctx_begin(ctx, QMCTX_THREAD, 7, "thread"), 0);
    assert_int_equal(fsgid(), 0);

    mock_mount_start(&m, path);
    /* Connected, but not greeted: contexts go on being no-ops. */
    assert_true(WAIT_FOR((nudge(ctx), m.accepted == 1)));
    nudge(ctx);
    assert_false(qmctx_connected(ctx));
    assert_int_equal(qmctx_depth(ctx), 1);
    m.greet = true;
    assert_true(WAIT_FOR(nudge(ctx)));
    assert_int_equal(m.accepted, 1);
    /* The context that was open all the time is known now. */
    assert_int_equal(entry_of(&m)->klass, 7);
    assert_memory_equal(entry_of(&m)->name, "thread", 6);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
    mock_mount_stop(&m);
}

/* A relative path is one of the directory in which the program announced. */
TEST(test_another_directory)
{
    char *before = getcwd(NULL, 0);
    struct mock_mount m = {.greet = true};
    struct qmctx *ctx;

    assert_int_equal(chdir(dir), 0);
    assert_int_equal(qmctx_announce(strrchr(path, '/') + 1, &ctx), 0);
    assert_int_equal(chdir("/"), 0);
    mock_mount_start(&m, path);
    assert_true(WAIT_FOR(nudge(ctx)));
    qmctx_close(ctx);
    mock_mount_stop(&m);
    assert_int_equal(chdir(before), 0);
    free(before);
}

/* A program that closes descriptors which it knows nothing of: its own connection gets
 * the number. */
TEST(test_closed_descriptor)
{
    struct mock_mount m = {.greet = true};
    struct qmctx *ctx = announce_to(&m);
    int fd = fd_of_peer(path), pair[2];
    struct qm_mount_entry *e;
    char text[64];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    qmctx_begin(ctx, QMCTX_QUERY, 2, NULL);
    e = entry_of(&m);
    e->seen = e->version;
    assert_int_equal(dup2(pair[0], fd), fd);
    assert_int_equal(send(pair[1], "mine", 4, 0), 4);
    qmctx_end(ctx);
    assert_int_equal(recv(pair[1], text, sizeof text, MSG_DONTWAIT), -1);
    assert_true(WAIT_FOR((nudge(ctx), m.accepted == 2)));
    assert_true(WAIT_FOR(nudge(ctx)));
    assert_int_equal(recv(fd, text, sizeof text, MSG_DONTWAIT), 4);
    qmctx_close(ctx);
    assert_int_equal(send(fd, "mine", 4, MSG_NOSIGNAL), 4);
    close(fd);
    close(pair[0]);
    close(pair[1]);
    mock_mount_stop(&m);
}

TEST(test_mount_goes_and_comes_back)
{
    struct mock_mount m = {.greet = true}, again = {.greet = true};
    struct qm_mount_entry *e;
    struct qmctx *ctx = announce_to(&m);
    uint32_t index;

    again.gid_base = QM_MOUNT_GID_BASE + 0x20000;

    assert_int_equal(qmctx_begin(ctx, QMCTX_CONNECTION, 1, "c"), 0);
    assert_int_equal(qmctx_begin(ctx, QMCTX_TRANSACTION, 2, "t"), 0);
    entry_of(&m);
    mock_mount_stop(&m);

    assert_true(WAIT_FOR((nudge(ctx), fsgid() == 0)));
    assert_false(qmctx_connected(ctx));
    assert_int_equal(qmctx_depth(ctx), 2);

    mock_mount_start(&again, path);
    assert_true(WAIT_FOR(nudge(ctx)));
    e = entry_of(&again);
    assert_int_equal(e->klass, 2);
    index = e->parent - 1;
    assert_true(index < again.entries);
    assert_int_equal(again.entry[index].klass, 1);
    assert_int_equal(e->parent_version, again.entry[index].version);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_ptr_equal(entry_of(&again), &again.entry[index]);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
    mock_mount_stop(&again);
}

/* The mount's end is noticed at once when there is something to tell it. */
TEST(test_mount_gone_at_end)
{
    struct mock_mount m = {.greet = true};
    struct qm_mount_entry *e;
    struct qmctx *ctx = announce_to(&m);

    qmctx_begin(ctx, QMCTX_TRANSACTION, 1, NULL);
    qmctx_begin(ctx, QMCTX_QUERY, 2, NULL);
    e = entry_of(&m);
    e->seen = e->version;
    mock_mount_stop(&m);
    assert_int_equal(qmctx_end(ctx), 0);
    assert_false(qmctx_connected(ctx));
    assert_int_equal(qmctx_end(ctx), 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
}

static void refused(struct mock_mount *m)
{
    struct qmctx *ctx;

    m->greet = true;
    mock_mount_start(m, path);
    assert_int_equal(qmctx_announce(path, &ctx), 0);
    assert_false(qmctx_connected(ctx));
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 1, NULL), 0);
    assert_int_equal(fsgid(), 0);
    qmctx_close(ctx);
    mock_mount_stop(m);
}

TEST(test_bad_greetings)
{
    refused(&(struct mock_mount){.magic = 0x12345678});
    refused(&(struct mock_mount){.version = 2});
    refused(&(struct mock_mount){.gid_base = 1000});
    refused(&(struct mock_mount){.gid_base = QM_MOUNT_GID_END - 63});
    refused(&(struct mock_mount){.bytes = 63 * 256});
    refused(&(struct mock_mount){.memory_bytes = 63 * 256});
    refused(&(struct mock_mount){.no_memory = true});
    refused(&(struct mock_mount){.unsealed = true});
}

TEST(test_paths)
{
    struct qmctx *ctx;
    char long_path[200];

    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    assert_int_equal(qmctx_announce(long_path, &ctx), -1);
    assert_int_equal(errno, EINVAL);
    assert_null(ctx);
    assert_int_equal(qmctx_announce("", &ctx), -1);
    assert_int_equal(qmctx_announce(dir, &ctx), 0); /* no socket, but may become one */
    assert_false(qmctx_connected(ctx));
    qmctx_close(ctx);
}

/* Which transport it is that a program gets. */
TEST(test_where)
{
    bool has_kernel;
    struct qmctx *ctx;

    /* Whatever the kernel has, a path is a mount's. */
    assert_int_equal(qmctx_announce(path, &ctx), 0);
    assert_string_equal(qmctx_transport(ctx), "mount");
    qmctx_close(ctx);

    errno = 0;
    has_kernel = qmctx_announce("kernel", &ctx) == 0;
    if (has_kernel) {
        assert_string_equal(qmctx_transport(ctx), "kernel");
        assert_true(qmctx_connected(ctx));
        qmctx_close(ctx);
    } else {
        assert_int_equal(errno, ENOSYS);
        assert_null(ctx);
        assert_non_null(strstr(qmctx_error(), "kernel"));
    }

    /* NULL is as the environment says, and else the kernel. */
    assert_int_equal(setenv("QMCTX_TRANSPORT", path, 1), 0);
    assert_int_equal(qmctx_announce(NULL, &ctx), 0);
    assert_string_equal(qmctx_transport(ctx), "mount");
    qmctx_close(ctx);
    assert_int_equal(qmctx_announce("kernel", &ctx), has_kernel ? 0 : -1);
    qmctx_close(ctx);
    for (int set = 0; set < 3; set++) {
        if (set)
            assert_int_equal(setenv("QMCTX_TRANSPORT", set == 1 ? "" : "kernel", 1), 0);
        else
            assert_int_equal(unsetenv("QMCTX_TRANSPORT"), 0);
        assert_int_equal(qmctx_announce(NULL, &ctx), has_kernel ? 0 : -1);
        if (has_kernel)
            assert_string_equal(qmctx_transport(ctx), "kernel");
        else
            assert_null(ctx);
        qmctx_close(ctx);
    }
    assert_int_equal(unsetenv("QMCTX_TRANSPORT"), 0);
}

/* QMCTX_CARRIER and qmctx_carrier(), by which older programs know them. */
TEST(test_old_names)
{
    struct qmctx *ctx;

    assert_int_equal(setenv("QMCTX_CARRIER", path, 1), 0);
    assert_int_equal(qmctx_announce(NULL, &ctx), 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic pop
    qmctx_close(ctx);
    /* The new one goes first. */
    assert_int_equal(setenv("QMCTX_TRANSPORT", path, 1), 0);
    assert_int_equal(setenv("QMCTX_CARRIER", "kernel", 1), 0);
    assert_int_equal(qmctx_announce(NULL, &ctx), 0);
    assert_string_equal(qmctx_transport(ctx), "mount");
    qmctx_close(ctx);
    assert_int_equal(unsetenv("QMCTX_TRANSPORT"), 0);
    assert_int_equal(unsetenv("QMCTX_CARRIER"), 0);
}

TEST(test_direct_only)
{
    struct qmctx *ctx;
    qmctx_id id;
    char c = 0;

    assert_int_equal(qmctx_announce(path, &ctx), 0);
    errno = 0;
    assert_int_equal(qmctx_size(ctx), 0);
    assert_int_equal(errno, ENOTSUP);
    assert_int_equal(qmctx_open_context(ctx, 0, QMCTX_QUERY, 1, NULL, &id), -1);
    assert_int_equal(qmctx_close_context(ctx, 1), -1);
    assert_int_equal(qmctx_pread(ctx, 0, &c, 1, 0), -1);
    assert_int_equal(errno, ENOTSUP);
    assert_int_equal(qmctx_pwrite(ctx, 0, &c, 1, 0, false), -1);
    assert_int_equal(qmctx_flush(ctx), -1);
    assert_int_equal(qmctx_poll(ctx, 0), -1);
    assert_int_equal(qmctx_reconnect(ctx), -1);
    assert_null(qmctx_stats(ctx));
    assert_int_equal(qmctx_current(ctx), 0);
    qmctx_close(ctx);
}

int main(void)
{
    if (!can_set_fsgid())
        return 77;
    return run_listed(set_up, tear_down);
}
