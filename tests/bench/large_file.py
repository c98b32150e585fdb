"""Writes a recording of more than 4 GiB and reads it back: all of it, from a time after 4 GiB,
without its end, and with damage after 4 GiB. Prints a line for each, and deletes the file.

Run by hand: python tests/bench/large_file.py [MIB] [DIRECTORY]   (4400 in /tmp; quick: 50)
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("support", "bench")]

import fakes  # noqa: E402

from perfprobe import wire  # noqa: E402
from perftop.recording.file import Recording  # noqa: E402
from perftop.recording.writer import Writer  # noqa: E402

MACHINE = fakes.Machine(cores=2048, threads=2)
FIRST = MACHINE.frame(0)


def frame(seq: int) -> wire.Frame:
    """A frame whose counters are random, so that it cannot be packed."""
    rows = FIRST.blocks["cpu"]
    size = len(rows.values)
    words = hashlib.shake_256(str(seq).encode()).digest(1 << 16) * (1 + (size >> 16))
    blocks = FIRST.blocks | {"cpu": dataclasses.replace(rows, values=words[:size])}
    time_ns = FIRST.time_ns + seq * MACHINE.hello.sample_ns
    return dataclasses.replace(FIRST, seq=seq, time_ns=time_ns, blocks=blocks)


def read(path: Path, since: int, until: int) -> tuple[int, str]:
    """Number of unchanged frames from this `seq` on, and the damage."""
    right = 0
    with Recording(path) as recording:
        for message in recording.messages(frame(since).time_ns):
            if isinstance(message, wire.Frame) and since <= message.seq < until:
                right += message == frame(message.seq)
        return right, recording.damage or "no damage"


def flip_byte(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x55]))


def main(words: list[str]) -> int:
    size = int(words[0] if words else 4400) << 20
    bad = 0
    with tempfile.TemporaryDirectory(dir=words[1] if words[1:] else None) as directory:
        path = Path(directory) / "large.perftop"
        writer, count = Writer(path, MACHINE.hello), 0
        while count % 100 or path.stat().st_size < size:
            writer.write(frame(count))
            count += 1
        writer.end()
        last, end = count - 100, path.stat().st_size

        def show(what: str, act: Callable[[], tuple[int, str]], least: int, damage: str) -> None:
            nonlocal bad
            since_s = time.monotonic()
            right, text = act()
            is_good = right >= least and damage in text
            bad += not is_good
            memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            print(f"{'✓' if is_good else '✗'} {what:18} {right} frames, {text}, "
                  f"{time.monotonic() - since_s:.1f} s, {memory_mb} MB", flush=True)  # fmt: skip

        print(f"  {count} frames, {end} bytes", flush=True)
        show("whole", lambda: read(path, 0, count), count, "no damage")
        show("its last part", lambda: read(path, last, count), 100, "no damage")
        flip_byte(path, end - end // count * 50)
        show("damage in it", lambda: read(path, last, count), 60, "damaged")
        os.truncate(path, end - 100)
        show("without its end", lambda: read(path, last, count), 60, "1 more place")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
