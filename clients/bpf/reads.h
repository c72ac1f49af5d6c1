/* SPDX-License-Identifier: BSD-3-Clause */
/* reads.h - what the BPF program tells of a read.  Shared with it, so it includes
 * nothing. */
#ifndef QM_BPF_READS_H
#define QM_BPF_READS_H

struct qm_bpf_read {
    unsigned long long ns;     /* CLOCK_MONOTONIC */
    unsigned long long sector; /* of 512 bytes, on the whole disk */
    unsigned long long word;   /* of the thread (quickmine-agent.h); 0: none */
    unsigned int bytes;
    unsigned int disk;    /* major << 20 | first minor */
    unsigned int process; /* tgid, in the initial PID namespace */
    unsigned int thread;
    unsigned int flags; /* QM_BPF_* */
    unsigned int reserved;
    char name[16]; /* of the thread, terminated */
};

#define QM_BPF_KNOWN     1u /* the process is registered, so `word` was read */
#define QM_BPF_KERNEL    2u /* a kernel thread */
#define QM_BPF_READAHEAD 4u
#define QM_BPF_WRITE     8u /* it is no read */

#endif
