/* SPDX-License-Identifier: BSD-3-Clause */
/* attach.c - quickmine attach: a server's device as /dev/nbdN, each read in its
 * context.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "cli/agent.h"
#include "cli/attach.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "clients/attach/kernel.h"
#include "clients/attach/attribution.h"
#include "clients/libqmctx/background.h"
#include "clients/libqmctx/uris.h"

#define TIMEOUT      30
#define PATIENCE_MS  500
#define DEAD_SECONDS 600
#define YEAR         (UINT64_C(365) * 24 * 3600)

enum {
    TRANSPORT = 't',
    FOREGROUND = 'f',
    SOCKET = 256,
    WATCH,
    AGENT_SOCKET,
    NO_THREADS,
    CONNECTIONS,
    QUEUES,
    WAIT,
    RETAIN,
    REQUEST_TIMEOUT,
    DEAD_TIMEOUT,
    BLOCK_BYTES,
    READ_ONLY,
    FORCE,
    PIDFILE
};

static const struct argp_option argp_options[] = {
    {"foreground", FOREGROUND, NULL, 0, "stay in the foreground", 0},
    {"transport", TRANSPORT, "join|hints|none", 0,
     "join (default): this program passes requests on, each read in its context; "
     "hints: "
     "the kernel's requests go straight to the server, which is told of the reads; "
     "none: "
     "reads have no context, and any NBD server will do",
     0},
    {"agent-socket", AGENT_SOCKET, "PATH", 0,
     "where programs register (default: " QM_AGENT_SOCKET "); 'none': nowhere", 0},
    {"no-threads", NO_THREADS, NULL, 0,
     "reads of threads that tell no context have none; else each thread is one", 0},
    {"connections", CONNECTIONS, "N", 0,
     "connections to the server, 1 to 64 (default: 8, or 32 if it serves one request "
     "of each at a time; 1 if it allows no more)",
     0},
    {"queues", QUEUES, "N", 0,
     "connections to the kernel, 1 to 64 (default: 1; with --transport hints one a "
     "processor, 4 at most)",
     0},
    {"block-size", BLOCK_BYTES, "BYTES", 0,
     "of the device, its logical block size: 512 (default), 1024, 2048 or 4096", 0},
    {"wait", WAIT, "SECONDS", 0,
     "how long requests wait while the server is away (default: for ever)", 0},
    {"retain", RETAIN, "SIZE|off", 0,
     "how much of what is written and not flushed to keep, for a server that comes "
     "back without it: 1M to 1T (default: 64M); off: nothing, then the next fsync "
     "fails",
     0},
    {"timeout", REQUEST_TIMEOUT, "SECONDS", 0,
     "after which the kernel sends a request again that its connection has lost "
     "(default: 0.5); with several queues, or hints, one that has no reply (default: "
     "30)",
     0},
    {"dead-timeout", DEAD_TIMEOUT, "SECONDS", 0,
     "how long the kernel's requests wait when this program is gone (default: 600)", 0},
    {"read-only", READ_ONLY, NULL, 0, "refuse writes", 0},
    {"force", FORCE, NULL, 0, "detach at SIGTERM even if the device is in use", 0},
    {"pidfile", PIDFILE, "PATH", 0, "write the process id there", 0},
    {"socket", SOCKET, "PATH", 0,
     "serve NBD clients on a Unix socket, in place of the kernel", 0},
    {"watch", WATCH, "DEVICE", 0,
     "with --socket: the block device whose reads these clients pass on", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void set_transport(struct argp_state *state, struct attach_options *o,
                          const char *arg)
{
    if (strcmp(arg, "join") == 0)
        o->transport = ATTACH_JOIN;
    else if (strcmp(arg, "hints") == 0)
        o->transport = ATTACH_HINTS;
    else if (strcmp(arg, "none") == 0)
        o->transport = ATTACH_NONE;
    else
        argp_error(state, "--transport %s: it is join, hints or none", arg);
}

static void set_block_size(struct argp_state *state, struct attach_options *o,
                           const char *arg)
{
    o->block_size = cli_number(state, "--block-size", arg, 512, 4096);
    if (o->block_size & (o->block_size - 1))
        argp_error(state, "--block-size %s: it is 512, 1024, 2048 or 4096", arg);
}

static void set_retain(struct argp_state *state, struct attach_options *o,
                       const char *arg)
{
    o->mode = strcmp(arg, "off") == 0 ? QM_RETAIN_OFF : QM_RETAIN_ON;
    if (o->mode == QM_RETAIN_ON)
        o->retain =
            cli_size(state, "--retain", arg, UINT64_C(1) << 20, UINT64_C(1) << 40);
}

static void check(struct argp_state *state, struct attach_options *o)
{
    int number;

    if (!o->uri)
        argp_error(state, "an NBD-URI is needed");
    if (!o->device == !o->socket)
        argp_error(state, "give either /dev/nbdN or --socket");
    if (o->watch && !o->socket)
        argp_error(state, "--watch is for --socket: /dev/nbdN is watched by itself");
    if (o->transport == ATTACH_HINTS && o->socket)
        argp_error(state, "--transport hints is for /dev/nbdN");
    if (!o->device)
        return;
    number = qm_kernel_number(o->device);
    if (number == -1)
        argp_error(state, "'%s' is not /dev/nbdN, with a number for N", o->device);
    o->number = (unsigned)number;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct attach_options *o = state->input;

    switch (key) {
    case FOREGROUND:
        o->foreground = true;
        return 0;
    case TRANSPORT:
        set_transport(state, o, arg);
        return 0;
    case AGENT_SOCKET:
        o->registrar = strcmp(arg, "none") == 0 ? NULL : arg;
        return 0;
    case NO_THREADS:
        o->no_threads = true;
        return 0;
    case CONNECTIONS:
        o->connections = (unsigned)cli_number(state, "--connections", arg, 1, 64);
        return 0;
    case QUEUES:
        o->queues = (unsigned)cli_number(state, "--queues", arg, 1, 64);
        return 0;
    case BLOCK_BYTES:
        set_block_size(state, o, arg);
        return 0;
    case WAIT:
        o->wait = (uint32_t)cli_number(state, "--wait", arg, 0, YEAR);
        return 0;
    case RETAIN:
        set_retain(state, o, arg);
        return 0;
    case REQUEST_TIMEOUT:
        o->timeout = cli_number(state, "--timeout", arg, 1, YEAR);
        return 0;
    case DEAD_TIMEOUT:
        o->dead_seconds = cli_number(state, "--dead-timeout", arg, 1, YEAR);
        return 0;
    case READ_ONLY:
        o->read_only = true;
        return 0;
    case FORCE:
        o->force = true;
        return 0;
    case PIDFILE:
        o->pidfile = arg;
        return 0;
    case SOCKET:
        if (!*arg)
            argp_error(state, "--socket: a path is needed");
        o->socket = arg;
        return 0;
    case WATCH:
        o->watch = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0)
            o->uri = arg;
        else if (state->arg_num == 1)
            o->device = arg;
        else
            argp_error(state, "'%s' is one argument too many", arg);
        return 0;
    case ARGP_KEY_END:
        check(state, o);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = argp_options,
    .parser = parse,
    .args_doc = "NBD-URI /dev/nbdN\nNBD-URI --socket PATH",
    .doc = "Make the device of a QuickMine server /dev/nbdN.  Each read tells the "
           "server its context, on a stock kernel.\vSee quickmine-attach(1).",
};

/* --- before anything is started --- */

