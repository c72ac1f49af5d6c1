/* SPDX-License-Identifier: BSD-3-Clause */
/* mount-fixture.c - see mount-fixture.h. */
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "mount-fixture.h"
#include "tests/unit/check.h"

char dir[] = "/tmp/qmctx.XXXXXX", path[64];

uint32_t fsgid(void)
{
    return (uint32_t)syscall(SYS_setfsgid, -1);
}

bool nudge(struct qmctx *ctx)
{
    assert_int_equal(qmctx_begin(ctx, QMCTX_QUERY, 0, NULL), 0);
    assert_int_equal(qmctx_end(ctx), 0);
    return qmctx_connected(ctx);
}

struct qmctx *must_announce(void)
{
    struct qmctx *ctx;

    assert_int_equal(qmctx_announce(path, &ctx), 0);
    assert_true(qmctx_connected(ctx) || WAIT_FOR(nudge(ctx)));
    return ctx;
}

struct qmctx *announce_to(struct mock_mount *m)
{
    mock_mount_start(m, path);
    return must_announce();
}

struct qm_mount_entry *entry_of(struct mock_mount *m)
{
    uint32_t index = fsgid() - m->gid_base;

    check(index < m->entries);
    return &m->entry[index];
}

int set_up(void **state)
{
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/disk.ctx", dir);
    return 0;
}

int tear_down(void **state)
{
    /* setfsgid() made the process undumpable, and then it cannot be checked for leaks.
     */
    prctl(PR_SET_DUMPABLE, 1);
    unlink(path);
    return rmdir(dir);
}

bool can_set_fsgid(void)
{
    uint32_t was = (uint32_t)syscall(SYS_setfsgid, QM_MOUNT_GID_BASE);
    bool works = fsgid() == QM_MOUNT_GID_BASE;

    syscall(SYS_setfsgid, was);
    if (!works)
        fputs("skipped: setfsgid() needs CAP_SETGID\n", stderr);
    return works;
}
