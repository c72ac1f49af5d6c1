/* SPDX-License-Identifier: BSD-3-Clause */
/* name.c - text of others, in columns of a terminal: names of classes come from
 * clients.
 *
 * What a terminal should not be given (trace/text.h), or cannot show in the user's
 * locale, is a question mark.  The program's own locale stays "C", so numbers and
 * messages do not change.
 */
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "cli/cli.h"
#include "trace/text.h"

/* The user's locale if its characters are UTF-8, or 0. */
static locale_t utf8_locale(void)
{
    static locale_t locale;
    static bool asked;

    if (!asked) {
        asked = true;
        locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
        if (locale && strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") != 0) {
            freelocale(locale);
            locale = (locale_t)0;
        }
    }
    return locale;
}

/* The first character of clean text (trace/text.h), and its bytes. */
static size_t decode(const char *s, uint32_t *code)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t n = u[0] < 0x80 ? 1 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;

    *code = n == 1 ? u[0] : u[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        *code = *code << 6 | (u[i] & 0x3f);
    return n;
}

/* Columns that the character takes; 0: it joins the one before; -1: the terminal cannot
 * show it. */
static int columns_of(uint32_t code, locale_t locale)
{
    locale_t before;
    int columns;

    if (code < 0x80)
        return 1;
    if (!locale)
        return -1;
    before = uselocale(locale);
    columns = wcwidth((wchar_t)code);
    uselocale(before);
    return columns;
}

size_t cli_print_name(const char *name, size_t skip, size_t width)
{
    locale_t locale = utf8_locale();
    size_t length = strlen(name), at = 0, printed = 0;
    char *clean = malloc(length + 1), *p;

    if (!clean)
        return 0;
    qm_text_clean(clean, name, length, false);
    for (p = clean; *p;) {
        uint32_t code;
        size_t bytes = decode(p, &code);
        int columns = columns_of(code, locale);
        size_t wide = columns < 0 ? 1 : (size_t)columns;

        if (at >= skip) {
            if (wide > width - printed)
                break;
            if (columns < 0)
                putchar('?');
            else if (wide > 0 || printed > 0)
                fwrite(p, 1, bytes, stdout);
            printed += wide;
        }
        at += wide;
        p += bytes;
    }
    free(clean);
    return printed;
}

size_t cli_name_width(const char *name)
{
    locale_t locale = utf8_locale();
    size_t length = strlen(name), width = 0;
    char *clean = malloc(length + 1), *p;

    if (!clean)
        return 0;
    qm_text_clean(clean, name, length, false);
    for (p = clean; *p;) {
        uint32_t code;
        size_t bytes = decode(p, &code);
        int columns = columns_of(code, locale);

        width += columns < 0 ? 1 : (size_t)columns;
        p += bytes;
    }
    free(clean);
    return width;
}
