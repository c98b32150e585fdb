"""Texts of whole columns equal those of single numbers, and results do not depend on cached
ones."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import synth
from disturbances import with_disturbances
from hypothesis import given
from hypothesis import strategies as st
from nightly import cases_by_day
from sim_streams import SAMPLE_NS, messages

from perfprobe import wire
from perftop.base.text import json_number
from perftop.model.tasks import ThreadActivity
from perftop.output.export import cells
from perftop.output.export.cells import exact_cells, number_cells, rounded_numbers, whole_cells
from perftop.output.export.fields import MEASURES
from perftop.output.export.tables import CsvTable
from perftop.session.interval import Interval
from perftop.session.packing import TimedMessage
from perftop.session.session import Session

decimals = st.builds(lambda digits, power: digits * 10.0**power, st.integers(0, 10**9),
                     st.integers(-14, 12))  # fmt: skip
halves = st.builds(lambda units, power: (units + 0.5) * 10.0**power,
                   st.integers(10**6, 10**7), st.integers(-12, 10))  # fmt: skip
edges = st.sampled_from([0.0, 1.0, math.nan, math.inf, -math.inf, 5e-324, 1e-5, 9.999999e-5, 1e15,
                         9999999.5, 999999.95, 9.9999995e15, 1e16, 1e17, 149.99999, 149.999999,
                         0.99999995])  # fmt: skip
numbers = st.one_of(st.floats(), decimals, halves, edges)


def texts(column: np.ndarray) -> list[str]:
    rows = column.view(np.uint8).reshape(-1, column.itemsize)
    return [row.tobytes().replace(b"\0", b"").decode() for row in rows]


def test_the_columns_of_a_job_are_numbers_of_its_threads() -> None:
    names: list[str] = []
    block: Any = SimpleNamespace(job_column=names.append)
    for field in MEASURES:
        if field.name.startswith("job_"):
            field.values(block)
    assert len(names) == 3
    assert {*names} <= {field.name for field in dataclasses.fields(ThreadActivity)}


@given(st.lists(st.tuples(numbers, st.booleans()), max_size=60))
def test_a_column_has_the_texts_of_its_values(signed: list[tuple[float, bool]]) -> None:
    values = [-value if negative else value for value, negative in signed]
    each = [json_number(value) for value in values]
    column = np.array(values, float)

    expected = ["" if value is None else repr(value + 0.0) for value in each]
    assert texts(number_cells(column)) == expected
    assert np.array_equal(
        rounded_numbers(column),
        [math.nan if value is None else value for value in each],
        equal_nan=True,
    )


def test_only_numbers_that_may_be_rounded_wrongly_are_formatted_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Formatting a number alone takes some fifty times as long."""
    alone: list[float] = []

    def format_alone(text: str) -> float:
        alone.append(float(text))
        return alone[-1]

    monkeypatch.setattr(cells, "float", format_alone, raising=False)
    number_cells(np.array([1234.5, -0.123456789, 98765432.1, 149.99999, 2.5e-9, 12345675, 1e17]))
    assert alone == [12345680.0, 1e17]


def test_integers_and_exact_numbers_are_formatted_exactly() -> None:
    values = np.array([0.0, 3.0, 1e17, math.nan])
    assert texts(whole_cells(values)) == ["0", "3", "100000000000000000", ""]
    assert texts(whole_cells(values[:3])) == ["0", "3", "100000000000000000"]
    assert texts(exact_cells(np.array([1700000000.1, math.nan, 0.1 + 0.2]))) == [
        "1700000000.1", "", "0.30000000000000004",
    ]  # fmt: skip


class UncachedFormat(CsvTable):
    """Formats each interval by itself, without a cache."""

    def write_interval(self, interval: object) -> None:
        self._columns = [np.zeros((0, 0))] * len(self._columns)
        self._uniform_values = [None] * len(self._uniform_values)
        self._cores = None
        super().write_interval(interval)  # type: ignore[arg-type]
        self.flush()


def lines(session: Session, intervals: Iterable[Interval]) -> tuple[list[str], list[str]]:
    """Returns the lines of these intervals, with and without the cache."""
    outputs = io.BytesIO(), io.BytesIO()
    classes: tuple[Any, Any] = CsvTable, UncachedFormat
    forms = [make(session, MEASURES, out) for make, out in zip(classes, outputs, strict=True)]
    for interval in intervals:
        for form in forms:
            form.write_interval(interval)
    for form in forms:
        form.finish()
    cached, uncached = (out.getvalue().decode().splitlines() for out in outputs)
    return cached, uncached


def intervals_of(session: Session, frames: Sequence[TimedMessage]) -> Iterator[Interval]:
    for message in with_disturbances(frames, 7):
        session.apply(message)
        if isinstance(message, wire.Frame) and session.span_ns >= SAMPLE_NS:
            yield session.take_interval()


@pytest.mark.parametrize("scenario", cases_by_day(["hotplug", "smt-mix", "hybrid"], ["hotplug"]))
def test_the_cache_does_not_change_the_output(scenario: str) -> None:
    hello, frames = messages(f"sim:{scenario},cpus=8", 90)
    session = Session(hello)
    cached, uncached = lines(session, intervals_of(session, frames))

    assert len(cached) > 400
    assert cached == uncached


def test_a_core_that_appears_between_two_intervals_does_not_change_earlier_ones() -> None:
    topology = synth.topology(3, 1)
    topology[1] = wire.Cpu(1, online=False)
    hello = synth.hello([synth.REF], cores=3, threads=1)
    session = Session(dataclasses.replace(hello, topology=topology, cores=[[0], [2]]))
    data = {"cpu": 1, "online": True, "row": {"package": 0, "core": 1, "siblings": [1]}}

    def intervals() -> Iterator[Interval]:
        for seq in range(6):
            if seq == 4:
                session.apply(wire.Note("hotplug", seq * SAMPLE_NS - 1, data=data))
            is_on = wire.ROW_SAMPLED if seq >= 4 else wire.ROW_OFFLINE
            ref, flags = [seq * 10**7] * 3, [wire.ROW_SAMPLED, is_on, wire.ROW_SAMPLED]
            session.apply(synth.frame(session.hello, seq, {"ref": ref}, flags=flags))
            if seq:
                yield session.take_interval()

    cached, uncached = lines(session, intervals())

    assert cached == uncached
    assert [line.split(",")[5] for line in cached[2::3]] == [*["false"] * 3, *["true"] * 2]
