"""The docstring of the wire is enough to write a stream: its tables agree with the code, and a
stream made only from them is read with the right numbers."""

from __future__ import annotations

import ast
import json
import re
import struct
import subprocess
from collections import defaultdict
from dataclasses import MISSING, replace
from dataclasses import fields as declared
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import pytest
from command import argv
from sessions import session_of
from sim_streams import messages, messages_lasting

from perfprobe import wire
from perfprobe.machine import cpu_files
from perfprobe.perf import cores, groups
from perfprobe.polled import firmware_limits, powercap
from perfprobe.registers import parts as msr
from perftop.model import counters
from perftop.model.delta import BlockSlices, CounterLimits
from perftop.model.numbers import EVENT_PREFIX, METRICS
from perftop.session.history import History
from perftop.session.session import Session

Row = tuple[str, ...]


def _tables() -> dict[str, list[Row]]:
    """Rows of the docstring's tables, by the first word of their heading."""
    tables: dict[str, list[Row]] = {}
    for lines in re.findall(r"(?:^\|.*\n)+", wire.__doc__ or "", re.MULTILINE):
        rows = [tuple(cell.strip() for cell in line[1:-2].split("|")) for line in lines.split("\n")]
        tables[rows[0][0]] = rows[2:-1]
    return tables


TABLES = _tables()
KEYS = {key: row[1:4] for row in TABLES["key"] for key in row[0].split(", ")}
"""Scope, kind and unit by key."""


# --- the tables and the code ----------------------------------------------------------------------


class _RecordingColumns(dict[str, counters.BlockCounter]):
    """The counter columns of a stream, by key. Records the keys that the app looks up."""

    keys_asked: ClassVar[set[str]] = set()

    def __getitem__(self, key: str) -> counters.BlockCounter:
        self.keys_asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_asked.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.keys_asked.add(str(key))
        return super().__contains__(key)


@pytest.fixture(scope="module")
def keys_read_by_app() -> set[str]:
    """Keys that the app reads, from streams with varied events."""
    original = counters.Counters.__init__

    def init_with_recording(self: counters.Counters, hello: wire.Hello) -> None:
        original(self, hello)
        self.columns = _RecordingColumns(self.columns)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(counters.Counters, "__init__", init_with_recording)
        for scenario in ("turbo-drop", "throttle", "halts"):
            _play(scenario, "one-thread", 20.0)
        for method in ("any-thread", "distributed"):
            _play("steady", method, 1.0)
    needs = {key for m in METRICS.values() for v in m.variants for key in v.needs}
    return (_RecordingColumns.keys_asked | needs) - {""}


def _play(scenario: str, method: str, seconds: float) -> None:
    hello, found = messages_lasting(f"sim:{scenario},cpus=4", seconds)
    hello = replace(hello, smt_methods=[method])
    session_of(Session(hello, History(hello)), found).take_interval()


def test_every_key_that_the_app_reads_is_in_the_table(keys_read_by_app: set[str]) -> None:
    fixed = {
        key for key in keys_read_by_app if not key.startswith(EVENT_PREFIX)
    }  # users choose the events
    assert fixed - KEYS.keys() == set()


def test_every_key_of_the_table_is_used(keys_read_by_app: set[str]) -> None:
    literals = set()
    for folder in ("model", "detect", "session", "output"):
        for path in (Path(counters.__file__).parents[1] / folder).rglob("*.py"):
            for statement in ast.parse(path.read_text()).body:
                if "KEYS_BY_SCOPE:" in ast.unparse(statement):  # names all keys, and reads none
                    continue
                nodes = ast.walk(statement)
                literals |= {n.value for n in nodes if isinstance(n, ast.Constant)}
    assert KEYS.keys() - keys_read_by_app - literals == set()


def test_the_app_reads_each_key_in_the_scope_of_the_table() -> None:
    printed: dict[str, set[str]] = defaultdict(set)
    for key, (scope, *_) in KEYS.items():
        printed[scope].add(key)
    assert {scope: {*keys} for scope, keys in counters.KEYS_BY_SCOPE.items()} == {
        scope: keys for scope, keys in printed.items() if scope != "cpu"
    }


def test_sources_send_the_keys_of_the_table() -> None:
    sent: dict[str, set[Row]] = defaultdict(set)
    for scenario in ("steady", "license", "throttle", "hybrid"):
        for block in messages(f"sim:{scenario}", 0, 50_000_000)[0].blocks:
            for c in block.counters:
                sent[c.key].add((block.scope, c.kind, c.unit))
    loose = [
        *cores.CORE_COUNTERS,
        *cores.MSR_COUNTERS,
        *groups.TIME_COUNTERS,
        *firmware_limits.COUNTERS[firmware_limits.PROCHOT],
        firmware_limits.LIMITS,
    ]
    loose.append(firmware_limits.PLR_COUNTER)
    loose += [*cpu_files.CPUFREQ_COUNTERS.values(), *powercap.COUNTERS, msr.tsc_reading().counter]
    loose += [c for counters in cpu_files.THROTTLE_COUNTERS.values() for c in counters.values()]
    for c in loose:
        if c.key in KEYS:
            sent[c.key].add((KEYS[c.key][0], c.kind, c.unit))
    assert {key: rows for key, rows in sent.items() if rows != {KEYS[key]}} == {}
    assert len(sent) > 40


