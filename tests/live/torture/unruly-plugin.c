/* SPDX-License-Identifier: BSD-3-Clause */
/* unruly-plugin.c - an nbdkit plugin: a disk at its worst that is still allowed.
 *
 *   size=SIZE          of the device
 *   image=FILE         what it holds; made anew, all zeros, or with
 *   again=1            as it was left
 *   durable=FILE       what would be left of that after a power failure
 *   forget=none|some|all  with again=1: the disk had a volatile cache and lost power
 *                      when the last server ended.  Of the sectors that were written
 *                      and not flushed, none, a random half, or all are as they were
 *                      at the last flush; the others have become durable
 *   delay=MICROSECONDS each request waits this long at most before it is carried out,
 *                      and again before it is answered: so requests overtake each
 *                      other, and most of them wait for nothing
 *   errors=PERMILLE    share of the requests that fail: untouched, half done, or done
 *   linger=MICROSECONDS  one request in 64 waits this long before it is carried out
 *   stall=FILE         requests wait while this file is there
 *   late=FILE          writes wait while this file is there; nothing else does
 *   hold=FILE          writes are carried out, but not answered, while it is there
 *   end=FILE           holds the number of bytes that are left of the device
 *   reads=FILE         a 32-bit number for each page: how often it was read; it goes on
 *                      counting from what is there
 *
 * Both files can be mapped by a test.  Each request is carried out at one moment, as a
 * whole; what was written becomes durable by a FLUSH, or by its FUA flag.  The files
 * are written to by system calls from memory that lies in its pages as the bytes lie in
 * the file's.  A kernel that meets a page of the source that is not mapped stores what
 * comes before it, and if the process was killed meanwhile, nothing more; so a server
 * that is killed leaves no page half written, and so no sector.
 */
#define NBDKIT_API_VERSION 2

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define SECTOR       512
#define PAGE         4096

static int64_t size;
static char *image_path, *durable_path, *stall_path, *late_path, *hold_path, *end_path;
static char *reads_path;
static unsigned delay_us, linger_us, errors;
static int again;
static enum { FORGET_NONE, FORGET_SOME, FORGET_ALL } forget;

/* What is in the two files. */
struct bytes {
    int fd;
    const char *at;
};
static _Atomic uint32_t *reads; /* a page; NULL: nobody wants to know */
static struct bytes image = {.fd = -1}, durable = {.fd = -1};
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* of both, and of dirty */

/* The pages in which they may differ; a byte each. */
static uint8_t *dirty;

static int unruly_config(const char *key, const char *value)
{
    if (strcmp(key, "size") == 0)
        return (size = nbdkit_parse_size(value)) == -1 ? -1 : 0;
    if (strcmp(key, "image") == 0)
        return (image_path = nbdkit_absolute_path(value)) ? 0 : -1;
    if (strcmp(key, "durable") == 0)
        return (durable_path = nbdkit_absolute_path(value)) ? 0 : -1;
    if (strcmp(key, "stall") == 0)
        return (stall_path = nbdkit_absolute_path(value)) ? 0 : -1;
    if (strcmp(key, "late") == 0)
        return (late_path = nbdkit_absolute_path(value)) ? 0 : -1;
    if (strcmp(key, "hold") == 0)
        return (hold_path = nbdkit_absolute_path(value)) ? 0 : -1;
    if (strcmp(key, "end") == 0)
        return (end_path = nbdkit_absolute_path(value)) ? 0 : -1;
    if (strcmp(key, "reads") == 0)
        return (reads_path = nbdkit_absolute_path(value)) ? 0 : -1;
    if (strcmp(key, "forget") == 0) {
        if (strcmp(value, "some") == 0)
            forget = FORGET_SOME;
        else if (strcmp(value, "all") == 0)
            forget = FORGET_ALL;
        else if (strcmp(value, "none") != 0) {
            nbdkit_error("forget must be none, some or all");
            return -1;
        }
        return 0;
    }
    if (strcmp(key, "linger") == 0)
        return nbdkit_parse_unsigned(key, value, &linger_us);
    if (strcmp(key, "delay") == 0)
        return nbdkit_parse_unsigned(key, value, &delay_us);
    if (strcmp(key, "again") == 0)
        return (again = nbdkit_parse_bool(value)) == -1 ? -1 : 0;
    if (strcmp(key, "errors") == 0)
        return nbdkit_parse_unsigned(key, value, &errors);
    nbdkit_error("unknown parameter %s", key);
    return -1;
}

static int map(struct bytes *bytes, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (again ? 0 : O_TRUNC), 0600);
    void *at = MAP_FAILED;

    bytes->fd = fd;
    if (fd != -1 && ftruncate(fd, size) == 0)
        at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        nbdkit_error("%s: %m", path);
        return -1;
    }
    bytes->at = at;
    return 0;
}

