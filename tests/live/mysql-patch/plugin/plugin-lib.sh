# SPDX-License-Identifier: BSD-3-Clause
# plugin-lib.sh - for the plugin's live tests: a server, a mount, and a MariaDB with the
# plugin.  To be sourced.  With TRANSPORT=preload there is no mount: the preload library
# routes the same path.

. "$SOURCE_DIR/scripts/lib/testing.sh"
. "$SOURCE_DIR/scripts/lib/mariadb.sh"

CLIENT=$BUILD_DIR/tests/plugin-client
CLASS_OF=$BUILD_DIR/tests/plugin-class-of
DEV=$T/dev # the mounted, or routed, file
TRANSPORT=${TRANSPORT:-mount}
PRELOAD=$BUILD_DIR/lib/libqmctx-preload.so

if [ "$TRANSPORT" = mount ]; then
    [ "$(id -u)" = 0 ] || skip "only root may set a thread's group"
    dd if=/dev/fuse of=/dev/null count=0 2>/dev/null || skip "/dev/fuse cannot be opened"
    command -v fusermount3 >/dev/null || skip "fusermount3 is not installed"
fi
for program in nbdkit mariadbd mariadb mariadb-install-db python3; do
    command -v $program >/dev/null || skip "$program is not installed"
done

# start_server ARGS...: the filter over $T/img; its id is in $SERVER.
start_server() {
    rm -f "${T:?}/server.sock" "${T:?}/server.pid"
    start_nbdkit server --filter="$FILTER" file "$T/img" cache-size=4M \
        stats="$T/stats" "$@" || fail "the server does not start"
    SERVER=$PID
}

# start_mount: of that server, on $DEV; its id is in $MOUNT.
start_mount() {
    [ "$TRANSPORT" = mount ] || return 0
    rm -f "${T:?}/mount.pid"
    QM_PIDS+=("m:$DEV")
    background "$QUICKMINE" mount -f --pidfile "$T/mount.pid" "$(nbd_uri server)" "$DEV" \
        2>"$T/mount.log"
    MOUNT=$PID
    wait_for 20 eval "[ -s '$T/mount.pid' ] || gone $MOUNT"
    [ -s "$T/mount.pid" ] || { cat "$T/mount.log" >&2; fail "the mount does not start"; }
}

# stop_mount: contexts of those who have closed their connection have ended then.
stop_mount() {
    [ "$TRANSPORT" = mount ] || return 0
    fusermount3 -u "$DEV" || fail "it cannot be unmounted"
    wait_for 20 gone "$MOUNT" || fail "the mount does not end"
}

# start_plugin_on DATADIR FILE SIZE OPTIONS...: MariaDB with the plugin; its id is in
# $MARIADB.
start_plugin_on() {
    local datadir=$1 file=$2 size=$3; shift 3
    # A plugin that is built with a sanitizer needs its runtime in the host program.
    local preload=
    case ${QM_SANITIZE:-} in
    address*) preload=$(${CC:-cc} -print-file-name=libasan.so)
        local -x ASAN_OPTIONS=detect_leaks=0 ;;
    esac
    if [ "$TRANSPORT" = preload ]; then
        preload+=" $PRELOAD"
        local -x QMCTX_PRELOAD_FILES="$DEV=$(nbd_uri server)"
    fi
    [ -z "$preload" ] || local -x LD_PRELOAD=$preload
    mariadb_start db "$datadir" "$file" "$size" --plugin-dir="$BUILD_DIR/lib" \
        --plugin-load-add=qmctx --innodb-buffer-pool-size=6M "$@" ||
        fail "MariaDB does not start"
    MARIADB=$PID
}
start_plugin() { start_plugin_on "$T/data" "$DEV" 100M "$@"; }
status() { mariadb_status db "$1"; }
# A mount that is slow to greet is asked again later, when contexts begin, and until then
# nothing is announced.
announcing() { [ "$(status Qmctx_connected)" = ON ]; }
