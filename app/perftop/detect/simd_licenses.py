"""Detects cores that wide SIMD code keeps at a SIMD level although their clock does not drop for
that reason."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats, first_true
from perftop.detect.engine import (
    PAUSE_NS,
    DetectorInput,
    RunningEpisodes,
    ShareEpisode,
    ShareEpisodes,
)
from perftop.detect.low_clock_causes import LEVELS, MIN_ACTIVE_SHARE
from perftop.model.episode import Episode, Level
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import SampleBatch, SampleReader

START, END = MIN_ACTIVE_SHARE, MIN_ACTIVE_SHARE / 2
"""Shares of a core's cycles, at which an episode starts and below which it ends. From START on, a
level counts as the cause of a drop."""
MIN_SAMPLES = 2
"""Number of samples that must show the level. A single sample may be the edge of a drop that the
level has caused."""
MIN_MISSING = 0.01
"""Share of the ceiling. A clock that misses the ceiling by less counts as at the ceiling: a step of
the clock is two to three times as much."""
RUN_S, CYCLES, ALLOWED, FIRST = 2, 3, 4, 5
"""Indices in the sums of an episode: run time, cycles, run time times ceiling, and the cycles of
each level."""


class Licenses:
    """Detects SIMD levels without a drop of the clock."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._counters, self._episodes = reader.counters, episodes
        self._levels = [key for key in LEVELS if key in reader.counters.columns]
        self.available = bool(self._levels)
        self._licenses = ShareEpisodes(
            episodes, "license", START, END, reader.hello.sample_ns, after=MIN_SAMPLES,
            pause_ns=PAUSE_NS,
        )  # fmt: skip

    def calm(self, batch: SampleBatch, first: int, last: int) -> int:
        if not self._licenses.quiet:
            return first
        return first_true(batch.once(self._level_cycles) > 0, first, last)

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        cores = data.cores
        levels = data.sample.part(self._level_cycles)
        cycles, run_s = data.ran()
        with np.errstate(divide="ignore", invalid="ignore"):
            levels = np.minimum(
                levels / cores.max_of_threads(data.sample.values.top[INDEX["busy_hz"]]), 1.0
            )
        share = np.minimum(levels.sum(axis=0), 1.0)
        # A core in a drop is left out, because the drop includes its level.
        drops = [drop for drop in self._episodes.of_kind("turbo-drop") if drop.cause == "license"]
        share[cores.with_cpus([cpu for drop in drops for cpu in drop.cpus])] = 0.0
        more = [run_s, cycles, run_s * data.ceiling_hz, *np.nan_to_num(levels * cycles)]
        times = data.since_ns, data.time_ns
        ended = self._licenses.step(share, cycles, cores.group, cores.lists, *times, more)
        for running in self._licenses.running:
            self._describe(running)
        return ended

    def _level_cycles(self, batch: SampleBatch) -> Floats:
        """Returns (samples, levels, cores): the cycles of the core at each level. Each thread
        counts those of the whole core; see low_clock_causes.LEVEL_PREFIX."""
        moved = [self._counters.increments(batch.delta, key) for key in self._levels]
        by_core = [batch.cores.max_of_threads(counts) for counts in moved if counts is not None]
        return np.nan_to_num(np.stack(by_core, axis=1))

    def _describe(self, running: ShareEpisode) -> None:
        """Sets evidence and depth. The depth is how far the clock is below its ceiling, not the
        share of wide code."""
        sums = running.sums
        run_s, cycles, allowed = sums[[RUN_S, CYCLES, ALLOWED]].tolist()
        most = int(sums[FIRST:].argmax())
        level = Level(int(self._levels[most][-1]), float(sums[FIRST + most] / cycles))
        episode = running.episode
        episode.cause, episode.evidence = "level", {"simd": level}
        episode.evidence["busy_hz"] = round(cycles / run_s)
        if allowed > 0:
            missing = allowed - cycles
            episode.depth = missing / run_s if missing >= MIN_MISSING * allowed else 0.0
            episode.evidence["ceiling_hz"] = round(allowed / run_s)
        else:  # no ceiling is known
            episode.depth = None
