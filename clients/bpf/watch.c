/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - see watch.h. */
#include "clients/bpf/watch.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "reads.skel.h"

#define DRAIN_MOST 8192

struct qm_watch {
    struct qm_reads_bpf *program;
    struct ring_buffer *ring;
    /* The ring's own counters, which libbpf has, too, but only later versions tell. */
    const unsigned long *drained_to, *written_to;
    qm_watch_read *read;
    void *opaque;
    int drained; /* reads, in this call */
};

/* libbpf prints what goes wrong, with advice that does not fit us. */
static int be_silent(enum libbpf_print_level level, const char *format, va_list args)
{
    return 0;
}

static int handle(void *opaque, void *data, size_t size)
{
    struct qm_watch *w = opaque;
    struct qm_bpf_read read;

    if (size < sizeof read)
        return 0;
    memcpy(&read, data, sizeof read);
    w->read(w->opaque, &read);
    /* What comes as fast as it is read would never end. */
    return ++w->drained < DRAIN_MOST ? 0 : -EAGAIN;
}

bool qm_watch_is_confidential(void)
{
    char text[128] = "";
    FILE *f = fopen("/sys/kernel/security/lockdown", "re");

    if (!f)
        return false;
    if (!fgets(text, sizeof text, f))
        *text = '\0';
    fclose(f);
    return strstr(text, "[confidentiality]") != NULL;
}

/* What is missing, as far as it can be told from the error. */
static void explain(int error, char *err, size_t len)
{
    if (access("/sys/kernel/btf/vmlinux", F_OK) != 0)
        snprintf(
            err, len,
            "this kernel has no type information for BPF (/sys/kernel/btf/vmlinux)");
    else if (qm_watch_is_confidential())
        snprintf(
            err, len,
            "the kernel is locked down (lockdown=confidentiality), which keeps BPF "
            "from reading memory");
    else if (error == EPERM || error == EACCES)
        snprintf(err, len,
                 "the kernel does not allow BPF: it takes CAP_BPF and CAP_PERFMON, and "
                 "no lockdown=confidentiality");
    else
        snprintf(err, len, "the BPF program cannot be loaded: %s", strerror(error));
}

static const unsigned long *counter(const struct qm_watch *w, unsigned page)
{
    long size = sysconf(_SC_PAGESIZE);
    void *at = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED,
                    bpf_map__fd(w->program->maps.ring), page * size);

    return at == MAP_FAILED ? NULL : at;
}

static void put_counter(const unsigned long *at)
{
    if (at)
        munmap((void *)at, (size_t)sysconf(_SC_PAGESIZE));
}

static int open_ring(struct qm_watch *w)
{
    w->ring = ring_buffer__new(bpf_map__fd(w->program->maps.ring), handle, w, NULL);
    if (!w->ring)
        return errno;
    w->drained_to = counter(w, 0);
    w->written_to = counter(w, 1);
    return w->drained_to && w->written_to ? 0 : ENOMEM;
}

int qm_watch_open(struct qm_watch **watch, bool writes, qm_watch_read *read,
                  void *opaque, char *err, size_t len)
{
    struct qm_watch *w = calloc(1, sizeof *w);
    int error = 0;

    *watch = NULL;
    if (!w) {
        snprintf(err, len, "out of memory");
        return ENOMEM;
    }
    w->read = read;
    w->opaque = opaque;
    libbpf_set_print(be_silent);
    w->program = qm_reads_bpf__open();
    if (!w->program) {
        error = errno;
    } else {
        w->program->rodata->writes = writes;
        error = -qm_reads_bpf__load(w->program);
        if (error == 0)
            error = -qm_reads_bpf__attach(w->program);
    }
    if (error == 0)
        error = open_ring(w);
    if (error != 0) {
        explain(error, err, len);
        qm_watch_close(w);
        return error;
    }
    *watch = w;
    return 0;
}

void qm_watch_close(struct qm_watch *w)
{
    if (!w)
        return;
    put_counter(w->drained_to);
    put_counter(w->written_to);
    ring_buffer__free(w->ring);
    qm_reads_bpf__destroy(w->program);
    free(w);
}

int qm_watch_device(struct qm_watch *w, dev_t device)
{
    uint32_t number = major(device) << 20 | minor(device), one = 1;

    return -bpf_map__update_elem(w->program->maps.devices, &number, sizeof number, &one,
                                 sizeof one, BPF_ANY);
}

int qm_watch_process(struct qm_watch *w, pid_t process, int64_t offset)
{
    uint32_t number = (uint32_t)process;

    return -bpf_map__update_elem(w->program->maps.processes, &number, sizeof number,
                                 &offset, sizeof offset, BPF_ANY);
}

void qm_watch_forget(struct qm_watch *w, pid_t process)
{
    uint32_t number = (uint32_t)process;

    bpf_map__delete_elem(w->program->maps.processes, &number, sizeof number, 0);
}

int qm_watch_drain(struct qm_watch *w)
{
    w->drained = 0;
    ring_buffer__consume(w->ring);
    return w->drained;
}

uint64_t qm_watch_written(const struct qm_watch *w)
{
    return __atomic_load_n(w->written_to, __ATOMIC_ACQUIRE);
}

uint64_t qm_watch_drained(const struct qm_watch *w)
{
    return __atomic_load_n(w->drained_to, __ATOMIC_ACQUIRE);
}

int qm_watch_fd(const struct qm_watch *w)
{
    return ring_buffer__epoll_fd(w->ring);
}

void qm_watch_sleep(struct qm_watch *w, bool sleeps)
{
    __atomic_store_n(&w->program->bss->asleep, sleeps, __ATOMIC_SEQ_CST);
}

uint64_t qm_watch_lost(const struct qm_watch *w)
{
    return __atomic_load_n(&w->program->bss->lost, __ATOMIC_RELAXED);
}
