/* SPDX-License-Identifier: BSD-3-Clause */
/* tier.c - see tier.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/server.h"
#include "server/tier.h"
#include "server/volume.h"
#include "tier/format.h"
#include "tier/tier.h"

#define LOOK    (128 << 10) /* bytes in which a tier has its first mark */
#define READERS 4           /* threads for requests of several blocks */

/* At the server's end, memory is handed over for so long. */
#define FLUSH_NS (UINT64_C(5) * 1000000000)

static void warn(void *opaque, const char *message)
{
    const struct qms_server *s = opaque;

    qms_log(QMS_WARNING, "tier=%s: %s", s->config.tier, message);
}

/* volume is where its name is kept. */
static struct qm_tier_config configure(const struct qms_config *c, uint64_t size,
                                       char volume[32])
{
    struct qm_tier_config config;

    qm_tier_config_init(&config);
    qms_volume_name(volume);
    config.identity.volume = c->tier_volume ? c->tier_volume : volume;
    config.identity.size = size;
    config.identity.block_size = c->block_size;
    config.path = c->tier;
    config.witness = c->tier_witness;
    config.size = c->tier_size;
    config.admit = c->tier_admit;
    config.write_rate = c->tier_write_rate;
    config.verify = c->tier_verify;
    config.threads = READERS;
    config.boot_id = getenv("QUICKMINE_TEST_BOOT_ID"); /* a crash of the machine */
    return config;
}

/* Whether another program has a lock on the file, as a server has on its tier. */
static bool is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Whether a file begins with something, and that is no tier.  qm_tier_open() judges;
 * this is to tell while a person still watches. */
static bool is_foreign(int fd)
{
    static const char zeros[QM_TIER_PAGE];
    char page[QM_TIER_PAGE];
    bool any = false;

    for (off_t at = 0; at < LOOK; at += sizeof page) {
        ssize_t n = pread(fd, page, sizeof page, at);
        uint64_t magic;

        if (n <= 0)
            break;
        memcpy(&magic, page, sizeof magic);
        if (n == sizeof page && magic == QM_TIER_MAGIC)
            return false;
        any = any || memcmp(page, zeros, (size_t)n) != 0;
    }
    return any;
}

/* What is there already must be a file that can be written to.  Returns 0 or an errno
 * value; *device: it is a block device. */
static int try_file(const char *path, bool *device)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    int error = 0;

    if (fd == -1)
        return errno;
    if (fstat(fd, &st) == -1)
        error = errno;
    else if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        error = EINVAL;
    else if (is_locked(fd))
        error = EBUSY;
    else if (is_foreign(fd))
        error = EEXIST;
    *device = error == 0 && S_ISBLK(st.st_mode);
    close(fd);
    return error;
}

static const char *explain(int error)
{
    switch (error) {
    case EINVAL:
        return "a tier is a regular file or a block device";
    case EBUSY:
        return "another server uses it";
    case EEXIST:
        return "it holds something else than a tier; give another path, or if that is "
               "not needed, overwrite its first 128 KiB with zeros";
    default:
        return strerror(error);
    }
}

/* Whether a file of that name can be made. */
static int try_directory(const char *path)
{
    char *copy = strdup(path), *slash = copy ? strrchr(copy, '/') : NULL;
    int error = 0;

    if (!copy)
        return ENOMEM;
    if (slash)
        slash[slash == copy] = '\0';
    if (access(slash ? copy : ".", W_OK | X_OK) == -1)
        error = errno;
    free(copy);
    return error;
}

int qms_tier_try(const struct qms_config *c)
{
    char volume[32], err[256];
    struct qm_tier_config config;
    bool device = false;
    int error;

    if (!c->tier)
        return 0;
    error = try_file(c->tier, &device);
    if (error == ENOENT)
        error = try_directory(c->tier);
    if (error != 0) {
        nbdkit_error("tier=%s: %s", c->tier, explain(error));
        return -1;
    }
    if (c->tier_size == 0 && !device) {
        nbdkit_error("tier=%s: give tier-size=SIZE, too: only that of a block device "
                     "is known",
                     c->tier);
        return -1;
    }
    /* The volume's size is not known yet. */
    config = configure(c, c->block_size, volume);
    if (qm_tier_check(&config, err, sizeof err) != 0) {
        nbdkit_error("tier-size=%" PRIu64 ", block-size=%" PRIu64 ": %s", c->tier_size,
                     c->block_size, err);
        return -1;
    }
    return 0;
}

