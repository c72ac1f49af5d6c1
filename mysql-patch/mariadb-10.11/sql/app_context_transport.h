/* SPDX-License-Identifier: BSD-3-Clause */
/* app_context_transport.h - what app_context.cc has of the outside: libqmctx, and what
 * there is one of for all threads.  For its own files only.
 */
#ifndef APP_CONTEXT_TRANSPORT_H
#define APP_CONTEXT_TRANSPORT_H

#include <my_global.h>

#include <atomic>

#include "app_context.h"
#include "qmctx.h"

/* @@qm_context_mount and @@qm_context_names */
extern char *qm_context_mount;
extern my_bool qm_context_names;

/* Counted together for all threads: those that are not clients', and what is rare; and
 * counts of the THDs that are no more. */
extern struct app_context_totals {
    std::atomic<ulonglong> counts[APP_CONTEXT_COUNTERS];
    std::atomic<ulonglong> threads_begun, threads_ended, reads_threads, reads_untagged,
        errors;
} app_context_totals;

/* libqmctx's functions, and the transport; valid if app_context_have_transport(). */
extern struct app_context_transport {
    struct qmctx *ctx;
    decltype(&qmctx_announce) announce;
    decltype(&qmctx_begin) begin;
    decltype(&qmctx_end_to) end_to;
    decltype(&qmctx_transport) name;
    decltype(&qmctx_connected) connected;
    decltype(&qmctx_error) error;
} app_context_transport;

/* Whether contexts can be told; the first call finds out, and writes into the error log
 * if not.  It waits a second at most. */
bool app_context_have_transport();

#endif
