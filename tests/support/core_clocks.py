"""Turbo drops of cores whose clocks a test specifies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import increments
import numpy as np
import synth
from rate_streams import S, SteppedDetector, spans

from perfprobe.wire import Block, Counter
from perftop.detect.turbo_drops import SampleClocks, TurboDrops
from perftop.model.sample_reader import SampleReader

HZ = 3.0e9


class CoreClocks(SteppedDetector):
    """Simulated cores of two threads each, at a ceiling of 3 GHz."""

    def __init__(
        self, cores: int = 4, package: Sequence[Counter] = (), cpu: Sequence[Counter] = ()
    ) -> None:
        hello = synth.hello([synth.REF, synth.CYCLES, *cpu], cores=cores)
        hello.blocks.append(Block("package", "package", [synth.CEILING, *package]))
        super().__init__()
        self.cores = cores
        self.reader = SampleReader(hello)
        self.drops = TurboDrops(self.reader, self.detector)

    def advance(
        self, depth: float | Sequence[float] = 0.0, *, samples: int = 1, ns: int = S,
        ceiling: float = HZ, util: float | Sequence[float] = 1.0, **amounts: Any,
    ) -> CoreClocks:  # fmt: skip
        """Plays samples with clocks that are lower than HZ by the share `depth`. `util` is NaN for
        cores that are not read."""
        delta = increments.delta(self.reader.counters, amounts, abs(ns) / 1e9)
        for _ in range(samples):
            use = np.broadcast_to(np.asarray(util, float), self.cores)
            run_s = np.nan_to_num(use) * ns / 1e9
            cycles = run_s * HZ * (1 - np.asarray(depth))
            clocks = SampleClocks(run_s, cycles, use, np.full(self.cores, ceiling), delta)
            self.ended += self.drops.step(clocks, *self.step_of(ns))
        return self


CALM_SAMPLES, DROP_SAMPLES = 150, 50
"""Lengths of the two parts of a round of a noisy clock."""
MAX_EARLY_SAMPLES = 5
"""Number of samples before a drop in which its episode may begin."""


def drops_of_a_noisy_clock(noise: float, rounds: int) -> tuple[int, int]:
    """Plays rounds in which the clock is steady for 15 s, then 6 % lower for 5 s. Returns the
    number of detected drops, and of episodes without a drop. With noise of 2 %, a clock is 5 % low
    by chance some 200 times an hour."""
    rng, machine = np.random.default_rng(3), CoreClocks(cores=2)
    for _ in range(rounds):
        for depth in [0.0] * CALM_SAMPLES + [0.06] * DROP_SAMPLES:
            machine.advance((depth + rng.normal(0, noise, 2)).tolist())
    round_samples, drop = CALM_SAMPLES + DROP_SAMPLES, CALM_SAMPLES - MAX_EARLY_SAMPLES
    starts = [start for start, _ in spans([*machine.ended, *machine.running])]
    detected = {start // round_samples for start in starts if start % round_samples >= drop}
    return len(detected), sum(start % round_samples < drop for start in starts)
