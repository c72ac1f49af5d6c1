# SPDX-License-Identifier: BSD-3-Clause
# unmoved-postgresql.sh - bench/unmoved's PostgreSQL: baskets of pgbench's accounts.  To be
# sourced.
#
# It reads through the page cache, which would hold all of the data: a memory control group
# bounds it (version 1 or 2, whichever is mounted).
# shellcheck disable=SC2154 # bench/unmoved's variables

. scripts/lib/memory-group.sh
. scripts/lib/postgresql.sh
PG_CLUSTER=$T/files/cluster

case $page_cache in
*K) memory=$((${page_cache%K} << 10)) ;;
*M) memory=$((${page_cache%M} << 20)) ;;
*G) memory=$((${page_cache%G} << 30)) ;;
*) memory=$page_cache ;;
esac

group=''
group_leave() {
    stack_files_leave # what is in it ends first
    memory_group_remove
}
at_end group_leave

database_load() { # DIR SIZE_MB
    mkdir -p "$1"
    stack_files_make "$1/image" "$2"
    stack_files_attach "$1/image"
    pg_init
    pg_start -c autovacuum=off -c maintenance_work_mem=128MB || fail "PostgreSQL does not start"
    stack_mariadbd=$PG
    run_for "$PG_BIN/pgbench" -i -I dtgp -s $((scale * 4)) -h "$PG_CLUSTER" -U qm postgres \
        >"$T/prepare.log" 2>&1 || { cat "$T/prepare.log" >&2; fail "pgbench cannot load"; }
    pg_sql -c "VACUUM (FREEZE, ANALYZE)" || fail "VACUUM"
    pg_stop
    forget "$PG"
    stack_mariadbd=''
    stack_files_leave
    memory_group_make && memory_group_limit "$memory" || fail "memory cannot be bounded"
    # A basket's accounts are where a hash says; the first of 800 baskets are more popular.
    cat >"$T/basket.sql" <<EOF
\set basket random_exponential(1, 800, 2)
SELECT sum(abalance) FROM generate_series(1, 12) n, LATERAL (SELECT abalance FROM pgbench_accounts WHERE aid = 1 + abs(hashint8(:basket * 16 + n)::bigint) % $((scale * 400000))) a;
EOF
}

database_start() {
    # It and its children are in the group from their first page on.
    PG_ENV=(sh -c 'echo $$ >'"$group"'/cgroup.procs; exec "$@"' sh "${PG_AS[@]}")
    local as=("${PG_AS[@]}")
    PG_AS=()
    pg_start -c shared_preload_libraries=quickmine -c autovacuum=off -c jit=off \
        -c "quickmine.transport=agent:$T/agent.sock" -c shared_buffers="${pool}B" \
        -c max_parallel_workers_per_gather=0 || fail "PostgreSQL does not start"
    PG_AS=("${as[@]}")
    stack_mariadbd=$PG
}

# database_run SECONDS SEED: prints what was done a second.
database_run() {
    run_for "$PG_BIN/pgbench" -n -f "$T/basket.sql" -c "$clients" -j 2 -T "$1" \
        --random-seed="$2" -M prepared -h "$PG_CLUSTER" -U qm postgres >"$T/run.log" 2>&1 ||
        { cat "$T/run.log" >&2; return 1; }
    awk '/^tps/ { print $3 }' "$T/run.log"
}
