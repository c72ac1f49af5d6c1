# SPDX-License-Identifier: BSD-3-Clause
# restart-lib.sh - restarts a server under a database that works on; to be sourced after
# scripts/lib/testing.sh.
#
# A restart is either polite (SIGTERM, and at once a new server) or a kill (SIGKILL, and a
# new server after an absence that chance draws).  How long a polite end takes is measured and
# reported, and fails nothing but by its bound.
#
# The server's disk is the unruly plugin, which loses at each end of the server what was not
# flushed, all of it or a random half of the sectors; or, with --lossless, a file.

UNRULY=$BUILD_DIR/lib/nbdkit-unruly-plugin.so
END_SECONDS=100 # a server that takes longer to end will never

# restart_options NAME ARGS...: sets restarts, kills, absence_ms, lossy and seed.
restart_options() {
    local name=$1; shift
    restarts=2 kills=2 absence_ms=1500 lossy=yes seed=$(date +%s)
    while [ $# -gt 0 ]; do
        case $1 in
        --restarts | --kills | --seed | --absence)
            [[ ${2:-} =~ ^[0-9]{1,12}$ ]] || { restart_usage "$name" >&2; exit 2; }
            case $1 in
            --absence) absence_ms=$2 ;;
            *) printf -v "${1#--}" %s "$2" ;;
            esac
            shift ;;
        --lossless) lossy=no ;;
        -h | --help) restart_usage "$name"; exit 0 ;;
        *) restart_usage "$name" >&2; exit 2 ;;
        esac
        shift
    done
    RANDOM=$((seed % 32768))
}

restart_usage() {
    cat <<EOT
Usage: tests/live/restart/$1 [--restarts N] [--kills N] [--absence MS] [--lossless] [--seed S]

  --restarts N  how often the server is ended in order, and started again; 2 by default
  --kills N     how often it is killed; 2 by default
  --absence MS  for how long it is away then at most, in milliseconds; from 100; 1500 by default
  --lossless    its disk keeps what was not flushed; else it loses that at each end, or a part
  --seed S      order and lengths follow from it; by default from the clock
EOT
}

now_ms() { printf '%s' $((${EPOCHREALTIME/[.,]/} / 1000)); }

# make_disk NAME: a disk of the contents of $T/NAME.img; what it needs besides.
make_disk() {
    [ $lossy = no ] || cp --sparse=always "$T/$1.img" "$T/$1.durable" || fail "no disk"
}

# serve NAME: starts its server, over $T/NAME.img; its id is in ${SERVERS[NAME]}.
declare -A SERVERS
SERVE=(cache-size=8M) # what it is told
serve() {
    local name=$1 disk=(file "$T/$1.img") some=all
    if [ $lossy = yes ]; then
        [ $((RANDOM % 2)) = 0 ] || some=some
        disk=("$UNRULY" size="$(stat -c %s "$T/$name.img")" image="$T/$name.img"
            durable="$T/$name.durable" again=1 forget=$some)
    fi
    rm -f "${T:?}/$name.sock" "${T:?}/new.sock" "${T:?}/new.pid"
    start_nbdkit new --filter="$FILTER" "${disk[@]}" "${SERVE[@]}" ||
        fail "the server does not start"
    SERVERS[$name]=$PID
    # The database may run as another user than we: nobody is to meet the socket closed.
    mv "$T/new.log" "$T/$name.log" && chmod 666 "$T/new.sock" &&
        mv "$T/new.sock" "$T/$name.sock" || fail "no socket"
    [ $lossy = no ] || grep -h '^unruly: forgot' "$T/$name.log" >>"$T/forgot"
}

# end_server NAME SIGNAL: how long it took is in $took, in milliseconds.
end_server() {
    local pid=${SERVERS[$1]} begin
    begin=$(now_ms)
    disown "$pid" 2>/dev/null # bash has no word to say on how it ends
    kill "-$2" "$pid" || fail "the server was gone already: $(tail -n 5 "$T/$1.log")"
    # Finely, as this is measured.
    until gone "$pid"; do
        [ $(($(now_ms) - begin)) -lt $((END_SECONDS * 1000)) ] ||
            fail "the server does not end: $(tail -n 5 "$T/$1.log")"
        sleep 0.01
    done
    took=$(($(now_ms) - begin))
    ! grep -E 'Sanitizer|runtime error' -A 40 "$T/$1.log" >&2 || fail "see above"
    forget "$pid"
}

# restart_all WORKS NAME...: all restarts and kills, in random order, each of a random one of
# the servers NAME. Before each, and at the end, the database has to get on: WORKS prints a
# number that grows as it does.
longest_ms=0 late=0 absent_ms=0
restart_all() {
    local works=$1 kinds=() i k kind name before away
    shift
    for ((i = 0; i < restarts; i++)); do kinds+=(restart); done
    for ((i = 0; i < kills; i++)); do kinds+=(kill); done
    for ((i = ${#kinds[@]} - 1; i > 0; i--)); do
        k=$((RANDOM % (i + 1))) kind=${kinds[i]}
        kinds[i]=${kinds[k]} kinds[k]=$kind
    done
    for ((i = 0; i < ${#kinds[@]}; i++)); do
        goes_on "$works" "before the end $((i + 1))"
        k=$((1 + RANDOM % $#)) name=${!k}
        case ${kinds[i]} in
        restart)
            end_server "$name" TERM
            [ $took -le $longest_ms ] || longest_ms=$took
            [ $took -le 2000 ] || late=$((late + 1))
            ;;
        kill)
            # From 100 ms on; of a large bound mostly a small part.
            away=$((100 + RANDOM % 1000 * absence_ms / 1000))
            [ $((RANDOM % 2)) = 0 ] || away=$((100 + RANDOM % 1000 * absence_ms / 5000))
            [ $away -le $absence_ms ] || away=$absence_ms
            end_server "$name" KILL
            absent_ms=$((absent_ms + away))
            sleep "$(printf '%d.%03d' $((away / 1000)) $((away % 1000)))"
            ;;
        esac
        serve "$name"
        [ $(((i + 1) % 10)) -ne 0 ] ||
            say "$((i + 1)) of ${#kinds[@]}: $("$works"); the longest end $longest_ms ms"
    done
    goes_on "$works" "at the end"
}

# goes_on WORKS WHEN: until it has got on by a random bit.  $T/failed says that it cannot.
goes_on() {
    local before enough=$((1 + RANDOM % 40))
    before=$("$1")
    got_on() { [ -e "$T/failed" ] || [ "$("$1")" -ge $((before + enough)) ]; }
    wait_for 120 got_on "$1" && [ ! -e "$T/failed" ] || { restart_logs; fail "it stands still $2"; }
}
restart_logs() { tail -n 30 "$T"/*.log >&2; }

# restart_report WHAT: the last line.
restart_report() {
    local forgot=
    [ $lossy = no ] || forgot="; the disk forgot $(awk '{ n += $3; m += $5 }
        END { print n + 0, "of", m + 0 }' "$T/forgot") unflushed sectors"
    echo "$1: $restarts restarts (the longest end $longest_ms ms, $late over 2 s), $kills kills \
(away $absent_ms ms in all)$forgot; seed $seed"
}
