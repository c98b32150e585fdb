"""Kills recordings at random times and reads them back: two sources, four sizes each.

Each recording must open, have frames without a gap, and be reported as incomplete. Prints a line
for each source and size, and one for all of them.

Run by hand: python tests/bench/kill_recordings.py [count] [seed]
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from perfprobe import wire
from perftop import cli
from perftop.base.errors import Failed
from perftop.recording.file import Recording

KINDS = {
    **{f"sim, {n} CPUs": ("sim:smt-mix,speed=max,cpus=" + str(n), "0.1") for n in (2, 16, 64, 256)},
    **{f"os, every {ms} ms": ("os", str(ms / 1000)) for ms in (10, 20, 50, 100)},
}
"""Source, and sample time in s."""
START_S = 30.0
LIFE_S = 1.0
"""Longest time in s from the creation of the file to the kill."""


def started(path: Path, source: str, sample: str) -> int:
    """Starts a process that records. It is forked, so it needs no imports."""
    if pid := os.fork():
        return pid
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os._exit(cli.main(["record", "-o", str(path), "--source", source, "--sample", sample]))


def killed(path: Path, kind: str, rng: random.Random) -> None:
    pid = started(path, *KINDS[kind])
    end_s = time.monotonic() + START_S
    while not path.exists() and time.monotonic() < end_s:
        time.sleep(0.002)
    time.sleep(rng.random() ** 2 * LIFE_S)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def check_recording(path: Path) -> tuple[str, int]:
    """Returns the fault of a recording in a word, and its number of frames."""
    if not path.exists():
        return "NO FILE", 0
    try:
        with Recording(path) as recording:
            messages = list(recording.messages())
            damage, checked = recording.damage or "", recording.checked
    except Failed as failed:
        return ("no hello" if "before it has begun" in str(failed) else str(failed)), 0
    frames = [message for message in messages if isinstance(message, wire.Frame)]
    gaps = sum(b.seq - a.seq != 1 + b.lost - a.lost for a, b in pairwise(frames))
    if gaps or not checked:
        return "GAP", len(frames)
    if damage.endswith("it has no end"):
        return "whole", len(frames)
    return ("torn" if damage.endswith("is incomplete") else damage or "NO WORD"), len(frames)


def main(count: int, seed: int) -> int:
    rng, total = random.Random(seed), Counter[str]()
    directory = Path(tempfile.mkdtemp(prefix="killed-"))
    for at, kind in enumerate(KINDS):
        outcomes, frames = Counter[str](), 0
        for turn in range(count * (at + 1) // len(KINDS) - count * at // len(KINDS)):
            path = directory / f"{at}-{turn}"
            killed(path, kind, rng)
            word, held = check_recording(path)
            outcomes[word] += 1
            frames += held
            if word in {"whole", "torn", "no hello"}:
                path.unlink()
        total += outcomes
        print(f"{kind}: {dict(outcomes)}, {frames} frames read back", flush=True)
    print(f"all {sum(total.values())}: {dict(total)}")
    return 0 if not set(total) - {"whole", "torn", "no hello"} else 1


if __name__ == "__main__":
    sys.exit(main(*[int(text) for text in sys.argv[1:]] + [1000, 1][len(sys.argv) - 1 :]))
