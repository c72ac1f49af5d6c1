# SPDX-License-Identifier: BSD-3-Clause
# mount-lib.sh - for the mount's tests: a server and a mount of it.  To be sourced.

. "$SOURCE_DIR/scripts/lib/testing.sh"
. "$SOURCE_DIR/tests/live/clients/image-lib.sh"

ANNOUNCER=$BUILD_DIR/tests/mount-announcer
HOSTILE=$BUILD_DIR/tests/mount-hostile
DEV=$T/dev # the mounted file

[ "$(id -u)" = 0 ] || skip "only root may set a thread's group"
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
dd if=/dev/fuse of=/dev/null count=0 2>/dev/null || skip "/dev/fuse cannot be opened"
for program in nbdkit fusermount3 fio; do
    command -v $program >/dev/null || skip "$program is not installed"
done

# start_mount ARGS...: in the foreground, messages in $T/mount.log, its id in $MOUNT.
start_mount() {
    rm -f "${T:?}/mount.pid"
    background "$QUICKMINE" mount -f --pidfile "$T/mount.pid" "$@" \
        "$(nbd_uri server)" "$DEV" 2>"$T/mount.log"
    MOUNT=$PID
    wait_for 20 eval "[ -s '$T/mount.pid' ] || gone $MOUNT"
    [ -s "$T/mount.pid" ] || { cat "$T/mount.log" >&2; fail "the mount does not start"; }
    QM_PIDS+=("m:$DEV")
}

# end_mount: by unmounting; it must end well and leave nothing behind.
end_mount() {
    fusermount3 -u "$DEV" || fail "cannot unmount"
    wait_for 20 gone "$MOUNT" || fail "it does not end when it is unmounted"
    wait "$MOUNT" || { cat "$T/mount.log" >&2; fail "it ended with an error"; }
    check_nothing_left
}

check_nothing_left() {
    [ ! -e "$DEV.ctx" ] || fail "the socket is left"
    [ ! -e "$T/mount.pid" ] || fail "the pid file is left"
    [ -f "$DEV" ] && [ ! -s "$DEV" ] || fail "the file is not as it was"
}

# can_read: whether the device can be read just now, whatever is cached.
can_read() { dd if="$DEV" of=/dev/null bs=4096 count=1 iflag=direct 2>"$T/dd.log"; }
