# common.sh - for the live tests of the filter; sourced after tests/lib.sh.

HERE=$SOURCE_DIR/tests/server
PYTHON=/usr/bin/python3 # libnbd's binding is there, whatever python3 is first in PATH
[ -f "$FILTER" ] || fail "$FILTER is not built"
"$PYTHON" -c 'import nbd' 2>/dev/null || skip "package python3-libnbd is missing"
export PYTHONPATH=$HERE PYTHONDONTWRITEBYTECODE=1

# Sanitizers are to stop the server at what they find.
export TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1 print_stacktrace=1 ${UBSAN_OPTIONS:-}"

# client SCRIPT ARGS...: a client that has to succeed.
client() {
    timeout 100 "$PYTHON" "$HERE/$1" "${@:2}" && return
    cat "$T"/*.log >&2
    fail "$1 ${*:2}"
}

# stop_nbdkit NAME PID: it has to end in good order, and no sanitizer to have complained.
stop_nbdkit() {
    kill "$2" || fail "$1: nbdkit is gone: $(tail -5 "$T/$1.log")"
    wait_for 30 gone "$2" || fail "$1: nbdkit does not end"
    wait "$2" || fail "$1: nbdkit ended with $?: $(tail -40 "$T/$1.log")"
    check_log "$1"
}

check_log() {
    ! grep -E 'Sanitizer|runtime error' -A 40 "$T/$1.log" >&2 || fail "$1: see above"
}
