/* SPDX-License-Identifier: BSD-3-Clause */
/* rows-ask.h - asks for rows: of those that are kept, else of MariaDB.  The loop's
 * thread. */
#ifndef QM_ROWCACHE_ROWS_ASK_H
#define QM_ROWCACHE_ROWS_ASK_H

#include "rowcache/server/server.h"

struct answer {
    enum qm_fill_outcome outcome;
    void *value; /* to be freed, or NULL */
    const char *text;
    size_t length;
};

struct request {
    struct client *c; /* NULL: it has gone */
    void (*finish)(struct client *c, struct request *r);
    unsigned count, left;  /* count 0: it does not wait for rows */
    unsigned first, asked; /* the first key's word; how many were asked for */
    struct answer *answer;
    struct waiter *waiters; /* for reads of MariaDB */
    bool bare;              /* whether the rows are there, and how long: no texts */
    bool failed;            /* an answer is an error: the others do not matter */
    size_t bytes;           /* of the answers' texts */
};

/* Asks for the rows that words first to first + count - 1 name, and has finish reply:
 * before it returns, or when all answers are there; not if the client has gone by then.
 * bare: finish does not need the rows' texts. */
void rows_ask(struct client *c, unsigned first, unsigned count, bool bare,
              void (*finish)(struct client *c, struct request *r));

/* Reads a row for a command of the client that comes later.  Nobody waits for it: it is
 * kept, as any row that is read, and that command finds it there or does not.  So what
 * the command may be given is decided when it is carried out, by what the connection
 * has seen until then; a row that was read too early for that is read again.
 * False: it has as many as it may. */
bool rows_ask_early(struct client *c, const char *key, size_t length);
/* Whether what would be read could be found afterwards. */
bool rows_may_ask_early(struct client *c);

#endif
