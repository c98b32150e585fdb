"""`perfprobe events --source msr`: what general counters count, and how many are left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fakeperf
import perfmachines
import pmu_formats
import pytest
import trees

from perfprobe import __main__ as command
from perfprobe.kernel import access
from perfprobe.kernel.access import Trouble

DEVICES = fakeperf.DEVICES


def listed(root: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    line = ["events", "--source", "msr", "--sysroot", str(root), *more]
    assert command.main(line) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_what_counters_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "perf_refused", lambda _: Trouble("it is of no concern here"))
    perfmachines.machine(tmp_path)
    fakeperf.identity(tmp_path, perfmachines.INTEL, 6, perfmachines.ICX)
    pmu_formats.written(tmp_path, "ice-lake-sp")
    for event, terms in (("branch-misses", "event=0xc5"), ("l1-hits", "event=0xd1,umask=0x1")):
        trees.put(tmp_path, f"{DEVICES}/cpu/events/{event}", f"{terms}\n")
    found = listed(tmp_path, capsys)
    events = {row["name"]: row["counters"] for row in found["events"]}
    assert events == {"branch-misses": "", "l1-hits": "0-3"}
    (pmu,) = found["pmus"]
    assert (pmu["general"], pmu["left"]) == (8, 5)
    assert found["missing"] == []
    assert listed(tmp_path, capsys, "--word", "hits")["events"] == [
        {"name": "l1-hits", "about": "cpu/event=0xd1,umask=0x1/", "unit": "1", "scale": 1.0,
         "pmu": "cpu", "type": None, "open": [], "counters": "0-3"},
    ]  # fmt: skip


@pytest.mark.parametrize(("model", "left"), [(0x01, 2), (0x11, 1)])
def test_what_is_left_on_amd(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: int, left: int
) -> None:
    """SMIs make room."""
    perfmachines.machine(tmp_path)
    fakeperf.identity(tmp_path, perfmachines.AMD, 0x19, model)
    pmu_formats.written(tmp_path, "zen-4")
    (pmu,) = listed(tmp_path, capsys)["pmus"]
    assert (pmu["general"], pmu["left"]) == (6, left)


def test_without_a_core_pmu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    perfmachines.machine(tmp_path)
    found = listed(tmp_path, capsys)
    assert (found["events"], found["pmus"]) == ([], [])
    assert found["missing"]
    assert command.main(["events", "--source", "sim"]) == 2
