"""One recording in all formats, compared with reviewed files, with `stat`, and with independent
parsers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import exports
import pytest
import synth
from exporter_page import samples_by_name
from exports import counted_messages, export, record, rows
from pyarrow import parquet
from recording_files import write_recording

from perfprobe import wire

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


def test_the_recording_has_all_special_cases(recording: Path) -> None:
    result = rows(export(recording))
    assert {row["smt_method"] for row in result} >= {"one-thread", "bounds", "single"}
    assert {row["online"] for row in result} == {"true", "false"}
    assert any(row["suspect"].startswith("cycles: ") for row in result)
    assert any('smi_count=in use by "pcm", says the kernel since boot' in r["why"] for r in result)


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


# --- doubtful samples in all formats


def _doubtful(path: Path) -> Path:
    """A recording in which CPU 1 has too many reference cycles in the first of two seconds, and
    which has late and lost frames."""
    greeting = synth.hello([synth.REF, synth.CYCLES])
    results: list[wire.Message] = [greeting]
    for seq in range(21):
        ref = [seq * 10**8, seq * 10**8 + (10**9 if seq > 5 else 0)]
        values = {"ref": ref, "cycles": [count * 2 for count in ref]}
        results.append(synth.frame(greeting, seq, values, lost=seq // 10, late=seq // 5))
    return record(path / "doubtful", results)


def test_doubted_late_and_lost_samples_are_in_all_formats(tmp_path: Path) -> None:
    path = _doubtful(tmp_path)
    lines = [json.loads(line) for line in export(path, "jsonl").splitlines()]
    intervals = [line for line in lines if line["type"] == "interval"]
    assert [(line["lost"], line["late"]) for line in intervals] == [(1, 2), (2, 4)]
    suspect = [len(cpu["suspect"]) for line in intervals for cpu in line["cpus"]]
    assert suspect == [0, 2, 0, 0]
    names = ("lost_frames_total", "late_frames_total", "suspect_counters")
    wanted = [("1", "2", "0"), ("1", "2", "2"), ("2", "4", "0"), ("2", "4", "0")]
    printed = rows(export(path, metrics=["util"]))
    assert [tuple(row[name] for name in names) for row in printed] == wanted
    export(path, "parquet", metrics=["util"])
    table = parquet.read_table(path.with_name("exported")).to_pylist()
    assert [tuple(str(row[name]) for name in names) for row in table] == wanted
    series = samples_by_name(export(path, "openmetrics", metrics=["util"]))
    late, lost = (
        series[f"perftop_{key}_frames_total"][(("host", "h"),)] for key in ("late", "lost")
    )
    assert ([s.value for s in late], [s.value for s in lost]) == ([2, 4], [1, 2])
    by_cpu = {dict(key)["cpu"]: v for key, v in series["perftop_suspect_counters"].items()}
    assert {cpu: [s.value for s in v] for cpu, v in by_cpu.items()} == {"0": [0, 0], "1": [2, 0]}


# --- host, labels and command


def test_all_formats_have_host_labels_command_and_start(tmp_path: Path) -> None:
    greeting, *frames = counted_messages()
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
