# SPDX-License-Identifier: BSD-3-Clause
# pgbench.sh - for the benchmarks of PostgreSQL's pgbench: what bench/record needs.  To be
# sourced by NAME.sh.
#
# The table pgbench_accounts is a device of its own, which PostgreSQL reaches through the
# preload library, with the contexts of its module.  Its index, the other tables and the log
# are files of this machine: a route is one file.  A device does not grow, so each page is
# made with room for new versions of its rows.  That is not enough while old versions must be
# kept, as by an automatic ANALYZE, which reads with one snapshot for seconds: so for those that
# update, the device has empty pages, too, pgbench_room times as many as there are of rows.
# A scale of 1 is 100,000 accounts, 18 MB.  --pool is shared_buffers, a fortieth of the data
# unless given.
# shellcheck disable=SC2154 # bench/record's variables

workload_mb=40 workload_level=transaction workload_takes="clients scale"
workload_needs=bench workload_targets="qmctx-preload qm-postgresql"
workload_library=scripts/lib/postgresql.sh

pgbench_room=0

workload_makers() { echo "pgbench 1$([ $pgbench_room = 0 ] || echo " room $pgbench_room")"; }
# pgbench_start OPTIONS...
pgbench_start() {
    pg_start -c max_connections=550 -c shared_preload_libraries=quickmine \
        -c synchronous_commit=off -c max_wal_size=4GB "$@" || fail "PostgreSQL does not start"
}
# pgbench_grow HEAP: adds the empty pages, which VACUUM enters into the free space map.  The
# heap stays one file: a sparse one, of less than 1 GB.
pgbench_grow() {
    local bytes room
    bytes=$(stat -c %s "$1")
    room=$((bytes * pgbench_room))
    [ $((bytes + room)) -lt $((1 << 30)) ] || room=$(((1 << 30) - bytes - 8192))
    truncate -s $((bytes + room)) "$1"
    pgbench_start -c autovacuum=off
    pg_sql -v ON_ERROR_STOP=1 -c "VACUUM pgbench_accounts" || fail "there is no room for new rows"
    pg_stop
    forget "$PG"
}
workload_load() {
    local heap
    "${PG_AS[@]}" test -x "$T" ||
        fail "the user $PG_USER, who PostgreSQL runs as, cannot enter $T; set TMPDIR"
    pg_init
    pgbench_start -c autovacuum=off -c maintenance_work_mem=128MB
    run_for "$PG_BIN/pgbench" -i -I dtg -s "${scale%.*}" -F 70 -h "$PG_CLUSTER" -U qm postgres \
        >"$T/prepare.log" 2>&1 ||
        { cat "$T/prepare.log" >&2; fail "pgbench cannot load"; }
    pg_sql -v ON_ERROR_STOP=1 >"$T/made" <<SQL || fail "pgbench's tables cannot be changed"
ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid);
ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid);
ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid);
ALTER TABLE pgbench_accounts SET (vacuum_truncate = off);
VACUUM (FREEZE, ANALYZE);
SQL
    pg_sql -c "SELECT pg_relation_filepath('pgbench_accounts')" >"$1/heap"
    pg_stop
    forget "$PG"
    heap=$PG_CLUSTER/$(cat "$1/heap")
    stack_data_mb=$(($(stat -c %s "$heap") >> 20))
    [ "$stack_data_mb" -lt 1024 ] || fail "PostgreSQL has more than a file for more than a GB"
    [ $pgbench_room = 0 ] || pgbench_grow "$heap"
    cp "$heap" "$1/image"
    truncate -s 0 "$heap" # nobody is to read it by mistake
    mv "$PG_CLUSTER" "$1/cluster"
}

# workload_start ARGS...: of nbdkit.
workload_start() {
    local heap=$PG_CLUSTER/$(cat "$pristine/heap")
    run_for cp -a "$pristine/cluster" "$PG_CLUSTER"
    run_for cp "$pristine/image" "$T/device.img"
    LD_PRELOAD=$stack_jemalloc start_nbdkit nbd --filter="$FILTER" --filter=delay \
        file "$T/device.img" stats="$T/nbd.stats" "$@" || fail "nbdkit does not start"
    stack_nbdkit=$PID
    chmod 666 "$T/nbd.sock"
    # Where its user can read it.
    mkdir "$T/preload"
    cp "$BUILD_DIR"/lib/libqmctx{-preload.so,.so.0} "$T/preload"
    PG_ENV=(env "LD_PRELOAD=$T/preload/libqmctx-preload.so" "LD_LIBRARY_PATH=$T/preload"
        "QMCTX_PRELOAD_CONNECTIONS=1" "QMCTX_PRELOAD_FILES=$heap=$(nbd_uri nbd)")
    [ -e "$PG_TREE" ] || pg_tree
    pgbench_start -c shared_buffers="${pool/K/k}B" -c "quickmine.transport=$heap"
    pg_sql -v ON_ERROR_STOP=1 -c "CREATE EXTENSION IF NOT EXISTS quickmine"
    [ "$(pg_stat connected)" = t ] || [ "$(pg_stat connected)" = true ] ||
        fail "no contexts: $(pg_stat message)"
}
workload_stop() {
    pg_stop
    forget "$PG"
    stop "$stack_nbdkit"
}
workload_version() { "$PG_BIN/postgres" --version; }

# pgbench_run OPTIONS...: prints what pgbench does, and the line that bench/record reads.
pgbench_run() {
    run_for "$PG_BIN/pgbench" -n -c "$clients" -j 2 -T "$seconds" --random-seed="$seed" "$@" \
        -h "$PG_CLUSTER" -U qm postgres >"$T/pgbench.log" 2>&1
    local rc=$?
    cat "$T/pgbench.log"
    awk -v seconds="$seconds" '
        /^number of transactions actually processed/ { n = $NF }
        /^number of failed transactions/ { failed = $5 }
        /^latency average/ { mean = $4 }
        END {
            if (n == "") exit 1
            printf "interactions %d seconds %d mean_ms %.3f p95_ms 0 errors %d\n",
                n, seconds, mean, failed
        }' "$T/pgbench.log"
    return $rc
}
