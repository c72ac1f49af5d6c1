/* SPDX-License-Identifier: BSD-3-Clause */
/* template.h - what statements of one kind have in common: their text without literals.
 *
 * "SELECT * FROM item WHERE i_id = 42", the same with other spacing, comments or case,
 * and its prepared form "... = ?" have one template, "select * from item where i_id =
 * ?", and so one class.  The work is one pass over the text, without a parser, without
 * allocation, and with a bounded result: nothing here fails, whatever the text is.
 *
 * What is left of a statement:
 *   - literals (strings, numbers of any notation with their sign, NULL, TRUE and FALSE
 *     where a value stands) and placeholders become "?"
 *   - comments go; what is in executable ones (slash, star, exclamation mark) stays
 *   - spacing is canonical, so that "a=1" and "a = 1" are the same
 *   - ASCII letters outside of backquotes become small; identifiers stay as they are
 *   - in an IN list and among the rows of VALUES, what repeats its neighbour goes
 *
 * What it cannot know: the session's sql_mode (text in double quotes counts as a
 * string, a backslash as an escape) and character set (bytes from 0x80 on count as
 * letters).
 */
#ifndef QM_TEMPLATE_H
#define QM_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A template's longest text.  What does not fit is left out, by whole words. */
#define QM_TEMPLATE_MAX 4095

struct qm_template {
    size_t len;
    bool several; /* statements, or a compound one: there is a ";" in the middle */
    char text[QM_TEMPLATE_MAX + 1]; /* terminated, but may itself contain NULs */
};

/* Makes the template of len bytes of SQL. */
void qm_template_make(const char *sql, size_t len, struct qm_template *t);

/* Its class: XXH64 of the text; never 0. */
uint64_t qm_template_class(const struct qm_template *t);

/* Whether the template's first words are these ("start transaction"), canonically
 * written. */
bool qm_template_begins(const struct qm_template *t, const char *words);

/* The text as a name for people: at most max bytes of UTF-8 and a terminating NUL, cut
 * between characters; what is no valid UTF-8, or not printable, becomes "?".
 * Returns its length. */
size_t qm_template_name(const struct qm_template *t, char *name, size_t max);

#endif
