# SPDX-License-Identifier: BSD-3-Clause
# device-lib.sh - for the live tests of the device filter; sourced after scripts/lib/testing.sh.

DEVICE_FILTER=$BUILD_DIR/lib/nbdkit-device-filter.so
HERE=$SOURCE_DIR/tests/live/plugins/device
PYTHON=/usr/bin/python3 # libnbd's binding is there, whatever python3 is first in PATH
[ -f "$DEVICE_FILTER" ] || fail "$DEVICE_FILTER is not built"
"$PYTHON" -c 'import nbd' 2>/dev/null || skip "package python3-libnbd is missing"
export PYTHONDONTWRITEBYTECODE=1

# Sanitizers are to stop the server at what they find.
export TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1 print_stacktrace=1 ${UBSAN_OPTIONS:-}"

# client ACTION NAME: carries out an action of client.py against a server.
client() {
    timeout 100 "$PYTHON" "$HERE/client.py" "$1" "$T/$2.sock" "${@:3}" && return
    cat "$T"/*.log >&2
    fail "client $*"
}

# stats NAME EXPRESSION: checks a condition on what the server wrote, s.
stats() {
    "$PYTHON" -c '
import json, sys
s = json.load(open(sys.argv[1]))
if not eval(sys.argv[2]):
    sys.exit("not so: %s, of %s" % (sys.argv[2], json.dumps(s, indent=1)))' \
        "$T/$1.json" "$2" || fail "$1: statistics"
}
