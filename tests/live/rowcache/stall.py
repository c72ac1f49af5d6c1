# SPDX-License-Identifier: BSD-3-Clause
"""stall.py - between a client and MariaDB; holds up the binary log while FLAG exists.

Usage: stall.py PORT SOCKET FLAG [TEXT]
With TEXT: it holds up the answer of each query that has TEXT in it, instead of the log; and makes FLAG.held when MariaDB has given one.
While FLAG.cut exists, a connection ends, and FLAG.was-cut is made, where a query has the text in that file.
"""
import os
import socket
import sys
import threading
import time

PORT, SOCKET, FLAG = int(sys.argv[1]), sys.argv[2], sys.argv[3]
TEXT = sys.argv[4].encode() if len(sys.argv) > 4 else None
COM_BINLOG_DUMP = 0x12


def pump(source, target, on_data):
    try:
        while data := source.recv(65536):
            on_data(data)
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(client):
    # MariaDB sends an answer in pieces: each but the first would wait for 40 ms.
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = socket.socket(socket.AF_UNIX)
    held = threading.Event()

    def from_client(data):
        if os.path.exists(FLAG + ".cut"):
            with open(FLAG + ".cut", "rb") as file:
                text = file.read()
            if text and text in data:
                open(FLAG + ".was-cut", "w").close()
                raise ConnectionAbortedError
        if TEXT in data if TEXT else len(data) > 4 and data[4] == COM_BINLOG_DUMP:
            held.set()
        elif TEXT:
            held.clear()

    def from_server(data):
        if TEXT and held.is_set() and os.path.exists(FLAG):
            open(FLAG + ".held", "w").close()
        while held.is_set() and os.path.exists(FLAG):
            time.sleep(0.005)

    try:
        server.connect(SOCKET)
    except OSError:
        client.close()
        return
    threading.Thread(target=pump, args=(client, server, from_client), daemon=True).start()
    pump(server, client, from_server)


listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", PORT))
listener.listen(64)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
