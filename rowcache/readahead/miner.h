/* SPDX-License-Identifier: BSD-3-Clause */
/* miner.h - which row follows which on a client's connection, by mining/'s Markov
 * tables (policy ppm): decisions only.
 *
 * That knows numbers of blocks.  Rows are numbered by a dictionary of QM_MINER_ROWS;
 * when it is full, a row that was not read for long loses its number, and the rules
 * that lead to it go.  Each connection is a stream; the QM_MINER_STREAMS that read last
 * are known.
 *
 * What is learned costs processors' time.  If of QM_MINER_SPELL reads fewer than
 * QM_MINER_WORTH predicted rows were used, as many reads may be left out, and each time
 * that happens again, twice as many. */
#ifndef QM_ROWCACHE_MINER_H
#define QM_ROWCACHE_MINER_H

#include "rowcache/readahead/items.h"

enum {
    QM_MINER_ROWS = 65536,
    QM_MINER_STREAMS = 1024,
    QM_MINER_PREDICTED = 8,    /* of a read, at most */
    QM_MINER_MEMORY = 4 << 20, /* bytes, of rules */
    QM_MINER_SPELL = 2048,     /* reads */
    QM_MINER_WORTH = 32,
    QM_MINER_REST_MOST = 32 * QM_MINER_SPELL,
};

enum qm_miner_outcome { QM_MINER_HIT, QM_MINER_AHEAD, QM_MINER_MISS };

struct qm_miner;

/* NULL: out of memory. */
struct qm_miner *qm_miner_new(void);
void qm_miner_free(struct qm_miner *miner);

/* The connection has read that row.  Hits of rows that were not read ahead say nothing
 * new.  Returns how many rows may follow, each more probable than the threshold, 0 to
 * 1; the likeliest first. */
unsigned qm_miner_read(struct qm_miner *miner, uint64_t client, struct qm_item item,
                       enum qm_miner_outcome outcome, double threshold,
                       struct qm_item predicted[QM_MINER_PREDICTED]);
/* This read may be left out, for it is hardly worth what it costs.  To be asked once
 * for each that qm_miner_read() would be told, where processors are scarce. */
bool qm_miner_rests(struct qm_miner *miner);
/* A row that was predicted and fetched was used, or has gone unused. */
void qm_miner_ended(struct qm_miner *miner, struct qm_item item, bool used);

#endif
