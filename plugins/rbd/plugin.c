/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin.c - nbdkit-rbd-plugin: serves an image of a Ceph cluster.
 *
 * All connections share one opened image (volume.h), so what one has written the others
 * read, and a flush of one is a flush of all.
 *
 * Ceph's library has threads, so the image is opened when nbdkit has forked for the
 * last time.  By then nobody reads what it says on standard error, so before that a
 * child process tries the same, and reports what is wrong.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>
#include <rbd/librbd.h>

#include "plugins/rbd/clients.h"
#include "plugins/rbd/config.h"
#include "plugins/rbd/volume.h"
#include "plugins/volume-state.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

/* Like qemu's driver for RBD: requests of whole pages are not made slower by Ceph. */
#define BLOCK_PREFERRED 4096
#define BLOCK_MAX       (32U << 20)

/* After the lock is lost: so long answers are sent to clients that take them, and so
 * often it is said that the server has not ended. */
#define ANSWERS_SECONDS 3
#define STILL_SECONDS   30

static struct qmr_config config;
static struct qmr_volume *volume;

static void say(const char *text)
{
    nbdkit_error("%s/%s: %s", config.pool, config.image, text);
}

/* The server ends when all clients have left, which are told so. */
static void lost(unsigned seconds)
{
    char text[200];

    nbdkit_shutdown();
    qmr_clients_shut(seconds < ANSWERS_SECONDS ? SHUT_RD : SHUT_RDWR);
    if (seconds > 0 && seconds % STILL_SECONDS == 0) {
        snprintf(text, sizeof text,
                 "the lock was lost %u s ago, and the server has not ended: requests "
                 "still wait for Ceph.  It may be killed (SIGKILL), since it cannot "
                 "write any more",
                 seconds);
        say(text);
    }
}

static const struct qmr_events events = {.say = say, .lost = lost};

static void rbd_unload(void)
{
    qmr_config_free(&config);
}

static int rbd_config_complete(void)
{
    return qmr_config_complete(&config);
}

static void rbd_dump_plugin(void)
{
    int major, minor, extra;

    rbd_version(&major, &minor, &extra);
    printf("librbd_version=%d.%d.%d\n", major, minor, extra);
}

/* Returns 0 if the child has found nothing wrong. */
static int reap(pid_t child, int from)
{
    char err[1000];
    size_t n = 0;
    ssize_t r;
    int status;

    while ((r = read(from, err + n, sizeof err - 1 - n)) > 0 ||
           (r == -1 && errno == EINTR))
        n += r > 0 ? (size_t)r : 0;
    err[n] = '\0';
    while (waitpid(child, &status, 0) == -1)
        if (errno != EINTR) {
            nbdkit_error("waitpid: %m");
            return -1;
        }
    if (n > 0)
        nbdkit_error("%s/%s: %s", config.pool, config.image, err);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        nbdkit_error("%s/%s: Ceph's client library has crashed", config.pool,
                     config.image);
    return n == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static int rbd_get_ready(void)
{
    char err[1000];
    int fds[2];
    pid_t child;

    if (pipe(fds) == -1) {
        nbdkit_error("pipe: %m");
        return -1;
    }
    child = fork();
    if (child == -1) {
        nbdkit_error("fork: %m");
        close(fds[0]);
        close(fds[1]);
        return -1;
    }
    if (child == 0) {
        size_t n;

        close(fds[0]);
        /* Ceph's library prints what it thinks of errors. */
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(2);
        if (qmr_volume_probe(&config, err, sizeof err) == 0)
            _exit(0);
        n = strlen(err);
        _exit(write(fds[1], err, n) == (ssize_t)n ? 1 : 2);
    }
    close(fds[1]);
    child = reap(child, fds[0]);
    close(fds[0]);
    return child;
}

static int rbd_after_fork(void)
{
    char err[1000];

    if (qmr_volume_open(&config, &events, &volume, err, sizeof err) == 0)
        return 0;
    nbdkit_error("%s/%s: %s", config.pool, config.image, err);
    return -1;
}

static void rbd_cleanup(void)
{
    if (volume)
        qmr_volume_close(volume);
    volume = NULL;
}

/* Found by the filter in this process, by its name. */
__attribute__((visibility("default"))) qm_volume_state_function quickmine_volume_state;

int quickmine_volume_state(char *before, char *known, size_t len)
{
    return volume ? qmr_volume_state(volume, before, known, len) : -1;
}

/* A cache above answers reads without asking Ceph.  So nobody is let in before Ceph has
 * said that this server is still the owner: one that was frozen, and whose address
 * clients still find, would serve old data until it looks. */
static void *rbd_open_connection(int readonly)
{
    int error = qmr_volume_verify(volume);

    if (error == 0)
        return NBDKIT_HANDLE_NOT_NEEDED;
    nbdkit_error("%s/%s: a client is refused: %s", config.pool, config.image,
                 error == ESHUTDOWN ? "another server owns the image"
                                    : strerror(error));
    nbdkit_set_error(error);
    return NULL;
}

static int64_t rbd_size(void *handle)
{
    return (int64_t)qmr_volume_size(volume);
}

static int rbd_block_size(void *handle, uint32_t *minimum, uint32_t *preferred,
                          uint32_t *maximum)
{
    *minimum = 1;
    *preferred = BLOCK_PREFERRED;
    *maximum = BLOCK_MAX;
    return 0;
}

static int rbd_can_write(void *handle)
{
    return !config.read_only;
}

static int rbd_yes(void *handle)
{
    return 1;
}

static int rbd_can_fua(void *handle)
{
    return NBDKIT_FUA_NATIVE;
}

static int rbd_can_fast_zero(void *handle)
{
    return 0;
}

static int done(int error)
{
    if (error == 0)
        return 0;
    nbdkit_set_error(error);
    return -1;
}

static int fail(const char *what, uint32_t count, uint64_t offset, int error)
{
    if (error != 0 && error != ESHUTDOWN)
        nbdkit_error("%s/%s: %s of %u bytes at %llu: %s", config.pool, config.image,
                     what, count, (unsigned long long)offset, strerror(error));
    return done(error);
}

/* What has been written is in the cluster before a request ends that has FUA. */
static int then_flush(uint32_t flags)
{
    return flags & NBDKIT_FLAG_FUA ? done(qmr_volume_flush(volume)) : 0;
}

static int rbd_pread(void *handle, void *data, uint32_t count, uint64_t offset,
                     uint32_t flags)
{
    return fail("read", count, offset, qmr_volume_read(volume, data, count, offset));
}

static int rbd_pwrite(void *handle, const void *data, uint32_t count, uint64_t offset,
                      uint32_t flags)
{
    if (fail("write", count, offset, qmr_volume_write(volume, data, count, offset)) ==
        -1)
        return -1;
    return then_flush(flags);
}

static int rbd_flush_all(void *handle, uint32_t flags)
{
    return fail("flush", 0, 0, qmr_volume_flush(volume));
}

static int rbd_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    if (fail("trim", count, offset, qmr_volume_trim(volume, count, offset)) == -1)
        return -1;
    return then_flush(flags);
}

