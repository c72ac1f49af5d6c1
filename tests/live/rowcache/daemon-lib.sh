# SPDX-License-Identifier: BSD-3-Clause
# daemon-lib.sh - a MariaDB with a binary log, and a qm-rowcache in front of it.

. "$SOURCE_DIR/tests/live/rowcache/rowcache-lib.sh"

ROWCACHE=$BUILD_DIR/bin/qm-rowcache
PYTHON=/usr/bin/python3 # Debian's, which has redis-py
command -v redis-cli >/dev/null || skip "redis-cli is not installed"
$PYTHON -c 'import redis' 2>/dev/null || skip "python3-redis is not installed"

# database_up OPTIONS...: on $T/db.sock; its id is in $DATABASE.
database_up() {
    [ -d "$T/db" ] || new_database db
    start_database db 1 --sync-binlog=0 --innodb-flush-log-at-trx-commit=0 "$@"
    DATABASE=$PID
}

# rowcache_conf LINES...: $T/rowcache.conf.
rowcache_conf() {
    {
        printf '%s\n' "socket = $T/rowcache.sock" "path = $T/kept" "database.socket = $T/db.sock" \
            "database.user = root" "memory = 16M" "plain-memory = 16M" "schema = shop"
        printf '%s\n' "$@"
    } >"$T/rowcache.conf"
}

# rowcache_start LINES...: with these; rowcache_run: with the file as it is.  Returns when it
# answers; its id is in $DAEMON.
rowcache_start() {
    rowcache_conf "$@"
    rowcache_run
}
rowcache_run() {
    background "$ROWCACHE" "$T/rowcache.conf" 2>>"$T/rowcache.log"
    DAEMON=$PID
    wait_for 20 eval "cli PING || gone $DAEMON"
    ! gone "$DAEMON" || { cat "$T/rowcache.log" >&2; fail "qm-rowcache does not start"; }
}
rowcache_end() {
    kill "$DAEMON"
    wait_for 30 gone "$DAEMON" || fail "qm-rowcache does not end"
    wait "$DAEMON" || fail "qm-rowcache ended with $?: $(tail -20 "$T/rowcache.log")"
    forget "$DAEMON"
    check_log rowcache
}
cli() { redis-cli -s "$T/rowcache.sock" "$@"; }
info() { cli INFO | tr -d '\r' | sed -n "s/^$1://p"; }
is() { [ "$(info "$1")" = "$2" ]; }
