# SPDX-License-Identifier: BSD-3-Clause
# files: programs on an ext4 file system, without contexts; files.py says what they do.
#
# A scale of 1 is a tree of 400 MB and a file of 100 MB.
# shellcheck disable=SC2154 # bench/record's variables
. bench/workloads/filesystem.sh

workload_mb=900 workload_takes="clients scale"

workload_makers() { cat bench/workloads/files.py; }
files_mb() { awk -v s="$scale" -v mb="$1" 'BEGIN { print int(s * mb) }'; }
workload_load() {
    filesystem_make "$1/image" "$size_mb"
    run_for python3 bench/workloads/files.py fill "$T/files" "$(files_mb 400)" \
        "$(files_mb 100)" || fail "the files cannot be made"
    filesystem_made
}
workload_start() { filesystem_start "$@"; }
workload_stop() { filesystem_stop; }
workload_version() { uname -sr; }
workload_run() {
    run_for python3 bench/workloads/files.py run "$T/files" "$clients" "$seconds" "$seed"
}
