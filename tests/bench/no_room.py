"""Cases of failing writes: full disks, limits of file sizes, removed directories."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from command import argv
from hard_tools import (
    SOURCES,
    Case,
    Result,
    check_complete,
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

FAST = ("--source", "sim:smt-mix,cpus=64,speed=max")
FASTER = ("--source", "sim:smt-mix,cpus=256,speed=max")
SOON = ("--source", "sim:smt-mix,cpus=64,speed=20")
MIN_SCREEN_BYTES = 5000
"""Minimum size of a whole screen in bytes, after which the app has started."""
FILE_BYTES, DISK = 1 << 18, "1m"


@dataclass
class Room:
    """A directory in which writes fail, a word of the error, and the prefix of the command."""

    directory: Path
    word: str
    prefix: tuple[str, ...] = ()


# --- full file systems and size limits


def record(room: Room) -> Result:
    path = room.directory / "r"
    command = argv("record", "-o", str(path), *FAST, "--duration", "1h")
    status, _, message = run_command(*room.prefix, *command)
    return check_recording(check_one_line(status, message, 1, room.word), path)


def record_around(room: Room) -> Result:
    path = room.directory / "r"
    job = ("sh", "-c", "sleep 5; exit 7")
    command = argv("record", "-o", str(path), *FASTER, "--", *job)
    status, _, message = run_command(*room.prefix, *command)
    matching_lines = [line for line in message if room.word in line]
    return check_recording(check_one_line(status, matching_lines, 7, room.word), path)


def stat(room: Room) -> Result:
    path = room.directory / "s"
    command = argv("stat", "--json", "-i", "100ms", "-o", str(path), *FAST, "--duration", "1h")
    status, _, message = run_command(*room.prefix, *command)
    return check_complete(
        check_one_line(status, message, 1, room.word), path.read_text(), torn=True
    )


def export(room: Room) -> Result:
    path = room.directory / "e.csv"
    command = argv("export", str(SOURCES["large"]), "-o", str(path), "--every", "100ms")
    status, _, message = run_command(*room.prefix, *command)
    return check_complete(
        check_one_line(status, message, 1, room.word), path.read_text(), torn=True
    )


def live(room: Room) -> Result:
    """Presses `R`, which writes to the directory in which the app was started."""
    with Screen(["env", "-C", str(room.directory), *room.prefix, *argv(*SOON)]) as screen:
        screen.draws(MIN_SCREEN_BYTES)
        screen.type("R")
        result = Result("reported on the screen").check(
            screen.sees(room.word), "nothing is reported"
        )
        result = quit_screen(result, screen)
    for path in room.directory.glob("*.perftop"):
        check_recording(result, path)
    return result


def replay(room: Room) -> Result:
    """Replays, which writes nothing and needs no space."""
    path = str(shutil.copy(SOURCES["small"], room.directory))
    with contextlib.suppress(OSError), (room.directory / "filler").open("wb") as file:
        while not room.prefix:
            file.write(bytes(1 << 16))
    return watch_screen(
        Screen(["env", "-C", str(room.directory), *room.prefix, *argv("replay", path)])
    )


def with_full_disk(act: Callable[[Room], Result]) -> Callable[[Path], Result]:
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


def with_file_size_limit(act: Callable[[Room], Result]) -> Callable[[Path], Result]:
    def with_limit(directory: Path) -> Result:
        directory.mkdir()
        return act(Room(directory, "File too large", ("prlimit", f"--fsize={FILE_BYTES}")))

    return with_limit


# --- removed directories


def record_removed(directory: Path) -> Result:
    path = directory / "r"
    directory.mkdir()
    with start_command(*argv("record", "-o", str(path), "--sample", "20ms")) as process:
        wait_until(lambda: has_content(path))
        shutil.rmtree(directory)
        message = process.communicate(timeout=60)[1].decode().splitlines()
    return check_one_line(process.returncode, message, 1, "was removed")


def stat_removed(directory: Path) -> Result:
    path = directory / "s"
    directory.mkdir()
    command = argv("stat", "--json", "-i", "100ms", "-n", "20", "-o", str(path))
    with start_command(*command) as process:
        wait_until(lambda: has_content(path))
        shutil.rmtree(directory)
        message = process.communicate(timeout=60)[1].decode().splitlines()
    return check_one_line(process.returncode, message, 1, "was removed")


def export_removed(directory: Path) -> Result:
    path, data = directory / "e.csv", SOURCES["large"].read_bytes()
    directory.mkdir()
    with start_command(*argv("export", "-", "-o", str(path)), stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write(data[: len(data) // 2])
        process.stdin.flush()
        wait_until(lambda: has_content(path))
        shutil.rmtree(directory)
        message = process.communicate(data[len(data) // 2 :], timeout=60)[1].decode().splitlines()
    return check_one_line(process.returncode, message, 1, "was removed")


def replay_removed(directory: Path) -> Result:
    directory.mkdir()
    path = str(shutil.copy(SOURCES["small"], directory))
    screen = Screen(argv("replay", path))
    screen.draws(MIN_SCREEN_BYTES)
    shutil.rmtree(directory)
    return watch_screen(screen)


def live_removed(directory: Path) -> Result:
    directory.mkdir()
    with Screen(["env", "-C", str(directory), *argv(*SOON)]) as screen:
        screen.draws(MIN_SCREEN_BYTES)
        shutil.rmtree(directory)
        screen.type("R")
        result = Result("reported on the screen")
        result.check(
            screen.sees("No such file", "no directory", "was removed"), "nothing is reported"
        )
        return quit_screen(result, screen)


def into_missing_directory(*verb: str) -> Callable[[Path], Result]:
    def into_nothing(directory: Path) -> Result:
        words = [word.replace("SMALL", str(SOURCES["small"])) for word in verb]
        status, _, message = run_command(*argv(*words, "-o", str(directory / "none" / "file")))
        return check_one_line(status, message, 1, "director")

    return into_nothing


def in_removed_directory(*verb: str) -> Callable[[Path], Result]:
    """Starts a command in a directory that was removed."""

    def from_nowhere(directory: Path) -> Result:
        directory.mkdir()
        words = [word.replace("SMALL", str(SOURCES["small"])) for word in verb]
        shell = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *argv(*words)]
        if words[0] in {"live", "replay"}:
            return watch_screen(Screen(["env", "-C", str(directory), *shell]))
        status, out, message = run_command(*shell, cwd=directory)
        result = Result(f"status {status}").check(status == 0, f"status 0 was due, said {message}")
        return result.check(out and not message, f"said {message}")

    return from_nowhere


# --- all

NO_ROOM = "status 1, one line; what is written reads back"
CONTINUES = "it continues; q: status 0"
REMOVED = "removed while it writes"
NO_DIRECTORY = "working directory gone"
CASES = [
    *(Case(trouble, verb, must, to(act))
      for trouble, to in (("full disk", with_full_disk), ("file size limit", with_file_size_limit))
      for verb, must, act in (
          ("record", NO_ROOM, record),
          ("record CMD", "the command's status, one line of it", record_around),
          ("stat -o", NO_ROOM, stat),
          ("export -o", NO_ROOM, export),
          ("live, R", f"reported on the screen; {CONTINUES}", live),
          ("replay", CONTINUES, replay))),
    *(Case("no such directory", verb, "status 1, one line", into_missing_directory(*words))
      for verb, words in (("record", ("record",)), ("stat -o", ("stat", "-n", "1")),
                          ("export -o", ("export", "SMALL")))),
    Case(REMOVED, "record", "status 1, one line", record_removed),
    Case(REMOVED, "stat -o", "status 1, one line", stat_removed),
    Case(REMOVED, "export -o", "status 1, one line", export_removed),
    Case(REMOVED, "replay", CONTINUES, replay_removed),
    Case(REMOVED, "live, R", f"reported on the screen; {CONTINUES}", live_removed),
    *(Case(NO_DIRECTORY, words[0], "as anywhere", in_removed_directory(*words))
      for words in (("stat", "-n", "1", "-i", "100ms"), ("export", "SMALL"), ("replay", "SMALL"),
                    ("live",), ("topology",))),
]  # fmt: skip
