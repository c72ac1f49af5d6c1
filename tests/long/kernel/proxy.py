#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""proxy.py PORT-FILE PORT SOCKET - passes TCP connections to 127.0.0.1:PORT (0: any; the
number is written to the file) on to a Unix socket.  SIGUSR1 cuts the oldest one that is
left, as a failing network does."""
import asyncio
import os
import signal
import sys

connections = []


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


async def serve(reader, writer):
    try:
        there_reader, there_writer = await asyncio.open_unix_connection(sys.argv[3])
    except OSError:
        writer.close()
        return
    connections.append(writer)
    await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
    if writer in connections:
        connections.remove(writer)


def cut():
    connections.pop(0).transport.abort()


async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, cut)
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[2]))
    with open(sys.argv[1] + ".new", "w") as file:
        print(server.sockets[0].getsockname()[1], file=file)
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    await server.serve_forever()


asyncio.run(main())
