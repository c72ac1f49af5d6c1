# SPDX-License-Identifier: BSD-3-Clause
# by-hand-lib.sh - for tests that are run by hand, too: their options, and which build they
# are of.  To be sourced before scripts/lib/testing.sh by a script that has usage().

# options NAMES ARGS...: each --NAME N sets the variable of that name to a whole number;
# --build DIR sets build, if that is among the names.
options() {
    local names=" $1 "
    shift
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help) usage; exit 0 ;;
        esac
        [[ $1 == --* && $names == *" ${1#--} "* && -n ${2:-} ]] || { usage >&2; exit 2; }
        case $1 in
        --build) build=$(cd "$2" && pwd) || exit 2 ;;
        *)
            [[ $2 =~ ^[0-9]{1,12}$ ]] || { usage >&2; exit 2; }
            printf -v "${1#--}" %s "$2" ;;
        esac
        shift 2
    done
}

# choose_build: $build, or where CTest says, or build/; with its sanitizer.
choose_build() {
    [ -n "$build" ] || [ -z "${BUILD_DIR:-}" ] || return 0
    BUILD_DIR=${build:-$SOURCE_DIR/build}
    case $(sed -n 's/^QM_SANITIZE:STRING=//p' "$BUILD_DIR/CMakeCache.txt" 2>/dev/null) in
    address*) export QM_SANITIZE=address ;;
    thread*) export QM_SANITIZE=thread ;;
    esac
}