static int rbd_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    if (fail("zeroing", count, offset,
             qmr_volume_zero(volume, count, offset, !(flags & NBDKIT_FLAG_MAY_TRIM))) ==
        -1)
        return -1;
    return then_flush(flags);
}

struct extents {
    struct nbdkit_extents *extents;
    bool one; /* the first is enough */
    int result;
};

static int add_extent(void *opaque, uint64_t offset, uint64_t count, bool hole)
{
    struct extents *e = opaque;

    e->result = nbdkit_add_extent(e->extents, offset, count,
                                  hole ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO : 0);
    return e->result == -1 || e->one;
}

static int rbd_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags,
                       struct nbdkit_extents *extents)
{
    struct extents e = {.extents = extents, .one = flags & NBDKIT_FLAG_REQ_ONE};
    int error = qmr_volume_extents(volume, count, offset, add_extent, &e);

    if (fail("request for extents", count, offset, error) == -1)
        return -1;
    return e.result;
}

static struct nbdkit_plugin plugin = {
    .name = "rbd",
    .longname = "Ceph RBD plugin",
    .version = QM_VERSION,
    .unload = rbd_unload,
    .config = qmr_config_set,
    .config_complete = rbd_config_complete,
    .config_help = qmr_config_help,
    .magic_config_key = "rbd",
    .dump_plugin = rbd_dump_plugin,
    .get_ready = rbd_get_ready,
    .after_fork = rbd_after_fork,
    .cleanup = rbd_cleanup,
    .open = rbd_open_connection,
    .get_size = rbd_size,
    .block_size = rbd_block_size,
    .can_write = rbd_can_write,
    .can_flush = rbd_yes,
    .can_trim = rbd_can_write,
    .can_zero = rbd_can_write,
    .can_fast_zero = rbd_can_fast_zero,
    .can_extents = rbd_yes,
    .can_fua = rbd_can_fua,
    .can_multi_conn = rbd_yes,
    .pread = rbd_pread,
    .pwrite = rbd_pwrite,
    .flush = rbd_flush_all,
    .trim = rbd_trim,
    .zero = rbd_zero,
    .extents = rbd_extents,
    .errno_is_preserved = 1,
};

NBDKIT_REGISTER_PLUGIN(plugin)
