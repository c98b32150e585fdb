"""Sends random keys, clicks and resizes to the screen, alternately on a live simulated machine and
on a recording. Prints a line with the seed for each walk that failed, and one for all of them. Run
by hand: PYTHONPATH=tests/support python tests/bench/walk_screen.py [count] [seconds] [first seed]
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from random_walks import walk_live, walk_replay
from recording_files import write_recording
from terminal_apps import messages

CPUS, FRAMES, STEPS = (2, 8, 64), 1500, 150


def main(count: int, seconds: float, first: int) -> int:
    feeds = [messages(cpus, FRAMES) for cpus in CPUS]
    directory = Path(tempfile.mkdtemp(prefix="walks-"))
    paths = [write_recording(directory / str(i), feed[0], feed[1:]) for i, feed in enumerate(feeds)]  # type: ignore[arg-type]
    end_s, result, bad = time.monotonic() + seconds, 0, 0
    for seed in range(first, first + count):
        if time.monotonic() > end_s:
            break
        rng, i = random.Random(seed), seed // 2 % len(CPUS)
        walk = walk_replay(rng, paths[i], STEPS) if seed % 2 else walk_live(rng, feeds[i], STEPS)
        wrong = asyncio.run(walk)
        result, bad = result + 1, bad + bool(wrong)
        for text in wrong[:1]:
            print(f"seed {seed}, {CPUS[i]} CPUs: {text}", flush=True)
    print(f"{result} walks of up to {STEPS} steps, {bad} went wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    asked = [float(text) for text in sys.argv[1:]]
    count, seconds, first = asked + [1000.0, 600.0, 1.0][len(asked) :]
    sys.exit(main(int(count), seconds, int(first)))
