"""The command line: habits from other tools, messages for mistakes, and arguments of the probe."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pydoc
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import argv, run_in_process
from waiting import MAX_WAIT_S

from perfprobe import stream_options
from perftop import cli
from perftop.base.errors import USAGE
from perftop.process import job, job_terminal
from perftop.verbs import help as help_verb
from perftop.verbs import options
from perftop.verbs.record import size_bytes

HABITS = {
    "stat -a -I 100 -p 7": "stat --interval 100ms --watch 7",
    "stat -I100 -C0-3": "stat --interval 100ms --cpus 0-3",
    "live -p7": "live --watch 7",
    "stat --interval-print=50": "stat --interval 50ms",
    "record -I 2s": "record --interval 2s",
    "stat --pid=7 --num_iterations 3": "stat --watch 7 --count 3",
    "-V": "--version",
    "-h stat": "help stat",
    "ramp -a": "ramp -a",
    "stat -i 1 -c 0 --watch=-p": "stat -i 1 -c 0 --watch=-p",
}


@pytest.mark.parametrize("typed", HABITS)
def test_options_of_other_tools_are_translated(typed: str) -> None:
    assert cli.translate_foreign_options(typed.split()) == HABITS[typed].split()


WRONG = {
    "stat -i 0": "-i/--interval: invalid duration '0' (at least 1ms)",
    "stat -i 5x": "-i/--interval: invalid duration '5x' (try 100ms, 1s, 5m)",
    "stat -n": "-n/--count: expected one argument; see perftop stat --help",
    "replay": "the following arguments are required: FILE; see perftop replay --help",
    "replay a b --align x": "invalid moment 'x' (try start, command, mark:LABEL)",
    "replay a b c": "perftop fleet DIR",
    "export x --format xml": "--format: invalid choice: 'xml' (choose from",
    "doctor --check load=": "--check: 'load=' has no state",
    "doctor --check turbo=onn": "--check: unknown state 'onn'; known: turbo=on, turbo=off",
    "diff a,b c,d": "; for groups: --a FILE … --b FILE …",
    "why 10s": "length of a measurement: --duration 10s",
    "why sh": "to measure a command: perftop why -- sh",
    "stat --listen x": "no option --listen; --listen is for exporter",
    "replay x --json": "no option --json; --json is for stat, why, doctor",
    "stat sleep 1": "unexpected argument: sleep 1; to measure a command: perftop stat [OPTIONS] "
    "-- sleep 1",
    "1 5": "unknown command '1'; interval and count: perftop stat -i 1s -n 5",
    "stat 0.5": "unexpected argument: 0.5; interval and count: perftop stat -i 0.5s",
    "stat --list": "no option --list; events for -e: perftop events",
    "stat -l": "no option -l; events for -e: perftop events",
    "live --quiet": "no option --quiet; one row for each interval: --brief",
    "stat make": "unexpected argument: make; to measure a command: perftop stat [OPTIONS] -- make",
    "record run.perftop": "; where to write: perftop record -o run.perftop",
    "record sleep 1": "to measure a command: perftop record [OPTIONS] -- sleep 1",
    "record": "record needs -o FILE",
    "record -o x --source sim --on turbo-drp": "'turbo-drp': did you mean turbo-drop?",
    "-i 1s stat": "the verb comes first: perftop stat [OPTIONS]",
    "version": "unknown command 'version': did you mean --version?",
    "no-such-verb": "unknown command 'no-such-verb'; see perftop --help",
    "--verison": "no option --verison: did you mean --version?",
    "stat --version": "no option --version with a verb; perftop --version",
    "stat --jsno": "no option --jsno: did you mean --json?",
    "stat --intervall 1": ": did you mean --interval?",
    "stat --bogus": "no option --bogus; see perftop stat --help",
    "stta": "unknown command 'stta': did you mean stat?",
    "record -n 3": "record has no option -n; to set the duration: --duration 10s",
    "why --count=3": "why has no option --count; to set the duration: --duration 10s",
    "record -n5": "to set the duration: --duration 10s",
    "live -n": "to set the duration: perftop stat -n 10",
    "stat --csv": "no option --csv; perftop record -o FILE, then perftop export FILE",
    "stat -d": "no option -d; interval: -i 1s",
    "record -d 8": "no option -d; duration: --duration 10s",
    "exporter --port 9100": "no option --port; address and port: --listen 127.0.0.1:9917",
    "stat -x,": "no option -x; ",
    "doctor -- true": "this verb runs no command",
    "stat --": "no command after --",
    "stat -n 3 -- true": "to stop: -- timeout 10 CMD",
    "stat --sample 2s -i 1s": "--sample must not be longer than the interval (-i)",
    "stat --sample 300ms -i 1s": "the interval (-i) must be a multiple of --sample",
    "stat --sample 2s -i 2s --duration 1s": "--sample must not be longer than --duration: nothing",
    "record --max-size 1G -o x": "--max-size is only for --ring or --on",
    "ramp --cpus 3": "no option --cpus: did you mean --cpu?",
    "demo gest": "unknown demo 'gest': did you mean guest?",
    "demo demo,cpus=2": "in a pipe: perftop stat --source sim:demo,cpus=2",
    "why a --duration 5s": "--duration is only for measuring; part of a recording: perftop summary",
    "why a --watch x": "--watch is only for measuring; the recording has its own",
    "record -o .": "it exists and is not a file; name a file in it: -o run.perftop",
    "why --output=": "-o/--output: the name is empty",
    "demo guest": "in a pipe: perftop stat --source sim:guest",
    "demo queue": "in a pipe: perftop summary demo:queue",
    "fleet sim:idle": "for pipes and files: --json",
    "replay a --align command": "--align needs two recordings",
    "why . -- true": "a recording or a command, not both",
    "diff a": "diff needs two files",
    "diff /dev/zero a": "/dev/zero is not a perftop recording",
    "diff - a": "diff cannot read stdin: save the recording to a file",
    "diff a b --a c": "diff needs two files",
    "ramp --seconds 100": "--seconds 100: must be from 1 to 60",
    "ramp --cpu x": "--cpu: invalid CPU 'x' (try 0, or all)",
    "stat -I \u0661": "invalid duration '\u0661' (try 100ms, 1s, 5m)",
    "ramp --cpu \u0661": "--cpu: invalid CPU '\u0661' (try 0, or all)",
    **{f"ramp --seconds {number}": f"--seconds: invalid number '{number}' (try 1 or 0.5)"
       for number in ("x", "1_0", "\uff15", "nan", "inf", "-5")},
    "timers --cpu 99999": "--cpu 99999: no such CPU",
    "timers --sysroot .": "no option --sysroot",
    "topology --remote /x": "--remote needs --host",
    **{f"{verb} --host n1 --host n2": "this verb reads one --host"
       for verb in ("live", "doctor", "topology", "serve")},
    "stat -r 3": "-r runs a command several times: perftop stat -r 5 -- CMD",
    "stat -r 3 -i 1 -- true": "-r prints one row per run; -i is for a single run",
    "stat --warmup 2 -- true": "--warmup needs -r N",
    "stat --keep-failed -- true": "--keep-failed needs -r N",
    "stat -A true -B true": "two commands in turn: perftop stat -r 5 -A 'CMD' -B 'CMD'",
    "stat -r 2 -A true": "two commands in turn",
    "stat -A true": "-A needs -r N and -B 'CMD'; each CPU has a row (with -- CMD: add -i 1s)",
    "record -A": "no option -A; each CPU has a row",
    "stat -r 2 -A true -B true -- true": "two commands in turn",
    "stat -r 2 -A ' -B true": "-A or -B: No closing quotation",
    "stat --attach unix:/nonexistent/s": "no such socket",
    "stat --attach tcp:1": "invalid address 'tcp:1' (try unix:PATH)",
    "stat --attach unix:/x --host n7": "--host is chosen for all readers",
    "stat --attach unix:/x --source os": "--source is chosen for all readers",
    "exporter --textfile x.txt": "node_exporter reads only *.prom; try x.prom",
    "serve": "no socket to listen on; name one: --socket PATH",
    "serve --socket /nonexistent/s": "cannot listen on unix:/nonexistent/s",
    "serve --socket /x --group no-such-group": "no such group",
    **{f"serve --socket /x --group {number}": "no such group"
       for number in ("\u0661", "4294967295", "99999999999999999999")},
}  # fmt: skip
"""Expected error message for each mistyped command line."""
STATUSES = {"why 10s": 1, "diff a,b c,d": 1, "diff /dev/zero a": 4, "record -o .": 1, "why sh": 1,
            "serve --socket /nonexistent/s": 1, "stat --attach unix:/nonexistent/s": 3}  # fmt: skip
"""Exit statuses other than that of a usage error."""


@pytest.mark.parametrize("typed", WRONG)
def test_mistakes_are_reported_with_one_message(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status = cli.main(typed.split())
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("perftop: ")
    assert WRONG[typed] in line
    assert status == STATUSES.get(typed, USAGE)


@pytest.mark.parametrize(("arguments", "suggestion"), [
    (["why", "a b/run"], "perftop why -- './a b/run'"),
    (["record", "-o", "a b"], "-o 'a b/run.perftop'"),
])  # fmt: skip
def test_a_path_in_a_suggested_command_is_quoted(
    arguments: list[str], suggestion: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("a b").mkdir()
    Path("a b/run").write_text("#!/bin/sh\n")
    Path("a b/run").chmod(0o755)
    assert cli.main(arguments) > 0
    assert suggestion in capsys.readouterr().err


@pytest.mark.parametrize("name", ["2026-run.perftop", "10s"])
def test_a_damaged_recording_is_not_read_as_a_duration(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(b"no recording")
    assert cli.main(["why", name]) > 0
    assert "--duration" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["run", "=17", "1run=17", "run=", "a=x\ty", f"{'n' * 41}=1", f"n={'v' * 201}"]
)
def test_labels_have_a_name_and_a_printable_value(text: str) -> None:
    assert options.parse_label("run=a=b c") == ("run", "a=b c")
    longest = "n" * 40, "v" * 200
    assert options.parse_label("=".join(longest)) == longest
    with pytest.raises(argparse.ArgumentTypeError, match="invalid label"):
        options.parse_label(text)


def test_a_large_number_without_a_unit_is_questioned(capsys: pytest.CaptureFixture[str]) -> None:
    assert options.parse_interval_ns("100") == 100 * 10**9
    assert "-i 100ms" in capsys.readouterr().err
    assert [options.parse_interval_ns(text) for text in ("60", "100s", "5m")] == [6e10, 1e11, 3e11]
    assert not capsys.readouterr().err


@pytest.mark.parametrize(("text", "length_ns"), [
    ("1000000ns", 1e6), ("1000us", 1e6), ("1ms", 1e6), ("0.001", 1e6), (".5", 5e8), ("1.5s", 15e8),
    ("2sec", 2e9), ("3m", 180e9), ("3min", 180e9), ("2h", 7200e9), ("1 s", 1e9),
    ("999999999.999999999", 1e18),
])  # fmt: skip
def test_durations_have_units_from_nanoseconds_to_hours(text: str, length_ns: float) -> None:
    assert options.parse_duration_ns(text) == length_ns


@pytest.mark.parametrize(
    "text", ["999999ns", "0.000999", "1d", "1S", "1234567890", "1.0123456789", "."]
)
def test_durations_below_a_millisecond_or_with_too_many_digits_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="invalid duration"):
        options.parse_duration_ns(text)


@pytest.mark.parametrize(("parse", "largest", "invalid"), [
    (options.parse_count, "999999999", ["1000000000", "0", "1.0", "-1", "+1", "\u0661"]),
    (stream_options.parse_cpu, "999999", ["1000000", "-1", ""]),
])  # fmt: skip
def test_counts_and_cpus_have_a_limited_number_of_digits(
    parse: Callable[[str], int], largest: str, invalid: list[str]
) -> None:
    assert parse(largest) == int(largest)
    for text in invalid:
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)


@pytest.mark.parametrize(("text", "size"), [
    ("500M", 5e8), ("2G", 2e9), ("1kB", 1000), ("3T", 3e12), ("999999k", 999_999_000),
])  # fmt: skip
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert size_bytes(text) == size
    for wrong in ("0M", "5", "M", "5X", "-1G", "1000000k"):
        with pytest.raises(argparse.ArgumentTypeError, match="invalid size"):
            size_bytes(wrong)


def test_json_can_be_piped_while_the_command_writes_to_stdout() -> None:
    line = argv("stat", "--source", "sim:steady,cpus=2", "--json", "-o", "-", "--", "echo", "mine")
    result = subprocess.run(line, capture_output=True, text=True, check=True, timeout=MAX_WAIT_S)
    assert [line[:9] for line in io.StringIO(result.stdout)] == ['{"type":"'] * 2
    assert result.stderr == "mine\n"


# --- choice of the verb


@pytest.mark.parametrize(("arguments", "command", "screen", "meant"), [
    ([], None, True, ["live"]),
    (["-i", "1s"], None, True, ["live", "-i", "1s"]),
    ([], None, False, ["stat", "-n", "1"]),
    (["--source=sim:"], None, False, ["stat", "-n", "1", "--source=sim:"]),
    ([], ["make"], False, ["stat"]),
    (["doctor"], None, False, ["doctor"]),
    (["--print-completion=zsh"], None, True, ["--print-completion=zsh"]),
])  # fmt: skip
def test_arguments_select_the_verb(
    arguments: list[str], command: list[str] | None, screen: bool, meant: list[str]
) -> None:
    assert cli.add_default_verb(arguments, command, screen=screen) == meant


@pytest.mark.parametrize(("arguments", "message"), [
    (["--watch"], "--watch: expected"), (["-c", "x"], "(see perftop help)\n"),
])  # fmt: skip
def test_the_fallback_to_text_is_announced_after_parsing_the_options(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == USAGE
    assert message in capsys.readouterr().err.splitlines(keepends=True)[0]


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdio in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stdio, "isatty", lambda: True)


@pytest.mark.parametrize("files", [["demo:quota"], ["demo:good-run", "demo:bad-run"]])
def test_recordings_are_not_drawn_on_a_dumb_terminal(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    assert cli.main(["replay", *files]) == USAGE
    assert "needs a terminal that can move its cursor, which TERM=dumb" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["1", "20"])
def test_help_is_printed_on_a_narrow_terminal(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert run_in_process("stat", "--help").stdout.split()[:3] == ["usage:", "perftop", "stat"]


@pytest.mark.parametrize(("spare_lines", "is_paged"), [(1, False), (0, True)])
def test_a_list_without_a_spare_line_on_the_terminal_is_paged(
    spare_lines: int, is_paged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = run_in_process("help").stdout
    paged: list[str] = []
    size = os.terminal_size((80, printed.count("\n") + spare_lines))
    monkeypatch.setattr(help_verb, "is_full_terminal", lambda _: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: size)
    monkeypatch.setattr(pydoc, "pager", paged.append)
    monkeypatch.setenv("LESS", "")
    assert run_in_process("help").stdout == ("" if is_paged else printed)
    assert paged == [printed] * is_paged


# --- arguments of the probe


class ProbeStarted(Exception):  # noqa: N818 - no error: the probe need not run
    """Raised when the probe would be started."""


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of the probe for a verb on a terminal; the command has process ID 1."""
    request: list[str] = []

    def command(_: object, *arguments: str) -> list[str]:
        request.extend(arguments)
        raise ProbeStarted

    waiting = SimpleNamespace(pid=1)
    monkeypatch.setattr(options, "probe_command", command)
    monkeypatch.setattr(job, "Job", lambda *_, **__: contextlib.nullcontext(waiting))
    console = SimpleNamespace(job=waiting)
    monkeypatch.setattr(job_terminal, "JobTerminal", lambda *_: contextlib.nullcontext(console))
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    at_terminal(monkeypatch)
    return request


