"""The same recording in every format, against files that were read by a person, against what `stat`
prints, and against readers that others have written."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import awkward
import exported
import made
import pytest
from exported import export, messages, record, rows
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample, Timestamp
from pyarrow import parquet
from taped import written

from perfprobe import wire
from perftop.output.export.recorded_command import Command
from perftop.process.identity import Identity
from perftop.session.session import Session
from perftop.verbs import stat

EVERY_NS = 3_000_000_000
FEW = ("util", "busy_hz", "smt", "smt_neither_low_ratio", "cycles_count", "power_w")
NOT_ASKED = {"counted_ratio", "package", "core", "suspect", "why", "task", "task_pid", "task_ratio",
             "job_run_s", "job_wait_s", "job_preemptions"}  # fmt: skip
"""Columns that may be empty without a reason; so may those of bounds where states are known."""


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "recording"
    path.write_bytes((awkward.GOLDEN / "recording").read_bytes())
    return path


@pytest.mark.parametrize(
    ("name", "form", "metrics"),
    [("table.csv", "csv", None), ("lines.jsonl", "jsonl", None), ("series.om", "openmetrics", FEW)],
)
def test_golden(recording: Path, name: str, form: str, metrics: tuple[str, ...] | None) -> None:
    found = export(recording, form, metrics=metrics, every_ns=EVERY_NS)
    assert found.decode() == exported.golden(name, found).decode()


def test_the_recording_is_as_awkward_as_it_should_be(recording: Path) -> None:
    found = rows(export(recording))
    assert {row["smt_method"] for row in found} >= {"one-thread", "bounds", "single"}
    assert {row["online"] for row in found} == {"true", "false"}
    assert any(row["suspect"].startswith("cycles: ") for row in found)
    assert any('smi_count=in use by "pcm", says the kernel since boot' in r["why"] for r in found)


@pytest.mark.parametrize("form", ["csv", "jsonl", "openmetrics"])
def test_no_form_holds_what_could_steer_a_terminal(tmp_path: Path, form: str) -> None:
    hostile = "a\x1b\x9b\x7f\u202e\u200bb"
    missing = [wire.Missing("ref", hostile)]
    hello = made.hello(
        [made.CYCLES, made.INSTRUCTIONS], host=hostile, kernel=hostile, missing=missing
    )
    values = {key: [1000, 1000] for key in ("cycles", "instructions")}
    frames = [made.frame(hello, seq, values) for seq in range(1, 5)]
    mark = wire.Note("mark", made.SAMPLE_NS, "recorder", {"label": hostile})
    path = written(tmp_path / "recording", hello, [*frames, mark])
    text = export(path, form).decode()
    assert all(line.isprintable() for line in text.split("\n"))
    assert "\\u001b" in text
    assert "\\u202e" in text


# --- JSON lines


async def _printed(found: list[wire.Message], interval_ns: int, seconds: float) -> bytes:
    async def stream() -> AsyncIterator[list[wire.Message]]:
        for message in found:
            yield [message]

    out = io.StringIO()
    duration_ns = int(seconds * 1e9)
    options = stat.Options([], interval_ns, exported.SAMPLE_NS, None, duration_ns, json=True)
    printer = stat.Stat(options, out)
    await printer.consume(stream())
    printer.finish()
    return out.getvalue().encode()


@pytest.mark.parametrize(
    ("spec", "every_ns"),
    [
        ("sim:hotplug,cpus=4", 1_000_000_000),
        ("sim:hotplug,cpus=4", 300_000_000),
        ("sim:turbo-drop,cpus=8", 300_000_000),
        ("sim:hybrid", 1_000_000_000),
    ],
)
def test_jsonl_is_what_stat_prints(tmp_path: Path, spec: str, every_ns: int) -> None:
    found = messages(spec, 10.5)
    path = record(tmp_path / "recording", found)
    printed = asyncio.run(_printed(found, every_ns, 10.5))
    assert printed.count(b'"type":"interval"') > 10
    assert export(path, "jsonl", every_ns=every_ns) == printed


def _summary(tmp_path: Path, notes: list[wire.Note]) -> dict[str, Any]:
    path = record(tmp_path / "recording", [*_made(), *notes])
    found: dict[str, Any] = json.loads(export(path, "jsonl").splitlines()[-1])
    return found


def test_marks_are_lines_where_they_were_set(tmp_path: Path) -> None:
    greeting, *frames = _made()
    named = wire.Note("mark", 550_000_000, "recorder", {"label": "now\u2026"})
    path = record(tmp_path / "recording", [greeting, *frames[:6], named, *frames[6:]])
    lines = [json.loads(line) for line in export(path, "jsonl", every_ns=10**8).splitlines()]
    (at,) = (i for i, line in enumerate(lines) if line["type"] == "mark")
    wall_s = made.hello([made.REF]).wall_ns / 1e9
    mark = {"type": "mark", "time": pytest.approx(wall_s + 0.55), "label": "now\u2026"}
    assert lines[at] == mark
    before, behind = lines[at - 1], lines[at + 1]
    assert before["time"] < lines[at]["time"] < behind["time"]
    assert lines[-1]["episodes"] == {}, "a mark is no episode"
    for form in ("csv", "openmetrics", "parquet"):
        with_it = export(path, form)
        without = record(tmp_path / "other", [greeting, *frames])
        assert with_it == export(without, form)


def test_the_command_that_was_recorded_is_in_the_summary(tmp_path: Path) -> None:
    end = {
        "pid": 7, "status": 137, "wall_s": 0.6, "user_s": 0.5, "sys_s": 0.25, "missed": [1],
        "first_ns": [100_000_000, 125_000_000], "last_ns": [1_000_000_000, 1_250_000_000],
    }  # fmt: skip
    notes = [wire.Note("run-start", 200_000_000, data={"pid": 7, "argv": ["a"]}),
             wire.Note("run-end", 800_000_000, data=end)]  # fmt: skip
    run = _summary(tmp_path, notes)["run"]
    wall_s = made.hello([made.REF]).wall_ns / 1e9
    for key in ("start", "end"):
        run[key] -= wall_s
    for key in ("first_samples", "last_samples"):
        run[key] = [time - wall_s for time in run[key]]
    assert run == {
        "pid": 7, "status": 137, "wall_s": 0.6, "user_s": 0.5, "sys_s": 0.25, "missed": [1],
        "start": pytest.approx(0.2), "end": pytest.approx(0.8), "slack_s": pytest.approx(0.55),
        "first_samples": pytest.approx([0.1, 0.125]), "last_samples": pytest.approx([1.0, 1.25]),
        **dict.fromkeys(("switches", "page_faults", "disk_faults", "peak_bytes")),
    }  # fmt: skip
    assert _summary(tmp_path, notes[:1])["run"] is None


def test_notes_of_a_command_are_not_trusted(tmp_path: Path) -> None:
    wrong = ["x", 1.5, None, [], [2, 1], float("nan"), 2**64 - 1, True]
    for value in wrong:
        end = dict.fromkeys(("pid", "status", "wall_s", "first_ns", "last_ns", "missed"), value)
        notes = [wire.Note("run-start", 1, data={"pid": value}), wire.Note("run-end", 2, data=end)]
        run = _summary(tmp_path, notes)["run"]
        assert run["start"] is None
        assert run["sys_s"] is None


@pytest.mark.parametrize(("watch", "told"), [("7", True), ("8", False), ("lmp", False)])
def test_where_it_ran_is_told_if_it_was_watched(watch: str, told: bool) -> None:
    command = Command(Session(made.hello(watch=watch)))
    assert command.footprint is None
    command.take(wire.Note("run-start", 1, data={"pid": 7}))
    assert (command.footprint is not None) is told


def test_where_it_ran_is_told_beside_another_job() -> None:
    """The probe looks at both; the command is there before its start."""
    hello = made.hello([], watch="lmp")
    session = Session(hello)
    command = Command(session)
    other = {"threads": {"9": [9, "lmp", 3, 10**9, 0, 0, 0]}, "more": 0}
    for seq, (cpu, run_ns) in enumerate([(0, 10**6), (1, 10**6 + 5 * 10**8), (1, 10**9 + 10**6)]):
        mine = {"threads": {"7": [7, "job", cpu, run_ns, 0, 0, 0]}, "more": 0}
        command.take(made.frame(hello, seq, {}, records={"watched": other, "command": mine}))
        assert command.footprint is None
    command.take(wire.Note("run-start", 1, data={"pid": 7}))
    assert command.footprint is not None
    assert command.footprint.seconds == {1: pytest.approx(1.0)}, "not what lmp did"
    command.take(wire.Note("run-start", 1, data={"pid": 8}))
    assert command.footprint is None


def test_jsonl_of_some_measures(recording: Path) -> None:
    data = export(recording, "jsonl", metrics=["util", "smt", "power_w", "cycles_count"])
    lines = [json.loads(line) for line in data.splitlines()]
    (interval, *_), summary = [x for x in lines if x["type"] == "interval"], lines[-1]
    cpu = {"cpu", "online", "util", "counts", "suspect"}
    assert {key for row in interval["cpus"] for key in row} == cpu
    assert interval["cpus"][0]["counts"].keys() == {"cycles"}
    assert {"smt"} == interval["cores"][0].keys() - {"package", "core", "cpus", "suspect"}
    assert interval["machine"].keys() == {"power_w"}
    assert "busy_hz" not in summary["machine"]
    assert summary["machine"]["util"]["mean"] > 0


# --- how far to believe it, in every format


def _doubtful(path: Path) -> Path:
    """A recording in which CPU 1 has too many reference cycles in the first of two seconds, and
    which counts late and lost frames."""
    greeting = made.hello([made.REF, made.CYCLES])
    found: list[wire.Message] = [greeting]
    for seq in range(21):
        ref = [seq * 10**8, seq * 10**8 + (10**9 if seq > 5 else 0)]
        values = {"ref": ref, "cycles": [count * 2 for count in ref]}
        found.append(made.frame(greeting, seq, values, lost=seq // 10, late=seq // 5))
    return record(path / "doubtful", found)


def test_what_is_doubted_late_and_lost_stands_in_all_formats(tmp_path: Path) -> None:
    path = _doubtful(tmp_path)
    lines = [json.loads(line) for line in export(path, "jsonl").splitlines()]
    intervals = [line for line in lines if line["type"] == "interval"]
    assert [(line["lost"], line["late"]) for line in intervals] == [(1, 2), (2, 4)]
    suspect = [len(cpu["suspect"]) for line in intervals for cpu in line["cpus"]]
    assert suspect == [0, 2, 0, 0]
    names = ("lost_frames_total", "late_frames_total", "suspect_counters")
    wanted = [("1", "2", "0"), ("1", "2", "2"), ("2", "4", "0"), ("2", "4", "0")]
    told = rows(export(path, metrics=["util"]))
    assert [tuple(row[name] for name in names) for row in told] == wanted
    export(path, "parquet", metrics=["util"])
    table = parquet.read_table(path.with_name("exported")).to_pylist()
    assert [tuple(str(row[name]) for name in names) for row in table] == wanted
    series = _series(export(path, "openmetrics", metrics=["util"]))
    late, lost = (
        series[f"perftop_{key}_frames_total"][(("host", "h"),)] for key in ("late", "lost")
    )
    assert ([s.value for s in late], [s.value for s in lost]) == ([2, 4], [1, 2])
    by_cpu = {dict(key)["cpu"]: v for key, v in series["perftop_suspect_counters"].items()}
    assert {cpu: [s.value for s in v] for cpu, v in by_cpu.items()} == {"0": [0, 0], "1": [2, 0]}


# --- CSV


def _made(**more: Any) -> list[wire.Message]:
    greeting = made.hello([made.REF], **more)
    frames = [
        made.frame(greeting, seq, {"ref": [seq * 10**8] * len(greeting.topology)})
        for seq in range(12)
    ]
    return [greeting, *frames]


@pytest.mark.parametrize("spec", [None, "sim:hybrid", "sim:idle,smt=1", "sim:smt-mix,smt=4"])
def test_every_empty_cell_has_its_reason(tmp_path: Path, spec: str | None) -> None:
    """And a column is there on any machine, even one that counts a single thing."""
    found = _made(stamp="raw", tsc_hz=None) if spec is None else messages(spec, 3)
    told = rows(export(record(tmp_path / "recording", found)))
    header = (awkward.GOLDEN / "table.csv").read_text().partition("\n")[0].split(",")
    assert list(told[0]) == header
    for row in told:
        empty = {name for name, value in row.items() if value == ""} - NOT_ASKED
        named = {name for part in row["why"].split("; ") for name in part.split("=")[0].split(",")}
        bounds = {name for name in empty if name.endswith(("_low_ratio", "_high_ratio"))}
        assert empty - bounds == named - {""}


def test_reasons_are_those_of_the_stream(tmp_path: Path) -> None:
    missing = [wire.Missing("cycles", "the watchdog has it"), wire.Missing("ipc", "no", None, [0])]
    path = record(tmp_path / "recording", _made(missing=missing))
    first, second = rows(export(path))[:2]
    assert "net_hz=" not in first["why"]
    assert "busy_hz,net_hz" in first["why"]
    assert "=the watchdog has it" in first["why"]
    assert "ipc=no;" in first["why"]
    assert "ipc=no;" not in second["why"]
    (uncounted,) = (
        part.removesuffix("=not counted by this source").split(",")
        for part in first["why"].split("; ")
        if part.endswith("=not counted by this source")
    )
    assert {"smi_count", "machine_power_w"} <= {*uncounted}


def test_all_ceilings_lack_for_one_reason(tmp_path: Path) -> None:
    lacking = [wire.Missing("turbo_ceiling_hz", "nobody knows")]
    first = rows(export(record(tmp_path / "recording", _made(missing=lacking))))[0]
    (names,) = (
        part.removesuffix("=nobody knows").split(",")
        for part in first["why"].split("; ")
        if part.endswith("=nobody knows")
    )
    assert sorted(names) == ["turbo_ceiling_high_hz", "turbo_ceiling_hz", "turbo_ceiling_low_hz"]


def test_how_much_of_the_time_was_counted(tmp_path: Path) -> None:
    turns = [wire.Counter(f"perf_{key}_s", key, "s", "perf", scale=1e-9)
             for key in ("enabled", "running")]  # fmt: skip
    greeting = made.hello([*turns, made.REF])
    cpus = len(greeting.topology)
    frames = []
    for seq in range(12):
        ns = seq * made.SAMPLE_NS
        running = [ns // 4, *[ns] * (cpus - 1)]
        values = {"perf_enabled_s": [ns] * cpus, "perf_running_s": running, "ref": [ns] * cpus}
        frames.append(made.frame(greeting, seq, values))
    first, second = rows(export(record(tmp_path / "recording", [greeting, *frames])))[:2]
    assert (float(first["counted_ratio"]), float(second["counted_ratio"])) == (0.25, 1.0)


# --- Parquet


def test_parquet_is_the_same_table(recording: Path) -> None:
    told = rows(export(recording))
    export(recording, "parquet")
    table = parquet.read_table(recording.with_name("exported")).to_pylist()
    assert len(table) == len(told) > 50
    for mine, row in zip(table, told, strict=True):
        assert list(mine) == list(row)
        assert {key: _text(value) for key, value in mine.items()} == row


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def test_empty_columns_keep_their_type(tmp_path: Path) -> None:
    path = record(tmp_path / "recording", _made())
    export(path, "parquet")
    types = {
        field.name: str(field.type) for field in parquet.read_schema(path.with_name("exported"))
    }
    empty = {name for name, text in rows(export(path))[0].items() if text == ""}
    assert {"busy_hz", "smi_count", "smt_method", "cycles_count"} <= empty | {"smt_method"}
    assert types["busy_hz"] == "double"
    assert types["smi_count"] == types["cycles_count"] == "int64"
    assert types["smt_method"] == types["suspect"] == "string"


# --- whose it is


def test_every_form_tells_host_labels_command_and_start(tmp_path: Path) -> None:
    greeting, *frames = _made()
    assert isinstance(greeting, wire.Hello)
    named = Identity({"run": "17", "who": "a b"}, ["make", "-j 2"], 500_000_000).on(greeting)
    path = record(tmp_path / "recording", [named, *frames])
    start = named.wall_ns / 1e9
    told = json.loads(export(path, "jsonl").splitlines()[0])
    assert told["labels"] == {"run": "17", "who": "a b"}
    assert (told["command"], told["start"]) == (["make", "-j 2"], start)
    (row, *_) = found = rows(export(path))
    assert (row["host"], row["label_run"], row["label_who"]) == ("h", "17", "a b")
    spans = [round(float(row["elapsed_s"]), 6) for row in found[::2]]
    assert spans[:2] == [0.5, 0.5], "what was asked for when it was recorded"
    export(path, "parquet")
    known = parquet.read_schema(path.with_name("exported")).metadata
    assert (known[b"host"], known[b"command"]) == (b"h", b"make '-j 2'")
    assert json.loads(known[b"labels"]) == told["labels"]
    assert known[b"start_unix_s"] == f"{start:.3f}".encode()
    series = _series(export(path, "openmetrics"))
    (info,) = series["perftop_info"]
    assert {("host", "h"), ("label_run", "17"), ("command", "make '-j 2'")} <= {*info}
    assert all(("host", "h") in key for keys in series.values() for key in keys)


def test_reasons_are_not_most_of_the_bytes_of_csv(recording: Path) -> None:
    table = export(recording)
    whys = [line["why"] for line in csv.DictReader(io.StringIO(table.decode()))]
    assert sum(map(len, whys)) < len(table) / 3
    assert sum(map(len, whys)) < sum(len(row["why"]) for row in rows(table)) / 3


# --- OpenMetrics


def _families(data: bytes) -> Iterator[Metric]:
    found: Iterator[Metric] = text_string_to_metric_families(data.decode())  # type: ignore[no-untyped-call]
    return found


def _unix(sample: Sample) -> float:
    assert isinstance(sample.timestamp, float | Timestamp)
    return float(sample.timestamp)


def _series(data: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], list[Sample]]]:
    """By sample name and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], list[Sample]]] = {}
    for family in _families(data):
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {}).setdefault(key, []).append(sample)
    return found


