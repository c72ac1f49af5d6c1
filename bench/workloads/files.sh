# SPDX-License-Identifier: BSD-3-Clause
# files: programs on an ext4 file system, without contexts; files.py says what they do.
#
# Its device is what a plain NBD client gets (nbdfuse), under a loop device.  A scale of 1 is a
# tree of 400 MB and a file of 100 MB.
# shellcheck disable=SC2154 # bench/record's variables

workload_mb=900 workload_level=connection workload_takes="clients scale" workload_needs=bench
workload_targets=
files_loop=

workload_makers() { cat bench/workloads/files.py; }
files_mb() { awk -v s="$scale" -v mb="$1" 'BEGIN { print int(s * mb) }'; }
workload_load() {
    truncate -s "${size_mb}M" "$1/image"
    mkfs.ext4 -q -F "$1/image" || fail "no file system"
    mkdir -p "$T/files"
    mount -o loop,noatime "$1/image" "$T/files" || fail "it cannot be mounted"
    local rc=0
    run_for python3 bench/workloads/files.py fill "$T/files" "$(files_mb 400)" \
        "$(files_mb 100)" || rc=1
    stack_data_mb=$(df -Pm "$T/files" | awk 'NR == 2 { print $3 }')
    umount "$T/files"
    [ $rc = 0 ] || fail "the files cannot be made"
}
workload_start() {
    run_for cp --sparse=always "$pristine/image" "$T/device.img"
    LD_PRELOAD=$stack_jemalloc start_nbdkit nbd --filter="$FILTER" --filter=delay \
        file "$T/device.img" stats="$T/nbd.stats" "$@" || fail "nbdkit does not start"
    stack_nbdkit=$PID
    mkdir -p "$T/plain" "$T/files"
    QM_PIDS+=("m:$T/plain")
    background nbdfuse -P "$T/nbdfuse.pid" -C 4 "$T/plain" "$(nbd_uri nbd)" 2>"$T/nbdfuse.log"
    files_nbdfuse=$PID
    wait_for 20 test -e "$T/plain/nbd" || { cat "$T/nbdfuse.log" >&2; fail "nbdfuse does not start"; }
    files_loop=$(losetup --find --show --direct-io=on "$T/plain/nbd") || fail "no loop device"
    at_end files_leave
    mount -o noatime "$files_loop" "$T/files" || fail "it cannot be mounted"
}
files_leave() {
    umount "$T/files" 2>/dev/null
    [ -z "$files_loop" ] || losetup -d "$files_loop" 2>/dev/null
}
workload_stop() {
    umount "$T/files"
    losetup -d "$files_loop"
    # The kernel lets go of it a little later.
    wait_for 20 eval "! losetup '$files_loop'"
    files_loop=''
    fusermount3 -u "$T/plain"
    wait_for 20 gone "$files_nbdfuse"
    end "$files_nbdfuse"
    forget "m:$T/plain"
    end "$stack_nbdkit"
}
workload_version() { uname -sr; }
workload_run() {
    run_for python3 bench/workloads/files.py run "$T/files" "$clients" "$seconds" "$seed"
}
