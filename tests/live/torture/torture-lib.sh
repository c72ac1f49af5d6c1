# SPDX-License-Identifier: BSD-3-Clause
# torture-lib.sh - one server, tortured; sourced after scripts/lib/testing.sh and server/server-lib.sh.

TORTURE=$BUILD_DIR/tests/torture-clients
TORTURE_DEVICE=$BUILD_DIR/tests/torture-device
UNRULY=$BUILD_DIR/lib/nbdkit-unruly-plugin.so
# The policy with a database, where it is built: its threads and files are the most to torture.
DATABASE_POLICY=quickmine
[[ " ${QM_LEFT_OUT-} " != *" BERKELEY_DB "* ]] || DATABASE_POLICY=run
[ -x "$TORTURE" ] && [ -f "$UNRULY" ] || fail "tests/live/torture is not built"

# torture SEED SECONDS [--errors|--clients N|--depth N|--kills N]... -- ARGS...: a server with
# ARGS, whose disk is the unruly plugin, and its clients.  What the prefetching did is
# reported, and must be something.  With --kills, which takes as long as it takes, the server
# is killed and started again so often, and counts anew each time: nothing is reported.
torture() {
    local seed=$1 seconds=$2 more=() errors=0 kills=0 name=seed$1 stats clients rc
    shift 2
    while [ "$1" != -- ]; do
        case $1 in
        --errors) errors=30 ;;
        --kills) kills=$2 more+=(--pidfile "$T/$name.pid") seconds=$((kills * 10)) ;;
        esac
        more+=("$1")
        shift
    done
    shift
    local server=(--filter="$FILTER" "$UNRULY" image="$T/image" durable="$T/durable"
        errors=$errors prefetch-queue=65536 "$@")
    start_nbdkit "$name" "${server[@]}" || fail "does not start: $*"
    SERVER=$PID
    background timeout $((${seconds%.*} + 100)) "$TORTURE" --socket "$T/$name.sock" \
        --image "$T/image" --durable "$T/durable" --seconds "$seconds" \
        --seed "$seed" "${more[@]}"
    clients=$PID
    [ "$kills" = 0 ] || start_again "$clients" "$name" "${server[@]}" again=1
    wait "$clients"
    rc=$?
    forget "$clients"
    [ $rc = 0 ] || {
        tail -20 "$T/$name.log" >&2
        fail "seed $seed, with $*"
    }
    [ "$kills" = 0 ] || echo "    $*"
    stats=$("$QUICKMINE" stat --json "$(nbd_uri "$name")") || fail "no statistics"
    stop_nbdkit "$name" "$SERVER"
    forget "$SERVER"
    rm -rf "${T:?}/image" "${T:?}/durable" "${T:?}/$name".* "${T:?}/rules" "${T:?}/tier"
    [ "$kills" = 0 ] || return 0
    python3 - "$stats" "$*" <<'EOT' || fail "seed $seed: nothing was prefetched: $*"
import json, sys
s = json.loads(sys.argv[1])
print("    " + sys.argv[2])
print("    " + ", ".join(f"{k} {s[k]}" for k in ("hits", "prefetch_hits", "misses",
      "prefetches", "used", "wasted", "watched", "dropped", "failed")))
# What is not worth it here, ppm leaves.  The default only notes it until it has been shown to pay,
# for which a short run on a busy machine may have too few reads.
sys.exit(not any(p in sys.argv[2] for p in ("policy=none", "policy=ppm")) and
         (s["prefetches"] + s["watched"] < 50 or (s["prefetches"] >= 50 and s["used"] == 0)))
EOT
}

# start_again CLIENTS NAME ARGS...: as long as CLIENTS run, the server, which they kill.
start_again() {
    local clients=$1 name=$2; shift 2
    while :; do
        # Whom they have killed bash would like to say.
        until gone "$SERVER" || gone "$clients"; do sleep 0.01; done 2>/dev/null
        gone "$SERVER" || return 0
        check_log "$name"
        ! grep 'renamed' "$T/$name.log" || fail "its rules are damaged"
        forget "$SERVER"
        rm -f "${T:?}/$name.sock" "${T:?}/$name.pid"
        start_nbdkit "$name" "$@" || fail "does not start again: $*"
        SERVER=$PID
    done
}
