/* SPDX-License-Identifier: BSD-3-Clause */
/* print.c - packed values as MariaDB prints them; see print.h. */
#include "rowcache/follow/print.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rowcache/follow/bytes.h"
#include "rowcache/follow/value.h"

/* Decimals: nine digits in four bytes, fewer in as few as hold them; the sign is the
 * first bit, inverted, and a negative number's bits are all inverted. */
static const uint8_t bytes_of_digits[10] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 4};

size_t qm_decimal_size(unsigned precision, unsigned scale)
{
    unsigned whole = precision - scale;

    return whole / 9 * 4 + bytes_of_digits[whole % 9] + scale / 9 * 4 +
           bytes_of_digits[scale % 9];
}

static const uint8_t *group(const uint8_t *at, unsigned digits, uint8_t mask,
                            char **text)
{
    uint8_t bytes[4];
    size_t size = bytes_of_digits[digits];
    uint32_t value;

    if (digits == 0)
        return at;
    for (size_t i = 0; i < size; i++)
        bytes[i] = at[i] ^ mask;
    value = (uint32_t)qm_big(bytes, size);
    for (unsigned i = digits; i-- > 0; value /= 10)
        (*text)[i] = (char)('0' + value % 10);
    *text += digits;
    return at + size;
}

long qm_print_decimal(unsigned precision, unsigned scale, const uint8_t *value,
                      char *text)
{
    uint8_t first[40];
    char digits[80], *end = digits, *from = digits, *to = text;
    size_t size = qm_decimal_size(precision, scale);
    bool negative = !(value[0] & 0x80);
    uint8_t mask = negative ? 0xff : 0;
    unsigned whole = precision - scale, left;
    const uint8_t *at = first;

    memcpy(first, value, size);
    first[0] ^= 0x80;
    at = group(at, whole % 9, mask, &end);
    for (left = whole / 9; left > 0; left--)
        at = group(at, 9, mask, &end);
    whole = (unsigned)(end - digits);
    for (left = scale / 9; left > 0; left--)
        at = group(at, 9, mask, &end);
    group(at, scale % 9, mask, &end);
    if (negative)
        *to++ = '-';
    while (whole > 1 && *from == '0') {
        from++;
        whole--;
    }
    if (whole == 0)
        *to++ = '0';
    memcpy(to, from, whole);
    to += whole;
    from += whole;
    if (scale > 0) {
        *to++ = '.';
        memcpy(to, from, scale);
        to += scale;
    }
    *to = '\0';
    return to - text;
}

/* ".120", with that many digits, from a fraction of (digits + 1) / 2 bytes. */
static size_t fraction(char *text, unsigned digits, uint64_t packed)
{
    if (digits == 0) {
        text[0] = '\0';
        return 0;
    }
    if (digits & 1)
        packed /= 10;
    return (size_t)sprintf(text, ".%0*" PRIu64, (int)digits, packed);
}

static long print_time2(unsigned digits, const uint8_t *value, char *text)
{
    static const unsigned scale[] = {1, 100, 10000, 1000000};
    unsigned bytes = (digits + 1) / 2;
    /* One number with the sign as an offset, so that the bytes sort. */
    int64_t packed =
        (int64_t)qm_big(value, 3 + bytes) - ((int64_t)1 << (23 + 8 * bytes));
    bool negative = packed < 0;
    uint64_t all = (uint64_t)(negative ? -packed : packed);
    uint64_t part = bytes ? all & ((UINT64_C(1) << (8 * bytes)) - 1) : 0;
    uint64_t time = all >> (8 * bytes);
    size_t n;

    if (part >= scale[bytes])
        return -1;
    n = (size_t)sprintf(text, "%s%02u:%02u:%02u", negative ? "-" : "",
                        (unsigned)(time >> 12 & 0x3ff), (unsigned)(time >> 6 & 63),
                        (unsigned)(time & 63));
    return (long)(n + fraction(text + n, digits, part));
}

static long print_datetime2(unsigned digits, const uint8_t *value, char *text)
{
    uint64_t packed = qm_big(value, 5) - UINT64_C(0x8000000000);
    uint64_t day = packed >> 17, time = packed & 0x1ffff, month = day >> 5;
    size_t n;

    if (!(value[0] & 0x80))
        return -1;
    n = (size_t)sprintf(text, "%04u-%02u-%02u %02u:%02u:%02u", (unsigned)(month / 13),
                        (unsigned)(month % 13), (unsigned)(day & 31),
                        (unsigned)(time >> 12), (unsigned)(time >> 6 & 63),
                        (unsigned)(time & 63));
    return (long)(n + fraction(text + n, digits, qm_big(value + 5, (digits + 1) / 2)));
}

