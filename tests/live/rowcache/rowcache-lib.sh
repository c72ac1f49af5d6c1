# SPDX-License-Identifier: BSD-3-Clause
# rowcache-lib.sh - MariaDB servers with a binary log, for rowcache's live tests.

. "$SOURCE_DIR/scripts/lib/testing.sh"
. "$SOURCE_DIR/scripts/lib/mariadb.sh"

WATCH=$BUILD_DIR/tests/rowcache-watch
for program in mariadbd mariadb mariadb-install-db python3; do
    command -v $program >/dev/null || skip "$program is not installed"
done

# new_database NAME: an empty one in $T/NAME.
new_database() {
    mariadb_make "$T/$1" "${mariadb_files[@]}" --innodb-log-file-size=8M || fail "no database"
}

# start_database NAME SERVER_ID OPTIONS...: its process id is in $PID.  It does not use io_uring: the kernel
# may carry out the writes of a killed process while its successor reads.
start_database() {
    local name=$1 id=$2; shift 2
    mariadb_run "$name" "$T/$name" "${mariadb_files[@]}" --innodb-log-file-size=8M \
        --innodb-use-native-aio=0 --log-bin="$T/$name/binlog" --server-id="$id" --binlog-format=ROW \
        --log-slave-updates "$@" || fail "MariaDB does not start"
}

sql() { mariadb_sql "$1" -BNe "$2" || fail "$1: $2"; }
position() { sql "$1" 'SELECT @@gtid_binlog_pos'; }

# watch OPTIONS...: a follower; what it says is in $T/said.  Its id is in $FOLLOWER.
watch() {
    rm -f "${T:?}/in"
    mkfifo "$T/in"
    exec 7<>"$T/in"
    # What runs in the background has no input but what it opens itself.
    background bash -c 'in=$1; shift; exec "$@" <"$in"' watch "$T/in" "$WATCH" "$@" \
        >"$T/said" 2>"$T/watch.log"
    FOLLOWER=$PID
    said 'following yes'
}
said() { wait_for 30 grep -q "$@" "$T/said" || { tail -30 "$T/said" >&2; fail "not said: $*"; }; }
count() { grep -c "$1" "$T/said"; }
more_than() { [ "$(count "$1")" -gt "$2" ]; }
# again PATTERN N: it is said more often than N times.
again() { wait_for 30 more_than "$1" "$2" || { tail -30 "$T/said" >&2; fail "not said again: $1"; }; }
# reach NAME: the follower has applied all of it.
reach() {
    local n
    n=$(count '^reached')
    echo "wait $(position "$1") 60000" >&7
    again '^reached' "$n"
}
end_watch() {
    echo quit >&7
    wait_for 30 gone "$FOLLOWER" || fail "the follower does not end"
    wait "$FOLLOWER" || fail "the follower ended with $?: $(cat "$T/watch.log")"
    forget "$FOLLOWER"
    check_log watch
}