def test_units_have_the_limits_of_the_table() -> None:
    words = {unit: float(most) for unit, most in TABLES["unit"]}
    for unit, most in words.items():
        block = wire.Block("b", "cpu", [wire.Counter("k", "", unit, "", bits=48)])
        limits = CounterLimits([BlockSlices(block, 1, 1, slice(1), slice(1))])
        assert limits._max_rates.tolist() == [most]
    assert {unit for _, _, unit in KEYS.values()} - words.keys() == {
        *("1", "J", "W", "B", "Hz", "°C", "%")
    }


@pytest.mark.parametrize(
    ("table", "made"),
    [
        ("hello", wire.Hello),
        ("topology row", wire.Cpu),
        ("block", wire.Block),
        ("counter", wire.Counter),
    ],
)
def test_the_keys_of_a_message(table: str, made: type[Any]) -> None:
    printed = {key for row in TABLES[table] for key in row[0].split(", ")}
    fields = {
        one.name + "?" * (one.default is not MISSING or one.default_factory is not MISSING)
        for one in declared(made)
    }
    if made is wire.Hello:  # without it, readers refuse a hello
        fields = fields - {"wire?"} | {"wire"}
    assert printed == fields


# --- a stream by hand -----------------------------------------------------------------------------

TSC_HZ, SAMPLE_NS = 2_000_000_000, 100_000_000
COUNTERS = [("ref", "cycles"), ("cycles", "cycles"), ("instructions", "instructions"),
           ("one_thread", "1")]  # fmt: skip
SHARES = [0.5, 0.25]
"""Share of the time for which each thread is not halted; for 0.125 of the time both run."""
TSC_TICKS_PER_COUNT = 80
"""TSC ticks for each count of one_thread."""


def _encoded(message: dict[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(msgpack.packb(message), use_bin_type=True)
    return packed


def _hello() -> dict[str, Any]:
    return {
        "type": "hello", "wire": 1, "perftop": "by hand", "source": "pencil", "host": "paper",
        "kernel": "-",
        "wall_ns": 1_700_000_000_000_000_000, "raw_ns": 0, "sample_ns": SAMPLE_NS,
        "topology": [
            {"cpu": cpu, "online": True, "package": 0, "core": 0, "siblings": [0, 1]}
            for cpu in (0, 1)
        ],
        "cores": [[0, 1]], "packages": [[0, 1]],
        "blocks": [
            {"name": "cpu", "scope": "cpu", "counters": [
                {"key": key, "name": key, "unit": unit, "origin": "pencil", "bits": 48}
                for key, unit in COUNTERS
            ]},
            {"name": "sockets", "scope": "package", "counters": [
                {"key": "energy_j", "name": "energy", "unit": "J", "origin": "pencil", "bits": 32,
                 "scale": 0.001},
            ]},
        ],
        "tsc_hz": {"hz": TSC_HZ, "origin": "pencil"},
        "multipliers": [{"counter": "one_thread", "factor": TSC_TICKS_PER_COUNT, "why": "pencil"}],
        "smt_methods": ["one-thread"],
    }  # fmt: skip


def _frame(seq: int) -> dict[str, Any]:
    def rows(stamp: int, table: list[list[int]]) -> dict[str, bytes]:
        head = [stamp, stamp, 0, 0, 1]  # before, after, lateness, lost, ROW_SAMPLED
        columns = len(table[0])
        return {
            "head": struct.pack("<5Q", *head),  # one for all rows
            "valid": struct.pack(f"<{len(table)}Q", *[(1 << columns) - 1] * len(table)),
            "values": b"".join(struct.pack(f"<{columns}Q", *row) for row in table),
        }

    tsc = seq * TSC_HZ // 10
    cpus = []
    for share in SHARES:
        ref = int(tsc * share)
        cycles = ref * 3 // 2  # 3 GHz
        cpus.append([ref, cycles, cycles * 2, int(tsc * (share - 0.125)) // TSC_TICKS_PER_COUNT])
    return {
        "type": "frame", "seq": seq, "time_ns": seq * SAMPLE_NS, "lost": 0, "late": 0,
        "blocks": {"cpu": rows(tsc, cpus), "sockets": rows(tsc, [[seq * 5000]])}, "records": {},
    }  # fmt: skip


def test_a_handmade_stream_is_read(tmp_path: Path) -> None:
    file = tmp_path / "by-hand"
    messages = [_hello(), *map(_frame, range(41)), {"type": "bye", "reason": "done", "status": 0}]
    file.write_bytes(b"".join(map(_encoded, messages)))
    command = argv("export", str(file), "--format", "jsonl", "--every", "1s")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    intervals = [line for line in lines if line["type"] == "interval"]
    assert len(intervals) == 4
    for line in intervals:
        for row, share in zip(line["cpus"], SHARES, strict=True):
            assert row["util"] == pytest.approx(share, abs=1e-6)
            assert row["busy_hz"] == pytest.approx(3e9, rel=1e-6)
            assert row["ipc"] == pytest.approx(2, rel=1e-6)
            assert row["suspect"] == []
        (core,) = line["cores"]
        states = {"neither": 0.375, "lp0": 0.375, "lp1": 0.125, "both": 0.125}
        assert core["smt"] == pytest.approx(states, abs=1e-5)
        assert core["smt_method"] == "one-thread"
