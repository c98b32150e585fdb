"""Where issue slots go, against the truth of a simulated machine, and what cannot be."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from played import played
from simulated import lasting, messages

from perfprobe import wire
from perftop.model.delta import Doubt
from perftop.model.gates import SLOT_KEYS
from perftop.session.missing import DOUBTS
from perftop.session.session import Session

SPEC = "sim:smt-mix,cpus=4,slots=1"


def seen(*, wrong: bool = False) -> Session:
    """`wrong`: what retired counts half."""
    hello, found = messages(SPEC, 21)
    session = Session(hello)
    block = hello.blocks[0]
    at = [counter.key for counter in block.counters].index("topdown_retiring")
    for message in found:
        if wrong and isinstance(message, wire.Frame):
            rows = message.blocks["cpu"]
            values = np.frombuffer(rows.values, np.uint64).reshape(4, -1).copy()
            values[:, at] //= 2
            changed = {"cpu": dataclasses.replace(rows, values=values.tobytes())}
            session.apply(dataclasses.replace(message, blocks=message.blocks | changed))
        else:
            session.apply(message)
    return session


def test_four_ways_that_add_up() -> None:
    interval = seen().take()
    for row in range(4):
        shares = [float(interval.values[f"{key}_ratio"][row]) for key in SLOT_KEYS]
        assert sum(shares) == pytest.approx(1, abs=1e-4)
        assert shares[0] == pytest.approx(float(interval.values["ipc"][row]) / 4, rel=1e-4)
        left = 1 - shares[0]
        assert shares[1:] == pytest.approx([left * 0.05, left * 0.1, left * 0.85], rel=1e-3)
    assert interval.suspect == {}


def test_slots_that_go_to_the_sibling() -> None:
    session = seen()
    interval = session.take()
    for core, (first, _) in enumerate(session.cores):
        row = session.position[first]
        both = float(interval.split.shares(core)["both"])
        cycles = float(interval.counts["cycles"][row]) / interval.elapsed_s
        given = float(interval.values["smt_contention_ratio"][row])
        assert given == pytest.approx(both * 0.3 * 2.1e9 / cycles, rel=0.02)


def test_what_does_not_add_up_is_doubted() -> None:
    session = seen(wrong=True)
    interval = session.take()
    assert ("topdown_retiring", Doubt.SLOTS) in interval.suspect[1]
    assert np.isnan(interval.values["topdown_backend_ratio"]).all()
    assert np.isfinite(interval.values["ipc"]).all()
    assert set(Doubt) == set(DOUBTS)


def test_a_machine_without_them_has_no_such_number() -> None:
    session = Session(messages("sim:smt-mix,cpus=4", 0)[0])
    assert not session.evaluator.registry.events


def test_a_sibling_that_takes_slots_is_measured() -> None:
    hello, found = lasting("sim:neighbour,cpus=8,slots=1", 19.1)
    session = played(Session(hello), found)
    episode = next(e for e in session.ended if e.kind == "neighbour" and e.cause == "sibling")
    both = 0.971 * 0.3 * 2.1e9 / 3.7e9
    assert episode.evidence["slots_to_sibling"] == pytest.approx(both, abs=0.01)
    assert episode.confidence == "measured"
