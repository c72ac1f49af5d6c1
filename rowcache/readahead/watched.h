/* SPDX-License-Identifier: BSD-3-Clause */
/* watched.h - rows that read-ahead would have fetched, and did not: what is learned of
 * an arm that is watched (yield.h) costs no SELECT.
 *
 * A row is watched from when an arm wanted it until a client reads it, or it changes.
 * After a while it is judged, and stays known for late reads.  Both kinds are bounded.
 * Not thread-safe, but for qm_watched_may_have(). */
#ifndef QM_ROWCACHE_WATCHED_H
#define QM_ROWCACHE_WATCHED_H

#include "rowcache/readahead/items.h"
#include "rowcache/readahead/numbers.h"

struct qm_watched;

struct qm_watched_row {
    struct qm_item item;
    unsigned arm; /* up to 65535 */
    uint64_t since_ms;
    bool judged;
};

/* At most that many rows that are not judged, and as many that are.  numbers are the
 * caller's, and outlive it. */
struct qm_watched *qm_watched_new(unsigned bound, struct qm_numbers *numbers);
void qm_watched_free(struct qm_watched *watched);

/* No row can be added. */
bool qm_watched_is_full(const struct qm_watched *watched);
/* False: it is watched already, or there are too many. */
bool qm_watched_add(struct qm_watched *watched, struct qm_item item, unsigned arm,
                    uint64_t now_ms);
/* False: it surely has no row of that number, of whatever table.  Any thread may ask,
 * without the lock of the others. */
bool qm_watched_may_have(const struct qm_watched *watched, int64_t row);
/* Takes the row out.  False: it is not there. */
bool qm_watched_take(struct qm_watched *watched, struct qm_item item,
                     struct qm_watched_row *row);
/* The oldest of those that were added by then and are not judged: now it is.  False:
 * there is none. */
bool qm_watched_expire(struct qm_watched *watched, uint64_t by_ms,
                       struct qm_watched_row *row);
/* Takes any row out, so that none is left at last. */
bool qm_watched_take_any(struct qm_watched *watched, struct qm_watched_row *row);

#endif
