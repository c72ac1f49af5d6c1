/* SPDX-License-Identifier: BSD-3-Clause */
/* extents.c - quickmine extents: tells a server where files lie, as their file system
 * says (FIEMAP). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cli/cli.h"
#include "clients/libqmctx/qmctx.h"

enum {
    PRINT = 'p',
    AT_ONCE = 256,  /* that FIEMAP is asked for */
    MOST = 1000000, /* of a file */
    SECTOR = 512,
};

/* Where these lie on the device is not known, or it is not what is read of them. */
#define NOT_THERE                                                                      \
    (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_ENCODED |          \
     FIEMAP_EXTENT_DATA_ENCRYPTED | FIEMAP_EXTENT_NOT_ALIGNED |                        \
     FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_UNWRITTEN)

struct arguments {
    bool print;
    const char *uri;
    char **files;
    unsigned count;
};

struct list {
    struct qmctx_extent *items;
    size_t n, room;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case PRINT:
        a->print = true;
        return 0;
    case ARGP_KEY_ARGS:
        a->files = state->argv + state->next;
        a->count = (unsigned)(state->argc - state->next);
        return 0;
    case ARGP_KEY_END:
        if (!a->print && a->count > 0) {
            a->uri = *a->files++;
            a->count--;
        }
        if (!a->print && !a->uri)
            argp_error(state, "which server? Give its NBD URI");
        if (a->count == 0)
            argp_error(state, "where which files lie? Give their names");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"print", PRINT, NULL, 0, "print the extents, and tell no server", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "NBD-URI FILE...\n--print FILE...",
    .doc = "Tell a server where files lie on its device, so that it reads ahead of "
           "those in fragments.\vSee quickmine-extents(1).",
};

/* Adds an extent; one that follows the last on the device is a part of it.  False:
 * memory is out, or there are too many. */
static bool add(struct list *list, uint64_t offset, uint64_t length)
{
    struct qmctx_extent *last = list->n > 0 ? &list->items[list->n - 1] : NULL;

    if (last && last->offset + last->length == offset) {
        last->length += length;
        return true;
    }
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : AT_ONCE;
        struct qmctx_extent *items = reallocarray(list->items, room, sizeof *items);

        if (!items || list->n >= MOST)
            return false;
        list->items = items;
        list->room = room;
    }
    list->items[list->n++] = (struct qmctx_extent){offset, length};
    return true;
}

/* Where the file system's device begins on a whole disk, in bytes: 0 if it is one. */
static uint64_t start_of(dev_t device)
{
    unsigned long long sectors = 0;
    char path[64];
    FILE *f;

    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/start", major(device),
             minor(device));
    f = fopen(path, "re");
    if (f && fscanf(f, "%llu", &sectors) != 1)
        sectors = 0;
    if (f)
        fclose(f);
    return sectors * SECTOR;
}

/* Asks for the extents of a file from *at on.  Returns whether that was the last of
 * them, or -1 with errno. */
static int ask(int fd, struct fiemap *map, uint64_t *at, uint64_t start,
               struct list *list)
{
    bool last = true;

    memset(map, 0, sizeof *map);
    map->fm_start = *at;
    map->fm_length = FIEMAP_MAX_OFFSET - *at;
    map->fm_extent_count = AT_ONCE;
    if (ioctl(fd, FS_IOC_FIEMAP, map) != 0)
        return -1;
    for (unsigned i = 0; i < map->fm_mapped_extents; i++) {
        const struct fiemap_extent *e = &map->fm_extents[i];

        last = e->fe_flags & FIEMAP_EXTENT_LAST;
        *at = e->fe_logical + e->fe_length;
        if (e->fe_flags & NOT_THERE || e->fe_length == 0)
            continue;
        if (!add(list, start + e->fe_physical, e->fe_length)) {
            errno = list->n >= MOST ? E2BIG : ENOMEM;
            return -1;
        }
    }
    return last || *at <= map->fm_start; /* it must get on */
}

/* Returns an exit status; prints why it failed. */
static int extents_of(const char *file, struct list *list)
{
    struct fiemap *map;
    struct stat st = {.st_mode = 0};
    uint64_t at = 0;
    int fd, error, r = -1;

    fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd == -1)
        return cli_fail("%s: %s", file, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || major(st.st_dev) == 0) {
        close(fd);
        return cli_fail(S_ISREG(st.st_mode)
                            ? "%s: its file system does not lie on one block device"
                            : "%s: is not a regular file",
                        file);
    }
    map = calloc(1, sizeof *map + AT_ONCE * sizeof map->fm_extents[0]);
    if (map)
        do
            r = ask(fd, map, &at, start_of(st.st_dev), list);
        while (r == 0);
    error = errno;
    free(map);
    close(fd);
    if (r == 1)
        return CLI_OK;
    if (error == EOPNOTSUPP || error == ENOTTY)
        return cli_fail("%s: its file system does not say where files lie (FIEMAP)",
                        file);
    if (error == E2BIG)
        return cli_fail("%s: has more than %d extents", file, (int)MOST);
    return cli_fail("%s: %s", file, strerror(error));
}

static void print(const struct list *list)
{
    for (size_t i = 0; i < list->n; i++)
        printf("%" PRIu64 " %" PRIu64 "\n", list->items[i].offset,
               list->items[i].length);
    printf("\n");
}

/* Returns an exit status. */
static int tell(struct qmctx *ctx, const char *file, const struct list *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].offset + list->items[i].length > qmctx_size(ctx))
            return cli_fail("%s: lies beyond the end of the server's device; is it on "
                            "another one?",
                            file);
    if (qmctx_tell_extents(ctx, list->items, list->n) == -1)
        return cli_fail("%s: %s", file, qmctx_error());
    printf("%s: %zu extents\n", file, list->n);
    return CLI_OK;
}

int qm_cmd_extents(int argc, char **argv)
{
    struct arguments a = {.print = false};
    struct qmctx *ctx = NULL;
    int status = CLI_OK;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.uri && qmctx_connect(a.uri, 1, &ctx) == -1)
        return cli_fail("%s: %s", a.uri, qmctx_error());
    for (unsigned i = 0; i < a.count; i++) {
        struct list list = {.n = 0};
        int r = extents_of(a.files[i], &list);

        if (r == CLI_OK && ctx)
            r = tell(ctx, a.files[i], &list);
        else if (r == CLI_OK)
            print(&list);
        free(list.items);
        status = r != CLI_OK ? r : status;
    }
    qmctx_close(ctx);
    return cli_end_output(status);
}
