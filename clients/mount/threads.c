/* SPDX-License-Identifier: BSD-3-Clause */
/* threads.c - a context for each thread that reads without having announced one.
 *
 * A hash table by thread id, and a list of the same entries by when they were used
 * last, under one lock, which is held for no longer than a look-up.  A context is begun
 * without the lock: its entry says `beginning` meanwhile, which keeps it in the
 * table, and other threads that want it wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <urcu/list.h>
#include <xxhash.h>
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "clients/mount/requester.h"
#include "clients/mount/threads.h"

struct entry {
    pid_t tid;
    bool beginning;
    time_t used;               /* seconds of a monotonic clock */
    struct qm_tag *tag;        /* NULL while beginning, and of the kernel's threads */
    struct cds_list_head list; /* most recently used first */
    UT_hash_handle hh;
};

struct qm_threads {
    struct qm_device *device;
    pthread_mutex_t lock;
    pthread_cond_t begun;
    struct entry *table;
    struct cds_list_head list;
    unsigned count;
};

static time_t seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec;
}

struct qm_threads *qm_threads_new(struct qm_device *device)
{
    struct qm_threads *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->device = device;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->begun, NULL);
    CDS_INIT_LIST_HEAD(&t->list);
    return t;
}

/* The thread's name; "" if it cannot be had, because it is gone already. */
static void name_of(pid_t tid, char *name, size_t len)
{
    char path[32];
    ssize_t n = -1;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/comm", (int)tid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd != -1) {
        n = read(fd, name, len - 1);
        close(fd);
    }
    name[n > 0 ? n : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
}

static struct qm_tag *begin(struct qm_threads *threads, pid_t tid)
{
    struct qm_tag *tag;
    char name[32];

    name_of(tid, name, sizeof name);
    qm_tag_begin(threads->device, NULL, QMCTX_THREAD, XXH3_64bits(name, strlen(name)),
                 name[0] ? name : NULL, &tag);
    return tag;
}

/* --- under the lock --- */

/* Takes entry out and frees it; its tag is the caller's. */
static struct qm_tag *forget(struct qm_threads *threads, struct entry *entry)
{
    struct qm_tag *tag = entry->tag;

    HASH_DEL(threads->table, entry);
    cds_list_del(&entry->list);
    threads->count--;
    free(entry);
    return tag;
}

/* The entry that was used the longest ago and may go, or NULL. */
static struct entry *oldest(struct qm_threads *threads)
{
    struct entry *entry;

    cds_list_for_each_entry_reverse(entry, &threads->list, list)
    {
        if (!entry->beginning)
            return entry;
    }
    return NULL;
}

static struct entry *add(struct qm_threads *threads, pid_t tid)
{
    struct entry *entry = calloc(1, sizeof *entry);

    if (!entry)
        return NULL;
    entry->tid = tid;
    entry->beginning = true;
    HASH_ADD_INT(threads->table, tid, entry);
    if (!entry->hh.tbl) { /* out of memory */
        free(entry);
        return NULL;
    }
    cds_list_add(&entry->list, &threads->list);
    threads->count++;
    return entry;
}

/* The entry of tid, not beginning, or NULL. */
static struct entry *find(struct qm_threads *threads, pid_t tid)
{
    struct entry *entry;

    for (;;) {
        HASH_FIND_INT(threads->table, &tid, entry);
        if (!entry || !entry->beginning)
            return entry;
        pthread_cond_wait(&threads->begun, &threads->lock);
    }
}

/* --- */

struct qm_tag *qm_threads_tag(struct qm_threads *threads, pid_t tid)
{
    struct qm_tag *tag = NULL, *old = NULL;
    struct entry *entry;
    bool kernel;

    pthread_mutex_lock(&threads->lock);
    entry = find(threads, tid);
    if (entry) {
        cds_list_move(&entry->list, &threads->list);
        entry->used = seconds();
        tag = entry->tag ? qm_tag_get(entry->tag) : NULL;
        pthread_mutex_unlock(&threads->lock);
        return tag;
    }
    if (threads->count >= QM_THREADS_MAX && (entry = oldest(threads)))
        old = forget(threads, entry);
    entry = threads->count < QM_THREADS_MAX ? add(threads, tid) : NULL;
    pthread_mutex_unlock(&threads->lock);
    qm_tag_put(old);
    if (!entry)
        return NULL;

    /* A thread of the kernel, such as a loop device's, reads for many programs: their
     * reads would be one context's. */
    kernel = qm_requester_is_kernel(tid);
    tag = kernel ? NULL : begin(threads, tid);

    pthread_mutex_lock(&threads->lock);
    entry->beginning = false;
    entry->used = seconds();
    if (tag)
        entry->tag = qm_tag_get(tag);
    else if (!kernel)
        forget(threads, entry);
    pthread_cond_broadcast(&threads->begun);
    pthread_mutex_unlock(&threads->lock);
    return tag;
}

void qm_threads_sweep(struct qm_threads *threads)
{
    time_t limit = seconds() - QM_THREADS_IDLE;
    struct entry *entry;
    struct qm_tag *tag;
    bool idle;

    do {
        pthread_mutex_lock(&threads->lock);
        entry = oldest(threads);
        idle = entry && entry->used < limit;
        tag = idle ? forget(threads, entry) : NULL;
        pthread_mutex_unlock(&threads->lock);
        qm_tag_put(tag);
    } while (idle);
}

void qm_threads_free(struct qm_threads *threads)
{
    struct entry *entry;

    if (!threads)
        return;
    while ((entry = oldest(threads)))
        qm_tag_put(forget(threads, entry));
    pthread_cond_destroy(&threads->begun);
    pthread_mutex_destroy(&threads->lock);
    free(threads);
}
