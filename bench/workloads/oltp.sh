# SPDX-License-Identifier: BSD-3-Clause
# oltp.sh - for sysbench's own OLTP benchmarks, as Debian has them: what bench/record needs.
# To be sourced by NAME.sh.  A scale of 1 is 4 tables of 100,000 rows, about 95 MB.
# shellcheck disable=SC2154 # bench/record's variables
. bench/workloads/beside.sh

workload_mb=140 workload_level=transaction workload_takes="clients scale"
workload_needs=bench
oltp_tables=4

# oltp SCRIPT ARGUMENTS...: sysbench's command line, in $oltp_command.
oltp() {
    oltp_command=(sysbench "$1" --db-driver=mysql --mysql-user=root --mysql-db=sbtest
        --mysql-socket="$T/mariadb.sock" --tables=$oltp_tables
        --table-size="$(awk -v s="$scale" 'BEGIN { print int(100000 * s) }')" "${@:2}")
}
workload_makers() { echo "oltp 1"; }
workload_load() {
    stack_sql="CREATE DATABASE sbtest"
    oltp oltp_read_write --threads=2 prepare
    stack_load "$1" "$size_mb" "${oltp_command[@]}"
}
# oltp_summary LOG: of what sysbench's own benchmarks print, the line that bench/record
# reads; a transaction is an interaction.
oltp_summary() {
    awk '
        $1 == "transactions:" { n = $2 }
        $1 == "ignored" && $2 == "errors:" { errors = $3 }
        $1 == "total" && $2 == "time:" { seconds = $3 + 0 }
        $1 == "avg:" { mean = $2 }
        $1 == "95th" { p95 = $3 }
        END {
            if (n == "" || seconds == "") exit 1
            printf "interactions %d seconds %.3f mean_ms %.3f p95_ms %.3f errors %d\n",
                n, seconds, mean, p95, errors
        }' "$1"
}
# oltp_run SCRIPT OPTIONS...: prints what sysbench does, and the line that bench/record reads.
oltp_run() {
    oltp "$@" --threads="$clients" --time="$seconds" --rand-seed="$seed" \
        --mysql-ignore-errors=1213,1020,1205,1412 run
    run_for "${oltp_command[@]}" >"$T/oltp.log" 2>&1
    local rc=$?
    cat "$T/oltp.log"
    oltp_summary "$T/oltp.log"
    return $rc
}
workload_run() { oltp_run "$workload"; }
