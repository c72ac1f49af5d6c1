/* SPDX-License-Identifier: BSD-3-Clause */
/* volume.c - see volume.h.
 *
 * Which volume it is, by the parameters of the layers below: volume-name.c.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "plugins/volume-state.h"
#include "server/volume-name.h"
#include "server/volume.h"
#include "tier/io.h"

/* Until a change gets another time than the last: a tick of the kernel's clock; on file
 * systems that keep seconds, their two. */
#define TICK_NS  INT64_C(20000000)
#define WHOLE_NS INT64_C(2100000000)

#define OBJECTS_MAX 1024 /* that nbdkit has loaded, at most */

static const char *file; /* a parameter "file", links resolved; "": none */

static bool look(const char *path, struct statx *st)
{
    return statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS | STATX_BTIME,
                 st) == 0;
}

/* Filters that change where bytes lie, when they come or how they are asked for, but
 * keep none. */
static bool keeps_nothing(const char *filter)
{
    static const char *const names[] = {
        "blocksize",     "blocksize-policy",
        "cacheextents",  "checkwrite",
        "delay",         "device",
        "error",         "exitlast",
        "exitwhen",      "exportname",
        "fua",           "ip",
        "limit",         "log",
        "multi-conn",    "nocache",
        "noextents",     "nofilter",
        "noparallel",    "nozero",
        "offset",        "partition",
        "pause",         "quickmine",
        "rate",          "retry",
        "retry-request", "stats",
        "tls-fallback",  "truncate",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(filter, names[i]) == 0)
            return true;
    return false;
}

/* What nbdkit has loaded. */
struct layers {
    bool changing;                   /* a filter may keep data of its own */
    bool file;                       /* the plugin is nbdkit's for files */
    qm_volume_state_function *state; /* the plugin's, or NULL */
};

/* Whether path is that of nbdkit-NAME-KIND.so, with NAME into name. */
static bool is_called(const char *path, const char *kind, char name[64])
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t len = strlen(base), end = strlen(kind);

    if (strncmp(base, "nbdkit-", 7) != 0 || len < 7 + end || len - 7 - end > 63 ||
        strcmp(base + len - end, kind) != 0)
        return false;
    snprintf(name, 64, "%.*s", (int)(len - 7 - end), base + 7);
    return true;
}

static void look_at_object(struct layers *layers, const char *path)
{
    void *object = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
    char name[64] = "";

    if (!object)
        return;
    if (dlsym(object, "filter_init"))
        layers->changing = layers->changing || !is_called(path, "-filter.so", name) ||
                           !keeps_nothing(name);
    if (dlsym(object, "plugin_init")) {
        layers->file = is_called(path, "-plugin.so", name) && strcmp(name, "file") == 0;
        *(void **)&layers->state = dlsym(object, QM_VOLUME_STATE_SYMBOL);
    }
    dlclose(object);
}

struct objects {
    char *paths[OBJECTS_MAX];
    size_t n;
    bool all;
};

/* With the linker's lock, so nothing else. */
static int collect(struct dl_phdr_info *info, size_t size, void *opaque)
{
    struct objects *objects = opaque;

    if (!info->dlpi_name || info->dlpi_name[0] == '\0')
        return 0;
    objects->all = objects->n < OBJECTS_MAX &&
                   (objects->paths[objects->n] = strdup(info->dlpi_name));
    objects->n += objects->all;
    return !objects->all;
}

bool qms_volume_has_layer(const char *kind, const char *name)
{
    struct objects objects = {.all = true};
    char called[64];
    bool found = false;

    dl_iterate_phdr(collect, &objects);
    for (size_t i = 0; i < objects.n; i++) {
        found = found || (is_called(objects.paths[i], kind, called) &&
                          strcmp(called, name) == 0);
        free(objects.paths[i]);
    }
    return found;
}

static struct layers find_layers(void)
{
    struct layers layers = {0};
    struct objects objects = {.all = true};

