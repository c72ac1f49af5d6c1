# SPDX-License-Identifier: BSD-3-Clause
# rowcache.sh - for benchmarks of qm-rowcache: MariaDB with a table, and the daemon that
# serves it.  To be sourced after scripts/lib/stack.sh.

# rowcache_stack SQL LINE...: builds, and starts both.  The SQL is run in a new database
# `shop`; the lines are added to the daemon's configuration.  The daemon is process $PID,
# and listens on $T/cache.sock.
# shellcheck disable=SC2154 # mariadb_files is mariadb.sh's
rowcache_stack() {
    local sql=$1
    shift
    progress "building"
    build qm-rowcache
    mariadb_make "$T/db" "${mariadb_files[@]}" || fail "no database"
    mariadb_run db "$T/db" "${mariadb_files[@]}" --log-bin="$T/db/binlog" --server-id=1 --binlog-format=ROW ||
        fail "MariaDB does not start"
    mariadb_sql db -e "CREATE DATABASE shop; USE shop; $sql" || fail "no table"
    printf '%s\n' "socket = $T/cache.sock" "path = $T/kept" "database.socket = $T/db.sock" "database.user = root" \
        "plain-memory = 8M" "schema = shop" "$@" >"$T/rowcache.conf"
    background "$BUILD_DIR/bin/qm-rowcache" "$T/rowcache.conf" 2>"$T/rowcache.log"
    wait_for 20 rowcache_follows || fail "$(tail -3 "$T/rowcache.log")"
    progress "measuring"
}

rowcache_follows() {
    redis-cli -s "$T/cache.sock" INFO rowcache 2>/dev/null | grep -q '^following:1'
}
