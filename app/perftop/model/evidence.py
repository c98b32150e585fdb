"""Evidence of an episode as detectors give it: numbers whose keys name their unit, and the types
below. `output.episode_words` puts them into words.
"""

from __future__ import annotations

from typing import NamedTuple

BASE_CLOCK = "base"
"""The ceiling is the base clock, because no turbo table is known."""
KERNEL = "kernel"
"""Only the kernel reported it, after its end."""


class Bit(NamedTuple):
    """A bit of a register, and how many polls found it set."""

    number: int
    part: str | None
    """Name of the bit; None: the stream has no name for it."""
    times: float


class Polled(NamedTuple):
    """The bits that polls found set."""

    bits: tuple[Bit, ...]
    polls: float
    """Number of reads of the register; 0: the source has no such register."""


class Level(NamedTuple):
    """A SIMD level, and the share of the core's cycles spent at it."""

    number: int
    share: float


class Cap(NamedTuple):
    """A limit that somebody set: its name in samples.turbo.CAPS, and its clock in Hz."""

    by: str
    hz: float


class OutOf(NamedTuple):
    """A number and the highest value it can have."""

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
    """The hypervisor of this guest; its name is None if it is not known."""

    name: str | None


class Took(NamedTuple):
    """A group of resctrl, and what it moved from and to memory."""

    group: str
    bytes_per_s: float