@pytest.mark.parametrize(("line", "batch"), [
    ("live", "0.5"), ("live -i 100ms", None), ("live -i 2s", "1"), ("live -i 1.5s", "0.5"),
    ("live -- true", None),
    ("stat", "1"), ("stat -i 200ms", "0.2"), ("stat -i 250ms --sample 50ms", "0.25"),
    ("stat -i 1s --duration 2.5s", "0.5"), ("stat -i 1s --duration 100ms", None),
    ("stat -i 1s --sample 1ms", "0.25"), ("stat -i 1.3s", None),
    ("stat -i 1h --sample 10ms", "1"), ("stat -i 60s --sample 2s", None),
    ("stat -i 1s --sample 166.666667ms", "1"), ("stat -- true", None),
    ("stat -i 1s -- true", None),
    ("record", "0.5"), ("record -i 10s", "0.5"), ("record --sample 1ms", "0.5"),
    ("record --sample 200ms", "0.5"), ("record --sample 500ms", None), ("record -- true", None),
    ("serve", "0.5"), ("serve -i 100ms", None), ("serve -i 2s", "1"),
])  # fmt: skip
def test_the_probe_sends_a_batch_a_display_interval(
    line: str, batch: str | None, probe: list[str], tmp_path: Path
) -> None:
    words = line.split()
    if words[0] == "record":
        words[1:1] = ["-o", str(tmp_path / "tape.perftop")]
    if words[0] == "serve":
        words[1:1] = ["--socket", str(tmp_path / "socket")]
    with pytest.raises(ProbeStarted):
        cli.main(words)
    assert probe[0] == "stream"
    assert (probe[probe.index("--batch") + 1] if "--batch" in probe else None) == batch


