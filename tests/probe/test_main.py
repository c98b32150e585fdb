"""Exit statuses of perfprobe."""

from __future__ import annotations

import io
import json

import pytest

from perfprobe import __main__ as command
from perfprobe.instruments.selftest import run


@pytest.mark.parametrize(("wrong", "status"), [([], 0), (["cycles"], 1)])
def test_a_selftest_that_found_a_wrong_counter_fails(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: list[str],
    status: int,
) -> None:
    monkeypatch.setattr(command, "_open", lambda _: io.BytesIO())  # a source that is only closed
    monkeypatch.setattr(run, "run", lambda *_: {"wrong": wrong})
    assert command.main(["selftest"]) == status
    assert json.loads(capsys.readouterr().out) == {"wrong": wrong}
