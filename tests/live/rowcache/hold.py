# SPDX-License-Identifier: BSD-3-Clause
"""hold.py SOCKET REDIS FLAG TEXT - between qm-rowcache and Redis.

While FLAG exists, what clients send is held, on the connections that were there when it was made; others are
served.  FLAG.held says that TEXT is held.  What comes after FLAG.cut was made is never delivered, as if that connection had broken just there.  When
FLAG has gone, what was held is delivered, though the client may have gone; FLAG.done says that Redis has answered."""
import os
import select
import socket
import sys
import threading

SOCKET, REDIS, FLAG, TEXT = sys.argv[1:]


def serve(client):
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(REDIS)
    except OSError:
        client.close()
        return
    kept, gone, cut, held = b"", False, False, False
    while not (gone and not held):
        if held or os.path.exists(FLAG):
            held = True
        ready, _, _ = select.select([server] + ([] if gone else [client]), [], [], .005)
        if client in ready:
            data = client.recv(65536)
            gone = not data
            cut = cut or os.path.exists(FLAG + ".cut")
            if held:
                kept += b"" if cut else data
                if TEXT.encode() in kept:
                    open(FLAG + ".held", "w").close()
            elif data:
                server.sendall(data)
        if server in ready:
            data = server.recv(65536)
            if not data:
                break
            if not held and not gone:
                client.sendall(data)
        if held and not os.path.exists(FLAG):
            server.sendall(kept)
            if kept:
                server.recv(65536)
            open(FLAG + ".done", "w").close()
            break
    client.close()
    server.close()


def safely(client):
    try:
        serve(client)
    except OSError:
        client.close()


def serve_new(client):
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(REDIS)
        while True:
            ready, _, _ = select.select([server, client], [], [])
            for a, b in ((client, server), (server, client)):
                if a in ready:
                    data = a.recv(65536)
                    if not data:
                        raise OSError
                    b.sendall(data)
    except OSError:
        client.close()
        server.close()


listener = socket.socket(socket.AF_UNIX)
listener.bind(SOCKET)
listener.listen(64)
while True:
    accepted = listener.accept()[0]
    threading.Thread(target=serve_new if os.path.exists(FLAG) else safely, args=(accepted,), daemon=True).start()
