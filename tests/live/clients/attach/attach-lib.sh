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

python() { timeout 300 "$PYTHON" "$@"; }

# loop_over_attach ARGS...: a loop device over nbdfuse over attach, which watches it: $LOOP.  It
# has to be known before there is what it stands on, and somebody else may take it meanwhile.
LOOP='' FUSE=''
loop_over_attach() {
    local number
    for _ in 1 2 3 4 5; do
        number=$(losetup --find 2>"$T/losetup") || skip "no loop device: $(cat "$T/losetup")"
        start_attach --watch "$number" "$@"
        : >"$T/device"
        background nbdfuse "$T/device" "$(nbd_uri attach)" 2>"$T/nbdfuse.log"
        FUSE=$PID
        QM_PIDS+=("m:$T/device")
        wait_for 30 test -s "$T/device" || fail "nbdfuse: $(cat "$T/nbdfuse.log")"
        if losetup --direct-io=on "$number" "$T/device" 2>"$T/losetup"; then
            LOOP=$number
            return
        fi
        leave_loop
    done
    skip "others take the loop devices: $(cat "$T/losetup")"
}

# leave_loop: undoes it, as far as it was done.
leave_loop() {
    local loop=$LOOP
    LOOP=''
    [ -z "$loop" ] || losetup --detach "$loop"
    [ -n "$FUSE" ] || return 0
    local fuse=$FUSE
    FUSE='' # whatever fails from here on is not tried again by the trap
    wait_for 60 fusermount3 -u "$T/device" || fail "the file under $loop is still in use"
    wait_for 60 gone "$fuse" || { head -n 20 /proc/"$fuse"/task/*/wchan >&2; fail "nbdfuse does not end"; }
    forget "$fuse"
    forget "m:$T/device"
    end_attach
}
