/* SPDX-License-Identifier: BSD-3-Clause */
/* What a terminal is given of others' text. */
#include "tests/harness.h"

#include "trace/text.h"

static void expect(const char *text, size_t len, const char *clean)
{
    char out[64];

    assert_int_equal(qm_text_clean(out, text, len, false), strlen(clean));
    assert_string_equal(out, clean);
    assert_int_equal(qm_text_is_clean(text, len, false),
                     len == strlen(clean) && memcmp(text, clean, len) == 0);
    assert_true(qm_text_is_clean(out, strlen(out), false));
}

#define EXPECT(text, clean) expect(text, sizeof text - 1, clean)

TEST(test_stays)
{
    EXPECT("", "");
    EXPECT("SELECT ?", "SELECT ?");
    EXPECT("Zürich, 東京, Ελλάδα, עברית, 😀", "Zürich, 東京, Ελλάδα, עברית, 😀");
    EXPECT("\xc2\xa0\xef\xbf\xbd\xf4\x8f\xbf\xbf",
           "\xc2\xa0\xef\xbf\xbd\xf4\x8f\xbf\xbf");
}

TEST(test_controls)
{
    EXPECT("\033[31m\r\n\t\b\a", "?[31m?????");
    EXPECT("a\0b", "a?b");
    EXPECT("\x7f", "?");
    EXPECT("\xc2\x80|\xc2\x9b|\xc2\x9d|\xc2\x9f", "?|?|?|?"); /* C1 */
}

TEST(test_hidden)
{
    EXPECT("\xe2\x80\xa8\xe2\x80\xa9", "??");   /* U+2028, 2029 */
    EXPECT("\xe2\x80\xaa|\xe2\x80\xae", "?|?"); /* U+202A, 202E */
    EXPECT("\xe2\x81\xa6|\xe2\x81\xa9", "?|?"); /* U+2066, 2069 */
    EXPECT("\xe2\x80\x8b|\xe2\x80\x8f|\xd8\x9c|\xef\xbb\xbf", "?|?|?|?");
    EXPECT("\xf3\xa0\x80\x81", "?"); /* a tag */
    EXPECT("\xe2\x80\xa7\xe2\x80\xaf",
           "\xe2\x80\xa7\xe2\x80\xaf"); /* their neighbours */
}

TEST(test_invalid)
{
    EXPECT("\x9b|\xff|\xc2", "?|?|?");
    EXPECT("\xc0\x9b", "??");                     /* ESC, overlong */
    EXPECT("\xe0\x82\x9b", "???");                /* U+009B, overlong */
    EXPECT("\xed\xa0\x80\xed\xb0\x80", "??????"); /* surrogates */
    EXPECT("\xf4\x90\x80\x80", "????");           /* beyond U+10FFFF */
    EXPECT("\xe2\x80", "??");                     /* cut short */
    EXPECT("\xe2\x80x", "??x");
}

TEST(test_lines)
{
    char text[] = "a\nb\033";

    assert_true(qm_text_is_clean("a\nb", 3, true));
    assert_false(qm_text_is_clean("a\nb", 3, false));
    assert_int_equal(qm_text_clean(text, text, 4, true), 4);
    assert_string_equal(text, "a\nb?");
}

/* Every character: those of C1 and C0 never get through, in whatever they stand. */
TEST(test_all)
{
    for (uint32_t code = 0x80; code < 0x110000; code++) {
        char text[4];
        size_t n;
        bool hidden = code < 0xa0 || code == 0xad ||
                      (code >= 0x202a && code <= 0x202e) ||
                      (code >= 0x2066 && code <= 0x2069) || code == 0x2028 ||
                      code == 0x2029 || (code >= 0xd800 && code < 0xe000);

        if (code < 0x800) {
            n = 2;
            text[0] = (char)(0xc0 | code >> 6);
        } else if (code < 0x10000) {
            n = 3;
            text[0] = (char)(0xe0 | code >> 12);
        } else {
            n = 4;
            text[0] = (char)(0xf0 | code >> 18);
        }
        for (size_t i = 1; i < n; i++)
            text[i] = (char)(0x80 | (code >> 6 * (n - 1 - i) & 0x3f));
        if (hidden)
            assert_int_equal(qm_text_character(text, n), 0);
        assert_in_range(qm_text_character(text, n), 0, n);
        assert_int_equal(qm_text_character(text, n - 1), 0);
    }
}
