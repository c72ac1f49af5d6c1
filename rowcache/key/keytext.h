/* SPDX-License-Identifier: BSD-3-Clause */
/* keytext.h - how the values of a key's columns are written as one text.
 *
 * The text names a row: the same for a client's key, a row that was read, and a row
 * image of the binary log.  Columns are joined by ':'.  In a column's value ':', '%',
 * blanks and control characters are written as %XX (upper case); all other bytes stay
 * as they are.
 */
#ifndef QM_ROWCACHE_KEYTEXT_H
#define QM_ROWCACHE_KEYTEXT_H

#include <stdbool.h>
#include <stddef.h>

#define QM_KEY_MAX 4096 /* of a whole key's text */

struct qm_keytext {
    size_t length;
    unsigned columns;
    bool failed; /* it does not fit */
    char text[QM_KEY_MAX];
};

void qm_keytext_start(struct qm_keytext *key);
/* One more column's value, as MariaDB prints it. */
void qm_keytext_add(struct qm_keytext *key, const char *value, size_t length);

/* One column's part of a key's text, without its escapes.  Returns its length, or -1 if
 * an escape is wrong or it does not fit. */
long qm_keytext_decode(const char *part, size_t length, char *value, size_t size);

#endif
