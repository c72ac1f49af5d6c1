# SPDX-License-Identifier: BSD-3-Clause
# alter: ALTER TABLE ... FORCE, online, of a table after the other, beside oltp_read_write.
. bench/workloads/oltp.sh
# A table has a second copy while it is rebuilt.
workload_mb=220

alter_round() {
    local table
    for ((table = 1; table <= oltp_tables; table++)); do
        mariadb_sql mariadb sbtest \
            -e "SET lock_wait_timeout = 60; ALTER TABLE sbtest$table FORCE, ALGORITHM=INPLACE, LOCK=NONE" ||
            return 1
    done
}
workload_run() {
    beside alter_round
    oltp_run oltp_read_write || return 1
    not_beside
}