static void load_module(void)
{
    static char modprobe[] = "modprobe", quiet[] = "-q", nbd[] = "nbd";
    char *argv[] = {modprobe, quiet, nbd, NULL};
    posix_spawn_file_actions_t none;
    pid_t pid;

    posix_spawn_file_actions_init(&none);
    if (posix_spawnp(&pid, modprobe, &none, NULL, argv, environ) == 0)
        waitpid(pid, NULL, 0);
    posix_spawn_file_actions_destroy(&none);
}

/* Whether the device may be connected.  Says why not. */
static bool is_free(const struct attach_options *o)
{
    char owner[256], mine[256], err[512];
    struct stat st;
    int fd;

    if (stat(o->device, &st) != 0) {
        load_module();
        if (stat(o->device, &st) != 0) {
            cli_fail("%s: there is no such device: the kernel has no network block "
                     "devices (modprobe nbd), or fewer",
                     o->device);
            return false;
        }
    }
    if (!S_ISBLK(st.st_mode)) {
        cli_fail("%s: not a block device", o->device);
        return false;
    }
    if (!qm_kernel_connected(o->number)) {
        if (attach_await_unused(o->device, &fd, err, sizeof err) == EBUSY) {
            cli_fail("%s", err);
            return false;
        }
        if (fd != -1)
            close(fd);
        return true;
    }
    /* One of ours, whose program is gone, is served again. */
    qm_kernel_owner(o->number, owner, sizeof owner);
    attach_owner(mine, sizeof mine, o->uri);
    if (strcmp(owner, mine) == 0)
        return true;
    if (attach_is_ours(owner))
        cli_fail("%s: is attached to another server: %s", o->device, owner);
    else
        cli_fail("%s: is connected by another program", o->device);
    return false;
}

