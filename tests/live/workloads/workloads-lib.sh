# SPDX-License-Identifier: BSD-3-Clause
# workloads-lib.sh - for the tests of bench/workloads: a MariaDB, and what a run printed.
# To be sourced.

. "$SOURCE_DIR/scripts/lib/testing.sh"
. "$SOURCE_DIR/scripts/lib/mariadb.sh"

for program in sysbench mariadbd mariadb mariadb-install-db; do
    command -v $program >/dev/null || skip "$program is not installed"
done

# start_database: with room for 300 MB, and forgetful, as a test may be.
start_database() {
    truncate -s 300M "$T/img"
    mariadb_install "$T/data" "$T/img" 300M || fail "no database"
    mariadb_start db "$T/data" "$T/img" 300M --innodb-buffer-pool-size=64M \
        --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 ||
        fail "MariaDB does not start"
}

# bench NAME ARGS...: a benchmark's command; what it prints is in $T/out and $T/err.
bench() {
    local name=$1; shift
    sysbench "$SOURCE_DIR/bench/workloads/$name.lua" --db-driver=mysql --mysql-user=root \
        --mysql-db=mysql --mysql-socket="$T/db.sock" "$@" >"$T/out" 2>"$T/err"
}
must() { "$@" || { cat "$T/out" "$T/err" >&2; fail "$*"; }; }

# count INTERACTION: how many there were in the last run.
count() { awk -v name="$1" '$1 == "interaction" && $2 == name { print $3 }' "$T/out"; }

# ran N: the last run had N interactions, of each kind some, and no error.
ran() {
    awk -v n="$1" '
        $1 == "interaction" { sum += $3; if ($3 == 0) exit never = 1 }
        $1 == "interactions" { all = $2; errors = $NF }
        END { exit never || sum != n || all != n || errors != "0" }' "$T/out" ||
        { cat "$T/out" >&2; fail "not $1 interactions of all kinds without errors"; }
}

# is DATABASE EXPECTED QUERY: the query's only value.
is() {
    local got
    got=$(mariadb_sql db -BN "$1" -e "$3") || fail "the query failed: $3"
    [ "$got" = "$2" ] || fail "$got instead of $2: $3"
}
value() { mariadb_sql db -BN "$1" -e "$2"; }
