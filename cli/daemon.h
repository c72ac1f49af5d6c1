/* SPDX-License-Identifier: BSD-3-Clause */
/* daemon.h - a subcommand that works in the background: forking, messages, readiness.
 *
 * The process forks before it has threads or connections.  The child does the work, its
 * messages still going to the terminal, and says when it is ready; only then it leaves
 * the terminal, and its parent ends.  So the caller sees error messages, and
 * gets the exit status.  A service manager is told as well (sd_notify(3)'s protocol).
 *
 * Threads: daemon_log() by any; the rest by the main thread.
 */
#ifndef QM_CLI_DAEMON_H
#define QM_CLI_DAEMON_H

#include <stdbool.h>

/* Runs run(opaque) in the foreground, or in a child.  name: of the command, "attach".
 * pidfile: written when it is ready, and removed at the end; NULL: none.  Returns the
 * exit status: run()'s, or, of the parent, 0 when the child is ready. */
int daemon_start(const char *name, bool foreground, const char *pidfile,
                 int (*run)(void *opaque), void *opaque);

/* The work can be relied on from now on. */
void daemon_ready(void);
/* Of a program that ends before it is ready: removes the pid file if it made it.
 * Async-signal-safe. */
void daemon_tidy(void);
/* Tells the service manager, "STOPPING=1" for example; if there is one. */
void daemon_notify(const char *state);

/* A message, without a newline: to standard error, or, in the background, to syslog. */
void daemon_log(int priority, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For what is in the way of all I/O: keeps this process in memory, keeps it from
 * waiting for writeback that waits for it, and has it killed last.  Says what of it is
 * not allowed.  Before threads are started, which inherit it. */
void daemon_protect(void);

#endif
