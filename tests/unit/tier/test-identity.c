/* SPDX-License-Identifier: BSD-3-Clause */
/* test-identity.c - whose a tier is: what is refused, as it is somebody's, and what is
 * emptied with a warning, as it is of another volume or of another time. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "basic.h"
#include "tier/format.h"
#include "tier/witness.h"

TEST_WITH(test_identity, setup, NULL)
{
    struct qm_tier_config c = config(), other;

    fill(&c);
    other = c;
    other.identity.volume = "b-volume";
    expect_emptied(&other, "of volume \"a-volume\", not \"b-volume\"");
    fill(&c);
    other = c;
    other.identity.size += BLOCK;
    expect_emptied(&other, "the volume had");
    fill(&c);
    other = c;
    other.identity.block_size *= 2;
    expect_emptied(&other, "its blocks are of 4096 bytes, not of 8192");
    fill(&c);
    other = c;
    other.identity.generation++;
    expect_emptied(&other, "generation is 8 now, not 7");
}

static void copy(const char *from, const char *to, bool same_inode)
{
    char command[300];

    if (!same_inode)
        unlink(to);
    snprintf(command, sizeof command, "cat %s > %s", from, to);
    assert_int_equal(system(command), 0);
}

/* An older copy: told by its inode, or by the witness. */
TEST_WITH(test_older_copy, setup, NULL)
{
    struct qm_tier_config c = config();
    char saved[100];

    snprintf(saved, sizeof saved, "%s/saved", dir);
    fill(&c);
    copy(path, saved, false);
    copy(saved, path, false);
    expect_emptied(&c, "is a copy of the file");

    setup(state);
    c.witness = witness;
    fill(&c);
    copy(path, saved, false);
    fill(&c); /* finds its block, and changes the epoch */
    copy(saved, path, true);
    expect_emptied(&c, "older copy");
    fill(&c);
    unlink(witness);
    expect_emptied(&c, "no witness");
    unlink(saved);
}

/* A server that ends between the two writes of its witness has served nothing: the tier
 * is as the one before left it, or of the new epoch, and both are right. */
TEST_WITH(test_witness_half_way, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier_testimony w;
    struct qm_tier *t;

    c.witness = witness;
    for (unsigned ahead = 0; ahead < 2; ahead++) {
        setup(state);
        fill(&c);
        assert_int_equal(qm_tier_witness_read(witness, &w), 0);
        assert_int_equal(w.coming, 0);
        w.coming = w.epoch + !ahead;
        w.epoch -= ahead;
        qm_tier_testimony_seal(&w);
        assert_int_equal(qm_tier_witness_write(witness, &w, NULL), 0);
        t = open_ok(&c);
        assert_int_equal(get(t, 1), 1);
        qm_tier_close(t, QM_TIER_KEEP);
        assert_int_equal(told.n, 0);
    }
    w.epoch += 7;
    w.coming = 0;
    qm_tier_testimony_seal(&w);
    assert_int_equal(qm_tier_witness_write(witness, &w, NULL), 0);
    expect_emptied(&c, "older copy");
    assert_int_equal(truncate(witness, 10), 0);
    expect_emptied(&c, "its witness is damaged");
}

TEST_WITH(test_refused, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier *t, *u;
    char err[400];
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    assert_int_equal(pwrite(fd, "precious", 8, 70000), 8);
    assert_int_equal(qm_tier_open(&c, &t, err, sizeof err), EINVAL);
    assert_non_null(strstr(err, "something else than a tier"));
    assert_int_equal(pread(fd, buf, 8, 70000), 8);
    assert_memory_equal(buf, "precious", 8);
    close(fd);
    unlink(path);
    t = open_ok(&c);
    assert_int_equal(qm_tier_open(&c, &u, err, sizeof err), EBUSY);
    assert_non_null(strstr(err, "another process has this tier open"));
    assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    assert_int_equal(get(t, 1), 1);
    qm_tier_close(t, QM_TIER_KEEP);
    c.size = 100000;
    assert_int_equal(qm_tier_open(&c, &t, err, sizeof err), EINVAL);
    assert_non_null(strstr(err, "at least 4 segments"));
    c.size = SIZE;
    c.path = "/nonexistent/tier";
    assert_int_equal(qm_tier_open(&c, &t, err, sizeof err), ENOENT);
    assert_non_null(strstr(err, "/nonexistent/tier: No such file"));
}

static bool knows(void *opaque, const char *had, char *why, size_t len)
{
    const char *known = "a-volume";

    snprintf(why, len, "%s", strcmp(had, known) == 0 ? "" : "it is none of ours");
    return strcmp(had, known) == 0;
}

/* A volume that has another name now, as the caller says. */
TEST_WITH(test_renamed, setup, NULL)
{
    struct qm_tier_config c = config();
    struct qm_tier *t = open_ok(&c);

    assert_int_equal(put(t, 1, 1), 0);
    qm_tier_drain(t);
    qm_tier_close(t, QM_TIER_KEEP);
    c.identity.volume = "b-volume";
    c.same_volume = knows;
    t = open_ok(&c);
    assert_int_equal(get(t, 1), 1);
    qm_tier_close(t, QM_TIER_KEEP);
    /* That is its name from now on. */
    c.same_volume = NULL;
    t = open_ok(&c);
    assert_int_equal(get(t, 1), 1);
    qm_tier_close(t, QM_TIER_KEEP);
    c.same_volume = knows;
    c.identity.volume = "c-volume";
    expect_emptied(&c, "is emptied: it is none of ours");
}

static void fill_file(const char *name, uint64_t at, const char *text, uint64_t size)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

    assert_int_equal(pwrite(fd, text, strlen(text), (off_t)at), strlen(text));
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

