/* SPDX-License-Identifier: BSD-3-Clause */
/* mock-server.h - an NBD server within the test, which does as it is told.
 *
 * It has two images: what is there, and what would be left of that after a crash.  It
 * serves the tagged export, with sessions and fencing but without slots, and the plain
 * one; connections have a thread each and carry out their requests in order.
 */
#ifndef MOCK_SERVER_H
#define MOCK_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOCK_SIZE = 4 << 20, MOCK_CONNS = 64, MOCK_OPS = 100000 };

/* Of the NBD protocol, and one for the control record. */
enum mock_type {
    MOCK_READ = 0,
    MOCK_WRITE = 1,
    MOCK_FLUSH = 3,
    MOCK_TRIM = 4,
    MOCK_ZERO = 6,
    MOCK_HEADER = 8, /* read in the control window */
    MOCK_FENCE = 9,
    MOCK_TYPES = 10,
};

struct mock_op {
    enum mock_type type;
    uint64_t offset, count;
    bool fua;
    char first; /* byte of data */
};

struct mock_conn {
    struct mock_server *server;
    pthread_t thread;
    int fd;
    bool used, plain;
    uint64_t session;
};

struct mock_server {
    char dir[32], uri[96];
    uint64_t size; /* that it announces; at most MOCK_SIZE */
    uint32_t block_size;
    uint8_t volume;    /* 0: it does not say */
    uint64_t instance; /* drawn when it starts; see: */
    bool no_instance;  /* an older server: no instance, no fencing */
    bool no_fua, no_flush, no_trim, no_multi_conn;
    bool unordered;   /* it does not say that requests are carried out in order */
    unsigned at_most; /* connections; more are closed at once; 0: any number */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    char *image, *durable;
    int listener;
    bool running;
    bool ending;        /* everything gets ESHUTDOWN */
    bool silent;        /* new connections are not greeted */
    unsigned accepted;  /* connections, ever */
    unsigned ungreeted; /* of these, how many are open */
    pthread_t acceptor;
    struct mock_conn conn[MOCK_CONNS];
    unsigned conns; /* that are open */
    uint64_t last_session;
    unsigned held[MOCK_TYPES];     /* requests that wait */
    bool hold[MOCK_TYPES];         /* requests wait before they are carried out */
    int error[MOCK_TYPES];         /* that the next ones of a kind get ... */
    unsigned errors[MOCK_TYPES];   /* ... how many of them */
    bool forget;                   /* a FLUSH that fails loses what was not durable */
    uint64_t changing[MOCK_CONNS]; /* sessions of changes that are under way */
    uint64_t fenced[MOCK_CONNS];
    struct mock_op op[MOCK_OPS]; /* that were carried out, or refused */
    unsigned ops;
};

void mock_init(struct mock_server *m);
void mock_destroy(struct mock_server *m);
/* Starts, as another instance. */
void mock_start(struct mock_server *m);
/* Ends at once.  lose: what was not durable is lost. */
void mock_crash(struct mock_server *m, bool lose);
/* Closes all connections; requests that are being carried out go on. */
void mock_cut(struct mock_server *m);
void mock_hold(struct mock_server *m, enum mock_type type, bool hold);
void mock_fail(struct mock_server *m, enum mock_type type, int error, unsigned times);
/* Waits until n requests of a kind are held; or n were carried out. */
void mock_await_held(struct mock_server *m, enum mock_type type, unsigned n);
void mock_await_ops(struct mock_server *m, enum mock_type type, unsigned n);
unsigned mock_count(struct mock_server *m, enum mock_type type);
unsigned mock_open_conns(struct mock_server *m);
char mock_byte(struct mock_server *m, bool durable, uint64_t offset);
bool mock_is_all_durable(struct mock_server *m);

#endif
