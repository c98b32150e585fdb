"""The cases of hard_times.py: each is done once, in a directory of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import terminal
from command import argv
from read_back import faults, story
from screen import LIMIT_S, Screen
from taped import written

from perfprobe import wire
from perfprobe.sources.sim.source import open_sim

FAST = ("--source", "sim:smt-mix,cpus=64,speed=max")
FASTER = ("--source", "sim:smt-mix,cpus=256,speed=max")
SOON = ("--source", "sim:smt-mix,cpus=64,speed=20")
STOPPED_S = 10.0
HOUR_S = 3600
FILE_BYTES, DISK = 1 << 18, "1m"
TOGETHER_S = 2e-3
"""Times of intervals are told to a millisecond."""
CLOCK = """import os, time
def moved(read, unit):
    def told(*clock):
        real = not clock or clock[0] == time.CLOCK_REALTIME
        with open(os.environ["PERFTOP_BENCH_CLOCK"]) as file:
            return read(*clock) + (int(file.read()) * unit if real else 0)
    return told
for name in "time", "clock_gettime":
    setattr(time, name, moved(getattr(time, name), 1))
    setattr(time, name + "_ns", moved(getattr(time, name + "_ns"), 10**9))
"""
"""Imported by every Python before anything else: its clock, moved by what a file says."""


@dataclass
class Result:
    told: str = ""
    bad: str = ""
    skipped: bool = False

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.told, self.bad and f"WRONG: {self.bad}")))

    def check(self, good: object, what: str) -> Result:
        """Adds what is wrong."""
        if not good:
            self.bad = f"{self.bad}, {what}" if self.bad else what
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


@dataclass
class Room:
    """Where there is no room: how a command gets there, where it writes, what it is told."""

    directory: Path
    word: str
    prefix: tuple[str, ...] = ()


SAMPLES: dict[str, Path] = {}
"""Recordings that cases read: a small and a large one."""


def prepared(root: Path) -> None:
    (root / "clock").mkdir()
    (root / "clock" / "sitecustomize.py").write_text(CLOCK)
    SAMPLES["clock"] = root / "clock"
    for name, cpus, seconds in (("small", 2, 20), ("large", 16, 200)):
        source = open_sim(f"sim:smt-mix,cpus={cpus},speed=max", 10**8)
        messages: list[wire.Frame | wire.Note] = []
        while len(messages) < seconds * 10:
            messages += [m for m in source.poll() if isinstance(m, wire.Frame | wire.Note)]
        source.close()
        SAMPLES[name] = written(root / name, source.hello, messages)


# --- what is done


def ran(*command: str, **more: Any) -> tuple[int, str, list[str]]:
    """Status, stdout, and lines of stderr."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        **more,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.splitlines()


