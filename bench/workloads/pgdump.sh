# SPDX-License-Identifier: BSD-3-Clause
# pgdump: pg_dump of the accounts, again and again, beside pgbench's select-only.
. bench/workloads/pgbench.sh
. bench/workloads/beside.sh

workload_run() {
    beside "$PG_BIN/pg_dump" -h "$PG_CLUSTER" -U qm -a -t pgbench_accounts postgres
    pgbench_run -S -M prepared || return 1
    not_beside
}
