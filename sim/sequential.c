/* SPDX-License-Identifier: BSD-3-Clause */
/* sequential.c - see sequential.h. */
#include "sim/sequential.h"

uint64_t qm_sequential_read(struct qm_sequential *s, uint64_t block, uint64_t bytes)
{
    unsigned run = 0;

    for (unsigned i = 0; i < QM_SEQUENTIAL_RUNS; i++) {
        if (s->runs[i].bytes > 0 && s->runs[i].next == block) {
            run = i;
            break;
        }
        if (s->runs[i].used < s->runs[run].used)
            run = i;
    }
    if (s->runs[run].next != block)
        s->runs[run].bytes = 0;
    s->runs[run].next = block + 1;
    s->runs[run].bytes += bytes;
    s->runs[run].used = ++s->now;
    return s->runs[run].bytes;
}
