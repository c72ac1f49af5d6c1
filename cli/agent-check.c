/* SPDX-License-Identifier: BSD-3-Clause */
/* agent-check.c - `quickmine agent --check`: what this machine allows. */
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/agent.h"
#include "clients/bpf/watch.h"

/* The inode of the initial PID namespace (PROC_PID_INIT_INO). */
#define INITIAL_PIDS 0xeffffffcu

static bool answer(bool good, const char *yes, const char *no)
{
    printf("%s  %s\n", good ? "yes" : "NO ", good ? yes : no);
    return good;
}

static bool has_capability(unsigned number)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    return syscall(SYS_capget, &header, data) == 0 &&
           (data[number / 32].effective & (1u << number % 32));
}

bool agent_sees_all_processes(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == INITIAL_PIDS;
}

static void ignore(void *opaque, const struct qm_bpf_read *read)
{
}

static bool loads(char *err, size_t len)
{
    struct qm_watch *watch;

    if (qm_watch_open(&watch, false, ignore, NULL, err, len) != 0)
        return false;
    qm_watch_close(watch);
    return true;
}

bool agent_check(void)
{
    struct utsname name;
    bool good = true;
    char err[256];

    if (uname(&name) == 0)
        printf("     Linux %s on %s\n", name.release, name.machine);
    good &= answer(access("/sys/kernel/btf/vmlinux", R_OK) == 0,
                   "The kernel has type information for BPF.",
                   "The kernel has no type information for BPF "
                   "(/sys/kernel/btf/vmlinux; CONFIG_DEBUG_INFO_BTF).");
    good &= answer(has_capability(CAP_BPF) || has_capability(CAP_SYS_ADMIN),
                   "This process may load BPF programs (CAP_BPF).",
                   "This process may not load BPF programs: run it as root, or give it "
                   "CAP_BPF.");
    good &= answer(has_capability(CAP_PERFMON) || has_capability(CAP_SYS_ADMIN),
                   "This process may trace the kernel (CAP_PERFMON).",
                   "This process may not trace the kernel: run it as root, or give it "
                   "CAP_PERFMON.");
    good &=
        answer(!qm_watch_is_confidential(), "The kernel is not locked down for BPF.",
               "The kernel is locked down (lockdown=confidentiality), which keeps "
               "BPF from reading memory.");
    good &= answer(agent_sees_all_processes(),
                   "It sees the processes of the whole machine.",
                   "It is in a PID namespace (a container), where the numbers of "
                   "processes are not the kernel's: run it outside.");
    if (good)
        good &= answer(loads(err, sizeof err), "The BPF program loads.", err);
    if (good)
        printf("\nThe agent can work here.\n");
    else
        printf("\nThe agent cannot work here.  Contexts can also go by `quickmine "
               "mount`, or by the preload library: see quickmine-clients(7).\n");
    return good;
}
