/* SPDX-License-Identifier: BSD-3-Clause */
/* device-fixture.h - what the tests of the device share: a mock server for each, a
 * device of it, and threads that make one request. */
#ifndef DEVICE_FIXTURE_H
#define DEVICE_FIXTURE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tests/harness.h"

#include "clients/libqmctx/device.h"
#include "mock-server.h"

enum { PAGE = 4096 };

extern struct mock_server mock;
extern struct qm_device *device;         /* closed by tear_down */
extern struct qm_device_options options; /* log is set */
extern _Atomic unsigned seen;
int set_up(void **state);
/* Also waits, bounded, for jobs that a test which failed has not finished. */
int tear_down(void **state);

/* The server started, the device opened. */
void open_device(void);
int set_up_open(void **state); /* set_up() and open_device() */
/* Whether the device has said something that contains text; how often. */
unsigned said(const char *text);
bool has_been_said(void *text); /* for await() */
struct qm_device_stat stat_now(void);
/* Waits, bounded, until it holds. */
void await(bool (*holds)(void *), void *opaque);
void await_up(void);
void await_lost(void); /* while it cannot come back */
void await_reconnections(unsigned times);

/* One page of that letter. */
void put_page(unsigned page, char letter, bool fua);
int try_put_page(unsigned page, char letter, bool fua);
char get_page(unsigned page);
int flush(void);

/* A request by a thread of its own, which has what it needs, but for the requester, in
 * a task of its own: a test that fails leaves its frame while the thread runs. */
struct job {
    enum { JOB_WRITE, JOB_READ, JOB_FLUSH, JOB_ZERO, JOB_STOP_RETAINING } what;
    unsigned page, pages;
    char letter; /* written, or read */
    bool fua;
    const struct qm_requester *requester;
    struct task *task; /* from start_job() to finish_job() */
};
void start_job(struct job *job);
int finish_job(struct job *job);
bool job_is_over(void *job); /* for await() */
/* Waits until it waits for something, or is over. */
void await_asleep(struct job *job);

#endif
