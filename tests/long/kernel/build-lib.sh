# SPDX-License-Identifier: BSD-3-Clause
# build-lib.sh - kernels and nbd-client for the guest; to be sourced after scripts/lib/testing.sh.
#
# All of it is kept in $KEPT, so that a second run builds what has changed only:
#
#   pristine/             Debian's kernel source, as the package linux-source-6.1 has it
#   patched/              the same, with our patches; unchanged files are hard links
#   build-NAME/           what is built of them
#   nbd/                  Debian's source of nbd, patched and built

. "$SOURCE_DIR/tests/long/source-package-lib.sh"

: "${KEPT:=${QM_KERNEL_DIR:-$BUILD_DIR/kernel}}"
KERNEL_SOURCE=${QM_KERNEL_SOURCE:-/usr/src/linux-source-6.1.tar.xz}
JOBS=${QM_JOBS:-2}

unpack_kernel() {
    [ -e "$KEPT/pristine/.complete" ] && return
    [ -f "$KERNEL_SOURCE" ] || skip "package linux-source-6.1 is missing"
    say "unpacking $KERNEL_SOURCE"
    rm -rf "${KEPT:?}/pristine"
    mkdir -p "$KEPT/pristine"
    tar -xf "$KERNEL_SOURCE" -C "$KEPT/pristine" --strip-components=1 ||
        fail "$KERNEL_SOURCE cannot be unpacked"
    touch "$KEPT/pristine/.complete"
}

# touched PATCH...: the files that they change or add.
touched() {
    sed -n 's,^+++ b/\([^[:space:]]*\).*,\1,p' "$@" | sort -u
}

# The files that the patches touch are patched elsewhere, and those that came out
# differently than last time are put into the tree: so make builds little anew.
patch_kernel() {
    local file patches=("$SOURCE_DIR"/client-patches/linux/*.patch)
    local touched stage=$T/stage

    [ -e "$KEPT/patched/.complete" ] || {
        rm -rf "${KEPT:?}/patched"
        cp -al "$KEPT/pristine" "$KEPT/patched" || fail "no hard links in $KEPT"
    }
    touched=$(touched "${patches[@]}")
    rm -rf "${stage:?}"
    mkdir "$stage"
    (cd "$KEPT/pristine" && for file in $touched; do
        [ ! -e "$file" ] || cp --parents "$file" "$stage"
    done)
    for file in "${patches[@]}"; do
        patch -s -p1 -d "$stage" --fuzz=0 <"$file" || fail "${file##*/} does not apply"
    done
    for file in $touched; do
        cmp -s "$stage/$file" "$KEPT/patched/$file" ||
            install -D -m 644 "$stage/$file" "$KEPT/patched/$file"
    done
    # What an earlier patch touched and this one does not.
    for file in $(cat "$KEPT/patched/.touched" 2>/dev/null); do
        grep -qxF "$file" <<<"$touched" || {
            rm -f "${KEPT:?}/patched/$file"
            [ ! -e "$KEPT/pristine/$file" ] ||
                ln "$KEPT/pristine/$file" "$KEPT/patched/$file"
        }
    done
    echo "$touched" >"$KEPT/patched/.touched"
    touch "$KEPT/patched/.complete"
}

# configure_kernel NAME TREE CONFIG...: $KEPT/build-NAME
configure_kernel() {
    local name=$1 tree=$2 out=$KEPT/build-$1; shift 2
    local config

    config=$(cat "$@")
    mkdir -p "$out"
    if [ "$config" != "$(cat "$out/.quickmine-config" 2>/dev/null)" ]; then
        logged "$name" make -C "$KEPT/$tree" O="$out" tinyconfig
        printf '%s\n' "$config" >>"$out/.config"
        logged "$name" make -C "$KEPT/$tree" O="$out" olddefconfig
        printf '%s\n' "$config" >"$out/.quickmine-config"
    fi
}

# build_kernel NAME TREE CONFIG...: $KEPT/build-NAME/arch/x86/boot/bzImage.
build_kernel() {
    configure_kernel "$@"
    say "building the $1 kernel"
    logged "$1" nice make -C "$KEPT/$2" O="$KEPT/build-$1" -j"$JOBS" bzImage
}

# Mirrors have been seen that list the package and lack the file: then the next release's,
# which the patch is for as well.
fetch_nbd() {
    if [ -n "${QM_NBD_SOURCE:-}" ]; then
        cp -r "$QM_NBD_SOURCE" "$KEPT/nbd.new"
    elif ! source_package nbd '' "$KEPT/nbd.new"; then
        say "the source package nbd cannot be had; trying Debian 13's"
        source_package nbd '' "$KEPT/nbd.new" 's/bookworm/trixie/g' || {
            tail -n 5 "$KEPT/nbd.new.log" >&2
            fail "nor can that; QM_NBD_SOURCE=DIRECTORY tells where nbd's source is"
        }
    fi
}

# $KEPT/nbd/nbd-client
build_nbd_client() {
    local patch=$SOURCE_DIR/client-patches/nbd-client/nbd-client-ctx.patch file new=$KEPT/nbd.new
    local header=$SOURCE_DIR/clients/protocol/quickmine-protocol.h

    if ! cmp -s "$patch" "$KEPT/nbd/.patch"; then
        rm -rf "${KEPT:?}/nbd" "${new:?}"
        fetch_nbd
        patch -s -p1 -d "$new" --fuzz=0 <"$patch" || fail "${patch##*/} does not apply"
        [ ! -e "$new/man/nbd-client.8.in.sgml" ] ||
            patch -s -p1 -d "$new" --fuzz=0 <"${patch%.patch}-man.patch" ||
            fail "the manual page's patch does not apply"
        # What a source from git does not have, and docbook would make.
        for file in nbd-client.8 nbd-server.1 nbd-server.5 nbd-trdump.1 nbd-trplay.1 \
            nbdtab.5; do
            [ -e "$new/man/$file.sh.in" ] || : >"$new/man/$file.sh.in"
        done
        (cd "$new" && autoreconf -f -i &&
            ./configure --without-gnutls) >"$KEPT/nbd.log" 2>&1 </dev/null ||
            { tail -n 20 "$KEPT/nbd.log" >&2; fail "nbd: configure"; }
        cp "$patch" "$new/.patch"
        mv "$new" "$KEPT/nbd"
    fi
    # What is kept does not depend on where this source tree is.
    cmp -s "$header" "$KEPT/nbd/${header##*/}" || cp "$header" "$KEPT/nbd"
    say "building nbd-client"
    logged nbd make -C "$KEPT/nbd" nbd-client
}
