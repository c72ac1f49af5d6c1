# SPDX-License-Identifier: BSD-3-Clause
# testing.sh - for tests and benchmarks that start real programs; to be sourced by bash.
#
# Everything lives in one temporary directory, $T; what was started is ended, and what
# was mounted is unmounted, when the script ends, however it ends.  No fixed sleeps:
# wait_for polls a condition, bounded.

set -u -o pipefail

: "${SOURCE_DIR:=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}"
: "${BUILD_DIR:=$SOURCE_DIR/build}"
FILTER=$BUILD_DIR/lib/nbdkit-quickmine-filter.so
QUICKMINE=$BUILD_DIR/bin/quickmine

# With QM_LEAKS=1, servers say what they leak when they end, but for what nbdkit and Python do.
# Not by default: the tracer of GCC 12's LeakSanitizer may crash while threads end.
export LSAN_OPTIONS="suppressions=$SOURCE_DIR/scripts/lib/leaks.supp:print_suppressions=0 ${LSAN_OPTIONS:-}"

# Scripts remove files by their names below $T, so none goes on without it.
T=$(mktemp -d "${TMPDIR:-/tmp}/quickmine.XXXXXXXX") || {
    echo "${0##*/}: no temporary directory can be made in ${TMPDIR:-/tmp}" >&2
    exit 1
}
QM_PIDS=()
declare -A QM_BEGAN=() # of a process: when it began, in the kernel's ticks since boot
QM_DIRS=() # to be removed, too, if they are still there
QM_AT_END=()

say() { printf '%s\n' "$*" >&2; }
fail() { say "FAILED: $*"; exit 1; }
skip() { say "skipped: $*"; exit 77; }

# refused MESSAGE COMMAND...: COMMAND must fail, with MESSAGE in what it says.
refused() {
    local message=$1; shift
    "$@" >"$T/refused.log" 2>&1 && fail "succeeded: $*"
    grep -q -- "$message" "$T/refused.log" ||
        { cat "$T/refused.log" >&2; fail "does not say '$message': $*"; }
}

# ends STATUS FUNCTION MESSAGE ARGS...: FUNCTION, which writes to $T/out and perhaps $T/err, must
# end with STATUS, and say MESSAGE.
ends() {
    local want=$1 function=$2 message=$3 rc=0; shift 3
    "$function" "$@" || rc=$?
    [ $rc = "$want" ] || fail "status $rc: $*"
    cat "$T/out" "$T/err" 2>/dev/null >"$T/said"
    grep -q -- "$message" "$T/said" || fail "another message: $* : $(cat "$T/said")"
    ! grep -q Traceback "$T/said" || fail "$* : $(cat "$T/said")"
}
misused() { ends 2 "$@"; }

# dates_changes PATH: whether a server believes its file system's change times (server/volume.c).
dates_changes() {
    case $(stat -f -c %t "$1") in
    ef53 | 58465342 | 9123683e | f2f52010 | 2fc12fc1) ;;
    *) return 1 ;;
    esac
}

# wait_for SECONDS COMMAND...: until it succeeds; 1 if it never does.  The bound is for what
# hangs, not for what is slow on a busy machine: it is LEAST_SECONDS at least.  COMMAND is often a
# process that takes as long to start as the first pauses, so that these become longer.
LEAST_SECONDS=60
wait_for() {
    local deadline=$((SECONDS + ($1 > LEAST_SECONDS ? $1 : LEAST_SECONDS))) ms=20; shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $deadline ] || return 1
        sleep "$(printf '0.%03d' $ms)"
        [ $ms -ge 200 ] || ms=$((ms * 3 / 2))
    done
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# began PID: when it began; nothing if there is no such process.  A name may have blanks and
# brackets, so fields are counted after the last bracket.
began() {
    local stat
    { stat=$(<"/proc/$1/stat"); } 2>/dev/null && set -- ${stat##*)} && printf '%s' "${20}"
}

# is_ours PID: whether there is such a process, and it is not another that got the number of one that
# this script started.
is_ours() {
    local now
    now=$(began "$1") && [ "$now" = "${QM_BEGAN[$1]:-$now}" ]
}

# crashed STATUS: whether a process that ended with it was ended by a signal of its own doing:
# SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
crashed() {
    case $1 in 132 | 133 | 134 | 135 | 136 | 139 | 159) return 0 ;; esac
    return 1
}

# reap PID: waits for a process, forgets it, and fails the script if it has crashed: the shell's
# own message goes where the output of the command that it interrupts goes.
QM_CRASHED=()
reap() {
    local status=0
    wait "$1" 2>/dev/null || status=$?
    forget "$1"
    ! crashed $status || {
        say "FAILED: process $1 was ended by signal $((status - 128))"
        QM_CRASHED+=("$1")
    }
}

# stop PID [SIGNAL]: ends a process that this script started, and waits for it.
stop() {
    if is_ours "$1"; then
        kill "-${2:-TERM}" "$1" 2>/dev/null
        wait_for $LEAST_SECONDS gone "$1" || kill -KILL "$1" 2>/dev/null
    fi
    reap "$1"
    return 0
}

