# SPDX-License-Identifier: BSD-3-Clause
# preload-lib.sh - for the preload library's tests: a server, and programs that have a file
# of theirs routed to it.  To be sourced.

. "$SOURCE_DIR/scripts/lib/testing.sh"
. "$SOURCE_DIR/tests/live/clients/image-lib.sh"

PROGRAM=$BUILD_DIR/tests/preload-program
PRELOAD=$BUILD_DIR/lib/libqmctx-preload.so
DEV=$T/dev # the routed path; an empty file is there

for program in nbdkit fio; do
    command -v $program >/dev/null || skip "$program is not installed"
done
touch "$DEV"

# What passes through an io_uring is ordered by the kernel, which the thread sanitizer does
# not know: that libnbd has received something before the program reads it.
echo called_from_lib:libnbd.so.0 >"$T/tsan"
# Children that connect start threads.
export TSAN_OPTIONS="suppressions=$T/tsan die_after_fork=0"

# routed COMMAND...: runs it with the library, and $DEV routed to the server.
routed() {
    local preload
    preload=$(sanitizer_preload)
    env LD_PRELOAD="$preload $PRELOAD" ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}" \
        QMCTX_PRELOAD_FILES="${ROUTES:-$DEV=$(nbd_uri server)}" "$@"
}

# Reads of the trace, as the programs print them.
reads_by_context() {
    awk '$1 == "B" { class[$3] = $5; parent[$3] = $6 }
         $1 == "R" && $3 in class { c = $3; print class[c], class[parent[c]], n[c]++, $4, $5 }' \
        "$T/trace"
}
# check_trace READS CONTEXTS: that $T/trace has what $T/announced says, more than so many reads, and
# as many contexts.
check_trace() {
    "$QUICKMINE" trace info "$T/trace" >/dev/null || fail "the trace cannot be read"
    sort "$T/announced" >"$T/want"
    reads_by_context | sort >"$T/got"
    diff "$T/want" "$T/got" >&2 || fail "there are other reads, or in other contexts"
    [ "$(wc -l <"$T/got")" -gt "$1" ] || fail "too few reads to tell"
    # One context a class: none was begun twice, and none in which nothing was read, except
    # around one that did.
    want=$(awk '{ print $1; print $2 }' "$T/want" | sort -u | wc -l)
    begun=$(grep -c '^B.* \(connection\|transaction\|query\) ' "$T/trace")
    [ "$begun" = "$2" ] || fail "$begun contexts, not $2"
}
