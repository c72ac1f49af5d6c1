/* SPDX-License-Identifier: BSD-3-Clause */
/* patience.h - for how long a read waits for what the kernel tells of it.
 *
 * A read is written into the kernel's ring before its request is sent.  So when the
 * ring has been read up to where it stood as the request arrived, nothing more will
 * come, and nothing is waited for.  What the ring holds cannot be read while a
 * processor is still writing a record before it: that takes less than a microsecond,
 * unless the processor itself stands still.  In a virtual machine it may, for some tens
 * of milliseconds. Then it is waited for, up to a bound; and no longer once the bound
 * was met several times in a row, until something comes again.
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

/* What is known of a read after a look into the ring. */
struct qm_patience_look {
    bool known;      /* the ring has told of it */
    bool past;       /* the ring has been read up to where it stood at the arrival */
    uint64_t waited; /* ns, so far */
};

/* Returns for how many ns to wait before the next look; 0: there is to be none. */
uint64_t qm_patience_next(struct qm_patience *patience,
                          const struct qm_patience_look *look);

#endif
