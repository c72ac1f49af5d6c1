/* SPDX-License-Identifier: BSD-3-Clause */
/* ceph.h - a cluster with one image, for tests of the RBD plugin. */
#ifndef CEPH_H
#define CEPH_H

#include <pthread.h>
#include <stdint.h>

struct ceph {
    pthread_mutex_t lock;
    uint64_t version;       /* of the image's header */
    uint64_t newest;        /* of the objects in its placement group */
    char locker[64];        /* who has the exclusive lock, "client.7"; "": nobody */
    char record[300];       /* the object that says who was the last owner */
    uint64_t recorded;      /* its version; 0: there is none */
    uint64_t last;          /* what rados_get_last_version() says */
    unsigned writes;        /* that were begun */
    unsigned clients;       /* connected so far */
    void (*released)(void); /* called when a lock was released, once */
    void (*reading)(void);  /* called before a read ends, once */
};

extern struct ceph ceph;

/* Another client takes the lock, writes, and gives it back. */
void ceph_passes_by(void);
/* Another client takes the lock from its owner. */
void ceph_takes(void);

#endif
