# SPDX-License-Identifier: BSD-3-Clause
"""renew.py PORT PID DIRECTORY - qm-rowcache's files DIRECTORY/cert and key are renewed, spoiled and renewed."""
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

PORT, PID, DIRECTORY = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
CERT, KEY, LOG = (os.path.join(DIRECTORY, name) for name in ("cert", "key", "rowcache.log"))


def connect():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    s = context.wrap_socket(socket.create_connection(("127.0.0.1", PORT), 60))
    s.settimeout(60)
    return s


def answers(s):
    s.sendall(b"PING\r\n")
    return s.recv(100) == b"+PONG\r\n"


def shown():
    with connect() as s:
        assert answers(s)
        return ssl.DER_cert_to_PEM_cert(s.getpeercert(True))


def text(path):
    with open(path) as file:
        return file.read()


def make(cert, key):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=localhost"], check=True, capture_output=True)


def reload_until(line):
    """It says that line once more."""
    before = text(LOG).count(line)
    os.kill(PID, signal.SIGHUP)
    end = time.monotonic() + 60
    while text(LOG).count(line) == before:
        assert time.monotonic() < end, f"not said: {line}; but: {text(LOG)[-1000:]}"
        time.sleep(.02)


kept = "; the certificate and key that were read before stay in use\n"
first = text(CERT)
old = connect()
assert answers(old) and shown() == first

shutil.move(CERT, CERT + ".old")
shutil.move(KEY, KEY + ".old")
make(CERT, KEY)
second = text(CERT)
assert shown() == first, "it is read without SIGHUP"
reload_until(f"{CERT} and {KEY} are read again")
assert shown() == second and answers(old)

# None; nonsense; another's key.
shutil.move(CERT, CERT + ".new")
reload_until("No such file or directory" + kept)
assert shown() == second
with open(CERT, "w") as file:
    file.write("nonsense\n")
reload_until(kept)
assert shown() == second
shutil.move(CERT + ".new", CERT)
shutil.move(KEY, KEY + ".new")
shutil.copy(KEY + ".old", KEY)
reload_until("key values mismatch" + kept)
assert shown() == second and answers(old)

for path in (CERT, KEY):
    shutil.move(path + ".old", path)
reload_until(f"{CERT} and {KEY} are read again")
assert shown() == first and answers(old)
