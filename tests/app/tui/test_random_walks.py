"""Random keys, clicks and resizes: nothing fails, and what is written is what would be drawn."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from nights import by_day
from painted import messages
from taped import written
from walking import live, replay

FRAMES, STEPS = 400, 50
SEEDS = by_day(range(60), [0, 3])
"""By day a live walk over few CPUs, and one in a recording of many."""


@pytest.mark.parametrize("seed", SEEDS)
def test_walks(tmp_path: Path, seed: int) -> None:
    feed = messages((2, 8)[seed // 2 % 2], FRAMES, ("guest", "smt-mix")[seed // 4 % 2])
    rng = random.Random(seed)
    if seed % 2:
        path = written(tmp_path / "recording", feed[0], feed[1:])  # type: ignore[arg-type]
        assert asyncio.run(replay(rng, path, STEPS)) == []
    else:
        assert asyncio.run(live(rng, feed, STEPS)) == []
