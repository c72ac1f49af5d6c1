/* SPDX-License-Identifier: BSD-3-Clause */
/* bench-begin.c - what it costs to begin and end a context over the mount's transport,
 * and over the agent's.
 *
 * bench_begin [ROUNDS]: prints nanoseconds for a pair of qmctx_begin() and qmctx_end(),
 * alone, nested and named as a database server does it, and when no mount is there.
 * The agent's needs no agent: what it costs does not depend on one.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "clients/libqmctx/qmctx.h"
#include "mock-mount.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double one(struct qmctx *ctx, unsigned long rounds, const char *name)
{
    double start = now();

    for (unsigned long i = 0; i < rounds; i++) {
        qmctx_begin(ctx, QMCTX_QUERY, i, name);
        qmctx_end(ctx);
    }
    return (now() - start) / (double)rounds;
}

static void print(struct qmctx *ctx, unsigned long rounds, const char *what)
{
    static const char name[] =
        "SELECT i_title, a_lname FROM item, author WHERE i_id = ?";

    printf("%s outermost:         %6.0f ns\n", what, one(ctx, rounds, NULL));
    qmctx_begin(ctx, QMCTX_CONNECTION, 1, NULL);
    qmctx_begin(ctx, QMCTX_TRANSACTION, 2, NULL);
    printf("%s nested:            %6.0f ns\n", what, one(ctx, rounds, NULL));
    printf("%s nested, with name: %6.0f ns\n", what, one(ctx, rounds, name));
    qmctx_end_to(ctx, 0);
    qmctx_close(ctx);
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 300000;
    char dir[] = "/tmp/bench_begin.XXXXXX", path[64], agent[80];
    struct mock_mount mount = {.greet = true};
    struct qmctx *ctx;

    if (rounds == 0 || !mkdtemp(dir))
        errx(2, "usage: bench_begin [ROUNDS]");
    snprintf(path, sizeof path, "%s/socket", dir);

    if (qmctx_announce(path, &ctx))
        errx(1, "%s", qmctx_error());
    printf("no mount:                %6.0f ns\n", one(ctx, rounds, NULL));
    qmctx_close(ctx);

    snprintf(agent, sizeof agent, "agent:%s", path);
    if (qmctx_announce(agent, &ctx))
        errx(1, "%s", qmctx_error());
    print(ctx, rounds, "agent,");

    mock_mount_start(&mount, path);
    if (qmctx_announce(path, &ctx) || !qmctx_connected(ctx))
        errx(1, "%s", qmctx_error());
    print(ctx, rounds, "mount,");
    mock_mount_stop(&mount);
    rmdir(dir);
    return 0;
}
