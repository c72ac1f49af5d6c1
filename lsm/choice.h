/* SPDX-License-Identifier: BSD-3-Clause */
/* choice.h - which new blocks are worth a place in the cache.
 *
 * Modes off, flush, selective and all are fixed.  Mode adaptive compares two
 * probabilities for each block of a new file:
 *
 * - its value: that it is looked up before it would leave the cache.  Learned by level
 *   and by class of heat from all blocks of new files, warmed or not (shadow counting):
 *   a block that was not warmed and is looked up soon counts as one that would have
 *   paid.  A class that was not seen yet has the value that its heat tells,
 *   1 - exp(-heat x window), or that of the level's other classes, the near ones more,
 *   if that is more, and no less than .1: the heat of keys that are appended says
 *   nothing.
 * - its price, as price.h measures, and a small part for reading the block now.  The
 *   price is of a place for as long as a block stays that is never used.  A new block
 *   takes the place only until it is used first: without warming it would be there from
 *   then on, too.  Of blocks that are used with probability v, at rates that do not
 *   change, that is v / -ln(1 - v) of the time; so v > 1 - exp(-price) pays.
 *
 * All levels and classes above the price: that is mode all; none: off; level 0 alone:
 * flush; the hot classes: selective.  Uniform access makes value and price equal, and
 * nothing is warmed. */
#ifndef QM_LSM_CHOICE_H
#define QM_LSM_CHOICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define CHOICE_LEVELS  8
#define CHOICE_CLASSES 16

struct choice {
    struct {
        _Atomic float used, seen; /* decayed numbers of blocks */
    } cell[CHOICE_LEVELS][CHOICE_CLASSES];
};

uint8_t choice_class(float heat);

/* Learns from n new blocks of one class, of which `used` were looked up in time. */
void choice_learn(struct choice *c, int level, uint8_t class, double used, double n);

/* The probability that a block is looked up within the window. */
double choice_value(struct choice *c, int level, float heat, double window);

/* Forgets a part, so that what is new counts more. */
void choice_tick(struct choice *c);

#endif
