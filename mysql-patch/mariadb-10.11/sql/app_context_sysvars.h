/* SPDX-License-Identifier: BSD-3-Clause */
/* app_context_sysvars.h - the system variables @@qm_context...; for sys_vars.cc alone,
 * which all of the server's are declared in.
 */
#include "app_context_transport.h"

static bool qm_context_open(sys_var *self, THD *thd, enum_var_type type)
{
    if (qm_context)
        app_context_have_transport();
    return false;
}

static const char *qm_context_levels[] = {"OFF", "CONNECTION", "TRANSACTION",
                                          "STATEMENT", NullS};

static Sys_var_enum Sys_qm_context(
    "qm_context",
    "Tell the storage server which contexts page reads belong to: OFF, or "
    "the innermost ones: CONNECTION, TRANSACTION, STATEMENT",
    GLOBAL_VAR(qm_context), CMD_LINE(REQUIRED_ARG), qm_context_levels,
    DEFAULT(APP_CONTEXT_OFF), NO_MUTEX_GUARD, NOT_IN_BINLOG, ON_CHECK(0),
    ON_UPDATE(qm_context_open));

static Sys_var_charptr
    Sys_qm_context_mount("qm_context_mount",
                         "The file of `quickmine mount` that the system tablespace is "
                         "on; empty: the kernel is told of contexts",
                         READ_ONLY GLOBAL_VAR(qm_context_mount), CMD_LINE(REQUIRED_ARG),
                         DEFAULT(""));

static Sys_var_mybool Sys_qm_context_names(
    "qm_context_names",
    "The storage server gets readable names of classes, too: user names and statements "
    "without literals",
    GLOBAL_VAR(qm_context_names), CMD_LINE(OPT_ARG), DEFAULT(FALSE));
