/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h - the reads of block devices, as the kernel sees them submitted.
 *
 * Loads the BPF program of reads.bpf.c and drains its ring.  It needs CAP_BPF and
 * CAP_PERFMON, and the kernel's type information (/sys/kernel/btf/vmlinux).
 *
 * Threads: qm_watch_drain() and qm_watch_sleep() by one thread at a time; the others by
 * any, once qm_watch_open() has returned.
 */
#ifndef QM_BPF_WATCH_H
#define QM_BPF_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "clients/bpf/reads.h"

struct qm_watch;

/* Called for each read, in the order of the ring: reads of one thread are in the order
 * in which it submitted them. */
typedef void qm_watch_read(void *opaque, const struct qm_bpf_read *read);

/* Loads and attaches the program, which watches nothing yet.  writes: it tells of
 * these, too.  Returns 0, or an errno value with a sentence in err that says what is
 * missing. */
int qm_watch_open(struct qm_watch **watch, bool writes, qm_watch_read *read,
                  void *opaque, char *err, size_t len);
/* May be NULL. */
void qm_watch_close(struct qm_watch *watch);

/* Watches the reads of a block device, a disk or a partition.  Returns 0 or an errno
 * value. */
int qm_watch_device(struct qm_watch *watch, dev_t device);

/* The word at `offset` from the thread pointer of each thread of a process, by its
 * number in the initial PID namespace, goes into the reads of that thread; and no
 * longer. Returns 0 or an errno value. */
int qm_watch_process(struct qm_watch *watch, pid_t process, int64_t offset);
void qm_watch_forget(struct qm_watch *watch, pid_t process);

/* Hands over what is in the ring, some thousands at most.  Returns how many, without
 * waiting. */
int qm_watch_drain(struct qm_watch *watch);

/* How many bytes of records have been put into the ring, and drained.  What cannot be
 * drained yet is one that is still being written, and what is behind it. */
uint64_t qm_watch_written(const struct qm_watch *watch);
uint64_t qm_watch_drained(const struct qm_watch *watch);

/* For a reader that has found the ring empty for a while: a descriptor that becomes
 * readable at the next read.  Before waiting for it, call qm_watch_sleep(true), and
 * drain once more; after it, qm_watch_sleep(false). */
int qm_watch_fd(const struct qm_watch *watch);
void qm_watch_sleep(struct qm_watch *watch, bool sleeps);

/* Whether lockdown=confidentiality keeps BPF from reading memory. */
bool qm_watch_is_confidential(void);

/* Reads that found the ring full. */
uint64_t qm_watch_lost(const struct qm_watch *watch);

#endif
