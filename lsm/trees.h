/* SPDX-License-Identifier: BSD-3-Clause */
/* trees.h - gradient-boosted trees that LightGBM trained, from its text file.
 *
 * A file holds one model for each step into the future, one text of LightGBM's behind
 * the other (quickmine lsm train).  What is read: binary classification by numbers
 * (objective=binary), format v3 and v4.  Refused: categories, linear trees, random
 * forests, several classes, other objectives, another number of features, and whatever
 * is not as LightGBM writes it, or would take more than MASKS_BYTES of memory or
 * MASKS_WORK of time (masks.h).  Scores and probabilities are LightGBM's to the last
 * bit: it adds leaves in the same order, in doubles.
 *
 * Threads: a model is immutable. */
#ifndef QM_LSM_TREES_H
#define QM_LSM_TREES_H

#include <stddef.h>
#include <stdint.h>

#define TREES_BYTES (64u << 20) /* of a file */
#define TREES_STEPS 16u

struct trees;

/* Of text, whose len bytes need not end with 0; or of a file.  NULL: err says why. */
struct trees *trees_parse(const char *text, size_t len, uint32_t features, char *err,
                          size_t err_len);
struct trees *trees_read(const char *path, uint32_t features, char *err,
                         size_t err_len);
void trees_free(struct trees *trees);

uint32_t trees_steps(const struct trees *trees);

/* The sum of the leaves of a step.  features: as many numbers as were given to read. */
double trees_score(const struct trees *trees, uint32_t step, const double *features);
/* The highest probability of `steps` steps from `from` on, of those that there are. */
double trees_probability(const struct trees *trees, uint32_t from, uint32_t steps,
                         const double *features);

#endif
