# SPDX-License-Identifier: BSD-3-Clause
# tpcc: the wholesaler of TPC-C; tpcc.lua says what it does.
. bench/workloads/instances.sh
workload_mb=250 workload_level=transaction
