"""A program whose IPC changes by itself, with a sibling that runs intermittently."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import synth
from fakes import CpuLoad, Machine
from sessions import session_of

from perftop.model.kinds import Episode
from perftop.session.session import Session

SECOND = round(1e9 / synth.SAMPLE_NS)
"""Number of samples in a second."""
REST = CpuLoad(util=0.01, hz=3.0e9, system=0.0)
SIBLING_LOAD = CpuLoad(1.0, ipc=0.5)
PROGRAM, SIBLING = [4000, "program", 0.95], [4001, "sibling", 0.95]


@dataclass(frozen=True)
class Phases:
    seed: int
    depth: float = 0.3
    """Largest relative change of the IPC in a phase; 0: the program has no phases."""
    phase_s: float = 10.0
    """Mean length in s of a phase."""
    sibling_phase_s: float = 10.0
    """Mean length in s of the phases in which the sibling works or rests."""
    loss: float = 0.0
    """Share of the IPC that the sibling takes."""
    has_tasks: bool = True
    """Whether the tasks of the CPUs are known."""
    noise: float = 0.02
    """Relative standard deviation of the IPC from sample to sample."""


def episodes(phases: Phases, seconds: int) -> list[Episode]:
    """Returns the episodes in which the sibling slows the program."""
    rng = np.random.default_rng(phases.seed)
    count = seconds * SECOND
    speed = _levels(rng, count, phases.phase_s, 1 + phases.depth * rng.uniform(-1, 1, count))
    works = _levels(rng, count, phases.sibling_phase_s, (np.arange(count) + rng.integers(2)) % 2)
    changes = np.flatnonzero(np.diff(works))  # samples in which the sibling starts or stops
    works[changes] = rng.uniform(size=len(changes))
    speed *= (1 - phases.loss * works) * (1 + phases.noise * rng.standard_normal(count))
    machine = Machine(cores=1, ceiling_hz=REST.hz)  # no sample has an episode of a lower clock
    session, cursor, result = Session(machine.hello), 0, list[Episode]()
    for first in range(0, count, 256):
        frames = []
        for seq in range(first, min(count, first + 256)):
            machine.loads = {
                0: CpuLoad(1.0, ipc=1.5 * float(speed[seq])),
                1: replace(SIBLING_LOAD, util=float(works[seq])) if works[seq] else REST,
            }
            tasks = {"0": PROGRAM} | ({"1": SIBLING} if works[seq] else {})
            records = {"tasks": tasks} if phases.has_tasks and seq % SECOND == 0 else {}
            frames.append(machine.frame(seq, records=records))
        session_of(session, frames)
        news, cursor = session.log.ended_since(cursor)
        result += news
    every = [*result, *session.detector.running]
    return [e for e in every if e.kind == "neighbour" and e.cause == "sibling" and 0 in e.cpus]


def _levels(rng: np.random.Generator, count: int, mean_s: float, levels: np.ndarray) -> np.ndarray:
    """Returns (count,): levels in turn, each for a random number of samples."""
    lengths = np.maximum(1, rng.exponential(mean_s * SECOND, count).astype(int))
    return np.repeat(levels, lengths)[:count].astype(float)
