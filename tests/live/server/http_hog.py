# SPDX-License-Identifier: BSD-3-Clause
"""http_hog.py ADDRESS:PORT: clients that send a byte now and then, and read nothing, take all
places of the statistics over HTTP, and come back; somebody else is answered all the same.  So he is
where they ask and are answered all the time, over connections that they keep."""
import http.client
import socket
import sys
import threading

host, port = sys.argv[1].rsplit(":", 1)
stop = threading.Event()
begun = threading.Semaphore(0) # a hog has connected


def hog():
    """Never ends a request, and begins anew when it is thrown out."""
    s = None
    while not stop.wait(.3):
        try:
            if not s:
                s = socket.create_connection((host, int(port)), timeout=5)
                s.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ")
                begun.release()
            s.send(b"a")
        except OSError:
            if s:
                s.close()
            s = None


def asking():
    c = None
    while not stop.wait(.3):
        try:
            if not c:
                c = http.client.HTTPConnection(host, int(port), timeout=5)
                c.connect()
                begun.release()
            c.request("GET", "/healthz")
            c.getresponse().read()
        except (OSError, http.client.HTTPException):
            if c:
                c.close()
            c = None


def ask(timeout):
    c = http.client.HTTPConnection(host, int(port), timeout=timeout)
    c.request("GET", "/healthz")
    answer = c.getresponse().read()
    c.close()
    return answer


for kind in hog, asking:
    stop.clear()
    while begun.acquire(blocking=False):
        pass
    hogs = [threading.Thread(target=kind) for _ in range(24)]
    for t in hogs:
        t.start()
    try:
        for _ in range(16): # all places
            assert begun.acquire(timeout=60)
        answered = 0
        for _ in range(8):
            try:
                answered += ask(30) == b"ok\n"
            except (OSError, http.client.HTTPException) as e:
                print("not answered:", e)
            if answered == 5:
                break
        assert answered == 5, (kind, answered)
    finally:
        stop.set()
        for t in hogs:
            t.join()
    assert ask(60) == b"ok\n"
