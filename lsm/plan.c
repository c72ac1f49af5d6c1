/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.c - see plan.h. */
#include "lsm/plan.h"

#include <math.h>

uint32_t plan_blocks(enum qm_lsm_mode mode, struct family *family,
                     const struct shape *shape, double price, double window,
                     uint8_t *want)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < shape->n; i++) {
        bool yes = false;
        switch (mode) {
        case QM_LSM_OFF:
        case QM_LSM_ERASE:
            break;
        case QM_LSM_FLUSH:
            yes = shape->level == 0;
            break;
        case QM_LSM_ALL:
            yes = true;
            break;
        case QM_LSM_SELECTIVE: /* more likely used than not */
            yes = 1 - exp(-shape->heat[i] * fmax(window, 2)) > .5;
            break;
        case QM_LSM_LEAPER: /* heat is a probability */
            yes = shape->heat[i] > .5f;
            break;
        case QM_LSM_ADAPTIVE:
            yes = choice_value(&family->choice, shape->level, shape->heat[i], window) >
                  1 - exp(-price) + PLAN_READ_COST;
            break;
        }
        want[i] = yes;
        n += yes;
    }
    return n;
}
