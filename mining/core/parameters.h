/* SPDX-License-Identifier: BSD-3-Clause */
/* parameters.h - the parameters of prefetchers: their names, limits and defaults.
 *
 * The server's parameters (name=value), the options of quickmine sim and mine
 * (--name=value), their help and qm_mining_check() are made from this table.  Each
 * prefetcher lists the parameters that it heeds (qm_prefetcher_ops.parameters); the
 * others have no effect with it.
 *
 * The table is constant: any thread may read it at any time.
 */
#ifndef QM_PARAMETERS_H
#define QM_PARAMETERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mining/core/prefetcher.h"

/* In the order in which help shows them. */
enum qm_parameter_id {
    QM_LOOKAHEAD,
    QM_DEGREE,
    QM_MAX_PREFIX,
    QM_MAX_SUFFIX,
    QM_GRACE,
    QM_SEGMENT,
    QM_SKIP_HITS,
    QM_RULES_MEMORY,
    QM_RULES_POOL,
    QM_RULES,
    QM_RULES_FOR,
    QM_RULES_PURGE,
    QM_TRAINED,
    QM_RETRAIN,
    QM_READAHEAD_PRESET,
    QM_READAHEAD_CAP,
    QM_READAHEAD_CAP_DISK,
    QM_READAHEAD_CAP_SSD,
    QM_PARAMETERS, /* how many */
};

/* In a set of parameters. */
#define QM_HEEDS(id) (1u << (id))

enum qm_parameter_kind {
    QM_COUNT, /* a decimal number */
    QM_SIZE,  /* bytes; may be written with K, M, G or T */
    QM_FLAG,  /* on or off */
    QM_FILE,  /* the path of a file or directory */
    QM_WORD,  /* any text but "" */
};

struct qm_parameter {
    const char *name;
    enum qm_parameter_kind kind;
    uint64_t min, max; /* of QM_COUNT and QM_SIZE, as people may give it */
    enum qm_parameter_check {
        QM_UNCHECKED,    /* a program may go beyond: its field has no such limits */
        QM_CHECKED,      /* nobody may: qm_mining_check() */
        QM_CHECKED_OR_0, /* the same, but for 0: it is derived then */
    } check;
    const char *fallback; /* the default, as text */
    const char *paper;    /* that of preset "paper"; NULL: the same */
    const char *help;     /* what it is, without its limits; no full stop */
    size_t offset, bytes; /* of its field in struct qm_mining_config */
};

const struct qm_parameter *qm_parameter(enum qm_parameter_id id);

/* The parameter of that name, or NULL. */
const struct qm_parameter *qm_parameter_find(const char *name);

/* Whether it has an effect with the prefetcher. */
bool qm_parameter_heeded(const struct qm_parameter *parameter,
                         const struct qm_prefetcher_ops *ops);

/* Its field, of QM_COUNT, QM_SIZE and QM_FLAG (0 or 1). */
uint64_t qm_parameter_get(const struct qm_parameter *parameter,
                          const struct qm_mining_config *config);
void qm_parameter_set(const struct qm_parameter *parameter,
                      struct qm_mining_config *config, uint64_t value);

/* The field of QM_FILE and QM_WORD.  Text is not copied. */
void qm_parameter_set_text(const struct qm_parameter *parameter,
                           struct qm_mining_config *config, const char *text);

/* Sets its field, of any kind, to that of from. */
void qm_parameter_copy(const struct qm_parameter *parameter,
                       struct qm_mining_config *config,
                       const struct qm_mining_config *from);

/* The limits of QM_COUNT and QM_SIZE in text: "from 64K to 64G", "at most 65535". */
void qm_parameter_limits(const struct qm_parameter *parameter, char *text, size_t len);

/* A line of help in text, cut to len: what it is, its limits, its default (`fallback`
 * in place of the table's, unless that is NULL), and the policies that heed it. */
void qm_parameter_help(const struct qm_parameter *parameter, const char *fallback,
                       char *text, size_t len);

#endif
