/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c - see log.h.
 *
 * nbdkit lets a filter say errors only, and puts "error: " before each.  A note is
 * none, so it goes where nbdkit's errors go by a way of its own: to what --log says,
 * else to the system log if nbdkit has gone into the background, else to stderr.
 */
#include "server/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include <nbdkit-filter.h>

static const char *const names[] = {
    [QMS_ERROR] = "error", [QMS_WARNING] = "warning", [QMS_NOTE] = "note"};

static _Atomic int limit = QMS_NOTE;

const char *qms_log_name(enum qms_log_level level)
{
    return names[level];
}

int qms_log_parse(const char *name)
{
    for (int i = QMS_ERROR; i <= QMS_NOTE; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

void qms_log_limit(enum qms_log_level level)
{
    atomic_store(&limit, (int)level);
}

enum where { STDERR, SYSLOG, NOWHERE, AS_FORKED };

static _Atomic int where = AS_FORKED;
static pid_t started_as;

/* Whether it is nbdkit's option --run, with or without a value.  Then the server forks,
 * but its stderr stays what it was, and so does where its errors go. */
static bool is_run(const char *a)
{
    size_t n = strcspn(a, "=");

    return n >= strlen("--ru") && n <= strlen("--run") && strncmp(a, "--run", n) == 0;
}

/* nbdkit's option --log among its arguments, which follow one another with a zero byte
 * each; the last one counts. */
static enum where find_option(const char *arguments, size_t n)
{
    static const char *const names_of[] = {"stderr", "syslog", "null"};
    enum where found = AS_FORKED;
    const char *value = NULL;
    bool runs = false;

    for (const char *a = arguments; a < arguments + n; a += strlen(a) + 1) {
        if (value) /* the option was an argument by itself */
            value = a;
        else if (strncmp(a, "--log=", 6) == 0)
            value = a + 6;
        else if (strcmp(a, "--log") == 0) {
            value = "";
            continue;
        } else {
            runs = runs || is_run(a);
            continue;
        }
        for (int i = STDERR; i <= NOWHERE; i++)
            if (strcmp(value, names_of[i]) == 0)
                found = (enum where)i;
        value = NULL;
    }
    return found == AS_FORKED && runs ? STDERR : found;
}

void qms_log_begin(void)
{
    static char arguments[64 << 10];
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t n = file ? fread(arguments, 1, sizeof arguments - 1, file) : 0;

    if (file)
        fclose(file);
    arguments[n] = '\0';
    started_as = getpid();
    atomic_store(&where, find_option(arguments, n));
}

static void note(const char *text)
{
    int to = atomic_load(&where);

    if (to == AS_FORKED)
        to = started_as != 0 && getpid() != started_as ? SYSLOG : STDERR;
    if (to == SYSLOG)
        syslog(LOG_NOTICE, "note: %s", text);
    else if (to == STDERR)
        fprintf(stderr, "nbdkit: note: %s\n", text);
}

void qms_log(enum qms_log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;

    if ((int)level > atomic_load(&limit))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (level == QMS_NOTE)
        note(text);
    else
        nbdkit_error("%s%s%s", level == QMS_ERROR ? "" : names[level],
                     level == QMS_ERROR ? "" : ": ", text);
}
