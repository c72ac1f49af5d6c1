# SPDX-License-Identifier: BSD-3-Clause
# unmoved-mariadb.sh - bench/unmoved's MariaDB: the bookshop of bench/demo.  To be sourced.
#
# shellcheck disable=SC2154 # bench/unmoved's variables

shop=(sysbench bench/workloads/shop.lua --db-driver=mysql --mysql-user=root
    --mysql-db=shop --mysql-socket="$T/mariadb.sock" --scale="$scale")

database_load() { # DIR SIZE_MB
    stack_sql="CREATE DATABASE shop"
    stack_load_files "$1" "$2" "${shop[@]}" prepare
}

database_start() {
    stack_database "$T/files/data" "$pool" "agent:$T/agent.sock" "${mariadb_files[@]}"
}

# database_run SECONDS SEED: prints what was done a second.
database_run() {
    run_for "${shop[@]}" --threads="$clients" --time="$1" --seed="$2" run >"$T/run.log" 2>&1 ||
        { cat "$T/run.log" >&2; return 1; }
    awk '/^interactions/ { print $2 / $4 }' "$T/run.log"
}
