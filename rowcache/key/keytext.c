/* SPDX-License-Identifier: BSD-3-Clause */
/* keytext.c - a key's columns as one text; see keytext.h. */
#include "rowcache/key/keytext.h"

static bool is_escaped(unsigned char c)
{
    return c <= ' ' || c == ':' || c == '%' || c == 0x7f;
}

static void put(struct qm_keytext *key, char c)
{
    if (key->length == sizeof key->text)
        key->failed = true;
    else
        key->text[key->length++] = c;
}

void qm_keytext_start(struct qm_keytext *key)
{
    key->length = 0;
    key->columns = 0;
    key->failed = false;
}

void qm_keytext_add(struct qm_keytext *key, const char *value, size_t length)
{
    static const char digits[] = "0123456789ABCDEF";

    if (key->columns++ > 0)
        put(key, ':');
    for (size_t i = 0; i < length && !key->failed; i++) {
        unsigned char c = (unsigned char)value[i];

        if (!is_escaped(c)) {
            put(key, (char)c);
            continue;
        }
        put(key, '%');
        put(key, digits[c >> 4]);
        put(key, digits[c & 15]);
    }
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

long qm_keytext_decode(const char *part, size_t length, char *value, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < length; i++) {
        char c = part[i];

        if (c == '%') {
            int high = i + 2 < length ? digit(part[i + 1]) : -1;
            int low = i + 2 < length ? digit(part[i + 2]) : -1;

            if (high < 0 || low < 0)
                return -1;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (n == size)
            return -1;
        value[n++] = c;
    }
    return (long)n;
}
