"""Exit statuses of perfprobe."""

from __future__ import annotations

import io
import json

import pytest

from perfprobe import __main__ as command
from perfprobe.instruments.selftest import run
from perfprobe.kernel import rights


@pytest.mark.parametrize(("wrong", "status"), [([], 0), (["cycles"], 1)])
def test_a_selftest_that_found_a_wrong_counter_fails(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: list[str],
    status: int,
) -> None:
    monkeypatch.setattr(command, "_open", lambda _: io.BytesIO())  # a source that is only closed
    monkeypatch.setattr(run, "run", lambda *_, **__: {"wrong": wrong})
    assert command.main(["selftest"]) == status
    assert json.loads(capsys.readouterr().out) == {"wrong": wrong}


@pytest.mark.parametrize(("line", "status", "told"), [
    ("-e contxt-switches", 2, "nearest: context-switches"),
    ("-e page-faults --source os", 2, "--source auto, perf, msr or sim"),
    ("-e page-faults --sysroot /nowhere", 2, "--source auto, perf, msr or sim"),
    ("-e page-faults --source msr", 2, "-e page-faults: no counter of a core counts it"),
    ("-e r1 --source sim", 2, "a simulated machine has not that"),
    ("-e branches --source sim:guest", 3, "the hypervisor exposes no PMU"),
    ("-e branches,cycles,cache-misses,branch-misses --no-multiplex --source sim", 3,
     "-e branch-misses: no counter is left for it"),
])  # fmt: skip
def test_events_that_cannot_be(
    line: str,
    status: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rights, "keep", lambda *_: None)  # tests after this one need theirs
    assert command.main(["stream", *line.split()]) == status
    assert told in capsys.readouterr().err


def test_a_selection_of_cpus_that_is_empty_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the shell leaves it of a variable that is not set."""
    monkeypatch.setattr(rights, "keep", lambda *_: None)
    assert command.main(["stream", "--source", "sim", "--cpus", ""]) == 2
    assert "the selection is empty" in capsys.readouterr().err
