/* SPDX-License-Identifier: BSD-3-Clause */
/* hints-kernel.c - quickmine attach --transport hints, with the kernel's part played
 * here.
 *
 *   hints-kernel URI DIRECTORY
 *   hints-kernel URI
 *
 * With a URI only, of a server that does not answer: ends when it is told to, by
 * SIGTERM, which is blocked as it is in quickmine attach.  Else:
 *
 * Two writes are sent over the connection that the kernel is given, the second one when
 * there is a file `second`; when there is a file `cut` the connection ends, unanswered,
 * as the kernel ends one.  Over the next one newer bytes are written where the second
 * write was for, and flushed; then there is a file `written`. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/nbd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cli/agent.h"
#include "cli/attach.h"
#include "cli/daemon.h"
#include "clients/attach/kernel.h"

#define PAGE     4096
#define SECOND   65536 /* where successor.py looks */
#define PATIENCE 12000 /* of 10 ms */

static atomic_int sockets[2] = {-1, -1}, given;
static atomic_bool connected = true;
static const char *directory;

static void die(const char *what)
{
    fprintf(stderr, "hints-kernel: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void wait_for_file(const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (int i = 0; access(path, F_OK) != 0; i++, nap())
        if (i == PATIENCE)
            die(name);
}

/* --- the kernel, as attach-hints.c sees it --- */

static int tcp_option(int fd, int level, int name)
{
    int value = 0;
    socklen_t len = sizeof value;

    if (getsockopt(fd, level, name, &value, &len) == -1)
        die("getsockopt");
    return value;
}

static int take(const struct qm_kernel_device *d)
{
    int at = atomic_load(&given);

    errno = 0;
    if (tcp_option(d->sockets[0], SOL_SOCKET, SO_KEEPALIVE) != 1 ||
        tcp_option(d->sockets[0], IPPROTO_TCP, TCP_KEEPIDLE) > 10 ||
        tcp_option(d->sockets[0], IPPROTO_TCP, TCP_USER_TIMEOUT) != 9000)
        die("TCP does not watch the server");

    if (d->count != 1 || at == 2 || d->patience_ms == 0)
        die("not one connection, which the kernel leaves in peace");
    atomic_store(&sockets[at], dup(d->sockets[0]));
    atomic_store(&given, at + 1);
    return 0;
}

int qm_kernel_connect(const struct qm_kernel_device *d, char *err, size_t len)
{
    return take(d);
}
int qm_kernel_reconnect(const struct qm_kernel_device *d, char *err, size_t len)
{
    return take(d);
}
bool qm_kernel_connected(unsigned number)
{
    return atomic_load(&given) > 0 && atomic_load(&connected);
}
unsigned qm_kernel_queues(unsigned number)
{
    return 0;
}

/* --- what else it needs --- */

void daemon_log(int priority, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}
void daemon_ready(void)
{
}
void daemon_notify(const char *state)
{
}
uint64_t attach_timeout(const struct attach_options *o)
{
    return 30;
}
uint64_t attach_patience_ms(const struct attach_options *o)
{
    return 500;
}
void attach_owner(char *owner, size_t len, const char *uri)
{
    *owner = '\0';
}
int attach_check_same(const struct attach_options *o, uint64_t size, char *err,
                      size_t len)
{
    return 0;
}
bool attach_detach(const struct attach_options *o, bool server_is_there)
{
    return true;
}
void attach_say_plain(const char *why)
{
}
struct agent_hints *agent_hints_open(const char *uri, char *err, size_t len)
{
    return NULL;
}
void agent_hints_use(struct agent_hints *h, struct qm_agent_config *config)
{
}
void agent_hints_close(struct agent_hints *h)
{
}

/* --- requests --- */

static int next_socket(int number)
{
    for (int i = 0; atomic_load(&given) <= number; i++, nap())
        if (i == PATIENCE) {
            errno = ETIMEDOUT;
            die("no connection");
        }
    return atomic_load(&sockets[number]);
}

static void send_all(int fd, const void *from, size_t n)
{
    if (send(fd, from, n, MSG_NOSIGNAL) != (ssize_t)n)
        die("send");
}

static void request(int fd, uint32_t type, uint64_t offset, uint32_t count)
{
    struct nbd_request r = {.magic = htobe32(NBD_REQUEST_MAGIC), .type = htobe32(type)};

    r.from = htobe64(offset);
    r.len = htobe32(count);
    send_all(fd, &r, sizeof r);
}

static void write_page(int fd, char letter, uint64_t offset)
{
    char page[PAGE];

    memset(page, letter, sizeof page);
    request(fd, NBD_CMD_WRITE, offset, sizeof page);
    send_all(fd, page, sizeof page);
}

static void await_reply(int fd)
{
    struct nbd_reply reply;

    if (recv(fd, &reply, sizeof reply, MSG_WAITALL) != sizeof reply)
        die("recv");
    if (be32toh(reply.magic) != NBD_REPLY_MAGIC || reply.error != 0) {
        errno = (int)be32toh(reply.error);
        die("reply");
    }
}

static int serve_until(const char *uri, const sigset_t *set)
{
    static const struct attach_options none;
    struct attach_options o = none;
    int signals;

    o.uri = uri;
    o.device = "/dev/null";
    o.block_size = 512;
    signals = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals == -1)
        die("signalfd");
    return attach_serve_hints(&o, signals);
}

static void *serve(void *opaque)
{
    sigset_t set;

    sigemptyset(&set);
    return (void *)(intptr_t)serve_until(opaque, &set);
}

int main(int argc, char **argv)
{
    char path[4096];
    pthread_t thread;
    int fd;

    if (argc == 2) {
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigprocmask(SIG_BLOCK, &set, NULL);
        return serve_until(argv[1], &set) == 0 ? 1 : 0;
    }
    if (argc != 3)
        return 2;
    directory = argv[2];
    if (pthread_create(&thread, NULL, serve, argv[1]) != 0)
        die("pthread_create");
    fd = next_socket(0);
    write_page(fd, 'S', 0);
    wait_for_file("second");
    write_page(fd, 'O', SECOND);
    wait_for_file("cut");
    shutdown(fd, SHUT_RDWR);
    fd = next_socket(1);
    write_page(fd, 'N', SECOND);
    await_reply(fd);
    request(fd, NBD_CMD_FLUSH, 0, 0);
    await_reply(fd);
    snprintf(path, sizeof path, "%s/written", directory);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    atomic_store(&connected, false);
    pthread_join(thread, NULL);
    return 0;
}
