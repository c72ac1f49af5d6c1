/* SPDX-License-Identifier: BSD-3-Clause */
/* sequential.h - how long the run is that a read continues, as bcache counts it for its
 * sequential cut-off: of the last 128 runs, told apart by where they read on. */
#ifndef QM_SIM_SEQUENTIAL_H
#define QM_SIM_SEQUENTIAL_H

#include <stdint.h>

enum { QM_SEQUENTIAL_RUNS = 128 };

/* Zeros are the beginning. */
struct qm_sequential {
    struct {
        uint64_t next;  /* block behind the last read */
        uint64_t bytes; /* 0: free */
        uint64_t used;  /* when, by `now` */
    } runs[QM_SEQUENTIAL_RUNS];
    uint64_t now;
};

/* A block, of `bytes` bytes, is read.  Returns the bytes of its run until now, its own
 * included. */
uint64_t qm_sequential_read(struct qm_sequential *s, uint64_t block, uint64_t bytes);

#endif
