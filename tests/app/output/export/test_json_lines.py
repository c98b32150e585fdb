"""Exported JSON lines, and one recording in all formats, compared with reviewed files."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import exports
import pytest
import synth
from exporter_page import samples_by_name
from exports import export, messages, record, rows, single_counter_messages
from pyarrow import parquet
from recording_files import write_recording
from sim_streams import SAMPLE_NS

from perfprobe import wire
from perftop import cli
from perftop.base.errors import Failed
from perftop.output.export import fields, openmetrics
from perftop.verbs import measuring


async def _printed(result: list[wire.Message], interval_ns: int, seconds: float) -> bytes:
    async def stream() -> AsyncIterator[list[wire.Message]]:
        for message in result:
            yield [message]

    words = f"stat --json -i {interval_ns / 1e9}s --sample {SAMPLE_NS / 1e9}s --duration {seconds}s"
    printer = measuring.Stat(cli._parse_arguments(words.split()))
    printer.out = io.StringIO()
    await printer.consume(stream())
    printer.on_end()
    return printer.out.getvalue().encode()


@pytest.mark.parametrize(("spec", "every_ns"), [
    ("sim:hotplug,cpus=4", 1_000_000_000),
    pytest.param("sim:hotplug,cpus=4", 300_000_000, marks=pytest.mark.nightly),
    pytest.param("sim:turbo-drop,cpus=8", 300_000_000, marks=pytest.mark.nightly),
    pytest.param("sim:hybrid", 1_000_000_000, marks=pytest.mark.nightly),
])  # fmt: skip
def test_jsonl_equals_the_output_of_stat(tmp_path: Path, spec: str, every_ns: int) -> None:
    result = messages(spec, 10.5)
    path = record(tmp_path / "recording", result)
    printed = asyncio.run(_printed(result, every_ns, 10.5))
    assert printed.count(b'"type":"interval"') > 10
    text = re.sub(rb',"own_cpu_s":[0-9.e-]+', b"", printed)
    assert text != printed, "a file does not have the cost of this process"
    assert export(path, "jsonl", every_ns=every_ns) == text


def _summary(tmp_path: Path, notes: list[wire.Note]) -> dict[str, Any]:
    path = record(tmp_path / "recording", [*single_counter_messages(), *notes])
    result: dict[str, Any] = json.loads(export(path, "jsonl").splitlines()[-1])
    return result


def test_the_recorded_command_is_in_the_summary(tmp_path: Path) -> None:
    end = {
        "pid": 7, "status": 137, "wall_s": 0.6, "user_s": 0.5, "sys_s": 0.25, "missed": [1],
        "first_ns": [100_000_000, 125_000_000], "last_ns": [1_000_000_000, 1_250_000_000],
    }  # fmt: skip
    notes = [wire.Note("run-start", 200_000_000, data={"pid": 7, "argv": ["a"]}),
             wire.Note("run-end", 800_000_000, data=end)]  # fmt: skip
    run = _summary(tmp_path, notes)["run"]
    wall_s = synth.hello([synth.REF]).wall_ns / 1e9
    for key in ("start", "end"):
        run[key] -= wall_s
    for key in ("first_samples", "last_samples"):
        run[key] = [time - wall_s for time in run[key]]
    assert run == {
        "pid": 7, "status": 137, "wall_s": 0.6, "user_s": 0.5, "sys_s": 0.25, "missed": [1],
        "start": pytest.approx(0.2), "end": pytest.approx(0.8), "slack_s": pytest.approx(0.55),
        "first_samples": pytest.approx([0.1, 0.125]), "last_samples": pytest.approx([1.0, 1.25]),
        **dict.fromkeys(("late_s", "switches", "page_faults", "disk_faults", "peak_bytes")),
    }  # fmt: skip
    assert _summary(tmp_path, notes[:1])["run"] is None
    end["remote"] = True
    far_run = _summary(tmp_path, notes)["run"]
    assert (far_run["start"], far_run["end"], far_run["slack_s"]) == (None, None, run["slack_s"])


def test_notes_of_a_command_are_not_trusted(tmp_path: Path) -> None:
    keys = "pid", "status", "user_s", "sys_s", "switches", "first_ns", "last_ns", "missed"
    wrong = ["x", -1.5, None, {}, [2, 1.5], float("nan"), float("inf"), True]
    results = {"pid", "status", "user_s", "sys_s", "switches", "first_samples", "last_samples",
            "slack_s", "missed"}  # fmt: skip
    for value in wrong:
        end = wire.Note("run-end", 2, data=dict.fromkeys(keys, value))
        run = _summary(tmp_path, [wire.Note("run-start", 1, data={"pid": 7}), end])["run"]
        assert {key: run[key] for key in results} == dict.fromkeys(results), value
        assert run["start"] is None, "it began before the first sample"


def test_jsonl_can_be_limited_to_some_metrics(recording: Path) -> None:
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


# --- all formats


EVERY_NS = 3_000_000_000
FEW = ("util", "busy_hz", "smt", "smt_neither_low_ratio", "cycles_count", "power_w")


@pytest.mark.parametrize(("name", "form", "metrics"), [
    ("table.csv", "csv", None), ("lines.jsonl", "jsonl", None), ("series.om", "openmetrics", FEW),
])  # fmt: skip
def test_all_formats_equal_the_reviewed_files(
    recording: Path, name: str, form: str, metrics: tuple[str, ...] | None
) -> None:
    result = export(recording, form, metrics=metrics, every_ns=EVERY_NS)
    assert result.decode() == exports.golden(name, result).decode()


@pytest.mark.parametrize("form", ["csv", "jsonl", "openmetrics"])
def test_no_format_contains_control_characters(tmp_path: Path, form: str) -> None:
    hostile = "a\x1b\x9b\x7f\u202e\u200bb"
    missing = [wire.Missing("ref", hostile)]
    hello = synth.hello(
        [synth.CYCLES, synth.INSTRUCTIONS], host=hostile, kernel=hostile, missing=missing
    )
    values = {key: [1000, 1000] for key in ("cycles", "instructions")}
    frames = [synth.frame(hello, seq, values) for seq in range(1, 5)]
    mark = wire.Note("mark", synth.SAMPLE_NS, "recorder", {"label": hostile})
    path = write_recording(tmp_path / "recording", hello, [*frames, mark])
    text = export(path, form).decode()
    assert all(line.isprintable() for line in text.split("\n"))
    assert "\\u001b" in text
    assert "\\u202e" in text


def messages_with_event(name: str) -> list[wire.Message]:
    """The messages of 1.2 s of a CPU that also counts an event, in half of the time."""
    greeting = synth.hello([synth.REF, synth.CYCLES, synth.INSTRUCTIONS], threads=1)
    times = [wire.Counter(f"perf_{key}_s", key, "s", "perf", scale=1e-9)
             for key in ("enabled", "running")]  # fmt: skip
    block = wire.Block("events.1", "cpu", [*times, wire.Counter(name, name, "events", "perf cpu")])
    result: list[wire.Message] = [
        replace(greeting, blocks=[*greeting.blocks, block], interval_ns=600_000_000)
    ]
    for seq in range(13):
        counts = {key: [seq * 10**7] for key in ("ref", "cycles", "instructions")}
        frame = synth.frame(greeting, seq, counts)
        turns = {
            "perf_enabled_s": [seq * SAMPLE_NS], "perf_running_s": [seq * SAMPLE_NS // 2],
            name: [seq * 1000],
        }  # fmt: skip
        rows = synth.rows(block, 1, turns, [int(seq * synth.TSC_HZ / 10)])
        result.append(replace(frame, blocks=frame.blocks | {"events.1": rows}))
    return result


def test_a_chosen_event_has_columns_and_families_in_all_formats(tmp_path: Path) -> None:
    path = record(tmp_path / "recording", messages_with_event("e.branches"))
    values = {"hz": 20000.0, "per_ki": 0.2, "count": 12000.0, "counted_ratio": 0.5}
    row = rows(export(path))[0]
    assert {end: float(row[f"e.branches_{end}"]) for end in values} == pytest.approx(values)
    chosen = rows(export(path, metrics=["e.branches", "util"]))[0]
    columns = {key for key in chosen if key.startswith("e.")}
    assert columns == {"e.branches_hz", "e.branches_counted_ratio"}
    series = samples_by_name(export(path, "openmetrics"))
    ends = {
        "hz": "_hertz", "per_ki": "_per_thousand_instructions", "count": "_total",
        "counted_ratio": "_counted_ratio",
    }  # fmt: skip
    for end, suffix in ends.items():
        ((labels, samples),) = series[f"perftop_event{suffix}"].items()
        assert ("event", "branches") in labels
        assert samples[0].value == pytest.approx(values[end])
    cpu = json.loads(export(path, "jsonl").splitlines()[1])["cpus"][0]
    assert cpu["e.branches"] == pytest.approx(20000.0)
    assert cpu["counted_events"] == {"e.branches": pytest.approx(0.5)}
    with pytest.raises(Failed, match=r"no event 'e\.x' here; counted: e\.branches"):
        export(path, metrics=["e.x"])


# --- doubtful samples in all formats


def test_all_formats_have_host_labels_command_and_start(tmp_path: Path) -> None:
    greeting, *frames = single_counter_messages()
    assert isinstance(greeting, wire.Hello)
    labels = {"run": "17", "who": "a b"}
    named = replace(greeting, labels=labels, command=["make", "-j 2"], interval_ns=500_000_000)
    path = record(tmp_path / "recording", [named, *frames])
    start = named.wall_ns / 1e9
    printed = json.loads(export(path, "jsonl").splitlines()[0])
    assert printed["labels"] == {"run": "17", "who": "a b"}
    assert (printed["command"], printed["start"]) == (["make", "-j 2"], start)
    (row, *_) = result = rows(export(path))
    assert (row["host"], row["label_run"], row["label_who"]) == ("h", "17", "a b")
    spans = [round(float(row["elapsed_s"]), 6) for row in result[::2]]
    assert spans[:2] == [0.5, 0.5], "what was asked for when it was recorded"
    export(path, "parquet")
    known = parquet.read_schema(path.with_name("exported")).metadata
    assert (known[b"host"], known[b"command"]) == (b"h", b"make '-j 2'")
    assert json.loads(known[b"labels"]) == printed["labels"]
    assert known[b"start_unix_s"] == f"{start:.3f}".encode()
    series = samples_by_name(export(path, "openmetrics"))
    (info,) = series["perftop_info"]
    assert {("host", "h"), ("label_run", "17"), ("command", "make '-j 2'")} <= {*info}
    assert all(("host", "h") in key for keys in series.values() for key in keys)


# --- host, labels and command


def test_openmetrics_is_the_same_in_pieces_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither series nor blocks of intervals need to fit into memory."""
    path = record(tmp_path / "recording", messages("sim:halts,cpus=4", 40))
    whole = export(path, "openmetrics", every_ns=SAMPLE_NS)
    monkeypatch.setattr(fields, "MAX_BLOCK_CELLS", 1000)
    monkeypatch.setattr(openmetrics, "READ_BYTES", 1)
    monkeypatch.setattr(openmetrics, "TEXT_SAMPLES", 7)
    assert export(path, "openmetrics", every_ns=SAMPLE_NS) == whole