static int map_reads(void)
{
    size_t n = ((size_t)size / PAGE + 1) * sizeof reads[0];
    int fd = open(reads_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *at = MAP_FAILED;

    if (fd != -1 && ftruncate(fd, (off_t)n) == 0)
        at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd != -1)
        close(fd);
    if (at == MAP_FAILED) {
        nbdkit_error("%s: %m", reads_path);
        return -1;
    }
    reads = at;
    return 0;
}

/* Stores bytes, or zeros if there are none.  The caller has the lock. */
static void store(const struct bytes *to, const char *from, size_t count, off_t offset)
{
    static char pages[17 * PAGE] __attribute__((aligned(PAGE)));

    while (count > 0) {
        size_t ahead = (size_t)offset % PAGE, room = sizeof pages - ahead;
        size_t part = count < room ? count : room;

        if (from)
            memcpy(pages + ahead, from, part);
        else
            memset(pages + ahead, 0, part);
        /* Once more for what a signal has cut off. */
        for (size_t at = 0; at < part;) {
            ssize_t n = pwrite(to->fd, pages + ahead + at, part - at, offset + at);

            if (n <= 0) {
                nbdkit_error("pwrite: %m");
                abort(); /* the test's disk is full: nothing that it says is of use */
            }
            at += (size_t)n;
        }
        from = from ? from + part : NULL;
        count -= part;
        offset += part;
    }
}

