/* SPDX-License-Identifier: BSD-3-Clause */
/* text.h - makes text from clients and files safe to show on a terminal.
 *
 * Names of classes come from clients and from files.  A terminal interprets some
 * characters as commands (C0, C1, DEL).  Others change the order of the characters
 * around them, or are invisible, so that one name passes for another.
 */
#ifndef QM_TRACE_TEXT_H
#define QM_TRACE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The length in bytes of the character at text, which has len bytes, if that is a valid
 * UTF-8 sequence (neither overlong nor a surrogate) of a character that may be shown;
 * else 0. */
size_t qm_text_character(const char *text, size_t len);

/* Whether all characters of text may be shown.  lines: line ends may, too. */
bool qm_text_is_clean(const char *text, size_t len, bool lines);

/* Copies len bytes of text to out, which has space for len + 1, and terminates it.
 * Replaces each character that may not be shown, and each invalid byte, by a question
 * mark.  Returns the length of out.  The two may be the same. */
size_t qm_text_clean(char *out, const char *text, size_t len, bool lines);

#endif
