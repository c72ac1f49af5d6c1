# SPDX-License-Identifier: BSD-3-Clause
# postgresql.sh - a PostgreSQL of one's own, with the module; for benchmarks and tests.  To be
# sourced after scripts/lib/testing.sh.
#
# The server is a copy beside which lie links to what is installed, and our files: it looks
# for the rest relative to where it is itself, so the module is found as if installed.

PG_BIN=$(pg_config --bindir 2>/dev/null) || PG_BIN=/usr/lib/postgresql/15/bin
[ -x "$PG_BIN/postgres" ] && [ -x "$PG_BIN/initdb" ] || skip "PostgreSQL is not installed"
[ -e "$BUILD_DIR/lib/postgresql/quickmine.so" ] || skip "the module is not built"
PG_SHARE=${PG_BIN%/lib/postgresql/*}/share/postgresql${PG_BIN##*/lib/postgresql}
PG_SHARE=${PG_SHARE%/bin}
PG_TREE=$T/pg
PG_CLUSTER=$T/cluster

# PostgreSQL does not run as root.
PG_AS=()
if [ "$(id -u)" = 0 ]; then
    PG_USER=$(getent passwd postgres nobody | head -n 1 | cut -d : -f 1)
    PG_AS=(setpriv "--reuid=$PG_USER" "--regid=$(id -g "$PG_USER")" --clear-groups)
    chmod 755 "$T"
fi

pg_tree() {
    local file lib=${PG_BIN%/bin}/lib share=$PG_SHARE
    mkdir -p "$PG_TREE$PG_BIN" "$PG_TREE$lib" "$PG_TREE$share/extension"
    cp "$PG_BIN"/{postgres,initdb} "$PG_TREE$PG_BIN"
    ln -s "$lib"/* "$PG_TREE$lib"
    # A link to an installed module of that name is replaced, not followed: running servers
    # have it mapped.
    cp --remove-destination "$BUILD_DIR/lib/postgresql/quickmine.so" \
        "$BUILD_DIR/lib/libqmctx.so.0" "$PG_TREE$lib"
    # PostgreSQL's user preloads it, and hangs without it.
    [ -z "${QM_SANITIZE:-}" ] || cp "$BUILD_DIR/tests/libsanitizer-first.so" "$PG_TREE"
    for file in "$share"/*; do
        [ "${file##*/}" = extension ] || ln -s "$file" "$PG_TREE$share"
    done
    ln -s "$share"/extension/* "$PG_TREE$share/extension"
    # The sources, and what is built, may be where only root can read.
    cp --remove-destination \
        "$SOURCE_DIR"/postgresql/quickmine{.control,--1.0.sql,--1.0--1.1.sql} "$PG_TREE$share/extension"
}

# pg_init OPTIONS...: a new cluster, $PG_CLUSTER.
pg_init() {
    [ -e "$PG_TREE" ] || pg_tree
    mkdir "$PG_CLUSTER"
    [ ${#PG_AS[@]} -eq 0 ] || chown "$PG_USER:" "$PG_CLUSTER"
    (cd "$PG_CLUSTER" && "${PG_AS[@]}" "$PG_TREE$PG_BIN/initdb" --no-sync -A trust -U qm \
        --no-locale -E UTF8 "$@" "$PG_CLUSTER") >"$T/initdb.log" 2>&1 ||
        { cat "$T/initdb.log" >&2; fail "no cluster"; }
}

# pg_start OPTIONS...: returns when it takes connections; its id is in $PG, its messages are
# in $T/pg.log.  What is in the array PG_ENV is put before the command.
PG_ENV=()
pg_start() {
    local preload=()
    [ -z "${QM_SANITIZE:-}" ] || preload=(env "LD_PRELOAD=$(sanitizer_preload "$PG_TREE/libsanitizer-first.so")"
        ASAN_OPTIONS=detect_leaks=0)
    background "${PG_AS[@]}" "${preload[@]}" "${PG_ENV[@]}" \
        "$PG_TREE$PG_BIN/postgres" -D "$PG_CLUSTER" -k "$PG_CLUSTER" \
        -c listen_addresses= -c fsync=off -c max_connections=20 "$@" >"$T/pg.log" 2>&1
    PG=$PID
    wait_for 60 eval "gone $PG || pg_sql -c 'SELECT 1'" && ! gone "$PG" && return 0
    cat "$T/pg.log" >&2
    return 1
}
pg_stop() { stop "$PG" INT; }

# pg_sql ARGS...: the client; says values only, and goes on after errors.
pg_sql() { psql -X -q -A -t -h "$PG_CLUSTER" -U qm postgres "$@"; }
# pg_stat COLUMN
pg_stat() { pg_sql -c "SELECT $1 FROM quickmine_stat"; }