static uint64_t draw(void)
{
    static _Atomic uint64_t state = 1;
    uint64_t x = state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void mark_dirty(uint32_t count, uint64_t offset)
{
    if (count > 0)
        memset(dirty + offset / PAGE, 1,
               (offset + count - 1) / PAGE - offset / PAGE + 1);
}

/* The bytes at an offset that lie in one unit of `unit` bytes, and on the device. */
static size_t part_at(uint64_t offset, size_t unit)
{
    return (uint64_t)size - offset < unit ? (uint64_t)size - offset : unit;
}

static bool differ(uint64_t offset, size_t n)
{
    return memcmp(image.at + offset, durable.at + offset, n) != 0;
}

/* Finds out what the last server left unflushed, and forgets what is to be forgotten.
 * A sector is whole: all of it is kept, or none. */
static void remember(void)
{
    uint64_t unflushed = 0, forgotten = 0, salt;

    if (getentropy(&salt, sizeof salt) == -1)
        salt = 0;
    for (uint64_t page = 0; page < (uint64_t)size; page += PAGE) {
        size_t n = part_at(page, PAGE);

        if (!differ(page, n))
            continue;
        if (forget == FORGET_NONE) {
            mark_dirty(n, page);
            continue;
        }
        for (uint64_t at = page; at < page + n; at += SECTOR) {
            size_t sector = part_at(at, SECTOR);

            if (!differ(at, sector))
                continue;
            unflushed++;
            if (forget == FORGET_ALL || (draw() ^ salt) >> 17 & 1) {
                store(&image, durable.at + at, sector, at);
                forgotten++;
            } else
                store(&durable, image.at + at, sector, at);
        }
    }
    if (forget != FORGET_NONE)
        fprintf(stderr, "unruly: forgot %" PRIu64 " of %" PRIu64 " unflushed sectors\n",
                forgotten, unflushed);
}

static int unruly_get_ready(void)
{
    if (size <= 0 || !image_path || !durable_path) {
        nbdkit_error("size, image and durable are needed");
        return -1;
    }
    if (map(&image, image_path) == -1 || map(&durable, durable_path) == -1)
        return -1;
    if (reads_path && map_reads() == -1)
        return -1;
    dirty = calloc((size_t)size / PAGE + 1, 1);
    if (!dirty) {
        nbdkit_error("calloc: %m");
        return -1;
    }
    if (again)
        remember();
    return 0;
}

static void unruly_unload(void)
{
    free(dirty);
    free(image_path);
    free(durable_path);
    free(stall_path);
    free(late_path);
    free(hold_path);
    free(end_path);
    free(reads_path);
}

/* Where the device ends now. */
static int64_t end_of_device(void)
{
    FILE *f = end_path ? fopen(end_path, "re") : NULL;
    int64_t end = size;

    if (f && fscanf(f, "%" SCNi64, &end) == 1 && end > size)
        end = size;
    if (f)
        fclose(f);
    return end;
}

/* How many of the bytes are on the device. */
static uint32_t within(uint32_t count, uint64_t offset)
{
    uint64_t end = (uint64_t)end_of_device();

    return offset >= end ? 0 : count > end - offset ? (uint32_t)(end - offset) : count;
}

static void *unruly_open(int readonly)
{
    return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t unruly_get_size(void *handle)
{
    return end_of_device();
}

static int unruly_can_multi_conn(void *handle)
{
    return 1;
}

static int unruly_can_fua(void *handle)
{
    return NBDKIT_FUA_NATIVE;
}

static void wait_while(const char *path)
{
    while (path && access(path, F_OK) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void pass_time(void)
{
    uint64_t dice = draw();
    unsigned us = delay_us > 0 ? (dice >> 8) % delay_us : 0;

    wait_while(stall_path);
    if (dice % 16 >= 4) /* mostly not at all, and seldom long */
        return;
    if (dice % 16 > 0)
        us /= 16;
    nanosleep(
        &(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000},
        NULL);
}

enum fate { DONE, UNTOUCHED, HALF, DONE_BUT_FAILED };

static enum fate cast(void)
{
    uint64_t dice = draw();

    if (linger_us > 0 && (dice >> 40) % 64 == 0)
        nanosleep(&(struct timespec){.tv_sec = linger_us / 1000000,
                                     .tv_nsec = linger_us % 1000000 * 1000L},
                  NULL);
    pass_time();
    return dice % 1000 < errors ? 1 + (dice >> 32) % 3 : DONE;
}

static int end(enum fate fate)
{
    pass_time();
    if (fate == DONE)
        return 0;
    nbdkit_set_error(EIO);
    return -1;
}

static int unruly_pread(void *handle, void *buf, uint32_t count, uint64_t offset,
                        uint32_t flags)
{
    enum fate fate = cast();

    if (within(count, offset) < count)
        fate = UNTOUCHED;
    for (uint64_t page = offset / PAGE; reads && page * PAGE < offset + count; page++)
        atomic_fetch_add(&reads[page], 1);
    pthread_rwlock_rdlock(&lock);
    if (fate == DONE)
        memcpy(buf, image.at + offset, count);
    else
        memset(buf, 0xee, count); /* nobody may look at it */
    pthread_rwlock_unlock(&lock);
    return end(fate);
}

/* How much is done of a request that fails half-way: whole sectors. */
static uint32_t half(uint32_t count, uint64_t offset)
{
    uint64_t end = (offset + count / 2) / 512 * 512;

    return end > offset ? end - offset : 0;
}

/* Changes bytes to those of buf, or to zeros. */
static int change(const void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
    enum fate fate = cast();
    uint32_t part = fate == UNTOUCHED ? 0 : fate == HALF ? half(count, offset) : count;
    uint32_t there = within(count, offset);

    wait_while(late_path);
    if (part > there)
        part = there;
    pthread_rwlock_wrlock(&lock);
    store(&image, buf, part, offset);
    mark_dirty(part, offset);
    if (flags & NBDKIT_FLAG_FUA)
        store(&durable, buf, part, offset);
    pthread_rwlock_unlock(&lock);
    wait_while(hold_path);
    if (fate == DONE && there < count) {
        nbdkit_set_error(ENOSPC);
        return -1;
    }
    return end(fate);
}

static int unruly_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset,
                         uint32_t flags)
{
    return change(buf, count, offset, flags);
}

static int unruly_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    return change(NULL, count, offset, flags);
}

static int unruly_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    return change(NULL, count, offset, flags);
}

static int unruly_flush(void *handle, uint32_t flags)
{
    enum fate fate = cast();
    uint64_t upto = fate == UNTOUCHED ? 0 : fate == HALF ? size / 2 : size;

    pthread_rwlock_wrlock(&lock);
    for (uint64_t at = 0; at < upto; at += PAGE)
        if (dirty[at / PAGE]) {
            store(&durable, image.at + at, part_at(at, PAGE), at);
            dirty[at / PAGE] = 0;
        }
    pthread_rwlock_unlock(&lock);
    return end(fate);
}

static struct nbdkit_plugin plugin = {
    .name = "unruly",
    .version = "1",
    .description = "A disk at its worst.",
    .config = unruly_config,
    .get_ready = unruly_get_ready,
    .unload = unruly_unload,
    .open = unruly_open,
    .get_size = unruly_get_size,
    .can_multi_conn = unruly_can_multi_conn,
    .can_fua = unruly_can_fua,
    .pread = unruly_pread,
    .pwrite = unruly_pwrite,
    .zero = unruly_zero,
    .trim = unruly_trim,
    .flush = unruly_flush,
};

/* What nbdkit looks for; its macro does not declare it. */
struct nbdkit_plugin *plugin_init(void);
NBDKIT_REGISTER_PLUGIN(plugin)
