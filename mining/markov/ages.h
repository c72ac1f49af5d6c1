/* SPDX-License-Identifier: BSD-3-Clause */
/* ages.h - how many reads ago a block was read last, as far as is known.
 *
 * Most readers have a cache of their own: a database's buffer pool, a file system's
 * page cache.  They do not read a block again before that cache has dropped it,
 * whatever has followed what before.  How long that takes nobody says, but an age lets
 * the confidence filter learn it (confidence.h).  Where the reader's cache is larger
 * than ours, that is most of what our cache does not tell.  (What a client's cache does
 * to the reads below it: Wong and Wilkes, USENIX ATC'02.)
 *
 * The clock is the number of reads noted: those that a policy is told of, which are not
 * those of blocks that are hit again and again, nor those of scans.  A block is in one
 * line of the table; in a full line the one that was read longest ago is forgotten. One
 * block in some hundreds is taken for another of its line.
 *
 * Noting and asking may be done by any number of threads at a time.  There are no
 * locks: of two that note in the same line at the same time, one may be lost.
 */
#ifndef QM_MARKOV_AGES_H
#define QM_MARKOV_AGES_H

#include <stdint.h>

/* Ages are numbers below: each is of twice as many reads as the one before.  The last
 * is that of a block which was never read, or so long ago that it is not known. */
enum { QM_AGES = 16, QM_AGE_UNKNOWN = QM_AGES - 1 };

struct qm_ages;

/* Takes at most `bytes` bytes beside itself, at least a line's; they are reserved at
 * once, and what is not in use yet is not written to.  Returns NULL if memory is out.
 */
struct qm_ages *qm_ages_new(uint64_t bytes);
void qm_ages_free(struct qm_ages *ages); /* NULL is fine */

/* Sets its size to `bytes`, at most what it was made for, at least a line.  Of what was
 * noted, what the smaller of both sizes can hold is still known.  Whole pages are given
 * back to the system.  Takes some 10 ns a line of 32 bytes that is added.  One call at
 * a time. */
void qm_ages_set_bytes(struct qm_ages *ages, uint64_t bytes);
/* That it takes beside itself; and at least. */
uint64_t qm_ages_bytes(const struct qm_ages *ages);
uint64_t qm_ages_least(void);

/* Block is read. */
void qm_ages_note(struct qm_ages *ages, uint64_t block);

unsigned qm_ages_find(const struct qm_ages *ages, uint64_t block);

#endif
