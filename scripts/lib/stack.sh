# SPDX-License-Identifier: BSD-3-Clause
# stack.sh - the whole path of a read, for benchmarks: nbdkit with the filter, its tagged
# export mounted, and a MariaDB whose system tablespace is the mounted file and whose
# plugin announces contexts.  To be sourced after scripts/lib/testing.sh and mariadb.sh.
#
# What is started gets process groups of its own: an interrupt from the keyboard is for
# the script alone, which then ends the others in the right order.
set -m
exec </dev/null

stack_began=$SECONDS
progress() { say "$(printf '%4d s  %s' $((SECONDS - stack_began)) "$*")"; }

# run_for COMMAND...: to its end, but so that a signal interrupts it.
run_for() {
    background "$@"
    wait "$PID"
    local rc=$?
    forget "$PID"
    return $rc
}

# need_root WHO: mounting, and announcing contexts, take it.
need_root() {
    [ -c /dev/fuse ] && [ "$(id -u)" -eq 0 ] || {
        echo "$1: needs root (for the mount, and to announce contexts) and /dev/fuse" >&2
        exit 1
    }
}

# need_space MB: ends the script if there are less where $T is.
need_space() {
    local have
    have=$(df -Pm "$T" | awk 'NR == 2 { print $4 }')
    [ "$have" -ge "$1" ] || fail "needs $1 MB in $T, there are $have; set TMPDIR to where there are more"
}

# build TARGETS...: one at a time in a build directory.
build() {
    local lock
    mkdir -p "$BUILD_DIR" && exec {lock}>"$BUILD_DIR/.building" && flock "$lock" &&
        run_for cmake -G Ninja -S . -B "$BUILD_DIR" >"$T/build.log" 2>&1 &&
        run_for ninja -C "$BUILD_DIR" "$@" >>"$T/build.log" 2>&1 ||
        { cat "$T/build.log" >&2; fail "it does not build"; }
    exec {lock}>&-
}

# stack_load DIR SIZE_MB COMMAND...: a new database, loaded by the command, which reaches
# it by $T/mariadb.sock.  DIR/data and DIR/image are what stack_start takes; the image is
# sparse.  Loaded on the image itself and with much memory, and shut down in full, so
# that all who start from it start from the same bytes.  The SQL in $stack_sql is run
# before the command; $stack_data_mb says how much data there is after it.
stack_load() {
    local dir=$1 size=$2; shift 2
    mkdir -p "$dir"
    truncate -s "${size}M" "$dir/image"
    mariadb_install "$dir/data" "$dir/image" "${size}M" || fail "no database"
    stack_fill "$dir/data" --innodb-data-file-path="$dir/image:${size}Mraw" -- "$@"
}

# stack_fill DATADIR OPTIONS... -- COMMAND...: what stack_load does with a database that is
# there, and is started with the options.
stack_fill() {
    local datadir=$1 options=(); shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    mariadb_run mariadb "$datadir" "${options[@]}" \
        --innodb-buffer-pool-size=1G --innodb-flush-log-at-trx-commit=0 \
        --innodb-doublewrite=0 --innodb-fast-shutdown=0 || fail "MariaDB does not start"
    stack_mariadbd=$PID
    [ -z "${stack_sql:-}" ] || mariadb_sql mariadb -e "$stack_sql"
    run_for "$@" >"$T/prepare.log" 2>&1 ||
        { cat "$T/prepare.log" >&2; fail "the workload cannot be loaded"; }
    stack_data_mb=$(mariadb_sql mariadb -BNe "SELECT ROUND(SUM(data_length +
        index_length) / 1048576) FROM information_schema.tables WHERE table_schema NOT IN
        ('mysql', 'sys', 'information_schema', 'performance_schema')")
    stop "$stack_mariadbd"
    stack_mariadbd=''
    grep -q "Shutdown complete" "$T/mariadb.log" ||
        { cat "$T/mariadb.log" >&2; fail "MariaDB did not shut down cleanly"; }
}

# stack_load_s3 DIR SIZE_MB: copies what stack_load made to the object store that s3_start
# has started, in objects of MariaDB's page size.
stack_load_s3() {
    s3_device "$T/s3" "$2" 16384 || fail "no device in the object store"
    run_for nbdkit -U - file "$T/s3/device" \
        --run "nbdcopy --connections=8 --requests=8 --allocated '$1/image' \"\$uri\"" ||
        fail "the object store cannot be filled"
}

