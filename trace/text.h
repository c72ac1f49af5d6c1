/* text.h - text of others that a person's terminal will show.
 *
 * Names of classes come from clients and from files.  A terminal takes some characters
 * for commands (C0, C1, DEL), and some change the order in which others are shown or
 * cannot be seen at all, so that one name passes for another.
 */
#ifndef QM_TRACE_TEXT_H
#define QM_TRACE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The bytes of the character at text, of which len are there: a valid UTF-8 sequence
 * (neither overlong nor a surrogate) of a character that may be shown; else 0. */
size_t qm_text_character(const char *text, size_t len);

/* Whether all of text may be shown.  Line ends may, if asked for. */
bool qm_text_is_clean(const char *text, size_t len, bool lines);

/* Copies len bytes of text to out, which has room for len + 1, with a question mark in
 * place of each character, or byte that is of none, that may not be shown; terminates
 * it, and returns its length.  The two may be the same. */
size_t qm_text_clean(char *out, const char *text, size_t len, bool lines);

#endif
