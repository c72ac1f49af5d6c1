/* SPDX-License-Identifier: BSD-3-Clause */
/* trouble.h - what happens to a server and to its connections while clients work: it is
 * killed, it is ended in order, and its connections are cut.  All in random order, each
 * when some requests more have been answered.  A script starts the server again.
 */
#ifndef TORTURE_TROUBLE_H
#define TORTURE_TROUBLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "history.h"
#include "relay.h"

struct trouble {
    const char *program;
    unsigned kills, ends, cuts;       /* how many of each */
    uint64_t requests;                /* in the course of which, about */
    uint64_t random;                  /* where chance begins */
    const char *pidfile;              /* names the server's process */
    struct relay *relay;              /* if there are to be cuts */
    struct history *history;          /* hears of losses */
    const _Atomic uint64_t *progress; /* how many requests were answered */

    atomic_bool over;                  /* all of it has happened */
    atomic_bool stop;                  /* set to end early */
    unsigned longest_end_ms, over_2_s; /* of the ends in order */
};

/* The thread; its argument is a struct trouble.  Ends the program with a complaint if
 * the server does not end, or cannot be killed. */
void *trouble_thread(void *opaque);

#endif
