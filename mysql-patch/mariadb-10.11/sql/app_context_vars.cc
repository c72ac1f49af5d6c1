/* SPDX-License-Identifier: BSD-3-Clause */
/* app_context_vars.cc - the status variables Qm_context_..., and what the system
 * variables are in memory.
 */
#include "sql_plugin.h"
#include "sql_class.h"
#include "set_var.h"

#include "app_context.h"
#include "app_context_transport.h"

ulong qm_context;
char *qm_context_mount;
my_bool qm_context_names;

struct app_context_totals app_context_totals;

static my_bool add_counts(THD *thd, ulonglong *sums)
{
    for (uint i = 0; i < APP_CONTEXT_COUNTERS; i++)
        sums[i] += thd->app_context.counts[i];
    return 0;
}

/* The counters of a session, or of all. */
static void get_counts(THD *thd, enum_var_type scope, ulonglong *sums)
{
    if (scope == OPT_SESSION) {
        memcpy(sums, thd->app_context.counts, sizeof thd->app_context.counts);
        return;
    }
    for (uint i = 0; i < APP_CONTEXT_COUNTERS; i++)
        sums[i] = app_context_totals.counts[i];
    server_threads.iterate(add_counts, sums);
}

int app_context_status(THD *thd, SHOW_VAR *var, void *buffer, system_status_var *status,
                       enum_var_type scope)
{
    static thread_local struct {
        ulonglong counts[APP_CONTEXT_COUNTERS];
        ulonglong errors, reads_threads, reads_untagged, threads_begun, threads_ended;
    } now;
    static thread_local SHOW_VAR vars[20];
    SHOW_VAR *next = vars;
    bool have = qm_context && app_context_have_transport();
    const struct app_context_transport &t = app_context_transport;
    const char *transport = have ? t.name(t.ctx) : "";
    bool connected = have && t.connected(t.ctx);

    auto text = [&next](const char *name, const char *value) {
        *next++ = {name, const_cast<char *>(value), SHOW_CHAR};
    };
    auto number = [&next](const char *name, ulonglong *value) {
        *next++ = {name, value, SHOW_ULONGLONG};
    };
    auto total = [&number](const char *name, ulonglong *value,
                           const std::atomic<ulonglong> &counter) {
        *value = counter;
        number(name, value);
    };

    get_counts(thd, scope, now.counts);
    text("carrier", transport); /* the old name of "transport" */
    text("connected", connected ? "ON" : "OFF");
    number("connections_begun", &now.counts[APP_CONTEXT_CONNECTIONS_BEGUN]);
    number("connections_ended", &now.counts[APP_CONTEXT_CONNECTIONS_ENDED]);
    total("errors", &now.errors, app_context_totals.errors);
    number("reads", &now.counts[APP_CONTEXT_READS]);
    number("reads_ahead", &now.counts[APP_CONTEXT_READS_AHEAD]);
    total("reads_threads", &now.reads_threads, app_context_totals.reads_threads);
    total("reads_untagged", &now.reads_untagged, app_context_totals.reads_untagged);
    number("statements_begun", &now.counts[APP_CONTEXT_STATEMENTS_BEGUN]);
    number("statements_ended", &now.counts[APP_CONTEXT_STATEMENTS_ENDED]);
    total("threads_begun", &now.threads_begun, app_context_totals.threads_begun);
    total("threads_ended", &now.threads_ended, app_context_totals.threads_ended);
    number("told", &now.counts[APP_CONTEXT_TOLD]);
    number("transactions_begun", &now.counts[APP_CONTEXT_TRANSACTIONS_BEGUN]);
    number("transactions_ended", &now.counts[APP_CONTEXT_TRANSACTIONS_ENDED]);
    text("transport", transport);
    *next = {nullptr, nullptr, SHOW_LONG};
    var->type = SHOW_ARRAY;
    var->value = vars;
    return 0;
}
