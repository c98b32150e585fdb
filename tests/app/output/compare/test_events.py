"""Chosen events and issue slots in the text of summaries and comparisons."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import pytest
import simulated
from played import played

from perftop.output.compare.comparison import compare, not_told
from perftop.output.compare.readings import (
    MOST_EVENTS,
    Reading,
    Recorded,
    known,
    number_of,
    numbers,
    reading,
    told,
)
from perftop.output.summary_text import lines, phase
from perftop.session.session import Session

EVENTS = "branches,cache-misses"
KEYS = ("e.branches", "e.branches/ki", "e.cache-misses", "topdown_backend_ratio")


@cache
def recorded(seed: int = 1) -> list[Reading]:
    """A machine with two chosen events and issue slots, whose summary has them, too."""
    spec = f"sim:memory,cpus=2,seed={seed},slots=1"
    hello, messages = simulated.messages(spec, 60, events=EVENTS)
    found = Recorded(hello, by_mark=False).readings(messages)
    own = Session(hello)
    own.account()
    played(own, messages)
    made = phase(own, "")
    told = "\n".join(lines(own, [], made))
    for label in ("branches         /s", "branches        /ki", "back end          %"):
        assert label in told
    assert found[0].numbers["e.branches"] == pytest.approx(made.mean("e.branches"))
    return found


def test_events_are_told_and_compared() -> None:
    a, b = recorded(), recorded(seed=2)
    (found,) = compare([("", a, b)])
    rows = {row.number.key: row for row in found.rows}
    assert {*KEYS} <= rows.keys()
    assert rows["e.branches"].a == pytest.approx(a[0].numbers["e.branches"], rel=0.02)
    branches = rows["e.branches"]
    assert branches.number.show(1.3153e9, 1.3e9) == "1.315G"
    (only,) = compare([("", a, b)], ["e.branches/ki"])
    assert [row.number.key for row in only.rows] == ["e.branches/ki"]


def test_their_numbers_come_back_from_json() -> None:
    (a,) = recorded()
    again = reading({"type": "run", "numbers": told(a.numbers), "machine": {}})
    assert {key: again.numbers[key] for key in KEYS} == pytest.approx(
        {key: a.numbers[key] for key in KEYS}, rel=1e-5
    )


def test_a_foreign_line_with_any_names_does_no_harm() -> None:
    measure = {"mean": 1.0}
    machine: dict[str, Any] = {f"e.{n}" + "x" * 500: measure for n in range(1000)} | {
        "e.bad": {"mean": "x"}
    }
    machine |= dict.fromkeys(("util", "busy_hz", "lost_ratio", "ipc", "kernel_cycles"), None)
    machine |= dict.fromkeys(("involuntary", "steal"), None)
    line: dict[str, Any] = dict.fromkeys(("job", "energy_j"))
    line |= {"type": "summary", "machine": machine, "totals": {}, "cores": [], "cpus": []}
    line["elapsed_s"] = 1.0
    found = numbers(line)
    assert len(found) <= 64
    assert all(len(number_of(key).label) <= 12 for key in found)
    assert len(known([found])) > len(found)
    every: dict[str, Any] = {f"e.{n}": 1.0 for n in range(1000)}
    assert len(reading({"type": "run", "numbers": every, "machine": {}}).numbers) == MOST_EVENTS


def test_an_event_that_one_side_lacks_is_named_once() -> None:
    a = recorded()
    less = {key: n for key, n in a[0].numbers.items() if not key.startswith("e.branches")}
    b = [dataclasses.replace(a[0], numbers=less)]
    (left,) = (text for text in not_told(compare([("", a, b)])) if "only A" in text)
    assert left.count("branches") == 1
