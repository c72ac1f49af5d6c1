# SPDX-License-Identifier: BSD-3-Clause
"""stats_http.py SOCKET HTTP [URL]: reads in contexts, and compares what HTTP says with the truth.

HTTP is the Unix socket of stats-http, or ADDRESS:PORT.
"""
import http.client
import json
import socket
import sys
import time

from prometheus_client.openmetrics.parser import text_string_to_metric_families

import client

BLOCK = 16384
path, where = sys.argv[1:]


def connect():
    if "/" in where:
        s = socket.socket(socket.AF_UNIX)
        s.connect(where)
    else:
        s = socket.create_connection(where.rsplit(":", 1))
    s.settimeout(60)
    return s


def get(target, method="GET", host="localhost", body=None):
    c = http.client.HTTPConnection("localhost")
    c.sock = connect()
    c.putrequest(method, target, skip_host=True)
    if host is not None:
        c.putheader("Host", host)
    if body:
        c.putheader("Content-Length", str(len(body)))
    try:
        c.endheaders(body)
    except BrokenPipeError:
        pass  # refused before it was sent
    r = c.getresponse()
    return r, r.read().decode()


def metrics():
    r, text = get("/metrics")
    assert r.status == 200, r.status
    assert r.headers["Content-Type"] == \
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.endswith("# EOF\n")
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation.endswith("."), family.name
        assert family.name not in found, family.name
        found[family.name] = family
    return found


def value(found, name, /, **labels):
    got = [s.value for f in found.values() for s in f.samples
           if s.name == name and s.labels == labels]
    assert len(got) == 1, (name, labels, got)
    return got[0]


NAMES = ['SELECT "x" FROM t WHERE a = \'\\\'', "a\nb{c}=,d", "</script><script>alert(1)</script>",
         "größe"]

# Some reads in classes, of which the tagged export says the same.
c = client.Tagged(path)
slot = c.first
for n, name in enumerate(NAMES):
    c.begin(slot, klass=10 + n, kind=client.QUERY, name=name.encode())
    for block in range(n * 10, n * 10 + 5 + n):
        c.pread(BLOCK, block * BLOCK, slot)
        c.pread(BLOCK, block * BLOCK, slot)
    c.end(slot)
SAME = ["reads", "hits", "misses", "prefetch_hits", "device_reads", "connections", "classes",
        "cache_blocks"]
end = time.monotonic() + 60
while True:
    truth = c.stats()
    time.sleep(0.25)  # a document may be that old
    m = metrics()
    after = c.stats()
    if all(after[key] == truth[key] for key in SAME):
        break
    # What is read ahead, connections that end, and rules that give memory back, take their time.
    assert time.monotonic() < end, (truth, after)
for key, name in [("reads", "reads_total"), ("read_bytes", "read_bytes_total"),
                  ("hits", "hits_total"), ("misses", "misses_total"),
                  ("prefetch_hits", "prefetch_hits_total"), ("device_reads", "device_reads_total"),
                  ("contexts_begun", "contexts_begun_total"), ("size", "device_size_bytes"),
                  ("connections", "connections"), ("cache_blocks", "cache_capacity_blocks")]:
    assert value(m, f"quickmine_{name}") == truth[key], name
assert m["quickmine_reads"].type == "counter" and m["quickmine_sessions"].type == "gauge"
assert m["quickmine_read_bytes"].unit == "bytes"
assert value(m, "quickmine_info", version=truth["version"], policy="auto", level="innermost",
             eviction="adaptive") == 1

latency = m["quickmine_read_latency_seconds"]
assert latency.type == "histogram" and latency.unit == "seconds"
buckets = [s for s in latency.samples if s.name.endswith("_bucket")]
assert len(buckets) == 26 and buckets[-1].value == truth["latency_us"]["count"]
bound = [s for s in buckets if float(s.labels["le"]) * 1e6 > truth["latency_us"]["p50"] * 1.1][0]
assert bound.value >= truth["latency_us"]["count"] / 2, (bound, truth["latency_us"])
total = value(m, "quickmine_read_latency_seconds_sum")
assert abs(total * 1e6 / (truth["latency_us"]["mean"] * truth["latency_us"]["count"]) - 1) < .01

