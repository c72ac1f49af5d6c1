/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - see options.h. */
#include "clients/mount/options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clients/protocol/quickmine-mount.h"

/* Of --retain; less would hold little, more is a mistake. */
#define RETAIN_MIN (UINT64_C(1) << 20)
#define RETAIN_MAX (UINT64_C(1) << 40)

enum {
    OPT_CONNECTIONS = 256,
    OPT_CONTEXT_SOCKET,
    OPT_RECONNECT,
    OPT_RETAIN,
    OPT_WAIT,
    OPT_ALLOW_OTHER,
    OPT_READ_ONLY,
    OPT_PATIENT,
    OPT_PIDFILE,
    OPT_STATS,
    OPT_JSON,
};

static const struct argp_option argp_options[] = {
    {"foreground", 'f', NULL, 0, "Stay in the foreground", 0},
    {"connections", OPT_CONNECTIONS, "N", 0,
     "Connections to the server, 1 to 64 (default: 8, or 32 if it serves one request "
     "of each at a time; 1 if it allows no more)",
     0},
    {"context-socket", OPT_CONTEXT_SOCKET, "PATH", 0,
     "Where programs announce their contexts (default: FILE" QM_MOUNT_SUFFIX ")", 0},
    {"reconnect", OPT_RECONNECT, "SECONDS", 0,
     "For how long to try to connect again when the server is gone (default: for "
     "ever; 0: not at all)",
     0},
    {"wait", OPT_WAIT, "SECONDS", 0,
     "For how long requests wait for it meanwhile (default: for ever; 0: they fail at "
     "once)",
     0},
    {"retain", OPT_RETAIN, "SIZE|off", 0,
     "How much of what is written and not flushed to keep, for a server that comes "
     "back without it: 1M to 1T (default: 64M); off: nothing, then the next fsync "
     "fails",
     0},
    {"allow-other", OPT_ALLOW_OTHER, NULL, 0,
     "Let other users use the file, as its owner and mode say", 0},
    {"read-only", OPT_READ_ONLY, NULL, 0, "Refuse writes", 0},
    {"patient", OPT_PATIENT, NULL, 0,
     "Wait for a server that is not there at the start, too, as long as requests "
     "would",
     0},
    {"pidfile", OPT_PIDFILE, "PATH", 0,
     "Write the process id to PATH once the file can be used", 0},
    {"stats", OPT_STATS, NULL, 0,
     "Print what the mount at FILE has counted; mount nothing", 0},
    {"json", OPT_JSON, NULL, 0, "With --stats: as a JSON object", 0},
    {0},
};

/* The number in arg, or the end of the program, which is what argp_error() brings. */
static unsigned number(const char *option, const char *arg, unsigned min, unsigned max,
                       struct argp_state *state)
{
    char *end;
    unsigned long n;

    errno = 0;
    n = strtoul(arg, &end, 10);
    if (errno || end == arg || *end || arg[0] < '0' || arg[0] > '9' || n < min ||
        n > max)
        argp_error(state, "--%s: '%s' is not a number from %u to %u", option, arg, min,
                   max);
    return (unsigned)n;
}

/* SIZE or "off", into options; or the end of the program. */
static void retain(const char *arg, struct qm_mount_options *options,
                   struct argp_state *state)
{
    static const char units[] = "KMGT";
    unsigned long long n;
    const char *unit;
    char *end;
    unsigned shift = 0;

    if (strcmp(arg, "off") == 0) {
        options->mode = QM_RETAIN_OFF;
        return;
    }
    errno = 0;
    n = strtoull(arg, &end, 10);
    if (*end && (unit = strchr(units, *end))) {
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
    }
    if (errno || *end || arg[0] < '0' || arg[0] > '9' || n > RETAIN_MAX >> shift ||
        n << shift < RETAIN_MIN)
        argp_error(state, "--retain: '%s' is neither 'off' nor a size from 1M to 1T",
                   arg);
    options->mode = QM_RETAIN_ON;
    options->retain = n << shift;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct qm_mount_options *o = state->input;

    switch (key) {
    case 'f':
        o->foreground = true;
        return 0;
    case OPT_CONNECTIONS:
        o->connections = number("connections", arg, 1, 64, state);
        return 0;
    case OPT_CONTEXT_SOCKET:
        o->context_socket = arg;
        return 0;
    case OPT_RECONNECT:
        o->reconnect = number("reconnect", arg, 0, 1000000000, state);
        return 0;
    case OPT_WAIT:
        o->wait = number("wait", arg, 0, 1000000000, state);
        return 0;
    case OPT_RETAIN:
        retain(arg, o, state);
        return 0;
    case OPT_ALLOW_OTHER:
        o->allow_other = true;
        return 0;
    case OPT_READ_ONLY:
        o->read_only = true;
        return 0;
    case OPT_PATIENT:
        o->patient = true;
        return 0;
    case OPT_PIDFILE:
        o->pidfile = arg;
        return 0;
    case OPT_STATS:
        o->stats = true;
        return 0;
    case OPT_JSON:
        o->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0)
            o->uri = arg;
        else if (state->arg_num == 1)
            o->file = arg;
        else
            argp_error(state, "'%s' is one argument too many", arg);
        return 0;
    case ARGP_KEY_END:
        if (o->json && !o->stats)
            argp_error(state, "--json is for --stats");
        if (o->stats) {
            if (o->file || (!o->uri && !o->context_socket))
                argp_error(state, "--stats needs the FILE of a mount, and no NBD-URI");
            o->file = o->uri;
        } else if (state->arg_num < 2) {
            argp_error(state, "an NBD-URI and a FILE are needed");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = argp_options,
    .parser = parse_option,
    .args_doc = "NBD-URI FILE\n--stats FILE",
    .doc = "Make the device of a QuickMine server a file, for direct I/O.  Each read "
           "tells the server its context: the one that the reading thread announced, "
           "else one for the thread."
           "\vFILE is created if it does not exist.  Unmount it with 'fusermount3 -u "
           "FILE', or end the program.  See quickmine-mount(1).",
};

void qm_mount_parse(struct qm_mount_options *options, int argc, char **argv)
{
    static char name[] = "quickmine mount";

    *options = (struct qm_mount_options){.reconnect = QM_DEVICE_FOREVER,
                                         .wait = QM_DEVICE_FOREVER};
    argv[0] = name;
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, options);
}
