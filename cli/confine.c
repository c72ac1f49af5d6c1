/* SPDX-License-Identifier: BSD-3-Clause */
/* confine.c - quickmine confine: a program that needs CAP_SETGID for contexts alone.
 *
 * The capability lets a process act as any group: setfsgid() to group disk, and the
 * disks' device files are open to it.  The filter allows setfsgid() to the group ids
 * that mean contexts, back to the program's own, and nothing else that the capability
 * allows by a system call of its own.  In a user namespace of the program's making a
 * group id of a context could be mapped to any other one, so it cannot make one.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/capability.h>

#include "cli/cli.h"
#include "clients/protocol/quickmine-mount.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

static error_t parse(int key, char *arg, struct argp_state *state)
{
    char ***command = state->input;

    switch (key) {
    case ARGP_KEY_ARG:
        (void)arg;
        *command = state->argv + state->next - 1;
        state->next = state->argc; /* what follows is the command's */
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which command?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .parser = parse,
    .args_doc = "COMMAND [ARGUMENTS...]",
    .doc =
        "Runs a command that may use CAP_SETGID for the contexts of a mount, and for "
        "nothing else.\vSee quickmine-confine(1).",
};

#ifdef ARCH

#define LOAD(field)                                                                    \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF(op, value, yes, no) BPF_JUMP(BPF_JMP | (op) | BPF_K, (value), (yes), (no))
#define RETURN(value)          BPF_STMT(BPF_RET | BPF_K, (value))
#define ALLOW                  RETURN(SECCOMP_RET_ALLOW)
#define FAIL(error)            RETURN(SECCOMP_RET_ERRNO | (error))
/* If it is that call, it fails. */
#define DENY(name, error) IF(BPF_JEQ, SYS_##name, 0, 1), FAIL(error)
/* The lower half of the first argument: group ids and clone flags have 32 bits, and the
 * kernel looks at no more of them. */
#define LOAD_ARGUMENT LOAD(args[0]) /* little-endian, as both architectures are */

/* Confines this process, and all that it becomes or starts, for good. */
static int confine(void)
{
    struct sock_filter filter[] = {
        /* Calls by other tables (32 bits, x32) have other numbers: none of them. */
        LOAD(arch),
        IF(BPF_JEQ, ARCH, 1, 0),
        FAIL(ENOSYS),
        LOAD(nr),
#ifdef __x86_64__
        IF(BPF_JGE, 0x40000000, 0, 1),
        FAIL(ENOSYS),
#endif
        DENY(setgid, EPERM),
        DENY(setregid, EPERM),
        DENY(setresgid, EPERM),
        DENY(setgroups, EPERM),
        DENY(setns, EPERM),
        DENY(clone3, ENOSYS), /* its flags are in memory; C libraries fall back */
        IF(BPF_JEQ, SYS_clone, 1, 0),
        IF(BPF_JEQ, SYS_unshare, 0, 4),
        LOAD_ARGUMENT,
        IF(BPF_JSET, CLONE_NEWUSER, 0, 1),
        FAIL(EPERM),
        ALLOW,
        IF(BPF_JEQ, SYS_setfsgid, 1, 0),
        ALLOW,
        LOAD_ARGUMENT,
        IF(BPF_JEQ, getegid(), 3, 0),
        IF(BPF_JEQ, UINT32_MAX, 2, 0), /* no id: asks what it is */
        IF(BPF_JGE, QM_MOUNT_GID_END, 2, 0),
        IF(BPF_JGE, QM_MOUNT_GID_BASE, 0, 1),
        ALLOW,
        FAIL(EPERM),
    };
    const struct sock_fprog program = {
        .len = sizeof filter / sizeof *filter,
        .filter = filter,
    };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == -1)
        return cli_fail("the program cannot be confined: %s", strerror(errno));
    return CLI_OK;
}

#else

static int confine(void)
{
    return cli_fail("there is no filter for this processor's system calls");
}

#endif

int qm_cmd_confine(int argc, char **argv)
{
    char **command = NULL;

    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &command);
    if (geteuid() == 0 || getuid() == 0)
        return cli_fail(
            "root needs no group to open every file, so this would confine "
            "nothing: run it as another user (User= of systemd, or setpriv)");
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_SETGID, 0, 0) != 1)
        return cli_fail(
            "CAP_SETGID is not in the ambient set, so the command could "
            "announce no context (AmbientCapabilities=CAP_SETGID of systemd)");
    if (confine() != CLI_OK)
        return CLI_FAILED;
    execvp(command[0], command);
    return cli_fail("%s: %s", command[0], strerror(errno));
}
