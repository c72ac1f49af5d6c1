/* SPDX-License-Identifier: BSD-3-Clause */
/* gids.c - what a process with CAP_SETGID can do with it.
 *
 *   plugin-gids deny NAME... -- COMMAND...
 *       runs COMMAND where these system calls fail, as under systemd's
 *       SystemCallFilter=~NAME..., SystemCallArchitectures=native and
 *       RestrictNamespaces=yes
 *   plugin-gids try
 *       tries each system call that changes a group id, and prints its name and "yes"
 *       or "no"
 */
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#else
#define ARCH AUDIT_ARCH_X86_64
#endif
#define CONTEXT_GID 0x51000007 /* quickmine-mount.h */
#define DISK        6

static const struct {
    const char *name;
    int number; /* -1: not of this architecture */
} calls[] = {
    {"setgid", SYS_setgid},       {"setregid", SYS_setregid},
    {"setresgid", SYS_setresgid}, {"setgroups", SYS_setgroups},
    {"setfsgid", SYS_setfsgid},   {"setgid32", -1},
    {"setregid32", -1},           {"setresgid32", -1},
    {"setgroups32", -1},          {"unshare", SYS_unshare},
    {"setns", SYS_setns},
};

static int number_of(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(name, calls[i].name) == 0)
            return calls[i].number;
    fprintf(stderr, "no system call %s is known here\n", name);
    exit(2);
}

static int deny(char **argv)
{
    struct sock_filter filter[64] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    };
    struct sock_fprog program = {.len = 6, .filter = filter};

    for (; *argv && strcmp(*argv, "--") != 0; argv++) {
        int number = number_of(*argv);

        if (number == -1)
            continue;
        if (program.len > 50)
            return 2;
        filter[program.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                             (unsigned)number, 0, 1);
        filter[program.len++] =
            (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    if (!*argv || !argv[1])
        return 2;
    for (int i = 0; i < 2; i++) { /* no user namespaces */
        filter[program.len++] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, i ? SYS_clone : SYS_unshare, 0, 4);
        filter[program.len++] = (struct sock_filter)BPF_STMT(
            BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
        filter[program.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K,
                                                             CLONE_NEWUSER, 0, 1);
        filter[program.len++] =
            (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
        filter[program.len++] =
            (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[program.len++] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == -1) {
        perror("prctl");
        return 1;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 1;
}

static gid_t fsgid(void)
{
    return (gid_t)syscall(SYS_setfsgid, UINT32_MAX);
}

static int is_group(gid_t gid)
{
    gid_t groups[64], r, e, s;
    int n = getgroups(64, groups);

    for (int i = 0; i < n; i++)
        if (groups[i] == gid)
            return 1;
    getresgid(&r, &e, &s);
    return r == gid || e == gid || s == gid || fsgid() == gid;
}

static void by_setfsgid_own(void)
{
    syscall(SYS_setfsgid, CONTEXT_GID);
    syscall(SYS_setfsgid, getegid());
}
static void by_setfsgid_context(void)
{
    syscall(SYS_setfsgid, CONTEXT_GID);
}
static void by_setfsgid(void)
{
    syscall(SYS_setfsgid, DISK);
}
/* The kernel looks at the lower half of a register only. */
static void by_setfsgid_wide(void)
{
    syscall(SYS_setfsgid, UINT64_C(1) << 40 | DISK);
}
static void by_setgid(void)
{
    syscall(SYS_setgid, DISK);
}
static void by_setregid(void)
{
    syscall(SYS_setregid, -1, DISK);
}
static void by_setresgid(void)
{
    syscall(SYS_setresgid, -1, -1, DISK);
}
static void by_setgroups(void)
{
    gid_t gid = DISK;

    syscall(SYS_setgroups, 1, &gid);
}

static void by_compat(void)
{
#ifdef __x86_64__
    long r;

    /* i386: setgid32, setfsgid32, setregid32. */
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(214L), "b"((long)DISK) : "memory");
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(216L), "b"((long)DISK) : "memory");
    __asm__ volatile("int $0x80"
                     : "=a"(r)
                     : "a"(204L), "b"(-1L), "c"((long)DISK)
                     : "memory");
    /* x32: setgid, setfsgid. */
    syscall(0x40000000 + SYS_setgid, DISK);
    syscall(0x40000000 + SYS_setfsgid, DISK);
#endif
}

/* Each in a process of its own. */
static void print(const char *name, void (*how)(void), gid_t gid)
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        how();
        _exit(is_group(gid) ? 17 : 0);
    }
    waitpid(pid, &status, 0);
    printf("%s %s\n", name,
           WIFEXITED(status) && WEXITSTATUS(status) == 17 ? "yes" : "no");
}

static void print_namespaces(void)
{
    struct {
        uint64_t flags, rest[10];
    } args = {.flags = CLONE_NEWUSER, .rest = {0, 0, 0, SIGCHLD}};
    long pid;

    fflush(stdout);
    if (fork() == 0) {
        printf("unshare %s\n", unshare(CLONE_NEWUSER) == 0 ? "yes" : "no");
        exit(0);
    }
    wait(NULL);
    fflush(stdout);
    pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    printf("clone %s\n", pid > 0 ? "yes" : "no");
    fflush(stdout);
    pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        _exit(0);
    printf("clone3 %s\n", pid > 0 ? "yes" : "no");
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "deny") == 0)
        return deny(argv + 2);
    if (argc != 2 || strcmp(argv[1], "try") != 0 || is_group(DISK))
        return 2;
    print("context", by_setfsgid_context, CONTEXT_GID);
    print("back", by_setfsgid_own, getegid());
    print("setfsgid", by_setfsgid, DISK);
    print("wide", by_setfsgid_wide, DISK);
    print("setgid", by_setgid, DISK);
    print("setregid", by_setregid, DISK);
    print("setresgid", by_setresgid, DISK);
    print("setgroups", by_setgroups, DISK);
    print("compat", by_compat, DISK);
    print_namespaces();
    return 0;
}
