/* SPDX-License-Identifier: BSD-3-Clause */
/* json.h - a row as a JSON object, written from MariaDB's text, and read again.
 *
 * Numbers keep all their digits; bytes are base64; NULL is null; all else is a string.
 */
#ifndef QM_ROWCACHE_JSON_H
#define QM_ROWCACHE_JSON_H

#include <stdbool.h>
#include <stddef.h>

struct qm_text {
    char *bytes;
    size_t length, room;
    bool failed; /* there was no memory */
};

enum qm_json_kind { QM_JSON_TEXT, QM_JSON_NUMBER, QM_JSON_BYTES, QM_JSON_BITS };

void qm_text_add(struct qm_text *text, const void *bytes, size_t length);
void qm_text_free(struct qm_text *text);

/* One more member of the object that text ends with; value NULL: null. */
void qm_json_start(struct qm_text *text);
void qm_json_add(struct qm_text *text, const char *name, size_t name_length,
                 enum qm_json_kind kind, const char *value, size_t length);
void qm_json_end(struct qm_text *text);

/* Goes through the members of what was written so: *at begins as the object.  Strings
 * come without their escapes.  Returns 1, 0 at the end, -1 if it is none. */
struct qm_member {
    struct qm_text name, value; /* reused; to be freed at the end */
    bool null;
};
int qm_json_next(const char **at, const char *end, struct qm_member *member);
void qm_member_free(struct qm_member *member);

#endif
