/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-extents.h - quickmine sim --extents: where files lie that the trace reads. */
#ifndef QM_CLI_SIM_EXTENTS_H
#define QM_CLI_SIM_EXTENTS_H

#include <stddef.h>

#include "engine/engine.h"

/* All zeros is none. */
struct sim_extents {
    struct qm_bytes *items; /* one of length 0 ends a file */
    size_t n;
};

/* Reads what `quickmine extents --print` prints.  Prints what goes wrong; returns an
 * exit status. */
int sim_extents_read(const char *path, struct sim_extents *extents);
void sim_extents_free(struct sim_extents *extents);

#endif
