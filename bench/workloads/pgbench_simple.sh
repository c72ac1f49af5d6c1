# SPDX-License-Identifier: BSD-3-Clause
# pgbench_simple: pgbench's simple-update (-N), which updates an account.
. bench/workloads/pgbench.sh
workload_run() { pgbench_run -N -M prepared; }
