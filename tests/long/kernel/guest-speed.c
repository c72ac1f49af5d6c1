/* SPDX-License-Identifier: BSD-3-Clause */
/* guest-speed.c - how long reads take, for kernels to be compared.  Says lines
 *
 *   @speed CASE NANOSECONDS     for one read
 *
 * `guest speed` reads a device of its own, with the server in the same process at the
 * other end of a socket: nothing outside of the machine takes part.  An emulator that
 * counts instructions for its clock then tells how many a read takes, server included.
 * `guest speed-live` reads /dev/nbd0. */
#include <fcntl.h>
#include <linux/nbd.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <linux/fs.h>
#include <endian.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/long/kernel/guest.h"

#define OWN     "/dev/nbd1"
#define BLOCKS  16384 /* of the own device */
#define READS   1500
#define REPEATS 9

static void receive(int sock, void *data, size_t size)
{
    CHECK(recv(sock, data, size, MSG_WAITALL) == (ssize_t)size);
}

/* The server: all reads as zeros. */
static void *serve(void *opaque)
{
    static const char zeros[1 << 20];
    struct nbd_reply reply = {.magic = htobe32(NBD_REPLY_MAGIC)};
    int sock = *(int *)opaque;
    struct nbd_request request;

    for (;;) {
        uint32_t length;

        receive(sock, &request, sizeof request);
        if (request.type == htobe32(NBD_CMD_DISC)) {
            close(sock);
            return NULL;
        }
        CHECK(request.type == htobe32(NBD_CMD_READ));
        length = be32toh(request.len);
        CHECK(length <= sizeof zeros);
        memcpy(reply.handle, request.handle, sizeof reply.handle);
        CHECK(send(sock, &reply, sizeof reply, MSG_MORE) == sizeof reply);
        CHECK(send(sock, zeros, length, 0) == (ssize_t)length);
    }
}

static void *drive(void *opaque)
{
    ioctl(*(int *)opaque, NBD_DO_IT);
    return NULL;
}

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Reads at places that are the same ones in every machine. */
static void reads(const char *name, int fd, size_t size, unsigned blocks)
{
    void *buffer = aligned_buffer(size);
    uint32_t random = 1;

    for (unsigned repeat = 0; repeat < REPEATS; repeat++) {
        uint64_t start = now();

        for (unsigned i = 0; i < READS; i++) {
            random = random * 1664525 + 1013904223;
            CHECK(pread(fd, buffer, size,
                        (off_t)(random >> 8) % (blocks - size / BLOCK) * BLOCK) ==
                  (ssize_t)size);
        }
        say("@speed %s %llu\n", name, (unsigned long long)(now() - start) / READS);
    }
    free(buffer);
}

/* By the page cache, from the start to the end: once from the device, and once more. */
static void streams(const char *name, const char *device, unsigned blocks)
{
    const size_t size = 16 * BLOCK;
    void *buffer = aligned_buffer(size);
    int fd = open(device, O_RDONLY | O_CLOEXEC);
    char again[64];

    CHECK(fd >= 0);
    snprintf(again, sizeof again, "%s-again", name);
    for (unsigned repeat = 0; repeat < REPEATS; repeat++) {
        CHECK(ioctl(fd, BLKFLSBUF) == 0);
        for (unsigned pass = 0; pass < 2; pass++) {
            uint64_t start = now();

            for (unsigned at = 0; at < blocks; at += 16)
                CHECK(pread(fd, buffer, size, (off_t)at * BLOCK) == (ssize_t)size);
            say("@speed %s %llu\n", pass ? again : name,
                (unsigned long long)(now() - start) / (blocks / 16));
        }
    }
    close(fd);
    free(buffer);
}

void speed(void)
{
    pthread_t server, driver;
    int sock[2], device = open(OWN, O_RDWR | O_CLOEXEC), fd;
    int64_t ctx;

    CHECK(device >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sock) == 0);
    CHECK(ioctl(device, NBD_SET_BLKSIZE, (unsigned long)BLOCK) == 0);
    CHECK(ioctl(device, NBD_SET_SIZE_BLOCKS, (unsigned long)BLOCKS) == 0);
    CHECK(ioctl(device, NBD_SET_SOCK, sock[0]) == 0);
    CHECK(pthread_create(&server, NULL, serve, &sock[1]) == 0);
    CHECK(pthread_create(&driver, NULL, drive, &device) == 0);
    do /* until the device is there */
        fd = open(OWN, O_RDONLY | O_DIRECT | O_CLOEXEC);
    while (lseek(fd, 0, SEEK_END) <= 0 && close(fd) == 0);

    reads("direct-4k", fd, BLOCK, BLOCKS);
    reads("direct-64k", fd, 16 * BLOCK, BLOCKS);
    streams("stream-64k", OWN, BLOCKS / 2);
    /* What it costs to have one, where there is such a thing. */
    ctx = ctx_begin(APP_CTX_QUERY, 0, 1, NULL, 0);
    if (ctx > 0) {
        CHECK(ctx_set(ctx) == 0);
        reads("direct-4k-in-a-context", fd, BLOCK, BLOCKS);
        CHECK(ctx_end(ctx) == 0);
    }
    close(fd);
    CHECK(ioctl(device, NBD_DISCONNECT) == 0);
    pthread_join(driver, NULL);
    pthread_join(server, NULL);
    close(device);
}

void speed_live(void)
{
    const unsigned blocks = (UINT64_C(64) << 20) / BLOCK;
    int fd = open_device(O_RDONLY | O_DIRECT);

    reads("live-direct-4k", fd, BLOCK, blocks);
    reads("live-direct-64k", fd, 16 * BLOCK, blocks);
    close(fd);
    streams("live-stream-64k", DEVICE, blocks / 4);
}
