"""Tools that the cases of hard_times.py share: results, running commands, checking their output."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import command
from read_back import faults, story
from simulated import messages_lasting
from taped import write_recording
from terminal import LIMIT_S, Screen

TOGETHER_S = 2e-3
"""Resolution in s of the printed times of intervals."""
SOURCES: dict[str, Path] = {}
"""File names of the recordings that cases read."""


@dataclass
class Result:
    observed: str = ""
    fault: str = ""
    skipped: bool = False

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.observed, self.fault and f"WRONG: {self.fault}")))

    def check(self, condition: object, what: str) -> Result:
        """Adds a fault to the result unless `condition`."""
        if not condition:
            self.fault = f"{self.fault}, {what}" if self.fault else what
        return self


@dataclass(frozen=True)
class Case:
    trouble: str
    verb: str
    must: str
    act: Callable[[Path], Result]
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.trouble} {self.verb}".replace(" ", "-"))


def write_sources(root: Path) -> None:
    """Writes the recordings that cases read, a small and a large one."""
    for name, cpus, seconds in (("small", 2, 20), ("large", 16, 200)):
        SOURCES[name] = write_recording(
            root / name, *messages_lasting(f"sim:smt-mix,cpus={cpus}", seconds)
        )


# --- running commands


def run_command(*command: str, **more: Any) -> tuple[int, str, list[str]]:
    """Runs a command. Returns its status, stdout, and lines of stderr."""
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        **more,
    )  # fmt: skip
    return result.returncode, result.stdout, result.stderr.splitlines()


def start_command(*arguments: str, **more: Any) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return command.running_command(arguments, stderr=subprocess.PIPE, **more)


def wait_until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError("what had to come did not")
        time.sleep(0.02)


def has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


# --- checking output


def check_one_line(status: int, lines: list[str], want: int, word: str) -> Result:
    result = Result(f"status {status}, {lines[0] if lines else 'nothing said'!r}")
    result.check(status == want, f"status {want} was due").check(len(lines) == 1, f"said: {lines}")
    return result.check(any(word in line for line in lines), f"no word of {word!r}")


def check_recording(result: Result, path: Path, least_s: float = 0.0) -> Result:
    """Checks that a recording can be read and is consistent."""
    report, damage = story(path)
    seen = report.seen
    result.observed += f"; {seen['frames']} frames, {seen['late']} late, {seen['lost']} lost"
    torn = damage and not damage.endswith(("it has no end", "is incomplete"))
    result.check(seen["frames"], "nothing in it").check(not torn, damage)
    result.check(report.lasted_s >= least_s, f"only {report.lasted_s:.1f} s of {least_s} s")
    return result.check(not any(report.faults.values()), ", ".join(faults(report.faults)))


def check_complete(result: Result, text: str, *, torn: bool = False) -> Result:
    """Checks that all lines are complete; the last line may be torn if `torn`."""
    *lines, last = text.split("\n")
    result.check(lines, "nothing was written").check(torn or not last, f"torn: {last[:40]!r}")
    width = len(lines[0].split(",")) if lines and not lines[0].startswith("{") else 0
    for line in lines:
        if width:
            result.check(len(line.split(",")) >= width, f"a row of other width: {line[:40]!r}")
        else:
            json.loads(line)
    result.observed += f"; {len(lines)} whole lines"
    return result


def check_intervals(result: Result, text: str, least_s: float) -> Result:
    """Checks that the intervals of these lines are consecutive, and that the numbers are
    possible."""
    lines = [json.loads(line) for line in text.splitlines()]
    matching_lines = [line for line in lines if line["type"] == "interval"]
    apart = [abs(b["time"] - a["time"] - b["elapsed_s"]) for a, b in pairwise(matching_lines)]
    utils = [
        row["util"] for line in matching_lines for row in line["cpus"] if row["util"] is not None
    ]
    lasted_s = sum(line["elapsed_s"] for line in matching_lines)
    result.observed += f"; {len(matching_lines)} intervals of {lasted_s:.1f} s"
    result.check(lasted_s >= least_s, f"less than {least_s} s")
    result.check(max(apart, default=1.0) < TOGETHER_S, f"{max(apart, default=1.0):.3f} s apart")
    result.check(utils and all(0 <= u <= 1 for u in utils), "utilisation cannot be")
    longest_s = max((line["elapsed_s"] for line in matching_lines), default=0.0)
    result.observed += f", the longest {longest_s:.1f} s"
    return result


def quit_screen(result: Result, screen: Screen) -> Result:
    status = screen.quit()
    result.observed += f"; q ended it with {status}"
    result.check(status == 0, "status 0 was due")
    return result.check("Traceback" not in screen.text(), "a traceback")


def watch_screen(screen: Screen) -> Result:
    with screen:
        result = Result("it is shown").check(screen.draws(), "nothing is shown")
        screen.type("3")
        result.check(screen.draws(), "another view is not shown")
        return quit_screen(result, screen)
