# SPDX-License-Identifier: BSD-3-Clause
# pgbench_tpcb: pgbench's tpcb-like, which updates an account, a teller and a branch.
. bench/workloads/pgbench.sh
pgbench_room=7
workload_run() { pgbench_run -M prepared; }
