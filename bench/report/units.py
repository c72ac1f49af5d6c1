# SPDX-License-Identifier: BSD-3-Clause
"""units - how figures are written."""

# name: (factor, decimals, what follows, on the same line)
UNITS = {
    "percent": (100, 1, "\u00a0%"),
    "count": (1, 0, ""),
    "decimal": (1, 2, ""),
    "fixed": (1, 1, ""),
    "us": (0.001, 2, "\u00a0ms"),
    "ms": (1, 0, "\u00a0ms"),
    "times": (1, 2, "\u00a0×"),
    "mib": (1 / (1 << 20), 1, "\u00a0MiB"),
    "seconds": (1, 1, "\u00a0s"),
}


def write(value, unit):
    factor, decimals, after = UNITS[unit]
    return f"{value * factor:,.{decimals}f}{after}"


def size(value):
    """Of a cache, for people."""
    return write(value, "mib")
