# SPDX-License-Identifier: BSD-3-Clause
"""http_sum.py SOCKET ADDRESS:PORT: the sum of the latencies is a counter: it never falls, also
where fast reads follow many slow ones, and is the same in metrics and JSON.

A Prometheus takes a counter that falls for one that has begun anew, and adds all of it.
"""
import http.client
import json
import sys
import time

import client

LONG = 128 << 10
path, where = sys.argv[1:]


def get(target):
    c = http.client.HTTPConnection(*where.rsplit(":", 1), timeout=60)
    c.request("GET", target)
    text = c.getresponse().read().decode()
    c.close()
    return text


def total():
    values = dict(line.split() for line in get("/metrics").splitlines()
                  if line.startswith("quickmine_read_latency_seconds_") and "{" not in line)
    return (int(values["quickmine_read_latency_seconds_count"]),
            float(values["quickmine_read_latency_seconds_sum"]))


c = client.Tagged(path)
for n in range(12000): # long ones
    c.pread(LONG, n % 512 * LONG, c.first)
before = total()
for _ in range(24):
    c.pread(512, 0, c.first) # short ones
    end = time.monotonic() + 60
    while (now := total())[0] == before[0]: # a document may be 0.2 s old
        assert time.monotonic() < end
        time.sleep(0.02)
    assert now[1] > before[1], (before, now)
    before = now
time.sleep(0.25)
truth = json.loads(get("/api/stats"))["latency_us"]
count, seconds = total()
assert count == truth["count"] and abs(seconds * 1e6 - truth["sum"]) < .01, (count, seconds, truth)
client.passed("the sum")
