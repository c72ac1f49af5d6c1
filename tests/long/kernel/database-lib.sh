# SPDX-License-Identifier: BSD-3-Clause
# database-lib.sh - the guests with a database whose files are on the device; to be sourced
# by tests/long/kernel/run.
#
# The database is made on the host, with a table for each statement that the clients in the
# guest are going to run (table tCN is client C's), so that what has read a table's file is
# known to be that statement; and one more (acc), which all read by its index.  What the
# guest needs of the host's programs and libraries goes into its initramfs.

CLIENTS="1 2 3 4"
ROWS=6000 # of each table

# libraries ROOT FILE...: copies the libraries that programs or libraries need, but ours.
libraries() {
    local root=$1 file; shift
    for file in $(ldd "$@" | grep -o '/[^ :]* ' | grep -v "^$BUILD_DIR" | sort -u); do
        (cd / && cp -L --parents "$file" "$root")
    done
}

# database_root NAME USER-ID: what the initramfs of both has: the scripts, and a user.
database_root() {
    local root=$T/$1.root
    mkdir -p "$root/bin" "$root/etc" "$root/work"
    printf 'root:x:0:0::/:/bin/sh\ndatabase:x:%s:%s::/:/bin/sh\n' "$2" "$2" >"$root/etc/passwd"
    printf 'root:x:0:\ndatabase:x:%s:\n' "$2" >"$root/etc/group"
    cp "$T/work"/* "$root/work"
}

# database_disk NAME: $T/NAME.disk, whose files are those of $T/NAME.files.
database_disk() {
    rm -f "${T:?}/$1.disk"
    truncate -s 256M "$T/$1.disk"
    mke2fs -q -F -t ext4 -b 4096 -E lazy_itable_init=0 -d "$T/$1.files" "$T/$1.disk" 200M ||
        fail "mke2fs"
}

# database_blocks NAME: $T/NAME.blocks, the blocks of $T/NAME.tables: tables, and their files
# below the file system's root.
database_blocks() {
    local table file blocks
    while read -r table file; do
        blocks=$(debugfs -R "dump_extents $file" "$T/$1.disk" 2>/dev/null |
            "$PYTHON" "$HERE/to-be-read.py" "$T/$1.files$file") || fail "no file of $table"
        echo "$table $blocks"
    done <"$T/$1.tables" >"$T/$1.blocks"
}

# database_run NAME: boots it; then compares.
database_run() {
    local name=$1 server
    say "booting: $name"
    initramfs "$name" "$KEPT/nbd/nbd-client"
    database_blocks "$name"
    serve "$name" --filter="$FILTER" file "$T/$name.disk" record="$T/$name.trace" \
        cache-size=64M
    server=$PID
    boot "$name" patched
    stop "$server"
    "$PYTHON" "$HERE/check-database.py" "$T/$name.console" "$T/$name.trace" \
        "$T/$name.blocks" "$T/$name.classes" >&2 || fail "$name: see above"
}

# The statement of each kind of table, as it is run; whatever it selects is of no interest.
postgresql_statement() { # TABLE
    case $1 in
    t?1 | t?2 | t?3) echo "SELECT count(pad) FROM $1" ;;
    t?4) echo "EXECUTE p_$1(5)" ;;
    t?5) echo "SELECT count(1 / (id - $ROWS)) FROM $1" ;; # fails at the last row
    t?6) echo "SELECT f_$1()" ;;
    t?7) echo "SELECT max(pad) FROM $1" ;; # by parallel workers
    acc?) echo "SELECT c${1#acc} FROM acc WHERE id = $(((RANDOM << 15 | RANDOM) % 20000))" ;;
    esac
}

# statements DATABASE TABLE...: that read these.
statements() {
    local database=$1 table; shift
    for table; do echo "$("${database}_statement" "$table");"; done
}

# scripts DATABASE: $T/work, with a script for each client.
scripts() {
    local c
    rm -rf "${T:?}/work"
    mkdir "$T/work"
    for c in $CLIENTS; do
        {
            "${1}_prepare" "t${c}4"
            statements "$1" "t${c}1"
            echo "BEGIN;"; statements "$1" "t${c}2" "t${c}3"; echo "COMMIT;"
            for _ in {1..40}; do statements "$1" "acc$c"; done
            echo "BEGIN;"; statements "$1" "acc$c" "t${c}4"; echo "ROLLBACK;"
            statements "$1" "t${c}5" "t${c}6"
            "${1}_parallel" "t${c}7"
        } >"$T/work/$c.sql"
    done
}

postgresql_prepare() {
    echo "PREPARE p_$1 AS SELECT count(pad) FROM $1 WHERE id <> \$1;"
}
postgresql_parallel() {
    echo "SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = off;"
    statements postgresql "$1"
}

run_postgresql() {
    local c i t statement tables="" root=$T/postgresql.root
    . "$SOURCE_DIR/scripts/lib/postgresql.sh"

    say "making the database"
    mkdir "$T/postgresql.files"
    PG_CLUSTER=$T/postgresql.files/data
    pg_init --wal-segsize=1
    cat >>"$PG_CLUSTER/postgresql.conf" <<EOT
shared_preload_libraries = 'quickmine'
autovacuum = off
timezone = 'GMT'
log_timezone = 'GMT'
jit = off
shared_buffers = 512kB
listen_addresses = ''
unix_socket_directories = '/tmp'
log_line_prefix = '@statement %p '
log_statement = all
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
max_parallel_workers_per_gather = 0
EOT
    pg_start -c log_line_prefix= -c log_statement=none || fail "PostgreSQL does not start"
    for c in $CLIENTS; do
        for i in 1 2 3 4 5 6 7; do tables+=" t$c$i"; done
    done
    {
        echo "CREATE EXTENSION quickmine;"
        for t in $tables; do
            echo "CREATE TABLE $t (id int, pad char(200));"
            echo "INSERT INTO $t SELECT i, i FROM generate_series(1, $ROWS) i;"
            [[ $t != t?6 ]] || echo "CREATE FUNCTION f_$t() RETURNS int LANGUAGE plpgsql AS
                'DECLARE n int; BEGIN SELECT count(pad) INTO n FROM $t; RETURN n; END';"
        done
        echo "CREATE TABLE acc (id int PRIMARY KEY, c1 int, c2 int, c3 int, c4 int,
                  pad char(150));
              INSERT INTO acc SELECT i, i, i, i, i, i FROM generate_series(0, 19999) i;
              VACUUM (FREEZE, ANALYZE);"
    } | pg_sql >/dev/null || fail "no tables"
    for t in $tables acc acc_pkey; do
        echo "$t $(pg_sql -c "SELECT '/data/' || pg_relation_filepath('$t')")"
    done >"$T/postgresql.tables"
    # Query ids depend on the tables' numbers, and are the same in the guest.
    for t in $tables acc1 acc2 acc3 acc4; do
        statement=$(postgresql_statement "$t")
        [[ $t != t?6 ]] || statement="SELECT count(pad) FROM $t"
        echo "$t $(pg_sql -c "SET compute_query_id = on" \
            -c "PREPARE p_$t AS SELECT count(pad) FROM ${t/acc?/acc} WHERE id <> \$1" \
            -c "EXPLAIN (VERBOSE) $statement" | sed -n 's/^Query Identifier: //p')"
    done >"$T/ids"
    while read -r t i; do printf '%s %016x\n' "$t" "$i"; done <"$T/ids" \
        >"$T/postgresql.classes"
    pg_stop

    scripts postgresql
    database_root postgresql "$(stat -c %u "$PG_CLUSTER")"
    (cd / && cp -r --parents "$PG_BIN"/{postgres,psql} "${PG_BIN%/bin}/lib/plpgsql.so" \
        "$PG_SHARE/timezonesets" "$root")
    # The module, and its library beside it.
    cp "$BUILD_DIR/lib/postgresql/quickmine.so" "$BUILD_DIR/lib/libqmctx.so.0" \
        "$root${PG_BIN%/bin}/lib"
    libraries "$root" "$PG_BIN"/{postgres,psql} "$BUILD_DIR/lib/libqmctx.so.0"
    database_disk postgresql
    database_run postgresql
}

# MariaDB: Debian's with our plugin; and a patched one, which needs none, if tests/long/mariadb/run
# has built it, or $QM_MARIADBD is one.
mariadb_statement() { # TABLE
    case $1 in
    t?1 | t?2 | t?3) echo "SELECT COUNT(pad) FROM $1" ;;
    t?4) echo "EXECUTE p_$1 USING @five" ;;
    t?5) echo "SELECT MAX(EXP(id - $ROWS + 710)) FROM $1" ;; # fails at the last row
    t?6) echo "SELECT f_$1()" ;;
    acc?) echo "SELECT c${1#acc} FROM acc WHERE id = $(((RANDOM << 15 | RANDOM) % 20000))" ;;
    esac
}

mariadb_prepare() {
    echo "SET @five = 5;"
    echo "PREPARE p_$1 FROM 'SELECT COUNT(pad) FROM $1 WHERE id <> ?';"
}
mariadb_parallel() { :; }

# make_mariadb TABLE...: $T/mariadb.files.
make_mariadb() {
    local data=$T/mariadb.files/data server t
    local options=(--no-defaults --datadir="$data" --innodb-log-file-size=8M)
    [ "$(id -u)" -ne 0 ] || options+=(--user=root)

    say "making the database"
    mkdir -p "$data"
    mariadb-install-db "${options[@]}" --skip-test-db \
        --auth-root-authentication-method=normal >"$T/install.log" 2>&1 ||
        { cat "$T/install.log" >&2; fail "no database"; }
    background mariadbd "${options[@]}" --socket="$T/sock" --pid-file="$T/pid" \
        --skip-networking --innodb-fast-shutdown=0 >"$T/making.log" 2>&1
    server=$PID
    wait_for 60 eval "gone $server || mariadb --no-defaults -S '$T/sock' -u root -e 'SELECT 1'"
    {
        echo "CREATE DATABASE test; USE test;"
        for t; do
            echo "CREATE TABLE $t (id INT PRIMARY KEY, pad CHAR(200)) CHARSET latin1;"
            echo "INSERT INTO $t SELECT seq, seq FROM seq_1_to_$ROWS;"
            [[ $t != t?6 ]] || printf '%s\n' "DELIMITER //" "CREATE FUNCTION f_$t()
                RETURNS INT READS SQL DATA
                BEGIN DECLARE n INT; SELECT COUNT(pad) INTO n FROM $t; RETURN n; END//" \
                "DELIMITER ;"
        done
        echo "CREATE TABLE acc (id INT PRIMARY KEY, c1 INT, c2 INT, c3 INT, c4 INT,
                  pad CHAR(150)) CHARSET latin1;
              INSERT INTO acc SELECT seq, seq, seq, seq, seq, seq FROM seq_0_to_19999;"
    } | mariadb --no-defaults -S "$T/sock" -u root ||
        { cat "$T/making.log" >&2; fail "no tables"; }
    stop "$server"
    grep -q "Shutdown complete" "$T/making.log" || fail "MariaDB does not shut down"
}

# mariadb_guest NAME MARIADBD: of the files, tables and classes of that name.
mariadb_guest() {
    local name=$1 root=$T/$1.root
    database_root "$name" 1000
    cp "$2" "$root/bin/mariadbd"
    cp "$(command -v mariadb)" "$root/bin/mariadb"
    mkdir "$root/plugin"
    cp "$BUILD_DIR"/lib/{qmctx.so,libqmctx.so.0} "$root/plugin"
    libraries "$root" "$root"/bin/mariadb* "$BUILD_DIR"/lib/{qmctx.so,libqmctx.so.0}
    (cd / && cp -r --parents usr/share/mysql/english usr/share/mysql/charsets "$root")
    database_disk "$name"
    database_run "$name"
}

run_mariadb() {
    local c i t tables="" built=${QM_MARIADB_DIR:-$BUILD_DIR/mariadb}/build/sql/mariadbd
    for c in $CLIENTS; do
        for i in 1 2 3 4 5 6; do tables+=" t$c$i"; done
    done
    make_mariadb $tables
    scripts mariadb
    for t in $tables acc; do echo "$t /data/test/$t.ibd"; done >"$T/mariadb.tables"
    # The plugin's classes are those of templates.
    for t in $tables acc1 acc2 acc3 acc4; do
        case $t in
        t?4) echo "SELECT COUNT(pad) FROM $t WHERE id <> ?" ;;
        t?6) echo "SELECT COUNT(pad) INTO n FROM $t" ;;
        *) mariadb_statement "$t" ;;
        esac
    done | "$BUILD_DIR/tests/plugin-class-of" | cut -d " " -f 1 >"$T/classes"
    printf '%s\n' $tables acc1 acc2 acc3 acc4 | paste -d " " - "$T/classes" \
        >"$T/mariadb.classes"
    mariadb_guest mariadb "$(command -v mariadbd)"

    [ -n "${QM_MARIADBD:-}" ] || [ ! -x "$built" ] || QM_MARIADBD=$built
    [ -n "${QM_MARIADBD:-}" ] || { say "no patched MariaDB: tests/long/mariadb/run builds it"; return; }
    ln -s mariadb.files "$T/mariadb-patched.files"
    cp "$T/mariadb.tables" "$T/mariadb-patched.tables"
    # Its classes are digests.
    sed 's/ .*/ ?/' "$T/mariadb.classes" >"$T/mariadb-patched.classes"
    mariadb_guest mariadb-patched "$QM_MARIADBD"
}
