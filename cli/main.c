/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c - the one command: finds the subcommand and runs it. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "cli/cli.h"
#ifdef QM_HAVE_MOUNT
#include "clients/mount/mount.h"
#endif

static const struct cli_command commands[] = {
    {"trace", qm_cmd_trace, "describe, cut and convert traces", cli_trace_commands},
    {"mine", qm_cmd_mine, "mine a trace and print its rules", NULL},
    {"sim", qm_cmd_sim, "simulate the storage cache on a trace", NULL},
    {"advise", qm_cmd_advise, "say whether it pays, and with how much memory", NULL},
    {"replay", qm_cmd_replay, "replay a trace against a live server", NULL},
    {"stat", qm_cmd_stat, "print a live server's statistics", NULL},
    {"top", qm_cmd_top, "watch a live server", NULL},
    {"serve", qm_cmd_serve, "run a server as a configuration file describes it", NULL},
    {"set", qm_cmd_set, "change a live server's parameters", NULL},
    {"get", qm_cmd_get, "print a live server's parameters that can be changed", NULL},
    {"tier", qm_cmd_tier, "attach and detach a live server's second tier",
     cli_tier_commands},
    {"extents", qm_cmd_extents, "tell a server where files lie", NULL},
#ifdef QM_HAVE_ROWCACHE
    {"rowcache", qm_cmd_rowcache, "serve rows of MariaDB by the Redis protocol", NULL},
#endif
#ifdef QM_HAVE_LSM
    {"lsm", qm_cmd_lsm, "train models for libquickmine-lsm", NULL},
#endif
    {"confine", qm_cmd_confine, "run a program that uses CAP_SETGID for contexts only",
     NULL},
#ifdef QM_HAVE_BPF
    {"agent", qm_cmd_agent, "find the contexts of a local device's reads", NULL},
#endif
#ifdef QM_HAVE_ATTACH
    {"attach", qm_cmd_attach, "make a server's device /dev/nbdN, with contexts", NULL},
    {"detach", qm_cmd_detach, "end a /dev/nbdN of attach", NULL},
#endif
#ifdef QM_HAVE_MOUNT
    {"mount", qm_cmd_mount, "mount a server's device as a file that carries contexts",
     NULL},
#endif
    {NULL, NULL, NULL, NULL},
};

/* The first file that is opened would get the number of a standard descriptor that is
 * closed, and messages would be written to it: to the device that serve locks, say.
 * What is opened in its place cannot be used for what the number is for, so output
 * still fails.  Returns false if that cannot be done. */
static bool hold_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    if (!hold_standard_descriptors())
        return CLI_FAILED;
    /* If it was inherited as ignored, waitpid() would get no exit status of a child. */
    signal(SIGCHLD, SIG_DFL);
    argp_err_exit_status = CLI_USAGE;
    argp_program_version = "quickmine " QM_VERSION;
    return cli_dispatch(commands, "quickmine", "quickmine(1)", argc, argv);
}
