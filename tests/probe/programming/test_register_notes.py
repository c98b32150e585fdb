"""The notes of a check of the registers, and the values that it invalidates, with a simulated
programmer and clock."""

from __future__ import annotations

from typing import Any, cast

import frame_rows
import pytest

from perfprobe import wire
from perfprobe.programming import source as msr_source
from perfprobe.programming.programmer import Programmer
from perfprobe.programming.source import CHECK_PERIOD_NS, RegisterCheck
from perfprobe.sources.sim.source import SimSource


class Bench:
    """A register check of two CPUs. Times are in ns since its start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        source = SimSource("sim:steady,cpus=2,packages=1,speed=max", 100_000_000)
        self.hello = source.hello
        self._rows = next(m for m in source.poll() if isinstance(m, wire.Frame)).blocks
        self._now_ns = 0
        self.taken: dict[int, list[str] | None] = {0: [], 1: []}
        """Keys of counters that another program uses, by CPU; None: the CPU cannot be read."""
        monkeypatch.setattr(msr_source, "raw_ns", lambda: self._now_ns)
        self._check = RegisterCheck(cast("Programmer", self), [0, 1], self.hello)

    def check(self, cpu: int) -> tuple[list[str], str] | None:
        """Replaces the check of the programmer."""
        keys = self.taken[cpu]
        return None if keys is None else (keys, "")

    def notes(self, at_ns: int) -> list[tuple[str, dict[str, Any]]]:
        self._now_ns = at_ns
        return [(note.kind, note.data) for note in self._check.check_cpus()]

    def invalid(self, at_ns: int) -> set[tuple[int, str]]:
        """CPU and key of the counters without a value in a frame at this time."""
        blocks = {
            name: wire.Rows(rows.head, bytearray(b"\xff" * len(rows.valid)), rows.values)
            for name, rows in self._rows.items()
        }
        self._check.invalidate(wire.Frame(0, at_ns, blocks))
        return frame_rows.missing_values(self.hello, blocks)


def taken_note(cpus: list[int], counters: list[str], since_ns: int) -> tuple[str, dict[str, Any]]:
    return "taken", {"cpus": cpus, "counters": counters, "since_ns": since_ns}


def given_back_note(cpus: list[int], counters: list[str]) -> tuple[str, dict[str, Any]]:
    return "given-back", {"cpus": cpus, "counters": counters}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_only_changes_are_reported(bench: Bench) -> None:
    bench.taken[1] = ["cycles"]
    assert bench.notes(CHECK_PERIOD_NS) == [taken_note([1], ["cycles"], 0)]
    assert bench.notes(2 * CHECK_PERIOD_NS) == []
    bench.taken[1] = ["cycles", "ref"]
    assert bench.notes(3 * CHECK_PERIOD_NS) == [taken_note([1], ["ref"], 0)]
    bench.taken[1] = ["ref"]
    assert bench.notes(4 * CHECK_PERIOD_NS) == [given_back_note([1], ["cycles"])]
    assert bench.invalid(5 * CHECK_PERIOD_NS) == {(1, "ref")}


def test_a_takeover_dates_from_the_oldest_good_check(bench: Bench) -> None:
    bench.notes(CHECK_PERIOD_NS // 2)  # only CPU 0 is due
    bench.taken = {0: ["ref"], 1: ["ref"]}
    assert bench.notes(2 * CHECK_PERIOD_NS) == [taken_note([0, 1], ["ref"], 0)]


def test_a_takeover_of_an_unreadable_cpu_dates_from_its_last_check(bench: Bench) -> None:
    bench.taken[1] = None
    bench.notes(CHECK_PERIOD_NS)
    bench.taken = {0: ["ref"], 1: ["ref"]}
    assert bench.notes(2 * CHECK_PERIOD_NS) == [taken_note([0, 1], ["ref"], 0)]


def test_values_before_the_return_of_a_counter_stay_invalid(bench: Bench) -> None:
    """A frame that was read before that check may be invalidated after it."""
    bench.taken[1] = ["cycles", "ref"]
    bench.notes(CHECK_PERIOD_NS)
    bench.taken[1] = []
    assert bench.notes(2 * CHECK_PERIOD_NS) == [given_back_note([1], ["cycles", "ref"])]
    for at_ns in (2 * CHECK_PERIOD_NS - 2, 2 * CHECK_PERIOD_NS - 1):
        assert bench.invalid(at_ns) == {(1, "cycles"), (1, "ref")}
    assert bench.invalid(2 * CHECK_PERIOD_NS) == set()


def test_all_cpus_are_checked_once_in_a_period(bench: Bench) -> None:
    """Each CPU is checked once, however often the check is called."""
    bench.taken = {0: ["ref"], 1: ["ref"]}
    results = [bench.notes(i * CHECK_PERIOD_NS // 4) for i in range(1, 5)]
    assert results == [[], [taken_note([0], ["ref"], 0)], [], [taken_note([1], ["ref"], 0)]]