# stack_start DIR SIZE_MB POOL CONNECTIONS ARGS...: the stack on a copy of what stack_load made;
# CONNECTIONS are the mount's, or `default`; ARGS are nbdkit's after the filter's name.  MariaDB
# is at $T/mariadb.sock, the server's statistics at $T/nbd.stats.  The copy is a file, or, with
# stack_backend=rbd, an image in the cluster that ceph_start has started; its reads take
# what nbdkit's delay filter adds.  With stack_backend=s3 it is the device in $T/s3, which
# stack_load_s3 has filled; what is written goes to a file in front of it and is forgotten.
stack_jemalloc=libjemalloc.so.2
stack_backend="file"
stack_filter=delay # what reads of it take time in
stack_mariadbd='' # of those that run
stack_start() {
    local dir=$1 size=$2 pool=$3 mount_with=(--connections "$4"); shift 4
    [ "${mount_with[1]}" != default ] || mount_with=()
    rm -rf "${T:?}/data"
    run_for cp -r "$dir/data" "$T/data"
    stack_serve "$dir" "$@"

    rm -f "${T:?}/mount.pid"
    QM_PIDS+=("m:$T/device")
    background "$QUICKMINE" mount -f "${mount_with[@]}" \
        --pidfile "$T/mount.pid" "$(nbd_uri nbd)" "$T/device" 2>"$T/mount.log"
    stack_mount=$PID
    wait_for 20 eval "[ -s '$T/mount.pid' ] || gone $stack_mount"
    [ -s "$T/mount.pid" ] || { cat "$T/mount.log" >&2; fail "it cannot be mounted"; }

    stack_database "$T/data" "$pool" "$T/device" --innodb-data-file-path="$T/device:${size}Mraw"
}

# stack_serve DIR ARGS...: the server, on a copy of the image; ARGS as for stack_start.
stack_serve() {
    local dir=$1 below; shift
    rm -f "${T:?}/device.img" "${T:?}"/nbd.{sock,pid}
    case $stack_backend in
    file)
        run_for cp --sparse=always "$dir/image" "$T/device.img"
        below=(file "$T/device.img")
        ;;
    rbd)
        rbd rm --no-progress device >/dev/null 2>&1
        run_for rbd import --no-progress "$dir/image" device || fail "no image in the cluster"
        below=("$BUILD_DIR/lib/nbdkit-rbd-plugin.so" device)
        ;;
    s3) below=(--filter=cow file "$T/s3/device" cow-block-size=16k) ;;
    esac
    stack_server=(--filter="$FILTER" --filter="$stack_filter" "${below[@]}" stats="$T/nbd.stats" "$@")
    stack_server_start
}

stack_server_start() {
    LD_PRELOAD=$stack_jemalloc start_nbdkit nbd "${stack_server[@]}" ||
        fail "nbdkit does not start"
    stack_nbdkit=$PID
}

# stack_server_again: kills the server that stack_serve has started, as a crash would, and
# starts it anew on the same image; its clients wait for it.
stack_server_again() {
    stop "$stack_nbdkit" KILL 2>/dev/null # the shell would say that it was killed
    # The lock of an image in a cluster outlives its owner by half a minute.
    local until=$((SECONDS + 90))
    until rm -f "${T:?}"/nbd.{sock,pid,stats} &&
        LD_PRELOAD=$stack_jemalloc start_nbdkit nbd "${stack_server[@]}" 2>"$T/again.log"; do
        stop "$PID" # it may be slow, not refused
        [ $SECONDS -lt $until ] || { cat "$T/again.log" >&2; fail "nbdkit does not start again"; }
        sleep 1
    done
    stack_nbdkit=$PID
}

# stack_database DATADIR POOL TRANSPORT OPTIONS...: MariaDB, whose plugin tells its contexts
# by the transport (qmctx_mount).
stack_database() {
    local datadir=$1 pool=$2 transport=$3; shift 3
    mariadb_run mariadb "$datadir" "$@" \
        --innodb-buffer-pool-size="$pool" --innodb-flush-log-at-trx-commit=2 \
        --innodb-fast-shutdown=2 --max-connections=1000 --plugin-dir="$BUILD_DIR/lib" \
        --plugin-load-add=qmctx --qmctx-mount="$transport" --qmctx-names=ON ||
        fail "MariaDB does not start"
    stack_mariadbd=$PID
    [ "$(mariadb_status mariadb Qmctx_connected)" = ON ] ||
        { cat "$T/mariadb.log" >&2; fail "the plugin does not reach $transport"; }
}

stack_stop() {
    stop "$stack_mariadbd"
    stack_mariadbd=''
    stop "$stack_mount"
    forget "m:$T/device"
    stop "$stack_nbdkit"
}
