"""Verdicts of `selftest` on instruments and on counters of packages, cores and L3s, whose true
values the test sets."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import synth

from perfprobe import wire
from perfprobe.errors import Unavailable
from perfprobe.instruments.selftest import instruments
from perfprobe.instruments.selftest.instruments import CopyRun
from perfprobe.instruments.selftest.load import FrameLog
from perfprobe.instruments.selftest.verdict import Result
from perfprobe.wire import Counter

HZ = int(synth.TSC_HZ)
SPAN = CopyRun(begin=2 * HZ, end=3 * HZ, copied_bytes=10**9, cpu=1)
"""One second, between the middle two of four reads."""
TOP_DOWN = ("slots", *instruments.PART_KEYS)


UNITS = {"temperature_c": ("°C", "gauge"), "hsmp_prochot": ("1", "gauge")}


class Source(synth.Source):
    """Two CPUs of one L3 and package, read once a second; `cpu` has the rate of each counter per
    TSC tick, `package` the rate per second or the value of a gauge. None: not valid. Keys of
    `package` that begin with "l3_" are of the L3, which has 1000 l3_memory_bytes a second."""

    def __init__(self, cpu: dict[str, float], package: dict[str, int | None]) -> None:
        self.l3 = {"l3_memory_bytes": 1000}
        self.l3 |= {key: package.pop(key) or 0 for key in [*package] if key.startswith("l3_")}
        self.cpu, self.package = [*cpu.values()], [*package.values()]
        plain = synth.hello([Counter(key, key, "events", "made") for key in cpu])
        rows = [dataclasses.replace(row, l3=0) for row in plain.topology]
        self.hello = dataclasses.replace(plain, source="os", topology=rows)
        counters = [
            Counter(key, key, unit, "made", kind)  # type: ignore[arg-type]
            for key in package
            for unit, kind in [UNITS.get(key, ("J", "counter"))]
        ]
        l3 = [Counter(key, key, "B", "made", cpus=[0]) for key in self.l3]
        self.hello.blocks.append(wire.Block("p", "package", counters))
        self.hello.blocks.append(wire.Block("l3", "cpu", l3))
        self._gauges = [counter.kind == "gauge" for counter in counters]

    def poll(self) -> list[Any]:
        results = []
        for second in range(5):
            stamp = [second * HZ, second * HZ, 0, 0, wire.ROW_SAMPLED]
            values = [int(second * rate * HZ) for rate in self.cpu]
            package = [
                (rate or 0) * (1 if is_gauge else second) % (1 << 64)
                for rate, is_gauge in zip(self.package, self._gauges, strict=True)
            ]
            valid = sum(1 << i for i, rate in enumerate(self.package) if rate is not None)
            l3 = [second * rate for rate in self.l3.values()]
            blocks = {
                "cpu": synth.packed([stamp] * 2, [(1 << len(values)) - 1] * 2, values * 2),
                "p": synth.packed([stamp], [valid], package),
                "l3": synth.packed([stamp, [0] * 5], [(1 << len(l3)) - 1, 0], l3 + [0] * len(l3)),
            }
            results.append(wire.Frame(second, second, blocks))
        self.poll = list  # type: ignore[method-assign]
        return results


def log_of(source: Source) -> FrameLog:
    log = FrameLog(source)
    log.read_ready_frames()
    return log


def verdicts(
    cpu: dict[str, float] | None = None, checks: tuple[Result, ...] = (), source_name: str = "auto",
    turbo: wire.Turbo | None = None, missing: Sequence[wire.Missing] = (), **package: int | None,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    source = Source({"ref": 1.0} | (cpu or {}), {**package})
    source.hello.turbo.extend([] if turbo is None else [turbo])
    source.hello.missing.extend(missing)
    answer = instruments.report(log_of(source), SPAN, checks, source_name)
    return {row["instrument"]: row for row in answer["instruments"]}


# --- counters of packages, cores and L3s


def counter_rows(**package: int | None) -> dict[str, dict[str, Any]]:
    source = Source({"ref": 1.0}, package)
    source.hello.missing.extend([wire.Missing("hbm_bytes", "no right to it"),
                                 wire.Missing("ref", "no PMU")])  # fmt: skip
    return {row["counter"]: row for row in instruments.counter_rows(log_of(source), SPAN)}


def test_each_counter_has_a_verdict_and_an_absent_one_its_reason() -> None:
    result = counter_rows(energy_j=40, package_c6=0, temperature_c=7, pcu_vr=None)
    assert {key: row["verdict"] for key, row in result.items()} == {
        "energy_j": "counts", "package_c6": "stands still", "temperature_c": "read",
        "pcu_vr": "no reading", "l3_memory_bytes": "counts", "hbm_bytes": "not there",
    }  # fmt: skip
    assert result["energy_j"]["moved"] == [40]
    assert result["pcu_vr"]["moved"] == [None]
    l3 = result["l3_memory_bytes"]
    assert (l3["scope"], l3["moved"]) == ("L3", [1000])
    assert result["hbm_bytes"]["why"] == "no right to it"


def test_the_reads_nearest_to_the_ends_of_a_span_are_used() -> None:
    log = log_of(Source({"ref": 1.0}, {}))
    for begin, end, inside, reads in ((0.5, 4, True, (1, 4)), (1.5, 2.5, False, (1, 3))):
        advance = log.advance("ref", 0, round(begin * HZ), round(end * HZ), inside=inside)
        assert advance is not None
        assert (advance.begin, advance.end) == (reads[0] * HZ, reads[1] * HZ)


@pytest.mark.parametrize(("origin", "running", "share"), [
    ("perf", 0.5, 2.0), ("perf", 0.0, 1.0), ("made", 0.5, 1.0),
])  # fmt: skip
def test_a_counter_of_perf_that_took_turns_is_scaled(
    origin: str, running: float, share: float
) -> None:
    log = log_of(Source({"ref": 1.0, "perf_enabled_s": 1.0, "perf_running_s": running}, {}))
    column = log.counters["ref"]
    counter = dataclasses.replace(column.counter, origin=origin)
    log.counters["ref"] = dataclasses.replace(column, counter=counter)
    advance = log.advance("ref", 0, SPAN.begin, SPAN.end, inside=False)
    assert advance is not None
    assert advance.amount == share * HZ


def test_a_counter_that_steps_back_has_a_negative_advance() -> None:
    quarter = 1 << 62
    for rate, advance in ((-40, -40), (quarter, quarter), (3 * quarter, -quarter)):
        assert counter_rows(energy_j=rate)["energy_j"]["moved"] == [advance]


def test_a_copy_must_show_in_memory_traffic() -> None:
    """A memory counter that advances by less than the copied bytes counts something else."""
    enough = counter_rows(memory_read_bytes=SPAN.copied_bytes)["memory_read_bytes"]
    assert (enough["verdict"], enough["at_least"]) == ("counts", SPAN.copied_bytes)
    few = counter_rows(memory_read_bytes=SPAN.copied_bytes // 4)["memory_read_bytes"]
    assert few["verdict"] == "too little"


def test_memory_is_copied_between_two_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "COPY_S", 0.01)
    monkeypatch.setattr(instruments, "COPY_BYTES", 1 << 20)
    ends: list[int] = []
    log = cast("FrameLog", SimpleNamespace(restart=lambda: None, read_until_after=ends.append))
    span = instruments.copy_memory(log)
    assert (span.cpu, [span.end]) == (max(os.sched_getaffinity(0)), ends)
    assert span.begin < span.end
    assert (span.copied_bytes > 0, span.copied_bytes % (1 << 20)) == (True, 0)
    monkeypatch.setattr(instruments, "pinned_to", Mock(side_effect=OSError))
    with pytest.raises(Unavailable, match=f"selftest may not run on CPU {span.cpu}"):
        instruments.copy_memory(log)


# --- instruments


def test_a_working_instrument_reports_its_measurement() -> None:
    result = verdicts(energy_j=120, temperature_c=71)
    assert result["energy"]["verdict"] == result["temperature"]["verdict"] == "works"
    (energy,), (heat,) = result["energy"]["measured"], result["temperature"]["measured"]
    assert (energy["values"], energy["unit"]) == ([pytest.approx(120)], "W")
    assert (heat["values"], heat["unit"]) == ([71], "°C")


def test_flags_report_their_polls_and_the_bits_that_were_set() -> None:
    source, parts = Source({"ref": 1.0}, {}), ["PROCHOT", "thermal", "power"]
    counter = Counter("limit_reasons", "", "1", "made", "flags", columns=4, parts=parts)
    source.hello.blocks.append(wire.Block("flags", "package", [counter]))
    frames = source.poll()
    for second, frame in enumerate(frames):
        stamps = [second * HZ, second * HZ, 0, 0, wire.ROW_SAMPLED]
        values = [10 * second, 0, 3 * second, 7]  # "power" was set before the test only
        frame.blocks["flags"] = synth.packed([stamps], [0b1111], values)
    polls = iter([frames, []])
    source.poll = lambda: next(polls)  # type: ignore[method-assign]
    rows = instruments.report(log_of(source), SPAN, (), "auto")["instruments"]
    (row,) = [row for row in rows if row["instrument"] == "limit reasons, MSR"]
    measured = {"counter": "limit_reasons", "values": [10], "unit": "polls", "bits": ["thermal"]}
    assert (row["verdict"], row["measured"]) == ("works", [measured])


def test_an_instrument_that_was_not_read_twice_is_undecided() -> None:
    row = verdicts(energy_j=None)["energy"]
    why = "it was not read twice during the test"
    assert (row["verdict"], row["counters"], row["why"]) == ("undecided", ["energy_j"], why)


def test_an_absent_instrument_has_a_reason() -> None:
    result = verdicts()
    assert {result[name]["verdict"] for name in ("HSMP", "top-down", "turbo ceiling")} == {
        "not there"
    }
    assert all(row["why"] for row in result.values() if row["verdict"] != "works")


@pytest.mark.parametrize(("name", "given", "why"), [
    ("energy", {"energy_j": 0},
     "energy_j: 0 W, which no machine has (0.2 to 2000); energy_j does not move while memory is"),
    ("energy", {"energy_j": 90_000}, "energy_j: 9e+04 W, which no machine has (0.2 to 2000)"),
    ("energy", {"energy_j": 100, "energy_core_j": 105}, None),
    ("energy", {"energy_j": 100, "energy_core_j": 106},
     "cores take 106.0 W, their packages 100.0 W"),
    ("energy", {"energy_j": 1, "energy_core_j": 2}, "cores take 2.0 W, their packages 1.0 W"),
    ("temperature", {"temperature_c": 0}, "temperature_c: 0 °C, which no machine has (1 to 125)"),
    ("temperature", {"temperature_c": -5}, "temperature_c: -5 °C, which no machine has"),
    ("L3 by resctrl", {"l3_local_bytes": 1050}, None),
    ("L3 by resctrl", {"l3_local_bytes": 1060},
     "an L3 moves 1.06e+03 B/s with its own node, and 1e+03 B/s in all"),
    ("L3 by resctrl", {"l3_memory_bytes": 1, "l3_local_bytes": 2},
     "an L3 moves 2 B/s with its own node, and 1 B/s in all"),
])  # fmt: skip
def test_impossible_values_are_wrong(name: str, given: dict[str, int], why: str | None) -> None:
    row = verdicts(None, (), "auto", None, (), **given)[name]
    assert row["verdict"] == ("works" if why is None else "wrong")
    assert (row["why"] or "").startswith(why or "")


@pytest.mark.parametrize(("key", "low", "high"), [
    ("energy_j", 0.2, 2000), ("energy_ram_j", 0, 1000), ("energy_core_j", 0, 200),
    ("temperature_c", 1, 125), ("power_limit_w", 1, 5000), ("power_limit2_w", 1, 10_000),
    ("hsmp_limit_hz", 2e8, 1e10), ("memory_read_bytes", 0, 2e12), ("memory_write_bytes", 0, 2e12),
    ("l3_memory_bytes", 0, 2e12), ("l3_occupancy_bytes", 0, 4e9),
])  # fmt: skip
def test_values_beyond_these_bounds_are_impossible(key: str, low: float, high: float) -> None:
    for value, expected in ((low, 0), (high, 0), (low - 0.01, 1), (high + 0.01, 1)):
        measured = [{"counter": key, "values": [value], "unit": ""}]
        texts = [text for _, text in instruments._contradictions((), measured)]
        assert sum("which no machine has" in text for text in texts) == expected


@pytest.mark.parametrize(("backend", "why"), [
    (0.4, None), (0.385, None), (0.415, None),
    (0.375, "its four parts are 97.5 % of the slots"),
    (0.425, "its four parts are 102.5 % of the slots"),
])  # fmt: skip
def test_slot_parts_must_add_up(backend: float, why: str | None) -> None:
    cpu = dict(zip(TOP_DOWN, (1.0, 0.3, 0.1, 0.2, backend), strict=True))
    row = verdicts(cpu)["top-down"]
    assert (row["why"], row["wrong"]) == (why, [] if why is None else [*TOP_DOWN])


@pytest.mark.parametrize(
    ("rate", "verdict"),
    [
        (1.0, "works"),
        (1 / 1.029, "works"),
        (1 / 1.031, "wrong"),
        (1 / 0.969, "wrong"),
        (0.0, "undecided"),
    ],
)
def test_the_factor_of_an_event_must_be_a_candidate(rate: float, verdict: str) -> None:
    row = verdicts({"any_thread": rate})["calibration"]
    assert row["verdict"] == verdict
    if verdict == "wrong":
        assert row["measured"][0]["values"] == [pytest.approx(1 / rate)]


def test_calibration_uses_reads_within_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(Source({"ref": 1.0, "any_thread": 1.0}, {}))
    advance = Mock(wraps=log.advance)
    monkeypatch.setattr(log, "advance", advance)
    assert instruments._calibration_row(log, SPAN)["verdict"] == "works"
    advance.assert_called_once_with("any_thread", 1, SPAN.begin, SPAN.end, inside=True)


def test_a_missed_known_count_is_reported() -> None:
    good = Result("ref", "at work", "trusted", "made")
    bad = dataclasses.replace(good, verdict="unusable", expected=1.0, measured=2.0, unit="cycles")
    unsure = dataclasses.replace(good, verdict="disturbed")
    results = [verdicts(checks=(one,))["core counters"]["verdict"] for one in (good, bad, unsure)]
    assert results == ["works", "wrong", "undecided"]
    assert instruments.wrong_instruments(verdicts(checks=(bad,)).values()) == ["ref"]


def test_only_contradicted_counters_are_wrong() -> None:
    result = verdicts(energy_j=120, energy_ram_j=0)
    assert result["energy"]["counters"] == ["energy_j", "energy_ram_j"]
    assert instruments.wrong_instruments(result.values()) == ["energy_ram_j"]
    pair = verdicts(energy_j=100, energy_core_j=160)
    assert {*instruments.wrong_instruments(pair.values())} == {"energy_core_j", "energy_j"}


@pytest.mark.parametrize(("hz", "wrong"), [
    (3.7e9, []), (37e9, ["turbo_ceiling_hz"]), (0.2e9, []), (10e9, []),
    (0.19e9, ["turbo_ceiling_hz"]), (10.1e9, ["turbo_ceiling_hz"]),
])  # fmt: skip
def test_a_turbo_table_can_be_wrong(hz: float, wrong: list[str]) -> None:
    table = wire.Turbo([wire.Step(1, hz)], "made")
    assert instruments.wrong_instruments(verdicts(turbo=table).values()) == wrong


def test_an_absent_turbo_table_has_the_reason_that_the_stream_gives() -> None:
    missing = [
        wire.Missing("energy_j", "no RAPL here", None),
        wire.Missing("turbo_ceiling_hz", "no MSR here", "modprobe msr"),
    ]
    row = verdicts(missing=missing)["turbo ceiling"]
    assert (row["why"], row["fix"]) == ("no MSR here", "modprobe msr")


def test_a_disturbed_known_count_is_the_reason() -> None:
    """The counter was read by the test of known code."""
    disturbed = Result("both_s", "at work in turns", "disturbed", "made")
    row = verdicts(checks=(disturbed,))["SMT tracing"]
    assert (row["verdict"], row["counters"]) == ("undecided", ["both_s"])
    assert "other tasks were running" in row["why"]


NO_CYCLES = wire.Missing("cycles", "no PMU", "pass it on")
PERF, MSR = "source perf", "source msr"
TESTED = ("works", "its counters are tested below", None)
ONLY_IF_ASKED = ("not tried", "it programs counters, which is done only if asked for",
                 "perftop selftest --all --source msr")  # fmt: skip


@pytest.mark.parametrize(("used", "asked", "missing", "device", "rows"), [
    ("os", "auto", [NO_CYCLES], False, {
        PERF: ("not there", "no PMU", "pass it on"),
        MSR: ("not there", "no /dev/cpu/*/msr", "sudo modprobe msr"),
    }),
    ("os", "auto", [NO_CYCLES, wire.Missing("ref", "no ref")], True,
     {PERF: ("not there", "no ref", None), MSR: ONLY_IF_ASKED}),
    ("os", "auto", [], True, {
        PERF: ("not there", "the kernel's perf counts no cycles here", None), MSR: ONLY_IF_ASKED,
    }),
    ("os", "os", [], True,
     {PERF: ("not tried", "asked for: --source os", None), MSR: ONLY_IF_ASKED}),
    ("perf", "auto", [], True, {PERF: TESTED, MSR: ONLY_IF_ASKED}),
    ("msr", "msr", [], True,
     {PERF: ("not tried", "asked for: --source msr", None), MSR: TESTED}),
])  # fmt: skip
def test_each_source_has_a_verdict_and_a_reason(
    monkeypatch: pytest.MonkeyPatch, used: str, asked: str, missing: list[wire.Missing],
    device: bool, rows: dict[str, tuple[str, str, str | None]],
) -> None:  # fmt: skip
    source = Source({"ref": 1.0}, {})
    source.hello = dataclasses.replace(source.hello, source=used, missing=missing)
    monkeypatch.setattr(instruments, "Path", lambda _: SimpleNamespace(exists=lambda: device))
    answer = instruments.report(log_of(source), SPAN, [], asked)["instruments"][:3]
    assert {row["instrument"]: (row["verdict"], row["why"], row["fix"]) for row in answer} == {
        "source os": TESTED
    } | rows


@pytest.mark.parametrize(("key", "rate", "verdict", "why"), [
    ("any_thread", 0.5, "wrong", "any_thread takes 2 TSC ticks a tick, 1 were expected"),
    ("one_thread", 0.5, "undecided",
     "a sibling may have been at work, which this event does not count"),
    ("one_thread", 1.5, "wrong", "one_thread takes 0.6667 TSC ticks a tick, 1 were expected"),
    ("one_thread", 0.0, "undecided", "one_thread was not read in that time"),
    ("ref", 1.0, "not there", "no SMT event is counted, so there is nothing to calibrate"),
])  # fmt: skip
def test_a_factor_that_is_not_confirmed_has_a_reason(
    key: str, rate: float, verdict: str, why: str
) -> None:
    row = verdicts({key: rate})["calibration"]
    assert (row["verdict"], row["why"]) == (verdict, why)
    assert row["wrong"] == ([key] if verdict == "wrong" else [])


@pytest.mark.parametrize(("read_bytes", "why"), [
    (4 * 10**8, "memory_read_bytes: 4e+08 B, but 1e+09 B were copied"), (8 * 10**8, None),
])  # fmt: skip
def test_too_little_traffic_is_the_reason(read_bytes: int, why: str | None) -> None:
    row = verdicts(memory_read_bytes=read_bytes)["memory traffic"]
    assert (row["why"], row["wrong"]) == (why, ["memory_read_bytes"] if why else [])


def test_a_row_for_each_of_at_most_64_cores_is_reported() -> None:
    counter = Counter("core_c6", "C6", "cycles", "made")
    log = SimpleNamespace(
        counters={"core_c6": SimpleNamespace(counter=counter)}, rows=lambda _: 70,
        scope=lambda _: "core", advance=lambda *_, **__: SimpleNamespace(amount=2),
    )  # fmt: skip
    row = instruments._counter_row(cast("FrameLog", log), "core_c6", CopyRun(0, 1, 1, 0))
    assert row["moved"] == [2] * 64


def test_rows_that_were_not_read_add_nothing_to_the_traffic() -> None:
    row = {"verdict": "too little", "moved": [3e8, None, 1e8], "at_least": 1e9}
    ((_, text),) = instruments._copy_contradictions(row)
    assert "4e+08 B" in text
    assert not [*instruments._copy_contradictions(row | {"verdict": "counts"})]
