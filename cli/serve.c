/* SPDX-License-Identifier: BSD-3-Clause */
/* serve.c - quickmine serve: a server, a mount or an agent as a file describes it.
 *
 * It becomes nbdkit by execve(), so that the service manager's main process, its
 * signals and its exit status are nbdkit's.  What it adds is done before: the file is
 * checked as a whole, the device is locked, a socket that a killed server left is
 * removed.
 *
 * The parameters of the filters and of the plugin are not listed here: what serve does
 * not know is handed on, and they say what they think of it.  --check has nbdkit ask
 * them, with the filter's check-only=on, which ends it before anything is opened.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/serve.h"
#include "clients/protocol/stale-socket.h"
#ifdef QM_HAVE_MOUNT
#include "clients/mount/mount.h"
#endif

struct options {
    const char *path;
    bool check, print, reload;
    const char *client; /* "mount" or "agent"; NULL: the server */
};

/* A program's arguments, which are its own. */
struct command {
    char **argv;
    size_t n;
};

static void push(struct command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends the program where there is no memory: it has not begun anything. */
static void push(struct command *command, const char *format, ...)
{
    va_list args;
    int n;

    command->argv = realloc(command->argv, (command->n + 2) * sizeof(char *));
    va_start(args, format);
    n = command->argv ? vasprintf(&command->argv[command->n], format, args) : -1;
    va_end(args);
    if (n == -1)
        exit(cli_fail("out of memory"));
    command->argv[++command->n] = NULL;
}

static void free_command(struct command *command)
{
    for (size_t i = 0; i < command->n; i++)
        free(command->argv[i]);
    free(command->argv);
}

/* As a shell reads it. */
static int print_command(const struct command *command)
{
    for (size_t i = 0; i < command->n; i++) {
        const char *word = command->argv[i];

        if (i > 0)
            putchar(' ');
        if (word[0] != '\0' && word[strspn(word, "abcdefghijklmnopqrstuvwxyz"
                                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                 "0123456789-_=/.,:+@%")] == '\0') {
            fputs(word, stdout);
            continue;
        }
        putchar('\'');
        for (; *word; word++)
            fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, stdout);
        putchar('\'');
    }
    putchar('\n');
    return cli_end_output(CLI_OK);
}

/* --- nbdkit --- */

static void push_filters(struct command *command, const struct serve_file *file)
{
    push(command, "--filter=%s", serve_value(file, "quickmine-filter", "quickmine"));
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->settings[i].key, "filter") == 0)
            push(command, "--filter=%s", file->settings[i].value);
}

/* check: nbdkit is to check its parameters only.  Should it ever go on, it finds that
 * it cannot listen there. */
static struct command nbdkit_command(const struct serve_server *server, bool check)
{
    const struct serve_file *file = server->file;
    struct command command = {0};

    push(&command, "%s", serve_value(file, "nbdkit", "nbdkit"));
    push(&command, "--foreground");
    if (check) {
        push(&command, "--unix=/dev/null/checked");
    } else if (server->socket) {
        push(&command, "--unix=%s", server->socket);
    } else {
        push(&command, "--ipaddr=%s", server->host);
        push(&command, "--port=%s", server->port);
    }
    if (serve_find(file, "threads"))
        push(&command, "--threads=%s", serve_value(file, "threads", ""));
    if (server->read_only)
        push(&command, "--readonly");
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->settings[i].key, "nbdkit-option") == 0)
            push(&command, "%s", file->settings[i].value);
    if (check) /* the last --log counts: the user is to see what is wrong */
        push(&command, "--log=stderr");
    push_filters(&command, file);
    push(&command, "%s", serve_value(file, "backend", ""));
    for (size_t i = 0; i < file->n; i++)
        if (serve_of_group(&file->settings[i], "backend"))
            push(&command, "%s=%s", serve_of_group(&file->settings[i], "backend"),
                 file->settings[i].value);
    for (size_t i = 0; i < file->n; i++)
        if (!serve_is_own(file->settings[i].key))
            push(&command, "%s=%s", file->settings[i].key, file->settings[i].value);
    if (server->stats)
        push(&command, "stats=%s", server->stats);
    if (server->control)
        push(&command, "control=%s", server->control);
    if (check)
        push(&command, "check-only=on");
    return command;
}

/* Runs it to its end.  Returns its exit status; 127 where it cannot be run. */
static int run(const struct command *command, bool quiet)
{
    posix_spawn_file_actions_t actions;
    extern char **environ;
    pid_t child;
    int status, error;

    posix_spawn_file_actions_init(&actions);
    if (quiet)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY,
                                         0);
    error =
        posix_spawnp(&child, command->argv[0], &actions, NULL, command->argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) {
        cli_fail("%s: %s", command->argv[0], strerror(error));
        return 127;
    }
    if (waitpid(child, &status, 0) != child)
        return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

