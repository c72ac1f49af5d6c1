/* SPDX-License-Identifier: BSD-3-Clause */
/* marks.c - `bpf-marks DEVICE`: whether the ring's counters say that a read is in it.
 *
 * Reads a block, past the page cache, while the ring is not drained. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/bpf/watch.h"

#define BLOCK  4096
#define ROUNDS 100

static unsigned seen;

static void read_seen(void *opaque, const struct qm_bpf_read *read)
{
    seen +=
        read->sector * 512 == BLOCK * (unsigned long long)seen && read->bytes == BLOCK;
}

static int fail(const char *what)
{
    fprintf(stderr, "bpf-marks: %s\n", what);
    return 1;
}

static int read_and_drain(struct qm_watch *w, int fd, void *buf, unsigned round)
{
    uint64_t before = qm_watch_written(w), mark;

    if (qm_watch_drained(w) != before)
        return fail("there is something in the ring that nobody put there");
    if (pread(fd, buf, BLOCK, (off_t)round * BLOCK) != BLOCK)
        return fail("cannot read");
    mark = qm_watch_written(w);
    if (mark == before || qm_watch_drained(w) != before)
        return fail("a read that was made is not in the ring");
    if (qm_watch_drain(w) != 1 || seen != round + 1)
        return fail("not the read that was made");
    if (qm_watch_drained(w) != mark)
        return fail("what was drained is still in the ring");
    return 0;
}

int main(int argc, char **argv)
{
    int fd = open(argc == 2 ? argv[1] : "", O_RDONLY | O_DIRECT | O_CLOEXEC),
        status = 0;
    struct qm_watch *w;
    struct stat st;
    char err[512];
    void *buf;

    if (fd == -1 || fstat(fd, &st) != 0 || posix_memalign(&buf, BLOCK, BLOCK) != 0)
        return fail("a device, please");
    if (qm_watch_open(&w, false, read_seen, NULL, err, sizeof err) != 0)
        return fail(err);
    if (qm_watch_device(w, st.st_rdev) != 0)
        status = fail("it cannot be watched");
    for (unsigned i = 0; status == 0 && i < ROUNDS; i++)
        status = read_and_drain(w, fd, buf, i);
    qm_watch_close(w);
    free(buf);
    close(fd);
    return status;
}
