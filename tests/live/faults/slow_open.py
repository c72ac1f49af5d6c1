# SPDX-License-Identifier: BSD-3-Clause
"""slow_open.py SOCKET STALL INNER: an NBD server that says nothing while the file STALL is there.

Then it passes on what the server at INNER says."""
import os
import socket
import sys
import threading
import time

path, stall, inner = sys.argv[1:]


def pump(source, to):
    try:
        while data := source.recv(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one of them has gone


with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(path)
    listener.listen(64)
    while os.path.exists(stall):
        time.sleep(.05)
    while True:
        client, _ = listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(inner)
        for ends in ((client, server), (server, client)):
            threading.Thread(target=pump, args=ends, daemon=True).start()
