/* SPDX-License-Identifier: BSD-3-Clause */
/* binlog-check.h - whether MariaDB logs what freshness needs. */
#ifndef QM_ROWCACHE_BINLOG_CHECK_H
#define QM_ROWCACHE_BINLOG_CHECK_H

#include "rowcache/fill/fill.h"

/* Prints each setting that is wrong, with the line for my.cnf.  Returns -1 if there is
 * one; 0 also if the database cannot be asked, which is printed, too: the follower goes
 * on trying. */
int qm_binlog_check(const struct qm_fill_settings *settings);

#endif
