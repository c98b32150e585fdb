"""What episodes cost, to tell the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from perftop.model.episode import rank

if TYPE_CHECKING:
    from perftop.model.episode import Episode

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


def told_once(episodes: Sequence[Episode]) -> list[Episode]:
    """These episodes without steal that a loss of the same CPUs to the hypervisor tells as well:
    two detectors saw it, and nobody lost it twice."""
    losses: dict[int, list[Episode]] = {}
    for episode in episodes:
        if (episode.kind, episode.cause) == ("neighbour", STOLEN[1]):
            for cpu in episode.cpus:
                losses.setdefault(cpu, []).append(episode)
    if not losses:
        return list(episodes)
    return [
        episode
        for episode in episodes
        if episode.kind != STOLEN[0]
        or not all(any(_covers(loss, episode) for loss in losses.get(c, ())) for c in episode.cpus)
    ]


def _covers(loss: Episode, steal: Episode) -> bool:
    """Whether the loss lasted for half of the steal at least. One that runs has no end yet."""
    if loss.end_ns is None or steal.end_ns is None:
        return loss.end_ns is steal.end_ns
    both_ns = min(loss.end_ns, steal.end_ns) - max(loss.start_ns, steal.start_ns)
    return 2 * both_ns >= max(1, steal.end_ns - steal.start_ns)


def grouped(episodes: Iterable[Episode]) -> list[list[Episode]]:
    """The groups of these episodes, the costliest first, each with its first episode in front."""
    groups: dict[tuple[str, str], list[Episode]] = {}
    for episode in sorted(episodes, key=lambda e: (rank(e.kind), e.start_ns)):
        groups.setdefault(group(episode), []).append(episode)
    return sorted(groups.values(), key=lambda g: (-cost(g), rank(g[0].kind), g[0].start_ns))
