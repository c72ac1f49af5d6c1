/* SPDX-License-Identifier: BSD-3-Clause */
/* mount.c - `quickmine mount`: the life of a mount.
 *
 * In the background is the default.  The process forks first, before anything has
 * threads or connections; the child does all the work, with its messages still going to
 * the terminal, and tells its parent through a pipe when the file can be used.  Only
 * then it leaves the terminal.  The user who started it therefore sees what went wrong,
 * and gets the exit status.
 *
 * The end: SIGTERM, SIGINT and SIGHUP make libfuse's loop return (in the main thread;
 * all others block them), requests that are on their way are waited for, the file is
 * unmounted, then everything goes in the opposite order of its making.  A server
 * that does not answer must not keep us: an alarm ends the wait by unmounting at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "clients/libqmctx/background.h"
#include "clients/libqmctx/pidfile.h"
#include "clients/mount/dead.h"
#include "clients/mount/fuse-ops.h"
#include "clients/mount/log.h"
#include "clients/mount/mount.h"
#include "clients/mount/options.h"
#include "clients/mount/place.h"
#include "clients/protocol/quickmine-mount.h"

/* Seconds that requests on their way have once the mount is to end. */
#define GRACE 10

/* Beside the file: whose requests they are, for the next program. */
#define OWNER_SUFFIX ".owner"
/* For one that has been unmounted, and is still ending. */
#define PREDECESSOR_MS (2000 * GRACE)

/* Requests served at the same time. */
#define MAX_THREADS 64

/* What is to be undone, in this order of its making; the signal handlers look at it. */
struct life {
    const struct qm_mount_options *options;
    char file[PATH_MAX]; /* absolute; for messages, and what is beside it */
    struct qm_place place;
    bool own_mount; /* mounted by qm_place_mount(), not by libfuse */
    char *socket;
    struct stat st; /* of the file before it was mounted over */
    bool created;   /* the file was not there */
    int parent;     /* where to tell that the file can be used, or -1 */
    struct qm_pidfile pid_file;
    struct qm_owner owner;
    struct qm_device *device;
    struct qm_announce *announce;
    struct qm_threads *threads;
    struct qm_fuse fuse;
    struct fuse_session *session;
};

/* --- the file and the pid file --- */

/* What is at path becomes life->file, .st and .created.  Returns 0, or -1 after a
 * message. */
