"""Numbers that are compared: chosen events and issue slots, and the course of numbers in time."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import exported
import pytest
import simulated
from played import played

from perfprobe import wire
from perftop.output.compare import readings
from perftop.output.compare.comparison import compare, not_known
from perftop.output.compare.readings import (
    MAX_EVENTS,
    Course,
    Reading,
    Recorded,
    number_of,
    numbers,
    numbers_json,
    reading,
    row_keys,
    shown_like,
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
    reader = Recorded(by_mark=False)
    reader.take([hello, *messages])
    reader.on_end()
    found = reader.readings
    own = Session(hello)
    own.account()
    played(own, messages)
    made = phase(own, "")
    shown = "\n".join(lines(own, [], made))
    for label in ("branches         /s", "branches        /ki", "back end          %"):
        assert label in shown
    assert found[0].numbers["e.branches"] == pytest.approx(made.value("e.branches"))
    return found


def test_events_are_printed_and_compared() -> None:
    a, b = recorded(), recorded(seed=2)
    (found,) = compare([("", a, b)])
    rows = {row.number.key: row for row in found.rows}
    assert {*KEYS} <= rows.keys()
    assert rows["e.branches"].a == pytest.approx(a[0].numbers["e.branches"], rel=0.02)
    branches = rows["e.branches"]
    assert shown_like(branches.number, 1.3153e9, 1.3e9) == "1.315G"
    (only,) = compare([("", a, b)], ["e.branches/ki"])
    assert [row.number.key for row in only.rows] == ["e.branches/ki"]


def test_their_numbers_come_back_from_json() -> None:
    (a,) = recorded()
    again = reading({"type": "run", "numbers": numbers_json(a.numbers), "machine": {}})
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
    assert len(row_keys([found])) > len(found)
    every: dict[str, Any] = {f"e.{n}": 1.0 for n in range(1000)}
    assert len(reading({"type": "run", "numbers": every, "machine": {}}).numbers) == MAX_EVENTS


def test_an_event_that_one_side_lacks_is_named_once() -> None:
    a = recorded()
    less = {key: n for key, n in a[0].numbers.items() if not key.startswith("e.branches")}
    b = [dataclasses.replace(a[0], numbers=less)]
    (left,) = (text for text in not_known(compare([("", a, b)])) if "only A" in text)
    assert left.count("branches") == 1


def course_of(found: list[wire.Message]) -> Course:
    session = Session(exported.hello(found))
    made = Course(session)
    for message in session.play(found[1:]):
        if isinstance(message, wire.Frame):
            made.take()
    return made


def test_joined_slices_hold_what_they_were_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    found = exported.messages("sim:turbo-drop,cpus=4,packages=1", 10)
    whole = course_of(found)
    monkeypatch.setattr(readings, "MAX_SLICES", 36)
    joined = course_of(found)
    for key, (ends_ns, amounts, sizes) in joined.sums().items():
        other_ns, every_amount, every_size = whole.sums()[key]
        at = [*other_ns].index(ends_ns[-1])
        assert len(ends_ns) <= 36 + 1 < len(other_ns)
        assert amounts[-1] == pytest.approx(every_amount[at])
        assert sizes[-1] == pytest.approx(every_size[at])
