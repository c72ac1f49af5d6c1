# SPDX-License-Identifier: BSD-3-Clause
# cli-lib.sh - for the tests of the command; to be sourced after testing.sh.

# expect STATUS PATTERN COMMAND...: it ends with that status, and says PATTERN (a regular
# expression) on stderr, in a line that begins with the command's name.
expect() {
    local want=$1 pattern=$2 rc=0 err; shift 2
    err=$("$@" 2>&1 >"$T/stdout" </dev/null) || rc=$?
    [ $rc = "$want" ] || fail "status $rc, not $want: ${*#"$QUICKMINE"}: $err"
    grep -q "^quickmine.*$pattern" <<<"$err" ||
        fail "does not say '$pattern': ${*#"$QUICKMINE"}: $err"
}

# same FILE COMMAND...: its stdout is what is in FILE.
same() {
    local file=$1; shift
    "$@" >"$T/same" || fail "status $?: ${*#"$QUICKMINE"}"
    diff -u "$file" "$T/same" >&2 || fail "not what is expected: ${*#"$QUICKMINE"}"
}

# field FILE EXPRESSION: of the JSON document j in FILE, in Python.
field() {
    python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' \
        "$1" "$2"
}
