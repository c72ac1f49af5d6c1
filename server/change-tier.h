/* SPDX-License-Identifier: BSD-3-Clause */
/* change-tier.h - attaches, detaches, replaces and resizes the second tier while the
 * server runs: requests of the control socket that set keys of the tier.
 *
 *   {"set": {"tier": "/PATH", "tier-size": "10G"}}   attach, or replace
 *   {"set": {"tier-size": "20G"}}                    another size for what is attached
 *   {"set": {"tier": ""}}                            detach
 *   {"get": ["tier"]}                                and the other keys
 *   {"tier": "status"}                               what it has and does
 *
 * These keys are set by a request of their own.  A replacement is a detachment and then
 * an attachment; if that fails, there is no tier.  Only the control socket's thread
 * calls this.
 */
#ifndef QMS_CHANGE_TIER_H
#define QMS_CHANGE_TIER_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "server/config.h"

struct qms_server;

/* Whether a key is the tier's and can be set. */
bool qms_change_tier_is(const char *key);

/* Carries out n settings of such keys.  Returns the answer, or NULL and a sentence. */
json_t *qms_change_tier(struct qms_server *s, const struct qms_setting *settings,
                        size_t n, uid_t user, char *err, size_t len);

/* The value of such a key; "" of tier: there is none.  False: it is no such key. */
bool qms_change_tier_get(const struct qms_server *s, const char *key, char *text,
                         size_t len);

/* The tier's parameters and its part of the statistics; "tier": "": there is none. */
json_t *qms_change_tier_status(struct qms_server *s);

#endif
