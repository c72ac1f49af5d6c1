/* SPDX-License-Identifier: BSD-3-Clause */
/* masks.h - evaluates gradient-boosted trees without walking them.
 *
 * The thresholds of all trees cut the numbers of each feature into bins.  All numbers
 * of a bin take the same way at each node; NaN has a bin of its own, and so have the
 * zeros where a zero may be a missing value.  For each bin there is a row of masks, one
 * or more words of 32 bits for each tree: the leaves that a number of this bin leaves
 * possible.  The bitwise and of the rows of all features leaves one bit of each tree.
 * So the features are looked up once for all models, and then no branch depends on
 * them, and several trees are computed at a time.  (After QuickScorer, Lucchese et al.,
 * SIGIR 2015, which applies a mask for each node whose test fails.)
 *
 * Trees are in groups of 128 words or fewer.  A group has rows of its own, for those
 * thresholds that its trees have: so a node adds a row of 512 bytes at most, or three
 * if zeros are missing values.  To that come four bytes a group for each bin of the
 * file's.  A tree of more than 4,096 leaves is a group of its own, with longer rows.
 *
 * Threads: what was built is immutable. */
#ifndef QM_LSM_MASKS_H
#define QM_LSM_MASKS_H

#include <stdint.h>

#define MASKS_BYTES    (512u << 20) /* of all tables of a file's models */
#define MASKS_WORK     (1u << 30)   /* words, of building them: some seconds */
#define MASKS_FEATURES 32u

enum { MISSING_NONE, MISSING_ZERO, MISSING_NAN }; /* as in LightGBM's file */

/* An inner node of a tree, or a leaf. */
struct node {
    double threshold;  /* of a leaf: its value */
    uint32_t child[2]; /* left, where x <= threshold; right */
    uint32_t feature;
    uint32_t first, leaves; /* leaves to the left of it; below it */
    uint8_t missing, default_right, parents;
};

struct tree {
    struct node *nodes; /* n - 1 inner ones, children behind their parents; n leaves */
    uint32_t n;
};

struct masks;

/* Of models one behind the other: begin[i] is the first tree of model i, begin[models]
 * the number of all.  Features are below MASKS_FEATURES.  The trees are not needed
 * afterwards.  NULL with errno: ENOMEM, or EFBIG if it took more than MASKS_BYTES or
 * MASKS_WORK. */
struct masks *masks_new(const struct tree *trees, const uint32_t *begin,
                        uint32_t models, uint32_t features);
void masks_free(struct masks *m);

/* The bins of all features. */
void masks_bins(const struct masks *m, const double *features,
                uint32_t bins[MASKS_FEATURES]);
/* The sum of a model's leaves in these bins, in the order of its trees. */
double masks_sum(const struct masks *m, uint32_t model,
                 const uint32_t bins[MASKS_FEATURES]);

#endif
