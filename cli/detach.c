/* SPDX-License-Identifier: BSD-3-Clause */
/* detach.c - quickmine detach: ends a /dev/nbdN of `quickmine attach`. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/attach.h"
#include "cli/cli.h"
#include "clients/attach/kernel.h"

#define SECONDS 30
#define LOOK_MS 20

enum { FORCE = 'f' };

struct arguments {
    const char *device;
    unsigned number;
    bool force;
};

static const struct argp_option options[] = {
    {"force", FORCE, NULL, 0,
     "even if it is in use, or was not attached by quickmine; what it has not written "
     "yet is lost",
     0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    int number;

    switch (key) {
    case FORCE:
        a->force = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->device)
            argp_error(state, "'%s' is one argument too many", arg);
        number = qm_kernel_number(arg);
        if (number == -1)
            argp_error(state, "'%s' is not /dev/nbdN, with a number for N", arg);
        a->device = arg;
        a->number = (unsigned)number;
        return 0;
    case ARGP_KEY_END:
        if (!a->device)
            argp_error(state, "which device? Give /dev/nbdN");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "/dev/nbdN",
    .doc = "End a device that `quickmine attach` made.\vSee quickmine-attach(1).",
};

static bool has_ended(unsigned number)
{
    const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L};

    for (unsigned ms = 0; ms < SECONDS * 1000; ms += LOOK_MS) {
        if (!qm_kernel_connected(number))
            return true;
        nanosleep(&nap, NULL);
    }
    return false;
}

int qm_cmd_detach(int argc, char **argv)
{
    struct arguments a = {.device = NULL};
    char owner[256], err[512];
    int fd = -1;

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (!qm_kernel_connected(a.number))
        return cli_fail("%s: is not attached", a.device);
    qm_kernel_owner(a.number, owner, sizeof owner);
    if (!a.force && *owner && !attach_is_ours(owner))
        return cli_fail("%s: was not attached by quickmine; --force detaches it",
                        a.device);
    if (!a.force && attach_await_unused(a.device, &fd, err, sizeof err) != 0)
        return cli_fail("%s; --force detaches it", err);
    if (fd != -1 && fsync(fd) != 0) {
        cli_fail("%s: cannot be written back: %s; --force detaches it", a.device,
                 strerror(errno));
        close(fd);
        return CLI_FAILED;
    }
    if (qm_kernel_disconnect(a.number, err, sizeof err) != 0) {
        if (fd != -1)
            close(fd);
        return cli_fail("%s", err);
    }
    if (fd != -1)
        close(fd);
    if (!has_ended(a.number))
        return cli_fail("%s: the kernel does not let go of it", a.device);
    /* Its program flushes what it retains. */
    fd = attach_lock(a.number, SECONDS);
    if (fd == -1 && errno == EWOULDBLOCK)
        return cli_fail(
            "%s: has ended, but the program that served it has not: it waits "
            "for the server",
            a.device);
    return CLI_OK;
}
