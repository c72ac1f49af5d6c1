/* SPDX-License-Identifier: BSD-3-Clause */
/* test-direct.c - a tier's file on a device whose blocks are larger than a page, or on
 * a file system that has no direct I/O for it: the page cache is used.
 *
 * Linked with --wrap for statx. */
#include <fcntl.h>
#include <sys/stat.h>

#include "testing.h"

#define BLOCK 4096u

/* What the kernel says of direct I/O. */
static bool says;
static uint32_t offset_align, mem_align;

int __real_statx(int fd, const char *restrict path, int flags, unsigned mask,
                 struct statx *restrict stx);
int __wrap_statx(int fd, const char *restrict path, int flags, unsigned mask,
                 struct statx *restrict stx);

int __wrap_statx(int fd, const char *restrict path, int flags, unsigned mask,
                 struct statx *restrict stx)
{
    int r = __real_statx(fd, path, flags, mask, stx);

#ifdef STATX_DIOALIGN
    if (r == 0 && mask & STATX_DIOALIGN) {
        stx->stx_mask &= ~STATX_DIOALIGN;
        if (says) {
            stx->stx_mask |= STATX_DIOALIGN;
            stx->stx_dio_offset_align = offset_align;
            stx->stx_dio_mem_align = mem_align;
        }
    }
#endif
    return r;
}

static char dir[] = "/tmp/tier-direct.XXXXXX", path[64];

/* Whether a new tier uses direct I/O.  It works in any case. */
static bool is_direct(void)
{
    static _Alignas(4096) char buf[BLOCK];
    struct qm_tier_config c;
    struct qm_tier_stats s;
    struct qm_tier *t;

    qm_tier_config_init(&c);
    c.identity = (struct qm_tier_identity){"v", UINT64_C(64) << 20, BLOCK, 1};
    c.path = path;
    c.size = UINT64_C(4) << 20;
    c.admit = QM_TIER_ADMIT_ALL;
    unlink(path);
    t = open_ok(&c);
    assert_int_equal(insert_version(t, buf, BLOCK, 5, 2), 0);
    assert_int_equal(qm_tier_sync(t), 0);
    assert_int_equal(read_version(t, buf, BLOCK, 5), 2);
    s = stats(t);
    assert_false(s.dead);
    assert_int_equal(qm_tier_close(t, QM_TIER_KEEP), 0);
    return s.direct;
}

static bool is_direct_with(uint32_t offset, uint32_t mem)
{
    says = true;
    offset_align = offset;
    mem_align = mem;
    return is_direct();
}

static bool has_direct; /* else little was tested */

TEST(test_alignment)
{
    bool plain;

#ifndef STATX_DIOALIGN
    skip();
#endif
    says = false;
    plain = is_direct(); /* as this file system does it */
    assert_int_equal(is_direct_with(512, 4), plain);
    assert_int_equal(is_direct_with(4096, 4096), plain);
    assert_false(is_direct_with(0, 0));
    assert_false(is_direct_with(8192, 512));
    assert_false(is_direct_with(16384, 512));
    assert_false(is_direct_with(4096, 16384));
    has_direct = plain;
}

int main(void)
{
    int r;

    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/tier", dir);
    r = run_listed(NULL, NULL);
    unlink(path);
    rmdir(dir);
    if (r == 0 && !has_direct) {
        fprintf(stderr, "skipped: no direct I/O on the file system of %s\n", dir);
        return 77;
    }
    return r;
}
