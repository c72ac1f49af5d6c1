/* SPDX-License-Identifier: BSD-3-Clause */
/* transport-agent.c - the transport that leaves the thread's current context where an
 * agent's BPF program finds it (clients/protocol/quickmine-agent.h).
 *
 * Beginning and ending a context are stores into memory; there is no system call but
 * now and then one that looks whether the agent is still there.  One that is not is
 * looked for again when contexts begin, at most once in LOOK_MS, and in SOON_MS while
 * it has just gone: an agent that has been restarted knows this process in well under
 * a second.  Not so one that takes nobody: many processes together would keep it busy.
 *
 * There is one word for each thread of the process, so there can be one instance.
 */
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "agent-table.h"
#include "internal.h"
#include "own-fd.h"
#include "uris.h"

#define WELCOME_MS 1000
#define LOOK_MS    200
#define SOON_MS    20
#define GONE_MS    5000 /* after it has gone, it is looked for soon */

/* Where the BPF program looks.  Static thread-local storage lies at the same distance
 * from each thread's pointer, also if this library was loaded by dlopen(). */
static _Thread_local volatile uint64_t word __attribute__((tls_model("initial-exec")));

struct agent {
    struct qmctx base;
    struct sockaddr_un address;
    struct qm_agent_table *table;
    _Atomic int fd;          /* of the connection; -1: none.  For a child to close */
    struct qm_own_fd own;    /* what fd is; lock, or a child */
    _Atomic bool registered; /* the agent has said so */
    _Atomic uint64_t next;   /* ms: when it is looked for again */
    pthread_mutex_t lock;    /* of connecting, and of what follows; a leaf */
    uint64_t gone; /* ms: when one that knew us has gone, and none came since; or 0 */
};

struct agent_thread {
    struct qm_thread base;
    struct qm_agent_chunk *chunk; /* NULL: all are taken */
};

struct frame {
    uint64_t word;  /* 0: there was no slot */
    uint64_t outer; /* what was current before */
};

static _Atomic bool taken; /* by an instance */

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static struct frame *frames_of(const struct qm_thread *thread)
{
    return thread->frames;
}

/* All of the following: agent.lock is held. */

static void hang_up(struct agent *a)
{
    int fd = atomic_exchange(&a->fd, -1);

    atomic_store(&a->registered, false);
    qm_own_fd_close(fd, &a->own);
}

static bool send_hello(struct agent *a, int fd)
{
    struct qm_agent_hello hello = {
        .magic = QM_AGENT_MAGIC,
        .version = QM_AGENT_VERSION,
        .slots = QM_AGENT_SLOTS_MAX,
        .tls_offset =
            (int64_t)((uintptr_t)&word - (uintptr_t)__builtin_thread_pointer()),
    };
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec iov = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &a->table->fd, sizeof(int));
    return sendmsg(fd, &message, MSG_NOSIGNAL) == sizeof hello;
}

/* Connects, without waiting for anything.  Returns 0, or why not: EAGAIN, many others
 * are before us. */
static int call(struct agent *a)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error;

    if (fd == -1)
        return ENOTCONN;
    if (!qm_own_fd_is(a->table->fd, &a->table->own)) {
        /* It would be a file of the program's that is sent. */
        close(fd);
        return EBADF;
    }
    if (connect(fd, (const struct sockaddr *)&a->address, sizeof a->address) != 0 ||
        !send_hello(a, fd)) {
        error = errno;
        close(fd);
        return error == EAGAIN ? EAGAIN : ENOTCONN;
    }
    a->own = qm_own_fd(fd);
    atomic_store(&a->fd, fd);
    return 0;
}