static int prepare_file(struct life *life, const char *path)
{
    int fd, error;

    (void)qm_mount_clear_dead(path);
    if (stat(path, &life->st) == -1 && errno == ENOENT) {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd == -1) {
            qm_mount_log(LOG_ERR, "%s: cannot create it: %s", path, strerror(errno));
            return -1;
        }
        close(fd);
        life->created = true;
    }
    if (stat(path, &life->st) == -1) {
        if (errno == ENOTCONN)
            qm_mount_log(LOG_ERR,
                         "%s: is mounted by a program that is gone; unmount it first "
                         "(fusermount3 -u %s)",
                         path, path);
        else
            qm_mount_log(LOG_ERR, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (S_ISDIR(life->st.st_mode)) {
        qm_mount_log(LOG_ERR, "%s: is a directory; a regular file is needed", path);
        return -1;
    }
    if (!S_ISREG(life->st.st_mode)) {
        qm_mount_log(LOG_ERR, "%s: is not a regular file", path);
        return -1;
    }
    if (!realpath(path, life->file)) {
        qm_mount_log(LOG_ERR, "%s: %s", path, strerror(errno));
        return -1;
    }
    /* From here on it is this one. */
    error = qm_place_open(&life->place, life->file, &life->st);
    if (error != 0 || !S_ISREG(life->st.st_mode)) {
        qm_mount_log(LOG_ERR, "%s: %s", life->file,
                     error ? strerror(error) : "is not a regular file");
        return -1;
    }
    if (qm_place_is_mounted(&life->place)) {
        qm_mount_log(LOG_ERR, "%s: something is mounted there already", path);
        return -1;
    }
    return 0;
}

/* path as seen from any directory, malloc()ed; NULL if memory is out. */
static char *absolute(const char *path)
{
    char *cwd, *result;

    if (path[0] == '/')
        return strdup(path);
    cwd = getcwd(NULL, 0);
    if (!cwd || asprintf(&result, "%s/%s", cwd, path) == -1)
        result = NULL;
    free(cwd);
    return result;
}

static int prepare_paths(struct life *life)
{
    const struct qm_mount_options *o = life->options;
    const char *wrong;

    if (o->context_socket)
        life->socket = absolute(o->context_socket);
    else if (asprintf(&life->socket, "%s%s", life->file, QM_MOUNT_SUFFIX) == -1)
        life->socket = NULL;
    if (!life->socket) {
        qm_mount_log(LOG_ERR, "%s", strerror(errno));
        return -1;
    }
    /* Filled in when the file can be used; now it is only seen that it can be. */
    if (o->pidfile && (wrong = qm_pidfile_open(&life->pid_file, o->pidfile))) {
        qm_mount_log(LOG_ERR, "%s: %s", o->pidfile, wrong);
        return -1;
    }
    return 0;
}

/* --- signals --- */

static struct life *ending; /* whom the signals are for */

static void on_end(int sig)
{
    /* Requests that hang must not keep us for ever. */
    alarm(GRACE);
    fuse_session_exit(ending->session);
}

/* The server did not answer in time.  Another thread waits for it, so nothing can be
 * taken down properly: unmount, leave nothing behind, and go.  All that is called here
 * may be called in a signal handler. */
static void on_alarm(int sig)
{
    static const char message[] =
        "quickmine mount: the server does not answer; unmounted all the same\n";
    static const char program[] = "fusermount3";

    (void)!write(STDERR_FILENO, message, sizeof message - 1);
    unlink(ending->socket);
    qm_pidfile_remove(&ending->pid_file);
    if (ending->own_mount) {
        if (ending->session)
            qm_place_unmount(&ending->place, fuse_session_fd(ending->session));
    } else if (umount2(ending->file, MNT_DETACH) == -1) {
        pid_t child = fork();

        if (child == 0) {
            execlp(program, program, "-u", "-q", "-z", "--", ending->file, NULL);
            _exit(1);
        }
        if (child > 0)
            waitpid(child, NULL, 0);
    }
    _exit(1);
}

/* Nothing is mounted yet. */
static void tidy(void)
{
    qm_owner_unused(&ending->owner);
    qm_pidfile_remove(&ending->pid_file);
    if (ending->announce)
        unlink(ending->socket);
    if (ending->created)
        qm_place_remove(&ending->place, &ending->st);
}

static void catch_signals(void)
{
    struct sigaction end = {.sa_handler = on_end}, late = {.sa_handler = on_alarm},
                     ignore = {.sa_handler = SIG_IGN};

    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGINT, &end, NULL);
    if (qm_background_hangup_counts())
        sigaction(SIGHUP, &end, NULL);
    sigaction(SIGALRM, &late, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

/* --- life --- */

/* The kernel has answered: the file can be used.  In one of libfuse's threads. */
static void on_ready(void *opaque)
{
    struct life *life = opaque;

    qm_pidfile_write(&life->pid_file);
    if (life->parent != -1) {
        qm_mount_log_to_syslog();
        if (!qm_background_ready(life->parent)) {
            /* It was killed, and nobody knows of this mount. */
            qm_mount_log(LOG_WARNING, "the command that was to start it has gone");
            kill(getpid(), SIGTERM);
        }
        life->parent = -1;
    }
}

static void on_log(void *opaque, int priority, const char *sentence)
{
    qm_mount_log(priority, "%s", sentence);
}

static void on_report(void *opaque, char *text, size_t len)
{
    struct qm_fuse *fuse = opaque;

    qm_mount_counts_text(&fuse->counts, fuse->device, text, len);
}

/* Asks the mount at a file. */
static int print_stats(const struct qm_mount_options *o)
{
    char real[PATH_MAX], *path = NULL;
    int status;

    if (o->context_socket)
        return qm_mount_print_stats(o->context_socket, o->json);
    if (!realpath(o->file, real)) {
        qm_mount_log(LOG_ERR, "%s: %s", o->file, strerror(errno));
        return 1;
    }
    if (asprintf(&path, "%s%s", real, QM_MOUNT_SUFFIX) == -1) {
        qm_mount_log(LOG_ERR, "out of memory");
        return 1;
    }
    status = qm_mount_print_stats(path, o->json);
    free(path);
    return status;
}

static void on_tick(void *opaque)
{
    struct life *life = opaque;

    qm_threads_sweep(life->threads);
    qm_fuse_tick(&life->fuse);
}

/* What the kernel is told of the file system, beside what each has. */
static void kernel_options(const struct life *life, char *text, size_t size)
{
    snprintf(text, size, "default_permissions,max_read=%d%s", QM_FUSE_MAX_REQUEST,
             life->options->allow_other ? ",allow_other" : "");
}

/* Root can do so by itself, others by fusermount3, which looks who may.  Returns 0, or
 * -1 after a message. */
static int mount_it(struct life *life)
{
    const char *where = life->file;
    char options[128], number[32];
    int fd = -1;

    kernel_options(life, options, sizeof options);
    if (geteuid() == 0) {
        fd = qm_place_mount(&life->place, life->options->uri, life->fuse.read_only,
                            options);
        if (fd == -1 && errno != EPERM && errno != EACCES) {
            qm_mount_log(LOG_ERR, "%s: cannot mount there: %s", life->file,
                         strerror(errno));
            return -1;
        }
    }
    life->own_mount = fd != -1;
    if (fd != -1) {
        /* libfuse's own way to be given one that is mounted. */
        snprintf(number, sizeof number, "/dev/fd/%d", fd);
        where = number;
    }
    if (fuse_session_mount(life->session, where) == 0)
        return 0;
    qm_mount_log(LOG_ERR, "%s: cannot mount there", life->file);
    return -1;
}

/* libfuse's session for life; NULL after a message. */
static struct fuse_session *new_session(struct life *life)
{
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    struct fuse_session *session = NULL;
    char *options = NULL;
    char kernel[128], plain[160];
    int r;

    kernel_options(life, kernel, sizeof kernel);
    snprintf(plain, sizeof plain, "subtype=quickmine,%s%s", kernel,
             life->fuse.read_only ? ",ro" : "");
    r = fuse_opt_add_opt(&options, plain);
    if (r == 0) {
        char name[PATH_MAX];

        snprintf(name, sizeof name, "fsname=%s", life->options->uri);
        r = fuse_opt_add_opt_escaped(&options, name);
    }
    if (r == 0)
        r = fuse_opt_add_arg(&args, "quickmine");
    if (r == 0)
        r = fuse_opt_add_arg(&args, "-o");
    if (r == 0)
        r = fuse_opt_add_arg(&args, options);
    if (r == 0)
        session =
            fuse_session_new(&args, &qm_fuse_ops, sizeof qm_fuse_ops, &life->fuse);
    else
        qm_mount_log(LOG_ERR, "out of memory");
    free(options);
    fuse_opt_free_args(&args);
    return session;
}

/* Whose sessions at the server are ours and our predecessors'.  Returns 0, or -1 after
 * a message. */
static int own(struct life *life)
{
    char path[PATH_MAX + sizeof OWNER_SUFFIX];
    int error;

    snprintf(path, sizeof path, "%s" OWNER_SUFFIX, life->file);
    error = qm_owner_open(&life->owner, path, PREDECESSOR_MS);
    if (error == EWOULDBLOCK) {
        qm_mount_log(LOG_ERR, "%s: another quickmine mount serves it", life->file);
        return -1;
    }
    if (error != 0)
        qm_mount_log(LOG_WARNING,
                     "%s: %s.  If this program is killed, the next one does not know "
                     "what it had under way",
                     path,
                     error == EPERM || error == ELOOP
                         ? "must be a file of this user alone"
                         : strerror(error));
    return 0;
}

/* Everything up to and with the mounting.  Returns 0, or -1 after a message. */
static int set_up(struct life *life)
{
    const struct qm_mount_options *o = life->options;
    struct qm_device_options device = {
        .connections = o->connections,
        .mode = o->mode,
        .retain = o->retain,
        .wait = o->wait,
        .reconnect = o->reconnect,
        .grows = true,
        .patient = o->patient,
        .log = on_log,
    };
    char err[512];
    int r;

    if (own(life) != 0)
        return -1;
    memcpy(device.owner, life->owner.id, sizeof device.owner);
    if (qm_device_open(o->uri, &device, &life->device) != 0) {
        qm_mount_log(LOG_ERR, "%s", qmctx_error());
        return -1;
    }
    if (qm_announce_listen(life->socket, life->st.st_uid, life->device, &life->announce,
                           err, sizeof err) == -1) {
        qm_mount_log(LOG_ERR, "%s", err);
        return -1;
    }
    life->threads = qm_threads_new(life->device);
    if (!life->threads) {
        qm_mount_log(LOG_ERR, "out of memory");
        return -1;
    }
    qm_fuse_init(&life->fuse, life->device, life->announce, life->threads, &life->st,
                 o->read_only || qm_device_read_only(life->device));
    life->fuse.ready = on_ready;
    life->fuse.opaque = life;

    life->session = new_session(life);
    if (!life->session)
        return -1;
    life->fuse.session = life->session;
    catch_signals();
    qm_announce_set_report(life->announce, on_report, &life->fuse);
    if ((r = qm_announce_start(life->announce, on_tick, life)) != 0) {
        qm_mount_log(LOG_ERR, "cannot start a thread: %s", strerror(r));
        return -1;
    }
    return mount_it(life);
}

/* Serves until it is unmounted or told to end.  Returns the exit status. */
static int serve(struct life *life)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    int r = -ENOMEM;

    if (config) {
        fuse_loop_cfg_set_clone_fd(config, 1);
        fuse_loop_cfg_set_max_threads(config, MAX_THREADS);
        fuse_loop_cfg_set_idle_threads(config, MAX_THREADS);
        r = fuse_session_loop_mt(life->session, config);
        fuse_loop_cfg_destroy(config);
    }
    if (r < 0)
        qm_mount_log(LOG_ERR, "%s: %s", life->file, strerror(-r));
    return r < 0 ? 1 : 0;
}

static void tear_down(struct life *life)
{
    struct fuse_session *session = life->session;
    bool done;

    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (session) {
        alarm(GRACE);
        if (life->own_mount)
            qm_place_unmount(&life->place, fuse_session_fd(session));
        fuse_session_unmount(session);
    }
    /* Its thread tells the session when the device has grown. */
    qm_announce_free(life->announce);
    life->session = NULL;
    if (session)
        fuse_session_destroy(session);
    qm_fuse_end(&life->fuse);
    qm_threads_free(life->threads);
    /* Else the next one has to know what this one, or its predecessor, may have under
     * way. */
    done = life->device ? qm_device_is_up(life->device) : life->owner.fresh;
    qm_device_close(life->device);
    if (done)
        qm_owner_end(&life->owner);
    else
        qm_owner_leave(&life->owner);
    alarm(0);
    qm_pidfile_remove(&life->pid_file);
}

static int run(struct life *life)
{
    int status = set_up(life) == 0 ? serve(life) : 1;

    tear_down(life);
    return status;
}

/* Runs in a child of its own; returns in the parent, with its exit status. */
static int run_in_background(struct life *life)
{
    int ended = 0, who = qm_background_start(&life->parent, &ended);

    if (who == 0)
        exit(run(life));
    /* It said what was wrong, unless a signal ended it. */
    if (ended > 0)
        qm_mount_log(LOG_ERR, "ended by a signal: %s", strsignal(ended));
    else if (ended < 0)
        qm_mount_log(LOG_ERR, "%s", strerror(-ended));
    return who == 1 ? 0 : 1;
}

int qm_cmd_mount(int argc, char **argv)
{
    struct qm_mount_options options;
    struct life life = {.options = &options,
                        .place = QM_PLACE_NONE,
                        .parent = -1,
                        .pid_file = QM_PIDFILE_NONE,
                        .owner = QM_OWNER_NONE};
    int status = 1;

    qm_mount_parse(&options, argc, argv);
    if (options.stats)
        return print_stats(&options);
    qm_mount_log_fuse();
    ending = &life;
    qm_background_tidy(tidy);
    if (prepare_file(&life, options.file) == 0 && prepare_paths(&life) == 0)
        status = options.foreground ? run(&life) : run_in_background(&life);
    /* Nothing is left behind that was not there before. */
    if (status != 0 && life.created)
        qm_place_remove(&life.place, &life.st);
    if (status != 0)
        qm_pidfile_remove(&life.pid_file);
    qm_background_tidied();
    qm_place_close(&life.place);
    free(life.socket);
    return status;
}
