# SPDX-License-Identifier: BSD-3-Clause
"""client-stats.py SOCKET KEY VALUE: one of the statistics has to have that value."""
import sys

import client

stats = client.Tagged(sys.argv[1]).stats()
assert str(stats[sys.argv[2]]) == sys.argv[3], stats
