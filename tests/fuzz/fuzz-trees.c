/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-trees.c - a model's file, which another program wrote.
 *
 * Promised: what is read can be evaluated for any row, and is finite; what is not says
 * why. */
#include <math.h>

#include "fuzz.h"
#include "lsm/trees.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const double rows[][18] = {
        {0}, {1, 2, 3, 4, 5}, {NAN, INFINITY, -INFINITY, 1e300, -1e-36}};
    char err[100] = "";
    struct trees *t = trees_parse((const char *)data, size, 18, err, sizeof err);

    promise(t || *err);
    for (uint32_t step = 0; t && step < trees_steps(t); step++)
        for (int i = 0; i < 3; i++) {
            double p = trees_probability(t, step, 1, rows[i]);
            promise(isnan(p) || (p >= 0 && p <= 1));
        }
    trees_free(t);
    return 0;
}
