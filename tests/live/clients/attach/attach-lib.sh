# SPDX-License-Identifier: BSD-3-Clause
# attach-lib.sh - for the tests of quickmine attach: a server, and what it is served by.  To be
# sourced.

. "${SOURCE_DIR:?}/scripts/lib/testing.sh"
. "$SOURCE_DIR/tests/live/server/server-lib.sh"
HERE=$SOURCE_DIR/tests/live/clients/attach

# start_server ARGS...: over $T/img; its id in $SERVER.
start_server() {
    rm -f "${T:?}/server.sock" "${T:?}/server.pid"
    start_nbdkit server --filter="$FILTER" file "$T/img" cache-size=8M block-size=16K "$@" ||
        fail "the server does not start"
    SERVER=$PID
}

# start_attach ARGS...: on $T/attach.sock, in the foreground; its id in $ATTACH.
start_attach() {
    rm -f "${T:?}/attach.pid"
    background "$QUICKMINE" attach -f --pidfile "$T/attach.pid" --socket "$T/attach.sock" \
        "$@" "$(nbd_uri server)" 2>>"$T/attach.log"
    ATTACH=$PID
    wait_for 20 eval "[ -s '$T/attach.pid' ] || gone $ATTACH"
    [ -s "$T/attach.pid" ] || fail "attach does not start: $(cat "$T/attach.log")"
}

# end_attach: it has to end well, and to leave nothing behind.
end_attach() {
    kill "$ATTACH" || fail "it is gone: $(cat "$T/attach.log")"
    wait_for 30 gone "$ATTACH" || fail "it does not end"
    wait "$ATTACH" || fail "it ended with an error: $(cat "$T/attach.log")"
    forget "$ATTACH"
    [ ! -e "$T/attach.sock" ] || fail "the socket is left"
    [ ! -e "$T/attach.pid" ] || fail "the pid file is left"
    check_log attach
}

python() { timeout 100 "$PYTHON" "$@"; }
