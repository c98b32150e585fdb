"""The lines of the time view that tell what packages move from and to memory."""

from __future__ import annotations

import pytest
from played import played

from perfprobe import wire
from perfprobe.sources.sim.source import open_sim
from perftop.draw.strips import Run, text
from perftop.samples.memory import KEYS
from perftop.session.history import History
from perftop.session.session import Session
from perftop.tui.core_page import core_page, layout
from perftop.tui.core_page.values import Track
from perftop.tui.shared import time_axis
from perftop.tui.shared.places import Places
from perftop.tui.timeline import traffic

SAMPLE_NS = 100_000_000


def watched(spec: str, samples: int) -> Session:
    source = open_sim(f"sim:{spec},speed=max", SAMPLE_NS)
    messages: list[wire.Message] = []
    while len(messages) < samples:
        messages += source.poll()
    source.close()
    session = Session(source.hello, History(source.hello))
    played(session, messages[:samples])
    return session


@pytest.mark.parametrize("packages", [1, 2])
def test_each_package_has_a_line_with_its_past_and_its_rate(packages: int) -> None:
    session = watched(f"memory,cpus=8,packages={packages}", 130)
    interval = session.at(session.now_ns, 5 * SAMPLE_NS)
    assert interval is not None
    axis = time_axis.fitted(session.now_ns, 15, 60)
    lines = traffic.lines(session, interval, axis, 20, 10, ascii_=False)
    assert len(lines) == traffic.count(session, 50) == packages
    for line, package in zip(lines, session.hello.packages, strict=True):
        at = session.hello.packages.index(package)
        moved = sum(interval.packages[f"{key}_per_s"][at] for key in KEYS)
        assert f"{moved / 1e9:.1f}" in text(line)
        assert len(text(line)) == 20 + 60 + 10
        assert len(shades(line)) > 1  # it was less before others came


def shades(line: list[Run]) -> set[str]:
    return {key for _, key in line if key.startswith("heat")}


def test_machines_that_count_none_have_no_such_line() -> None:
    assert traffic.count(watched("guest,cpus=2", 3), 50) == 0


def test_a_core_has_the_past_of_its_package() -> None:
    session = watched("memory,cpus=4,packages=2", 60)
    places = Places(session).places
    known = core_page.known(session, places[-1], who=False)
    assert known.shared == (layout.TRAFFIC,)
    track = Track(session, places[-1])
    track.look(axis := time_axis.fitted(session.now_ns, 5, 20))
    past = session.history
    assert past is not None
    read, write = (past.shared(key, axis.edges)[:, 1] for key in KEYS)
    assert track.traffic().tolist() == pytest.approx((read + write).tolist(), nan_ok=True)
