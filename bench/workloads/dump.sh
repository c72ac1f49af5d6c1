# SPDX-License-Identifier: BSD-3-Clause
# dump: mariadb-dump and full scans, in turn, beside sysbench's oltp_read_write.
. bench/workloads/oltp.sh

dump_round() {
    mariadb-dump --no-defaults -S "$T/mariadb.sock" -u root --single-transaction --quick \
        sbtest || return 1
    local table
    for ((table = 1; table <= oltp_tables; table++)); do
        mariadb_sql mariadb sbtest -e "SELECT COUNT(*) FROM sbtest$table WHERE c LIKE '%1234567%'" ||
            return 1
    done
}
workload_run() {
    beside dump_round
    oltp_run oltp_read_write || return 1
    not_beside
}
