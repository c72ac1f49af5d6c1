/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile.c - a program that announces nonsense to a mount, and reads meanwhile.
 *
 *   mount-hostile nonsense SOCKET FILE IMAGE READS
 *   mount-hostile crowd SOCKET      more programs than the mount takes
 *   mount-hostile turns SOCKET      many programs, one after the other
 *   mount-hostile greet SOCKET      one; fails if the mount hangs up on it
 *
 * Its reads must all succeed and return what is in IMAGE.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "clients/protocol/quickmine-mount.h"

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int file, image;
static uint64_t size;
static unsigned reads;
static struct qm_mount_hello hello;
static uint64_t *words; /* the shared memory */
static int mount_socket;
static atomic_bool over;

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static int connect_only(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd == -1 || connect(fd, (struct sockaddr *)&address, sizeof address) == -1)
        die(address.sun_path);
    return fd;
}

/* Returns the shared memory's descriptor, or -1 if the mount has hung up. */
static int greet(int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *c;
    int memory;

    if (recvmsg(fd, &message, 0) != sizeof hello)
        return -1;
    c = CMSG_FIRSTHDR(&message);
    if (!c || c->cmsg_type != SCM_RIGHTS)
        die("no descriptor");
    memcpy(&memory, CMSG_DATA(c), sizeof memory);
    return memory;
}

static void attach(void)
{
    int memory;

    mount_socket = connect_only();
    memory = greet(mount_socket);
    if (memory == -1)
        die("the mount refused us");
    if (ftruncate(memory, 0) != -1 || errno != EPERM) {
        fprintf(stderr, "the shared memory can be cut off\n");
        exit(1);
    }
    words = mmap(NULL, hello.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (words == MAP_FAILED)
        die("mmap");
    close(memory);
}

/* Random words, now and then ones that make sense, all over the entries. */
static void *scribble(void *arg)
{
    unsigned seed = 1;

    while (!atomic_load(&over)) {
        size_t entry = (size_t)rand_r(&seed) % hello.entries;
        volatile uint64_t *w = words + entry * sizeof(struct qm_mount_entry) / 8;

        w[(size_t)rand_r(&seed) % 32] =
            (uint64_t)rand_r(&seed) << 33 ^ (uint64_t)rand_r(&seed);
        w = words + (size_t)rand_r(&seed) % 64 * sizeof(struct qm_mount_entry) / 8;
        w[0] = (uint64_t)rand_r(&seed) % 4 * 2;
        /* kind; parent */
        w[2] = (1 + (uint64_t)rand_r(&seed) % 4) | (uint64_t)rand_r(&seed) % 66 << 32;
        w[3] = (uint64_t)rand_r(&seed) % 4 * 2;
        w[5] = (uint64_t)rand_r(&seed) % 210; /* length of the name, and its bytes */
    }
    return NULL;
}

static void *send_nonsense(void *arg)
{
    unsigned seed = 2;

    while (!atomic_load(&over)) {
        struct qm_mount_ended ended = {
            .index = (uint32_t)rand_r(&seed) % (hello.entries + 10),
            .version = (uint64_t)rand_r(&seed) % 8,
        };

        if (send(mount_socket, &ended, sizeof ended, MSG_NOSIGNAL) == -1)
            die("the mount hung up");
    }
    return NULL;
}

static void *read_on(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    char got[4096], want[4096];

    for (unsigned i = 0; i < reads; i++) {
        uint64_t offset = (uint64_t)rand_r(&seed) % (size - sizeof got);
        uint32_t gid = hello.gid_base + (uint32_t)rand_r(&seed) % 64;

        if (i % 4 == 0) /* somebody else's, or nobody's */
            gid = QM_MOUNT_GID_BASE +
                  (uint32_t)rand_r(&seed) % (QM_MOUNT_GID_END - QM_MOUNT_GID_BASE);
        syscall(SYS_setfsgid, gid);
        if (pread(file, got, sizeof got, (off_t)offset) != sizeof got)
            die("pread");
        if (pread(image, want, sizeof want, (off_t)offset) != sizeof want)
            die("image");
        if (memcmp(got, want, sizeof got) != 0) {
            fprintf(stderr, "wrong data at %llu\n", (unsigned long long)offset);
            exit(1);
        }
    }
    syscall(SYS_setfsgid, 0);
    return NULL;
}

/* More programs than the mount takes; it hangs up on some, and none does harm. */
static void crowd(void)
{
    enum { N = 100 };
    int fd[N];
    unsigned refused = 0;

    for (unsigned i = 0; i < N; i++) {
        int memory;

        fd[i] = connect_only();
        memory = greet(fd[i]);
        if (memory == -1)
            refused++;
        else
            close(memory);
    }
    if (refused == 0 || refused == N) {
        fprintf(stderr, "%u of %u programs were refused\n", refused, N);
        exit(1);
    }
    for (unsigned i = 0; i < N; i++)
        close(fd[i]);
}

/* Programs that come and go: each gets group ids that none of those before it had. */
static void turns(void)
{
    enum { N = 300 };
    uint32_t had[N];

    for (unsigned i = 0; i < N;) {
        int fd = connect_only(), memory = greet(fd);

        close(fd);
        if (memory == -1)
            continue; /* it has not noticed yet that others have gone */
        close(memory);
        had[i] = hello.gid_base;
        for (unsigned k = 0; k < i; k++)
            if (had[k] == had[i]) {
                fprintf(stderr, "program %u has the group ids of program %u\n", i, k);
                exit(1);
            }
        i++;
    }
}

int main(int argc, char **argv)
{
    pthread_t scribbler, sender, reader[2];
    struct timeval patience = {.tv_sec = 60};
    struct stat st;
    char byte = 0;
    ssize_t n;

    if (argc < 3 || strlen(argv[2]) >= sizeof address.sun_path ||
        argc != (strcmp(argv[1], "nonsense") ? 3 : 6)) {
        fprintf(stderr, "usage: see hostile.c\n");
        return 2;
    }
    memcpy(address.sun_path, argv[2], strlen(argv[2]) + 1);
    if (argc == 3) {
        if (!strcmp(argv[1], "crowd"))
            crowd();
        else if (!strcmp(argv[1], "turns"))
            turns();
        else
            return greet(connect_only()) == -1 ? 1 : 0;
        return 0;
    }
    file = open(argv[3], O_RDONLY | O_CLOEXEC);
    image = open(argv[4], O_RDONLY | O_CLOEXEC);
    if (file == -1 || image == -1 || fstat(image, &st) == -1)
        die("open");
    size = (uint64_t)st.st_size;
    reads = (unsigned)strtoul(argv[5], NULL, 10);

    attach();
    pthread_create(&scribbler, NULL, scribble, NULL);
    pthread_create(&sender, NULL, send_nonsense, NULL);
    for (unsigned i = 0; i < 2; i++)
        pthread_create(&reader[i], NULL, read_on, (void *)(uintptr_t)(i + 10));
    for (unsigned i = 0; i < 2; i++)
        pthread_join(reader[i], NULL);
    atomic_store(&over, true);
    pthread_join(scribbler, NULL);
    pthread_join(sender, NULL);

    setsockopt(mount_socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    /* A message of no known size: the mount hangs up, and is not hurt. */
    if (send(mount_socket, &byte, 1, MSG_NOSIGNAL) != 1 ||
        (n = recv(mount_socket, &byte, 1, 0)) > 0 || (n == -1 && errno == EAGAIN))
        die("the mount did not hang up");
    read_on((void *)(uintptr_t)20);
    return 0;
}
