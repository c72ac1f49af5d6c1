# SPDX-License-Identifier: BSD-3-Clause
# image-lib.sh - the guests' file systems; to be sourced after scripts/lib/testing.sh.
#
# A Debian of the wanted release is made by debootstrap in $KEPT/SUITE, with its stock kernel,
# the databases (and databases with tables, made there and then), and what QuickMine runs
# with.  Its image, $KEPT/SUITE.image, is what guests boot from, and is never written to.
# Both are kept; remove $KEPT to have newer packages.  What was built goes to a second, small
# disk, made for each run.

: "${KEPT:=${QM_GUEST_DIR:-$BUILD_DIR/guest}}"
PACKAGES=(
    linux-image-amd64 kmod busybox-static procps util-linux e2fsprogs xfsprogs
    nbd-client nbdkit libnbd0 fuse3 zstd python3 libjemalloc2
    mariadb-server-core mariadb-client-core
)
# What scripts/install-packages does not list, as it comes with what it lists.
libraries_of() {
    case $1 in
    bookworm)
        echo postgresql-15 libbpf1 libjansson4 libxxhash0 liburcu8 libdb5.3 libfuse3-3 libnl-genl-3-200 \
            liburing2 libaio1
        ;;
    *) # built there
        echo build-essential cmake ninja-build pkgconf perl nbdkit-plugin-dev libnbd-dev \
            liburcu-dev libdb5.3-dev libfuse3-dev libjemalloc-dev libzstd-dev zlib1g-dev \
            libjansson-dev uthash-dev libxxhash-dev libmariadbd-dev liburing-dev libaio-dev libnl-genl-3-dev \
            clang bpftool libbpf-dev libcmocka-dev postgresql-17 \
            postgresql-server-dev-17
        ;;
    esac
}

# inside SUITE COMMAND...: as root in the directory, with /proc, /dev and a /tmp of its own.
inside() {
    local root=$KEPT/$1; shift
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -c '
        root=$1; shift
        mount --make-rprivate / && mount -t proc proc "$root/proc" &&
            mount --rbind /dev "$root/dev" && mount -t tmpfs tmpfs "$root/tmp" &&
            mount -t tmpfs tmpfs "$root/run" || exit 1
        exec chroot "$root" /usr/bin/env -i DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8 \
            HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
    ' inside "$root" "$@"
}

# logged NAME COMMAND...: its output goes to a file, and is shown if it fails.
logged() {
    local log=$KEPT/$1.log; shift
    "$@" >"$log" 2>&1 </dev/null || { tail -n 40 "$log" >&2; fail "$* (see $log)"; }
}

make_root() { # SUITE
    local suite=$1 root=$KEPT/$1 file
    [ ! -e "$root/.complete" ] || return 0
    say "making a Debian ($suite) in $root"
    rm -rf --one-file-system "${root:?}"
    mkdir -p "$root"
    # Without it, debootstrap would fail in the middle.
    logged "$suite-debootstrap" debootstrap --variant=minbase --include=ca-certificates \
        "$suite" "$root" ${QM_MIRROR:+"$QM_MIRROR"}
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    cp /etc/apt/apt.conf.d/docker-* "$root/etc/apt/apt.conf.d/" 2>/dev/null
    for file in "" -updates; do
        echo "deb ${QM_MIRROR:-http://deb.debian.org/debian} $suite$file main"
    done >"$root/etc/apt/sources.list"
    # No services start; the initial RAM disk has what this machine's devices take.
    mkdir -p "$root"/etc/{postgresql-common,initramfs-tools/conf.d}
    echo "create_main_cluster = false" >"$root/etc/postgresql-common/createcluster.conf"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    logged "$suite-update" inside "$suite" apt-get -q update
    logged "$suite-initramfs" inside "$suite" apt-get -q -y install \
        --no-install-recommends initramfs-tools
    echo 'MODULES=list' >"$root/etc/initramfs-tools/conf.d/guest"
    printf '%s\n' virtio_pci virtio_blk ext4 >>"$root/etc/initramfs-tools/modules"
    # shellcheck disable=SC2046
    logged "$suite-packages" inside "$suite" apt-get -q -y install --no-install-recommends \
        "${PACKAGES[@]}" $(libraries_of "$suite")
    touch "$root/.complete"
}