@pytest.mark.parametrize(("line", "arguments"), [
    ("demo", "--source sim:demo --sample 0.1 --batch 0.5"),
    ("demo guest,cpus=4 -i 1s --sample 1s", "--source sim:guest,cpus=4 --sample 1"),
    ("stat --source os --watch -7 -- true",
     "--source os --sample 0.1 --watch=-7 --watch-tree 1"),
    ("stat --source sim -- true", "--source sim --sample 0.1"),
    ("why -e a,b -c 0-3", "--source auto --sample 0.1 --batch 1 --cpus 0-3 --events=a,b"),
])  # fmt: skip
def test_arguments_of_the_probe(line: str, arguments: str, probe: list[str]) -> None:
    line = line.replace("--watch -7", "--watch=-7")
    with pytest.raises(ProbeStarted):
        cli.main(line.split())
    assert probe == ["stream", *arguments.split()]


@pytest.mark.parametrize(("requested_ms", "times_ms"), [
    ((None, None), (500, 100)), ((None, 1000), (1000, 1000)), ((None, 300), (600, 300)),
    ((None, 20), (500, 20)), ((1000, None), (1000, 100)), ((250, None), (250, 83.333333)),
])  # fmt: skip
def test_the_default_interval_consists_of_whole_samples(
    requested_ms: tuple[int | None, int | None], times_ms: tuple[float, float]
) -> None:
    interval, sample = (None if ms is None else ms * 1_000_000 for ms in requested_ms)
    given = argparse.Namespace(interval=interval, sample=sample)
    assert options.interval_and_sample(given, 500_000_000) == tuple(
        int(ms * 1e6) for ms in times_ms
    )


@pytest.mark.parametrize(("duration_ms", "interval_ms"), [(30, 10_000), (11, 3_600_000)])
def test_a_default_period_need_not_divide_the_interval_exactly(
    duration_ms: int, interval_ms: int
) -> None:
    duration, interval = duration_ms * 1_000_000, interval_ms * 1_000_000
    given = argparse.Namespace(interval=interval, sample=None, duration=duration)
    _, sample = options.interval_and_sample(given)
    assert 0.9 * duration < sample <= duration
