# SPDX-License-Identifier: BSD-3-Clause
"""host - the machine and the versions that figures were made with."""

import os
import platform
import subprocess


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "not there"
    return (done.stdout or done.stderr).split("\n")[0].strip()


def value_of(path, key):
    """Of a line `key : value` in a file of /proc."""
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        pass
    return "unknown"


def describe(source, build, command):
    """In the order in which it is shown."""
    def built(key):
        try:
            with open(build / "CMakeCache.txt", encoding="utf-8") as file:
                for line in file:
                    if line.startswith(key):
                        return line.split("=", 1)[1].strip()
        except OSError:
            pass
        return ""

    release = {}
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        pass
    memory = value_of("/proc/meminfo", "MemTotal").removesuffix(" kB")
    return {
        "CPU": value_of("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": f"{int(memory) / (1 << 20):.1f} GiB" if memory.isdigit() else memory,
        "kernel": platform.release(),
        "distribution": release.get("PRETTY_NAME", "unknown"),
        "QuickMine": first_line("git", "-C", str(source), "describe", "--always", "--dirty"),
        "build": f"{built('CMAKE_BUILD_TYPE:')} {built('QM_SANITIZE:')}".strip() or "unknown",
        "compiler": first_line("cc", "--version"),
        "nbdkit": first_line("nbdkit", "--version"),
        # Its name, version and platform: what follows in parentheses may be a slogan.
        "MariaDB": first_line("mariadbd", "--version").split(" (")[0],
        "sysbench": first_line("sysbench", "--version"),
        "command": command,
    }
