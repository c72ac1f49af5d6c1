/* SPDX-License-Identifier: BSD-3-Clause */
/* history.h - what was done to a device, and whether one device can have done it.
 *
 * The device is taken as cells, each a register that holds the name of the write that
 * filled it.  Requests are noted with the moments of their begin and their end, and for
 * each read what it saw in each cell.  While nothing is in flight the history is
 * judged:
 *
 *  - Each cell is linearizable: there is one moment within each request at which it can
 *    have been carried out, and every read saw the last write before its own.  Since
 *    writes have names, that can be told in n log n steps (Gibbons and Korach, "Testing
 *    shared memories", SIAM Journal on Computing 26(4), 1997, section 4.1): the
 * requests that concern one write form a zone between the earliest end and the latest
 * begin of any.  If the end comes first the zone is one in which the cell must have
 * held this write throughout: two such may not overlap, and no write and its readers
 * may be over and done with inside another's.
 *  - A read sees each write to a block as a whole, or not at all.
 *  - What a write with FUA stored is durable when it has ended.
 *
 * Zeroing has no names: a read of zeros is judged with the one request that can have
 * caused it, and if there are several, it need only not be too old for all of them.
 *
 * A request that failed may have been carried out, in part too, but only before it
 * ended.
 *
 * A device that loses power may lose what was not flushed.  If its client keeps what
 * was acknowledged and writes it again, that is not seen; but a write that was in
 * flight then may be seen by some reads, and no longer by later ones, until it ends. So
 * looks at it count only if they began after it ended.
 */
#ifndef TORTURE_HISTORY_H
#define TORTURE_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

struct history;

enum did {
    DID_READ,
    DID_WRITE,
    DID_ZERO,
    DID_FUA, /* looked at what was durable after a write with FUA; says which */
};

/* What a read can see in a cell, if it is not the number of a write. */
#define SAW_ZERO    UINT32_MAX
#define SAW_INITIAL (UINT32_MAX - 1) /* what the cell held when the history began */
#define SAW_GARBAGE (UINT32_MAX - 2)

/* A history for a device of `cells` cells, with cells_a_block in a block; for at most
 * `requests` requests and `looks` looks at cells.  NULL: no memory. */
struct history *history_new(uint32_t cells, uint32_t cells_a_block, uint32_t requests,
                            uint32_t looks);
void history_free(struct history *h);

/* The following by any thread. */

/* A request for cells [first, first + count) begins.  Returns its number; or UINT32_MAX
 * if there is room for no more of them.  A read takes its looks from the room, too. */
uint32_t history_begin(struct history *h, enum did did, uint32_t first, uint32_t count);
/* For the look that follows request of. */
uint32_t history_begin_fua(struct history *h, uint32_t of);
/* The cells of a request. */
void history_range(const struct history *h, uint32_t request, uint32_t *first,
                   uint32_t *count);
/* Where to put what is seen, an element a cell. */
uint32_t *history_looks(struct history *h, uint32_t request);
void history_end(struct history *h, uint32_t request, bool ok);

/* Around a loss of power: from before the device's server is killed until it is gone.
 * One at a time. */
void history_loss_begin(struct history *h);
void history_loss_end(struct history *h);

/* Judges and forgets what was noted; no other thread may use the history. is_zero(cell)
 * says whether cell was all zeros when the history began.  Complaints, at most a few,
 * go to complain().  Returns how many violations there were. */
uint64_t history_judge(struct history *h, bool (*is_zero)(void *opaque, uint32_t cell),
                       void (*complain)(void *opaque, const char *text), void *opaque);

#endif
