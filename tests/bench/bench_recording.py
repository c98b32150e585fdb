"""What recordings cost: bytes an hour, and CPU time of a frame written, read and exported. How long
a big one takes to open is in bench_replay.py.

Run by hand: python tests/bench/bench_recording.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import timing
from exported import export
from simulated import SAMPLE_NS, messages
from taped import written

from perfprobe import wire
from perftop.recording.codec import Timed
from perftop.recording.file import Recording
from perftop.session.session import Session
from perftop.verbs.export import FORMS

FRAMES = 640
SIZES = (2, 64, 256, 1024)
KINDS = ("idle", "smt-mix")
HOUR = 3600 * 1_000_000_000 // SAMPLE_NS
"""Samples."""


def cpu_us(work: Callable[[], object]) -> float:
    """Time by frame, where the work is on all of them."""
    start = time.process_time_ns()
    work()
    return (time.process_time_ns() - start) / FRAMES / 1e3


def applied(hello: wire.Hello, found: Sequence[Timed]) -> None:
    session = Session(hello)
    for message in found:
        session.apply(message)


def read(path: Path) -> None:
    with Recording(path) as recording:
        for _ in recording.messages():
            pass


def costs(path: Path, cpus: int) -> list[tuple[str, float, float]]:
    """Reference: making numbers of the same frames."""
    hello, found = messages(f"sim:smt-mix,cpus={cpus}", FRAMES)
    reference = cpu_us(lambda: applied(hello, found))
    rows = [("record", cpu_us(lambda: written(path, hello, found)), reference)]
    rows.append(("read", cpu_us(lambda: read(path)), reference))
    rows += [(f"export {form}", cpu_us(partial(export, path, form)), reference) for form in FORMS]
    return [(f"{what}, {cpus} CPUs", mine, other) for what, mine, other in rows]


def sizes(path: Path, cpus: int) -> None:
    for kind in KINDS:
        hello, found = messages(f"sim:{kind},cpus={cpus}", FRAMES)
        size = written(path, hello, found).stat().st_size
        print(f"{cpus:>6} CPUs {kind:8}{size / FRAMES:>10.0f} B a frame"
              f"{size / FRAMES * HOUR / 1e6:>10.0f} MB an hour")  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "recording"
        for n in SIZES:
            sizes(path, n)
        for n in SIZES:
            timing.table("CPU time of a frame", costs(path, n))