/* Whether the parameter is a name, which may look like a path. */
static bool is_name(const char *key)
{
    return strcmp(key, "rules-for") == 0 || strcmp(key, "tier-volume") == 0;
}

/* Whether the directory in which the parameter's file is, or will be, is there. */
static int check_directory(const struct serve_file *file, const struct serve_setting *s)
{
    char *directory = strdup(s->value), *slash;
    int there;

    if (!directory)
        exit(cli_fail("out of memory"));
    slash = strrchr(directory, '/');
    slash[slash == directory] = '\0';
    there = access(directory, X_OK);
    free(directory);
    return there == 0 || errno == EACCES ? 0
                                         : serve_wrong(file, s, "is in no directory");
}

/* Has the plugin say that it is there; then all of them what they think of their
 * parameters. */
static int check_with_nbdkit(const struct serve_server *server)
{
    const struct serve_file *file = server->file;
    struct command plugin = {0}, command;
    int status;

    for (size_t i = 0; i < file->n; i++)
        if (!serve_is_own(file->settings[i].key) && !is_name(file->settings[i].key) &&
            file->settings[i].value[0] == '/' &&
            check_directory(file, &file->settings[i]) == -1)
            return -1;
    push(&plugin, "%s", serve_value(file, "nbdkit", "nbdkit"));
    push(&plugin, "--dump-plugin");
    push(&plugin, "%s", serve_value(file, "backend", ""));
    status = run(&plugin, true);
    free_command(&plugin);
    if (status == 127)
        return -1;
    if (status != 0)
        return serve_wrong(file, serve_find(file, "backend"),
                           "is no plugin of nbdkit here");

    command = nbdkit_command(server, true);
    status = run(&command, true);
    free_command(&command);
    if (status == 0)
        return 0;
    if (status != 127)
        cli_fail("%s: nbdkit refuses its parameters, see above", file->path);
    return -1;
}

static int check_backend_file(const struct serve_server *server)
{
    for (size_t i = 0; i < server->file->n; i++) {
        const struct serve_setting *s = &server->file->settings[i];
        const char *key = serve_of_group(s, "backend");

        if (key && strcmp(key, "file") == 0 &&
            access(s->value, server->read_only ? R_OK : R_OK | W_OK) == -1)
            return serve_wrong(server->file, s, strerror(errno));
    }
    return 0;
}

/* The place for the socket: its directory, if it is the one that nobody chose, and
 * nothing there but perhaps what a killed server left. */
static int prepare_socket(const struct serve_server *server)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;

    if (!server->socket)
        return 0;
    if (!serve_find(server->file, "socket")) {
        char directory[sizeof address.sun_path];

        snprintf(directory, sizeof directory, SERVE_RUN "/%s", server->file->name);
        mkdir(SERVE_RUN, 0755);
        mkdir(directory, 0750);
    }
    snprintf(address.sun_path, sizeof address.sun_path, "%s", server->socket);
    qm_socket_remove_stale(&address, SOCK_STREAM);
    if (lstat(server->socket, &st) == -1)
        return 0;
    cli_fail(S_ISSOCK(st.st_mode) ? "%s: a server listens there already"
                                  : "%s: something that is no socket is there",
             server->socket);
    return -1;
}

static int serve(const struct options *options, const struct serve_file *file)
{
    const char *locks = serve_value(file, "lock-directory", SERVE_RUN "/lock");
    struct serve_server server;
    struct command command = {0};
    int status = CLI_FAILED;

    if (serve_server_read(&server, file) == -1)
        goto out;
    if (strlen(file->name) > 64) {
        cli_fail("%s: the name is longer than 64 bytes", file->path);
        goto out;
    }
    if (strcmp(file->name, "lock") == 0) {
        cli_fail("%s: a server cannot be named lock: " SERVE_RUN
                 "/lock, which would be its directory, has the locks of all servers; "
                 "give the file another name",
                 file->path);
        goto out;
    }
    command = nbdkit_command(&server, false);
    if (options->print) {
        status = print_command(&command);
        goto out;
    }
    if (options->reload) {
        status = serve_reload(&server) == 0 ? cli_end_output(CLI_OK) : CLI_FAILED;
        goto out;
    }
    if (options->check) {
        if (check_backend_file(&server) == 0 && check_with_nbdkit(&server) == 0)
            status = CLI_OK;
        goto out;
    }
    if (!serve_find(file, "lock-directory")) {
        mkdir(SERVE_RUN, 0755);
        mkdir(locks, 0700);
    }
    if (serve_lock(file, locks, server.read_only) == -1 ||
        prepare_socket(&server) == -1 || serve_announce(&server) == -1)
        goto out;
#ifdef QM_PRELOAD_ALLOCATOR
    if (strcmp(serve_value(file, "allocator", "jemalloc"), "jemalloc") == 0)
        setenv("LD_PRELOAD", QM_PRELOAD_ALLOCATOR, 0);
#endif
    fflush(stdout);
    execvp(command.argv[0], command.argv);
    cli_fail("%s: %s", command.argv[0], strerror(errno));
out:
    free_command(&command);
    serve_server_free(&server);
    return status;
}

