/* SPDX-License-Identifier: BSD-3-Clause */
/* bench-statement.c - what MariaDB's plugin itself costs a statement.
 *
 * bench_statement QMCTX.SO [ROUNDS]: is the server for the plugin, and tells it of
 * statements as MariaDB 10.11 does: for each a LOG, a RESULT and a STATUS, in
 * autocommit mode, over the transport `agent` without an agent (what it costs does not
 * depend on one).  Prints the nanoseconds that the plugin takes for a statement, the
 * least of some runs: with the same text each time, with another number in it each
 * time, and the same text in two threads at once.  What the server does for any audit
 * plugin is not in it.
 */
#include <my_global.h>
#include <mysql/plugin.h>
#include <mysql/plugin_audit.h>

#include <dlfcn.h>
#include <err.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS 300

static const struct st_mysql_audit *audit;
static unsigned long rounds = 5000;

/* What the plugin calls. */

static __thread unsigned long long values[8];

static unsigned long long *resolve(MYSQL_THD thd, int offset)
{
    return &values[offset];
}

__attribute__((visibility("default"))) long long thd_test_options(const MYSQL_THD thd,
                                                                  long long options);
long long thd_test_options(const MYSQL_THD thd, long long options)
{
    return 0;
}

static void print_error(unsigned int error, const char *format, unsigned long flags,
                        ...)
{
}

static struct my_print_error_service_st errors = {.my_printf_error_func = print_error};

/* The beginnings of what the macros MYSQL_SYSVAR_*() and MYSQL_THDVAR_*() make. */
struct of_all {
    MYSQL_PLUGIN_VAR_HEADER;
    void *value;
};
struct of_session {
    MYSQL_PLUGIN_VAR_HEADER;
    int offset;
    unsigned long long def_val, min_val, max_val, blk_sz;
    DECLARE_THDVAR_FUNC(unsigned long long);
};

/* Each variable as it is by default, but for the mount. */
static void set_variables(struct st_mysql_sys_var **variables)
{
    int offset = 0;

    for (; *variables; variables++) {
        struct of_session *session = (void *)*variables;
        struct of_all *all = (void *)*variables;

        if (all->flags & PLUGIN_VAR_THDLOCAL) {
            session->offset = offset++;
            session->resolve = resolve;
        } else if (strcmp(all->name, "mount") == 0) {
            *(const char **)all->value = "agent:/none";
        } else if (strcmp(all->name, "enabled") == 0) {
            *(my_bool *)all->value = 1;
        } else if (strcmp(all->name, "level") == 0) {
            *(unsigned long *)all->value = 2;
        }
    }
}

static void load(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW);
    struct my_print_error_service_st **service;
    struct st_maria_plugin *declared;

    if (!plugin)
        errx(1, "%s", dlerror());
    declared = dlsym(plugin, "_maria_plugin_declarations_");
    service = dlsym(plugin, "my_print_error_service");
    if (!declared || !service)
        errx(1, "%s is no plugin of MariaDB's", path);
    *service = &errors;
    set_variables(declared->system_vars);
    audit = declared->info;
    if (declared->init(NULL) != 0)
        errx(1, "the plugin does not start");
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* A run's nanoseconds a statement. */
static double run(unsigned long connection, bool alike)
{
    static const char form[] = "SELECT c FROM sbtest1 WHERE id=%06lu";
    const MYSQL_THD thd = (MYSQL_THD)(uintptr_t)connection;
    char text[sizeof form + 8];
    struct mysql_event_general event = {.general_thread_id = connection,
                                        .general_user = "root[root] @ localhost []",
                                        .general_user_length = 25,
                                        .general_command = "Query",
                                        .general_command_length = 5,
                                        .general_query = text};
    double start = now();

    event.general_query_length = (unsigned)sprintf(text, form, 123456ul);
    for (unsigned long i = 0; i < rounds; i++) {
        /* A number of as many digits. */
        for (unsigned d = 1; alike && d <= 4; d++)
            text[event.general_query_length - d] = (char)('0' + (i >> 3 * (d - 1) & 7));
        event.query_id++;
        for (unsigned at = 0; at < 3; at++) {
            static const unsigned events[] = {MYSQL_AUDIT_GENERAL_LOG,
                                              MYSQL_AUDIT_GENERAL_RESULT,
                                              MYSQL_AUDIT_GENERAL_STATUS};

            event.event_subclass = events[at];
            audit->event_notify(thd, MYSQL_AUDIT_GENERAL_CLASS, &event);
        }
    }
    return (now() - start) / (double)rounds;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of the runs the least, or the median: two threads have to run at the same time. */
static double measure(unsigned long connection, bool alike, bool median)
{
    double runs[RUNS];

    for (unsigned i = 0; i < RUNS; i++)
        runs[i] = run(connection, alike);
    qsort(runs, RUNS, sizeof *runs, compare);
    return runs[median ? RUNS / 2 : 0];
}

static void *in_thread(void *arg)
{
    *(double *)arg = measure(2, false, true);
    return NULL;
}

int main(int argc, char **argv)
{
    double both[2];
    pthread_t thread;

    if (argc > 2)
        rounds = strtoul(argv[2], NULL, 10);
    if (argc < 2 || rounds == 0)
        errx(2, "usage: bench_statement QMCTX.SO [ROUNDS]");
    load(argv[1]);
    printf("the same text:       %6.0f ns\n", measure(1, false, false));
    printf("with other numbers:  %6.0f ns\n", measure(1, true, false));
    if (pthread_create(&thread, NULL, in_thread, &both[0]) != 0)
        errx(1, "no thread");
    both[1] = measure(1, false, true);
    pthread_join(thread, NULL);
    printf("two threads:         %6.0f ns\n", (both[0] + both[1]) / 2);
    return 0;
}
