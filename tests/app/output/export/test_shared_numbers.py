"""Numbers of packages and L3s in tables and in OpenMetrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from exported import export, record, rows
from simulated import lasting

from perfprobe.wire import Frame, Hello, Message, Note
from perftop.session.session import Session
from perftop.session.values import of_cpus

KEYS = ("package_power_dram_w", "package_memory_read_bytes_per_s", "l3_memory_bytes_per_s")


def played() -> tuple[Hello, Sequence[Frame | Note]]:
    return lasting("sim:memory,cpus=8,packages=2", 12)


def test_each_cpu_has_the_number_of_its_package() -> None:
    hello, messages = played()
    session = Session(hello)
    for _ in session.play(messages):
        pass
    interval = session.take()
    assert interval is not None
    found = of_cpus(session, interval, KEYS[1])
    for cpus, rate in zip(hello.packages, interval.packages[KEYS[1][8:]], strict=True):
        assert {float(found[session.position[cpu]]) for cpu in cpus} == {float(rate)}
    assert np.isnan(of_cpus(session, interval, KEYS[2])).all()  # nobody monitors L3s there


def test_exports_have_it_once_a_package(tmp_path: Path) -> None:
    hello, messages = played()
    found: list[Message] = [hello, *messages]
    path = record(tmp_path / "recording", found)
    printed = rows(export(path, metrics=KEYS))
    assert {*KEYS} <= printed[0].keys()
    assert float(printed[-1][KEYS[1]]) > 0
    text = export(path, "openmetrics", metrics=KEYS[:1]).decode()
    lines = [line for line in text.splitlines() if line.startswith("perftop_package_power_dram")]
    assert {line.partition("}")[0][-2] for line in lines} == {"0", "1"}
    assert all("cpu=" not in line for line in lines)


def test_bytes_a_second_are_no_seconds(tmp_path: Path) -> None:
    hello, messages = played()
    path = record(tmp_path / "recording", [hello, *messages])
    keys = KEYS[1], "memory_read_bytes_per_s", "power_w"
    lines = export(path, "openmetrics", metrics=keys).decode().splitlines()
    for name in ("package_memory_read_bytes", "machine_memory_read_bytes"):
        assert f"# TYPE perftop_{name}_per_second gauge" in lines
    units = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# UNIT")}
    assert "watts" in units.values()
    assert not [name for name in units if "bytes" in name]