/* --- the clients --- */

/* An option for each "CLIENT.OPTION = VALUE". */
static void push_options(struct command *command, const struct serve_file *file,
                         const char *client)
{
    push(command, "quickmine %s", client);
    for (size_t i = 0; i < file->n; i++) {
        const char *option = serve_of_group(&file->settings[i], client);

        if (option && strcmp(file->settings[i].value, "on") == 0)
            push(command, "--%s", option);
        else if (option)
            push(command, "--%s=%s", option, file->settings[i].value);
    }
}

static int run_client(const struct options *options, const struct serve_file *file)
{
    int (*client)(int argc, char **argv) = NULL;
    char **argv;
    struct command command = {0};
    struct serve_server server = {.file = file};
    int status = CLI_FAILED;

    push_options(&command, file, options->client);
    if (strcmp(options->client, "agent") == 0) {
#ifdef QM_HAVE_BPF
        client = qm_cmd_agent;
#endif
        if (!serve_find(file, "agent.device") && !serve_find(file, "agent.check")) {
            cli_fail("%s: agent.device is missing: the block device whose reads are "
                     "watched",
                     file->path);
            goto out;
        }
    } else {
#ifdef QM_HAVE_MOUNT
        client = qm_cmd_mount;
#endif
        if (!serve_find(file, "mount")) {
            cli_fail("%s: mount is missing: the file that the device is to be",
                     file->path);
            goto out;
        }
        if (serve_server_addresses(&server) == -1)
            goto out;
        if (!serve_find(file, "mount.pidfile"))
            push(&command, "--pidfile=" SERVE_RUN "-%s-mount.pid", file->name);
        /* What needs the mount is not started for good where it fails. */
        if (!serve_find(file, "mount.patient"))
            push(&command, "--patient");
        push(&command, "%s", serve_value(file, "uri", server.uri));
        push(&command, "%s", serve_value(file, "mount", ""));
    }
    if (options->print)
        status = print_command(&command);
    else if (options->check)
        status = CLI_OK;
    else if (!client)
        cli_fail("this program was built without quickmine %s", options->client);
    else {
        /* Parsers put words of their own into the array, so they get a copy of it. */
        argv = malloc((command.n + 1) * sizeof *argv);
        if (!argv)
            exit(cli_fail("out of memory"));
        memcpy(argv, command.argv, (command.n + 1) * sizeof *argv);
        status = client((int)command.n, argv);
        free(argv);
    }
out:
    free_command(&command);
    serve_server_free(&server);
    return status;
}

/* --- the command line --- */

enum { OPT_CHECK = 256, OPT_PRINT, OPT_RELOAD, OPT_MOUNT, OPT_AGENT };

static const struct argp_option argp_options[] = {
    {"check", OPT_CHECK, NULL, 0,
     "Say what is wrong with FILE, the plugin's parameters included, and start nothing",
     0},
    {"print", OPT_PRINT, NULL, 0, "Print the command that would be run", 0},
    {"reload", OPT_RELOAD, NULL, 0,
     "Have the running server change what can be changed to what FILE says", 0},
    {"mount", OPT_MOUNT, NULL, 0, "Run quickmine mount as FILE says, not the server",
     0},
    {"agent", OPT_AGENT, NULL, 0, "Run quickmine agent as FILE says, not the server",
     0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *options = state->input;

    switch (key) {
    case OPT_CHECK:
        options->check = true;
        return 0;
    case OPT_PRINT:
        options->print = true;
        return 0;
    case OPT_RELOAD:
        options->reload = true;
        return 0;
    case OPT_MOUNT:
    case OPT_AGENT:
        if (options->client)
            argp_error(state, "either --mount or --agent");
        options->client = key == OPT_MOUNT ? "mount" : "agent";
        return 0;
    case ARGP_KEY_ARG:
        if (options->path)
            argp_error(state, "one file only; '%s' is too many", arg);
        options->path = arg;
        return 0;
    case ARGP_KEY_END:
        if (!options->path)
            argp_error(state, "which file?");
        if (options->check + options->print + options->reload > 1)
            argp_error(state, "either --check, --print or --reload");
        if (options->reload && options->client)
            argp_error(state, "only a server can be given --reload");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = argp_options,
    .parser = parse,
    .args_doc = "FILE",
    .doc =
        "Runs a server as FILE describes it: becomes nbdkit with the filter, with the "
        "device locked.\vFILE has lines KEY = VALUE.  See quickmine-serve(1).",
};

int qm_cmd_serve(int argc, char **argv)
{
    struct options options = {0};
    struct serve_file file;
    int status = CLI_FAILED;

    argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (serve_file_read(&file, options.path) == 0)
        status = options.client ? run_client(&options, &file) : serve(&options, &file);
    serve_file_free(&file);
    return status;
}
