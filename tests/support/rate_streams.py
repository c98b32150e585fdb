"""A detector that a test advances step by step, and streams whose counters advance at given
rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import synth
from sessions import session_of

from perfprobe import wire
from perfprobe.wire import Block, Counter, Frame, Rows
from perftop.detect.engine import RunningEpisodes
from perftop.model.kinds import Episode
from perftop.model.sample_reader import Sample
from perftop.session.session import Session

S = synth.SAMPLE_NS
NS = 1e-9
STEAL = synth.counter("stat_steal_s", "s", scale=NS, bits=64)
IDLE = synth.counter("idle_s", "s", scale=NS, bits=64)
BUSY = synth.counter("busy_s", "s", scale=NS, bits=64)
Rate = float | Sequence[float]


def spans(episodes: Sequence[Episode]) -> list[tuple[float, float | None]]:
    """Returns the start and the end of each episode, in samples; the end is None while it runs."""
    return [(e.start_ns / S, None if e.end_ns is None else e.end_ns / S) for e in episodes]


class RateStream:
    """A stream of cores with two threads in one package. A rate is the increase of a counter per
    second, or the value of a gauge. For flags it is the share of polls that saw each part; a sample
    has 100 polls, or the rate KEY_polls. A sequence has one rate for each row, or for each part of
    flags. Missing rates are unchanged."""

    def __init__(
        self,
        kind: str,
        cpu: Sequence[Counter],
        *,
        package: Sequence[Counter] = (),
        core: Sequence[Counter] = (),
        cores: int = 2,
        **changes: Any,
    ) -> None:
        self.hello = synth.hello(cpu, cores=cores, core=core, **changes)
        if package:
            self.hello.blocks.append(Block("package", "package", [*package]))
        self.kind, self.session, self.ns, self.seq = kind, Session(self.hello), 0, 0
        self.rates: dict[str, Rate] = {}
        self.offline_cpus: set[int] = set()
        self.sums = {
            block.name: np.zeros((self.hello.rows(block.scope), block.columns))
            for block in self.hello.blocks
        }
        self.session.apply(self._frame())

    def advance(self, samples: int = 1, *, ns: int = S, **rates: Any) -> RateStream:
        self.rates |= rates
        frames = []
        for _ in range(samples):
            for block in self.hello.blocks:
                self._move(block, ns)
            self.ns += ns
            frames.append(self._frame())
        session_of(self.session, frames)
        return self

    def _move(self, block: Block, ns: int) -> None:
        sums = self.sums[block.name]
        for first, counter in wire.with_columns(block.counters):
            rate = np.array(self.rates.get(counter.key, 0.0), float)
            if counter.kind == "gauge":
                sums[:, first] = rate / counter.scale
            elif counter.kind == "flags":
                polls = self.rates.get(f"{counter.key}_polls", 100)
                sums[:, first] += polls
                sums[:, first + 1 : first + counter.columns] += polls * rate
            else:
                sums[:, first] += rate * ns / 1e9 / counter.scale

    def _frame(self) -> Frame:
        blocks = {}
        stamp = int(self.ns * synth.TSC_HZ / 1e9)
        for block in self.hello.blocks:
            values = np.rint(self.sums[block.name]).astype(np.uint64)
            rows = len(values)
            head = np.tile(
                np.array([stamp, stamp + 100, 0, 0, wire.ROW_SAMPLED], np.uint64), (rows, 1)
            )
            if block.scope == "cpu":
                head[[*self.offline_cpus], 4] = wire.ROW_OFFLINE
            words = -(-block.columns // 64)
            valid = np.full((rows, words), 2**64 - 1, np.uint64)
            blocks[block.name] = Rows(head.tobytes(), valid.tobytes(), values.tobytes())
        self.seq += 1
        return Frame(self.seq - 1, self.ns, blocks)

    @property
    def running(self) -> list[Episode]:
        return [e for e in self.session.detector.running if e.kind == self.kind]

    @property
    def ended(self) -> list[Episode]:
        return [e for e in self.session.ended if e.kind == self.kind]

    def spans(self) -> list[tuple[float, float | None]]:
        return spans([*self.ended, *self.running])


def sample_with(results: dict[Callable[..., Any], Any], **fields: Any) -> Sample:
    """Returns a sample that has only these results and fields."""
    return cast(Sample, SimpleNamespace(get=results.__getitem__, **fields))


class SteppedDetector:
    """A detector that the test advances step by step, with its time and its episodes."""

    def __init__(self) -> None:
        self.detector = RunningEpisodes()
        self.ended: list[Episode] = []
        self.now_ns = 0

    def next_step(self, ns: int = S) -> tuple[int, int]:
        """Advances the time by `ns`; returns start and end of this step."""
        since_ns, self.now_ns = self.now_ns, self.now_ns + ns
        return since_ns, self.now_ns

    @property
    def running(self) -> list[Episode]:
        return self.detector.running

    def spans(self) -> list[tuple[float, float | None]]:
        return spans([*self.ended, *self.running])
