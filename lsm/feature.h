/* SPDX-License-Identifier: BSD-3-Clause */
/* feature.h - what Leaper's models are told of a key range, and its precursors.
 *
 * 18 features, in this order, in which quickmine lsm train has them, too: reads in each
 * of the last six intervals, newest first; writes likewise; hour, minute and second of
 * the day (UTC); reads of up to three precursors in the last interval.
 *
 * A precursor of a range is another one that is often read shortly before it
 * (Algorithm 2 of Leaper): each thread remembers the last three ranges that it read,
 * and of a sample of reads the pairs are counted; of those that are counted most, the
 * first three whose read rates are alike, by the cosine of their six intervals, are
 * precursors.  What was counted is lost when the ranges are replaced.
 *
 * Threads: any, but follow_free(). */
#ifndef QM_LSM_FEATURE_H
#define QM_LSM_FEATURE_H /* not features.h, which is the name of one of libc's */

#include <time.h>

#include "lsm/collector.h"
#include "lsm/trees.h"

#define FEATURES   18u
#define PRECURSORS 3u
#define ALIKE      .5 /* a larger cosine: epsilon of Algorithm 2 */

/* NULL: no memory; nothing is followed then. */
struct follow *follow_new(uint32_t ranges);
void follow_free(struct follow *f);
/* The calling thread read from a range.  Takes no lock that it would wait for. */
void follow_read(struct follow *f, uint32_t range);
/* Chooses precursors anew.  Slots of the table must not change meanwhile. */
void follow_choose(struct follow *f, struct table *t);

/* The features that do not depend on the range. */
struct moment {
    double hour, minute, second;
};
struct moment features_moment(time_t now);

void features_of(struct table *t, uint32_t range, const struct moment *moment,
                 double out[FEATURES]);

/* The highest probability that the range is read in one of `steps` intervals behind the
 * next `from` ones; where there are fewer models, of the last. */
double features_hot(const struct trees *trees, uint32_t from, uint32_t steps,
                    struct table *t, uint32_t range, const struct moment *moment);

#endif
