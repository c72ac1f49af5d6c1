/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-agent.c - the agent's registrar, and the tables of programs that register there.
 *
 * An input is a sequence of steps: a table is written to, a program registers (well, or
 * with packets and descriptors of any kind), a read comes with some word, contexts are
 * looked through, a process ends.  There are a few processes; one comes through the
 * registrar, the others are put where it would put them.
 *
 * Promised: a context begins within one that is open, with a kind and a name that are
 * allowed, ends once, and after what is nested in it; nests no deeper than it may; no
 * descriptor is lost; and when the processes have gone, all have ended.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clients/bpf/contexts.h"
#include "clients/bpf/registrar.h"
#include "clients/protocol/quickmine-protocol.h"
#include "fuzz.h"

#define PROCESSES 4
#define SLOTS     16
#define BOOK      4096

static struct {
    bool open;
    uint64_t parent;
    unsigned depth, children;
} book[BOOK];
static unsigned open_count, refuse;

static uint64_t begin(void *opaque, uint64_t parent, uint16_t kind, uint64_t klass,
                      const char *name)
{
    uint64_t n = 1;

    promise(parent < BOOK && (parent == 0 || book[parent].open));
    promise(kind >= QM_WIRE_CONNECTION && kind <= QM_WIRE_QUERY);
    promise(strlen(name) <= QM_AGENT_NAME_MAX);
    if (refuse > 0) {
        refuse--;
        return 0;
    }
    while (n < BOOK && book[n].open)
        n++;
    promise(n < BOOK);
    book[n].open = true;
    book[n].parent = parent;
    book[n].depth = parent ? book[parent].depth + 1 : 1;
    book[n].children = 0;
    promise(book[n].depth <= QM_AGENT_CONTEXTS_DEPTH + 1);
    book[parent].children += parent != 0;
    open_count++;
    return n;
}

static void end(void *opaque, uint64_t handle)
{
    promise(handle > 0 && handle < BOOK && book[handle].open);
    promise(book[handle].children == 0);
    book[handle].open = false;
    book[book[handle].parent].children -= book[handle].parent != 0;
    open_count--;
}

static struct qm_agent_contexts *contexts;
static struct qm_registrar *registrar;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static char directory[64];
static unsigned guests; /* registered */

static int arrived(void *opaque, pid_t process, uid_t user,
                   const struct qm_agent_hello *hello, int table)
{
    int error;

    promise(process == getpid() && user == geteuid());
    error = qm_agent_contexts_register(contexts, process, user, hello, table);
    if (error == 0)
        guests++;
    return error;
}

static void left(void *opaque, pid_t process)
{
    promise(guests > 0);
    qm_agent_contexts_forget(contexts, process);
}

static void stop(void)
{
    qm_registrar_close(registrar);
    rmdir(directory);
}

static void start(void)
{
    const struct qm_registrar_calls calls = {arrived, left, NULL};
    char err[300];

    snprintf(directory, sizeof directory, "/tmp/quickmine-fuzz.XXXXXX");
    promise(mkdtemp(directory));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/agent", directory);
    promise(qm_registrar_open(&registrar, address.sun_path, &calls, err, sizeof err) ==
            0);
    atexit(stop);
}

static struct table {
    struct qm_agent_slot *slots;
    int fd;
} tables[PROCESSES];

