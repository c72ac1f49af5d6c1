# SPDX-License-Identifier: BSD-3-Clause
# filesystem.sh - for workloads on an ext4 file system: what bench/record needs.  To be sourced
# by NAME.sh.
#
# The file system's device is what a plain NBD client gets (nbdfuse), under a loop device, so
# its reads have no contexts.
# shellcheck disable=SC2154 # bench/record's variables

workload_level=connection workload_needs=bench workload_targets=
filesystem_loop=

# filesystem_make IMAGE SIZE_MB: a new one, mounted at $T/files until filesystem_made.
filesystem_make() {
    truncate -s "$2M" "$1"
    mkfs.ext4 -q -F "$1" || fail "no file system"
    mkdir -p "$T/files"
    mount -o loop,noatime "$1" "$T/files" || fail "it cannot be mounted"
    at_end filesystem_leave
}
filesystem_made() {
    stack_data_mb=$(df -Pm "$T/files" | awk 'NR == 2 { print $3 }')
    umount "$T/files"
}
# filesystem_start ARGS...: of nbdkit; mounts a copy of the image in $pristine at $T/files.
filesystem_start() {
    run_for cp --sparse=always "$pristine/image" "$T/device.img"
    LD_PRELOAD=$stack_jemalloc start_nbdkit nbd --filter="$FILTER" --filter=delay \
        file "$T/device.img" stats="$T/nbd.stats" "$@" || fail "nbdkit does not start"
    stack_nbdkit=$PID
    mkdir -p "$T/plain" "$T/files"
    QM_PIDS+=("m:$T/plain")
    background nbdfuse -P "$T/nbdfuse.pid" -C 4 "$T/plain" "$(nbd_uri nbd)" 2>"$T/nbdfuse.log"
    filesystem_nbdfuse=$PID
    wait_for 20 test -e "$T/plain/nbd" || { cat "$T/nbdfuse.log" >&2; fail "nbdfuse does not start"; }
    filesystem_loop=$(losetup --find --show --direct-io=on "$T/plain/nbd") || fail "no loop device"
    at_end filesystem_leave
    mount -o noatime "$filesystem_loop" "$T/files" || fail "it cannot be mounted"
}
filesystem_leave() {
    umount "$T/files" 2>/dev/null
    [ -z "$filesystem_loop" ] || losetup -d "$filesystem_loop" 2>/dev/null
}
filesystem_stop() {
    umount "$T/files"
    losetup -d "$filesystem_loop"
    # The kernel lets go of it a little later.
    wait_for 20 eval "! losetup '$filesystem_loop'"
    filesystem_loop=''
    fusermount3 -u "$T/plain"
    wait_for 20 gone "$filesystem_nbdfuse"
    stop "$filesystem_nbdfuse"
    forget "m:$T/plain"
    stop "$stack_nbdkit"
}