def test_openmetrics_says_what_json_lines_say(recording: Path) -> None:
    series = _series(export(recording, "openmetrics"))
    lines = [json.loads(line) for line in export(recording, "jsonl").splitlines()]
    intervals = [line for line in lines if line["type"] == "interval"]
    place = {"core": "1", "cpu": "3", "package": "0", "host": "sim"}
    util = series["perftop_util_ratio"][tuple(sorted(place.items()))]
    wanted = [(i["time"], i["cpus"][3]["util"]) for i in intervals]
    assert [(_unix(s), s.value) for s in util] == [w for w in wanted if w[1] is not None]
    power = series["perftop_machine_power_watts"][(("host", "sim"),)]
    assert [s.value for s in power] == [i["machine"]["power_w"] for i in intervals]
    cycles = series["perftop_cycles_total"][tuple(sorted(place.items()))]
    moved = [i["cpus"][3]["counts"]["cycles"] for i in intervals]
    assert cycles[-1].value == sum(moved)
    assert all(a.value <= b.value for a, b in pairwise(cycles))


def test_a_counter_that_is_not_known_for_a_while_has_no_samples_then(tmp_path: Path) -> None:
    """CPU 1 is off in the second of four seconds; the third lacks a sample."""
    greeting = made.hello([made.REF], threads=1, cores=2)
    found: list[wire.Message] = [greeting]
    for seq in range(41):
        ref = [seq * 10**7, None if 11 <= seq <= 20 else seq * 10**7]
        found.append(made.frame(greeting, seq, {"ref": ref}))
    path = record(tmp_path / "recording", found)
    data = export(path, "openmetrics", every_ns=10**9, metrics=["ref_count"])
    series = _series(data)["perftop_ref_total"]
    zero = greeting.wall_ns / 1e9
    told = {
        dict(key)["cpu"]: [(round(_unix(s) - zero), s.value) for s in samples]
        for key, samples in series.items()
    }
    assert told["0"] == [(1, 1e8), (2, 2e8), (3, 3e8), (4, 4e8)]
    assert told["1"] == [(1, 1e8), (4, 2e8)]


def test_a_core_is_told_once(recording: Path) -> None:
    series = _series(export(recording, "openmetrics"))["perftop_smt_both_ratio"]
    assert {dict(key)["cpus"] for key in series} == {"0,2", "1,3"}
    assert all("cpu" not in dict(key) for key in series)


def test_openmetrics_names_its_units(recording: Path) -> None:
    text = export(recording, "openmetrics").decode()
    assert text.endswith("\n# EOF\n")
    for family in _families(text.encode()):
        assert family.documentation
        assert not family.unit or family.name.endswith(f"_{family.unit}")
        assert family.type in {"gauge", "counter", "info"}
        assert all(math.isfinite(sample.value) for sample in family.samples)
    assert "# UNIT perftop_busy_hertz hertz" in text


def test_labels_may_hold_anything(tmp_path: Path) -> None:
    identity = wire.Identity(name='the "best"\nof\\all')
    path = record(tmp_path / "recording", _made(identity=identity))
    (labels,) = _series(export(path, "openmetrics"))["perftop_info"]
    assert dict(labels)["model"] == 'the "best"\nof\\all'
