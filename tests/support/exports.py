"""Recordings to export, and their exports."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import edge_cases
import synth
from recording_files import write_recording
from sim_streams import SAMPLE_NS, messages_lasting

from perfprobe import wire
from perftop import cli
from perftop.output.export.tables import NOTHING_MISSING

Row = dict[str, str]


def messages(spec: str, seconds: float, sample_ns: int = SAMPLE_NS) -> list[wire.Message]:
    """Returns the messages of `seconds` seconds, the hello first."""
    hello_message, result = messages_lasting(spec, seconds, sample_ns)
    return [hello_message, *result]


def single_counter_messages(**more: Any) -> list[wire.Message]:
    """The messages of one second of a machine with a single counter."""
    hello_message = synth.hello([synth.REF], **more)
    frames = [
        synth.frame(hello_message, seq, {"ref": [seq * 10**8] * len(hello_message.topology)})
        for seq in range(12)
    ]
    return [hello_message, *frames]


def hello(result: Sequence[wire.Message]) -> wire.Hello:
    first = result[0]
    assert isinstance(first, wire.Hello)
    return first


def record(path: Path, result: Sequence[wire.Message]) -> Path:
    timed = [m for m in result[1:] if isinstance(m, wire.Frame | wire.Note)]
    assert len(timed) == len(result) - 1
    return write_recording(path, hello(result), timed)


def marked_recording(path: Path, spec: str, samples: int, marks: Mapping[float, str]) -> Path:
    """Writes a recording with marks; `marks` has their labels by seconds after its start."""
    result = messages(spec, samples / 10)
    left, start_ns = dict(marks), hello(result).raw_ns
    timed: list[wire.Message] = [result[0]]
    for message in result[1:]:
        assert isinstance(message, wire.Frame | wire.Note)
        for at in [at for at in left if message.time_ns - start_ns >= at * 1e9]:
            label = {"label": left.pop(at)}
            timed.append(wire.Note("mark", message.time_ns, "recorder", label))
        timed.append(message)
    return record(path, timed)


def export(path: Path, form: str = "csv", status: int = 0, **options: object) -> bytes:
    """Returns the content of the exported file. `options` are those of the command line, with lists
    as lists and times in ns."""
    out = path.with_name("exported")
    assert export_file(path, out, form, "--force", **options) == status
    return out.read_bytes()


def export_file(path: Path, out: Path, form: str = "csv", *more: str, **options: Any) -> int:
    """Runs an export and returns its exit status. Raises the errors of the verb."""
    if (every_ns := options.pop("every_ns", None)) is not None:
        more = (*more, "--every", f"{every_ns // 1000}us")
    if (metrics := options.pop("metrics", None)) is not None:
        more = (*more, "--metrics", ",".join(metrics))
    more = (*more, *(f"--{name}={value}" for name, value in options.items()))
    words = ["export", str(path), "-o", str(out), "--format", form, *more]
    parsed = cli._parse_arguments(words)
    status: int = parsed.verb(parsed)
    return status


def rows(data: bytes) -> list[Row]:
    """Returns the rows of CSV, each with its reasons; the file contains reasons only where they
    change."""
    result = list(csv.DictReader(io.StringIO(data.decode())))
    last: dict[str, str] = {}
    for row in result:
        report = row["why"] or last.get(row["cpu"], "")
        last[row["cpu"]] = report
        row["why"] = "" if report == NOTHING_MISSING else report
    return result


def golden(name: str, data: bytes) -> bytes:
    """The expected content. If PERFTOP_GOLDEN is set, the file is overwritten first, so that its
    diff can be read."""
    path = edge_cases.GOLDEN / name
    if os.environ.get("PERFTOP_GOLDEN"):
        path.write_bytes(data)
    return path.read_bytes()


def stream(result: Iterable[wire.Message]) -> bytes:
    return b"".join(map(wire.encode, result))
