/* SPDX-License-Identifier: BSD-3-Clause */
/* cpu.h - how busy this machine's processors are, from /proc/stat. */
#ifndef QM_ROWCACHE_READAHEAD_CPU_H
#define QM_ROWCACHE_READAHEAD_CPU_H

#include <stdbool.h>
#include <stdint.h>

struct qm_cpu {
    uint64_t total, idle; /* ticks, of the last reading; 0: none */
};

/* From one "cpu" line: the busy part, 0 to 1, since the last.  Programs of a low
 * priority (nice) leave the processors to others: their time is idle.  False: it is
 * none, or the first, or no time has passed. */
bool qm_cpu_parse(struct qm_cpu *last, const char *line, double *busy);
/* From /proc/stat. */
bool qm_cpu_read(struct qm_cpu *last, double *busy);

#endif
