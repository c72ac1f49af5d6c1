/* SPDX-License-Identifier: BSD-3-Clause */
/* guest-merges.c - what the block layer would like to merge, and clones.
 *
 * A device-mapper device (linear, the whole of ours) is suspended, and adjacent reads
 * are submitted to it, which wait.  Writes keep our device busy for a while; then the
 * other is resumed, and device-mapper's worker sends clones of the reads all at once to
 * ours, whose scheduler merges those that it may.
 */
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "tests/long/kernel/guest.h"

#define READS  24
#define WRITES 8
#define WRITE  (1 << 20)
#define STEP   (128 * 1024) /* from a burst to the next, which is not to touch it */
#define TRIES  60

static void dm(unsigned long command, unsigned flags, const char *target,
               const char *parameters, uint64_t sectors)
{
    static int control = -1;
    struct {
        struct dm_ioctl head;
        struct dm_target_spec spec;
        char parameters[64];
    } io = {0};

    if (control < 0)
        control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
    CHECK(control >= 0);
    io.head.version[0] = DM_VERSION_MAJOR;
    io.head.data_size = sizeof io;
    io.head.data_start = sizeof io.head;
    io.head.flags = flags;
    strcpy(io.head.name, "merges");
    if (target) {
        io.head.target_count = 1;
        io.spec.length = sectors;
        strcpy(io.spec.target_type, target);
        strcpy(io.parameters, parameters);
    }
    CHECK(ioctl(control, command, &io) == 0);
}

/* Adjacent reads, at once, of contexts in turn; 0: none. */
static void burst(int fd, int busy, uint64_t base, const int64_t *contexts,
                  const char **classes, int n)
{
    struct iocb iocbs[READS + WRITES] = {0}, *list;
    struct io_event events[READS + WRITES];
    char *buffer = aligned_buffer(READS * BLOCK), *data = aligned_buffer(WRITE);
    aio_context_t aio = 0;
    int got = 0;

    CHECK(syscall(__NR_io_setup, READS + WRITES, &aio) == 0);
    dm(DM_DEV_SUSPEND, DM_SUSPEND_FLAG, NULL, NULL, 0);
    for (int i = 0; i < READS; i++) {
        uint64_t at = base + (uint64_t)i * BLOCK;

        iocbs[i].aio_lio_opcode = IOCB_CMD_PREAD;
        iocbs[i].aio_fildes = fd;
        iocbs[i].aio_buf = (uintptr_t)(buffer + i * BLOCK);
        iocbs[i].aio_nbytes = BLOCK;
        iocbs[i].aio_offset = at;
        list = &iocbs[i];
        CHECK(ctx_set(contexts[i % n]) >= 0);
        CHECK(syscall(__NR_io_submit, aio, 1, &list) == 1);
        say("@cover %s %llu %d\n", classes[i % n], (unsigned long long)at, BLOCK);
    }
    CHECK(ctx_set(0) >= 0);
    for (int i = 0; i < WRITES; i++) {
        list = &iocbs[READS + i];
        list->aio_lio_opcode = IOCB_CMD_PWRITE;
        list->aio_fildes = busy;
        list->aio_buf = (uintptr_t)data;
        list->aio_nbytes = WRITE;
        list->aio_offset = RAW + (UINT64_C(110) << 20) + (uint64_t)i * WRITE;
        CHECK(syscall(__NR_io_submit, aio, 1, &list) == 1);
    }
    dm(DM_DEV_SUSPEND, 0, NULL, NULL, 0);
    while (got < READS + WRITES) {
        int more =
            syscall(__NR_io_getevents, aio, 1, READS + WRITES - got, events, NULL);

        CHECK(more > 0);
        for (int i = 0; i < more; i++)
            CHECK(events[i].res == BLOCK || events[i].res == WRITE);
        got += more;
    }
    CHECK(syscall(__NR_io_destroy, aio) == 0);
    free(data);
    free(buffer);
}

/* How many reads our device's queue has merged with others. */
static unsigned long merged(void)
{
    FILE *f = fopen("/sys/block/nbd0/stat", "r");
    unsigned long n;

    CHECK(f && fscanf(f, "%*u %lu", &n) == 1);
    fclose(f);
    return n;
}

/* Bursts of one context, or none, until some were merged: it depends on when the worker
 * yields. */
static void control(int fd, int busy, uint64_t base, int64_t ctx, const char *klass)
{
    unsigned long before = merged();
    int n = 0;

    do {
        CHECK(n < TRIES);
        burst(fd, busy, base + (uint64_t)n * STEP, &ctx, &klass, 1);
        n++;
    } while (merged() == before);
    say("@merged %s %llu %d\n", klass, (unsigned long long)base, n * STEP);
}

void merges(void)
{
    const char *classes[] = {"merges-one", "merges-two"};
    unsigned long before;
    uint64_t size, base = RAW + (UINT64_C(56) << 20);
    int fd = open_device(O_RDONLY);
    int64_t contexts[2], same;
    int busy = open_device(O_WRONLY | O_DIRECT);

    CHECK(ioctl(fd, BLKGETSIZE64, &size) == 0);
    close(fd);
    dm(DM_DEV_CREATE, 0, NULL, NULL, 0);
    dm(DM_TABLE_LOAD, 0, "linear", DEVICE " 0", size / 512);
    dm(DM_DEV_SUSPEND, 0, NULL, NULL, 0);
    fd = open("/dev/dm-0", O_RDONLY | O_DIRECT | O_CLOEXEC);
    CHECK(fd >= 0);

    /* Those of no context, and those of one, are merged: so this would show it. */
    control(fd, busy, base, 0, "-");
    base += TRIES * STEP;
    same = begin(APP_CTX_QUERY, 0, "-", "merges-same");
    control(fd, busy, base, same, "merges-same");
    end(same, "merges-same");

    base += TRIES * STEP;
    for (int i = 0; i < 2; i++)
        contexts[i] = begin(APP_CTX_QUERY, 0, "-", classes[i]);
    before = merged();
    for (int n = 0; n < 5; n++)
        burst(fd, busy, base + (uint64_t)n * STEP, contexts, classes, 2);
    CHECK(merged() == before);
    for (int i = 0; i < 2; i++)
        end(contexts[i], classes[i]);

    close(busy);
    close(fd);
    dm(DM_DEV_REMOVE, 0, NULL, NULL, 0);
}
