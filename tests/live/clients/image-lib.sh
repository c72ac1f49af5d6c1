# SPDX-License-Identifier: BSD-3-Clause
# image-lib.sh - a server of an image, for the tests of clients.  To be sourced after
# scripts/lib/testing.sh.

# make_image BYTES: $T/img, of random data.
make_image() { head -c "$1" /dev/urandom >"$T/img"; }

# start_server ARGS...: over $T/img; ARGS go to the filter and the plugin, and
# what is in the array FILTERS before ours and BELOW after it.
FILTERS=() BELOW=()
start_server() {
    rm -f "${T:?}/server.sock" "${T:?}/server.pid"
    start_nbdkit server "${FILTERS[@]}" --filter="$FILTER" "${BELOW[@]}" \
        file "$T/img" cache-size=16M "$@" || fail "the server does not start"
    SERVER=$PID
}
