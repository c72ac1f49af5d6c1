# SPDX-License-Identifier: BSD-3-Clause
# rocksdb: a program's point reads and writes on RocksDB (bench/lsm's cell hot), past the page cache.
#
# One thread, whatever --clients says, makes the same operations in each run of a seed: 1,500
# reads for each second that is asked for, and a write for three reads.  --pool is the block
# cache.  A scale of 1 is 100,000 keys of 212 bytes.  rocksdb_lsm adds libquickmine-lsm.
# shellcheck disable=SC2154 # bench/record's variables
. bench/workloads/filesystem.sh

workload_mb=200 workload_targets=lsm-bench workload_takes=scale
rocksdb_mode=stock

workload_makers() { echo "rocksdb 1"; }
workload_load() {
    filesystem_make "$1/image" "$size_mb"
    filesystem_made
    stack_data_mb=$(awk -v s="$scale" 'BEGIN { print int(s * 21) + 1 }')
}
workload_pool() { echo 4M; }
workload_start() { filesystem_start "$@"; }
workload_stop() { filesystem_stop; }
workload_version() { dpkg-query -W -f 'RocksDB ${Version}\n' librocksdb-dev; }
workload_run() {
    local reads=$((seconds * 1500)) keys
    keys=$(awk -v s="$scale" 'BEGIN { print int(s * 100000) }')
    run_for "$BUILD_DIR/bin/lsm-bench" "$T/files/db" "mode=$rocksdb_mode" workload=hot live=1 \
        "cache=$(($(numfmt --from=iec "$pool") >> 20))" "keys=$keys" "reads=$reads" \
        "warmup=$((reads / 4))" "seed=$seed" >"$T/lsm.json" || return 1
    cat "$T/lsm.json"
    python3 - "$T/lsm.json" "$reads" <<'END'
import json, sys
run, reads = json.load(open(sys.argv[1])), int(sys.argv[2])
print(f"interactions {reads} seconds {reads / run['reads_s']:.1f} mean_ms {run['mean_us'] / 1000:.3f}"
      f" p95_ms {run['p95_us'] / 1000:.3f} errors 0")
END
}
