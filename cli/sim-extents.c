/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-extents.c - see sim-extents.h. */
#include "cli/sim-extents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum {
    MOST = 10000000,
    LINE = 64, /* bytes; two numbers have 40 at most */
};

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

/* Reads a number, of digits only, and moves *at behind it. */
static bool parse_number(const char **at, uint64_t *number)
{
    char *end;

    if (**at < '0' || **at > '9')
        return false;
    *number = strtoull(*at, &end, 10); /* UINT64_MAX if it is larger */
    *at = end;
    return true;
}

/* Whether a line of length bytes is an extent, or, with length 0, empty. */
static bool parse(const char *line, size_t length, struct qm_bytes *item)
{
    const char *at = line;

    *item = (struct qm_bytes){0, 0};
    if (length == 0)
        return true;
    if (!parse_number(&at, &item->offset) || *at != ' ')
        return false;
    while (*at == ' ')
        at++;
    return parse_number(&at, &item->length) && at == line + length &&
           item->length > 0 && item->offset <= INT64_MAX &&
           item->length <= INT64_MAX - item->offset;
}

/* Reads a line without its end, of at most LINE bytes: what is longer is cut, and no
 * extent.  Returns its length, or -1 behind the last. */
static int read_line(FILE *f, char line[LINE + 1])
{
    int n = 0, c = getc(f);

    if (c == EOF)
        return -1;
    for (; c != EOF && c != '\n' && n < LINE; c = getc(f))
        line[n++] = (char)c;
    line[n] = '\0';
    return n;
}

int sim_extents_read(const char *path, struct sim_extents *e)
{
    unsigned long number = 0;
    int status = CLI_OK, length;
    FILE *f = fopen(path, "re");
    struct qm_bytes item;
    char line[LINE + 1];

    if (!f)
        return cli_fail("%s: %s", path, strerror(errno));
    while (status == CLI_OK && (length = read_line(f, line)) != -1) {
        number++;
        if (length == LINE || !parse(line, (size_t)length, &item))
            status = cli_fail("%s: line %lu is not an offset and a length in bytes",
                              path, number);
        else if (!add(e, item))
            status =
                cli_fail("%s: out of memory, or more than %d lines", path, (int)MOST);
    }
    if (status == CLI_OK && ferror(f))
        status = cli_fail("%s: %s", path, strerror(errno));
    fclose(f);
    return status;
}

void sim_extents_free(struct sim_extents *e)
{
    free(e->items);
}
