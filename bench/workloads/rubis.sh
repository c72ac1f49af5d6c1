# SPDX-License-Identifier: BSD-3-Clause
# rubis: the auction site RUBiS, bidding mix; rubis.lua says what it does.
. bench/workloads/instances.sh
workload_mb=9000 workload_level=query
