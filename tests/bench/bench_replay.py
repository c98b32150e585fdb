"""A recording of 1 GB: how long until its first numbers are on the screen, with its index and
without, and until its end and its begin are; and how much memory that takes. The reference is the
same with a recording of a minute, and the time in which a plain program reads the whole file.

Run by hand: python tests/bench/bench_replay.py [RECORDING]
Without one it writes its own, which takes some minutes.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import terminal

from perfprobe.sources.sim.source import Sim, open_sim
from perftop.recording.codec import Recorder, Timed

CPUS = 1024
MINUTE = 600
"""Frames."""
SIZE = 10**9
MOST_S = 60.0


def frames(machine: Sim) -> Iterator[Timed]:
    while True:
        yield from machine.poll()


def write(path: Path, size: int | None) -> None:
    """Time for so many bytes, or for a minute."""
    machine = open_sim(f"sim:turbo-drop,cpus={CPUS},packages=4,speed=max", 100_000_000)
    with path.open("wb") as file:
        recorder = Recorder(file.write, machine.hello)
        for message in islice(frames(machine), MINUTE if size is None else None):
            recorder.write(message)
            if size is not None and recorder.bytes >= size:
                break
        recorder.end()


class Viewer:
    """`perftop replay` on a terminal, for as long as it takes."""

    def __init__(self, path: Path) -> None:
        self._begin = time.monotonic()
        argv = [sys.executable, "-m", "perftop", "replay", str(path)]
        self._pid, self._fd = terminal.start(argv, 160, 50)
        self._drawn = b""

    def until(self, drawn: Callable[[bytes], bool]) -> float:
        """Seconds until something is on the terminal."""
        while not drawn(self._drawn):
            if time.monotonic() > self._begin + MOST_S:
                raise TimeoutError("it was never drawn")
            if select.select([self._fd], [], [], 0.5)[0]:
                self._drawn += os.read(self._fd, 1 << 16)
        return time.monotonic() - self._begin

    def press(self, key: bytes, drawn: Callable[[bytes], bool]) -> float:
        self._begin, self._drawn = time.monotonic(), b""
        os.write(self._fd, key)
        return self.until(drawn)

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self._pid}/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 1000

    def stop(self) -> None:
        terminal.stop(self._pid, self._fd)


def plain_s(path: Path) -> float:
    """To read all of its bytes."""
    begin = time.monotonic()
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    return time.monotonic() - begin


def looked_at(name: str, path: Path) -> None:
    read_s, viewer = plain_s(path), Viewer(path)
    try:
        opened_s = viewer.until(lambda drawn: b"REPLAY" in drawn and b"util" in drawn)
        opened_mb = viewer.peak_mb()
        end_s = viewer.press(b"$", lambda drawn: "· end".encode() in drawn)
        begin_s = viewer.press(b"0", lambda drawn: b" 0:00/" in drawn)
        peak_mb = viewer.peak_mb()
    finally:
        viewer.stop()
    size = path.stat().st_size / 1e6
    print(f"{name:<10}{size:>8.0f}{read_s:>9.2f}{opened_s:>9.2f}{opened_mb:>7.0f}"
          f"{end_s:>9.2f}{begin_s:>9.2f}{peak_mb:>7.0f}", flush=True)  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        minute, large, cut = (Path(directory) / name for name in ("minute", "whole", "cut"))
        write(minute, None)
        if len(sys.argv) > 1:
            large.symlink_to(Path(sys.argv[1]).absolute())
        else:
            write(large, SIZE)
        shutil.copy(large, cut)
        os.truncate(cut, cut.stat().st_size * 99 // 100)
        print("              MB   read s   open s  MB then   end s  begin s  MB most")
        for path in (minute, large, cut):
            looked_at(path.name, path)


if __name__ == "__main__":
    main()
