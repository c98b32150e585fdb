"""What an episode rests on, as detectors tell it: numbers whose keys name their unit, and these
codes. `output.episode_words` has the words for them."""

from __future__ import annotations

from typing import NamedTuple

BASE_CLOCK = "base"
"""The ceiling is the base clock, for no turbo table is known."""
KERNEL = "kernel"
"""Only the kernel told of it, when it was over."""


class Bit(NamedTuple):
    """A bit of a register, and how many polls found it set."""

    number: int
    part: str | None
    """Its name; None: the stream has none for it."""
    times: float


class Polled(NamedTuple):
    """The bits that polls found set."""

    bits: tuple[Bit, ...]
    polls: float
    """How often the register was read; 0: never, for the source has no such register."""


class Level(NamedTuple):
    """A SIMD level, and the share of the core's cycles spent at it."""

    number: int
    share: float


class Cap(NamedTuple):
    """A limit that was set, by its name in samples.turbo.CAPS."""

    by: str
    hz: float


class OutOf(NamedTuple):
    """A number beside the highest that it can be."""

    number: float
    highest: float


class Ran(NamedTuple):
    """A task that ran on a CPU."""

    pid: int
    comm: str
    cpu: int


class Crowd(NamedTuple):
    """Threads of the watched job that share a CPU."""

    threads: int
    cpu: int


class Host(NamedTuple):
    """The hypervisor below, by its name if it is known."""

    name: str | None
