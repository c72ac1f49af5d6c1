/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - text of others that a person's terminal will show (see text.h). */
#include "trace/text.h"

#include <stdint.h>
#include <string.h>

/* First and last; sorted. */
static const struct {
    uint32_t from, to;
} hidden[] = {
    {0x00, 0x1f},       /* C0 */
    {0x7f, 0x9f},       /* DEL, C1 */
    {0xad, 0xad},       /* soft hyphen */
    {0x61c, 0x61c},     /* Arabic letter mark */
    {0x180e, 0x180e},   /* Mongolian vowel separator */
    {0x200b, 0x200f},   /* zero width, directional marks */
    {0x2028, 0x202e},   /* line and paragraph ends, embeddings and overrides */
    {0x2060, 0x206f},   /* invisible operators, isolates */
    {0xd800, 0xdfff},   /* surrogates */
    {0xfeff, 0xfeff},   /* byte order mark */
    {0xfff0, 0xfffb},   /* annotations */
    {0xfffe, 0xffff},   /* no characters */
    {0xe0000, 0xe0fff}, /* tags */
};

static bool may_be_shown(uint32_t code)
{
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (code <= hidden[i].to)
            return code < hidden[i].from;
    return code <= 0x10ffff;
}

/* The length of the valid UTF-8 sequence at s, and its character; else 0. */
static size_t decode(const unsigned char *s, size_t len, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n;

    *code = s[0];
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        n = 2, *code &= 0x1f;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        n = 3, *code &= 0x0f;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        n = 4, *code &= 0x07;
    else
        return 0;
    if (n > len)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (s[i] & 0x3f);
    }
    return *code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff)
               ? 0
               : n;
}

size_t qm_text_character(const char *text, size_t len)
{
    uint32_t code;
    size_t n = len > 0 ? decode((const unsigned char *)text, len, &code) : 0;

    return n > 0 && may_be_shown(code) ? n : 0;
}

bool qm_text_is_clean(const char *text, size_t len, bool lines)
{
    size_t n;

    for (size_t at = 0; at < len; at += n) {
        n = lines && text[at] == '\n' ? 1 : qm_text_character(text + at, len - at);
        if (n == 0)
            return false;
    }
    return true;
}

size_t qm_text_clean(char *out, const char *text, size_t len, bool lines)
{
    size_t used = 0, n;
    uint32_t code;

    for (size_t at = 0; at < len; at += n) {
        n = lines && text[at] == '\n' ? 1 : qm_text_character(text + at, len - at);
        if (n > 0) {
            memmove(out + used, text + at, n);
            used += n;
            continue;
        }
        n = decode((const unsigned char *)text + at, len - at, &code);
        n = n > 0 ? n : 1;
        out[used++] = '?';
    }
    out[used] = '\0';
    return used;
}
