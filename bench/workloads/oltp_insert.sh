# SPDX-License-Identifier: BSD-3-Clause
# oltp_insert: sysbench's own, which inserts rows at the tables' ends.
. bench/workloads/oltp.sh