static void check_file(const char *name, uint64_t at, const char *text, uint64_t size)
{
    int fd = open(name, O_RDONLY);

    assert_int_equal(lseek(fd, 0, SEEK_END), size);
    assert_int_equal(pread(fd, buf, strlen(text), (off_t)at), strlen(text));
    assert_memory_equal(buf, text, strlen(text));
    close(fd);
}

static void refuses(const struct qm_tier_config *c, const char *why)
{
    struct qm_tier *t;
    char err[400];

    assert_int_equal(qm_tier_open(c, &t, err, sizeof err), EINVAL);
    if (!strstr(err, why))
        fail_msg("%s", err);
}

/* A file with data anywhere is somebody's; one of zeros only is empty. */
TEST_WITH(test_mistyped, setup, NULL)
{
    const uint64_t size = UINT64_C(3) << 30;
    struct qm_tier_config c = config();
    struct qm_tier *t;
    int fd;

    fill_file(path, size - 5, "data!", size);
    refuses(&c, "something else than a tier");
    check_file(path, size - 5, "data!", size);
    fill_file(path, 1 << 20, "data!", (1 << 20) + 4096);
    refuses(&c, "something else than a tier");
    check_file(path, 1 << 20, "data!", (1 << 20) + 4096);
    /* Zeros, a hole, and data behind it. */
    fill_file(path, 1 << 20, "data!", (1 << 20) + 4096);
    fd = open(path, O_RDWR);
    memset(buf, 0, 4096);
    assert_int_equal(pwrite(fd, buf, 4096, 0), 4096);
    close(fd);
    refuses(&c, "something else than a tier");
    check_file(path, 1 << 20, "data!", (1 << 20) + 4096);
    fill_file(path, 1 << 20, "", size);
    t = open_ok(&c);
    qm_tier_close(t, QM_TIER_KEEP);
    unlink(path);
}

/* Nor is a witness written over what is none. */
TEST_WITH(test_mistyped_witness, setup, NULL)
{
    struct qm_tier_config c = config();
    char other[80];
    struct qm_tier *t;

    c.witness = witness;
    fill_file(witness, 0, "precious", 8);
    refuses(&c, "something else than the witness of a tier");
    check_file(witness, 0, "precious", 8);
    assert_int_equal(access(path, F_OK), -1);
    fill_file(witness, 0, "", 4096); /* zeros: it is not empty */
    refuses(&c, "something else than the witness of a tier");
    c.witness = dir;
    refuses(&c, "something else than the witness of a tier");
    /* Whatever else is wrong, it stays. */
    c.witness = witness;
    fill_file(witness, 0, "precious", 8);
    c.path = "/nonexistent/tier";
    refuses(&c, "something else than the witness of a tier");
    check_file(witness, 0, "precious", 8);
    c = config();
    c.witness = path;
    refuses(&c, "both the tier and its witness");
    snprintf(other, sizeof other, "%s/../%s/tier", dir, strrchr(dir, '/') + 1);
    c.witness = other;
    t = NULL;
    fill_file(path, 0, "", 0);
    refuses(&c, "both the tier and its witness");
    assert_null(t);
    unlink(path);
    /* The file beside it, too, is somebody's. */
    c.witness = witness;
    unlink(witness);
    snprintf(other, sizeof other, "%s.new", witness);
    fill_file(other, 0, "precious", 8);
    assert_int_equal(
        qm_tier_witness_write(witness, &(struct qm_tier_testimony){0}, NULL), EEXIST);
    check_file(other, 0, "precious", 8);
    unlink(other);
    /* An empty file becomes one. */
    fill_file(witness, 0, "", 0);
    t = open_ok(&c);
    qm_tier_close(t, QM_TIER_KEEP);
    unlink(path);
}

static pid_t hold(const struct qm_tier_config *c)
{
    int ends[2];
    pid_t child;
    char byte;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        open_ok(c);
        (void)!write(ends[1], "", 1);
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return child;
}

/* A witness has one tier at a time, until the process ends that has it, however. */
TEST_WITH(test_witness_in_use, setup, NULL)
{
    struct qm_tier_config c = config(), second = config();
    char other[80], err[400];
    struct qm_tier *t, *u;
    pid_t child;
    int status;

    snprintf(other, sizeof other, "%s/other", dir);
    c.witness = second.witness = witness;
    second.path = other;
    for (int start = 0; start < 2; start++) { /* made, and found */
        t = open_ok(&c);
        assert_int_equal(qm_tier_open(&second, &u, err, sizeof err), EBUSY);
        assert_non_null(strstr(err, "another process uses this witness"));
        if (start == 0)
            assert_int_equal(put(t, 1, 1), 0);
        else
            assert_int_equal(get(t, 1), 1);
        qm_tier_drain(t);
        qm_tier_close(t, QM_TIER_KEEP);
    }
    child = hold(&c);
    assert_int_equal(qm_tier_open(&second, &u, err, sizeof err), EBUSY);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    t = open_ok(&c);
    assert_int_equal(get(t, 1), 1);
    qm_tier_close(t, QM_TIER_FORGET);
    assert_int_equal(told.n, 0);
    u = open_ok(&second);
    qm_tier_close(u, QM_TIER_KEEP);
    /* One that is not opened leaves no witness that was not there. */
    setup(state);
    fill_file(path, 0, "precious", 8);
    refuses(&c, "something else than a tier");
    assert_int_equal(access(witness, F_OK), -1);
    unlink(path);
    unlink(other);
}

int main(int argc, char **argv)
{
    return begin(argc) ? end(run_listed(NULL, NULL)) : 1;
}
