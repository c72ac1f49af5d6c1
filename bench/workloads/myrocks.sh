# SPDX-License-Identifier: BSD-3-Clause
# myrocks: sysbench's point reads and writes on MyRocks, whose compactions move what is read.
#
# RocksDB's files lie on an ext4 file system without contexts, and are read and written past
# the page cache.  Memtables, files and levels are small, so that there is a compaction every
# few seconds.  A fifth of the rows gets four fifths of the reads and writes.  A scale of 1
# is 4 tables of 100,000 rows, about 90 MB.
# shellcheck disable=SC2154 # bench/record's variables
. bench/workloads/oltp.sh
. bench/workloads/filesystem.sh

workload_mb=600
myrocks_plugin=ha_rocksdb.so
myrocks_levels="write_buffer_size=1m;target_file_size_base=1m;max_bytes_for_level_base=4m"
myrocks_levels+=";compression=kNoCompression;compression_per_level=kNoCompression"
myrocks_levels+=";bottommost_compression=kNoCompression"

workload_makers() { echo "myrocks 1 $myrocks_levels"; }
# The engine alone: its package asks for one that starts a server.
myrocks_find() {
    local from=/usr/lib/mysql/plugin
    mkdir -p "$T/plugins"
    if [ ! -e "$from/$myrocks_plugin" ]; then
        mkdir "$T/package"
        (cd "$T/package" && apt-get -q -o APT::Sandbox::User=root download mariadb-plugin-rocksdb \
            >"$T/package.log" 2>&1 && dpkg-deb -x ./*.deb .) ||
            { cat "$T/package.log" >&2; fail "no package mariadb-plugin-rocksdb"; }
        from=$T/package$from
    fi
    ln -sf "$from/$myrocks_plugin" "$T/plugins/$myrocks_plugin"
}
# myrocks_options BLOCK_CACHE: mariadbd's, in $myrocks_options.
myrocks_options() {
    [ -e "$T/plugins" ] || myrocks_find
    myrocks_options=(
        --innodb-data-file-path=ibdata1:12M:autoextend --plugin-dir="$T/plugins"
        --plugin-load-add="$myrocks_plugin" --rocksdb-datadir="$T/files/rocksdb"
        --rocksdb-block-cache-size="$1" --rocksdb-use-direct-reads=ON
        --rocksdb-use-direct-io-for-flush-and-compaction=ON
        --rocksdb-flush-log-at-trx-commit=2 --rocksdb-default-cf-options="$myrocks_levels"
        --transaction-isolation=READ-COMMITTED --max-connections=1000
    )
}
workload_load() {
    myrocks_options 256M
    filesystem_make "$1/image" "$size_mb"
    mariadb_make "$1/data" --innodb-data-file-path=ibdata1:12M:autoextend || fail "no database"
    stack_sql="CREATE DATABASE sbtest"
    oltp oltp_read_write --threads=2 --mysql-storage-engine=rocksdb prepare
    stack_fill "$1/data" "${myrocks_options[@]}" -- "${oltp_command[@]}"
    filesystem_made
}
workload_start() {
    filesystem_start "$@"
    run_for cp -r "$pristine/data" "$T/data"
    myrocks_options "$pool"
    at_end myrocks_end
    mariadb_run mariadb "$T/data" "${myrocks_options[@]}" || fail "MariaDB does not start"
    stack_mariadbd=$PID
}
# Before its file system is unmounted.
myrocks_end() { [ -z "$stack_mariadbd" ] || stop "$stack_mariadbd"; }
workload_stop() {
    stop "$stack_mariadbd"
    stack_mariadbd=''
    filesystem_stop
}
workload_run() {
    oltp_run oltp_read_write --mysql-storage-engine=rocksdb --range-selects=off \
        --rand-type=pareto || return 1
    echo "compactions: $(grep -c '"event": "compaction_finished"' "$T/files/rocksdb/LOG")"
}
