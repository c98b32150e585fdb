"""Cases with disturbed time: processes are stopped for ten seconds, or the clock is set."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import terminal
from command import argv
from hard_tools import (
    SOURCES,
    Case,
    Result,
    check_complete,
    check_intervals,
    check_one_line,
    check_recording,
    has_content,
    quit_screen,
    run_command,
    start_command,
    wait_until,
    watch_screen,
)
from terminal import Screen

STOPPED_S = 10.0
HOUR_S = 3600
MIN_SCREEN_BYTES = 5000
"""Minimum size of a whole screen in bytes, after which the app has started."""
CLOCK = """import os, time
def moved(read, unit):
    def shifted(*clock):
        real = not clock or clock[0] == time.CLOCK_REALTIME
        with open(os.environ["PERFTOP_BENCH_CLOCK"]) as file:
            return read(*clock) + (int(file.read()) * unit if real else 0)
    return shifted
for name in "time", "clock_gettime":
    setattr(time, name, moved(getattr(time, name), 1))
    setattr(time, name + "_ns", moved(getattr(time, name + "_ns"), 10**9))
"""
"""A module that every Python imports first: it shifts the clock by the seconds in a file."""


# --- stopped processes


def stop_for_a_while(pid: int) -> None:
    time.sleep(1.0)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(pid, signal.SIGCONT)
    time.sleep(2.0)


def process_to_stop(pid: int, who: str) -> int:
    return pid if who == "app" else terminal.family(pid)[1]


def record_stopped(who: str) -> Callable[[Path], Result]:
    def act(directory: Path) -> Result:
        directory.mkdir()
        path = directory / "r"
        with start_command(*argv("record", "-o", str(path), "--sample", "20ms")) as process:
            wait_until(lambda: has_content(path))
            stop_for_a_while(process_to_stop(process.pid, who))
            process.send_signal(signal.SIGINT)
            message = process.communicate(timeout=60)[1].decode().splitlines()
        return check_recording(
            check_one_line(process.returncode, message, 0, "recorded"), path, STOPPED_S
        )

    return act


def stat_stopped(who: str) -> Callable[[Path], Result]:
    def act(directory: Path) -> Result:
        directory.mkdir()
        path = directory / "s"
        command = argv("stat", "--json", "-i", "500ms", "--sample", "20ms")
        with path.open("wb") as out, start_command(*command, stdout=out) as process:
            wait_until(lambda: has_content(path))
            stop_for_a_while(process_to_stop(process.pid, who))
            process.send_signal(signal.SIGINT)
            text = process.communicate(timeout=60)[1].decode()
        result = Result(f"status {process.returncode}").check(process.returncode == 130, text)
        return check_intervals(result.check(not text, text), path.read_text(), STOPPED_S)

    return act


def live_stopped(who: str) -> Callable[[Path], Result]:
    def act(_: Path) -> Result:
        with Screen(argv()) as screen:
            screen.draws(MIN_SCREEN_BYTES)
            stop_for_a_while(process_to_stop(screen.pid, who))
            screen.drain(1.0)
            drawn = screen.drain(3.0)
            result = Result(f"{drawn} bytes in 3 s after it").check(drawn, "it draws no more")
            return quit_screen(result, screen)

    return act


def replay_stopped(_: Path) -> Result:
    screen = Screen(argv("replay", str(SOURCES["small"])))
    screen.draws(MIN_SCREEN_BYTES)
    stop_for_a_while(screen.pid)
    return watch_screen(screen)


def export_stopped(directory: Path) -> Result:
    directory.mkdir()
    path = directory / "e"
    stream = argv("stream", "--sample", "0.02", program="perfprobe")
    form = argv("export", "-", "--format", "jsonl", "--every", "1s")
    with (
        path.open("wb") as out,
        start_command(*stream, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as probe,
        start_command(*form, stdin=probe.stdout, stdout=out) as process,
    ):
        wait_until(lambda: has_content(path))
        stop_for_a_while(probe.pid)
        probe.terminate()
        text = process.communicate(timeout=60)[1].decode()
    result = Result(f"status {process.returncode}").check(process.returncode in {0, 4}, text)
    return check_intervals(result, path.read_text(), STOPPED_S)


# --- clock changes


@contextlib.contextmanager
def clock(directory: Path) -> Iterator[Callable[[int], None]]:
    """Yields a function that shifts the clock of programs started in this block by seconds."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(CLOCK)
    shift = directory / "shift"

    def move(seconds: int) -> None:
        shift.with_name("next").write_text(str(seconds))
        shift.with_name("next").rename(shift)

    move(0)
    yield move