# The databases: with tables, not on the device yet.
make_databases() { # SUITE
    local root=$KEPT/$1
    cmp -s "$HERE/make-databases" "$root/srv/make-databases" && return
    say "making databases ($1)"
    rm -rf --one-file-system "${root:?}/srv/databases"
    cp "$HERE/make-databases" "$root/srv/.make-databases"
    logged "$1-databases" inside "$1" /bin/bash /srv/.make-databases
    mv "$root/srv/.make-databases" "$root/srv/make-databases"
    rm -f "${KEPT:?}/$1.image"
}

# image FILE MEGABYTES DIRECTORY
image() {
    rm -f "${1:?}.new"
    truncate -s "$2M" "$1.new" &&
        mke2fs -q -F -t ext4 -E lazy_itable_init=1 -d "$3" "$1.new" || fail "mke2fs"
    mv "$1.new" "$1"
}

make_image() { # SUITE
    local root=$KEPT/$1
    make_root "$1"
    # The second disk has what changes: tests/long/guest/init.
    if [ ! -x "$root/srv/start" ]; then
        mkdir -p "$root/srv/quickmine"
        printf '%s\n' '#!/bin/sh' 'mount -t ext4 /dev/vdb /srv/quickmine' \
            'exec /srv/quickmine/tests/long/guest/init' >"$root/srv/start"
        chmod 755 "$root/srv/start"
    fi
    make_databases "$1"
    [ -e "$KEPT/$1.image" ] || image "$KEPT/$1.image" 6144 "$root"
    KERNEL=$(echo "$root"/boot/vmlinuz-*) INITRD=$(echo "$root"/boot/initrd.img-*)
    [ -f "$KERNEL" ] && [ -f "$INITRD" ] || fail "$root: not one kernel: $KERNEL $INITRD"
}

# $BUILT: where what was built for the release is.  For the one that runs here it is this
# build; for another it is built in the directory, from what is committed and changed here.
build_for() { # SUITE
    local root=$KEPT/$1 file
    if [ "$(. /etc/os-release; echo "${VERSION_CODENAME:-}")" = "$1" ]; then
        BUILT=$BUILD_DIR
        return
    fi
    say "building in $root"
    mkdir -p "$root/srv/source"
    # Only what has changed, so that little is built anew.
    (cd "$SOURCE_DIR" && git ls-files -z | while read -r -d '' file; do
        [ ! -f "$file" ] || cmp -s "$file" "$root/srv/source/$file" ||
            cp --parents "$file" "$root/srv/source/"
    done)
    logged "$1-cmake" inside "$1" cmake -G Ninja -S /srv/source -B /srv/build
    logged "$1-build" inside "$1" nice ninja -C /srv/build -j "${QM_JOBS:-2}" quickmine \
        nbdkit-quickmine-filter qmctx qmctx-plugin qm-postgresql bpf-reader
    BUILT=$root/srv/build
}

# program_disk SUITE: $T/programs, the second disk: what was built, and the scripts.
program_disk() {
    local to=$T/programs.files file
    build_for "$1"
    rm -rf "${to:?}"
    mkdir -p "$to/build/lib" "$to/build/bin" "$to/build/tests" "$to/scripts" "$to/tests/live" \
        "$to/postgresql" "$to/tests/long/guest"
    cp "$BUILT/bin/quickmine" "$to/build/bin"
    cp "$BUILT/lib/nbdkit-quickmine-filter.so" "$BUILT/lib/qmctx.so" "$to/build/lib"
    cp -r "$BUILT/lib/postgresql" "$to/build/lib"
    cp -P "$BUILT"/lib/libqmctx.so* "$to/build/lib"
    cp "$BUILT/tests/bpf-reader" "$to/build/tests"
    # Libraries that this machine has and the directory does not.
    if [ "$BUILT" = "$BUILD_DIR" ]; then
        for file in $(ldd "$to"/build/{bin,lib}/* 2>/dev/null | grep -o '/[^ :]* ' | sort -u); do
            [ -e "$KEPT/$1$file" ] || [[ $file == */libqmctx.so* ]] ||
                cp -L "$file" "$to/build/lib"
        done
    fi
    cp -r "$SOURCE_DIR/scripts/lib" "$to/scripts"
    cp "$SOURCE_DIR"/postgresql/quickmine{.control,--*.sql} "$to/postgresql"
    cp "$HERE"/* "$to/tests/long/guest"
    image "$T/programs" 96 "$to"
}
