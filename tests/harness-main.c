/* SPDX-License-Identifier: BSD-3-Clause */
/* harness-main.c - of programs that have nothing to do before their tests and after
 * them. An argument is a pattern: only tests whose names match it are run. */
#include "tests/harness.h"

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return run_listed(NULL, NULL);
}
