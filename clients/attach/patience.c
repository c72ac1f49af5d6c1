/* SPDX-License-Identifier: BSD-3-Clause */
/* patience.c - see patience.h. */
#include "clients/attach/patience.h"

#define SHORTEST UINT64_C(20000) /* ns */
#define LONGEST  UINT64_C(2000000)

uint64_t qm_patience_next(struct qm_patience *patience,
                          const struct qm_patience_look *look)
{
    uint64_t nap = look->waited / 2;

    if (look->known) {
        patience->vain = 0;
        return 0;
    }
    if (look->past || patience->vain >= QM_PATIENCE_BLIND)
        return 0;
    if (look->waited >= QM_PATIENCE_MOST) {
        patience->vain++;
        return 0;
    }
    if (nap < SHORTEST)
        nap = SHORTEST;
    if (nap > LONGEST)
        nap = LONGEST;
    return nap < QM_PATIENCE_MOST - look->waited ? nap
                                                 : QM_PATIENCE_MOST - look->waited;
}
