/* SPDX-License-Identifier: BSD-3-Clause */
/* steady.h - whether the value of a virtual column stays the same while its row does.
 */
#ifndef QM_ROWCACHE_STEADY_H
#define QM_ROWCACHE_STEADY_H

#include <stdbool.h>

/* Whether an expression, as MariaDB prints it in GENERATION_EXPRESSION, is a function
 * of its row alone: no time, no chance, nothing of the session, nothing from elsewhere.
 * Functions that are not known count as unsteady, as does a value of type TIME, which
 * becomes one of the current day where a date is wanted.  (Whether it names a column of
 * type TIME, the caller sees.)  NULL is unsteady. */
bool qm_is_steady(const char *expression);

#endif
