"""Verdicts of selftest: printed, saved, and shown as a warning on the screen."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import capabilities
import pytest
from command import python
from roots import SUPPORT

from perftop import cli
from perftop.base import files
from perftop.verbs import doctor, instruments, machine, options


def check(counter: str, verdict: str, **more: Any) -> dict[str, Any]:
    return {
        "counter": counter, "what": "a loop of known length", "verdict": verdict, "origin": "perf",
        "expected": 1e9, "measured": 2e9, "unit": "instructions", "error": 1.0, "tolerance": 0.01,
        "scale": 1e9, "why": "the tick counts too", "cpu": 3, "cpus": [3, 4, 5], "disturbed": [],
        "fix": None, **more,
    }  # fmt: skip


ANSWER: dict[str, Any] = {
    "host": "n1", "boot_id": "b-1", "source": "perf", "virtualisation": None, "time": 1.0,
    "elapsed_s": 2.5, "unchecked": ["smi"], "wrong": ["instructions"],
    "checks": [
        check("instructions", "unusable"),
        check("cycles", "trusted", measured=1e9, error=0.0, disturbed=[7]),
        check("idle_s", "disturbed", measured=None, expected=None, error=None, scale=None),
        check("busy_s", "close", unit="s", measured=0.4, expected=0.3, error=0.05, scale=2.0),
        check("ref", "not there", why="no PMU", fix="get one"),
        check("mperf", "not there", why="no PMU", fix="get one"),
    ],
}  # fmt: skip


RIGHT = {**ANSWER, "checks": [check("instructions", "trusted")], "wrong": []}
DISTURBED = check("instructions", "disturbed")
IN_PART = check("instructions", "trusted", disturbed=[7])


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    files.findings_line.cache_clear()
    yield tmp_path / "perftop" / "selftest.json"
    files.findings_line.cache_clear()


@pytest.mark.parametrize("width", [80, 120])
def test_all_verdicts_are_printed_on_lines_that_fit(width: int) -> None:
    lines = instruments.selftest_lines(ANSWER, width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for part in (
        "✗ instructions unusable a loop of known length",
        "2,000,000,000 instructions for 1,000,000,000 instructions, off by 100.00 %",
        "1 % allowed: the tick counts too; from perf; on CPUs 3-5",
        "✓ cycles trusted",
        "exact; 1 % allowed: the tick counts too; from perf; disturbed on CPU 7",
        "? idle_s disturbed a loop of known length no sample could be used; 1 % allowed",
        "ref, mperf: no PMU; fix: get one",
        "no code changes them by a known amount: smi",
        "0.4000 s for 0.3000 s, off by 5.00 % of 2.0000 s; 1 % of 2.0000 s allowed",
        "4 tests in 2.5 s: 1 trusted, 1 close, 1 disturbed, 1 unusable; wrong: instructions",
    ):
        assert part in text
    assert not lines[-1].startswith(" "), "the summary is not indented"


def instrument(name: str, verdict: str, **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "counters": [], "wrong": [], "why": None, "fix": None, "measured": [],
    }  # fmt: skip
    return {"instrument": name, "verdict": verdict} | empty | more


def test_all_instruments_are_printed_with_their_verdict() -> None:
    joules = {"counter": "energy_j", "values": [120.0], "unit": "W"}
    bits = {"counter": "limit_reasons", "values": [50.0], "unit": "polls", "bits": ["PL1"]}
    rows = [
        instrument("energy", "works", measured=[joules]),
        instrument("limit reasons, MSR", "wrong", measured=[bits], why="it stands still"),
        instrument("HSMP", "not there", why="no /dev/hsmp", fix="get one"),
    ]
    text = " ".join(
        " ".join(instruments.selftest_lines(ANSWER | {"instruments": rows}, 80)).split()
    )
    for part in (
        "✓ energy works energy_j 120 W",
        "✗ limit reasons, MSR wrong limit_reasons 50 polls, PL1; it stands still",
        "HSMP not there no /dev/hsmp; fix: get one",
    ):
        assert part in text


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


def test_a_good_result_removes_the_warning() -> None:
    files.save_findings(ANSWER)
    files.save_findings(RIGHT)
    assert files.findings_line("b-1") is None


@pytest.mark.parametrize(
    "checks", [[], [DISTURBED], [IN_PART], [check("instructions", "trusted"), DISTURBED]]
)
def test_an_inconclusive_result_keeps_the_warning(checks: list[dict[str, Any]]) -> None:
    """The counter was disturbed, even if only on one CPU, or the source lacks it."""
    files.save_findings(ANSWER)
    files.save_findings({**ANSWER, "checks": checks, "wrong": ["ref"]})
    text = "selftest found counters wrong on this boot: ref, instructions"
    assert files.findings_line("b-1") == text
    files.findings_line.cache_clear()
    files.save_findings({**ANSWER, "boot_id": "b-2", "checks": [], "wrong": []})
    assert files.findings_line("b-2") is None


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


def test_the_path_of_the_saved_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, cache, home = (tmp_path / name for name in ("runtime", "cache", "home"))
    end = Path("perftop") / "selftest.json"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for words, base in ((str(runtime), runtime), ("not/absolute", cache), ("", cache)):
        monkeypatch.setenv("XDG_RUNTIME_DIR", words)
        assert files.findings_file() == base / end
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert files.findings_file() == cache / end
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert files.findings_file() == home / ".cache" / end


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
    assert f"cannot write {files.findings_file()}: No space left on device" in printed


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


def test_readiness_is_printed_below_the_checks() -> None:
    items: list[dict[str, Any]] = [
        {"what": "turbo", "state": "matters", "now": "on", "effect": "falls", "change": "x"},
        {"what": "SMT", "state": "unknown", "now": "5 µs", "effect": None, "change": None},
    ]
    answer = {"host": "h", "model": None, "virtualisation": None, "kernel": "6", "checks": [],
              "source": "os", "smt_method": None, "tsc_hz": None, "base_hz": None,
              "multipliers": [], "missing": [], "readiness": items}  # fmt: skip
    lines = doctor.doctor_lines(answer)
    index = lines.index("Benchmarks here:")
    assert lines[index : index + 5] == ["Benchmarks here:", f"~ {'turbo':<18}on",
                          " " * 20 + "falls", " " * 20 + "to change: x",
                         f"? {'SMT':<18}5 µs"]  # fmt: skip
    assert "\n".join(machine.draw_answer(answer, doctor.doctor_lines, unicode=False)).isascii()
