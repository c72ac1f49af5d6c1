/* SPDX-License-Identifier: BSD-3-Clause */
/* names.c - the names of kinds and levels of contexts (see context.h).
 *
 * By itself: what writes traces needs no more of the library.
 */
#include <stddef.h>
#include <string.h>

#include "mining/core/context.h"

static const char *const kind_names[] = {
    [QM_CONNECTION] = "connection",
    [QM_THREAD] = "thread",
    [QM_TRANSACTION] = "transaction",
    [QM_QUERY] = "query",
};

static const char *const level_names[] = {
    [QM_LEVEL_INNERMOST] = "innermost", [QM_LEVEL_CONNECTION] = "connection",
    [QM_LEVEL_THREAD] = "thread",       [QM_LEVEL_TRANSACTION] = "transaction",
    [QM_LEVEL_QUERY] = "query",         [QM_LEVEL_NONE] = "none",
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const char *name_of(const char *const *names, size_t n, unsigned number)
{
    return number < n ? names[number] : NULL;
}

static int number_of(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (names[i] && strcmp(names[i], name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const char *qm_kind_name(enum qm_kind kind)
{
    return name_of(kind_names, COUNT(kind_names), (unsigned)kind);
}

const char *qm_level_name(enum qm_level level)
{
    return name_of(level_names, COUNT(level_names), (unsigned)level);
}

int qm_kind_parse(const char *name)
{
    return number_of(kind_names, COUNT(kind_names), name);
}

int qm_level_parse(const char *name)
{
    return number_of(level_names, COUNT(level_names), name);
}
