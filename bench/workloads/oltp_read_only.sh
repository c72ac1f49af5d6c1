# oltp_read_only: sysbench's own, with its defaults.
. bench/workloads/oltp.sh
