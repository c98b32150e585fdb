"""The measurement of a command. Each CPU is read before the command starts and again after its end,
so that its samples contain the whole run. Notes on the run are added to the stream. Any stream can
be used, because only its hello and frames are needed. A simulated machine has its own time: only
the order of its messages counts, and there are no bounds. The clock of a remote machine is never
compared with ours. A frame that has arrived here before the start was read before it. A frame that
the remote machine read after answering an echo, which is requested after the end, was read after
the end. Only durations are compared: that of the window on the remote machine with that of the run
on this one."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfprobe import wire
from perftop.base import raw_ns
from perftop.base.arrays import Bools, Floats

if TYPE_CHECKING:
    import asyncio

    from perftop.process.job import Job, Run
    from perftop.process.link import Link

MIN_WAIT_FRAMES = 20
"""Minimum number of frames to wait for a read of each CPU, before the run and after it. Under load,
several reads of a CPU in a row may be unusable, but one CPU must not delay the measurement
forever."""
MIN_WAIT_NS = 1_000_000_000
"""Minimum time in ns to wait, in addition to MIN_WAIT_FRAMES: under load, a CPU may miss many short
samples."""
FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that only perftop receives and passes on. The terminal also sends the others to the
command."""
HANDLED_SIGNALS = (signal.SIGINT, signal.SIGQUIT, *FORWARDED_SIGNALS)
LATE_SIGNAL_NS = 500_000_000
"""Time in ns after the command's end in which a signal was still meant for the command: the
terminal signals both, and the command may end before perftop handles the signal."""
RETRY_AFTER_RUN_S = 30.0
"""Seconds after the end of a run for which a broken connection is still retried."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MAX_ARGV_LENGTH = 4096
RUN_TIMES = "wall_s", "late_s", "user_s", "sys_s"
RUN_COUNTS = "switches", "page_faults", "disk_faults", "peak_bytes"
"""Fields of a `Run` in the note on its end and in JSON, in seconds and as counts."""
_UNUSABLE_FLAGS = np.uint64(wire.ROW_ELSEWHERE | wire.ROW_WIDE)


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """Earliest and latest raw time of the CPUs' first samples, and of their last samples, by the
    clock of the measured machine."""

    first_ns: tuple[int, int]
    last_ns: tuple[int, int]

    def slack_s(self, start_ns: int, end_ns: int) -> float:
        """Returns the largest time in s by which the samples of a CPU exceed the run. Start and end
        may come from another clock, because only durations are used."""
        return ((self.last_ns[1] - self.first_ns[0]) - (end_ns - start_ns)) / 1e9


class CommandStart:
    """The start of a job that is measured on one or several machines. The job starts when all
    windows are open or given up."""

    def __init__(self, job: Job, windows: int = 1) -> None:
        self.job = job
        self.links: list[Link] = []
        self.pauses: list[tuple[Callable[[float], None], float]] = []
        """For each stream that pauses while the command runs: a function that sets the seconds
        between two reads, and these seconds."""
        self.is_stopped = False
        self.answered_windows: set[CommandWindow] = set()
        """Windows of machines that have sent a frame or were given up."""
        self._windows = self._unopened_windows = windows
        self._has_open_window = False
        """Whether any window is open; without one, the command does not start."""
        self.running: asyncio.Task[Run] | None = None

    @property
    def have_all_answered(self) -> bool:
        """Whether all machines have sent a frame. Earlier samples would only prolong the
        measurement."""
        return len(self.answered_windows) == self._windows

    def on_window_open(self, *, is_given_up: bool) -> None:
        self._unopened_windows -= 1
        self._has_open_window |= not is_given_up
        if self._unopened_windows <= 0 and self._has_open_window and not self.is_stopped:
            self.running = self.job.run_command()
            self.running.add_done_callback(self._on_run_end)
            for set_pause, seconds in self.pauses:
                set_pause(seconds)

    def _on_run_end(self, _: object) -> None:
        """Ends the pauses of the streams, because all windows now wait for samples, and limits the
        time for which broken links are retried."""
        for set_pause, _ in self.pauses:
            set_pause(0.0)
        for link in self.links:
            link.limit_retries(RETRY_AFTER_RUN_S)


class CommandWindow:
    """The measurement on one machine. The window opens after the first read of each CPU, which lets
    the job start, and closes after a read of each CPU that follows the job's end."""

    def __init__(
        self, job: Job, start: CommandStart | None = None, read_pause_s: float = 0.0
    ) -> None:
        """`start`: shared with the windows of other machines; None for one machine. `read_pause_s`:
        seconds between two reads while the command runs and no window waits for samples."""
        self.job, self._read_pause_s = job, read_pause_s
        self._start = start or CommandStart(job)
        self.link: Link | None = None
        """The connection to a remote machine; None if it is this machine."""
        self.is_remote = False
        """Whether a remote machine is measured."""
        self._has_opened = self._after_echo = False
        self._frame_count = 0
        """Number of frames since the current phase began: before the command's start, or after its
        end."""
        self.is_closed = False
        self.signal: int | None = None
        """The last signal that was meant for the command."""
        self._waiting_marks: list[tuple[int, str]] = []
        """Raw time in ns and name of the marks later than the newest frame."""
        self._start_ns: int | None = None
        """Raw time in ns in the note on the start; None before it."""
        self._has_noted_end = False
        self.missed_cpus: list[int] = []
        """CPUs without a sample before the start or after the end: offline, or not readable."""

    def set_link(self, link: Link | None) -> None:
        """Sets the connection to the machine. Must be called before the first message."""
        self.link = link
        if link is not None:
            self._start.links.append(link)

    def set_pause_function(self, set_pause: Callable[[float], None]) -> None:
        """Stores the function that sets the seconds between two reads of this machine's stream (0:
        no pause). Must be called before the first message."""
        if self._read_pause_s:
            self._start.pauses.append((set_pause, self._read_pause_s))

    def begin(self, hello: wire.Hello) -> None:
        self._ready_ns = raw_ns()
        self.is_remote = self.link is not None and not is_this_machine(hello)
        self._simulated = hello.source.startswith("sim")
        self.has_our_clock = not self._simulated and not self.is_remote
        self._cpus = [row.cpu for row in hello.topology]
        selected = self._cpus if hello.selected is None else hello.selected
        self._is_selected: Bools = np.isin(self._cpus, selected)
        core = {cpu: i for i, group in enumerate(hello.cores) for cpu in group}
        core_number = len(hello.cores)  # a CPU whose core is unknown counts as its own core
        self._core = np.array([core.get(cpu, core_number + i) for i, cpu in enumerate(self._cpus)])
        self._block = next(block.name for block in hello.blocks if block.scope == "cpu")
        self._first_ns: Floats = np.full(len(self._cpus), np.nan)
        self._last_ns = self._first_ns.copy()

    def admit(self, frame: wire.Frame) -> bool:
        """Returns whether the session may apply a frame. A frame that was read before the command
        could start would only prolong the measurement."""
        self._start.answered_windows.add(self)
        if self._start.running is not None or self._frame_count:
            return True
        is_old = self.has_our_clock and frame.time_ns < self._ready_ns
        return self._start.have_all_answered and not is_old

    def add_frame(self, frame: wire.Frame) -> bool:
        """Processes the next frame. Returns whether the window is closed."""
        if not self._has_opened:
            if self._record_reads(self._first_ns, frame):
                self._frame_count = 0
                self._on_window_open(is_given_up=False)
        elif (run := self.run) is not None and self._record_reads_after(frame, run):
            self.is_closed = True
            is_unread = np.isnan(self._first_ns) | np.isnan(self._last_ns)
            self.missed_cpus = np.array(self._cpus)[is_unread & self._is_selected].tolist()
        return self.is_closed

    def give_up(self) -> None:
        """Gives up this window because its stream has ended, so that other machines do not wait for
        it."""
        self._start.answered_windows.add(self)
        self._on_window_open(is_given_up=True)

    def _on_window_open(self, *, is_given_up: bool) -> None:
        if not self._has_opened:
            self._has_opened = True
            self._start.on_window_open(is_given_up=is_given_up)

    def stop(self) -> None:
        self._start.is_stopped = True

    def on_signal(self, number: int) -> bool:
        """Handles a signal. Returns False if perftop must handle it, because no command is
        running."""
        if self._start.running is None:
            return False
        if self._start.running.done():
            is_late = self.run is None or raw_ns() - self.run.end_ns >= LATE_SIGNAL_NS
            if is_late or number in FORWARDED_SIGNALS:
                return False
        elif number in FORWARDED_SIGNALS:
            self.job.kill(number)
        self.signal = number
        return True

    async def wait_for_end(self) -> Run | None:
        """Waits for the command to end, even if the measurement failed. Returns None if the command
        never started."""
        return None if self._start.running is None else await self._start.running

    @property
    def is_running(self) -> bool:
        task = self._start.running
        return task is not None and not task.done()

    @property
    def run(self) -> Run | None:
        task = self._start.running
        has_result = task is not None and task.done() and not task.cancelled()
        return task.result() if task is not None and has_result else None

    @property
    def bounds(self) -> WindowBounds | None:
        if not self.is_closed or self._simulated or (self.is_remote and not self._after_echo):
            return None
        has_both = np.isfinite(self._first_ns) & np.isfinite(self._last_ns)
        if not has_both.any():
            return None
        first, last = self._first_ns[has_both], self._last_ns[has_both]
        ranges = ((int(times.min()), int(times.max())) for times in (first, last))
        return WindowBounds(*ranges)

    def due_notes(self, now_ns: int, *, is_over: bool = False) -> Iterator[wire.Note]:
        """Yields each note on the start, the marks and the end of the run once, when it is due.
        `now_ns`: time of the newest frame, which is the only clock of a simulated machine.
        `is_over`: whether no frame follows, so that all notes are due."""
        job, marks, is_over = self.job, self._waiting_marks, is_over or self.is_closed
        if job.start_ns > 0 and self._start_ns is None:
            self._start_ns = job.start_ns if self.has_our_clock else now_ns
            data = {"pid": job.pid, "argv": argv_text(job.argv)}
            yield wire.Note("run-start", self._start_ns, "recorder", data)
        marks += job.marks.new_marks()
        while marks and (is_over or not self.has_our_clock or marks[0][0] <= now_ns):
            time_ns, name = marks.pop(0)
            at_ns = min(time_ns, now_ns) if self.has_our_clock else now_ns
            yield wire.Note("mark", max(at_ns, 0), "recorder", {"label": name})
        run, bounds = self.run, self.bounds
        if is_over and self._start_ns is not None and not self._has_noted_end and run is not None:
            self._has_noted_end = True
            far_ns = self._start_ns + run.end_ns - run.start_ns
            at_ns = run.end_ns if self.has_our_clock else far_ns if self.is_remote else now_ns
            ranges = {"first_ns": bounds and bounds.first_ns, "last_ns": bounds and bounds.last_ns}
            keys = "pid", "status", *RUN_TIMES, *RUN_COUNTS
            data = {key: getattr(run, key) for key in keys} | ranges
            data |= {"missed": self.missed_cpus, "remote": self.is_remote}
            yield wire.Note("run-end", at_ns, "recorder", data)

    def _record_reads_after(self, frame: wire.Frame, run: Run) -> bool:
        """Records when each CPU in the frame was read after the run. Returns whether to stop
        waiting for more."""
        link = self.link
        if not self.is_remote or link is None or self._simulated:
            return self._record_reads(self._last_ns, frame, run.end_ns)
        if link.last_echo is not None and link.last_echo.sent_ns >= run.end_ns:
            self._after_echo = True
            return self._record_reads(self._last_ns, frame, link.last_echo.remote_ns)
        link.ping()
        return link.never_answers and self._record_reads(self._last_ns, frame)

    def _record_reads(self, times_ns: Floats, frame: wire.Frame, since_ns: int = 0) -> bool:
        """Records when each CPU in the frame was read. Returns whether to stop waiting for more."""
        head = np.frombuffer(frame.blocks[self._block].head, "<u8").reshape(-1, wire.HEAD)
        head = np.broadcast_to(head, (len(self._cpus), wire.HEAD))
        is_offline = head[:, 4] & np.uint64(wire.ROW_OFFLINE) != 0
        begun_ns = frame.time_ns + head[:, 2].astype(np.int64)
        is_recent = (begun_ns >= since_ns) | self._simulated
        if not is_recent.any():
            return False  # an older frame, which was still in the pipe
        self._frame_count += 1
        if self._frame_count == 1:
            self._since_ns = frame.time_ns
        flags = head[:, 4]
        is_usable = (flags & np.uint64(wire.ROW_SAMPLED) != 0) & (flags & _UNUSABLE_FLAGS == 0)
        is_spoilt = np.zeros(int(self._core.max()) + 1, bool)
        is_spoilt[self._core[~is_usable & ~is_offline]] = True
        # only if all CPUs of the core were read
        is_first = is_usable & ~is_offline & ~is_spoilt[self._core] & is_recent & np.isnan(times_ns)
        times_ns[is_first] = begun_ns[is_first]
        is_awaited = self._is_selected & ~is_offline & np.isnan(times_ns)
        waited_ns = frame.time_ns - self._since_ns
        is_late = self._frame_count >= MIN_WAIT_FRAMES and waited_ns >= MIN_WAIT_NS
        return is_late or not is_awaited.any()


def is_this_machine(hello: wire.Hello) -> bool:
    """Returns whether hello is from this machine since its last boot. A machine without a boot ID
    counts as remote."""
    with contextlib.suppress(OSError):
        return BOOT_ID.read_text(encoding="ascii").strip() == hello.boot_id
    return False


def argv_text(argv: Sequence[str]) -> list[str]:
    """Returns the command line as valid Unicode, cut to MAX_ARGV_LENGTH characters."""
    words: list[str] = []
    chars_left = MAX_ARGV_LENGTH
    for word in argv:
        if len(word) > chars_left:
            return [*words, word[:chars_left].encode(errors="replace").decode() + "…"]
        words.append(word.encode(errors="replace").decode())
        chars_left -= len(word) + 1
    return words
