/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.h - which blocks of a new file are to be warmed, in a mode. */
#ifndef QM_LSM_PLAN_H
#define QM_LSM_PLAN_H

#include "lsm/qmlsm.h"
#include "lsm/watch.h"

#define PLAN_READ_COST                                                                 \
    .03 /* a block read now, in order, against one read on demand                      \
         */

/* Sets want[i] for each block of the shape; returns how many.  price: that of
 * price_now(), 0 if the cache has room.  window: intervals that a block stays in it. */
uint32_t plan_blocks(enum qm_lsm_mode mode, struct family *family,
                     const struct shape *shape, double price, double window,
                     uint8_t *want);

#endif
