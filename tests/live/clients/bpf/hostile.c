/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile.c - `bpf-hostile WHAT SOCKET DEVICE [ARGUMENT]`: what a program without
 * privileges can do to an agent at SOCKET that watches DEVICE.
 *
 * The device is opened first, then the user becomes nobody (not for `leave`, which
 * needs root to get a certain process number).  Reads are made from block 1024 on.
 * What a program must not get is looked for in the agent's trace, by the script.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clients/protocol/quickmine-agent.h"

#define NOBODY 65534
#define BLOCK  16384
#define FIRST  1024
#define SLOTS  QM_AGENT_SLOTS_MAX

static __thread volatile uint64_t word __attribute__((tls_model("initial-exec")));
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static struct qm_agent_slot *slots;
static int device;
static void *buffer;
static unsigned long seed = 1;

static unsigned long chance(unsigned long n)
{
    seed = seed * 6364136223846793005UL + 1442695040888963407UL;
    return (seed >> 33) % n;
}

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(1);
}

static int table(unsigned seals)
{
    int fd = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    check(fd != -1 && ftruncate(fd, (off_t)(SLOTS * sizeof *slots)) == 0, "memfd");
    check(fcntl(fd, F_ADD_SEALS, seals) == 0, "seal");
    return fd;
}

static int64_t offset_of(uintptr_t where)
{
    return (int64_t)(where - (uintptr_t)__builtin_thread_pointer());
}

static struct qm_agent_hello hello(void)
{
    return (struct qm_agent_hello){.magic = QM_AGENT_MAGIC,
                                   .version = QM_AGENT_VERSION,
                                   .slots = SLOTS,
                                   .tls_offset = offset_of((uintptr_t)&word)};
}

/* A connection, in spite of the others that are let in first. */
static int call(int flags)
{
    int fd;

    for (int i = 0; i < 60000; i++) {
        fd = socket(AF_UNIX, SOCK_SEQPACKET | flags, 0);
        check(fd != -1, "socket");
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        close(fd);
        usleep(1000);
    }
    check(false, "connect");
    return -1;
}

