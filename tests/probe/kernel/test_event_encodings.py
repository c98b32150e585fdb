"""Names that perf lists: which are used, and that none is trusted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import fakeperf
import pytest

from perfprobe.kernel import event_catalogue
from perfprobe.kernel.event_catalogue import Catalogue, Named, perf_events
from perfprobe.kernel.event_names import parse

LISTED: list[Any] = [
    {"Unit": "cpu", "EventName": "mem_load_retired.l1_hit", "BriefDescription": "Hits in L1",
     "Encoding": "cpu/event=0xd1,period=1000003,umask=0x1/"},
    {"EventName": "uncore", "Encoding": "uncore_imc/event=4/"},
    {"EventName": "shell", "Encoding": "cpu/event=$(id)/"},
    {"EventName": "broken", "Encoding": 7},
    {"EventName": ["no", "name"], "Encoding": "cpu/event=1/"},
    "not even an event",
]  # fmt: skip


def test_what_perf_lists_is_checked() -> None:
    found = perf_events(lambda: json.dumps(LISTED).encode())
    assert found["mem_load_retired.l1_hit"] == [Named("cpu", "event=0xd1,umask=0x1", "Hits in L1")]
    assert set(found) == {"mem_load_retired.l1_hit", "uncore"}
    for garbage in (b"", b"{", b"[" * 100_000, b"\xff", b"{}"):
        assert perf_events(lambda garbage=garbage: garbage) == {}  # type: ignore[misc]

    def hangs() -> bytes:
        raise subprocess.TimeoutExpired("perf", 5)

    assert perf_events(hangs) == {}


def test_a_name_of_perf_chooses_by_our_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakeperf.pmu(tmp_path, "cpu", 4)
    fakeperf.events(tmp_path, "cpu", "config:0-7,32-35", slots=4)
    monkeypatch.setattr(event_catalogue, "_listed", lambda: json.dumps(LISTED).encode())
    catalogue = Catalogue(tmp_path)
    with pytest.raises(ValueError, match="no event of that name"):  # the PMU lacks its umask
        catalogue.find(parse("MEM_LOAD_RETIRED.L1_HIT")[0][0])
    (tmp_path / fakeperf.DEVICES / "cpu/format/umask").write_text("config:8-15\n")
    found = catalogue.find(parse("MEM_LOAD_RETIRED.L1_HIT:k")[0][0])
    event = found.events["cpu"]
    assert (event.type, event.config, event.kernel, found.about) == (4, 0x1D1, True, "Hits in L1")