# at_end FUNCTION: is called when the script ends, however it ends, before what was started
# is ended; the last that was given first.  A trap on EXIT would lose the script's status: its
# first command replaces it.  A failure in FUNCTION is said, and makes the status 1.
at_end() { QM_AT_END+=("$1"); }

cleanup() {
    local rc=$? i
    trap - EXIT INT TERM HUP
    fail() { say "FAILED: $*"; rc=1; return 1; }
    for ((i = ${#QM_AT_END[@]} - 1; i >= 0; i--)); do
        "${QM_AT_END[i]}"
    done
    # Last started, first ended; users of a mount before the mount, it before its server.
    for ((i = ${#QM_PIDS[@]} - 1; i >= 0; i--)); do
        case ${QM_PIDS[i]} in
        m:*) fusermount3 -u -z "${QM_PIDS[i]#m:}" 2>/dev/null ;;
        *) stop "${QM_PIDS[i]}" ;;
        esac
    done
    [ ${#QM_CRASHED[@]} -eq 0 ] || [ $rc -ne 0 ] || rc=1
    [ $rc -ne 0 ] || ! grep -sE "$REPORTS" -A 40 "$T"/*.log >&2 ||
        fail "a sanitizer has complained, see above"
    [ -n "${QM_KEEP:-}" ] && say "kept: $T" || rm -rf "${T:?}" "${QM_DIRS[@]}"
    exit $rc
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# background COMMAND...: starts it, to be ended with the script; its id is in $PID.
background() {
    "$@" &
    PID=$!
    started "$PID"
}

# started PID: a process is to be ended with the script.
started() {
    QM_PIDS+=("$1")
    QM_BEGAN[$1]=$(began "$1" || echo ended)
}

# forget PID: it has ended, and its number may be another's by the end of the script.
forget() {
    local i
    for i in "${!QM_PIDS[@]}"; do
        [ "${QM_PIDS[i]}" != "$1" ] || unset "QM_PIDS[i]"
    done
    QM_PIDS=("${QM_PIDS[@]}")
}

# hold_port [ADDRESS]: a TCP port of it (127.0.0.1) for this script's servers, until the script
# ends, in $PORT; scripts/lib/hold-port says how.
hold_port() {
    local PID file
    file=$(mktemp "$T/port.XXXXXXXX") || return 1
    background "$SOURCE_DIR/scripts/lib/hold-port" "$@" >"$file"
    wait_for 20 test -s "$file" && read -r PORT <"$file"
}

# What a program has to preload that loads something built with a sanitizer: its runtime,
# the C++ library, without which that knows no exceptions (Ceph's libraries throw some), and
# what makes it get ready early enough (tests/live/server/sanitizer-first.c), which may be
# said where it is.
sanitizer_preload() {
    local first=${1:-$BUILD_DIR/tests/libsanitizer-first.so}
    case ${QM_SANITIZE:-} in
    address*) printf '%s %s' "$(${CC:-cc} -print-file-name=libasan.so)" \
        "$(${CC:-cc} -print-file-name=libstdc++.so.6)" ;;
    thread*) printf '%s' "$(${CC:-cc} -print-file-name=libtsan.so)" ;;
    *) printf '%s' "${LD_PRELOAD:-}"; return ;;
    esac
    [ ! -e "$first" ] || printf ' %s' "$first"
}

# start_nbdkit NAME ARGS...: nbdkit in the foreground on $T/NAME.sock, its messages in
# $T/NAME.log; returns when it listens, before its filters' after_fork.  Its id is in $PID.
start_nbdkit() {
    local name=$1; shift
    local preload
    preload=$(sanitizer_preload)
    rm -f "${T:?}/$name.pid" # of an earlier one of that name: nbdkit leaves it
    background env LD_PRELOAD="$preload" ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=${QM_LEAKS:-0}}" \
        nbdkit -f -U "$T/$name.sock" -P "$T/$name.pid" "$@" 2>"$T/$name.log"
    local pid=$PID
    wait_for "${QM_START_SECONDS:-20}" eval "[ -s '$T/$name.pid' ] || gone $pid"
    if ! [ -s "$T/$name.pid" ]; then cat "$T/$name.log" >&2; return 1; fi
}

# stop_nbdkit NAME PID: it has to end in good order, and no sanitizer to have complained.
stop_nbdkit() {
    kill "$2" || fail "$1: nbdkit is gone: $(tail -5 "$T/$1.log")"
    wait_for 30 gone "$2" || fail "$1: nbdkit does not end"
    wait "$2" || fail "$1: nbdkit ended with $?: $(tail -40 "$T/$1.log")"
    forget "$2"
    check_log "$1"
}

REPORTS='ERROR: [A-Za-z]+Sanitizer|WARNING: ThreadSanitizer|: runtime error: '
check_log() {
    ! grep -E "$REPORTS" -A 40 "$T/$1.log" >&2 || fail "$1: see above"
}

# nbd_uri NAME: of the server that start_nbdkit started.
nbd_uri() { printf 'nbd+unix:///?socket=%s/%s.sock' "$T" "$1"; }
