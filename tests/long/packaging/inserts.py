# SPDX-License-Identifier: BSD-3-Clause
"""inserts.py FILE: inserts and reads rows until FILE exists, and writes how many there are into
FILE.rows; ends with 1 at the first statement that fails."""
import os
import subprocess
import sys

stop = sys.argv[1]
client = subprocess.Popen(["mariadb", "-BN", "--unbuffered", "shop"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
rows = 0
while not os.path.exists(stop):
    client.stdin.write(f"INSERT INTO t (pad) VALUES (REPEAT('x', 500));"
                       f"SELECT SUM(LENGTH(pad)) > 0 FROM t WHERE n > {rows} - 50;\n")
    client.stdin.flush()
    if client.stdout.readline().strip() != "1":
        sys.exit(f"a statement failed after {rows} rows")
    rows += 1
    with open(stop + ".rows.new", "w") as out:
        out.write(str(rows))
    os.rename(stop + ".rows.new", stop + ".rows")
client.stdin.close()
sys.exit(client.wait())