static long print_timestamp2(unsigned digits, const uint8_t *value, char *text)
{
    time_t seconds = (time_t)qm_big(value, 4);
    uint64_t part = qm_big(value + 4, (digits + 1) / 2);
    struct tm tm;
    size_t n;

    if (seconds == 0 && part == 0)
        n = (size_t)sprintf(text, "0000-00-00 00:00:00");
    else {
        if (!gmtime_r(&seconds, &tm))
            return -1;
        n = strftime(text, QM_PRINT_MAX, "%Y-%m-%d %H:%M:%S", &tm);
    }
    return (long)(n + fraction(text + n, digits, part));
}

long qm_print_time(uint8_t type, unsigned digits, const uint8_t *value, char *text)
{
    uint64_t packed;

    switch (type) {
    case QM_TYPE_YEAR:
        return sprintf(text, "%04u", value[0] ? 1900u + value[0] : 0);
    case QM_TYPE_DATE:
    case QM_TYPE_NEWDATE:
        packed = qm_little(value, 3);
        return sprintf(text, "%04u-%02u-%02u", (unsigned)(packed >> 9),
                       (unsigned)(packed >> 5 & 15), (unsigned)(packed & 31));
    case QM_TYPE_TIME2:
        return print_time2(digits, value, text);
    case QM_TYPE_DATETIME2:
        return print_datetime2(digits, value, text);
    case QM_TYPE_TIMESTAMP2:
        return print_timestamp2(digits, value, text);
    default:
        return -1;
    }
}

long qm_print_latin1(const uint8_t *value, size_t length, char *text)
{
    /* MariaDB's latin1 is Windows's code page 1252; what that leaves open stays. */
    static const uint16_t upper[32] = {
        0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021,
        0x2c6,  0x2030, 0x160,  0x2039, 0x152,  0x8d,   0x17d,  0x8f,
        0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
        0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};
    char *to = text;

    for (size_t i = 0; i < length; i++) {
        unsigned c = value[i];

        if (c >= 0x80 && c < 0xa0)
            c = upper[c - 0x80];
        if (c < 0x80) {
            *to++ = (char)c;
        } else if (c < 0x800) {
            *to++ = (char)(0xc0 | c >> 6);
            *to++ = (char)(0x80 | (c & 63));
        } else {
            *to++ = (char)(0xe0 | c >> 12);
            *to++ = (char)(0x80 | (c >> 6 & 63));
            *to++ = (char)(0x80 | (c & 63));
        }
    }
    return to - text;
}

void qm_print_uuid(const uint8_t *value, bool swapped, char *text)
{
    static const uint8_t order[16] = {12, 13, 14, 15, 10, 11, 8, 9,
                                      6,  7,  0,  1,  2,  3,  4, 5};

    for (unsigned i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *text++ = '-';
        text += sprintf(text, "%02x", value[swapped ? order[i] : i]);
    }
}

/* The longest run of zero words, the first of equals, as "::"; addresses of IPv4 in
 * dots. */
void qm_print_inet6(const uint8_t *value, char *text)
{
    unsigned words[8], gap = 8, gap_length = 0;

    for (unsigned i = 0; i < 8; i++)
        words[i] = (unsigned)qm_big(value + 2 * i, 2);
    for (unsigned i = 0; i < 8; i++) {
        unsigned n = 0;

        while (i + n < 8 && words[i + n] == 0)
            n++;
        if (n > gap_length) {
            gap = i;
            gap_length = n;
        }
    }
    for (unsigned i = 0; i < 8; i++) {
        if (i == gap) {
            text += sprintf(text, "%s", i == 0 ? "::" : ":");
            i += gap_length - 1;
            continue;
        }
        if (i == 6 && gap == 0 &&
            (gap_length == 6 || (gap_length == 5 && words[5] == 0xffff))) {
            sprintf(text, "%u.%u.%u.%u", value[12], value[13], value[14], value[15]);
            return;
        }
        text += sprintf(text, "%x%s", words[i], i < 7 ? ":" : "");
    }
    *text = '\0';
}