/* What the agent has said since it was called; 0, or why it is not there. */
static int listen_to(struct agent *a)
{
    struct qm_agent_welcome answer;
    int fd = atomic_load(&a->fd);
    ssize_t n = 0; /* as at the end of the connection */

    if (qm_own_fd_is(fd, &a->own))
        n = recv(fd, &answer, sizeof answer, MSG_DONTWAIT);
    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n != sizeof answer || answer.magic != QM_AGENT_MAGIC || answer.error != 0) {
        a->gone = atomic_load(&a->registered) ? now_ms() : 0;
        hang_up(a);
        return n == sizeof answer && answer.magic == QM_AGENT_MAGIC ? (int)answer.error
                                                                    : ENOTCONN;
    }
    a->gone = 0;
    atomic_store(&a->registered, true);
    return 0;
}

/* Looks whether the agent is there, and for one that is not.  0, or why it is not. */
static int look(struct agent *a)
{
    int error = atomic_load(&a->fd) != -1 ? listen_to(a) : 0;
    uint64_t now = now_ms();
    bool soon;

    /* One that has gone may have a successor already. */
    if (atomic_load(&a->fd) == -1 && (error == 0 || a->gone != 0)) {
        error = call(a);
        if (error == 0)
            error = listen_to(a);
    }
    soon = a->gone != 0 && now - a->gone < GONE_MS && error != EAGAIN;
    atomic_store_explicit(&a->next, now + (soon ? SOON_MS : LOOK_MS),
                          memory_order_relaxed);
    return error;
}

/* From here on without the lock. */

static void look_now_and_then(struct agent *a)
{
    uint64_t now = now_ms();

    if (now < atomic_load_explicit(&a->next, memory_order_relaxed) ||
        pthread_mutex_trylock(&a->lock) != 0)
        return;
    look(a);
    pthread_mutex_unlock(&a->lock);
}

/* Makes what a slot shows the thread's current context. */
static int enter(struct agent *a, struct qm_thread *thread,
                 const struct qm_agent_shown *shown)
{
    struct agent_thread *t = (struct agent_thread *)thread;
    struct frame f = {.outer = word};

    look_now_and_then(a);
    if (!qm_thread_reserve(thread))
        return -1;
    if (!t->chunk)
        t->chunk = qm_agent_chunk_take(a->table);
    if (t->chunk)
        f.word = qm_agent_slot_begin(a->table, t->chunk, shown);
    if (f.word != 0)
        word = f.word;
    frames_of(thread)[thread->depth++] = f;
    return 0;
}

static int agent_begin(struct qmctx *ctx, struct qm_thread *thread,
                       enum qmctx_kind kind, uint64_t klass, const char *name)
{
    struct qm_agent_shown shown = {.kind = kind, .klass = klass, .name = name};

    for (unsigned i = thread->depth; i > 0 && shown.parent == 0; i--)
        shown.parent = frames_of(thread)[i - 1].word;
    return enter((struct agent *)ctx, thread, &shown);
}

static uint64_t agent_shared_id(struct qmctx *ctx)
{
    return word;
}

static int agent_begin_shared(struct qmctx *ctx, struct qm_thread *thread,
                              pid_t process, uint64_t id)
{
    struct qm_agent_shown shown = {.of_process = (uint32_t)process, .parent = id};

    return enter((struct agent *)ctx, thread, &shown);
}

static void agent_end(struct qmctx *ctx, struct qm_thread *thread)
{
    struct agent_thread *t = (struct agent_thread *)thread;
    struct frame f = frames_of(thread)[--thread->depth];

    if (f.word == 0)
        return;
    word = f.outer;
    qm_agent_slot_end(((struct agent *)ctx)->table, t->chunk, f.word);
}

static void agent_thread_gone(struct qmctx *ctx, struct qm_thread *thread)
{
    struct agent_thread *t = (struct agent_thread *)thread;
    struct agent *a = (struct agent *)ctx;

    if (qm_thread_get(ctx, false) == thread)
        word = 0;
    for (; thread->depth > 0; thread->depth--)
        if (frames_of(thread)[thread->depth - 1].word != 0)
            qm_agent_slot_end(a->table, t->chunk,
                              frames_of(thread)[thread->depth - 1].word);
    if (t->chunk)
        qm_agent_chunk_give(a->table, t->chunk);
    t->chunk = NULL;
}