static bool say(int fd, const void *bytes, size_t count, const int *fds, unsigned n)
{
    union {
        char bytes[CMSG_SPACE(16 * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec iov = {(void *)bytes, count};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    if (n > 0) {
        struct cmsghdr *c;

        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(n * sizeof(int));
        c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)count;
}

/* What the agent answers: an errno value; -1: it hangs up. */
static int answer(int fd)
{
    struct qm_agent_welcome w;

    return recv(fd, &w, sizeof w, 0) == sizeof w ? (int)w.error : -1;
}

/* Registers; the connection stays open.  -1: this user has had its share. */
static int try_enter(int flags, int64_t offset)
{
    struct qm_agent_hello h = hello();
    int fd = table(F_SEAL_SHRINK), line = call(flags);
    bool in;

    slots =
        mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(slots != MAP_FAILED, "mmap");
    h.tls_offset = offset;
    in = say(line, &h, sizeof h, &fd, 1) && answer(line) == 0;
    close(fd);
    if (in)
        return line;
    close(line);
    munmap(slots, SLOTS * sizeof *slots);
    return -1;
}

static int enter(int flags, int64_t offset)
{
    int line = try_enter(flags, offset);

    check(line != -1, "register");
    return line;
}

static void read_one(void)
{
    check(pread(device, buffer, BLOCK, (off_t)(FIRST + chance(1024)) * BLOCK) == BLOCK,
          "pread");
}

/* Connections that are no registrations, and tables that are none. */
static void nonsense(void)
{
    const uint32_t counts[] = {0, 1, SLOTS + 1, UINT32_MAX};
    int good = table(F_SEAL_SHRINK), open_ = table(0), ends[2], line, many[16];
    char large[4096] = {0};
    struct qm_agent_hello h;

    check(pipe(ends) == 0, "pipe");
    for (unsigned i = 0; i < 16; i++)
        many[i] = good;
    for (unsigned i = 0; i < 4; i++) {
        h = hello();
        h.slots = counts[i];
        line = call(0);
        check(say(line, &h, sizeof h, &good, 1) && answer(line) == EINVAL, "slots");
        close(line);
    }
    for (unsigned i = 0; i < 2000; i++) {
        h = hello();
        line = call(0);
        switch (i % 9) {
        case 0:
            say(line, &h, sizeof h, &open_, 1);
            break;
        case 1:
            say(line, &h, sizeof h, &ends[0], 1);
            break;
        case 2:
            say(line, &h, sizeof h, &device, 1);
            break;
        case 3:
            say(line, &h, sizeof h, &line, 1);
            break;
        case 4:
            say(line, &h, sizeof h, many, 2 + i % 15);
            break;
        case 5:
            say(line, &h, sizeof h, NULL, 0);
            break;
        case 6:
            say(line, &h, 1 + chance(sizeof h - 1), &good, 1);
            break;
        case 7:
            say(line, large, sizeof large, many, 16);
            break;
        default:
            ((unsigned char *)&h)[chance(16)] ^= (unsigned char)(1 + chance(255));
            say(line, &h, sizeof h, &good, 1);
        }
        check(answer(line) != 0, "registered with nonsense");
        close(line);
    }
}

/* Registers and leaves again, N times; in one of three it does not wait for an answer.
 */
static void flood(unsigned long n)
{
    int fd = table(F_SEAL_SHRINK);

    for (unsigned long i = 0; i < n; i++) {
        struct qm_agent_hello h = hello();
        int line = call(0);

        /* The agent may have had enough of this user. */
        if (say(line, &h, sizeof h, &fd, 1) && i % 3 > 0)
            answer(line);
        close(line);
    }
}

/* Connections that say nothing, anew when the agent has had enough of them; or, if
 * there is room for that, one that registers and hangs.  Until we are killed. */
static void hang(void)
{
    int lines[500];

    for (unsigned i = 0; i < 500; i++)
        lines[i] = call(0);
    while (try_enter(0, offset_of((uintptr_t)&word)) == -1)
        for (unsigned i = 0; i < 500; i++) {
            close(lines[i]);
            lines[i] = call(0);
        }
    /* A slot that is for ever being changed. */
    word = 7 << QM_AGENT_SLOT_BITS | 1;
    for (;;) {
        slots[1].word = word;
        read_one();
        slots[1].word = 0;
        read_one();
    }
}

/* Words and slots of any kind. */
static void forge(unsigned long n)
{
    enter(0, offset_of((uintptr_t)&word));
    for (unsigned long i = 0; i < n; i++) {
        uint64_t slot = chance(64),
                 generation = chance(4) ? chance(1000) : chance(1UL << 30) << 18;
        struct qm_agent_slot *s = &slots[slot];

        for (unsigned j = 0; j < sizeof *s / 8; j++)
            ((uint64_t *)s)[j] = chance(1UL << 31) << 33 ^ chance(1UL << 31);
        s->word = generation << QM_AGENT_SLOT_BITS | slot;
        s->ended = chance(3) ? 0 : s->word;
        s->parent = chance(4) == 0   ? s->word
                    : chance(3) == 0 ? 0
                                     : slots[chance(64)].word;
        s->kind = (uint16_t)(chance(8) ? 1 + chance(4) : chance(65536));
        s->klass = 1000 + chance(8);
        s->name_len = (uint16_t)(chance(8) ? chance(200) : chance(65536));
        s->of_process =
            chance(4) ? 0
                      : (uint32_t)(chance(2) ? (unsigned)getpid() : chance(1 << 15));
        if (chance(2))
            snprintf(s->name, sizeof s->name,
                     "\nB 1 99 query stolen 0\nR 1 99 0 %d\n\033[2J\"\\", BLOCK);
        word = chance(5) ? s->word : chance(1UL << 31) << 16 | chance(65536);
        read_one();
    }
}

/* A thread pointer's offset that leads into the kernel, or nowhere. */
static void pointers(void)
{
    const uintptr_t places[] = {0,
                                1,
                                0xffffffff81000000,
                                0xffff888000000000,
                                0x7ffffffffff9,
                                0x8000000000000000,
                                UINTPTR_MAX};

    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++) {
        int line = enter(0, offset_of(places[i]));

        for (unsigned j = 0; j < 20; j++)
            read_one();
        close(line);
        munmap(slots, SLOTS * sizeof *slots);
    }
}

/* A million contexts for n reads, and a table that nobody has written to. */
static void generations(unsigned long n)
{
    uint64_t g = 1;

    enter(0, offset_of((uintptr_t)&word));
    for (unsigned long i = 0; i < n; i++) {
        for (unsigned long j = 0; j < 1000000 / n; j++, g++) {
            struct qm_agent_slot *s = &slots[1 + g % 60000];

            s->word = 0;
            *s = (struct qm_agent_slot){.kind = 4, .klass = g};
            s->word = g << QM_AGENT_SLOT_BITS | (1 + g % 60000);
            word = s->word;
        }
        read_one();
    }
    for (uint64_t i = 60001; i < SLOTS; i += 16) {
        word = 1UL << 40 | i;
        read_one();
    }
}

/* Says that it reads for another process, of another user. */
static void steal(unsigned long process)
{
    enter(0, offset_of((uintptr_t)&word));
    for (uint64_t g = 1; g < 300; g++) {
        slots[1] =
            (struct qm_agent_slot){.kind = 4,
                                   .word = (g + 1000) << QM_AGENT_SLOT_BITS | 1,
                                   .of_process = (uint32_t)process,
                                   .parent = g << QM_AGENT_SLOT_BITS | (1 + g % 64)};
        word = slots[1].word;
        read_one();
    }
}

/* Registers, is replaced by another program (a connection that stays open), and has a
 * child of vfork() that is. */
static void become(const char *path)
{
    char from[200], *const dd[] = {"dd",           from,          "of=/dev/null",
                                   "bs=16k",       "skip=1024",   "count=50",
                                   "iflag=direct", "status=none", NULL};
    int status;
    pid_t child;

    enter(0, offset_of((uintptr_t)&word));
    slots[1] = (struct qm_agent_slot){.kind = 4,
                                      .word = 9 << QM_AGENT_SLOT_BITS | 1,
                                      .name_len = 6,
                                      .name = "became"};
    word = slots[1].word;
    snprintf(from, sizeof from, "if=%s", path);
    child = vfork();
    if (child == 0) {
        execvp(dd[0], dd);
        _exit(1);
    }
    check(child != -1 && waitpid(child, &status, 0) == child && status == 0, "vfork");
    execvp(dd[0], dd);
    check(false, "dd");
}

/* Connects in a child that dies, and has another process get its number, which reads:
 * the agent is asleep meanwhile.  Prints that number. */
static void leave(unsigned long agent)
{
    struct qm_agent_hello h = hello();
    int fd = table(F_SEAL_SHRINK), last, line = -1;
    pid_t child, other = -1;
    char number[16];

    slots =
        mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(slots != MAP_FAILED, "mmap");
    slots[1] = (struct qm_agent_slot){
        .kind = 4, .word = 9 << QM_AGENT_SLOT_BITS | 1, .name_len = 4, .name = "left"};
    word = slots[1].word;
    check(kill((pid_t)agent, SIGSTOP) == 0, "SIGSTOP");
    line = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    child = fork();
    if (child == 0)
        _exit(connect(line, (struct sockaddr *)&address, sizeof address) != 0 ||
              !say(line, &h, sizeof h, &fd, 1));
    waitpid(child, NULL, 0);
    last = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
    for (int i = 0; i < 200 && other != child; i++) {
        snprintf(number, sizeof number, "%d", child - 1);
        check(last != -1 && write(last, number, strlen(number)) > 0, "ns_last_pid");
        other = fork();
        if (other == 0) {
            if (getpid() != child)
                _exit(0);
            kill((pid_t)agent, SIGCONT);
            for (unsigned i2 = 0; i2 < 100; i2++, usleep(2000))
                read_one();
            _exit(0);
        }
        if (other != child)
            waitpid(other, NULL, 0);
    }
    kill((pid_t)agent, SIGCONT);
    if (other != child) {
        printf("none\n");
        return;
    }
    waitpid(other, NULL, 0);
    printf("%d\n", other);
}

int main(int argc, char **argv)
{
    const char *what = argc > 3 ? argv[1] : "";
    unsigned long n = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;

    check(argc > 3 && strlen(argv[2]) < sizeof address.sun_path, "usage");
    strcpy(address.sun_path, argv[2]);
    signal(SIGPIPE, SIG_IGN);
    seed = (unsigned long)getpid();
    device = open(argv[3], O_RDONLY | O_DIRECT);
    check(device != -1 && posix_memalign(&buffer, 4096, BLOCK) == 0, argv[3]);
    if (strcmp(what, "leave") == 0)
        leave(n);
    else if (strcmp(what, "become") == 0)
        become(argv[3]);
    else {
        check(setgid(NOBODY) == 0 && setuid(NOBODY) == 0, "setuid");
        if (strcmp(what, "nonsense") == 0)
            nonsense();
        else if (strcmp(what, "flood") == 0)
            flood(n);
        else if (strcmp(what, "hang") == 0)
            hang();
        else if (strcmp(what, "forge") == 0)
            forge(n);
        else if (strcmp(what, "pointers") == 0)
            pointers();
        else if (strcmp(what, "generations") == 0)
            generations(n);
        else if (strcmp(what, "steal") == 0)
            steal(n);
        else
            check(false, what);
    }
    return 0;
}
