# SPDX-License-Identifier: BSD-3-Clause
"""metrics.py PORT: what the page for Prometheus answers; clients of it that never end a request do not keep
others out, and each that is beyond the bound takes the place of the oldest."""
import socket
import sys
import urllib.error
import urllib.request

PORT = int(sys.argv[1])
CROWD = 200


def connect():
    s = socket.create_connection(("127.0.0.1", PORT), timeout=60)
    return s


def ask(request):
    """All of the answer, until the server closes: its status, headers and text."""
    with connect() as s:
        s.sendall(request)
        s.shutdown(socket.SHUT_WR)
        data = b""
        while more := s.recv(1 << 16):
            data += more
    head, _, text = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    return lines[0].split(" ", 1)[1] if lines[0] else "", headers, text


def parsed(text):
    from prometheus_client.parser import text_string_to_metric_families
    found = {f.name: f for f in text_string_to_metric_families(text)}
    assert all(f.documentation.endswith(".") and f.type in ("counter", "gauge") for f in found.values())
    return found


with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=60) as page:
    assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4"), page.headers
    whole = page.read().decode()
assert "\nquickmine_rowcache_following 0\n" in whole and whole.endswith("\n"), whole
try:
    assert "quickmine_rowcache_connected_clients" in parsed(whole)
except ImportError:
    pass

for request, status, has_text in [
        (b"GET /metrics HTTP/1.0\r\n\r\n", "200 OK", True),
        (b"GET /metrics?x=y HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK", True),
        (b"GET /metrics HTTP/1.1\n\n", "200 OK", True),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK", False),
        (b"GET /metrics HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n", "200 OK", True),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", "405 Method Not Allowed", True),
        (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found", True),
        (b"GET /metricsx HTTP/1.1\r\n\r\n", "404 Not Found", True),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", "400 Bad Request", True),
        (b"GET\r\n\r\n", "400 Bad Request", True),
        (b"\r\n\r\n", "400 Bad Request", True),
        (b"\0" * 100 + b"\r\n\r\n", "400 Bad Request", True),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20000 + b"\r\n\r\n", "431 Request Header Fields Too Large", True),
        (b"x" * 20000, "431 Request Header Fields Too Large", True)]:
    got, headers, text = ask(request)
    assert got == status, (request[:40], got)
    length = int(headers["Content-Length"])
    assert length > 0 and len(text) == (length if has_text else 0), (request[:40], headers, len(text))
    assert headers["Connection"] == "close" and "\n" not in headers["Content-Type"]
# Who goes before the end of a request is given no answer.
assert ask(b"GET /metrics HTT")[0] == "" == ask(b"")[0]

held = []
for i in range(CROWD):
    s = connect()
    s.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    held.append(s)
for _ in range(5):
    assert ask(b"GET /metrics HTTP/1.1\r\n\r\n")[0] == "200 OK"
# The first ones have lost their places.
for s in held[:CROWD - 16]:
    try:
        assert s.recv(1) == b""
    except ConnectionResetError:
        pass
