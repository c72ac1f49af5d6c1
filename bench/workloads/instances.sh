# SPDX-License-Identifier: BSD-3-Clause
# instances.sh - for the benchmarks of this directory that are written in Lua: what
# bench/record needs, from their common options (common.lua).  To be sourced by NAME.sh.
# shellcheck disable=SC2154 # bench/record's variables

workload_takes="clients scale instances think shift"

# instances ARGUMENTS...: sysbench's command line, in $instances_command.
instances() {
    instances_command=(sysbench "bench/workloads/$workload.lua" --db-driver=mysql
        --mysql-user=root --mysql-db=mysql --mysql-socket="$T/mariadb.sock" --scale="$scale"
        --instances="$instances" "$@")
}
workload_makers() { cat "bench/workloads/$workload.lua" bench/workloads/common.lua; }
workload_load() {
    instances --threads=2 prepare
    stack_load "$1" "$size_mb" "${instances_command[@]}"
}
workload_run() {
    instances --threads="$clients" --time="$seconds" --seed="$seed" --think="$think" \
        --shift="$shift" ${skew:+--skew="$skew"} run
    run_for "${instances_command[@]}"
}
