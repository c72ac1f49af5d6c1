/* SPDX-License-Identifier: BSD-3-Clause */
/* stat.h - what all backends have counted, in shared memory. */
#ifndef QM_POSTGRESQL_STAT_H
#define QM_POSTGRESQL_STAT_H

#include "postgresql/contexts.h"

/* To be called while shared_preload_libraries are being loaded. */
void qm_stat_reserve(void);

/* This backend's counters.  No living backend shares them; earlier ones may have added
 * to them. */
struct qm_counts *qm_stat_of_backend(void);

/* What this backend shows the others: a number, at first 0.  Returns what it showed
 * before. */
uint64_t qm_stat_show(uint64_t number);

/* Of the backend that this parallel worker works for: its process, and what it shows;
 * 0: there is none. */
uint64_t qm_stat_of_leader(int *process);

/* Whether this process may look for the agent, and since when it does (ms).  With an
 * agent that hangs that takes a second: then one process in ten seconds may, and the
 * others do not wait. */
bool qm_stat_may_look(uint64_t *since);
/* It has looked. */
void qm_stat_looked(uint64_t since, bool connected);

#endif
