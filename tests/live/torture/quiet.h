/* SPDX-License-Identifier: BSD-3-Clause */
/* quiet.h - the part of a device under torture that nobody changes: what a second tier
 * served of it before its server was killed, it is to serve after that.
 *
 * The unruly plugin counts the reads of each page (reads=FILE).  In a *pass* all blocks
 * of the part are read once, while nothing else is asked for and memory holds none of
 * them: a block whose pages were not read meanwhile came from the tier. */
#ifndef TORTURE_QUIET_H
#define TORTURE_QUIET_H

#include <stdbool.h>
#include <stdint.h>

struct quiet {
    const char *program;           /* whose complaints these are */
    const char *reads, *changes;   /* files; see quiet_end() */
    uint64_t from, to, block_size; /* bytes */
    const unsigned char *image;
    const uint32_t *counts; /* a page of 4096 bytes */
    uint32_t *before;       /* when the pass began */
    bool *served;           /* blocks, in the last pass; if valid: */
    bool valid;
    unsigned kills;      /* when it was made */
    long number, starts; /* of changes then; when the pass began */

    uint64_t passes, had, kept; /* pairs of passes with a kill between; blocks */
    uint64_t wrong;
};

/* The fields before image are set.  False, with a complaint, if it cannot be. */
bool quiet_open(struct quiet *q, const char *image);
void quiet_close(struct quiet *q);

void quiet_begin(struct quiet *q);
/* What was read at an offset. */
void quiet_look(struct quiet *q, const unsigned char *from, uint64_t at, uint64_t n);
/* kills: how many there were, UINT_MAX if there was one during the pass, which then
 * says nothing.  Neither does a pair of passes with another change of the tier between:
 * the file changes holds their number, which is odd while one goes on.  fair: the tier
 * had the time to keep what it served in the pass before. */
void quiet_end(struct quiet *q, unsigned kills, bool fair);

#endif
