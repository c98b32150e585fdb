"""Episodes that are detected on a simulated machine, for comparison with its script."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from perfprobe import wire
from perfprobe.sources.sim.source import SimSource
from perfprobe.sources.sim.truth import truth
from perftop.model.kinds import Episode
from perftop.session.session import Session

SECOND = 1_000_000_000
SMALL = "cpus=8,packages=1,seed=1"
PLAYED_S = 37.0
"""Specification of the usual machine, and a length in s at which no script changes its stage. Tests
that use both share one run of the simulation, with samples of 0.1 s: run_order.py assigns their
files to one worker."""


PlayedEpisodes = tuple[Session, list[Episode]]


def found_episodes(
    spec: str, sample_ns: int, seconds: float, watch: str | None = None
) -> PlayedEpisodes:
    """All episodes of `seconds` seconds, including those still running at the end."""
    # passed by position, because the arguments are the key of the cache
    return _found(spec, sample_ns, seconds, watch)


@cache
def _found(*arguments: Any) -> PlayedEpisodes:
    return play_episodes(*arguments)


def play_episodes(
    spec: str, sample_ns: int, seconds: float, watch: str | None = None, events: str = "",
    selected: str | None = None,
) -> PlayedEpisodes:  # fmt: skip
    """Like `found_episodes`, without the cache."""
    source = SimSource(f"{spec},speed=max", sample_ns, selected, watch, events or None)
    session = Session(source.hello)
    session.run.track_losses()
    over: list[Episode] = []
    cursor = 0
    end_ns = source.hello.raw_ns + seconds * SECOND
    more = True
    while more:
        messages = source.poll()
        matching_messages = [message for message in messages if message.time_ns <= end_ns]
        more = len(matching_messages) == len(messages)
        for _ in session.apply_in_parts(matching_messages):
            # ended episodes are removed, because a session keeps a limited number
            news, cursor = session.log.ended_since(cursor)
            over += news
    source.close()
    return session, [*over, *session.detector.running]


def scripted(spec: str, seconds: float, kind: str | None = None) -> list[dict[str, Any]]:
    lines = truth(spec, seconds)
    return [line for line in lines if line["type"] == "episode" and kind in {None, line["kind"]}]


def cores_of(hello: wire.Hello, cpus: Iterable[int]) -> list[int]:
    wanted = {*cpus}
    return [i for i, core in enumerate(hello.cores) if wanted & {*core}]
