/* SPDX-License-Identifier: BSD-3-Clause */
/* agent.c - quickmine agent: whose reads are the reads of a local block device. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/agent.h"
#include "cli/cli.h"

#define DEVICES_MAX   32
#define DEFAULT_BLOCK 16384
#define DESCRIPTORS   (3 * 4096 + 1024)

struct arguments {
    const char *names[DEVICES_MAX];
    dev_t devices[DEVICES_MAX];
    unsigned device_count;
    const char *socket, *record, *server;
    uint64_t block_size;
    bool check, no_threads;
};

enum {
    DEVICE = 'd',
    RECORD = 'r',
    SERVER = 'S',
    SOCKET = 's',
    BLOCK_BYTES = 'b',
    CHECK = 256,
    NO_THREADS
};

static const struct argp_option options[] = {
    {"check", CHECK, NULL, 0, "say what this machine allows, and end", 0},
    {"device", DEVICE, "DEVICE", 0,
     "a block device, or a partition, whose reads are looked at; may be repeated", 0},
    {"record", RECORD, "FILE", 0,
     "write a trace of reads and writes with their contexts (.zst and .gz: compressed)",
     0},
    {"server", SERVER, "URI", 0,
     "tell the server, whose plain export the device is, of its reads", 0},
    {"block-size", BLOCK_BYTES, "BYTES", 0,
     "of the trace, a power of two (default: 16K)", 0},
    {"socket", SOCKET, "PATH", 0,
     "where programs register (default: " QM_AGENT_SOCKET "); 'none': nowhere", 0},
    {"no-threads", NO_THREADS, NULL, 0,
     "reads of threads that tell no context have none; else each thread is one", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void add_device(struct argp_state *state, struct arguments *a, const char *path)
{
    struct stat st;

    if (a->device_count == DEVICES_MAX)
        argp_error(state, "at most %d devices", DEVICES_MAX);
    if (stat(path, &st) != 0)
        argp_error(state, "--device %s: %s", path, strerror(errno));
    if (!S_ISBLK(st.st_mode))
        argp_error(state,
                   "--device %s: not a block device; for a file system, give the "
                   "device that `findmnt -no SOURCE` names for it",
                   path);
    a->names[a->device_count] = path;
    a->devices[a->device_count++] = st.st_rdev;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case CHECK:
        a->check = true;
        return 0;
    case DEVICE:
        add_device(state, a, arg);
        return 0;
    case RECORD:
        a->record = arg;
        return 0;
    case BLOCK_BYTES:
        a->block_size = cli_block_size(state, arg);
        return 0;
    case SERVER:
        a->server = arg;
        return 0;
    case SOCKET:
        a->socket = strcmp(arg, "none") == 0 ? NULL : arg;
        return 0;
    case NO_THREADS:
        a->no_threads = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is no option; a device is given by --device", arg);
        return 0;
    case ARGP_KEY_END:
        if (a->check)
            return 0;
        if (a->device_count == 0)
            argp_error(state, "which block device? Give --device");
        if (!a->record == !a->server)
            argp_error(state, "what is to be done with the reads? Give --record, or "
                              "--server, and not both");
        if (a->server && a->device_count > 1)
            argp_error(state, "one device is the server's: give one --device");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc =
        "Finds out which context causes each read of a local block device, on a stock "
        "kernel, and takes it down in a trace.\vSee quickmine-agent(1).",
};

/* The directory of the default socket is made: others must exist. */
static void make_directory(const char *socket)
{
    if (socket && strcmp(socket, QM_AGENT_SOCKET) == 0)
        mkdir(QM_AGENT_DIRECTORY, 0755);
}

static void report(const struct qm_agent *agent)
{
    struct qm_agent_stats s;

    qm_agent_get_stats(agent, &s);
    fprintf(stderr,
            "quickmine agent: %" PRIu64 " reads: %" PRIu64 " in contexts of programs, "
            "%" PRIu64 " of threads; %" PRIu64 " writes; %" PRIu64 " lost\n",
            s.reads, s.in_context, s.in_thread, s.writes, s.lost);
    if (s.contexts.stale + s.contexts.bad > 0)
        fprintf(stderr,
                "quickmine agent: of the contexts that threads named, %" PRIu64
                " had gone when they were looked at, and %" PRIu64 " made no sense\n",
                s.contexts.stale, s.contexts.bad);
}

/* Where the reads go. */
struct target {
    struct agent_record *record;
    struct agent_hints *hints;
};

/* The bytes of a block device, or 0. */
static uint64_t device_size(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t size = 0;

    if (fd == -1)
        return 0;
    if (ioctl(fd, BLKGETSIZE64, &size) != 0)
        size = 0;
    close(fd);
    return size;
}

static int open_target(const struct arguments *a, struct target *t,
                       struct qm_agent_config *config)
{
    char err[512];

    if (a->record) {
        t->record = agent_record_open(a->record, a->block_size, err, sizeof err);
        if (!t->record)
            return cli_fail("--record %s: %s", a->record, err);
        agent_record_use(t->record, config);
        return CLI_OK;
    }
    t->hints = agent_hints_open(a->server, err, sizeof err);
    if (!t->hints)
        return cli_fail("--server %s: %s", a->server, err);
    if (agent_hints_size(t->hints) != device_size(a->names[0])) {
        cli_fail("%s has %" PRIu64 " bytes and the server's device %" PRIu64
                 ": it is another one; give the whole device, not a partition of it",
                 a->names[0], device_size(a->names[0]), agent_hints_size(t->hints));
        agent_hints_close(t->hints);
        return CLI_FAILED;
    }
    agent_hints_use(t->hints, config);
    return CLI_OK;
}

static int close_target(const struct arguments *a, struct target *t)
{
    int error = 0;

    if (t->record)
        error = agent_record_close(t->record);
    else
        agent_hints_close(t->hints);
    if (error != 0)
        return cli_fail("--record %s: %s", a->record, strerror(error));
    return CLI_OK;
}

void agent_allow_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int run(const struct arguments *a)
{
    struct qm_agent_config config = {.socket = a->socket,
                                     .devices = a->devices,
                                     .device_count = a->device_count,
                                     .writes = a->record != NULL,
                                     .threads = !a->no_threads};
    struct target target = {NULL, NULL};
    struct qm_agent *agent;
    int stop = cli_end_fd();
    char err[512];

    if (stop == -1)
        return cli_fail("signals: %s", strerror(errno));
    if (open_target(a, &target, &config) != CLI_OK)
        return CLI_FAILED;
    make_directory(a->socket);
    agent_allow_descriptors();
    /* It runs little, but what it tells late is of no use. */
    setpriority(PRIO_PROCESS, 0, -10);
    if (qm_agent_open(&agent, &config, err, sizeof err) != 0) {
        close_target(a, &target);
        return cli_fail("%s; `quickmine agent --check` says more", err);
    }
    for (unsigned i = 0; i < a->device_count; i++)
        fprintf(stderr, "quickmine agent: watching %s\n", a->names[i]);
    qm_agent_run(agent, stop);
    report(agent);
    qm_agent_close(agent);
    close(stop);
    return close_target(a, &target);
}

int qm_cmd_agent(int argc, char **argv)
{
    struct arguments a = {.socket = QM_AGENT_SOCKET, .block_size = DEFAULT_BLOCK};

    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.check)
        return agent_check() ? CLI_OK : CLI_FAILED;
    return run(&a);
}
