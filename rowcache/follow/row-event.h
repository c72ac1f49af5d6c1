/* SPDX-License-Identifier: BSD-3-Clause */
/* row-event.h - WRITE_, UPDATE_ and DELETE_ROWS: which rows changed. */
#ifndef QM_ROWCACHE_ROW_EVENT_H
#define QM_ROWCACHE_ROW_EVENT_H

#include "rowcache/follow/table-map.h"

enum qm_row_event { QM_ROW_WRITE, QM_ROW_UPDATE, QM_ROW_DELETE };

/* Parses the event after the map's number.  Returns NULL, or a sentence that says what
 * is wrong. */
const char *qm_row_event(const struct qm_binlog_calls *calls, const struct qm_map *map,
                         enum qm_row_event kind, bool compressed, struct qm_bytes *b);

/* MariaDB's compression: inflates what is left of b.  The result is the caller's to
 * free. */
uint8_t *qm_inflate(struct qm_bytes *b, size_t *size);

#endif
