/* SPDX-License-Identifier: BSD-3-Clause */
/* ioprio.h - what ioprio.bpf.c tells of a read. */
#ifndef TESTS_KERNEL_IOPRIO_H
#define TESTS_KERNEL_IOPRIO_H

struct inserted {
    unsigned long long sector;
    unsigned int bytes, ioprio;
};

#endif
