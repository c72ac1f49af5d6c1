# SPDX-License-Identifier: BSD-3-Clause
# rocksdb_lsm: the same operations, with libquickmine-lsm in mode adaptive.
. bench/workloads/rocksdb.sh

# shellcheck disable=SC2034 # rocksdb.sh's
rocksdb_mode=adaptive
