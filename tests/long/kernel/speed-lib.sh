# SPDX-License-Identifier: BSD-3-Clause
# speed-lib.sh - the two kernels beside each other; to be sourced by run.

# run_speed PAIRS [live]: what a read without a context takes in the patched kernel and the
# stock one, alternately.  By an emulator whose clock counts instructions, of a device whose
# server is in the guest; or by the wall clock, of the plain export.
run_speed() {
    local pair kernel order server APPEND=live=${2:-} QEMU_ARGS="-icount shift=0,sleep=off"

    [ -z "${2:-}" ] || QEMU_ARGS=
    initramfs speed "$(PATH=/usr/sbin:/sbin command -v nbd-client)"
    make_disk "$T/speed.disk"
    serve speed --filter="$FILTER" file "$T/speed.disk" cache-size=256M
    server=$PID
    for ((pair = 0; pair < $1; pair++)); do
        order=(stock contexts)
        [ $((pair % 2)) = 0 ] || order=(contexts stock)
        for kernel in "${order[@]}"; do
            say "pair $((pair + 1)): $kernel"
            boot speed "$kernel"
            tr -d '\r' <"$T/speed.console" | sed -n "s/.*@speed/$kernel $pair/p" \
                >>"$T/speeds"
        done
    done
    stop "$server"
    "$PYTHON" "$HERE/speeds.py" "$T/speeds"
}
