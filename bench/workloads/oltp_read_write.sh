# SPDX-License-Identifier: BSD-3-Clause
# oltp_read_write: sysbench's own, with its defaults.
. bench/workloads/oltp.sh
