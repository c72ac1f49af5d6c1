# SPDX-License-Identifier: BSD-3-Clause
"""sections - each asks the book for what it shows (book.py), and makes a Section of it."""

from dataclasses import dataclass

from report.recordings import WORKLOADS, read
from report.traces import Trace


@dataclass
class Context:
    """What a section needs."""

    store: object
    book: object
    jobs: object
    host: dict

    def recording(self, name):
        return read(self.store, name)

    def trace(self, name, level, whole=False):
        """None if there is no such recording, or what it is like is not known yet; whole:
        also when the comparison is quick."""
        recording = self.recording(name)
        if recording is None:
            return None
        trace = Trace(self.book, self.jobs, recording, level, whole)
        return trace if trace.ready else None

    def main(self, workload):
        """The workload's trace that is simulated and replayed."""
        from report.recordings import CLIENTS

        return self.trace(f"{workload.name}-{CLIENTS}", workload.level)

    def workloads(self):
        """Those that are there, with their traces."""
        for workload in WORKLOADS:
            trace = self.main(workload)
            if trace is not None:
                yield workload, trace


MISSING = "There is no recording for this, or it has not been looked at yet."
