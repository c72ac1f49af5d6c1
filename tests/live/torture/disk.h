/* SPDX-License-Identifier: BSD-3-Clause */
/* disk.h - a device under torture, as its clients know it: what they wrote, what they
 * saw, and whether that can be.  Its server stands over the unruly plugin, whose two
 * files are mapped here.
 *
 * A round's requests are noted in `history`; a round is judged when nothing is in
 * flight.  The functions may be called by any thread, except disk_judge(). */
#ifndef TORTURE_DISK_H
#define TORTURE_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "cells.h"
#include "history.h"

#define REQUEST_MAX (1u << 19) /* bytes */

struct disk {
    const char *program; /* whose complaints these are */
    uint64_t size;
    uint32_t block_size, cells;
    uint64_t hot; /* a byte where all clients meet */
    const unsigned char *image, *durable;
    uint64_t *initial; /* what a cell held when the round began: a name */
    uint32_t round;
    struct history *history;
};

/* The names of the plugin's files; a round has at most `requests` requests, besides
 * those that disk_judge() needs.  False, with a complaint, if it cannot be. */
bool disk_open(struct disk *d, const char *image, const char *durable,
               uint32_t requests);
void disk_close(struct disk *d);

/* At least 0, less than below. */
uint64_t draw_from(uint64_t *random, uint64_t below);
/* Cells for a request: in half of the cases at sectors, or at blocks, else at odd
 * bytes. */
void disk_choose(const struct disk *d, uint64_t *random, uint32_t *first,
                 uint32_t *count);

/* What a write, whose number in the history is request, stores. */
void disk_fill(const struct disk *d, unsigned char *to, uint32_t request,
               uint32_t first, uint32_t count);
/* Notes what a read has brought. */
void disk_look(const struct disk *d, uint32_t request, const unsigned char *from,
               uint32_t first, uint32_t count);
/* Notes what is durable, after a change of these cells that must be by now. */
void disk_look_at_durable(const struct disk *d, uint32_t request, uint32_t first,
                          uint32_t count);

/* Ends a round: all holds what can be read, nothing is in flight, all is flushed.
 * Returns how many violations there were, and has complained of some of them. */
uint64_t disk_judge(struct disk *d, const unsigned char *all);

#endif
