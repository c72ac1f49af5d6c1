/* SPDX-License-Identifier: BSD-3-Clause */
/* store-redis.c - see store-redis.h.  Each thread has a connection of its own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "store-redis.h"

enum { HEAD = 128, REPLY = 1 << 16 };

static const char *path;
static __thread int server = -1;

static int connection(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (server != -1)
        return 0;
    if (strlen(path) >= sizeof address.sun_path)
        return ENAMETOOLONG;
    strcpy(address.sun_path, path);
    server = socket(AF_UNIX, SOCK_STREAM, 0);
    if (server == -1)
        return errno;
    return connect(server, (struct sockaddr *)&address, sizeof address) == -1 ? errno
                                                                              : 0;
}

/* Sends a command, and reads its reply into `reply` until that is whole: a line, and
 * behind "$N" N bytes and a line's end.  *value: where those begin. */
static int ask(const char *command, size_t command_len, char *reply, size_t *value,
               long *value_len)
{
    size_t have = 0, need = 0;
    int r = connection();

    if (r != 0)
        return r;
    if (send(server, command, command_len, MSG_NOSIGNAL) != (ssize_t)command_len)
        return EIO;
    *value_len = -1;
    for (;;) {
        ssize_t n = read(server, reply + have, REPLY - 1 - have);
        const char *end;

        if (n <= 0)
            return n < 0 ? errno : EPIPE;
        have += (size_t)n;
        reply[have] = 0;
        if (need == 0) {
            if (!(end = strstr(reply, "\r\n")))
                continue;
            *value = need = (size_t)(end + 2 - reply);
            if (reply[0] == '-')
                return EPROTO;
            if (reply[0] == '$' && (*value_len = strtol(reply + 1, NULL, 10)) >= 0)
                need += (size_t)*value_len + 2;
            if (need >= REPLY)
                return EMSGSIZE;
        }
        if (have >= need)
            return 0;
    }
}

static int configure(const char *name, const char *value)
{
    char command[HEAD + 100], reply[REPLY];
    size_t at;
    long len;
    int n = snprintf(command, sizeof command,
                     "*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                     strlen(name), name, strlen(value), value);

    return ask(command, (size_t)n, reply, &at, &len);
}

int redis_open(const char *socket_path, uint64_t memory)
{
    char text[24];
    int r;

    path = socket_path;
    snprintf(text, sizeof text, "%llu", (unsigned long long)memory);
    r = configure("maxmemory", text);
    return r ? r : configure("maxmemory-policy", "allkeys-lfu");
}

int redis_get(uint32_t key, char *value, size_t len)
{
    char command[HEAD], reply[REPLY];
    size_t at;
    long got;
    int n = snprintf(command, sizeof command, "*2\r\n$3\r\nGET\r\n$4\r\n");
    int r;

    memcpy(command + n, &key, 4);
    memcpy(command + n + 4, "\r\n", 2);
    r = ask(command, (size_t)n + 6, reply, &at, &got);
    if (r != 0 || got < 0)
        return r ? r : ENOENT;
    if ((size_t)got != len)
        return EPROTO;
    memcpy(value, reply + at, len);
    return 0;
}

int redis_put(uint32_t key, const char *value, size_t len)
{
    char command[HEAD + REPLY], reply[REPLY];
    size_t at;
    long got;
    int n = snprintf(command, HEAD, "*3\r\n$3\r\nSET\r\n$4\r\n");

    if (len > REPLY)
        return EMSGSIZE;
    memcpy(command + n, &key, 4);
    n += 4;
    n += snprintf(command + n, 32, "\r\n$%zu\r\n", len);
    memcpy(command + n, value, len);
    memcpy(command + n + len, "\r\n", 2);
    return ask(command, (size_t)n + len + 2, reply, &at, &got);
}
