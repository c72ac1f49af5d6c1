# SPDX-License-Identifier: BSD-3-Clause
# star: scans, joins and sums over a star schema, as in TPC-H; star.lua says what it does.
. bench/workloads/instances.sh
workload_mb=260 workload_level=query