unsigned qms_tier_threads(const struct qms_config *c)
{
    return c->tier ? READERS + 2 : 0;
}

/* What the tier has from before, and why it is not believed. */
static void tell_recovered(const struct qms_server *s, const char *before)
{
    const char *why = "nothing says whether others have changed the volume";
    struct qm_tier_stats stats;

    qm_tier_get_stats(s->tier, &stats);
    if (stats.recovered == 0)
        return;
    if (s->config.tier_verify == QM_TIER_VERIFY_ALWAYS)
        why = "tier-verify=always";
    else if (before[0] != '\0')
        why =
            "the volume may have been changed without the tier, which was not closed, "
            "or not used last";
    if (stats.unverified == 0)
        qms_log(QMS_NOTE, "tier=%s: %" PRIu64 " blocks are there from before",
                s->config.tier, stats.recovered);
    else
        qms_log(
            QMS_NOTE,
            "tier=%s: %" PRIu64 " blocks are there from before; %" PRIu64
            " of them are compared with the volume when they are first read, since %s",
            s->config.tier, stats.recovered, stats.unverified, why);
}

int qms_tier_open(struct qms_server *s)
{
    char volume[32], before[QM_TIER_STATE], known[QM_TIER_STATE], err[512] = "";
    struct qm_tier_config config;
    bool observed;
    int error;

    if (!s->config.tier)
        return 0;
    config = configure(&s->config, s->size, volume);
    config.warn = warn;
    config.opaque = s;
    qms_volume_state(before, known, &observed);
    config.before = before;
    config.known = known;
    config.observe = observed ? qms_volume_observe : NULL;
    error = qm_tier_open(&config, &s->tier, err, sizeof err);
    if (error != 0) {
        s->tier = NULL;
        /* What is not ours, or in use, is not to be removed. */
        nbdkit_error("tier=%s: %s%s", s->config.tier, err,
                     error == EINVAL || error == EBUSY
                         ? ""
                         : "; to go on without it, start without tier=, and remove the "
                           "file before it is used again");
        return -1;
    }
    tell_recovered(s, before);
    return 0;
}

/* With a lock of the cache's. */
static uint64_t leaving(void *opaque, uint64_t block)
{
    struct qms_server *s = opaque;

    return qm_tier_ticket(s->tier);
}

static void evicted(void *opaque, uint64_t block, const void *data, uint64_t ticket)
{
    struct qms_server *s = opaque;
    const struct qm_tier_insert insert = {.block = block,
                                          .data = data,
                                          .ticket = ticket,
                                          .frequency = QM_TIER_FREQUENCY_UNKNOWN};
    const bool at_end = s->tier_until != 0;

    /* Where connections need not see each other's writes, what a prefetch has read may
     * be old. */
    if (atomic_load_explicit(&s->uncached, memory_order_relaxed) ||
        (at_end && qms_now() > s->tier_until))
        return;
    while (qm_tier_insert(s->tier, &insert) == EAGAIN && at_end)
        qm_tier_drain(s->tier);
}

void qms_tier_below(struct qms_server *s, struct qm_cache_config *cache)
{
    if (!s->config.tier)
        return;
    cache->leaving = leaving;
    cache->evicted = evicted;
}

void qms_tier_close(struct qms_server *s)
{
    int error;

    if (!s->tier)
        return;
    if (s->cache) {
        s->tier_until = qms_now() + FLUSH_NS;
        qm_cache_flush(s->cache);
        s->tier_until = 0;
    }
    error = qm_tier_close(s->tier, QM_TIER_KEEP);
    s->tier = NULL;
    if (error != 0)
        qms_log(QMS_WARNING, "tier=%s: %s; some blocks are not kept", s->config.tier,
                strerror(error));
}