/* The connection stays the parent's; a child that wants contexts announces anew. */
static void agent_forked(struct qmctx *ctx, struct qm_thread *thread)
{
    struct agent *a = (struct agent *)ctx;

    word = 0;
    qm_own_fd_close(atomic_exchange(&a->fd, -1), &a->own);
    atomic_store(&taken, false);
}

static bool agent_connected(struct qmctx *ctx)
{
    return atomic_load(&((struct agent *)ctx)->registered);
}

static void agent_close(struct qmctx *ctx)
{
    struct agent *a = (struct agent *)ctx;

    hang_up(a);
    qm_agent_table_free(a->table);
    pthread_mutex_destroy(&a->lock);
    free(a);
    atomic_store(&taken, false);
}

const struct qm_transport qm_transport_agent = {
    .name = "agent",
    .thread_bytes = sizeof(struct agent_thread),
    .frame_bytes = sizeof(struct frame),
    .connected = agent_connected,
    .begin = agent_begin,
    .shared_id = agent_shared_id,
    .begin_shared = agent_begin_shared,
    .end = agent_end,
    .thread_gone = agent_thread_gone,
    .forked = agent_forked,
    .close = agent_close,
};

/* Calls the agent and waits for its answer: for each of both a second at most. */
static void first_call(struct agent *a)
{
    struct pollfd fd = {.events = POLLIN};
    int error;

    pthread_mutex_lock(&a->lock);
    a->gone = now_ms(); /* one that is started together with us comes soon */
    error = look(a);
    for (int i = 0; error == EAGAIN && i < WELCOME_MS; i++) {
        poll(NULL, 0, 1);
        error = look(a);
    }
    fd.fd = atomic_load(&a->fd);
    if (fd.fd != -1 && !atomic_load(&a->registered)) {
        poll(&fd, 1, WELCOME_MS);
        error = listen_to(a);
        if (error == 0 && !atomic_load(&a->registered))
            error = ETIMEDOUT; /* it may answer yet */
    }
    pthread_mutex_unlock(&a->lock);
    if (error == EAGAIN)
        qm_fail(error, "the agent at %s has too much to do", a->address.sun_path);
    else if (error == ENOTCONN)
        qm_fail(error, "no agent listens at %s", a->address.sun_path);
    else if (error == ETIMEDOUT)
        qm_fail(error, "the agent at %s does not answer", a->address.sun_path);
    else if (error != 0)
        qm_fail(error, "the agent at %s does not take this process: %s",
                a->address.sun_path, strerror(error));
}

/* NULL with qmctx_error() if it cannot be had. */
static struct agent *make(const char *path)
{
    struct agent *a = calloc(1, sizeof *a);
    int error;

    if (a)
        a->table = qm_agent_table_new();
    if (!a || !a->table) {
        free(a);
        qm_fail(ENOMEM, "no memory for a table of contexts");
        return NULL;
    }
    a->address.sun_family = AF_UNIX;
    qm_socket_path(&a->address, path);
    atomic_init(&a->fd, -1);
    pthread_mutex_init(&a->lock, NULL);
    error = qm_register(&a->base, &qm_transport_agent);
    if (error) {
        qm_agent_table_free(a->table);
        free(a);
        qm_fail(error, "no thread-local storage: %s", strerror(error));
        return NULL;
    }
    return a;
}

int qm_announce_to_agent(const char *path, struct qmctx **ctx)
{
    struct agent *a;

    if (!*path || strlen(path) >= sizeof a->address.sun_path)
        return qm_fail(EINVAL, "agent:%s: a socket's path has 1 to %zu bytes", path,
                       sizeof a->address.sun_path - 1);
    if (atomic_exchange(&taken, true))
        return qm_fail(EBUSY, "this process announces contexts to an agent already");
    a = make(path);
    if (!a) {
        atomic_store(&taken, false);
        return -1;
    }
    first_call(a);
    *ctx = &a->base;
    return 0;
}
