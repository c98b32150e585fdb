"""Measures how work and memory grow with the number of marks, episodes, renamed tasks, CPUs, hours,
kept recordings, damaged places and machines.

Each case is measured at three sizes, each twice the previous one, in separate processes: function
calls, CPU seconds, and peak memory. Calls may grow by little more than a factor of two; so may
seconds, within their noise. Prints a line for each case.

Run by hand: PYTHONPATH=tests/support python tests/bench/growth.py [--large] [WORD …]
             only cases whose names have one of these words; --large: half the sizes that must be
             served (10^5 tasks and episodes, 10^4 marks, 4,096 CPUs, 24 hours), and these sizes
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import fakes
import synth
from calls import count_calls

from perfprobe import wire
from perftop import cli
from perftop.model.kinds import Episode
from perftop.recording.file import Recording
from perftop.recording.ring import KEPT_DIRECTORY, Ring
from perftop.recording.writer import Writer
from perftop.session.episodes import RecordingEpisodes
from perftop.session.history import History
from perftop.session.packing import TimedMessage
from perftop.session.session import Session
from perftop.tui import recording_index
from perftop.verbs.fleet_prometheus import Series, scraped_fleet

MAX_CALLS, MAX_SECONDS, NOISE_S = 2.3, 3.0, 0.1
"""Largest factors by which calls and CPU seconds may grow when the size doubles; differences below
NOISE_S do not count."""
S = 1_000_000_000
HELLO = synth.hello([synth.REF])
Work = Callable[[], object]


def frame(seq: int, hello: wire.Hello = HELLO, **more: Any) -> wire.Frame:
    return synth.frame(hello, seq, {"ref": [seq * 10**8] * len(hello.topology)}, **more)


def record(path: Path, messages: Sequence[TimedMessage], hello: wire.Hello = HELLO) -> None:
    writer = Writer(path, hello)
    for message in messages:
        writer.write(message)
    writer.end()


def perftop(*words: str) -> None:
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")):
        status = cli.main([*words])
    assert status in {0, 4}, status


def marks(count: int, place: Path) -> Work:
    messages: list[TimedMessage] = []
    for number in range(count):
        seq = number // 10
        if number % 10 == 0:
            messages.append(frame(seq))
        data = {"label": f"mark {number}"}
        messages.append(wire.Note("mark", seq * synth.SAMPLE_NS, data=data))
    record(place / "r", messages)

    def work() -> None:
        with Recording(place / "r") as recording:
            assert sum(note.kind == "episode" for note in recording_index.notes(recording)) == count

    return work


def exported_marks(count: int, place: Path) -> Work:
    marks(count, place)
    return lambda: perftop("export", str(place / "r"), "-o", str(place / "out"), "--force")


def episodes(count: int, place: Path) -> Work:
    """Makes a recording in which steal starts and ends on eight CPUs in turn."""
    machine = fakes.Machine(cores=8, threads=1, counted=False)
    messages: list[TimedMessage] = []
    for seq in range(count * 10):
        for cpu in range(8):
            stolen = seq % 10 < 5 and seq // 10 % 8 == cpu
            machine.loads[cpu] = fakes.CpuLoad(util=0.4, steal=0.5 if stolen else 0.0)
        messages.append(machine.frame(seq))
    record(place / "r", messages, machine.hello)

    def work() -> None:
        with Recording(place / "r") as recording:
            ended = [n for n in recording_index.notes(recording) if n.kind == "episode"]
        assert len(ended) > count // 2, len(ended)

    return work


def listed_episodes(count: int, _: Path) -> Work:
    """Lists the episodes of a whole recording while they are still being searched."""

    def work() -> None:
        result = RecordingEpisodes()
        for number in range(count):
            result.add(Episode("steal", [number % 8], number * S, number * S + S // 2))
            if number % 100 == 0:
                result.until_ns = number * S
                result.overlapping(number * S - 30 * S, number * S)
                result.missing_episodes([Episode("steal", [9], number * S)])

    return work


def renamed_tasks(count: int, _: Path) -> Work:
    """Runs a task on each CPU, whose name and PID change with each record."""
    machine = fakes.Machine(cores=2, threads=2)

    def work() -> None:
        session = Session(machine.hello, History(machine.hello))
        session.run.track_losses()
        for seq in range(count // 4):
            tasks = {str(cpu): [seq * 4 + cpu, f"t{seq}-{cpu}", 0.9] for cpu in range(4)}
            session.apply(machine.frame(seq, records={"tasks": tasks}))
            if seq % 10 == 9:
                session.take_interval()

    return work


def cpus(count: int, _: Path) -> Work:
    machine = fakes.Machine(cores=count // 2, threads=2)
    tasks = fakes.task_records([f"task{cpu}" for cpu in range(count)])
    frames = [machine.frame(seq, records=tasks if seq % 10 == 0 else {}) for seq in range(21)]

    def work() -> None:
        session = Session(machine.hello, History(machine.hello))
        session.run.track_losses()
        for part in (frames[:11], frames[11:]):
            for _ in session.apply_in_parts(part):
                pass
            session.take_interval()

    return work


def cpus_in(verb: str, *words: str) -> Callable[[int, Path], Work]:
    def case(count: int, place: Path) -> Work:
        machine = fakes.Machine(cores=count // 2, threads=2)
        record(place / "r", [machine.frame(seq) for seq in range(21)], machine.hello)
        return lambda: perftop(verb, str(place / "r"), *words)

    return case


def seconds_in(*words: str) -> Callable[[int, Path], Work]:
    """Makes a recording with one sample per second."""

    def case(count: int, place: Path) -> Work:
        hello = dataclasses.replace(HELLO, sample_ns=S)
        frames: list[TimedMessage] = [
            dataclasses.replace(frame(seq), time_ns=seq * S) for seq in range(count)
        ]
        record(place / "r", frames, hello)
        verb, *more = words
        more = [word.replace("OUT", str(place / "out")) for word in more]
        return lambda: perftop(verb, str(place / "r"), *more)

    return case


def live_seconds(count: int, _: Path) -> Work:
    """Runs a session as the screen does, with one interval per second."""

    def work() -> None:
        session = Session(HELLO, History(HELLO))
        session.run.track_losses()
        for seq in range(count):
            session.apply(frame(seq))
            if seq % 10 == 9:
                session.take_interval()

    return work


def ring_beside(count: int, place: Path, max_bytes: int) -> Ring:
    """Makes a ring in a directory with `count` kept recordings."""
    before = os.umask(0o077)
    for number in range(count):
        kept = place / "box" / KEPT_DIRECTORY / f"20260101-{number:06}-steal.perftop"
        kept.mkdir(parents=True)
        (kept / "000001.part").write_bytes(b"x" * 1000)
    os.umask(before)
    return Ring(place / "box", HELLO, 30 * S, max_bytes)


def kept_recordings(count: int, place: Path) -> Work:
    """Writes twenty parts of a ring that has kept recordings."""
    ring = ring_beside(count, place, 1 << 40)
    ring.write(frame(0))

    def work() -> None:
        for number in range(1, 21):
            ring.write(frame(20 * number))

    return work


def full_ring(count: int, place: Path) -> Work:
    """Opens a ring that must remove all kept recordings."""
    ring = ring_beside(count, place, 10_000)

    def work() -> None:
        for number in range(5):
            ring.write(frame(20 * number))

    return work


def damaged_places(count: int, place: Path) -> Work:
    record(place / "r", [frame(seq) for seq in range(count * 300)])
    data = bytearray((place / "r").read_bytes())
    with Recording(place / "r") as recording:
        for number, offset in enumerate(recording._blocks[::2]):
            data[offset + 40 + number % 20] ^= 0x55
    (place / "r").write_bytes(data)
    return lambda: perftop("export", str(place / "r"), "-o", str(place / "out"), "--force")


def hotplugs(count: int, place: Path) -> Work:
    hello = synth.hello([synth.REF], cores=4)
    messages: list[TimedMessage] = [frame(0, hello)]
    for seq in range(1, count):
        data = {"cpu": 3, "online": bool(seq % 2)}
        messages += [wire.Note("hotplug", seq * synth.SAMPLE_NS, data=data), frame(seq, hello)]

    def work() -> None:
        record(place / f"r{time.monotonic_ns()}", messages, hello)
        session = Session(hello, History(hello))
        for _ in session.apply_in_parts(messages):
            pass

    return work


def machines(count: int, _: Path) -> Work:
    answers = [
        Series({"instance": f"k{n}:1", "perftop_number": key}, [(1e9, 0.5)])
        for n in range(count) for key in ("busy", "age", "known", "clock_hz", "ceiling_hz")
    ]  # fmt: skip

    def work() -> None:
        before = scraped_fleet(answers, 1e9, {})
        scraped_fleet(answers, 1e9 + 1, before.machines)

    return work


CASES: dict[str, tuple[Callable[[int, Path], Work], int, int]] = {
    "marks in a pass": (marks, 2500, 10_000),
    "marks in export": (exported_marks, 2500, 10_000),
    "episodes in a pass": (episodes, 50, 2000),
    "episodes listed": (listed_episodes, 16_000, 100_000),
    "renamed tasks": (renamed_tasks, 1600, 100_000),
    "CPUs, a session": (cpus, 512, 4096),
    "CPUs, export": (cpus_in("export", "-o", "/dev/null", "--force"), 256, 4096),
    "CPUs, summary": (cpus_in("summary"), 512, 4096),
    "CPUs, why": (cpus_in("why"), 512, 4096),
    "seconds, export": (seconds_in("export", "-o", "/dev/null", "--force"), 4000, 86_400),
    "seconds, summary": (seconds_in("summary"), 4000, 86_400),
    "seconds, why": (seconds_in("why"), 4000, 86_400),
    "seconds, live": (live_seconds, 300, 86_400),
    "kept recordings": (kept_recordings, 500, 10_000),
    "a full ring": (full_ring, 250, 10_000),
    "damages": (damaged_places, 25, 1000),
    "hotplugs": (hotplugs, 200, 10_000),
    "machines": (machines, 2500, 10_000),
}
"""Cases, the smallest of three sizes, and the size for --large."""


def measure_case(name: str, size: int, answer: object) -> None:
    case = CASES[name][0]
    with tempfile.TemporaryDirectory(prefix="growth-") as directory:
        os.environ["XDG_CACHE_HOME"] = directory
        places = [Path(directory) / part for part in ("a", "b")]
        for place in places:
            place.mkdir()
        first, second = (case(size, place) for place in places)
        before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        since_s = time.process_time()
        first()
        spent_s = time.process_time() - since_s
        after_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        with count_calls() as calls:
            second()
    answer.put((calls.count, spent_s, after_mb - before_mb))  # type: ignore[attr-defined]


def main(words: list[str]) -> int:
    bad = 0
    forks = multiprocessing.get_context("fork")
    is_large = "--large" in words
    words = [word for word in words if word != "--large"]
    for name, (_, size, large) in CASES.items():
        if words and not any(word in name for word in words):
            continue
        results: list[tuple[int, float, float]] = []
        sizes = (large // 2, large) if is_large else (size, 2 * size, 4 * size)
        for count in sizes:
            answer = forks.SimpleQueue()
            process = forks.Process(target=measure_case, args=(name, count, answer))
            process.start()
            process.join()
            if process.exitcode:
                break
            results.append(answer.get())
        faults = [] if len(results) == len(sizes) else ["it failed"]
        for (calls, s, _), (more_calls, more_s, _) in pairwise(results):
            if more_calls > MAX_CALLS * calls:
                faults.append(f"calls grow by {more_calls / calls:.1f}")
            if more_s > MAX_SECONDS * s + NOISE_S:
                faults.append(f"seconds grow by {more_s / s:.1f}")
        bad += bool(faults)
        figures = (f"{count}: {calls} calls, {s:.2f} s, {mb:.0f} MB"
                   for count, (calls, s, mb) in zip(sizes, results, strict=False))  # fmt: skip
        print(f"{'✗' if faults else '✓'} {name:20} {'; '.join([*figures, *faults])}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
