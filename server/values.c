/* SPDX-License-Identifier: BSD-3-Clause */
/* values.c - see values.h.
 *
 * nbdkit_parse_size(), nbdkit_parse_bool() and their like are not used: they print a
 * message of their own, which names neither the parameter nor what is allowed, so a
 * user would get two, or the worse one.
 */
#include "server/values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <nbdkit-filter.h>

#define MAX_MEMORY_SIZE (UINT64_C(1) << 50)
#define LEAST_MEMORY    (UINT64_C(64) << 10)

/* Where the sentence goes that says what is wrong; NULL: it is logged. */
static _Thread_local char *told;
static _Thread_local size_t told_len;

void qms_value_tell(char *err, size_t len)
{
    told = err;
    told_len = len;
}

void qms_value_complain(const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (told)
        snprintf(told, told_len, "%s", text);
    else
        nbdkit_error("%s", text);
}

int qms_value_wrong(const char *key, const char *value, const char *allowed)
{
    qms_value_complain("%s must be %s, not \"%s\"", key, allowed, value);
    return -1;
}

int qms_value_number(const char *value, uint64_t *n)
{
    char *end;

    if (*value < '0' || *value > '9')
        return -1;
    errno = 0;
    *n = strtoull(value, &end, 10);
    return errno != 0 || *end != '\0' ? -1 : 0;
}

int qms_value_size(const char *value, uint64_t *n)
{
    static const char units[] = "KMGTPE";
    size_t digits = strspn(value, "0123456789");
    char text[24], *unit;
    unsigned shift;

    if (digits == 0 || digits >= sizeof text)
        return -1;
    memcpy(text, value, digits);
    text[digits] = '\0';
    if (qms_value_number(text, n) == -1)
        return -1;
    if (value[digits] == '\0')
        return 0;
    unit = memchr(units, value[digits] & ~0x20, sizeof units - 1);
    if (!unit || value[digits + 1] != '\0')
        return -1;
    shift = 10 * (unit - units + 1);
    if (*n > UINT64_MAX >> shift)
        return -1;
    *n <<= shift;
    return 0;
}

int qms_value_ranged(const char *key, const char *value, uint64_t least, uint64_t most,
                     uint64_t *n)
{
    char allowed[80];

    if (qms_value_number(value, n) == 0 && *n >= least && *n <= most)
        return 0;
    snprintf(allowed, sizeof allowed, "a number from %" PRIu64 " to %" PRIu64, least,
             most);
    return qms_value_wrong(key, value, allowed);
}

int qms_value_sized(const char *key, const char *value, uint64_t *n)
{
    if (qms_value_size(value, n) == 0 && *n <= MAX_MEMORY_SIZE)
        return 0;
    return qms_value_wrong(key, value,
                           "a size in bytes, or with K, M, G or T (like 64M)");
}

uint64_t qms_value_most_memory(const char **whose)
{
    uint64_t machine =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    struct rlimit limit;

    *whose = "this machine's memory";
    if (getrlimit(RLIMIT_AS, &limit) == -1 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= machine)
        return machine;
    *whose = "the memory that this process may have (ulimit -v)";
    return limit.rlim_cur;
}

int qms_value_check_memory(const char *key, uint64_t bytes)
{
    const char *whose;
    uint64_t most = qms_value_most_memory(&whose);

    if (bytes <= most)
        return 0;
    qms_value_complain("%s must not exceed %s, %" PRIu64 " bytes; it is %" PRIu64, key,
                       whose, most, bytes);
    return -1;
}

int qms_value_memory(const char *key, const char *value, unsigned most_gib, uint64_t *n)
{
    char allowed[128];

    if (qms_value_size(value, n) == -1 || *n < LEAST_MEMORY ||
        *n > (uint64_t)most_gib << 30) {
        snprintf(allowed, sizeof allowed,
                 "a size from 64K to %uG, in bytes, or with K, M, G or T (like 64M)",
                 most_gib);
        return qms_value_wrong(key, value, allowed);
    }
    return qms_value_check_memory(key, *n);
}

int qms_value_path(const char *key, const char *value, char **path)
{
    if (*value == '\0')
        return qms_value_wrong(key, value, "a path");
    free(*path);
    *path = nbdkit_absolute_path(value);
    return *path ? 0 : -1;
}
