# SPDX-License-Identifier: BSD-3-Clause
"""traces - the part of a recording that is simulated and replayed.

As in the paper (§5.3) its first half is for training and for warming up, and its second
half is measured.  A quick comparison takes the beginning of a long recording only.
"""

QUICK_READS = 600_000


class Trace:
    """A recording with how many of its read requests are used; None of it is known as
    long as `ready` is false: its units are wanted then."""

    def __init__(self, book, jobs, recording, level, whole=False):
        self.book, self.jobs, self.recording, self.level = book, jobs, recording, level
        self.info = book.ask(jobs.info(recording, level))
        self.ready = self.info is not None
        if not self.ready:
            return
        reads = self.info.get("reads")
        self.reads = min(reads, QUICK_READS) if jobs.quick and not whole else reads
        self.warmup = self.reads // 2

    @property
    def detangled(self):
        """The level at which reads are separated by thread: a database may announce its
        clients as connections."""
        def blocks(kind):
            about = self.info.get(f"kinds.{kind}")
            return about["contexts"] * about["blocks_read"]["mean"] if about else 0

        return "connection" if blocks("connection") > blocks("thread") else "thread"

    @property
    def name(self):
        return self.recording.name

    def all(self):
        """The part that is used."""
        return self.cut(0, self.reads)

    def first(self):
        return self.cut(0, self.warmup)

    def cut(self, skip, count):
        return self.jobs.cut(self.recording, skip, count)

    def evidence(self):
        return self.book.ask(self.jobs.evidence(
            self.recording, self.level, self.warmup, self.reads))

    def trained(self, level="none"):
        return self.jobs.train(self.name, self.first(), level)

    def sim(self, label, options, trained=False, warmup=None):
        """Asks for a simulation; what counts is the second half."""
        warmup = self.warmup if warmup is None else warmup
        return self.book.ask(self.jobs.sim(
            self.name, self.all(), label, (*options, "--warmup", str(warmup)),
            self.trained() if trained else None))
