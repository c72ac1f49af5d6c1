/* SPDX-License-Identifier: BSD-3-Clause */
/* fake.h - a prefetcher whose inside a test can see.
 *
 * It keeps what its streams are told, hands each stream out as work when it ends, and
 * wants the blocks that the test says.
 */
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>

#include "mining/core/prefetcher.h"

struct fake {
    struct qm_prefetcher base;
    pthread_mutex_t lock; /* of the numbers */
    unsigned streams;     /* open */
    unsigned works;       /* handed out, neither learned nor discarded */
    unsigned learned, discarded, purges, saves;
    int save_error; /* what save() returns */
    unsigned asked; /* for candidates */
    unsigned busy;  /* calls of learn() that began */
    pthread_cond_t begins;
    uint64_t order[64]; /* the first blocks of the first works learned */
    uint64_t learned_blocks;
    pthread_t learner; /* the thread that learned last */
    uint64_t last[8];  /* of the last work learned */
    unsigned last_n;
    unsigned last_owner; /* of the stream that it was */
    unsigned there;      /* owners */
    uint64_t wants[4];   /* candidates */
    unsigned want_n;
    bool streaming;   /* they are a stream's */
    unsigned refused; /* blocks, that were not prefetched */
    uint64_t refused_at;
    bool gone, misused; /* the test has taken it away; it was told something then */
    uint64_t forgotten, forgotten_n; /* the blocks that were trimmed last */
    pthread_mutex_t slow;            /* held by the test: learn() waits */
};

void fake_init(struct fake *fake);
/* Returns when learn() has been called; with slow held, that is where it is then. */
void fake_wait_busy(struct fake *fake);
/* Everything that it handed out has come back. */
void fake_check_and_destroy(struct fake *fake);

#endif
