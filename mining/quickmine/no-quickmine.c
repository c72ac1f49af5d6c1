/* SPDX-License-Identifier: BSD-3-Clause */
/* no-quickmine.c - policy quickmine where it was left out, in builds without Berkeley
 * DB.
 *
 * It keeps its name, so that a person who asks for it is told why it is not there.
 */
#include <errno.h>
#include <stdio.h>

#include "mining/core/registry.h"

static int create(const struct qm_mining_config *config, struct qm_prefetcher **p,
                  char *err, size_t len)
{
    snprintf(err, len,
             "this build is without Berkeley DB (QM_BERKELEY_DB), which policy "
             "quickmine needs; the default, ppm, does not");
    return ENOTSUP;
}

const struct qm_prefetcher_ops qm_prefetcher_quickmine = {
    .name = "quickmine",
    .summary = "left out: built without Berkeley DB",
    .create = create,
};
