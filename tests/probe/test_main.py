"""Exit statuses of perfprobe."""

from __future__ import annotations

import gc
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perfprobe import __main__ as command
from perfprobe import serve
from perfprobe.instruments.selftest import run
from perfprobe.kernel import access


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
    ("-e page-faults --source os", 2, "--source auto, perf or sim"),
    ("-e page-faults --sysroot /nowhere", 2, "--source auto, perf or sim"),
    ("-e page-faults --source msr", 2, "--source auto, perf or sim"),
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
    monkeypatch.setattr(access, "keep", lambda *_: None)  # tests after this one need theirs
    assert command.main(["stream", *line.split()]) == status
    assert told in capsys.readouterr().err


def test_a_selection_of_cpus_that_is_empty_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the shell leaves it of a variable that is not set."""
    monkeypatch.setattr(access, "keep", lambda *_: None)
    assert command.main(["stream", "--source", "sim", "--cpus", ""]) == 2
    assert "the selection is empty" in capsys.readouterr().err


def test_nothing_is_collected_until_the_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    collects: list[bool] = []

    def served(*_: object, begun: Callable[[], None]) -> None:
        collects.append(gc.isenabled())
        begun()
        collects.append(gc.isenabled())

    monkeypatch.setattr(access, "keep", lambda *_: None)
    monkeypatch.setattr(serve, "serve", served)
    with Path(os.devnull).open("r+", encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        monkeypatch.setattr(sys, "stdout", nothing)
        assert command.main(["stream", "--source", "sim"]) == 0
    assert collects == [False, True]
    assert gc.isenabled()


def test_a_stream_that_cannot_begin_leaves_the_collector_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "keep", lambda *_: None)
    assert command.main(["stream", "--source", "nowhere"]) == 2
    assert gc.isenabled()
