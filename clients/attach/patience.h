/* SPDX-License-Identifier: BSD-3-Clause */
/* patience.h - for how long a read waits for the kernel's event about it.
 *
 * The kernel writes a read's event into its ring before it sends the request.  When the
 * ring has been read up to its end at the request's arrival, no event will follow, and
 * the read does not wait.  An event cannot be read while a processor still writes a
 * record before it.  That takes less than a microsecond, unless the processor stands
 * still, for some tens of milliseconds in a virtual machine.  The read then waits, up
 * to a bound.  After several waits in vain in a row, reads do not wait until an event
 * comes again.
 */
#ifndef QM_ATTACH_PATIENCE_H
#define QM_ATTACH_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#define QM_PATIENCE_MOST  UINT64_C(200000000) /* ns, for one read */
#define QM_PATIENCE_BLIND 16                  /* reads in a row that waited in vain */

struct qm_patience {
    unsigned vain; /* in a row */
};

/* A read's state after a look into the ring. */
struct qm_patience_look {
    bool known;      /* the ring has told of it */
    bool past;       /* the ring has been read up to where it stood at the arrival */
    uint64_t waited; /* ns, so far */
};

/* Returns for how many ns to wait before the next look; 0: there is to be none. */
uint64_t qm_patience_next(struct qm_patience *patience,
                          const struct qm_patience_look *look);

#endif
