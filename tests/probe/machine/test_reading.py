"""Rows of cores and packages: the first online CPU reads them, and the next one when it goes
offline."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import trees
from waiting import whenever_due

from perfprobe import wire
from perfprobe._native import lib
from perfprobe.cpu import topology
from perfprobe.machine import source
from perfprobe.native.sampler import Slot
from perfprobe.wire import Counter, Missing, Scope
from perftop.model.delta import Delta
from perftop.session.session import Session

SAMPLE_NS = 10_000_000
COUNTERS = {"core": "core_c6", "package": "energy_j"}


class NumberPart:
    """A part with one counter, which is the number in a file. It records which CPUs opened it."""

    def __init__(self, root: Path, scope: Scope) -> None:
        self.scope = scope
        self.counters = [Counter(COUNTERS.get(scope, scope), scope, "J", "made")]
        self.missing: list[Missing] = []
        self.readers: list[int] = []
        self._path = root / f"{scope}.txt"
        self._path.write_text("100\n")
        self._fds: dict[int, int] = {}

    def write(self, number: int) -> None:
        with self._path.open("r+") as file:
            file.write(f"{number}\n")

    def open(self, cpu: int) -> list[Slot]:
        self.readers.append(cpu)
        self._fds[cpu] = os.open(self._path, os.O_RDONLY)
        return [Slot(lib.PP_FILE, 0, self._fds[cpu])]

    def close_cpu(self, cpu: int) -> None:
        if cpu in self.readers:
            self.readers.remove(cpu)
        if cpu in self._fds:
            os.close(self._fds.pop(cpu))

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.popitem()[1])


class Rig:
    """Two packages, each with one core of two threads: CPUs 0 and 2, 1 and 3."""

    def __init__(self, root: Path, selected: str | None = None) -> None:
        self.root = root
        trees.write_machine(root, 1, 2, 2)
        rows, cpus = source.read_rows(root, selected)
        scopes: tuple[Scope, ...] = ("package", "cpu", "core")
        self.parts = {scope: NumberPart(root, scope) for scope in scopes}
        self.source = source.Machine(root, SAMPLE_NS, rows, cpus, list(self.parts.values()))
        self.session = Session(self.source.hello)
        self.last: wire.Frame | None = None

    def until(self, ready: Callable[[], bool], description: str) -> None:
        for messages in whenever_due(self.source.due_s, self.source.poll, description):
            for message in messages:
                decoder = wire.Decoder()
                greeting = wire.encode(self.source.hello)
                _, arrived = decoder.feed(greeting + wire.encode(message))
                self.session.apply(arrived)
                if isinstance(arrived, wire.Frame):
                    self.last = arrived
            if ready():
                return

    def frames(self, n: int) -> None:
        goal = self.session.frames + n
        self.until(lambda: self.session.frames >= goal, f"{n} frames")

    def online(self, cpus: str) -> None:
        trees.put(self.root, f"{trees.CPU}/online", cpus + "\n")
        want = set(map(int, cpus.split(",")))
        self.until(
            lambda: {i for i, on in enumerate(self.session.online) if on} == want, f"only {cpus} on"
        )

    def advances(self, scope: str) -> list[float]:
        column = self.session.counters.columns[COUNTERS[scope]]
        table = self.session.run.span.delta.tables[column.block].increments
        return [float(x) for x in table[:, column.index]]

    def flags(self, scope: str) -> list[int]:
        if self.last is None:
            return [0]
        head = memoryview(self.last.blocks[scope].head).cast("Q")
        return [head[i] & ~wire.ROW_WIDE & ~wire.ROW_UNPINNED for i in range(4, len(head), 5)]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    result = Rig(tmp_path)
    yield result
    result.source.close()


def test_one_row_for_each_core_and_package(rig: Rig) -> None:
    hello = rig.source.hello
    assert [(b.name, b.scope, hello.rows(b.scope)) for b in hello.blocks] == [
        ("cpu", "cpu", 4),
        ("core", "core", 2),
        ("package", "package", 2),
        ("machine", "machine", 1),
    ]
    assert {scope: part.readers for scope, part in rig.parts.items()} == {
        "cpu": [0, 1, 2, 3],
        "core": [0, 1],
        "package": [0, 1],
    }
    rig.until(lambda: all(map(all, map(rig.flags, COUNTERS))), "every row was read")
    rig.parts["package"].write(130)
    rig.parts["core"].write(107)
    rig.until(lambda: rig.advances("package") == [30, 30], "30 J in each package")
    rig.until(lambda: rig.advances("core") == [7, 7], "7 in each core")


def test_rows_move_when_their_cpu_goes_offline(rig: Rig) -> None:
    rig.frames(2)
    rig.online("1,2,3")
    assert rig.parts["package"].readers == [1, 2]
    assert rig.parts["core"].readers == [1, 2]
    rig.frames(2)
    rig.until(lambda: rig.flags("package") == [wire.ROW_SAMPLED] * 2, "both packages are read")
    rig.parts["package"].write(150)
    rig.until(lambda: rig.advances("package") == [50, 50], "50 J in each package")
    assert rig.session.run.span.suspect_count == 0


def test_no_difference_is_computed_across_two_readers(rig: Rig) -> None:
    """The group of the next reader may have started at 0, so its first value is unrelated to the
    last value."""
    rig.frames(2)
    seen: list[int] = []
    steps = rig.session.counters.steps

    def watch(frames: Sequence[wire.Frame]) -> Delta:
        seen.extend(map(rig_flags, frames))
        return steps(frames)

    def rig_flags(frame: wire.Frame) -> int:
        return memoryview(frame.blocks["package"].head).cast("Q")[4]

    rig.session.counters.steps = watch  # type: ignore[method-assign]
    trees.put(rig.root, f"{trees.CPU}/online", "1,2,3\n")
    rig.until(lambda: not rig.session.online[0], "CPU 0 is off")
    rig.until(lambda: any(flags & wire.ROW_REBASED for flags in seen), "the successor's row is new")


def test_rows_of_an_offline_core_are_marked(rig: Rig) -> None:
    rig.frames(1)
    rig.online("1,3")
    rig.frames(1)
    off = [wire.ROW_OFFLINE, wire.ROW_SAMPLED]
    rig.until(lambda: rig.flags("core") == off, "one core is off")
    rig.until(lambda: rig.flags("package") == off, "its package too")
    rig.until(lambda: rig.flags("cpu") == off * 2, "its CPUs too")
    rig.online("1,2,3")
    rig.until(lambda: rig.flags("core") == [wire.ROW_SAMPLED] * 2, "both cores are read")
    assert rig.parts["core"].readers == [1, 2]


def test_only_cores_of_the_selection_are_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "3")
    rig.until(lambda: rig.flags("package") == [0, wire.ROW_SAMPLED], "its package is read")
    rig.source.close()
    assert rig.parts["package"].readers == [1]  # CPU 1 is the sibling of CPU 3
    assert topology.cores(rig.source.hello.topology) == [[0, 2], [1, 3]]
