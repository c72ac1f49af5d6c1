# SPDX-License-Identifier: BSD-3-Clause
# beside.sh - for workloads with something that runs beside their clients.  To be sourced by
# NAME.sh.

# beside COMMAND...: runs it again and again, its errors in $T/beside.log, until not_beside.
beside() {
    background again_and_again "$@"
    beside_pid=$PID
}
again_and_again() {
    while [ ! -e "$T/enough" ]; do
        "$@" >/dev/null 2>>"$T/beside.log" || { touch "$T/beside.failed"; return 1; }
        echo "a round" >>"$T/beside.done"
    done
}
# not_beside: waits for the last round to end; 1 if one failed.
not_beside() {
    touch "$T/enough"
    wait_for 300 gone "$beside_pid" || stop "$beside_pid"
    forget "$beside_pid"
    [ ! -e "$T/beside.failed" ] || { cat "$T/beside.log" >&2; return 1; }
    echo "beside: $(wc -l <"$T/beside.done") rounds"
}
