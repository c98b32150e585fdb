"""Verdicts of selftest: printed, saved, and shown as a warning on the screen."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import capabilities
import pytest
from answers import SELFTEST as ANSWER
from answers import instrument
from command import python
from roots import SUPPORT

from perftop import cli
from perftop.base import files
from perftop.verbs import options


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    files.findings_line.cache_clear()
    yield tmp_path / "perftop" / "selftest.json"
    files.findings_line.cache_clear()


def test_a_working_instrument_removes_its_warning() -> None:
    wrong = instrument("energy", "wrong", counters=["energy_j"])
    files.save_findings(ANSWER | {"wrong": ["energy_j"], "checks": [], "instruments": [wrong]})
    files.save_findings(ANSWER | {"wrong": [], "checks": []})  # not tested
    assert files.findings_line("b-1") is not None
    files.findings_line.cache_clear()
    works = wrong | {"verdict": "works"}
    files.save_findings(ANSWER | {"wrong": [], "checks": [], "instruments": [works]})
    assert files.findings_line("b-1") is None


def test_results_are_private_and_kept_until_the_next_boot(place: Path) -> None:
    assert files.findings_line("b-1") is None
    files.findings_line.cache_clear()
    files.save_findings(ANSWER)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert [entry.name for entry in place.parent.iterdir()] == ["selftest.json"]
    assert files.findings_line("b-1") == "selftest found counters wrong on this boot: instructions"
    assert files.findings_line("b-2") is None
    assert files.findings_line(None) is None


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", '{"boot_id": "b-1", "wrong": ["x"]}', "[" * 60000, "\xff",
    json.dumps({"format": files.FINDINGS_FORMAT, "boot_id": "b-1", "wrong": "instructions"}),
    json.dumps({"format": files.FINDINGS_FORMAT, "boot_id": "b-1", "wrong": [1]}),
    json.dumps({"format": files.FINDINGS_FORMAT, "boot_id": "b-1", "wrong": ["x"]}) + " " * 65536,
])  # fmt: skip
def test_foreign_content_is_ignored(place: Path, text: str) -> None:
    place.parent.mkdir()
    place.write_text(text, encoding="latin-1")
    assert files.findings_line("b-1") is None


def test_links_fifos_and_foreign_files_are_ignored(place: Path, tmp_path: Path) -> None:
    files.save_findings(ANSWER)
    place.rename(tmp_path / "other")
    place.symlink_to(tmp_path / "other")
    assert files.findings_line("b-1") is None
    files.findings_line.cache_clear()
    place.unlink()
    os.mkfifo(place)
    assert files.findings_line("b-1") is None
    if capabilities.has_capabilities(capabilities.CHOWN):
        files.findings_line.cache_clear()
        place.unlink()
        files.save_findings(ANSWER)
        os.chown(place, 65534, -1)
        assert files.findings_line("b-1") is None


def probe(answer: object, status: int) -> list[str]:
    code = f"import sys; print({json.dumps(answer)!r}); sys.exit({status})"
    return [sys.executable, "-c", code]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`perftop selftest` with a probe of this response and exit status."""

    def run(answer: object, status: int, *more: str) -> int:
        argv = probe(answer, status)
        monkeypatch.setattr(options, "probe_command", lambda *_: argv)
        return cli.main(["selftest", *more])

    return run


def test_a_wrong_counter_is_saved_and_ends_with_status_1(
    verb: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verb(ANSWER, 1, "--json") == 1
    assert json.loads(capsys.readouterr().out) == ANSWER
    assert files.findings_line("b-1") is not None
    assert verb({**ANSWER, "wrong": []}, 0) == 0


def test_an_unwritable_path_is_reported(
    verb: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/self")
    assert verb({**ANSWER, "wrong": []}, 0, "--json") == 0
    error = capsys.readouterr().err
    assert "the result was not saved" in error
    assert "cannot write /proc/self/perftop/selftest.json: " in error


def test_a_full_disk_is_reported_with_the_file_name(
    verb: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: object) -> None:
        # the error has no file name, like that of write(2)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "save_findings", full)
    assert verb(ANSWER, 1, "--json") == 1
    printed = capsys.readouterr().err
    assert f"cannot write {files.findings_path()}: No space left on device" in printed


def test_the_screen_shows_the_warning() -> None:
    """In a new interpreter, with a previously saved result."""
    files.save_findings(ANSWER)
    code = """
import dataclasses, synth
from perftop.session.session import Session
from perftop.draw import strips
from perftop.tui.frame import top
from perftop.tui.frame.top import AppStatus
session = Session(dataclasses.replace(synth.hello(), boot_id="b-1"))
print(strips.text(top.alert_line(session, None, AppStatus(0), 80)[0]))
"""
    result = python(code, check=False, env=os.environ | {"PYTHONPATH": str(SUPPORT)})
    assert "! selftest found counters wrong on this boot: instructions" in result.stdout, (
        result.stderr
    )
