/* SPDX-License-Identifier: BSD-3-Clause */
/* handshake.c - see handshake.h; the protocol's doc/proto.md says what is sent. */
#include "clients/attach/handshake.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#define GREETING   UINT64_C(0x4e42444d41474943) /* NBDMAGIC */
#define I_HAVE_OPT UINT64_C(0x49484156454f5054) /* IHAVEOPT */
#define REPLY      UINT64_C(0x0003e889045565a9)

#define FIXED_NEWSTYLE 1u /* flags of both sides */
#define NO_ZEROES      2u

enum { EXPORT_NAME = 1, ABORT = 2, LIST = 3, INFO = 6, GO = 7 };
enum { ACK = 1, SERVER = 2, INFORMATION = 3 };
#define UNSUPPORTED UINT32_C(0x80000001)
#define INVALID     UINT32_C(0x80000003)

#define OPTION_MOST 4096 /* bytes of an option; a name has 4096 at most */
#define OPTIONS     64   /* in one handshake */

struct client {
    int fd;
    int64_t until; /* ms */
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* A byte now and then does not prolong it. */
static int receive(const struct client *c, void *to, size_t count)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    char *at = to;
    int64_t left;
    ssize_t r;

    for (; count > 0; count -= (size_t)r, at += r) {
        left = c->until - now_ms();
        if (left <= 0)
            return ETIMEDOUT;
        r = poll(&p, 1, (int)left) == 1 ? recv(c->fd, at, count, MSG_DONTWAIT) : -2;
        if (r == -2 || (r == -1 && (errno == EINTR || errno == EAGAIN)))
            r = 0; /* then the time is looked at */
        else if (r == -1 || r == 0)
            return ECONNRESET;
    }
    return 0;
}

/* All that is sent here fits into a socket's buffer, unless the client reads nothing.
 */
static int put(int fd, const void *bytes, size_t count)
{
    return send(fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count ? 0 : ECONNRESET;
}

static int answer(int fd, uint32_t option, uint32_t type, const void *data,
                  uint32_t length)
{
    struct {
        uint64_t magic;
        uint32_t option, type, length;
        char data[16];
    } __attribute__((packed))
    reply = {htobe64(REPLY), htobe32(option), htobe32(type), htobe32(length), ""};

    memcpy(reply.data, data, length);
    return put(fd, &reply, offsetof(__typeof__(reply), data) + length);
}

static int describe(int fd, uint32_t option, uint64_t size, uint16_t flags)
{
    const struct {
        uint16_t type;
        uint64_t size;
        uint16_t flags;
    } __attribute__((packed)) export = {0, htobe64(size), htobe16(flags)};
    int error = answer(fd, option, INFORMATION, &export, sizeof export);

    return error ? error : answer(fd, option, ACK, "", 0);
}

static int end_oldstyle(int fd, uint64_t size, uint16_t flags, bool zeroes)
{
    struct {
        uint64_t size;
        uint16_t flags;
        char zeroes[124];
    } __attribute__((packed)) export = {htobe64(size), htobe16(flags), ""};

    return put(fd, &export, zeroes ? sizeof export : sizeof export - 124);
}

/* Receives an option and answers it.  *over: requests come next. */
static int negotiate(const struct client *c, uint64_t size, uint16_t flags, bool zeroes,
                     bool *over)
{
    int fd = c->fd;
    struct {
        uint64_t magic;
        uint32_t option, length;
    } __attribute__((packed)) header;
    uint32_t option, length;
    char data[OPTION_MOST];
    int error = receive(c, &header, sizeof header);

    if (error != 0)
        return error;
    option = be32toh(header.option);
    length = be32toh(header.length);
    if (be64toh(header.magic) != I_HAVE_OPT || length > sizeof data)
        return EPROTO;
    error = receive(c, data, length);
    if (error != 0)
        return error;
    switch (option) {
    case EXPORT_NAME:
        *over = true;
        return end_oldstyle(fd, size, flags, zeroes);
    case ABORT:
        answer(fd, option, ACK, "", 0);
        return ECONNRESET;
    case LIST:
        if (length > 0)
            return answer(fd, option, INVALID, "", 0);
        /* One, without a name. */
        error = answer(fd, option, SERVER, "\0\0\0", 4);
        return error ? error : answer(fd, option, ACK, "", 0);
    case INFO:
    case GO:
        if (length < 6)
            return answer(fd, option, INVALID, "", 0);
        error = describe(fd, option, size, flags);
        *over = error == 0 && option == GO;
        return error;
    default:
        return answer(fd, option, UNSUPPORTED, "", 0);
    }
}

static void set_timeout(int fd, time_t seconds)
{
    struct timeval t = {.tv_sec = seconds};

    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

int qm_handshake(int fd, uint64_t size, uint16_t flags)
{
    const struct {
        uint64_t magic, option;
        uint16_t flags;
    } __attribute__((packed)) greeting = {htobe64(GREETING), htobe64(I_HAVE_OPT),
                                          htobe16(FIXED_NEWSTYLE | NO_ZEROES)};
    const struct client c = {fd, now_ms() + QM_HANDSHAKE_SECONDS * 1000};
    uint32_t theirs;
    bool over = false;
    int error;

    set_timeout(fd, QM_HANDSHAKE_SECONDS);
    error = put(fd, &greeting, sizeof greeting);
    if (error == 0)
        error = receive(&c, &theirs, sizeof theirs);
    if (error == 0 && (be32toh(theirs) & ~(FIXED_NEWSTYLE | NO_ZEROES)))
        error = EPROTO;
    for (unsigned i = 0; error == 0 && !over; i++)
        error = i < OPTIONS
                    ? negotiate(&c, size, flags, !(be32toh(theirs) & NO_ZEROES), &over)
                    : EPROTO;
    set_timeout(fd, 0);
    return error;
}
