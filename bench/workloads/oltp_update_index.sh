# SPDX-License-Identifier: BSD-3-Clause
# oltp_update_index: sysbench's own, which changes an indexed column of a row.
. bench/workloads/oltp.sh
