# SPDX-License-Identifier: BSD-3-Clause
"""queries.py PORT DIR healthy|tier|down: runs the queries of DIR on the Prometheus at PORT.

healthy: each of the dashboard and of the recording rules has a result; no alert's has, but
each metric in it has.  tier, down: the alert about a tier that has failed, or a server that
is gone, has one.
"""
import json
import re
import sys
import time
import urllib.parse
import urllib.request

port, directory, mode = sys.argv[1:]
# Those that a healthy server has nothing to show for.
MAY_BE_EMPTY = {"Classes that are reduced or off"}


def query(text):
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": text})
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            got = json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"refused: {text}: {error.read().decode()}")
    assert got["status"] == "success" and not got.get("warnings"), (text, got)
    return got["data"]["result"]


def wait(text):
    end = time.monotonic() + 60
    while not (got := query(text)):
        assert time.monotonic() < end, f"no result: {text}"
        time.sleep(0.5)
    return got


def rules():
    """Rules as (kind, name, query): the file is YAML in a form of its own."""
    with open(f"{directory}/quickmine.rules.yml", encoding="utf-8") as f:
        text = f.read()
    found = re.findall(r"- (record|alert): (\S+)\n +expr: (?:>-\n)?((?:.*\n)(?: {10}\S.*\n)*)", text)
    assert len(found) == len(re.findall(r"- (?:record|alert):", text)) > 8, found
    return [(kind, name, " ".join(expr.split())) for kind, name, expr in found]


if mode != "healthy":
    alert = {"down": "QuickMineDown", "tier": "QuickMineTierFailed"}[mode]
    wait(dict((name, expr) for _, name, expr in rules())[alert])
    sys.exit()

wait("rate(quickmine_reads_total[10s]) > 0")
wait("rate(quickmine_prefetch_hits_total[10s]) > 0")
with open(f"{directory}/grafana-dashboard.json", encoding="utf-8") as f:
    dashboard = json.load(f)
count = 0
for panel in dashboard["panels"]:
    for target in panel["targets"]:
        expr = target["expr"].replace("$__rate_interval", "10s").replace("$instance", ".*")
        assert "$" not in expr, expr
        if panel["title"] in MAY_BE_EMPTY:
            query(expr)
            wait(re.sub(r" > .*", "", expr))
        else:
            wait(expr)
        count += 1
ids = [panel["id"] for panel in dashboard["panels"]]
assert count > 30 and len(set(ids)) == len(ids), (count, ids)

for kind, name, expr in rules():
    short = re.sub(r"\[\d+m\]", "[10s]", expr)
    if kind == "record":
        wait(short)
        wait(name)  # it has been evaluated by Prometheus itself
        continue
    assert not query(short), f"{name} is true of a healthy server: {query(short)}"
    for metric in set(re.findall(r"quickmine_\w+|\bup\b", expr)):
        wait(metric)
END = query('count({__name__=~"quickmine_.*"})')
print(f"{count} queries, {END[0]['value'][1]} series")
