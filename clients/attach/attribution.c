/* SPDX-License-Identifier: BSD-3-Clause */
/* attribution.c - see attribution.h. */
#include "clients/attach/attribution.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "clients/attach/patience.h"
#include "clients/bpf/registrar.h"

#define SECTOR  UINT64_C(512)
#define TEND_MS 20

struct qm_attribution {
    struct qm_device *device;
    pthread_mutex_t lock; /* the rest, but for what is constant */
    struct qm_agent *agent;
    struct qm_join *join;
    uint64_t again;
    struct qm_patience patience;
    bool has_thread; /* constant, and so are these */
    pthread_t thread;
    int stop;
};

static uint64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* Handles of the agent, and contexts of the joiner, are tags. */
static struct qm_tag *tag_of(uint64_t handle)
{
    return (struct qm_tag *)(uintptr_t)handle;
}

static uint64_t begin(void *opaque, uint64_t parent, uint16_t kind, uint64_t klass,
                      const char *name)
{
    struct qm_attribution *w = opaque;
    struct qm_tag *tag;

    qm_tag_begin(w->device, tag_of(parent), (enum qmctx_kind)kind, klass, name, &tag);
    return (uintptr_t)tag;
}

static void release(void *opaque, uint64_t handle)
{
    qm_tag_put(tag_of(handle));
}

static void hold(void *opaque, uint64_t handle)
{
    qm_tag_get(tag_of(handle));
}

static void io(void *opaque, uint64_t context, const struct qm_bpf_read *read)
{
    struct qm_attribution *w = opaque;

    if (context != 0)
        hold(w, context);
    qm_join_event(w->join, context, read->sector * SECTOR, read->bytes, read->ns);
}

static void *tend(void *opaque)
{
    struct qm_attribution *w = opaque;
    struct pollfd fds[] = {{.fd = w->stop, .events = POLLIN},
                           {.fd = qm_agent_fd(w->agent), .events = POLLIN}};

    while (fds[0].revents == 0) {
        poll(fds, 2, TEND_MS);
        pthread_mutex_lock(&w->lock);
        qm_agent_tend(w->agent);
        pthread_mutex_unlock(&w->lock);
        /* However many want to register, reads have their turn. */
        if (fds[1].revents)
            poll(fds, 1, QM_REGISTRAR_PAUSE);
    }
    return NULL;
}

static int start(struct qm_attribution *w, const struct qm_attribution_config *config,
                 char *err, size_t len)
{
    const struct qm_join_calls calls = {hold, release, w};
    const struct qm_agent_config agent = {.socket = config->socket,
                                          .devices = &config->watched,
                                          .device_count = 1,
                                          .threads = config->threads,
                                          .sink = {begin, release, w},
                                          .io = io,
                                          .opaque = w};
    sigset_t all, before;
    int error;

    w->join = qm_join_new(&calls);
    w->stop = eventfd(0, EFD_CLOEXEC);
    if (!w->join || w->stop == -1) {
        snprintf(err, len, "out of memory, or of descriptors");
        return ENOMEM;
    }
    error = qm_agent_open(&w->agent, &agent, err, len);
    if (error != 0)
        return error;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&w->thread, NULL, tend, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->has_thread = error == 0;
    if (error != 0)
        snprintf(err, len, "cannot start a thread: %s", strerror(error));
    return error;
}

int qm_attribution_open(struct qm_attribution **whose,
                        const struct qm_attribution_config *config, char *err,
                        size_t len)
{
    struct qm_attribution *w = calloc(1, sizeof *w);
    int error;

    *whose = NULL;
    if (!w) {
        snprintf(err, len, "out of memory");
        return ENOMEM;
    }
    w->device = config->device;
    pthread_mutex_init(&w->lock, NULL);
    error = start(w, config, err, len);
    if (error != 0)
        qm_attribution_close(w);
    else
        *whose = w;
    return error;
}

void qm_attribution_close(struct qm_attribution *w)
{
    if (!w)
        return;
    if (w->has_thread) {
        eventfd_write(w->stop, 1);
        pthread_join(w->thread, NULL);
    }
    qm_agent_close(w->agent);
    qm_join_free(w->join);
    if (w->stop != -1)
        close(w->stop);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* Drains the ring until it has told of the bytes, or there is no hope that it will.
 * The lock is held, and let go of while it waits. */
static void look(struct qm_attribution *w, uint64_t offset, uint32_t bytes,
                 uint64_t arrived)
{
    uint64_t mark = qm_agent_mark(w->agent), nap;
    bool first = true;

    for (;;) {
        struct qm_patience_look now_known = {0};

        qm_agent_drain(w->agent);
        now_known.known = qm_join_knows(w->join, offset, bytes);
        now_known.past = qm_agent_is_past(w->agent, mark);
        now_known.waited = first ? 0 : now() - arrived;
        nap = qm_patience_next(&w->patience, &now_known);
        if (nap == 0)
            break;
        w->again += first;
        first = false;
        pthread_mutex_unlock(&w->lock);
        nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
        pthread_mutex_lock(&w->lock);
    }
}

size_t qm_attribution_read(struct qm_attribution *w, uint64_t offset, uint32_t bytes,
                           struct qm_attribution_part parts[QM_ATTRIBUTION_PARTS])
{
    struct qm_join_piece pieces[QM_ATTRIBUTION_PARTS];
    uint64_t arrived = now();
    size_t count;

    pthread_mutex_lock(&w->lock);
    look(w, offset, bytes, arrived);
    count =
        qm_join_request(w->join, offset, bytes, arrived, pieces, QM_ATTRIBUTION_PARTS);
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < count; i++)
        parts[i] = (struct qm_attribution_part){
            pieces[i].offset, (uint32_t)pieces[i].bytes, tag_of(pieces[i].context)};
    return count;
}

void qm_attribution_get_stats(struct qm_attribution *w,
                              struct qm_attribution_stats *stats)
{
    pthread_mutex_lock(&w->lock);
    qm_agent_get_stats(w->agent, &stats->agent);
    qm_join_get_stats(w->join, &stats->join);
    stats->again = w->again;
    pthread_mutex_unlock(&w->lock);
}
