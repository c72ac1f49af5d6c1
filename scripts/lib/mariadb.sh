# SPDX-License-Identifier: BSD-3-Clause
# mariadb.sh - a MariaDB of one's own, with its system tablespace on one file or device, or
# with a file per table; for benchmarks and tests.  To be sourced after scripts/lib/testing.sh.

# The pages of InnoDB; everything that is not said here is as MariaDB has it.
mariadb_common=(
    --no-defaults --innodb-data-home-dir= --innodb-file-per-table=0
    --innodb-flush-method=O_DIRECT --innodb-log-file-size=96M
    --innodb-buffer-pool-dump-at-shutdown=0 --innodb-buffer-pool-load-at-startup=0
    # From 11.6 on, by default, what another transaction has changed meanwhile is an error.
    --loose-innodb-snapshot-isolation=OFF
)
# mariadbd does not run as root without being told.
[ "$(id -u)" -ne 0 ] || mariadb_common+=(--user=root)

# mariadb_install DATADIR FILE SIZE: a new database whose system tablespace is FILE.
mariadb_install() {
    mariadb_make "$1" --innodb-data-file-path="$2:$3newraw"
}

# What comes after mariadb_common for a file per table in the data directory.
mariadb_files=(--innodb-file-per-table=1 --innodb-data-file-path=ibdata1:12M:autoextend)

# mariadb_make DATADIR OPTIONS...: a new database.  A mariadbd that starts removes the temporary
# tables (#sql*) of all others that have its tmpdir, so each has one of its own.
mariadb_make() {
    local datadir=$1; shift
    mkdir -p "$datadir" "$T/tmp/new"
    mariadb-install-db "${mariadb_common[@]}" --datadir="$datadir" --tmpdir="$T/tmp/new" \
        --skip-test-db --auth-root-authentication-method=normal "$@" >"$T/install.log" 2>&1 ||
        { cat "$T/install.log" >&2; return 1; }
}

# mariadb_start NAME DATADIR FILE SIZE OPTIONS...: with the tablespace that mariadb_install
# made, as mariadb_run.
mariadb_start() {
    local name=$1 datadir=$2 file=$3 size=$4; shift 4
    mariadb_run "$name" "$datadir" --innodb-data-file-path="$file:${size}raw" "$@"
}

# mariadb_run NAME DATADIR OPTIONS...: returns when it takes connections, on $T/NAME.sock; its
# messages are in $T/NAME.log, its process id in $PID.  What is in the array mariadb_under is
# put before the command.
mariadb_under=()
mariadb_run() {
    local name=$1 datadir=$2; shift 2
    rm -f "${T:?}/$name.sock"
    mkdir -p "$T/tmp/$name"
    background "${mariadb_under[@]}" mariadbd "${mariadb_common[@]}" --datadir="$datadir" \
        --tmpdir="$T/tmp/$name" --socket="$T/$name.sock" --pid-file="$T/$name.pid" --skip-networking \
        "$@" >"$T/$name.log" 2>&1
    local pid=$PID
    wait_for 60 eval "mariadb_sql $name -e 'SELECT 1' || gone $pid"
    gone "$pid" || return 0
    cat "$T/$name.log" >&2
    return 1
}

# mariadb_sql NAME ARGS...: the client.
mariadb_sql() {
    local name=$1; shift
    mariadb --no-defaults -S "$T/$name.sock" -u root "$@"
}

# mariadb_status NAME VARIABLE: a status variable's value.
mariadb_status() {
    mariadb_sql "$1" -BNe "SHOW GLOBAL STATUS LIKE '$2'" | cut -f 2
}
