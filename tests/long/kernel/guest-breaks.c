/* SPDX-License-Identifier: BSD-3-Clause */
/* guest-breaks.c - what happens to contexts when connections break, the server is
 * another one, and signals come in the middle. */
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/long/kernel/guest.h"

#define BASE (RAW + (UINT64_C(64) << 20))

static void nap(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* do-breaks goes on when file appears, and makes it go on by another. */
static void meet(const char *reached, const char *go)
{
    struct stat st;

    close(open(reached, O_CREAT | O_WRONLY, 0600));
    while (stat(go, &st) == -1)
        nap(50000);
}

#define OPEN 8 /* contexts, of which each socket has some */

static void read_each(const int64_t *ctx, unsigned round)
{
    void *buffer = aligned_buffer(BLOCK);
    int fd = open_device(O_RDONLY | O_DIRECT);

    for (unsigned i = 0; i < OPEN; i++) {
        uint64_t at = BASE + (uint64_t)(round * OPEN + i) * 2 * BLOCK;

        CHECK(ctx_pread(fd, buffer, BLOCK, at, ctx[i]) == BLOCK);
        say("@read breaks-%u %llu %d\n", i, (unsigned long long)at, BLOCK);
    }
    close(fd);
    free(buffer);
}

void breaks(void)
{
    void *buffer = aligned_buffer(BLOCK);
    int64_t ctx[OPEN];
    char klass[32];
    int fd;

    for (unsigned i = 0; i < OPEN; i++) {
        snprintf(klass, sizeof klass, "breaks-%u", i);
        ctx[i] = begin(APP_CTX_TRANSACTION, 0, "-", klass);
    }
    read_each(ctx, 0);
    for (unsigned i = 0; i < OPEN; i++)
        say("@again breaks-%u\n", i);

    /* One connection breaks: its contexts begin again on others. */
    meet("/tmp/before-cut", "/tmp/cut");
    read_each(ctx, 1);
    read_each(ctx, 2);

    /* All break, for the server ends: nothing can be read, and nothing hangs. */
    for (unsigned i = 0; i < OPEN; i++)
        say("@end breaks-%u\n", i);
    meet("/tmp/before-loss", "/tmp/lost");
    fd = open_device(O_RDONLY | O_DIRECT);
    CHECK(ctx_pread(fd, buffer, BLOCK, BASE, ctx[0]) == -1 && errno == EIO);
    CHECK(pread(fd, buffer, BLOCK, BASE) == -1 && errno == EIO);
    close(fd);

    /* The device is set up anew: contexts that were open all the time go on there. */
    meet("/tmp/failed", "/tmp/back");
    for (unsigned i = 0; i < OPEN; i++) {
        snprintf(klass, sizeof klass, "breaks-%u", i);
        say_begin(APP_CTX_TRANSACTION, "-", klass);
    }
    read_each(ctx, 3);
    for (unsigned i = 0; i < OPEN; i++) {
        snprintf(klass, sizeof klass, "breaks-%u", i);
        end(ctx[i], klass);
    }
    free(buffer);
}

static void add(struct nlmsghdr *message, unsigned short type, uint32_t value)
{
    struct rtattr *attr =
        (struct rtattr *)((char *)message + NLMSG_ALIGN(message->nlmsg_len));

    attr->rta_type = type;
    attr->rta_len = RTA_LENGTH(sizeof value);
    memcpy(RTA_DATA(attr), &value, sizeof value);
    message->nlmsg_len = NLMSG_ALIGN(message->nlmsg_len) + attr->rta_len;
}

/* A record does not fit into a segment, and TCP takes a segment at a time: so that it
 * can take a part of a record and then have no room. */
void small_segments(void)
{
    struct {
        struct nlmsghdr header;
        struct ifinfomsg link;
        char attrs[64];
    } request = {
        .header = {.nlmsg_len = NLMSG_LENGTH(sizeof request.link),
                   .nlmsg_type = RTM_NEWLINK,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .link = {.ifi_index = (int)if_nametoindex("eth0")},
    };
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[512];
    } reply;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    add(&request.header, IFLA_MTU, 300);
    add(&request.header, IFLA_GSO_MAX_SEGS, 1);
    CHECK(send(fd, &request, request.header.nlmsg_len, 0) ==
          (ssize_t)request.header.nlmsg_len);
    CHECK(recv(fd, &reply, sizeof reply, 0) > 0);
    CHECK(reply.header.nlmsg_type == NLMSG_ERROR && reply.error.error == 0);
    close(fd);
}

/* Many contexts over buffers that are always full, while signals come: some of the
 * records that tell of them go out in two parts, by two threads. */
#define READERS 16
#define ROUNDS  30
#define WRITERS 4

static _Atomic int readers_left;

static void *read_many(void *opaque)
{
    const unsigned n = (unsigned)(uintptr_t)opaque;
    void *buffer = aligned_buffer(BLOCK);
    int fd = open_device(O_RDONLY | O_DIRECT);
    char klass[32];

    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t at =
            BASE + (UINT64_C(4) << 20) + (uint64_t)(n * ROUNDS + i) * 2 * BLOCK;
        int64_t ctx;

        snprintf(klass, sizeof klass, "signals-%u-%u", n, i);
        ctx = begin(APP_CTX_QUERY, 0, "-", klass);
        CHECK(ctx_pread(fd, buffer, BLOCK, at, ctx) == BLOCK);
        say("@read %s %llu %d\n", klass, (unsigned long long)at, BLOCK);
        end(ctx, klass);
    }
    readers_left--;
    close(fd);
    free(buffer);
    return NULL;
}

static void *write_always(void *opaque)
{
    const unsigned n = (unsigned)(uintptr_t)opaque;
    const size_t size = 32 * BLOCK;
    void *buffer = aligned_buffer(size);
    int fd = open_device(O_RDWR | O_DIRECT);
    uint64_t at = RAW + (UINT64_C(112) << 20) + n * size;

    while (readers_left > 0)
        CHECK(pwrite(fd, buffer, size, at) == (ssize_t)size);
    close(fd);
    free(buffer);
    return NULL;
}

static void nothing(int signal)
{
}

void signals(void)
{
    struct sigaction action = {.sa_handler = nothing};
    pthread_t reader[READERS], writer[WRITERS];

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    readers_left = READERS;
    for (uintptr_t i = 0; i < WRITERS; i++)
        CHECK(pthread_create(&writer[i], NULL, write_always, (void *)i) == 0);
    for (uintptr_t i = 0; i < READERS; i++)
        CHECK(pthread_create(&reader[i], NULL, read_many, (void *)i) == 0);
    for (unsigned i = 0; readers_left > 0; i++) {
        pthread_kill(reader[i % READERS], SIGUSR1);
        nap(100);
    }
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(reader[i], NULL);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(writer[i], NULL);
}
