/* SPDX-License-Identifier: BSD-3-Clause */
/* test-info.c - numbers as INFO writes them. */
#include <string.h>

#include "tests/harness.h"

#include "rowcache/server/server.h"

static const char *number(double value)
{
    static char text[32];

    info_number(value, text, sizeof text);
    return text;
}

TEST(test_numbers)
{
    assert_string_equal(number(0), "0");
    assert_string_equal(number(-1), "-1");
    assert_string_equal(number(9999999999), "9999999999");
    assert_string_equal(number(17179869184), "17179869184"); /* 16 GiB */
    assert_string_equal(number(999999999999999), "999999999999999");
    assert_string_equal(number(1.0 / 3), "0.3333333333");
    assert_string_equal(number(1e300), "1e+300");
}
