/* SPDX-License-Identifier: BSD-3-Clause */
/* family.c - which of the processes that fork() from each other may retain writes. */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clients/preload/family.h"
#include "clients/preload/next.h"

enum { AGAIN_NS = 200000000 }; /* after which a failed flush is tried again */

struct family {
    _Atomic uint32_t large; /* a futex; 1 from the first child's connecting on */
    pthread_mutex_t alone;  /* robust; held while a process retains */
};

struct family *qm_families_new(unsigned count)
{
    struct family *families =
        NEXT(mmap)(NULL, count * sizeof *families, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attr;

    if (families == MAP_FAILED)
        return NULL;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (unsigned i = 0; i < count; i++)
        pthread_mutex_init(&families[i].alone, &attr);
    pthread_mutexattr_destroy(&attr);
    return families;
}

struct family *qm_family_of(struct family *families, unsigned i)
{
    return &families[i];
}

bool qm_family_is_large(struct family *family)
{
    return atomic_load(&family->large) != 0;
}

/* Between processes, so not FUTEX_PRIVATE_FLAG. */
static void await_large(struct family *family)
{
    while (!qm_family_is_large(family))
        syscall(SYS_futex, &family->large, FUTEX_WAIT, 0, NULL, NULL, 0);
}

/* What qm_family_watch() leaves to its thread. */
struct watch {
    struct family *family;
    struct qm_device *device;
    sem_t begun; /* the caller may go on */
};

/* The lock may be one that a process has died with. */
static void recover(struct family *family, int err)
{
    if (err == EOWNERDEAD)
        pthread_mutex_consistent(&family->alone);
}

static void *watch(void *opaque)
{
    struct watch *w = opaque;
    struct family *family = w->family;
    struct qm_device *device = w->device;
    const struct timespec nap = {.tv_nsec = AGAIN_NS};

    recover(family, pthread_mutex_lock(&family->alone));
    /* A child that connects after this look finds the lock held, one that came before
     * has set the flag. */
    if (!qm_family_is_large(family)) {
        sem_post(&w->begun);
        w = NULL;
        await_large(family);
    }
    while (qm_device_stop_retaining(device) != 0)
        nanosleep(&nap, NULL);
    if (w)
        sem_post(&w->begun);
    pthread_mutex_unlock(&family->alone);
    return NULL;
}

int qm_family_watch(struct family *family, struct qm_device *device)
{
    struct watch w = {.family = family, .device = device};
    sigset_t all, before;
    pthread_t thread;
    int err;

    sem_init(&w.begun, 0, 0);
    /* Signals are for the program. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&thread, NULL, watch, &w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err)
        return qm_device_stop_retaining(device);
    pthread_detach(thread);
    while (sem_wait(&w.begun) == -1)
        ;
    sem_destroy(&w.begun);
    return 0;
}

int qm_family_join(struct family *family, uint32_t wait)
{
    struct timespec until;
    int err;

    if (!atomic_exchange(&family->large, 1))
        syscall(SYS_futex, &family->large, FUTEX_WAKE, 1, NULL, NULL, 0);
    if (wait == QM_DEVICE_FOREVER) {
        err = pthread_mutex_lock(&family->alone);
    } else {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += wait;
        err = pthread_mutex_clocklock(&family->alone, CLOCK_MONOTONIC, &until);
    }
    if (err && err != EOWNERDEAD)
        return EIO;
    recover(family, err);
    pthread_mutex_unlock(&family->alone);
    return 0;
}
