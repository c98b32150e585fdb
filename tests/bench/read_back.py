"""Reads a recording back and reports unexplained gaps and impossible numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from perfprobe import wire
from perftop.output import stat_lines
from perftop.recording.file import Recording
from perftop.session.session import Session

MAX_HZ = 6e9
MAX_IPC = 16.0
REPORT_NS = 1_000_000_000


class RecordingCheck:
    """Checks the messages of a recording: frames, numbers, and CPUs that go offline and online."""

    def __init__(self, hello: wire.Hello) -> None:
        self._hello = hello
        self._session = Session(hello)
        self._rows = {row.cpu: at for at, row in enumerate(hello.topology)}
        self._last: wire.Frame | None = None
        self.off = {row.cpu for row in hello.topology if not row.online}
        """CPUs that are offline at the end, according to the notes."""
        self._early: set[int] = set()
        """CPUs that the last frame showed as offline; the note may follow the frame."""
        self._unread = np.zeros(len(hello.topology), bool)
        self.seen: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    @property
    def lasted_s(self) -> float:
        return (self._session.now_ns - self._hello.raw_ns) / 1e9

    def apply(self, message: wire.Message) -> None:
        if isinstance(message, wire.Frame):
            self._frame(message)
        elif isinstance(message, wire.Note) and message.kind == "hotplug":
            self._hotplug(message)
        self._session.apply(message)
        if self._session.span_ns >= REPORT_NS:
            self._numbers(stat_lines.interval_line(self._session, self._session.take_interval()))

    def _hotplug(self, note: wire.Note) -> None:
        cpu, online = note.data["cpu"], note.data["online"]
        self.seen["went online" if online else "went offline"] += 1
        self.faults["a CPU goes online or offline twice in a row"] += online == (
            cpu not in self.off
        )
        (self.off.discard if online else self.off.add)(cpu)
        self._early.discard(cpu)

    def _frame(self, frame: wire.Frame) -> None:
        self.seen["frames"] += 1
        if (last := self._last) is not None:
            steps = round((frame.time_ns - last.time_ns) / self._hello.sample_ns)
            lost, late = frame.lost - last.lost, frame.late - last.late
            self.faults["a frame is missing"] += frame.seq - last.seq != 1 + lost
            self.faults["a deadline is missing"] += steps != 1 + lost + late
            self.seen["late"] += late
            self.seen["lost"] += lost
        self._last = frame
        self._flags(np.frombuffer(frame.blocks["cpu"].head, "<u8").reshape(-1, wire.HEAD)[:, 4])

    def _flags(self, flags: np.ndarray) -> None:
        off = flags & np.uint64(wire.ROW_OFFLINE) != 0
        read = flags & np.uint64(wire.ROW_SAMPLED) != 0
        restarted = flags & np.uint64(wire.ROW_REBASED) != 0
        self.faults["a CPU is offline without a note"] += len(self._early)
        self._early = {cpu for cpu, at in self._rows.items() if off[at] and cpu not in self.off}
        for cpu, at in self._rows.items():
            self.faults["an offline CPU is read"] += bool(cpu in self.off and read[at])
            self.faults["a CPU returns without restarted counters"] += bool(
                self._unread[at] and read[at] and not restarted[at]
            )
            self.seen["rows not read"] += bool(not off[at] and not read[at])
        self._unread = (self._unread | off) & ~read

    def _numbers(self, line: dict[str, Any]) -> None:
        self.seen["intervals"] += 1
        for row in line["cpus"]:
            for key, maximum in (("util", 1.0), ("halt", 1.0), ("idle", 1.0), ("steal", 1.0),
                              ("busy_hz", MAX_HZ), ("ipc", MAX_IPC)):  # fmt: skip
                value = row[key]
                self.faults[f"impossible {key}"] += value is not None and not 0 <= value <= maximum
        for core in line["cores"]:
            states = list(core["smt"].values())
            if None not in states:
                self.faults["states do not sum to 1"] += abs(sum(states) - 1) > 1e-6
                self.faults["a state is negative"] += min(states) < 0


def check_recording(path: Path) -> tuple[RecordingCheck, str]:
    """Reads a recording. Returns the check of its messages, and its damage ('' if none)."""
    with Recording(path) as recording:
        report = RecordingCheck(recording.hello)
        for message in recording.messages():
            report.apply(message)
        return report, recording.damage or ""


def faults(report: Counter[str]) -> Iterator[str]:
    return (f"{what}: {count}" for what, count in report.items() if count)
