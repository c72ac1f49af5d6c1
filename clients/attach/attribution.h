/* SPDX-License-Identifier: BSD-3-Clause */
/* attribution.h - the contexts of the requests that the kernel sends for a block
 * device.
 *
 * An agent (clients/bpf) sees reads being submitted, and knows their contexts; the
 * joiner (join.h) finds them again in requests.  A request's arrival has the kernel's
 * ring drained, so that what was submitted before it is known; the ring is drained in
 * the background as well, and programs are registered there.
 *
 * A context is begun at the server before the first read in it is sent, and ends after
 * the last.
 *
 * Threads: any thread may call anything; qm_attribution_close() is the last.
 */
#ifndef QM_ATTACH_ATTRIBUTION_H
#define QM_ATTACH_ATTRIBUTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "clients/attach/join.h"
#include "clients/bpf/agent.h"
#include "clients/libqmctx/device-tag.h"
#include "clients/libqmctx/device.h"

struct qm_attribution;

struct qm_attribution_config {
    struct qm_device *device; /* the server's; outlives this */
    const char *socket;       /* where programs register; NULL: nowhere */
    dev_t watched;            /* the block device whose reads are looked at */
    bool threads;             /* threads without a context of their own are one each */
};

/* Returns 0, or an errno value with a sentence in err. */
int qm_attribution_open(struct qm_attribution **whose,
                        const struct qm_attribution_config *config, char *err,
                        size_t len);
/* May be NULL. */
void qm_attribution_close(struct qm_attribution *whose);

/* A part of a read, in one context. */
struct qm_attribution_part {
    uint64_t offset;
    uint32_t bytes;
    struct qm_tag *tag; /* NULL: no context; else to be given back by qm_tag_put() */
};

#define QM_ATTRIBUTION_PARTS 64 /* more contexts in one request are not told apart */

/* Says whose the bytes of a read request are, which has just arrived.  Returns how many
 * parts there are, at least 1 if there are bytes.  Takes a microsecond; more only
 * while a processor stands still in the middle of telling of a read (patience.h). */
size_t qm_attribution_read(struct qm_attribution *whose, uint64_t offset,
                           uint32_t bytes,
                           struct qm_attribution_part parts[QM_ATTRIBUTION_PARTS]);

struct qm_attribution_stats {
    struct qm_agent_stats agent;
    struct qm_join_stats join;
    uint64_t again; /* requests that had to look into the ring more than once */
};

void qm_attribution_get_stats(struct qm_attribution *whose,
                              struct qm_attribution_stats *stats);

#endif