def moved_environment(directory: Path) -> dict[str, str]:
    more = {"PYTHONPATH": str(directory), "PERFTOP_BENCH_CLOCK": str(directory / "shift")}
    return {**os.environ, **more}


def move_clock(move: Callable[[int], None]) -> None:
    for seconds in (-HOUR_S, HOUR_S, 0):
        time.sleep(1.0)
        move(seconds)
    time.sleep(1.0)


def record_moved(directory: Path) -> Result:
    path = directory / "r"
    with clock(directory) as move:
        command = argv("record", "-o", str(path), "--sample", "20ms")
        with start_command(*command, env=moved_environment(directory)) as process:
            wait_until(lambda: has_content(path))
            move_clock(move)
            process.send_signal(signal.SIGINT)
            message = process.communicate(timeout=60)[1].decode().splitlines()
    result = check_recording(check_one_line(process.returncode, message, 0, "recorded"), path)
    return check_intervals(
        result, run_command(*argv("export", str(path), "--format", "jsonl"))[1], 3.0
    )


def stat_moved(directory: Path) -> Result:
    path = directory / "s"
    with clock(directory) as move, path.open("wb") as out:
        command = argv("stat", "--json", "-i", "500ms")
        with start_command(*command, env=moved_environment(directory), stdout=out) as process:
            wait_until(lambda: has_content(path))
            move_clock(move)
            process.send_signal(signal.SIGINT)
            text = process.communicate(timeout=60)[1].decode()
    result = Result(f"status {process.returncode}").check(process.returncode == 130, text)
    return check_intervals(result.check(not text, text), path.read_text(), 3.0)


def screen_moved(*verb: str) -> Callable[[Path], Result]:
    def act(directory: Path) -> Result:
        with clock(directory) as move:
            shift = [f"{k}={v}" for k, v in moved_environment(directory).items()
                     if k.startswith("PYTHONPATH") or k.endswith("CLOCK")]  # fmt: skip
            words = [word.replace("SMALL", str(SOURCES["small"])) for word in verb]
            screen = Screen(["env", *shift, *argv(*words)])
            screen.draws(MIN_SCREEN_BYTES)
            move_clock(move)
            return watch_screen(screen)

    return act


def export_moved(directory: Path) -> Result:
    command = argv("export", str(SOURCES["small"]), "--format", "jsonl")
    with clock(directory) as move:
        texts = []
        for seconds in (0, -HOUR_S, HOUR_S):
            move(seconds)
            texts.append(run_command(*command, env=moved_environment(directory))[1])
    result = Result("the same lines").check(len(set(texts)) == 1, "the lines differ")
    return check_complete(result, texts[0])


# --- all

ON = "it goes on; q: status 0"
MOVED = "clock -1 h, +1 h"
TIMES_CONTINUE = "times continue, numbers are right"
CASES = [
    *(Case(f"{who} stopped for 10 s", verb, must, act(who))
      for who in ("probe", "app")
      for verb, must, act in (
          ("record", "status 0; missing data are reported", record_stopped),
          ("stat", "intervals follow each other", stat_stopped),
          ("live", ON, live_stopped))),
    Case("app stopped for 10 s", "replay", ON, replay_stopped),
    Case("probe stopped for 10 s", "export -", "intervals follow each other", export_stopped),
    Case(MOVED, "record", TIMES_CONTINUE, record_moved),
    Case(MOVED, "stat", TIMES_CONTINUE, stat_moved),
    Case(MOVED, "live", ON, screen_moved("live")),
    Case(MOVED, "replay", ON, screen_moved("replay", "SMALL")),
    Case(MOVED, "export", "the same lines", export_moved),
]  # fmt: skip