/* For as long as this process, or its child, lives. */
static bool take_lock(struct attach_options *o)
{
    o->lock = attach_lock(o->number, 0);
    if (o->lock != -1)
        return true;
    if (errno == EWOULDBLOCK)
        cli_fail("%s: is served by another quickmine attach", o->device);
    else
        cli_fail("/run/quickmine/nbd%u.lock: %s", o->number,
                 errno == EPERM || errno == ELOOP ? "is not a file of this user alone"
                                                  : strerror(errno));
    return false;
}

/* The same for a socket.  The file names the process that serves it, also to the next
 * program, after this one was killed. */
static bool take_socket(struct attach_options *o)
{
    char path[PATH_MAX];
    int error;

    snprintf(path, sizeof path, "%s.owner", o->socket);
    error = qm_owner_open(&o->socket_owner, path, 0);
    if (error == 0)
        return true;
    if (error == EWOULDBLOCK)
        cli_fail("--socket %s: is served by another quickmine attach", o->socket);
    else
        cli_fail(
            "%s: %s", path,
            error == EPERM || error == ELOOP
                ? "must be a file of this user alone (remove it if nobody needs it)"
                : strerror(error));
    return false;
}

/* Whose sessions at the server are ours and our predecessors'. */
static void set_owner(const struct attach_options *o, uint8_t owner[QM_OWNER_SIZE])
{
    int error;

    if (o->socket) {
        memcpy(owner, o->socket_owner.id, QM_OWNER_SIZE);
        return;
    }
    error = qm_owner_read(o->lock, owner);
    if (error == 0)
        return;
    memset(owner, 0, QM_OWNER_SIZE);
    daemon_log(
        LOG_WARNING,
        "the lock of %s cannot be written: %s.  If this program is killed, the next "
        "one does not know what it had under way",
        o->device, strerror(error));
}

static int signal_fd(void)
{
    signal(SIGPIPE, SIG_IGN);
    return cli_end_fd();
}

/* --- running --- */

uint64_t attach_timeout(const struct attach_options *o)
{
    return o->timeout > 0 ? o->timeout : TIMEOUT;
}

uint64_t attach_patience_ms(const struct attach_options *o)
{
    if (o->timeout == 0)
        return PATIENCE_MS;
    return o->timeout < UINT64_MAX / 1000 ? o->timeout * 1000 : UINT64_MAX;
}

static void on_log(void *opaque, int priority, const char *sentence)
{
    daemon_log(priority, "%s", sentence);
}

/* In a container the programs that register are not those that are seen to read. */
static void check_namespace(const struct attach_options *o)
{
    if (o->transport != ATTACH_NONE && !agent_sees_all_processes())
        daemon_log(LOG_WARNING,
                   "this is a PID namespace (a container), so the contexts of programs "
                   "are not found, only threads: run it outside");
}

/* The directory of the default socket is made: others must exist. */
static void make_door(const struct attach_options *o)
{
    if (o->registrar && strcmp(o->registrar, QM_AGENT_SOCKET) == 0)
        mkdir(QM_AGENT_DIRECTORY, 0755);
}

void attach_say_plain(const char *why)
{
    daemon_log(LOG_WARNING,
               "reads have no context: %s.  `quickmine agent --check` says more; "
               "`quickmine mount` carries contexts without BPF",
               why);
}

/* Contexts are not worth a device: without them, it is a plain one. */
static void open_whose(const struct attach_options *o, struct qm_nbd_device *device)
{
    const char *watched = o->watch ? o->watch : o->device;
    struct qm_attribution_config config = {
        .device = device->device, .socket = o->registrar, .threads = !o->no_threads};
    struct stat st;
    char err[512];

    if (o->transport != ATTACH_JOIN || !watched)
        return;
    if (stat(watched, &st) != 0 || !S_ISBLK(st.st_mode)) {
        daemon_log(LOG_ERR, "%s: not a block device; reads have no context", watched);
        return;
    }
    config.watched = st.st_rdev;
    make_door(o);
    if (qm_attribution_open(&device->whose, &config, err, sizeof err) != 0)
        attach_say_plain(err);
}

