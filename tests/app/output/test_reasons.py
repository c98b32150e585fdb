"""Each null of a line has a reason: in hello's `missing`, or in `why` or `suspect` of its
object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import synth
from exports import messages
from roots import DATA

from perfprobe import wire
from perfprobe.sources.sim.machine import SCENARIOS
from perftop.output import run_summary, stat_lines
from perftop.session.packing import Reader
from perftop.session.session import Session
from perftop.session.values import BOUNDS_REASON

Line = dict[str, Any]
Path = tuple[Any, ...]
EVERY_NS = 950_000_000
NULL_KEYS = {
    "virtualisation",
    "model",
    "run",
    "job",
    "rest",
    "package",
    "core",
    "smt_low",
    "smt_high",
}
"""Keys whose null means "none", and bounds, which are null if the states are known."""
REASON_KEYS = {
    "turbo_ceiling_low_hz": "turbo_ceiling_hz", "turbo_ceiling_high_hz": "turbo_ceiling_hz",
    "smt_low": "smt", "smt_high": "smt",
}  # fmt: skip
"""Keys of ranges, each with the key that has the reason."""
OFF_S = 16
"""In the scenario `hotplug` a CPU is offline from 8 s to 14 s."""


def lines(result: Iterable[wire.Message]) -> Iterator[Line]:
    """Lines as printed by `stat --json`."""
    greeting, *stream = result
    assert isinstance(greeting, wire.Hello)
    session = Session(greeting)
    yield stat_lines.hello_line(session)
    for *_, message in session.apply_in_parts(stream, lambda: session.interval_start_ns + EVERY_NS):
        if isinstance(message, wire.Frame) and session.span_ns >= EVERY_NS:
            yield stat_lines.interval_line(session, session.take_interval())
    yield run_summary.summary_line(session, {})


def paths_of_nulls(value: Any, path: Path = ()) -> Iterator[Path]:
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, part in value.items():
            if key not in {"why", "missing", "topology", "multipliers"}:
                yield from paths_of_nulls(part, (*path, key))
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from paths_of_nulls(part, (*path, i))


def has_reason(line: Line, path: Path, for_good: dict[str, list[int] | None]) -> bool:
    """Whether the null at this path has a reason."""
    row = line[path[0]][path[1]] if path[0] in {"cpus", "cores"} else line.get(path[0])
    row = row if isinstance(row, dict) else {}
    keys = {REASON_KEYS.get(key, key) for key in path}
    if "smt" in path and row.get("smt_low") and None not in row["smt_low"].values():
        return True  # the line has bounds instead of states
    results = {key for key, cpus in for_good.items() if cpus is None or _has(row, cpus)}
    if "counts" in path:
        results |= {text.partition(":")[0] for text in row["suspect"]}
    else:
        results |= line.get("why", {}).keys() | row.get("why", {}).keys()
    return not keys.isdisjoint(results)


def _has(row: Line, cpus: list[int]) -> bool:
    return not {row.get("cpu"), *row.get("cpus", ())}.isdisjoint(cpus)


def unexplained(result: Iterable[wire.Message]) -> dict[Path, int]:
    """Number of nulls without a reason, by path without row numbers."""
    return unexplained_in_lines(list(lines(result)))


def unexplained_in_lines(printed_lines: list[Line]) -> dict[Path, int]:
    greeting, *stream = printed_lines
    for_good = {row["what"]: row.get("cpus") for row in greeting["missing"]}
    wrong: dict[Path, int] = {}
    for line in (greeting, *stream):
        for path in paths_of_nulls(line):
            if path[-1] not in NULL_KEYS and not has_reason(line, path, for_good):
                place = (line["type"], *(key for key in path if not isinstance(key, int)))
                wrong[place] = wrong.get(place, 0) + 1
    return wrong


def messages_of_recording(name: str) -> list[wire.Message]:
    return [*Reader().feed((DATA / name).read_bytes())]


SIMULATED = [
    *(f"sim:{name},cpus=8" for name in SCENARIOS),
    "sim:hotplug,cpus=8,smt=1", "sim:hotplug,cpus=8,smt=4",
]  # fmt: skip


@pytest.mark.parametrize("spec", SIMULATED)
def test_nulls_of_all_simulated_machines_have_a_reason(spec: str) -> None:
    assert unexplained(messages(spec, OFF_S if "hotplug" in spec else 4)) == {}


@pytest.mark.parametrize("name", ["platinum-8160", "export/recording", "recording-1"])
def test_nulls_of_all_recordings_have_a_reason(name: str) -> None:
    assert unexplained(messages_of_recording(name)) == {}


def test_counters_taken_by_other_programs_have_a_reason() -> None:
    """Instructions are unknown in all intervals, and no factor fits the any-thread counter."""
    greeting, *rest = messages_of_recording("platinum-8160")
    frames = [message for message in rest if isinstance(message, wire.Frame)][20:]
    printed_lines = list(lines([greeting, *frames]))
    assert unexplained_in_lines(printed_lines) == {}
    summary = printed_lines[-1]
    assert {str(core["why"]) for core in summary["cores"]} == {str({"smt": BOUNDS_REASON})}
    assert summary["machine"]["kernel_instructions"] is None
    for line in (summary, *summary["cpus"]):
        assert line["why"]["kernel_instructions"].startswith("instructions: does not count")


@pytest.mark.parametrize("more", [{}, {"stamp": "raw", "tsc_hz": None}])
def test_a_source_with_few_counters_has_reasons(more: Line) -> None:
    greeting = synth.hello([synth.REF], **more)
    ticks = [{"ref": [seq * 10**8] * len(greeting.topology)} for seq in range(22)]
    frames = [synth.frame(greeting, seq, values) for seq, values in enumerate(ticks)]
    assert unexplained([greeting, *frames]) == {}
    (first, *_) = lines([greeting])
    assert first["base_hz"] is None
    assert "base_hz" in {row["what"] for row in first["missing"]}


def test_the_method_is_known_if_hello_names_none() -> None:
    assert next(lines(messages_of_recording("platinum-8160")))["smt_method"] == "any-thread"
    assert next(lines([synth.hello([synth.REF])]))["smt_method"] == "bounds"
    assert next(lines([synth.hello([synth.REF], threads=1, cores=2)]))["smt_method"] == "single"


@pytest.mark.parametrize("seconds", [12, OFF_S], ids=["sibling off at the end", "sibling back"])
def test_a_core_whose_sibling_was_off_has_states_for_its_other_samples(seconds: int) -> None:
    _, *result, summary = lines(messages("sim:hotplug,cpus=8", seconds))
    intervals = [line for line in result if line["type"] == "interval"]
    for at, core in enumerate(summary["cores"]):
        means = {state: numbers["mean"] for state, numbers in core["smt"].items()}
        assert sum(means.values()) == pytest.approx(1)
        assert core["smt_method"] == "one-thread"
        for state, mean in means.items():
            each = [
                (line["cores"][at]["smt"][state], line["elapsed_s"])
                for line in intervals
                if line["cores"][at]["smt"][state] is not None
            ]
            true = sum(share * s for share, s in each) / sum(s for _, s in each)
            assert mean == pytest.approx(true, abs=0.05), state


def test_the_check_of_reasons_detects_a_missing_reason() -> None:
    line = {"type": "interval", "cpus": [{"cpu": 1, "ipc": None, "why": {"util": "off"}}]}
    ((path),) = paths_of_nulls(line)
    assert not has_reason(line, path, {})
    assert has_reason(line, path, {"ipc": None})
    assert has_reason(line, path, {"ipc": [1]})
    assert not has_reason(line, path, {"ipc": [0]})
