/* SPDX-License-Identifier: BSD-3-Clause */
/* late-plugin.c - an nbdkit plugin that is to be preloaded into nbdkit, too: the thread
 * of a client's connection does nothing until the filters above have ended.
 *
 * A thread is held if the file that QM_LATE names is there when it is made; of that,
 * FILE.held tells.
 */
#define NBDKIT_API_VERSION 2

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define LOOK_US      1000
#define LOOKS        30000 /* until nobody is waited for any more */
#define LENGTH       4096

struct start {
    void *(*run)(void *);
    void *opaque;
};

static atomic_bool held, released, ended;

static void await(atomic_bool *what)
{
    for (int i = 0; i < LOOKS && !atomic_load(what); i++)
        usleep(LOOK_US);
}

static void *run_late(void *opaque)
{
    struct start start = *(struct start *)opaque;
    void *result;

    free(opaque);
    await(&released);
    result = start.run(start.opaque);
    atomic_store(&ended, true);
    return result;
}

static bool is_to_be_held(void)
{
    const char *file = getenv("QM_LATE");
    char name[LENGTH];
    int fd;

    if (!file || access(file, F_OK) == -1 || atomic_exchange(&held, true))
        return false;
    snprintf(name, sizeof name, "%s.held", file);
    fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd != -1)
        close(fd);
    return true;
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
                                                          const pthread_attr_t *attr,
                                                          void *(*run)(void *),
                                                          void *opaque)
{
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    struct start *start;

    if (!next)
        next = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                        void *))dlsym(RTLD_NEXT, "pthread_create");
    start = is_to_be_held() ? malloc(sizeof *start) : NULL;
    if (!start)
        return next(thread, attr, run, opaque);
    *start = (struct start){run, opaque};
    return next(thread, attr, run_late, start);
}

/* The filters above have ended. */
static void late_cleanup(void)
{
    if (!atomic_load(&held))
        return;
    atomic_store(&released, true);
    await(&ended);
}

static void *late_open(int readonly)
{
    return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t late_get_size(void *handle)
{
    return 1 << 20;
}

static int late_pread(void *handle, void *buf, uint32_t count, uint64_t offset,
                      uint32_t flags)
{
    memset(buf, 0, count);
    return 0;
}

static struct nbdkit_plugin plugin = {
    .name = "late",
    .cleanup = late_cleanup,
    .open = late_open,
    .get_size = late_get_size,
    .pread = late_pread,
};

NBDKIT_REGISTER_PLUGIN(plugin)
