/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-extents.c - see sim-extents.h. */
#include "cli/sim-extents.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { MOST = 10000000 };

static bool add(struct sim_extents *e, struct qm_bytes item)
{
    struct qm_bytes *items = e->items;

    if (e->n >= MOST)
        return false;
    if ((e->n & (e->n - 1)) == 0) /* full: a power of two */
        items = reallocarray(items, e->n ? 2 * e->n : 1, sizeof *items);
    if (!items)
        return false;
    e->items = items;
    items[e->n++] = item;
    return true;
}

/* Whether a line is an extent, or, with length 0, empty. */
static bool parse(const char *line, struct qm_bytes *item)
{
    int end = -1;

    *item = (struct qm_bytes){0, 0};
    if (line[0] == '\n' || line[0] == '\0')
        return true;
    if (line[0] < '0' || line[0] > '9' ||
        sscanf(line, "%" SCNu64 " %" SCNu64 "%n", &item->offset, &item->length, &end) !=
            2)
        return false;
    return (line[end] == '\n' || line[end] == '\0') && item->length > 0 &&
           item->offset <= INT64_MAX && item->length <= INT64_MAX - item->offset;
}

int sim_extents_read(const char *path, struct sim_extents *e)
{
    unsigned long number = 0;
    int status = CLI_OK;
    FILE *f = fopen(path, "re");
    struct qm_bytes item;
    char *line = NULL;
    size_t room = 0;

    if (!f)
        return cli_fail("%s: %s", path, strerror(errno));
    while (status == CLI_OK && getline(&line, &room, f) != -1) {
        number++;
        if (!parse(line, &item))
            status = cli_fail("%s: line %lu is not an offset and a length in bytes",
                              path, number);
        else if (!add(e, item))
            status =
                cli_fail("%s: out of memory, or more than %d lines", path, (int)MOST);
    }
    if (status == CLI_OK && ferror(f))
        status = cli_fail("%s: %s", path, strerror(errno));
    free(line);
    fclose(f);
    return status;
}

void sim_extents_free(struct sim_extents *e)
{
    free(e->items);
}
