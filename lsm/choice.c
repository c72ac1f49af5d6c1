/* SPDX-License-Identifier: BSD-3-Clause */
/* choice.c - see choice.h.
 *
 * The cells are written by the thread that ends intervals and read by those that write
 * files; a value that is a moment old does as well. */
#include "lsm/choice.h"

#include <math.h>
#include <stdlib.h>

#define PRIOR 8.  /* blocks that what heat says counts for */
#define FLOOR .1  /* with room in the cache, what nothing is known of is worth a try */
#define KEEP  .98 /* of what was learned, each interval */
/* All else that was learned counts for this many blocks, or twice as many as the newest
 * file has, at most: so that a change is seen. */
#define FEW 200.f
/* A block of a class that is d away, of 2^d times the heat or a part of it, tells as
 * much of a class as 1 / 2^d of its own. */

uint8_t choice_class(float heat)
{
    int exponent;

    if (!(heat > 0))
        return 0;
    frexpf(heat, &exponent);
    exponent += 9;
    return (uint8_t)(exponent < 1                    ? 1
                     : exponent > CHOICE_CLASSES - 1 ? CHOICE_CLASSES - 1
                                                     : exponent);
}

static int level_of(int level)
{
    return level < 0 ? 0 : level >= CHOICE_LEVELS ? CHOICE_LEVELS - 1 : level;
}

void choice_learn(struct choice *c, int level, uint8_t class, double used, double n)
{
    float before, keep;

    level = level_of(level);
    before = atomic_load(&c->cell[level][class].seen);
    keep = before > 0 ? fminf(1, fmaxf(FEW, 2 * (float)n) / before) : 1;
    atomic_store(&c->cell[level][class].used,
                 keep * atomic_load(&c->cell[level][class].used) + (float)used);
    atomic_store(&c->cell[level][class].seen, keep * before + (float)n);
}

double choice_value(struct choice *c, int level, float heat, double window)
{
    uint8_t class = choice_class(heat);
    double near_used = 0, near_seen = 1, prior, used = 0, seen = 0;

    level = level_of(level);
    for (int i = 0; i < CHOICE_CLASSES; i++) {
        double u = atomic_load(&c->cell[level][i].used),
               s = atomic_load(&c->cell[level][i].seen),
               weight = 1. / (1 << abs(i - class));
        near_used += weight * u;
        near_seen += weight * s;
        if (i == class) {
            used = u;
            seen = s;
        }
    }
    prior = fmax(FLOOR, fmax(1 - exp(-heat * window), near_used / near_seen));
    return (used + PRIOR * prior) / (seen + PRIOR);
}

void choice_tick(struct choice *c)
{
    for (int i = 0; i < CHOICE_LEVELS; i++)
        for (int j = 0; j < CHOICE_CLASSES; j++) {
            atomic_store(&c->cell[i][j].used, atomic_load(&c->cell[i][j].used) * KEEP);
            atomic_store(&c->cell[i][j].seen, atomic_load(&c->cell[i][j].seen) * KEEP);
        }
}
