# SPDX-License-Identifier: BSD-3-Clause
# pgbench_simple: pgbench's simple-update (-N), which updates an account.
. bench/workloads/pgbench.sh
pgbench_room=7
workload_run() { pgbench_run -N -M prepared; }
