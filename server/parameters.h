/* SPDX-License-Identifier: BSD-3-Clause */
/* parameters.h - the table of the filter's parameters, for config.c and settings.c.
 *
 * A key's value points into the command line, or is a copy that came with a change
 * while the server ran.  One thread at a time uses the table.
 */
#ifndef QMS_PARAMETERS_H
#define QMS_PARAMETERS_H

#include <nbdkit-filter.h>

#include "server/config.h"

#define QMS_PARALLEL_ALLOWED (NBDKIT_VERSION_MAJOR > 1 || NBDKIT_VERSION_MINOR >= 34)

/* With which policies a key has an effect. */
enum qms_effect {
    QMS_ALWAYS,
    QMS_IF_PREFETCHING, /* all but none */
    QMS_IF_ASKED, /* those that prefetch, and are not asked after each access anyway */
    QMS_IF_LEARNING, /* those with work for the miner's thread */
    QMS_IF_SAVING,   /* those with rules that are kept in a directory */
    QMS_IF_HEEDED,   /* those that list it: it is in the table of parameters */
};

struct qms_key {
    const char *key;
    /* Returns 0, or -1 when qms_value_complain() has said what was wrong.  NULL: by the
     * table of mining/core/parameters.c. */
    int (*parse)(const char *key, const char *value, struct qms_config *config);
    enum qms_effect effect;
    const char *form, *help; /* NULL: by a table */
};

extern const struct qms_key qms_keys[];
extern const size_t qms_key_count;

/* Parses value as that of the i-th key, into config.  As qms_key.parse. */
int qms_key_set(size_t i, const char *value, struct qms_config *config);

/* The i-th key's value, or NULL: it was not given. */
const char *qms_key_value(size_t i);

/* value, which was allocated, is the i-th key's from now on, and is owned by the table.
 */
void qms_key_keep(size_t i, char *value);

/* Frees what was kept. */
void qms_key_free_kept(void);

/* Whether the i-th key's value names a file or a socket. */
bool qms_key_is_path(size_t i);

#endif
