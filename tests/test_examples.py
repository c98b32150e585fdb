"""Each command in the front page, a page or the help of a verb works as described.
`support/examples.py` has the commands that replace examples here, and those that cannot run."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_ssh
import pytest
from command import started_process
from examples import REPLACEMENTS, SCREEN_COMMANDS, UNTESTED, command_to_test, examples, lines
from recording_files import write_recording
from sim_streams import messages
from waiting import until_true, wait_for

from perfprobe import __main__ as probe
from perfprobe import wire
from perftop import cli
from perftop.tui import config
from perftop.tui.app import PerfTopApp
from perftop.tui.fleet_screen import FleetSource
from perftop.tui.stream import StreamSource

SLOW_EXAMPLES = (
    r"ramp|timers|wake|selftest|job|--host|n001|sim:|--on|serve|exporter|unix|mark|topology"
)
"""Examples of README that run at night: slow ones, and those that are nearly the same as one that
runs by day."""
LASTING_COMMANDS = r"perftop (serve|exporter(?!.*--print)) .*?(?P<made>socket|metrics|\S+\.prom)\b"
"""Commands that run until they are stopped; one has started once the file `made` exists."""
EXAMPLES = examples()
STREAM = messages("sim:turbo-drop,cpus=4", 60)


class Directory:
    """The directory in which the commands of a page run, and the programs that run until its
    end."""

    def __init__(self, path: Path, programs: contextlib.ExitStack) -> None:
        self._path, self._programs = path, programs

    def prepare(self, line: str) -> None:
        """Writes the recordings that a command reads, with a mark in the middle."""
        hello, stream = STREAM
        middle = stream[len(stream) // 2]
        marks = [wire.Note("mark", middle.time_ns, data={"label": "solve"})]
        at = stream.index(middle)
        reads = [] if " -o " in line or "box" in line else shlex.split(line)
        for name in reads:
            if name.endswith(".perftop"):
                write_recording(self._path / name, hello, [*stream[:at], *marks, *stream[at:]])

    def start(self, line: str, made: str) -> None:
        self._programs.enter_context(started_process(*shlex.split(line)[1:]))
        wait_for((self._path / made).exists, f"{made} of {line}")


@pytest.fixture
def directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Any:
    """An empty directory with hosts of the fake ssh, and a terminal for screens."""
    fake_ssh.install(tmp_path, monkeypatch)
    (tmp_path / "machines").write_text("n001\nn002\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config, "show_picture", lambda: contextlib.nullcontext(_FakePicture()))
    monkeypatch.setattr(PerfTopApp, "run_async", _run_until_numbers)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    with contextlib.ExitStack() as programs:
        yield Directory(tmp_path, programs)


class _FakePicture:
    def hand_over(self) -> None:
        pass


async def _run_until_numbers(app: PerfTopApp, **_: object) -> None:
    """Runs an app until it shows numbers."""
    async with app.run_test(size=(80, 24)):
        await until_true(
            lambda: _has_numbers(app) or app.failure, f"numbers on {type(app).__name__}"
        )
    assert app.failure is None


def _has_numbers(app: PerfTopApp) -> bool:
    if isinstance(app.source, FleetSource):
        return bool(app.source.screen.state.fleet.answering_machines)
    return app.source.interval is not None if isinstance(app.source, StreamSource) else app.is_ready


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    screen = re.match(SCREEN_COMMANDS, line) is not None
    main: Callable[[list[str]], int] = probe.main if line.startswith("perfprobe") else cli.main
    _, *words = shlex.split(line)
    with monkeypatch.context() as terminal:
        for stream in (sys.stdin, sys.stdout):
            terminal.setattr(stream, "isatty", lambda: screen)
        try:
            return main(words)
        except SystemExit as ended:  # argparse raises this
            assert isinstance(ended.code, int)
            return ended.code


def run_examples(
    examples: list[str], directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [
        (example, line) for example in examples if (line := command_to_test(example)) is not None
    ]
    commands.sort(
        key=lambda command: re.match(LASTING_COMMANDS, command[1]) is None
    )  # servers start first
    for example, line in commands:
        directory.prepare(line)
        if lasting := re.match(LASTING_COMMANDS, line):
            directory.start(line, lasting["made"])
        else:
            # 1: a counter of this machine is wrong, the machine is busy, or runs differ
            allowed_statuses = {0, 1} if re.search("selftest|--check|--fail-if", line) else {0}
            assert run(line, monkeypatch) in allowed_statuses, f"{example}, here as {line}"


def test_examples_of_readme_do_what_their_text_claims(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [line for line in EXAMPLES["README"] if not re.search(SLOW_EXAMPLES, line)]
    run_examples(examples, directory, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize("page", [name for name, found in EXAMPLES.items() if found])
def test_examples_of_all_pages_do_what_their_text_claims(
    page: str, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_examples(EXAMPLES[page], directory, monkeypatch)


def test_examples_are_found() -> None:
    """If the extractor found nothing, the tests above would always pass."""
    text = "`perftop a --b`, `perftop why [--c]`\n\n```sh\nperftop d | head   # e\nls\n```\n"
    assert set(lines(text)) == {"perftop a --b", "perftop d | head"}
    found = [line for each in EXAMPLES.values() for line in each]
    assert {"perftop why -- ./job", "perftop fleet night", "perftop VERB --help"} <= set(found)
    assert len(found) == len(set(found)) > 60


def test_the_table_has_no_superfluous_rows() -> None:
    found = [line for each in EXAMPLES.values() for line in each]
    for pattern, _, why in (*REPLACEMENTS, *UNTESTED):
        assert why
        assert any(re.search(pattern, line) for line in found), pattern
