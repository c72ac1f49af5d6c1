# SPDX-License-Identifier: BSD-3-Clause
# oltp_read_only: sysbench's own, with its defaults.
. bench/workloads/oltp.sh
