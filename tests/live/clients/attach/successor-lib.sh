# SPDX-License-Identifier: BSD-3-Clause
# successor-lib.sh - a client is killed while writes of it are under way at the server, some of
# them in a socket that the server has not read: none of them is carried out after what its
# successor writes.  To be sourced, after $T is there.

SUCCESSOR=$SOURCE_DIR/tests/live/clients/attach/successor.py
PYTHON=/usr/bin/python3 # libnbd's binding is there, whatever python3 is first in PATH

nbdkit --version python >/dev/null 2>&1 || skip "package nbdkit-plugin-python is missing"

# start_gated: a server on a disk whose changes wait at gates, over TCP at $PORT; it carries out
# one request of a connection after the other.  Its id in $SERVER.
start_gated() {
    mkdir -p "$T/gates"
    rm -f "${T:?}"/gates/* "${T:?}/gated.pid" "${T:?}/gated.log"
    hold_port || fail "no port"
    GATES=$T/gates MODEL=parallel background env LD_PRELOAD="$(sanitizer_preload)" \
        ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}" nbdkit -f -t 1 -i 127.0.0.1 -p "$PORT" \
        -P "$T/gated.pid" --filter="$FILTER" python "$SOURCE_DIR/tests/live/server/gated.py" \
        cache-size=2M policy=none 2>"$T/gated.log"
    SERVER=$PID
    wait_for 30 eval "[ -s '$T/gated.pid' ] || gone $SERVER"
    [ -s "$T/gated.pid" ] || fail "the server does not start: $(cat "$T/gated.log")"
    GATED_URI=nbd://127.0.0.1:$PORT
}

calls() { grep -c "^$1\$" "$T/gates/calls" 2>/dev/null; }

# unread: whether bytes have come for the server that it has not received.
unread() {
    local port queue
    printf -v port ':%04X' "$PORT"
    while read -r _ local _ _ queue _; do
        [ "${local: -5}" != "$port" ] || [ $((16#${queue#*:})) -lt 4096 ] || return 0
    done </proc/net/tcp
    return 1
}

# old_writes WHAT: through what is served at WHAT, one write that hangs at the server, and one
# behind it that the server has not received.
old_writes() {
    : >"$T/gates/0"
    # The kernel has one write of a file at a time under way, but for asynchronous ones; the
    # second one is made when the first is at the server, else it may arrive before it.
    local client=("$PYTHON" "$SUCCESSOR" old)
    [ "${1:0:1}" != / ] || client=("$PYTHON" "$SOURCE_DIR/tests/live/clients/mount/submitter.py" two)
    rm -f "${T:?}/second"
    background timeout 300 "${client[@]}" "$1" "$T/second" >"$T/old.log" 2>&1
    OLD=$PID
    wait_for 30 eval '[ "$(calls "begin write 0")" = 1 ]' ||
        fail "the write does not arrive: $(cat "$T/old.log")"
    touch "$T/second"
    wait_for 30 unread || fail "the second write does not arrive: $(cat "$T/old.log")"
}

# new_writes WHAT: what the successor's client writes and flushes then, while the first write
# still hangs, if it can; else when that has ended.
new_writes() {
    rm -f "${T:?}/written"
    background timeout 300 "$PYTHON" "$SUCCESSOR" new "$1" "$T/written" >"$T/new.log" 2>&1
    NEW=$PID
    # Others are served meanwhile, many times: what may go on has gone on by then.
    timeout 300 "$PYTHON" "$SUCCESSOR" others "$GATED_URI" "$T/written" ||
        fail "the server does not serve"
    rm "${T:?}/gates/0"
    wait_for 60 eval '[ "$(calls "end write 0")" -ge 1 ]' || fail "the write does not end"
    wait_for 60 gone "$NEW" || fail "the successor does not serve"
    wait "$NEW" || fail "new writes: $(cat "$T/new.log")"
    forget "$NEW"
}

# check_newest: when nothing of the old client is left.
check_newest() {
    timeout 300 "$PYTHON" "$SUCCESSOR" check "$GATED_URI" ||
        fail "a flushed write was overwritten by an older one"
}
