"""What episodes cost, to tell the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from perftop.samples.episode import KINDS

if TYPE_CHECKING:
    from perftop.samples.episode import Episode

_RANKS = {kind: rank for rank, kind in enumerate(KINDS)}
STOLEN = "steal", "hypervisor"
"""Group of what the hypervisor takes, which two detectors tell."""


def group(episode: Episode) -> tuple[str, str]:
    """Episodes of one group are told in one sentence."""
    stolen = episode.kind == "steal" or (episode.kind, episode.cause) == ("neighbour", STOLEN[1])
    return STOLEN if stolen else (episode.kind, episode.cause)


def cost(episodes: Iterable[Episode]) -> float:
    """What they cost together, in CPUs; what a CPU loses in two of them counts once."""
    lost: dict[int, float] = {}
    for episode in episodes:
        each = episode.lost_share
        for cpu in episode.cpus:
            lost[cpu] = max(lost.get(cpu, 0.0), each)
    return sum(lost.values())


def rank(episode: Episode) -> int:
    """Place of its kind among all, the worst first, for episodes whose cost does not differ."""
    return _RANKS.get(episode.kind, len(_RANKS))


def grouped(episodes: Iterable[Episode]) -> list[list[Episode]]:
    """The groups of these episodes, the costliest first, each with its first episode in front."""
    groups: dict[tuple[str, str], list[Episode]] = {}
    for episode in sorted(episodes, key=lambda e: (rank(e), e.start_ns)):
        groups.setdefault(group(episode), []).append(episode)
    return sorted(groups.values(), key=_order)


def _order(alike: Sequence[Episode]) -> tuple[float, int, int]:
    return -cost(alike), rank(alike[0]), alike[0].start_ns
