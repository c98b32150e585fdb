"""Makes the hello of this machine: its identity, its blocks, and what is missing and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from perfprobe import __version__, wire
from perfprobe.cpu import identity, topology
from perfprobe.kernel import access
from perfprobe.kernel.settings import settings
from perfprobe.machine import cpu_files
from perfprobe.machine.parts import Part, drop_served_keys
from perfprobe.native import tsc_rate
from perfprobe.wire import Block, Cpu, Missing, Multiplier, Rate, Turbo

if TYPE_CHECKING:
    from perfprobe.kernel.job_threads import Watch

Rates = tuple[list[Multiplier], Rate | None]


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """The contents of the hello that do not follow from the parts."""

    source: str = "os"
    smt_methods: Sequence[str] = ("bounds",)
    """Methods used if a core has several threads, best first."""
    rates: Callable[[Rate | None], Rates] = lambda _: ([], None)
    """Multipliers and base frequency for a TSC of this rate."""
    turbo: Sequence[Turbo] = ()


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The readings of all clocks at one moment."""

    raw_ns: int
    tsc: int
    wall_ns: int

    @classmethod
    def now(cls) -> Self:
        raw_ns, tsc, _ = tsc_rate.bracket()
        return cls(raw_ns, tsc, time.time_ns())


@dataclass(frozen=True, slots=True)
class Setup:
    """A source that is put together and ready for its hello."""

    root: Path
    began: ClockReading
    """The clocks before the first sample, so that no sample is older than the hello."""
    rows: list[Cpu]
    selected: list[int] | None
    sample_ns: int
    tsc_hz: Rate | None
    """The measured rate; None below a sysroot, where stamps are raw."""
    blocks: Sequence[Block]
    own: Collection[str]
    """Names of the blocks of CPUs that only a pinned thread can read."""
    parts: Sequence[Part]
    missing: Sequence[Missing]
    """What was missing before any part was opened."""
    polled_missing: Sequence[Missing]
    unpinned: list[int]
    """CPUs on which none of the lanes may run."""
    watch: Watch | None


def hello_of(setup: Setup, about: SourceInfo) -> wire.Hello:
    root, rows = setup.root, setup.rows
    cores = topology.cores(rows)
    multipliers, base_hz = about.rates(setup.tsc_hz)
    turbo, unknown = cpu_files.cpufreq_turbo(root, rows)
    turbo = [*about.turbo, *turbo]
    return wire.Hello(
        perftop=__version__,
        source=about.source,
        host=identity.hostname(root),
        kernel=identity.kernel(root),
        boot_id=identity.boot_id(root),
        wall_ns=setup.began.wall_ns,
        raw_ns=setup.began.raw_ns,
        sample_ns=setup.sample_ns,
        identity=identity.identity(root),
        virtualisation=identity.virtualisation(root),
        topology=rows,
        cores=cores,
        packages=topology.packages(rows),
        blocks=_blocks(setup),
        stamp="tsc" if setup.tsc_hz else "raw",
        tsc=setup.began.tsc if setup.tsc_hz else None,
        tsc_hz=setup.tsc_hz,
        base_hz=base_hz or cpu_files.cpufreq_base_hz(root, rows),
        multipliers=multipliers,
        smt_methods=_methods(setup, about) if any(len(c) > 1 for c in cores) else ["single"],
        selected=setup.selected,
        watch=None if setup.watch is None else setup.watch.text,
        turbo=turbo,
        settings=settings(root),
        missing=_missing(setup, [] if turbo else unknown),
    )


def _methods(setup: Setup, about: SourceInfo) -> list[str]:
    """SMT methods, best first: those that count, then traced, then bounds."""
    keys = {counter.key for part in setup.parts for counter in part.counters}
    counted = [method for method in about.smt_methods if method != "bounds"]
    return [*counted, *(["traced"] if "both_s" in keys else []), "bounds"]


def _blocks(setup: Setup) -> list[Block]:
    """The blocks. CPUs where no lane may run lack the counters that only the CPU itself can read;
    metrics then use what the system reports about these CPUs."""
    if not setup.unpinned:
        return [*setup.blocks]
    pinned = sorted({row.cpu for row in setup.rows} - set(setup.unpinned))
    return [_pinned(b, pinned) if b.name in setup.own else b for b in setup.blocks]


def _pinned(block: Block, pinned: Sequence[int]) -> Block:
    counters = [
        replace(c, cpus=[cpu for cpu in pinned if c.cpus is None or cpu in c.cpus])
        for c in block.counters
    ]
    return replace(block, counters=counters)


def _missing(setup: Setup, turbo: Sequence[Missing]) -> list[Missing]:
    of_parts = [missing for part in setup.parts for missing in part.missing]
    counters = [counter for block in setup.blocks for counter in block.counters]
    missing = drop_served_keys([*setup.missing, *turbo, *of_parts, *setup.polled_missing], counters)
    if setup.unpinned:
        why = "outside the CPU set of perftop: no thread of it may run there"
        fix = "start perftop outside the container or cpuset"
        counters_of_cpus = (counter for part in setup.parts for counter in part.counters)
        missing += [Missing(counter.key, why, fix, setup.unpinned) for counter in counters_of_cpus]
    if hidden := access.hidden_tasks(setup.root):
        missing.append(Missing("tasks", hidden.why, hidden.fix))
    return [*missing, *(setup.watch.missing if setup.watch is not None else [])]
