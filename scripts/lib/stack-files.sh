# SPDX-License-Identifier: BSD-3-Clause
# stack-files.sh - the path of a read of a database with a file per table on ext4, whose
# contexts a BPF program sees, for benchmarks.  To be sourced after scripts/lib/stack.sh.
#
# The block device is a loop device over nbdfuse, which stands for the kernel's /dev/nbd0:
# all machines have it.  It costs a loop device and FUSE more than that, and nbdfuse serves
# ten requests at a time, over its connections in turn.  A server that carries out the requests
# of a connection one by one (nbdkit before 1.34) lets a request wait for others if it shares
# their connection: blocks that the server had took 8 ms beside four reads of 40 ms at a time
# over 16 connections, and .2 ms over NBDFUSE_CONNECTIONS.  There are three ways:
#   attach  the loop device is over `quickmine attach`, which joins reads and requests
#   agent   it is over the server's plain export, and `quickmine agent` tells the server
#   local   a server without the filter stands for a local disk, which `quickmine agent`
#           records
# shellcheck disable=SC2154 # mariadb_files is mariadb.sh's

readonly NBDFUSE_CONNECTIONS=64

# What is to be undone before nbdfuse ends: the database, $stack_mariadbd, the file system, the
# loop device.
stack_loop='' stack_mounted=''
stack_files_leave() {
    if [ -n "$stack_mounted" ]; then
        stack_mounted=''
        [ -z "$stack_mariadbd" ] || stop "$stack_mariadbd"
        stack_mariadbd=''
        wait_for 20 umount "$T/files"
    fi
    if [ -n "$stack_loop" ]; then
        local loop=$stack_loop
        stack_loop=''
        losetup --detach "$loop"
    fi
}
at_end stack_files_leave

# stack_files_need: ends the script if this machine does not allow it.
stack_files_need() {
    "$QUICKMINE" agent --check >"$T/check" || { cat "$T/check" >&2; fail "there is no BPF here"; }
    [ -n "$(losetup --find 2>"$T/losetup.log")" ] ||
        { cat "$T/losetup.log" >&2; fail "there is no loop device"; }
}

# stack_files_attach FILE: a loop device over a file, $stack_loop, and its file system at
# $T/files.
stack_files_attach() {
    [ -n "$stack_loop" ] ||
        stack_loop=$(losetup --find --show --direct-io=on "$1" 2>"$T/losetup.log") ||
        { cat "$T/losetup.log" >&2; fail "no loop device"; }
    mkdir -p "$T/files"
    mount -o noatime "$stack_loop" "$T/files" || fail "the file system cannot be mounted"
    stack_mounted=1
}

# stack_files_make IMAGE SIZE_MB: an empty file system, complete, so that nothing makes it
# later, and whose large extents begin at the server's blocks: otherwise some 15 % of InnoDB's
# pages lie on two of them.
stack_files_make() {
    truncate -s "$2M" "$1"
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,stride=4,stripe_width=4 \
        "$1" >"$T/mkfs.log" 2>&1 ||
        { cat "$T/mkfs.log" >&2; fail "no file system"; }
}

# stack_load_files DIR SIZE_MB COMMAND...: as stack_load; DIR/image is a file system, with the
# whole data directory.
stack_load_files() {
    local dir=$1 size=$2; shift 2
    mkdir -p "$dir"
    stack_files_make "$dir/image" "$size"
    stack_files_attach "$dir/image"
    mariadb_make "$T/files/data" "${mariadb_files[@]}" || fail "no database"
    stack_fill "$T/files/data" "${mariadb_files[@]}" -- "$@"
    stack_files_leave
}

# stack_start_files HOW DIR CONNECTIONS ARGS...: the server on a copy of what
# stack_load_files made, and all up to the file system, at $T/files; HOW: attach, agent or
# local, of which ARGS are those of nbdkit's delay filter, and $stack_trace is recorded.
# Programs tell their contexts at $T/agent.sock.
stack_start_files() {
    local how=$1 dir=$2 connections=$3 agent=(); shift 3
    case $how in
    agent) agent=(--server "$(nbd_uri nbd)") ;;
    local) agent=(--record "$stack_trace") ;;
    esac
    if [ "$how" = local ]; then
        rm -f "${T:?}/device.img" "${T:?}"/nbd.{sock,pid}
        run_for cp --sparse=always "$dir/image" "$T/device.img"
        start_nbdkit nbd --filter=delay file "$T/device.img" "$@" || fail "nbdkit does not start"
        stack_nbdkit=$PID
    else
        stack_serve "$dir" "$@"
    fi
    stack_files_device "$how" "$connections"
    stack_files_attach "$T/device"
    [ ${#agent[@]} -gt 0 ] || return 0
    background "$QUICKMINE" agent --device "$stack_loop" "${agent[@]}" --socket "$T/agent.sock" \
        2>"$T/agent.log"
    stack_agent=$PID
    wait_for 30 eval "grep -q 'watching' '$T/agent.log' || gone $stack_agent"
    gone "$stack_agent" && { cat "$T/agent.log" >&2; fail "the agent does not start"; }
    return 0
}

# The block device, $stack_loop.  What it is over has to know its number before there is
# anything, and somebody else may take it meanwhile.
stack_files_device() { # HOW CONNECTIONS
    local below=nbd number
    stack_agent='' stack_attach=''
    if [ "$1" = attach ]; then
        number=$(losetup --find) || fail "no loop device"
        rm -f "${T:?}/attach.pid"
        background "$QUICKMINE" attach -f --pidfile "$T/attach.pid" --socket "$T/attach.sock" \
            --connections "$2" --agent-socket "$T/agent.sock" --watch "$number" \
            "$(nbd_uri nbd)" 2>"$T/attach.log"
        stack_attach=$PID
        wait_for 20 eval "[ -s '$T/attach.pid' ] || gone $stack_attach"
        [ -s "$T/attach.pid" ] || { cat "$T/attach.log" >&2; fail "attach does not start"; }
        below=attach
    fi
    : >"$T/device"
    QM_PIDS+=("m:$T/device")
    background nbdfuse --connections $NBDFUSE_CONNECTIONS "$T/device" "$(nbd_uri $below)" 2>"$T/nbdfuse.log"
    stack_fuse=$PID
    wait_for 20 eval "[ -s '$T/device' ] || gone $stack_fuse"
    [ -s "$T/device" ] || { cat "$T/nbdfuse.log" >&2; fail "nbdfuse does not start"; }
    [ -z "${number:-}" ] || losetup --direct-io=on "$number" "$T/device" 2>"$T/losetup.log" ||
        { cat "$T/losetup.log" >&2; fail "somebody else took $number"; }
    stack_loop=${number:-}
}

stack_stop_files() {
    stack_files_leave
    [ -z "$stack_agent" ] || stop "$stack_agent"
    wait_for 20 fusermount3 -u "$T/device"
    stop "$stack_fuse"
    forget "m:$T/device"
    [ -z "$stack_attach" ] || stop "$stack_attach"
    stop "$stack_nbdkit"
}
