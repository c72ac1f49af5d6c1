# SPDX-License-Identifier: BSD-3-Clause
# source-package-lib.sh - Debian's source packages, for tests that patch them; to be sourced.

# logged NAME COMMAND...: its output goes to $KEPT/NAME.log, and is shown if it fails.
logged() {
    local log=$KEPT/$1.log; shift
    "$@" >"$log" 2>&1 </dev/null || { tail -n 40 "$log" >&2; fail "$* (see $log)"; }
}

# source_package NAME VERSION DIRECTORY [SED]: the source of a package, with Debian's
# patches, becomes DIRECTORY.  Of this VERSION, or, where it cannot be had (or none is asked
# for: ""), of the one that there is.  The sources come from where this machine has its
# packages, as edited by the script SED, by an apt of its own in DIRECTORY.apt.  What apt
# says goes to DIRECTORY.log; returns 1 if it did not get it.
source_package() {
    local name=$1 version=$2 directory=$3 sed=${4:-} apt=$3.apt list

    rm -rf "${apt:?}" "${directory:?}"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/parts"
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list \
        /etc/apt/sources.list.d/*.sources; do
        [ ! -f "$list" ] || sed -E 's/^deb([[:space:]])/deb-src\1/; s/^Types:.*/Types: deb-src/
            '"$sed" "$list" >"$apt/parts/${list##*/}"
    done
    cat >"$apt/apt.conf" <<EOT
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$apt/parts";
EOT
    (cd "$apt" && export APT_CONFIG=$apt/apt.conf && { apt-get -q update || :; } &&
        { [ -n "$version" ] && apt-get -q source "$name=$version" ||
            apt-get -q source "$name"; }) >"$directory.log" 2>&1 </dev/null || return 1
    mv "$apt/$name"-[0-9]*/ "$directory" && rm -rf "${apt:?}"
}

# patched_tree PRISTINE STAGE PATCHED: PATCHED becomes PRISTINE with the files of STAGE.
# What is the same is a hard link; what is in PATCHED already is left alone, so that a
# build there makes little anew.
patched_tree() {
    local pristine=$1 stage=$2 patched=$3 file files

    [ -e "$patched/.complete" ] || {
        rm -rf "${patched:?}"
        cp -al "$pristine" "$patched" || return 1
    }
    files=$(cd "$stage" && find . -type f | sort)
    for file in $files; do
        cmp -s "$stage/$file" "$patched/$file" ||
            install -D -m "$(stat -c %a "$stage/$file")" "$stage/$file" \
                "$patched/$file" || return 1
    done
    # What was patched earlier and is not now.
    for file in $(cat "$patched/.patched" 2>/dev/null); do
        grep -qxF "$file" <<<"$files" || {
            rm -f "${patched:?}/$file"
            [ ! -e "$pristine/$file" ] || ln "$pristine/$file" "$patched/$file"
        }
    done
    echo "$files" >"$patched/.patched"
    touch "$patched/.complete"
}