by_name = {k["name"]: k for k in truth["classes"]}
for name in NAMES:
    k = by_name[name.replace("\n", "?")]
    labels = {"class": k["class"], "kind": "query", "name": k["name"]}
    for key in ["hits", "prefetch_hits", "misses"]:
        assert value(m, f"quickmine_class_{key}_total", **labels) == k[f"total_{key}"], (name, key)
    assert value(m, "quickmine_class_state", **labels) == 0
client.passed("metrics")

# Every metric has its JSON key, and what is in both does not differ in name by accident.
r, text = get("/api/stats")
assert r.status == 200 and r.headers["Content-Type"] == "application/json"
stats = json.loads(text)
assert stats.keys() == truth.keys(), stats.keys() ^ truth.keys()
assert {k["class"] for k in stats["classes"]} == {k["class"] for k in truth["classes"]}
numbers = {k for k, v in stats.items() if isinstance(v, (int, float))}
shown = text_of = get("/metrics")[1]
missing = [k for k in numbers - {"promotes", "withheld", "overtaken", "prefixes"}
           if f"quickmine_{k}" not in text_of
           and k not in {"uptime_us", "evicted", "used", "wasted", "failed", "dropped", "throttled",
                         "watched", "cancelled", "size", "cache_blocks", "prefetch_blocks",
                         "prefetch_losses", "prefetch_reopens", "lookups", "matches", "recorded",
                         "record_dropped", "prefetch_reads", "over_rate"}]
for name in ["device_prefetch_reads", "prefetches_over_rate"]: # these two
    assert f"quickmine_{name}_total" in text_of, name
assert not missing, f"no metric for {missing}"
client.passed("JSON")

r, text = get("/healthz")
assert (r.status, text) == (200, "ok\n")
r, page = get("/")
policy = r.headers["Content-Security-Policy"]
assert r.status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
nonce = policy.split("script-src 'nonce-")[1].split("'")[0]
assert page.count(f'nonce="{nonce}"') == 2 and "@NONCE@" not in page
assert "http://www.w3.org/2000/svg" in page and page.count("http:") == 1 and "https:" not in page
time.sleep(0.25)
assert nonce not in get("/")[1], "the same number twice"
for header in ["X-Content-Type-Options", "Cache-Control", "X-Frame-Options"]:
    assert header in r.headers

# What is not there, not allowed, or no request.
for target, method, status in [("/nothing", "GET", 404), ("//metrics", "GET", 404),
                               ("/../etc/passwd", "GET", 404), ("/", "POST", 405),
                               ("/metrics", "DELETE", 405), ("/" + "x" * 5000, "GET", 404)]:
    assert get(target, method)[0].status == status, (target, method)
r, text = get("/metrics", "HEAD")
assert r.status == 200 and text == ""
assert get("/metrics", "POST", body=b"x" * 100)[0].status == 405
if "/" not in where:
    for host, status in [("evil.example", 403), ("127.0.0.1.evil.example", 403),
                         ("localhost.evil:80", 403), ("127.0.0.1:80", 200), ("[::1]", 200),
                         ("LOCALHOST", 200), (None, 200)]:
        # HTTP/1.1 demands a host, which http.client is told to leave out
        got = get("/healthz", host=host)[0].status
        assert got == status or (host is None and got == 400), (host, got)
client.passed("refusals")

if "/" not in where:
    sys.exit()

# Those who say nothing, or too much, do not keep others out for good, and cost a bounded
# number of connections.
held = []
for n in range(24):
    s = connect()
    try:
        s.sendall([b"", b"GET / HTTP/1.1\r\nX: ", b"x" * 100][n % 3])
    except OSError:
        pass
    held.append(s)
s = connect()
try:
    for _ in range(100):
        s.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 60000 + b"\r\n")
except OSError:
    pass  # refused: its headers have no end


def served():
    try:
        return get("/healthz")[0].status == 200
    except (OSError, http.client.HTTPException):
        return False


client.wait_for(served, 60)  # at the latest when the held ones have timed out
client.passed("hostile clients")
assert c.stats()["reads"] >= truth["reads"]