static void open_table(struct table *t)
{
    const size_t bytes = SLOTS * sizeof *t->slots;

    t->fd = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    promise(t->fd != -1 && ftruncate(t->fd, (off_t)bytes) == 0);
    promise(fcntl(t->fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    t->slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
    promise(t->slots != MAP_FAILED);
}

static void close_table(struct table *t)
{
    munmap(t->slots, SLOTS * sizeof *t->slots);
    close(t->fd);
}

static struct qm_agent_hello hello_of(struct food *f)
{
    struct qm_agent_hello hello = {.magic = QM_AGENT_MAGIC,
                                   .version = QM_AGENT_VERSION,
                                   .slots = SLOTS,
                                   .tls_offset = -64};
    unsigned what = eat_number(f, 1);

    if (what % 8 == 1)
        ((unsigned char *)&hello)[eat_number(f, 1) % sizeof hello] ^= eat_number(f, 1);
    if (what % 8 == 2)
        hello.slots = (uint32_t)eat_number(f, 4);
    return hello;
}

/* The processes are this one, which registers itself, and made up ones. */
static pid_t number_of(unsigned process)
{
    return process == 0 ? getpid() : (pid_t)(1000000000 + process);
}

/* Sends a packet with up to two descriptors, of all kinds. */
static int knock(struct food *f)
{
    struct qm_agent_hello hello = hello_of(f);
    unsigned what = eat_number(f, 1), count = what % 8 == 7 ? 2 : what % 8 != 6;
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = ""};
    char packet[128] = "";
    struct iovec iov = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    int fds[2] = {tables[0].fd, tables[0].fd};
    int other = -1, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    promise(fd != -1);
    promise(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    if (what % 8 == 5)
        fds[0] = other = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (what % 8 == 4) /* it could shrink */
        fds[0] = other = memfd_create("table", MFD_CLOEXEC);
    if (what & 64) {
        iov.iov_base = packet;
        iov.iov_len = eat_number(f, 1) % sizeof packet;
        eat(f, packet, iov.iov_len);
    }
    if (count > 0) {
        struct cmsghdr *c;

        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    }
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
    if (other != -1)
        close(other);
    return fd;
}

/* A slot that is nearly good. */
static void fill_in(struct food *f, struct qm_agent_slot *slot, unsigned index)
{
    uint64_t generation = eat_number(f, 1);

    memset(slot, 0, sizeof *slot);
    slot->word = generation << QM_AGENT_SLOT_BITS | index;
    slot->parent = eat_number(f, 1) << QM_AGENT_SLOT_BITS | eat_number(f, 1) % SLOTS;
    if (slot->parent >> QM_AGENT_SLOT_BITS == 0)
        slot->parent = 0;
    slot->klass = eat_number(f, 1);
    slot->kind = (uint16_t)(eat_number(f, 1) % 6);
    slot->name_len = (uint16_t)eat_number(f, 1);
    if (eat_number(f, 1) % 8 == 1)
        slot->of_process = (uint32_t)number_of(eat_number(f, 1) % PROCESSES);
    eat(f, slot->name, 5);
}

static unsigned descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    promise(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* What a step does to a process. */
static void step(struct food *f, int *connection)
{
    unsigned what = eat_number(f, 1), process = what >> 6, index = what >> 3 & 7;
    struct table *t = &tables[process];
    struct qm_agent_slot *slot = &t->slots[index];
    uint64_t word;

    switch (what & 7) {
    case 0:
    case 1:
        fill_in(f, slot, index);
        break;
    case 2:
        word = eat_number(f, 1) % (sizeof *slot / 8);
        __atomic_store_n((uint64_t *)slot + word, eat_number(f, 8), __ATOMIC_RELAXED);
        break;
    case 3:
        slot->ended = slot->word;
        break;
    case 4: /* a read */
        word = index == 0 ? eat_number(f, 8) : slot->word;
        word = qm_agent_contexts_find(contexts, number_of(process), word);
        promise(word == 0 || book[word].open);
        break;
    case 5:
        qm_agent_contexts_sweep(contexts);
        refuse = index == 7;
        break;
    case 6:
        if (process == 0) {
            if (*connection != -1)
                close(*connection);
            *connection = knock(f);
            qm_registrar_serve(registrar);
            qm_registrar_serve(registrar);
        } else {
            struct qm_agent_hello hello = hello_of(f);

            qm_agent_contexts_register(contexts, number_of(process),
                                       geteuid() + (index == 7), &hello, t->fd);
        }
        break;
    case 7:
        if (process == 0) {
            if (*connection != -1)
                (void)!send(*connection, "more of it", index, MSG_NOSIGNAL);
            qm_registrar_serve(registrar);
        } else {
            qm_agent_contexts_forget(contexts, number_of(process));
        }
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct qm_sink sink = {begin, end, NULL};
    struct food f = {data, size};
    int connection = -1;
    unsigned before;

    if (!registrar)
        start();
    before = descriptors();
    contexts = qm_agent_contexts_new(&sink);
    promise(contexts);
    for (unsigned i = 0; i < PROCESSES; i++)
        open_table(&tables[i]);
    refuse = 0;
    while (f.left > 0)
        step(&f, &connection);
    if (connection != -1)
        close(connection);
    /* Accepts what is left, and sees it end. */
    qm_registrar_serve(registrar);
    qm_registrar_serve(registrar);
    qm_agent_contexts_free(contexts);
    promise(open_count == 0);
    for (unsigned i = 0; i < PROCESSES; i++)
        close_table(&tables[i]);
    promise(descriptors() == before);
    return 0;
}
