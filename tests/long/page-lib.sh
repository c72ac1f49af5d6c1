# SPDX-License-Identifier: BSD-3-Clause
# page-lib.sh - runs the command blocks of a page, to the letter; to be sourced by a test.
#
# A block is what a page has between two lines of ```, but not ```conf: that is what is in a file.  The pages name fixed paths in /srv and
# /run: in a mount namespace of the test's, these are directories in $T.  Where the kernel has no
# /dev/nbd0, a loop device stands in for it, over what quickmine attach serves on a socket.
#
#   page_outside SETS... -- ARGS...  the test outside of the namespace: looks whether all is there
#                                    and runs itself inside, with SETS of scripts/install-packages
#   page_inside DIR                  the beginning inside; the current directory is a copy of what
#                                    git knows
#   page FILE [HEADING]              which page, or which of its sections, `run` is about
#   run WHAT NUMBER TEXT             runs that block
#   all_ran                          fails if a block was never run; says how many cannot be
#
# A block that no test machine can run follows a line that begins with "Not run by the tests:",
# which says why; all_ran counts them, and tests/lint/pages knows how many there are.
# shellcheck disable=SC2015,SC2317 # a && b || fail; functions that commands of a page call

NOT_RUN='Not run by the tests:'
. "${SOURCE_DIR:?}/scripts/lib/namespace.sh"

page_outside() {
    . "$SOURCE_DIR/scripts/lib/testing.sh"
    local sets=() missing
    while [ "$1" != -- ]; do sets+=("$1"); shift; done
    shift
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    dd if=/dev/fuse of=/dev/null count=0 2>/dev/null || skip "/dev/fuse cannot be opened"
    unshare --mount true 2>/dev/null || skip "no namespaces can be made here"
    command -v nbdfuse >/dev/null || skip "package nbdfuse is missing"
    for set in "${sets[@]}"; do
        missing=$("$SOURCE_DIR/scripts/install-packages" --for "$set" --print) ||
            skip "this is no Debian"
        [ -z "$missing" ] || skip "packages are missing: ${missing//$'\n'/ }"
    done
    mkdir "$T/run" "$T/srv" "$T/source"
    (cd "$SOURCE_DIR" && git ls-files -z | xargs -0 cp --parents -t "$T/source") ||
        fail "what git knows cannot be copied"
    background unshare --mount "$0" inside "$T" "$@" </dev/null
    wait "$PID" || fail "see above"
    forget "$PID"
}

fail() { echo "FAILED: $*" >&2; exit 1; }