    file = qms_volume_file();
    dl_iterate_phdr(collect, &objects);
    for (size_t i = 0; i < objects.n; i++) {
        look_at_object(&layers, objects.paths[i]);
        free(objects.paths[i]);
    }
    layers.changing = layers.changing || !objects.all;
    return layers;
}

/* File systems on a disk of this machine, of which the kernel dates each change.  Not
 * those whose change time is what a server says or a program can set (FUSE, FAT, SMB,
 * 9p), nor NFS, whose clock is another machine's; nor tmpfs, where writes to a mapping
 * leave no trace; nor overlayfs, which has the times of another file system. */
static bool dates_changes(const char *path)
{
    static const uint32_t good[] = {
        0x0000ef53, /* ext2, ext3, ext4 */
        0x58465342, /* xfs */
        0x9123683e, /* btrfs */
        0xf2f52010, /* f2fs */
        0x2fc12fc1, /* zfs */
    };
    struct statfs fs;

    if (statfs(path, &fs) == -1)
        return false;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if ((uint32_t)fs.f_type == good[i])
            return true;
    return false;
}

/* With lazytime, a file's times may be on the disk a day after its data.  Whether that
 * can be ruled out. */
static bool keeps_times(const struct statx *st)
{
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    char *line = NULL, device[32];
    size_t size = 0;
    bool found = false, lazy = false;

    if (!mounts)
        return false;
    snprintf(device, sizeof device, "%u:%u", st->stx_dev_major, st->stx_dev_minor);
    while (getline(&line, &size, mounts) > 0) {
        char has[32];

        if (sscanf(line, "%*s %*s %31s", has) != 1 || strcmp(has, device) != 0)
            continue;
        found = true;
        lazy = lazy || strstr(line, "lazytime");
    }
    free(line);
    fclose(mounts);
    return found && !lazy;
}

/* settled: only if every later change will give the file another time. */
static bool file_state(char text[QM_TIER_STATE], bool settled)
{
    struct timespec now;
    struct statx st;
    int64_t age;
    int n;

    /* The clock that the kernel sets change times by: it may stand still for longer
     * than a tick, while a virtual machine's first CPU does, and others run. */
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (!look(file, &st) || !S_ISREG(st.stx_mode))
        return false;
    age = (now.tv_sec - st.stx_ctime.tv_sec) * INT64_C(1000000000) + now.tv_nsec -
          st.stx_ctime.tv_nsec;
    if (settled && age < (st.stx_ctime.tv_nsec == 0 ? WHOLE_NS : TICK_NS))
        return false;
    n = snprintf(text, QM_TIER_STATE, "file %" PRIu64 " %" PRIu64 " %" PRIi64 ".%09u",
                 (uint64_t)st.stx_ino, (uint64_t)st.stx_size,
                 (int64_t)st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec);
    if (!keeps_times(&st)) {
        char boot[40] = "";

        qm_tier_boot_id(boot);
        if (boot[0] == '\0')
            return false;
        snprintf(text + n, QM_TIER_STATE - (size_t)n, " %s", boot);
    }
    return true;
}

bool qms_volume_sync(void)
{
    int fd, r;

    file = qms_volume_file();
    if (file[0] == '\0')
        return true;
    fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd == -1)
        return false;
    r = fdatasync(fd);
    close(fd);
    return r == 0;
}

bool qms_volume_observe(void *opaque, char text[QM_TIER_STATE])
{
    return file_state(text, true);
}

void qms_volume_state(char before[QM_TIER_STATE], char known[QM_TIER_STATE],
                      bool *observed)
{
    struct layers layers = find_layers();

    before[0] = known[0] = '\0';
    *observed = false;
    if (layers.changing)
        return;
    if (layers.state) {
        if (layers.state(before, known, QM_TIER_STATE) != 0)
            before[0] = known[0] = '\0';
        return;
    }
    if (!layers.file || file[0] == '\0' || !dates_changes(file))
        return;
    if (!file_state(before, false))
        before[0] = '\0';
    *observed = qms_volume_sync();
    if (!*observed || !file_state(known, true))
        known[0] = '\0';
}
