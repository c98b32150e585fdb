"""The measurement of a stream, from its first frame to its end or to the end of a command."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from perfprobe import wire
from perftop.process.command_window import CommandStart, CommandWindow, is_this_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perftop.process.job import Job


class Measurement:
    """Selects the messages of the measurement, which the caller applies to its session."""

    def __init__(
        self, job: Job | None = None, start: CommandStart | None = None, read_pause_s: float = 0.0
    ) -> None:
        """`start`: start of the job, if it is measured on several machines. `read_pause_s`: time in
        s between two reads of the stream while the command runs."""
        self.command_window = None if job is None else CommandWindow(job, start, read_pause_s)
        self._has_frame = False
        self._is_this_machine = False
        """Whether this machine is measured, not a remote one."""
        self._cpu_s = 0.0
        """User and system CPU time in s that perftop had used by the first frame."""

    def admit(self, message: wire.Message) -> bool:
        """Processes a message before the session does. Returns False if the caller must skip it,
        because it would only lengthen the measurement."""
        if isinstance(message, wire.Hello):
            self._is_this_machine = message.source.startswith("sim") or is_this_machine(message)
            if self.command_window is not None:
                self.command_window.begin(message)
        elif isinstance(message, wire.Frame):
            if self.command_window is not None and not self.command_window.admit(message):
                return False
            if not self._has_frame:
                self._has_frame, self._cpu_s = True, time.process_time()
        return True

    def follow(self, message: wire.Message) -> None:
        """Processes a message after the session has."""
        if self.command_window is not None and isinstance(message, wire.Frame):
            self.command_window.add_frame(message)

    @property
    def is_over(self) -> bool:
        """Whether the command has ended and all CPUs have been read since."""
        return self.command_window is not None and self.command_window.is_closed

    def due_notes(self, now_ns: int, *, is_over: bool = False) -> Iterator[wire.Note]:
        """Yields the notes that the caller must apply to its session, as in CommandWindow."""
        if self.command_window is not None:
            yield from self.command_window.due_notes(now_ns, is_over=is_over)

    def own_cpu_s(self, probe_cpu_s: float) -> float:
        """Returns the CPU time in s that perftop and its probe used; NaN if the probe runs on
        another machine, or if its time is unknown. `probe_cpu_s`: the probe's CPU time."""
        own_s = probe_cpu_s + time.process_time() - self._cpu_s
        return own_s if self._is_this_machine else float("nan")


class CommandMeasurement(Measurement):
    command_window: CommandWindow