page_inside() {
    local entry
    T=$1
    # For what databases keep in /tmp under names with process ids.
    mkdir "$T/tmp" && export TMPDIR=$T/tmp || fail "no directory"
    # What is in /srv, perhaps the sources, stays there.
    leave_mounts || fail "mount"
    for entry in /srv/*; do
        [ -d "$entry" ] || continue
        mkdir "$T$entry" && mount --rbind "$entry" "$T$entry" || fail "mount"
    done
    mount --rbind "$T/srv" /srv && mount --rbind "$T/run" /run || fail "mount"
    cd "$T/source" || exit 1
    doing=''
    exec 7>&2
    trap page_leave EXIT
    trap 'exit 143' TERM INT HUP
    unset QM_SANITIZE LD_PRELOAD
}

# The processes of this namespace, which are those that the commands start: BPF knows only the
# numbers that processes have in the first namespace of processes, so there is no other here.
ours() {
    local mine entry
    mine=$(readlink /proc/self/ns/mnt)
    for entry in /proc/[0-9]*; do
        [ "$(readlink "$entry/ns/mnt" 2>/dev/null)" != "$mine" ] || echo "${entry#/proc/}"
    done
}
end_ours() {
    local pid
    for pid in $(ours); do
        [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] || kill "-$1" "$pid" 2>/dev/null
    done
}

# The stand-in, in place of /dev/nbd0 and the commands that attach and detach it.
DEVICE=''
attach_stand_in() { # URI
    # The device has to be known before there is what it stands on; somebody else may take it
    # meanwhile.
    local number
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        number=$(losetup --find)
        build/bin/quickmine attach --pidfile /run/stand-in.pid --socket /run/stand-in.sock \
            --watch "$number" "$1"
        : >"$T/device"
        nbdfuse "$T/device" "nbd+unix:///?socket=/run/stand-in.sock" &
        until [ -s "$T/device" ]; do sleep 0.1; done
        if losetup --direct-io=on "$number" "$T/device"; then
            DEVICE=$number
            return
        fi
        end_stand_in
    done
    fail "others take the loop devices"
}
end_stand_in() {
    local pid
    until fusermount3 -u "$T/device"; do sleep 0.1; done
    pid=$(cat /run/stand-in.pid) && kill "$pid" && tail --pid="$pid" -f /dev/null
}
detach_stand_in() {
    losetup --detach "$DEVICE"
    DEVICE=''
    end_stand_in
}
# The same, but one that can grow: a loop device over the file of quickmine mount.
mount_stand_in() { # URI
    rm -f "${T:?}/device"
    build/bin/quickmine mount "$1" "$T/device"
    DEVICE=$(losetup --find --show --direct-io=on "$T/device")
}
unmount_stand_in() {
    losetup --detach "$DEVICE"
    DEVICE=''
    until fusermount3 -u "$T/device"; do sleep 0.1; done
}
stand_in_size() {
    losetup --set-capacity "$DEVICE" && blockdev --getsize64 "$DEVICE"
}
stand_in=1
if [ -e /dev/nbd0 ] || modprobe -q nbd 2>/dev/null; then
    [ ! -b /dev/nbd0 ] || [ -e /sys/block/nbd0/pid ] || stand_in=0
fi

page() { # FILE [HEADING]
    PAGE=$1 HEADING=${2:-}
}
# page_blocks PROGRAM: the lines of the section's blocks, by awk: `n` is the block's number, from
# 1, and `marked` whether it is one that is not run.
page_blocks() {
    awk -v heading="$HEADING" -v mark="$NOT_RUN" '
        /^```conf/ { file = 1; next }
        file { if (/^```/) file = 0; next }
        /^```/ && !inside { inside = 1; if (within) n++; marked = last; next }
        /^```/ { inside = 0; last = 0; next }
        !inside && /^## / { within = heading == "" || $0 == heading }
        !inside && heading == "" { within = 1 }
        !inside && index($0, mark) == 1 { last = 1 }
        !inside && !index($0, mark) && /^#/ { last = 0 }
        inside && within { '"$1"' }' "$PAGE"
}
block() { page_blocks "if (n == $1) print"; }

declare -A RAN
# run WHAT NUMBER TEXT: runs that block, which must have the text in it, in this shell, as a
# person would.  What it prints is in $T/said.
run() {
    local commands
    commands=$(block "$2")
    grep -qF -- "$3" <<<"$commands" || fail "block $2 of $PAGE ${HEADING:+($HEADING) }has no $3"
    RAN[$PAGE:$HEADING:$2]=1
    if [ "$stand_in" = 1 ]; then
        commands=${commands//build\/bin\/quickmine attach/attach_stand_in}
        commands=${commands//build\/bin\/quickmine detach/detach_stand_in}
        commands=${commands//\/dev\/nbd0/\"\$DEVICE\"}
    fi
    ! declare -F adapt >/dev/null || commands=$(adapt "$commands")
    doing="$1: block $2 of $PAGE"
    echo "-- $1 ($SECONDS s)" >&2
    set -e # not in a condition, where it would mean nothing
    eval "$commands" >"$T/said" 2>&1
    set +e
    doing=''
}
all_ran() {
    local n marked left=0
    for n in $(page_blocks 'if (!(n in seen)) { seen[n]; print n (marked ? "-" : "") }'); do
        case $n in
        *-) left=$((left + 1)) ;;
        *) [ -n "${RAN[$PAGE:$HEADING:$n]:-}" ] || fail "block $n of $PAGE is not run here" ;;
        esac
    done
    echo "$PAGE: all blocks were run, but $left that say why not" >&2
}

page_leave() {
    local rc=$?
    # A command of a page has failed within `run`, whose output this still is.
    set +e
    exec 1>&7 2>&7
    [ -z "$doing" ] || {
        cat "$T/said" /srv/db/mariadb.log
        echo "FAILED: $doing"
        rc=1
    } >&2
    end_ours TERM
    umount /srv/db/data 2>/dev/null || umount -l /srv/db/data 2>/dev/null
    [ -z "$DEVICE" ] || losetup --detach "$DEVICE"
    [ "$stand_in" = 1 ] || build/bin/quickmine detach --force /dev/nbd0 2>/dev/null
    fusermount3 -u -z "$T/device" 2>/dev/null
    end_ours KILL
    exit "$rc"
}
nothing_runs() {
    local pid name
    for pid in $(ours); do
        name=$(cat "/proc/$pid/comm" 2>/dev/null)
        [[ ! "$name" =~ ^(mariadbd|nbdkit|quickmine|nbdfuse)$ ]] || fail "$name still runs"
    done
}
