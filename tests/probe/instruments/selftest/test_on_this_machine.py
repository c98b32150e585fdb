"""The verdicts of selftest on the counters of this machine."""

from __future__ import annotations

import json

import command
import pytest

from perfprobe.instruments.selftest import verdict, working


@pytest.mark.nightly
def test_a_selftest_of_this_machine_finds_no_wrong_counter() -> None:
    result = command.run("selftest", "--source", "os", program="perfprobe")
    assert result.stderr == ""
    assert result.returncode == 0, result.stdout  # no counter in use is wrong, whatever else runs
    answer = json.loads(result.stdout)
    verdicts = {(c["counter"], c["what"]): c["verdict"] for c in answer["checks"]}
    assert set(verdicts.values()) <= {*verdict.VERDICT_RANK, "not there"}
    assert ("tsc", working.RATE_CHECK.workload) in verdicts
    assert answer["elapsed_s"] > 0
    assert answer["source"] == "os"
    assert not set(answer["unchecked"]) & {c["counter"] for c in answer["checks"]}
