/* SPDX-License-Identifier: BSD-3-Clause */
/* metrics.h - the statistics in the text format of OpenMetrics 1.0. */
#ifndef QMS_METRICS_H
#define QMS_METRICS_H

#include <jansson.h>

/* Of its classes, that many have metrics of their own. */
#define QMS_METRICS_CLASSES 100

/* stats: the JSON document of the statistics.  To be freed; NULL if memory is out. */
char *qms_metrics(const json_t *stats);

#endif
