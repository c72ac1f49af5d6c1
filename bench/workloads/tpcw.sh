# SPDX-License-Identifier: BSD-3-Clause
# tpcw: the bookshop of TPC-W, shopping mix; tpcw.lua says what it does.
. bench/workloads/instances.sh
workload_mb=300 workload_level=query workload_takes+=" skew"
