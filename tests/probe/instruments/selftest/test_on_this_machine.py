"""The verdicts of selftest on the counters of this machine."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import command
import pytest

from perfprobe.instruments.selftest import cpu_checks, instruments, load, run, verdict
from perfprobe.opening import open_os


def assert_no_counter_is_wrong(answer: dict[str, Any]) -> None:
    """No verdict is `unusable`, whatever else runs on this machine."""
    assert answer["wrong"] == [], answer
    verdicts = {(c["counter"], c["what"]): c["verdict"] for c in answer["checks"]}
    assert set(verdicts.values()) <= {*verdict.VERDICT_RANK, "not there"}
    assert ("tsc", cpu_checks.RATE_CHECK.workload) in verdicts
    assert answer["elapsed_s"] > 0
    assert answer["source"] == "os"
    assert not set(answer["unchecked"]) & {c["counter"] for c in answer["checks"]}


def test_a_selftest_of_working_cpus_finds_no_wrong_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "run_patterns", lambda _: load.PatternRuns({}, {}))
    monkeypatch.setattr(instruments, "COPY_S", 0.0)
    monkeypatch.setattr(run, "MAX_TRIES", 1)
    with contextlib.closing(open_os(Path("/"), round(run.SAMPLE_S * 1e9), None)) as source:
        answer = run.run(source)
    assert_no_counter_is_wrong(answer)
    assert "idle_s" in {check["counter"] for check in answer["checks"]}


@pytest.mark.nightly
def test_a_selftest_of_this_machine_finds_no_wrong_counter() -> None:
    result = command.run("selftest", "--source", "os", program="perfprobe")
    assert result.stderr == ""
    assert result.returncode == 0, result.stdout
    assert_no_counter_is_wrong(json.loads(result.stdout))
