/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline.c - the commands behind one that waits for rows; see server.h.
 *
 * Commands are carried out in their order, but the rows that those behind it will ask
 * for are read meanwhile: whole commands in the input are parsed, and stay there.  It
 * stops at the first that is not a read of named rows, for what that one does (SELECT,
 * RESET, DEL, WAITGTID) may change what the reads behind it mean.
 *
 * Freshness does not depend on this file: see rows_ask_early().  Bounds: one client has
 * as many such rows as keep the pool busy, and a command of many words ends the look:
 * its own rows are read together anyway. */
#include "rowcache/server/rows-ask.h"

/* Its keys, as far as there is room.  False: no more now. */
static bool ask(struct client *c, const struct command *of, const struct qm_resp *resp,
                const char *bytes)
{
    unsigned end = qm_command_has_keys(of) ? resp->count : 2;

    for (unsigned i = 1; i < end; i++)
        if (!rows_ask_early(c, qm_resp_word(resp, bytes, i), resp->word[i].length))
            return false;
    return true;
}

static bool is_read(const struct command *of, unsigned words)
{
    return of && of->flags & COMMAND_READS && qm_command_has_key(of) &&
           (of->arity > 0 ? (int)words == of->arity : (int)words >= -of->arity);
}

void pipeline_look(struct client *c)
{
    const char *bytes = c->in + c->in_at;
    size_t length = c->in_length - c->in_at, used = 0;
    struct qm_resp peek;

    if (c->looked < c->used)
        c->looked = c->used;
    if (c->looked >= length || !rows_may_ask_early(c))
        return;
    /* It is not trusted, and so takes few words, which are not of input-memory. */
    qm_resp_init(&peek, c->server->config->max_request);
    while (qm_resp_parse(&peek, bytes + c->looked, length - c->looked, &used) == 1) {
        const char *at = bytes + c->looked;
        const struct command *of =
            peek.count > 0
                ? qm_command_find(qm_resp_word(&peek, at, 0), peek.word[0].length)
                : NULL;

        if (!is_read(of, peek.count) || !ask(c, of, &peek, at))
            break;
        c->looked += used;
        qm_resp_done(&peek);
    }
    qm_resp_free(&peek);
}
