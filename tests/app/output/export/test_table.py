"""A recording as a table of CSV or Parquet."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import awkward
import made
import pytest
from exported import counted, export, messages, record, rows
from pyarrow import parquet

from perfprobe import wire

NOT_ASKED = {"counted_ratio", "package", "core", "suspect", "why", "task", "task_pid", "task_ratio",
             "job_run_s", "job_wait_s", "job_preemptions"}  # fmt: skip
"""Columns that may be empty without a reason; so may those of bounds where states are known."""


@pytest.mark.parametrize("spec", [None, "sim:hybrid", "sim:idle,smt=1", "sim:smt-mix,smt=4"])
def test_every_empty_cell_has_its_reason(tmp_path: Path, spec: str | None) -> None:
    """And a column is there on any machine, even one that counts a single thing."""
    found = counted(stamp="raw", tsc_hz=None) if spec is None else messages(spec, 3)
    printed = rows(export(record(tmp_path / "recording", found)))
    header = (awkward.GOLDEN / "table.csv").read_text().partition("\n")[0].split(",")
    assert list(printed[0]) == header
    for row in printed:
        empty = {name for name, value in row.items() if value == ""} - NOT_ASKED
        named = {name for part in row["why"].split("; ") for name in part.split("=")[0].split(",")}
        bounds = {name for name in empty if name.endswith(("_low_ratio", "_high_ratio"))}
        assert empty - bounds == named - {""}


def test_reasons_are_those_of_the_stream(tmp_path: Path) -> None:
    missing = [wire.Missing("cycles", "the watchdog has it"), wire.Missing("ipc", "no", None, [0])]
    path = record(tmp_path / "recording", counted(missing=missing))
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


def test_all_missing_ceilings_have_one_reason(tmp_path: Path) -> None:
    lacking = [wire.Missing("turbo_ceiling_hz", "nobody knows")]
    first = rows(export(record(tmp_path / "recording", counted(missing=lacking))))[0]
    (names,) = (
        part.removesuffix("=nobody knows").split(",")
        for part in first["why"].split("; ")
        if part.endswith("=nobody knows")
    )
    assert sorted(names) == ["turbo_ceiling_high_hz", "turbo_ceiling_hz", "turbo_ceiling_low_hz"]


def test_the_counted_share_of_the_time_is_printed(tmp_path: Path) -> None:
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


def test_parquet_is_the_same_table(recording: Path) -> None:
    printed = rows(export(recording))
    export(recording, "parquet")
    table = parquet.read_table(recording.with_name("exported")).to_pylist()
    assert len(table) == len(printed) > 50
    for own, row in zip(table, printed, strict=True):
        assert list(own) == list(row)
        assert {key: _text(value) for key, value in own.items()} == row


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def test_empty_columns_keep_their_type(tmp_path: Path) -> None:
    path = record(tmp_path / "recording", counted())
    export(path, "parquet")
    types = {
        field.name: str(field.type) for field in parquet.read_schema(path.with_name("exported"))
    }
    empty = {name for name, text in rows(export(path))[0].items() if text == ""}
    assert {"busy_hz", "smi_count", "smt_method", "cycles_count"} <= empty | {"smt_method"}
    assert types["busy_hz"] == "double"
    assert types["smi_count"] == types["cycles_count"] == "int64"
    assert types["smt_method"] == types["suspect"] == "string"


def test_reasons_are_not_most_of_the_bytes_of_csv(recording: Path) -> None:
    table = export(recording)
    whys = [line["why"] for line in csv.DictReader(io.StringIO(table.decode()))]
    assert sum(map(len, whys)) < len(table) / 3
    assert sum(map(len, whys)) < sum(len(row["why"]) for row in rows(table)) / 3
