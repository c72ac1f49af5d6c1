/* SPDX-License-Identifier: BSD-3-Clause */
/* check.h - assertions for the threads that a test starts.
 *
 * cmocka keeps what an assertion says until its test ends, for each thread.  In a
 * thread of the test's own, nobody prints it: the program ends with 255 and no message.
 */
#ifndef QM_TESTS_CHECK_H
#define QM_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

static inline _Noreturn void qm_check_failed(const char *file, int line,
                                             const char *what)
{
    fprintf(stderr, "%s:%d: not so in a thread: %s\n", file, line, what);
    abort();
}

#define check(what) ((what) ? (void)0 : qm_check_failed(__FILE__, __LINE__, #what))

#endif
