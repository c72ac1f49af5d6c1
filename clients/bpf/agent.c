/* SPDX-License-Identifier: BSD-3-Clause */
/* agent.c - see agent.h. */
#include "clients/bpf/agent.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clients/bpf/registrar.h"
#include "clients/bpf/threads.h"
#include "clients/bpf/watch.h"

#define POLL_NS  500000            /* between looks into the ring, while it fills */
#define BUSY     20                /* looks in vain before sleeping */
#define SWEEP_NS UINT64_C(5000000) /* between looks for contexts that have ended */
/* A read that comes just as we fall asleep may wake nobody: then it waits so long. */
#define IDLE_MS 20

struct qm_agent {
    struct qm_agent_config config;
    struct qm_watch *watch;
    struct qm_registrar *registrar;
    struct qm_agent_contexts *contexts;
    struct qm_agent_threads *threads;
    struct qm_agent_stats stats;
    uint64_t swept;
};

static uint64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static uint64_t context_of(struct qm_agent *a, const struct qm_bpf_read *read)
{
    uint64_t handle = 0;

    if (read->word != 0)
        handle = qm_agent_contexts_find(a->contexts, (pid_t)read->process, read->word);
    if (handle != 0) {
        a->stats.in_context++;
        return handle;
    }
    if (a->config.threads && !(read->flags & QM_BPF_KERNEL))
        handle = qm_agent_threads_find(a->threads, read);
    a->stats.in_thread += handle != 0;
    return handle;
}

static void handle(void *opaque, const struct qm_bpf_read *read)
{
    struct qm_agent *a = opaque;
    uint64_t context = 0;

    /* A write is nobody's: it is made when it suits the database or the kernel. */
    if (read->flags & QM_BPF_WRITE) {
        a->stats.writes++;
    } else {
        a->stats.reads++;
        context = context_of(a, read);
    }
    a->config.io(a->config.opaque, context, read);
}

static int arrived(void *opaque, pid_t process, uid_t user,
                   const struct qm_agent_hello *hello, int table)
{
    struct qm_agent *a = opaque;
    int error = qm_agent_contexts_register(a->contexts, process, user, hello, table);

    if (error != 0)
        return error;
    error = qm_watch_process(a->watch, process, hello->tls_offset);
    if (error != 0)
        qm_agent_contexts_forget(a->contexts, process);
    return error;
}

static void left(void *opaque, pid_t process)
{
    struct qm_agent *a = opaque;

    /* What it read is still to be told in its contexts. */
    qm_watch_drain(a->watch);
    qm_watch_forget(a->watch, process);
    qm_agent_contexts_forget(a->contexts, process);
}

static int out_of_memory(char *err, size_t len)
{
    snprintf(err, len, "out of memory");
    return ENOMEM;
}

static int make(struct qm_agent *a, char *err, size_t len)
{
    const struct qm_agent_config *c = &a->config;
    const struct qm_registrar_calls calls = {arrived, left, a};
    int error;

    a->contexts = qm_agent_contexts_new(&c->sink);
    a->threads = qm_agent_threads_new(&c->sink);
    if (!a->contexts || !a->threads)
        return out_of_memory(err, len);
    error = qm_watch_open(&a->watch, c->writes, handle, a, err, len);
    if (error != 0)
        return error;
    for (unsigned i = 0; i < c->device_count; i++) {
        error = qm_watch_device(a->watch, c->devices[i]);
        if (error != 0) {
            snprintf(err, len, "cannot watch the device: %s", strerror(error));
            return error;
        }
    }
    return c->socket ? qm_registrar_open(&a->registrar, c->socket, &calls, err, len)
                     : 0;
}

int qm_agent_open(struct qm_agent **agent, const struct qm_agent_config *config,
                  char *err, size_t len)
{
    struct qm_agent *a = calloc(1, sizeof *a);
    int error;

    *agent = NULL;
    if (!a)
        return out_of_memory(err, len);
    a->config = *config;
    error = make(a, err, len);
    if (error != 0)
        qm_agent_close(a);
    else
        *agent = a;
    return error;
}

void qm_agent_close(struct qm_agent *a)
{
    if (!a)
        return;
    qm_registrar_close(a->registrar);
    qm_watch_close(a->watch);
    qm_agent_threads_free(a->threads);
    qm_agent_contexts_free(a->contexts);
    free(a);
}

static void sweep(struct qm_agent *a)
{
    uint64_t t = now();

    if (t - a->swept < SWEEP_NS)
        return;
    a->swept = t;
    qm_agent_contexts_sweep(a->contexts);
    qm_agent_threads_sweep(a->threads, t);
}

bool qm_agent_drain(struct qm_agent *a)
{
    return qm_watch_drain(a->watch) > 0;
}

uint64_t qm_agent_mark(const struct qm_agent *a)
{
    return qm_watch_written(a->watch);
}

bool qm_agent_is_past(const struct qm_agent *a, uint64_t mark)
{
    return (int64_t)(qm_watch_drained(a->watch) - mark) >= 0;
}

/* Hands on what is in the ring.  Returns whether there was anything. */
static bool drain(struct qm_agent *a)
{
    int n = qm_watch_drain(a->watch);

    sweep(a);
    if (n > 0 && a->config.flush)
        a->config.flush(a->config.opaque);
    return n > 0;
}

void qm_agent_run(struct qm_agent *a, int stop_fd)
{
    struct pollfd fds[] = {
        {.fd = stop_fd, .events = POLLIN},
        {.fd = a->registrar ? qm_registrar_fd(a->registrar) : -1, .events = POLLIN},
        {.fd = qm_watch_fd(a->watch), .events = POLLIN}};
    const struct timespec interval = {.tv_nsec = POLL_NS};
    const int registrar = fds[1].fd;
    uint64_t served = 0;
    unsigned vain = 0;

    for (;;) {
        bool sleeps = vain >= BUSY;

        /* While it is not to be served, new connections must not wake this thread. */
        fds[1].fd =
            now() - served < QM_REGISTRAR_PAUSE * UINT64_C(1000000) ? -1 : registrar;

        if (sleeps) {
            qm_watch_sleep(a->watch, true);
            /* What came before we said that we sleep has woken nobody. */
            sleeps = !drain(a);
        }
        if (sleeps) {
            poll(fds, 3, fds[1].fd == registrar ? IDLE_MS : QM_REGISTRAR_PAUSE);
            qm_watch_sleep(a->watch, false);
        } else {
            qm_watch_sleep(a->watch, false);
            ppoll(fds, 2, &interval, NULL);
        }
        vain = drain(a) ? 0 : vain + (vain < BUSY);
        if (a->config.tend)
            a->config.tend(a->config.opaque);
        if (fds[0].revents)
            break;
        if (a->registrar && fds[1].fd != -1) {
            qm_registrar_serve(a->registrar);
            if (fds[1].revents)
                served = now();
        }
    }
    drain(a);
}

void qm_agent_tend(struct qm_agent *a)
{
    drain(a);
    if (a->registrar)
        qm_registrar_serve(a->registrar);
}

int qm_agent_fd(const struct qm_agent *a)
{
    return a->registrar ? qm_registrar_fd(a->registrar) : -1;
}

void qm_agent_get_stats(const struct qm_agent *a, struct qm_agent_stats *stats)
{
    *stats = a->stats;
    stats->lost = qm_watch_lost(a->watch);
    qm_agent_contexts_get_stats(a->contexts, &stats->contexts);
}
