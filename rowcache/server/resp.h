/* SPDX-License-Identifier: BSD-3-Clause */
/* resp.h - Redis's protocol: commands from bytes, and replies to bytes.
 *
 * A parser is given the same bytes again with more behind them until it has a whole
 * command; it remembers where it was, so slow senders cost no work twice.  Wrong input
 * is refused in Redis's words.  Bounds: a command has at most 1,048,576 words, a word
 * at most max_bulk bytes; before AUTH, 10 and 16,384, as Redis has it. */
#ifndef QM_ROWCACHE_RESP_H
#define QM_ROWCACHE_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rowcache/fill/json.h"

struct qm_word {
    size_t at, length;
};

struct qm_resp {
    size_t max_bulk;
    bool trusted; /* after AUTH */
    /* The command, when qm_resp_parse() has returned 1: words in the bytes. */
    struct qm_word *word;
    unsigned count;
    /* Where it is. */
    unsigned room, left; /* words that are still to come */
    size_t at;           /* bytes read of this command */
    bool in_array, in_bulk;
    size_t bulk;
    char *inline_words; /* an inline command's, without its quotes */
    size_t inline_length;
    const char *error; /* after -1 */
    char error_text[64];
};

enum { QM_RESP_INLINE_MAX = 65536 };

void qm_resp_init(struct qm_resp *resp, size_t max_bulk);
void qm_resp_free(struct qm_resp *resp);
/* 1: a command, of *used bytes (it may have no words); 0: more is needed; -1: an error.
 */
int qm_resp_parse(struct qm_resp *resp, const char *bytes, size_t length, size_t *used);
/* The command has been carried out: gives back what a long one needed. */
void qm_resp_done(struct qm_resp *resp);
/* A word's bytes. */
const char *qm_resp_word(const struct qm_resp *resp, const char *bytes, unsigned i);

/* Replies, to the end of out; resp3 is what the connection speaks. */
void qm_reply_simple(struct qm_text *out, const char *text);
void qm_reply_error(struct qm_text *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void qm_reply_integer(struct qm_text *out, int64_t value);
void qm_reply_bulk(struct qm_text *out, const void *bytes, size_t length);
void qm_reply_string(struct qm_text *out, const char *text);
void qm_reply_null(struct qm_text *out, bool resp3);
void qm_reply_array(struct qm_text *out, size_t count);
void qm_reply_map(struct qm_text *out, size_t pairs, bool resp3);

#endif
