"""A recording as a table of CSV or Parquet, and as OpenMetrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import edge_cases
import pytest
import synth
from exporter_page import samples_by_name, unix_s
from exports import export, messages, record, rows, single_counter_messages
from pyarrow import parquet
from sessions import session_of
from sim_streams import messages_lasting

from perfprobe import wire
from perfprobe.wire import Frame, Hello, Note
from perftop.output.export.fields import RowBlock, chosen_fields
from perftop.session.session import Session
from perftop.session.values import cpu_values

MAY_BE_EMPTY = {
    "counted_ratio", "package", "core", "suspect", "why", "task", "task_pid", "task_ratio",
    "job_run_s", "job_wait_s", "job_preemptions",
}  # fmt: skip
"""Columns that may be empty without a reason, as may bounds of known states."""


@pytest.mark.parametrize("spec", [None, "sim:hybrid", "sim:idle,smt=1", "sim:smt-mix,smt=4"])
def test_all_empty_cells_have_a_reason(tmp_path: Path, spec: str | None) -> None:
    """All columns exist on any machine, even on one that counts almost nothing."""
    result = (
        single_counter_messages(stamp="raw", tsc_hz=None) if spec is None else messages(spec, 3)
    )
    printed = rows(export(record(tmp_path / "recording", result)))
    header = (edge_cases.GOLDEN / "table.csv").read_text().partition("\n")[0].split(",")
    assert list(printed[0]) == header
    for row in printed:
        empty = {name for name, value in row.items() if value == ""} - MAY_BE_EMPTY
        named = {name for part in row["why"].split("; ") for name in part.split("=")[0].split(",")}
        bounds = {name for name in empty if name.endswith(("_low_ratio", "_high_ratio"))}
        assert empty - bounds == named - {""}


def test_the_counted_share_of_the_time_is_printed(tmp_path: Path) -> None:
    turns = [wire.Counter(f"perf_{key}_s", key, "s", "perf", scale=1e-9)
             for key in ("enabled", "running")]  # fmt: skip
    greeting = synth.hello([*turns, synth.REF])
    cpus = len(greeting.topology)
    frames = []
    for seq in range(12):
        ns = seq * synth.SAMPLE_NS
        running = [ns // 4, *[ns] * (cpus - 1)]
        values = {"perf_enabled_s": [ns] * cpus, "perf_running_s": running, "ref": [ns] * cpus}
        frames.append(synth.frame(greeting, seq, values))
    first, second = rows(export(record(tmp_path / "recording", [greeting, *frames])))[:2]
    assert (float(first["counted_ratio"]), float(second["counted_ratio"])) == (0.25, 1.0)


def test_parquet_equals_csv(recording: Path) -> None:
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
    path = record(tmp_path / "recording", single_counter_messages())
    export(path, "parquet")
    types = {
        field.name: str(field.type) for field in parquet.read_schema(path.with_name("exported"))
    }
    empty = {name for name, text in rows(export(path))[0].items() if text == ""}
    assert {"busy_hz", "smi_count", "smt_method", "cycles_count"} <= empty | {"smt_method"}
    assert types["busy_hz"] == "double"
    assert types["smi_count"] == types["cycles_count"] == "int64"
    assert types["smt_method"] == types["suspect"] == "string"


# --- metrics of packages and L3s


KEYS = ("package_power_dram_w", "package_memory_read_bytes_per_s", "l3_memory_bytes_per_s")


def simulated_messages() -> tuple[Hello, Sequence[Frame | Note]]:
    return messages_lasting("sim:memory,cpus=8,packages=2", 12)


def test_a_cpu_whose_package_is_known_only_after_hello_has_the_values_of_its_package() -> None:
    """While a CPU is offline, Linux names neither its core nor its package."""
    hello, messages = simulated_messages()
    late = hello.topology[-1]
    assert late.package == 1
    unknown = replace(late, online=False, package=None, core=None, siblings=[])
    known = {cpu for cpus in hello.packages for cpu in cpus} - {late.cpu}
    partial_hello = replace(
        hello, topology=[*hello.topology[:-1], unknown],
        cores=[core for core in hello.cores if late.cpu not in core],
        packages=[[cpu for cpu in cpus if cpu in known] for cpus in hello.packages],
    )  # fmt: skip
    session, data = Session(partial_hello), {"cpu": late.cpu, "online": True, "row": asdict(late)}
    block = RowBlock(session)
    session_of(session, [*messages[:20], Note("hotplug", messages[19].time_ns, data=data)])
    session.take_interval()
    session_of(session, messages[20:])
    interval = session.take_interval()
    block.add(interval)
    (field,) = chosen_fields([KEYS[1]])
    values = block.by_row(field.values(block), field.scope)[0]
    assert values[-1] == values[session.position[hello.packages[1][0]]] > 0
    assert cpu_values(session, interval, KEYS[1])[-1] == values[-1]
    assert interval.cores.package[interval.cores.core_by_cpu[-1]] == late.package


def test_a_counter_has_no_samples_while_it_is_unknown(tmp_path: Path) -> None:
    """CPU 1 is off in the second of four seconds; a sample is lost in the third."""
    greeting = synth.hello([synth.REF], threads=1, cores=2)
    results: list[wire.Message] = [greeting]
    for seq in range(41):
        ref = [seq * 10**7, None if 11 <= seq <= 20 else seq * 10**7]
        results.append(synth.frame(greeting, seq, {"ref": ref}))
    path = record(tmp_path / "recording", results)
    data = export(path, "openmetrics", every_ns=10**9, metrics=["ref_count"])
    series = samples_by_name(data)["perftop_ref_total"]
    zero = greeting.wall_ns / 1e9
    printed = {
        dict(key)["cpu"]: [(round(unix_s(s) - zero), s.value) for s in samples]
        for key, samples in series.items()
    }
    assert printed["0"] == [(1, 1e8), (2, 2e8), (3, 3e8), (4, 4e8)]
    assert printed["1"] == [(1, 1e8), (4, 2e8)]
