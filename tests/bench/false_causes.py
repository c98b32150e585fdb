"""Counts episodes that name a false cause: in an hour of programs with phases whose sibling does
not slow them, and in a day of a calm machine. Prints a line for each run, and exits with 1 if any
has an episode that names a cause.

Run by hand: PYTHONPATH=tests/support python tests/bench/false_causes.py [HOURS] (24 and 1)
"""

from __future__ import annotations

import sys
import time

from phases import Phases, episodes
from sim_truth import play_episodes

CALM = "steady", "idle", "jitter", "smt-mix"
SECOND = 1_000_000_000
NO_CAUSE = {"ramp", "suspect", "online", "offline"}
"""Kinds of episodes that name no cause."""


def main() -> int:
    hours = float(sys.argv[1]) if sys.argv[1:] else 0.0
    false = 0
    for depth in (0.1, 0.2, 0.3, 0.5):
        for phase_s in (3.0, 10.0, 30.0):
            started = time.monotonic()
            result = episodes(Phases(1, depth, phase_s), int(3600 * (hours or 1.0)))
            false += len(result)
            print(f"phases of {depth:.0%} and {phase_s:g} s: {len(result)} siblings blamed,"
                  f" {time.monotonic() - started:.0f} s")  # fmt: skip
    for scenario in CALM:
        started = time.monotonic()
        spec = f"{scenario},cpus=8,packages=1,seed=1"
        _, every = play_episodes(spec, SECOND, 3600 * (hours or 24.0))
        named = [episode for episode in every if episode.kind not in NO_CAUSE]
        false += len(named)
        print(f"{scenario}: {len(named)} episodes with a cause, {len(every)} in all,"
              f" {time.monotonic() - started:.0f} s")  # fmt: skip
    return min(false, 1)


if __name__ == "__main__":
    raise SystemExit(main())
