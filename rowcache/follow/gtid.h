/* SPDX-License-Identifier: BSD-3-Clause */
/* gtid.h - MariaDB's global transaction ids, and positions: the last one of each
 * domain. */
#ifndef QM_ROWCACHE_GTID_H
#define QM_ROWCACHE_GTID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QM_GTID_DOMAINS 32
#define QM_GTID_TEXT    (QM_GTID_DOMAINS * 44 + 1)

struct qm_gtid {
    uint32_t domain, server;
    uint64_t sequence;
};

/* Ordered by domain; all zeros is the position before everything. */
struct qm_gtid_list {
    unsigned count;
    struct qm_gtid last[QM_GTID_DOMAINS];
};

/* "0-1-5,3-2-7", or nothing.  False if text is not one, or has too many domains. */
bool qm_gtid_parse(struct qm_gtid_list *list, const char *text, size_t length);
/* Returns text, which has QM_GTID_TEXT bytes. */
char *qm_gtid_print(const struct qm_gtid_list *list, char *text);
/* gtid becomes the last one of its domain.  False if there are too many. */
bool qm_gtid_set(struct qm_gtid_list *list, struct qm_gtid gtid);
/* In each domain, the later one of both. */
bool qm_gtid_raise(struct qm_gtid_list *list, const struct qm_gtid_list *other);
/* Whether list is at least as far as other in each domain of other. */
bool qm_gtid_covers(const struct qm_gtid_list *list, const struct qm_gtid_list *other);
/* Whether a log that was at before has begun anew when it is at now: a domain is gone,
 * or the same server counts from the beginning in it. */
bool qm_gtid_went_back(const struct qm_gtid_list *before,
                       const struct qm_gtid_list *now);
bool qm_gtid_covers_one(const struct qm_gtid_list *list, struct qm_gtid gtid);

#endif