static void report(struct qm_attribution *whose)
{
    struct qm_attribution_stats s;

    if (!whose)
        return;
    qm_attribution_get_stats(whose, &s);
    daemon_log(LOG_INFO,
               "%" PRIu64 " reads submitted: %" PRIu64
               " in contexts of programs, %" PRIu64 " of threads; %" PRIu64
               " lost.  %" PRIu64 " requests: %" PRIu64 " split, %" PRIu64
               " of which nothing was known, %" PRIu64 " told of too late, %" PRIu64
               " looked up again",
               s.agent.reads, s.agent.in_context, s.agent.in_thread, s.agent.lost,
               s.join.requests, s.join.split, s.join.unknown, s.join.late, s.again);
}

bool attach_take_size(const struct attach_options *o, struct qm_nbd_device *device)
{
    uint64_t size = qm_device_size(device->device);

    size -= size % o->block_size;
    if (size <= atomic_load(&device->size))
        return false;
    atomic_store(&device->size, size);
    return true;
}

static int serve(const struct attach_options *o, struct qm_nbd_device *device)
{
    int signals = signal_fd(), status;

    if (signals == -1) {
        daemon_log(LOG_ERR, "signals: %s", strerror(errno));
        return CLI_FAILED;
    }
    open_whose(o, device);
    status = o->device ? attach_serve_kernel(o, device, signals)
                       : attach_serve_socket(o, device, signals);
    report(device->whose);
    qm_attribution_close(device->whose);
    close(signals);
    return status;
}

static int run_hints(const struct attach_options *o)
{
    int signals = signal_fd(), status;

    if (signals == -1) {
        daemon_log(LOG_ERR, "signals: %s", strerror(errno));
        return CLI_FAILED;
    }
    make_door(o);
    status = attach_serve_hints(o, signals);
    close(signals);
    return status;
}

/* Unless it is done, the next one has to know what this one, or its predecessor, may
 * have under way. */
static void end_owner(struct attach_options *o, bool is_done)
{
    if (is_done)
        qm_owner_end(&o->socket_owner);
    else
        qm_owner_leave(&o->socket_owner);
}

static const struct attach_options *starting;

/* The server has not answered yet. */
static void tidy(void)
{
    qm_owner_unused(&starting->socket_owner);
    daemon_tidy();
}

static int run(void *opaque)
{
    struct attach_options *o = opaque;
    struct qm_device_options options = {.connections = o->connections,
                                        .plain = o->transport == ATTACH_NONE,
                                        .mode = o->mode,
                                        .retain = o->retain,
                                        .wait = o->wait,
                                        .grows = true,
                                        .reconnect = QM_DEVICE_FOREVER,
                                        .log = on_log};
    struct qm_nbd_device device = {.whose = NULL};
    _Atomic unsigned seen;
    bool is_done;
    int status;

    if (o->device)
        daemon_protect();
    agent_allow_descriptors();
    check_namespace(o);
    if (o->transport == ATTACH_HINTS)
        return run_hints(o);
    set_owner(o, options.owner);
    if (qm_device_open(o->uri, &options, &device.device) != 0) {
        daemon_log(LOG_ERR, "%s", qmctx_error());
        end_owner(o, o->socket_owner.fresh);
        return CLI_FAILED;
    }
    attach_take_size(o, &device);
    device.read_only = o->read_only || qm_device_read_only(device.device);
    /* The kernel is one client, whichever of its connections it flushes over. */
    atomic_init(&seen, qm_device_losses(device.device));
    if (o->device)
        device.seen = &seen;
    device.every_flush = o->device && o->mode == QM_RETAIN_OFF;
    status = serve(o, &device);
    is_done = qm_device_is_up(device.device);
    qm_device_close(device.device);
    end_owner(o, is_done);
    return status;
}

int qm_cmd_attach(int argc, char **argv)
{
    struct attach_options o = {.registrar = QM_AGENT_SOCKET,
                               .wait = QM_DEVICE_FOREVER,
                               .dead_seconds = DEAD_SECONDS,
                               .block_size = 512,
                               .lock = -1,
                               .socket_owner = QM_OWNER_NONE};
    int status = CLI_FAILED;
    char *uri;

    argp_parse(&argp, argc, argv, 0, NULL, &o);
    /* The kernel keeps it as the device's owner, for a program that is started again,
     * wherever. */
    o.uri = uri = qm_uris_absolute(o.uri);
    if (!uri)
        return cli_fail("the current directory: %s", strerror(errno));
    starting = &o;
    qm_background_tidy(tidy);
    if ((!o.device || (is_free(&o) && take_lock(&o))) && (!o.socket || take_socket(&o)))
        status = daemon_start("attach", o.foreground, o.pidfile, run, &o);
    qm_background_tidied();
    free(uri);
    return status;
}