@contextlib.contextmanager
def going(*command: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stderr=subprocess.PIPE, **more) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def awaited(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError("what had to come did not")
        time.sleep(0.02)


def filled(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


# --- what is found


def one_line(status: int, said: list[str], want: int, word: str) -> Result:
    result = Result(f"status {status}, {said[0] if said else 'nothing said'!r}")
    result.check(status == want, f"status {want} was due").check(len(said) == 1, f"said: {said}")
    return result.check(any(word in line for line in said), f"no word of {word!r}")


def readable(result: Result, path: Path, least_s: float = 0.0) -> Result:
    """Whether a recording holds what it tells."""
    told, damage = story(path)
    seen = told.seen
    result.told += f"; {seen['frames']} frames, {seen['late']} late, {seen['lost']} lost"
    torn = damage and not damage.endswith(("it has no end", "is not all there"))
    result.check(seen["frames"], "nothing in it").check(not torn, damage)
    result.check(told.lasted_s >= least_s, f"only {told.lasted_s:.1f} s of {least_s} s")
    return result.check(not any(told.faults.values()), ", ".join(faults(told.faults)))


def whole(result: Result, text: str, *, torn: bool = False) -> Result:
    """Whether all lines are lines; the last may be torn if `torn`."""
    *lines, last = text.split("\n")
    result.check(lines, "nothing was written").check(torn or not last, f"torn: {last[:40]!r}")
    width = len(lines[0].split(",")) if lines and not lines[0].startswith("{") else 0
    for line in lines:
        if width:
            result.check(len(line.split(",")) >= width, f"a row of other width: {line[:40]!r}")
        else:
            json.loads(line)
    result.told += f"; {len(lines)} whole lines"
    return result


def steady(result: Result, text: str, least_s: float) -> Result:
    """Whether the intervals of these lines follow each other, and numbers can be."""
    lines = [json.loads(line) for line in text.splitlines()]
    found = [line for line in lines if line["type"] == "interval"]
    apart = [abs(b["time"] - a["time"] - b["elapsed_s"]) for a, b in pairwise(found)]
    utils = [row["util"] for line in found for row in line["cpus"] if row["util"] is not None]
    lasted_s = sum(line["elapsed_s"] for line in found)
    result.told += f"; {len(found)} intervals of {lasted_s:.1f} s"
    result.check(lasted_s >= least_s, f"less than {least_s} s")
    result.check(max(apart, default=1.0) < TOGETHER_S, f"{max(apart, default=1.0):.3f} s apart")
    result.check(utils and all(0 <= u <= 1 for u in utils), "utilisation cannot be")
    longest_s = max((line["elapsed_s"] for line in found), default=0.0)
    result.told += f", the longest {longest_s:.1f} s"
    return result


def left_well(result: Result, screen: Screen) -> Result:
    status = screen.quit()
    result.told += f"; q ended it with {status}"
    result.check(status == 0, "status 0 was due")
    return result.check("Traceback" not in screen.text(), "a traceback")


# --- no room to write


def record(room: Room) -> Result:
    path = room.directory / "r"
    command = argv("record", "-o", str(path), *FAST, "--duration", "1h")
    status, _, said = ran(*room.prefix, *command)
    return readable(one_line(status, said, 1, room.word), path)


def record_around(room: Room) -> Result:
    path = room.directory / "r"
    job = ("sh", "-c", "sleep 5; exit 7")
    command = argv("record", "-o", str(path), *FASTER, "--", *job)
    status, _, said = ran(*room.prefix, *command)
    told = [line for line in said if room.word in line]
    return readable(one_line(status, told, 7, room.word), path)


def stat(room: Room) -> Result:
    path = room.directory / "s"
    command = argv("stat", "--json", "-i", "100ms", "-o", str(path), *FAST, "--duration", "1h")
    status, _, said = ran(*room.prefix, *command)
    return whole(one_line(status, said, 1, room.word), path.read_text(), torn=True)


def export(room: Room) -> Result:
    path = room.directory / "e.csv"
    command = argv("export", str(SAMPLES["large"]), "-o", str(path), "--every", "100ms")
    status, _, said = ran(*room.prefix, *command)
    return whole(one_line(status, said, 1, room.word), path.read_text(), torn=True)


def live(room: Room) -> Result:
    """`R` writes to where the app was started."""
    with Screen(["env", "-C", str(room.directory), *room.prefix, *argv(*SOON)]) as screen:
        screen.drain(3.0)
        screen.type("R")
        result = Result("told on the screen").check(screen.sees(room.word), "nothing is told")
        result = left_well(result, screen)
    for path in room.directory.glob("*.perftop"):
        readable(result, path)
    return result


def replay(room: Room) -> Result:
    """It writes nothing, so no room is needed."""
    path = str(shutil.copy(SAMPLES["small"], room.directory))
    with contextlib.suppress(OSError), (room.directory / "filler").open("wb") as file:
        while not room.prefix:
            file.write(bytes(1 << 16))
    return watched(Screen(["env", "-C", str(room.directory), *room.prefix, *argv("replay", path)]))


def watched(screen: Screen) -> Result:
    with screen:
        screen.drain(3.0)
        before = len(screen.raw)
        screen.type("3")
        screen.drain(1.0)
        result = Result("it is shown").check(len(screen.raw) > before > 1000, "nothing is shown")
        return left_well(result, screen)


def full(act: Callable[[Room], Result]) -> Callable[[Path], Result]:
    def on_full_disk(directory: Path) -> Result:
        directory.mkdir()
        if os.geteuid() != 0:
            return Result("mount needs root", skipped=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", directory], check=True
        )
        try:
            return act(Room(directory, "No space left on device"))
        finally:
            subprocess.run(["umount", "--lazy", directory], check=True)

    return on_full_disk


def limited(act: Callable[[Room], Result]) -> Callable[[Path], Result]:
    def with_limit(directory: Path) -> Result:
        directory.mkdir()
        return act(Room(directory, "File too large", ("prlimit", f"--fsize={FILE_BYTES}")))

    return with_limit


# --- no directory


def record_removed(directory: Path) -> Result:
    path = directory / "r"
    directory.mkdir()
    with going(*argv("record", "-o", str(path), "--sample", "20ms")) as process:
        awaited(lambda: filled(path))
        shutil.rmtree(directory)
        said = process.communicate(timeout=60)[1].decode().splitlines()
    return one_line(process.returncode, said, 1, "was removed")


def stat_removed(directory: Path) -> Result:
    path = directory / "s"
    directory.mkdir()
    command = argv("stat", "--json", "-i", "100ms", "-n", "20", "-o", str(path))
    with going(*command) as process:
        awaited(lambda: filled(path))
        shutil.rmtree(directory)
        said = process.communicate(timeout=60)[1].decode().splitlines()
    return one_line(process.returncode, said, 1, "was removed")


def export_removed(directory: Path) -> Result:
    path, data = directory / "e.csv", SAMPLES["large"].read_bytes()
    directory.mkdir()
    with going(*argv("export", "-", "-o", str(path)), stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write(data[: len(data) // 2])
        process.stdin.flush()
        awaited(lambda: filled(path))
        shutil.rmtree(directory)
        said = process.communicate(data[len(data) // 2 :], timeout=60)[1].decode().splitlines()
    return one_line(process.returncode, said, 1, "was removed")


def replay_removed(directory: Path) -> Result:
    directory.mkdir()
    path = str(shutil.copy(SAMPLES["small"], directory))
    screen = Screen(argv("replay", path))
    screen.drain(2.0)
    shutil.rmtree(directory)
    return watched(screen)


def live_removed(directory: Path) -> Result:
    directory.mkdir()
    with Screen(["env", "-C", str(directory), *argv(*SOON)]) as screen:
        screen.drain(3.0)
        shutil.rmtree(directory)
        screen.type("R")
        result = Result("told on the screen")
        result.check(screen.sees("No such file", "no directory", "was removed"), "nothing is told")
        return left_well(result, screen)


def absent(*verb: str) -> Callable[[Path], Result]:
    def into_nothing(directory: Path) -> Result:
        words = [word.replace("SMALL", str(SAMPLES["small"])) for word in verb]
        status, _, said = ran(*argv(*words, "-o", str(directory / "none" / "file")))
        return one_line(status, said, 1, "director")

    return into_nothing


def nowhere(*verb: str) -> Callable[[Path], Result]:
    """Started in a directory that is gone."""

    def from_nowhere(directory: Path) -> Result:
        directory.mkdir()
        words = [word.replace("SMALL", str(SAMPLES["small"])) for word in verb]
        shell = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *argv(*words)]
        if words[0] in {"live", "replay"}:
            return watched(Screen(["env", "-C", str(directory), *shell]))
        status, out, said = ran(*shell, cwd=directory)
        result = Result(f"status {status}").check(status == 0, f"status 0 was due, said {said}")
        return result.check(out and not said, f"said {said}")

    return from_nowhere


# --- stopped


def stopped(pid: int) -> None:
    time.sleep(1.0)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(pid, signal.SIGCONT)
    time.sleep(2.0)


def whom(pid: int, who: str) -> int:
    return pid if who == "app" else terminal.family(pid)[1]


def record_stopped(who: str) -> Callable[[Path], Result]:
    def act(directory: Path) -> Result:
        directory.mkdir()
        path = directory / "r"
        with going(*argv("record", "-o", str(path), "--sample", "20ms")) as process:
            awaited(lambda: filled(path))
            stopped(whom(process.pid, who))
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1].decode().splitlines()
        return readable(one_line(process.returncode, said, 0, "recorded"), path, STOPPED_S)

    return act


def stat_stopped(who: str) -> Callable[[Path], Result]:
    def act(directory: Path) -> Result:
        directory.mkdir()
        path = directory / "s"
        command = argv("stat", "--json", "-i", "500ms", "--sample", "20ms")
        with path.open("wb") as out, going(*command, stdout=out) as process:
            awaited(lambda: filled(path))
            stopped(whom(process.pid, who))
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1].decode()
        result = Result(f"status {process.returncode}").check(process.returncode == 130, said)
        return steady(result.check(not said, said), path.read_text(), STOPPED_S)

    return act


def live_stopped(who: str) -> Callable[[Path], Result]:
    def act(_: Path) -> Result:
        with Screen(argv()) as screen:
            screen.drain(2.0)
            stopped(whom(screen.pid, who))
            screen.drain(1.0)
            drawn = screen.drain(3.0)
            result = Result(f"{drawn} bytes in 3 s after it").check(drawn, "it draws no more")
            return left_well(result, screen)

    return act


def replay_stopped(_: Path) -> Result:
    screen = Screen(argv("replay", str(SAMPLES["small"])))
    screen.drain(2.0)
    stopped(screen.pid)
    return watched(screen)


def export_stopped(directory: Path) -> Result:
    directory.mkdir()
    path = directory / "e"
    stream = argv("stream", "--sample", "0.02", program="perfprobe")
    form = argv("export", "-", "--format", "jsonl", "--every", "1s")
    with (
        path.open("wb") as out,
        going(*stream, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as probe,
        going(*form, stdin=probe.stdout, stdout=out) as process,
    ):
        awaited(lambda: filled(path))
        stopped(probe.pid)
        probe.terminate()
        said = process.communicate(timeout=60)[1].decode()
    result = Result(f"status {process.returncode}").check(process.returncode in {0, 4}, said)
    return steady(result, path.read_text(), STOPPED_S)


# --- the clock is set


@contextlib.contextmanager
def clock(directory: Path) -> Iterator[Callable[[int], None]]:
    """What sets the clock of the programs that are started in this block, by seconds."""
    directory.mkdir()
    shift = directory / "shift"

    def move(seconds: int) -> None:
        shift.with_name("next").write_text(str(seconds))
        shift.with_name("next").rename(shift)

    move(0)
    yield move


def moved_environment(directory: Path) -> dict[str, str]:
    more = {"PYTHONPATH": str(SAMPLES["clock"]), "PERFTOP_BENCH_CLOCK": str(directory / "shift")}
    return {**os.environ, **more}


def wander(move: Callable[[int], None]) -> None:
    for seconds in (-HOUR_S, HOUR_S, 0):
        time.sleep(1.0)
        move(seconds)
    time.sleep(1.0)


def record_moved(directory: Path) -> Result:
    path = directory / "r"
    with clock(directory) as move:
        command = argv("record", "-o", str(path), "--sample", "20ms")
        with going(*command, env=moved_environment(directory)) as process:
            awaited(lambda: filled(path))
            wander(move)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1].decode().splitlines()
    result = readable(one_line(process.returncode, said, 0, "recorded"), path)
    return steady(result, ran(*argv("export", str(path), "--format", "jsonl"))[1], 3.0)


def stat_moved(directory: Path) -> Result:
    path = directory / "s"
    with clock(directory) as move, path.open("wb") as out:
        command = argv("stat", "--json", "-i", "500ms")
        with going(*command, env=moved_environment(directory), stdout=out) as process:
            awaited(lambda: filled(path))
            wander(move)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1].decode()
    result = Result(f"status {process.returncode}").check(process.returncode == 130, said)
    return steady(result.check(not said, said), path.read_text(), 3.0)


def screen_moved(*verb: str) -> Callable[[Path], Result]:
    def act(directory: Path) -> Result:
        with clock(directory) as move:
            shift = [f"{k}={v}" for k, v in moved_environment(directory).items()
                     if k.startswith("PYTHONPATH") or k.endswith("CLOCK")]  # fmt: skip
            words = [word.replace("SMALL", str(SAMPLES["small"])) for word in verb]
            screen = Screen(["env", *shift, *argv(*words)])
            screen.drain(2.0)
            wander(move)
            return watched(screen)

    return act


def export_moved(directory: Path) -> Result:
    command = argv("export", str(SAMPLES["small"]), "--format", "jsonl")
    with clock(directory) as move:
        texts = []
        for seconds in (0, -HOUR_S, HOUR_S):
            move(seconds)
            texts.append(ran(*command, env=moved_environment(directory))[1])
    result = Result("the same lines").check(len(set(texts)) == 1, "the lines differ")
    return whole(result, texts[0])


# --- all

NO_ROOM = "status 1, one line; what is written reads back"
ON = "it goes on; q: status 0"
REMOVED = "removed while it writes"
GONE = "working directory gone"
MOVED = "clock -1 h, +1 h"
KEPT = "times go on, numbers hold"
CASES = [
    *(Case(trouble, verb, must, to(act))
      for trouble, to in (("full disk", full), ("file size limit", limited))
      for verb, must, act in (
          ("record", NO_ROOM, record),
          ("record CMD", "the command's status, one line of it", record_around),
          ("stat -o", NO_ROOM, stat),
          ("export -o", NO_ROOM, export),
          ("live, R", f"told on the screen; {ON}", live),
          ("replay", ON, replay))),
    *(Case("no such directory", verb, "status 1, one line", absent(*words))
      for verb, words in (("record", ("record",)), ("stat -o", ("stat", "-n", "1")),
                          ("export -o", ("export", "SMALL")))),
    Case(REMOVED, "record", "status 1, one line", record_removed),
    Case(REMOVED, "stat -o", "status 1, one line", stat_removed),
    Case(REMOVED, "export -o", "status 1, one line", export_removed),
    Case(REMOVED, "replay", ON, replay_removed),
    Case(REMOVED, "live, R", f"told on the screen; {ON}", live_removed),
    *(Case(GONE, words[0], "as anywhere", nowhere(*words))
      for words in (("stat", "-n", "1", "-i", "100ms"), ("export", "SMALL"), ("replay", "SMALL"),
                    ("live",), ("topology",))),
    *(Case(f"{who} stopped for 10 s", verb, must, act(who))
      for who in ("probe", "app")
      for verb, must, act in (
          ("record", "status 0; what is missing is told", record_stopped),
          ("stat", "intervals follow each other", stat_stopped),
          ("live", ON, live_stopped))),
    Case("app stopped for 10 s", "replay", ON, replay_stopped),
    Case("probe stopped for 10 s", "export -", "intervals follow each other", export_stopped),
    Case(MOVED, "record", KEPT, record_moved),
    Case(MOVED, "stat", KEPT, stat_moved),
    Case(MOVED, "live", ON, screen_moved("live")),
    Case(MOVED, "replay", ON, screen_moved("replay", "SMALL")),
    Case(MOVED, "export", "the same lines", export_moved),
]  # fmt: skip
