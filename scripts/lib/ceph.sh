# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# ceph.sh - a Ceph cluster on loopback for tests and benchmarks; to be sourced after
# testing.sh.
#
# One monitor and one OSD that keeps its objects in memory, from Debian's packages, as
# processes of this user; no service and no manager daemon, without which RBD works.  All
# is below $T/ceph, listens on $CEPH_ADDRESS (127.0.0.1) with ports of its own, and is ended with the
# script.  Ceph's programs find it by $CEPH_CONF.

# What runs it; rados and rbd are ceph-common's.
CEPH_PACKAGES=(ceph-mon ceph-osd ceph-common)

ceph_missing() {
    local program
    for program in ceph-mon ceph-osd monmaptool ceph rados rbd; do
        command -v "$program" >/dev/null || { printf '%s\n' "$program"; return 0; }
    done
    return 1
}

# The keys of the monitor, the OSD and client.admin.
ceph_keys() {
    ceph-authtool --create-keyring "$1" --gen-key -n mon. --cap mon 'allow *' &&
        ceph-authtool "$1" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' &&
        ceph-authtool "$1" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
}

# Debian 13's OSD looks for its classes below the directory that it is started in.
ceph_classes() {
    local dir
    for dir in /usr/lib/*/rados-classes /usr/lib/rados-classes; do
        [ ! -d "$dir" ] || { echo "$dir"; return 0; }
    done
}

# ceph_start [BYTES]: of the OSD's memory, 1 GiB unless said otherwise.
ceph_start() {
    local bytes=${1:-1073741824} PORT fsid uuid
    CEPH_DIR=$T/ceph
    export CEPH_CONF=$CEPH_DIR/ceph.conf
    mkdir -p "$CEPH_DIR/osd.0" || return 1
    CEPH_ADDRESS=${CEPH_ADDRESS:-127.0.0.1}
    hold_port "$CEPH_ADDRESS" && fsid=$(cat /proc/sys/kernel/random/uuid) || return 1
    cat >"$CEPH_CONF" <<END
[global]
fsid = $fsid
mon host = v2:$CEPH_ADDRESS:$PORT
ms bind ipv4 = true
public network = $CEPH_ADDRESS/8
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
mon allow pool size one = true
osd crush chooseleaf type = 0
run dir = $CEPH_DIR
admin socket = $CEPH_DIR/\$name.\$pid.asok
log file = $CEPH_DIR/\$name.log
mon cluster log file = $CEPH_DIR/cluster.log
pid file = $CEPH_DIR/\$name.pid
mon data = $CEPH_DIR/mon
osd data = $CEPH_DIR/osd.\$id
osd objectstore = ${CEPH_OBJECTSTORE:-memstore}
bluestore block size = $bytes
memstore device bytes = $bytes
osd class dir = $(ceph_classes)
osd class load list = *
osd class default list = *
osd crush update on start = false
osd memory target = 939524096
mon warn on insecure global id reclaim allowed = false
mon data avail crit = 1
mon data avail warn = 2
keyring = $CEPH_DIR/keyring
[client]
log file = /dev/null
admin socket =
END
    ceph_keys "$CEPH_DIR/keyring" >"$CEPH_DIR/out" 2>&1 &&
        monmaptool --create --fsid "$fsid" --addv a "[v2:$CEPH_ADDRESS:$PORT]" \
        "$CEPH_DIR/monmap" >>"$CEPH_DIR/out" 2>&1 &&
        ceph-mon --mkfs -i a --monmap "$CEPH_DIR/monmap" --keyring "$CEPH_DIR/keyring" >>"$CEPH_DIR/out" 2>&1 ||
        { cat "$CEPH_DIR/out" >&2; return 1; }
    ceph_start_mon || return 1
    uuid=$(cat /proc/sys/kernel/random/uuid)
    ceph osd new "$uuid" >>"$CEPH_DIR/out" 2>&1 &&
        ceph osd crush add osd.0 1 root=default host=here >>"$CEPH_DIR/out" 2>&1 &&
        ceph-osd --mkfs -i 0 --osd-uuid "$uuid" >>"$CEPH_DIR/out" 2>&1 ||
        { cat "$CEPH_DIR/out" >&2; return 1; }
    ceph_start_osd || return 1
    ceph osd pool create rbd 8 8 >>"$CEPH_DIR/out" 2>&1 &&
        ceph osd pool application enable rbd rbd >>"$CEPH_DIR/out" 2>&1 ||
        { cat "$CEPH_DIR/out" >&2; return 1; }
}

ceph_start_mon() {
    background ceph-mon -f -i a >>"$CEPH_DIR/out" 2>&1
    CEPH_MON_PID=$PID
    wait_for 60 timeout 10 ceph mon stat || { cat "$CEPH_DIR/out" >&2; return 1; }
}

ceph_osd_up() { timeout 10 ceph osd stat 2>/dev/null | grep -q ' 1 up'; }

ceph_start_osd() {
    background ceph-osd -f -i 0 >>"$CEPH_DIR/out" 2>&1
    CEPH_OSD_PID=$PID
    wait_for 60 ceph_osd_up || { cat "$CEPH_DIR/out" >&2; return 1; }
}
