# SPDX-License-Identifier: BSD-3-Clause
# pgbench_select: pgbench's select-only, rows by their key.
. bench/workloads/pgbench.sh
workload_run() { pgbench_run -S -M prepared; }
