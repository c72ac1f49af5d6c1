# torture-lib.sh - one server, tortured; sourced after tests/lib.sh and server/common.sh.

TORTURE=$BUILD_DIR/tests/torture-clients
UNRULY=$BUILD_DIR/lib/nbdkit-unruly-plugin.so
[ -x "$TORTURE" ] && [ -f "$UNRULY" ] || fail "tests/torture is not built"

# torture SEED SECONDS [--errors|--clients N|--depth N]... -- ARGS...: a server with ARGS,
# whose disk is the unruly plugin, and its clients.  What the prefetching did is reported,
# and must be something.
torture() {
    local seed=$1 seconds=$2 more=() errors=0 name=seed$1 stats
    shift 2
    while [ "$1" != -- ]; do
        [ "$1" != --errors ] || errors=30
        more+=("$1")
        shift
    done
    shift
    start_nbdkit "$name" --filter="$FILTER" "$UNRULY" image="$T/image" \
        durable="$T/durable" errors=$errors prefetch-queue=65536 "$@" ||
        fail "does not start: $*"
    local server=$PID
    timeout $((${seconds%.*} + 100)) "$TORTURE" --socket "$T/$name.sock" \
        --image "$T/image" --durable "$T/durable" --seconds "$seconds" \
        --seed "$seed" "${more[@]}" || {
        tail -20 "$T/$name.log" >&2
        fail "seed $seed, with $*"
    }
    stats=$("$QUICKMINE" stat --json "$(nbd_uri "$name")") || fail "no statistics"
    stop_nbdkit "$name" "$server"
    rm -f "$T/image" "$T/durable" "$T/$name".*
    python3 - "$stats" "$*" <<'EOT' || fail "seed $seed: nothing was prefetched: $*"
import json, sys
s = json.loads(sys.argv[1])
print("    " + sys.argv[2])
print("    " + ", ".join(f"{k} {s[k]}" for k in ("hits", "promotes", "misses",
      "prefetches", "used", "wasted", "dropped", "failed")))
sys.exit("policy=none" not in sys.argv[2] and (s["prefetches"] < 50 or s["used"] == 0))
EOT
}
