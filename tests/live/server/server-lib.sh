# SPDX-License-Identifier: BSD-3-Clause
# server-lib.sh - for the live tests of the filter; sourced after scripts/lib/testing.sh.

HERE=$SOURCE_DIR/tests/live/server
PYTHON=/usr/bin/python3 # libnbd's binding is there, whatever python3 is first in PATH
[ -f "$FILTER" ] || fail "$FILTER is not built"
"$PYTHON" -c 'import nbd' 2>/dev/null || skip "package python3-libnbd is missing"
export PYTHONPATH=$HERE PYTHONDONTWRITEBYTECODE=1

# Sanitizers are to stop the server at what they find.
export TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1 print_stacktrace=1 ${UBSAN_OPTIONS:-}"

# client SCRIPT ARGS...: a client that has to succeed.
client() {
    timeout 300 "$PYTHON" "$HERE/$1" "${@:2}" && return
    cat "$T"/*.log >&2
    fail "$1 ${*:2}"
}

# statistics_url NAME: where the server says that its statistics are.  It says so after its
# pid is in the file that start_nbdkit waits for.
statistics_url() {
    wait_for 20 grep -q 'http://127.*/' "$T/$1.log" ||
        fail "$1 does not say where: $(cat "$T/$1.log")"
    grep -o 'http://127.*/' "$T/$1.log"
}

# run_gated NAME MODEL SCRIPT MODE ARGS...: a client of a server on a disk whose changes
# wait at gates (gated.py).  In the mode "stopped" it stops the server.
run_gated() {
    local name=$1 model=$2 script=$3 mode=$4; shift 4
    nbdkit --version python >/dev/null 2>&1 || skip "package nbdkit-plugin-python is missing"
    mkdir "$T/$name"
    GATES=$T/$name MODEL=$model PYTHONPATH= start_nbdkit "$name" "$@" --filter="$FILTER" \
        python "$HERE/gated.py" cache-size=2M || fail "$name does not start"
    client "$script" "$T/$name.sock" "$T/$name" "$PID" "$mode"
    if [ "$mode" = stopped ]; then
        wait_for 30 gone "$PID" || fail "$name: nbdkit does not end"
        wait "$PID" || fail "$name: nbdkit ended with $?"
        check_log "$name"
    else
        stop_nbdkit "$name" "$PID"
    fi
}

# killed: so is $SERVER, and gone.
killed() {
    kill -KILL "$SERVER"
    wait_for 20 gone "$SERVER" || fail "cannot be killed"
    forget "$SERVER"
}
