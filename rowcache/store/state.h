/* SPDX-License-Identifier: BSD-3-Clause */
/* state.h - a partition's file "state": a mapped page, which the kernel keeps when the
 * process is killed.
 *
 * What the last process was and whether it closed the partition is written in one call,
 * so that a kill finds all of it or nothing, and has a checksum.  The newest sequence
 * number that was acknowledged changes all the time: one word, with check bits. */
#ifndef QM_STORE_STATE_H
#define QM_STORE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "rowcache/store/qmstore.h"

struct store_state_page;

struct store_state {
    struct store_state_page *page; /* NULL: not open */
    int fd;
};

/* What the last process left. */
struct store_state_was {
    bool is_new, clean, same_boot;
    enum qmstore_durability durability;
    uint64_t acknowledged;
};

/* Opens or makes the file.  EBADMSG: it is damaged, or of a later version. */
int store_state_open(struct store_state *s, int dir, const char *name,
                     struct store_state_was *was);
void store_state_close(struct store_state *s);

/* This process has the partition, or has closed it; durable, as is what is
 * acknowledged. */
int store_state_write(struct store_state *s, enum qmstore_durability durability,
                      bool clean, uint64_t acknowledged);

uint64_t store_state_acknowledged(struct store_state *s);
void store_state_set_acknowledged(struct store_state *s, uint64_t sequence);
/* As above, but never lowers it.  Any thread. */
void store_state_acknowledge(struct store_state *s, uint64_t sequence);

#endif
