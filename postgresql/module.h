/* SPDX-License-Identifier: BSD-3-Clause */
/* module.h - what quickmine.c tells the SQL function of this backend. */
#ifndef QM_POSTGRESQL_MODULE_H
#define QM_POSTGRESQL_MODULE_H

#include <stdbool.h>

/* "kernel" or "mount". */
const char *qm_module_transport(void);
/* Whether contexts reach it.  If not, *message is why, else NULL; it stays the
 * module's.
 */
bool qm_module_connected(const char **message);

#endif
