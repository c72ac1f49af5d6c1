/* SPDX-License-Identifier: BSD-3-Clause */
/* report.h - what a device did, as JSON (nbdkit-device-filter(1)). */
#ifndef QM_DEVICE_REPORT_H
#define QM_DEVICE_REPORT_H

#include <stdio.h>

#include "plugins/device/config.h"

/* Writes it to a file, which stays open.  late: ns by which replies came after their
 * requests' ends in the model.  device NULL: it had no connection.  Returns 0, or -1
 * with errno. */
int qmd_report(FILE *file, const struct qmd_config *config,
               const struct qm_device *device, const struct qm_histogram *late);

#endif
