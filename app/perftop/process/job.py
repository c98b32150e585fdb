"""The command to be measured. perftop forks a process, which waits at a gate (a pipe). When the
measurement is ready, perftop opens the gate; the process becomes the command, and perftop waits for
it to end. The fork happens before there are threads or an event loop. Resources that the process
used before it became the command are subtracted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import select
import shutil
import signal
import socket
import struct
import termios
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import NoReturn, Self

from perftop.base import END_SIGNALS, raw_ns
from perftop.base.errors import Failed, failure_to

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses of a shell if a command cannot be run."""
MEMORY_FILE = "/proc/self/statm"
_IGNORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores. The command, which would inherit that, gets their default
actions."""
MIN_PEAK_FACTOR = 1.1
"""Factor by which the peak memory must exceed perftop's own; otherwise it may come from the
fork."""
CHECK_S = 1.0
"""Seconds between two checks whether perftop itself was stopped, so that it noticed the end
late."""
POLL_S = 0.01
"""Seconds between two checks for the command's end if there is no pidfd_open."""
_START_MESSAGE = struct.Struct("=q2d3q")
"""Message that the fork writes just before it becomes the command: raw time in ns, and its resource
use so far, as in `_usage_numbers`."""
EXEC_FAILURES = {
    errno.ENOENT: "the interpreter in its first line, or its loader, does not exist",
    errno.ENOEXEC: "not an executable format (a script needs a first line such as #!/bin/sh)",
}
"""Why an existing program cannot be run, for errors whose system message is misleading."""


@dataclass(frozen=True, slots=True)
class Run:
    pid: int
    status: int
    failure: str | None
    """Why the command could not be run; None if it could."""
    start_ns: int  # raw time just before the start
    end_ns: int  # raw time just after the end
    late_s: float
    """Maximum time in s by which `end_ns` is too late because perftop was stopped; usually 0."""
    user_s: float
    """User time of the command and of all children that it waited for, as in time(1)."""
    sys_s: float
    switches: int | None = None
    """Context switches. This field and the following ones include children, as `user_s` does."""
    page_faults: int | None = None
    disk_faults: int | None = None
    peak_bytes: int | None = None
    """Peak memory of the largest process, in bytes; None if it may be that of perftop, from which
    the command was forked."""

    @property
    def wall_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


def _check_program(name: str) -> None:
    """Raises Failed if there is no such program. Called before anything is measured or replaced."""
    if shutil.which(name) is not None:
        return
    path = Path(name)
    if "/" not in name or not path.exists():
        hint = "" if "/" in name else "; is its directory in PATH?"
        raise Failed(f"{name or repr(name)}: command not found{hint}", NOT_FOUND)
    reason = "it is a directory" if path.is_dir() else "it is not executable (chmod +x)"
    raise Failed(f"cannot run {name}: {reason}", NOT_EXECUTABLE)


class Job:
    def __init__(
        self, argv: Sequence[str], terminal: int | None = None, *, stdout_to_stderr: bool = False
    ) -> None:
        """`terminal`: file descriptor of the command's terminal; None: perftop's own.
        `stdout_to_stderr`: the command writes to stderr, because perftop prints results on stdout.
        Raises Failed if the command cannot be found or the fork fails."""
        self.argv = list(argv)
        _check_program(argv[0])
        gate, self._gate = os.pipe()
        self._reports, reports = os.pipe()
        self.start_ns = 0
        """Raw time of the start in ns; 0 while the process waits at the gate."""
        self._forked_bytes = _resident_bytes()
        self._usage_before: list[float] = [0.0] * 5
        self._end_ns, self._late_s = 0, 0.0
        self.marks = MarkSocket()
        self._error = b""
        """The errno, in digits, if the fork could not become the command."""
        self._watcher: threading.Thread | None = None
        """Records when the command ended, even while a slow terminal blocks the event loop."""
        try:
            with _end_signals_blocked():
                self.pid = os.fork()
                if self.pid == 0:  # a signal must end the waiting fork
                    for number in END_SIGNALS:
                        if callable(signal.getsignal(number)):
                            signal.signal(number, signal.SIG_DFL)
        except OSError as error:
            for fd in (gate, self._gate, self._reports, reports):
                os.close(fd)
            failed = failure_to(f"start {argv[0]}", error)
            raise Failed(f"{failed}; see ulimit -u", NOT_EXECUTABLE) from None
        if self.pid == 0:
            os.close(self._gate)  # so that the child notices when perftop closes it
            if stdout_to_stderr:
                with contextlib.suppress(OSError):  # stderr may be closed
                    os.dup2(2, 1)
            os.environ.update(self.marks.environment())
            _wait_and_run(self.argv, gate, reports, terminal)
        os.close(gate)
        os.close(reports)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_gate()

    def run_command(self) -> asyncio.Task[Run]:
        """Starts the command. Returns a task that waits for it to end."""
        self.start_command()
        return asyncio.ensure_future(self.wait_for_end())

    def start_command(self) -> None:
        """Opens the gate, and waits until the fork is about to run the command."""
        self.start_ns = raw_ns()
        with contextlib.suppress(BrokenPipeError):  # the fork was killed at the gate
            os.write(self._gate, b"\n")
        os.close(self._gate)
        self._gate = -1
        started = os.read(self._reports, _START_MESSAGE.size)
        if len(started) == _START_MESSAGE.size:
            self.start_ns, *self._usage_before = _START_MESSAGE.unpack(started)
        else:
            self._error = started  # the fork has failed, or was killed
        watcher = threading.Thread(target=self._watch, daemon=True)
        with contextlib.suppress(RuntimeError):  # without a thread, `wait_for_end` notices the end
            watcher.start()
            self._watcher = watcher

    def _watch(self) -> None:
        seen_ns, poll = self.start_ns, select.poll()
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return  # `wait_for_end` does not need this thread
        with os.fdopen(handle), contextlib.suppress(OSError):
            poll.register(handle, select.POLLIN)
            while not poll.poll(1000 * CHECK_S):
                seen_ns = raw_ns()
            self._end_ns = raw_ns()
        unseen_s = (self._end_ns - seen_ns) / 1e9
        self._late_s = unseen_s if unseen_s > 2 * CHECK_S else 0.0

    async def wait_for_end(self) -> Run:
        """Waits for the command to end, but not for processes that it leaves running."""
        loop, has_ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:  # refused, or the limit of descriptors is reached
            while self._is_running():
                self.marks.collect()
                await asyncio.sleep(POLL_S)
            return self._reap()
        loop.add_reader(handle, has_ended.set)
        has_marks = self.marks.fileno() >= 0
        if has_marks:
            loop.add_reader(self.marks, self.marks.collect)
        try:
            await has_ended.wait()
        finally:
            if has_marks:
                loop.remove_reader(self.marks)
            loop.remove_reader(handle)
            os.close(handle)
        return self._reap()

    def _is_running(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None

    def close_gate(self) -> None:
        """Closes the gate if the command was not started, so that the child ends without running
        it."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1
            self._reap()

    def kill(self, signal_number: int) -> None:
        os.kill(self.pid, signal_number)

    def _reap(self) -> Run:
        if self._watcher is not None:
            self._watcher.join()
        self._end_ns = self._end_ns or raw_ns()
        _, wait_status, usage = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(wait_status)
        self._error = self._error or os.read(self._reports, 16)
        os.close(self._reports)
        number = int(self._error or 0)
        failure = EXEC_FAILURES.get(number, os.strerror(number)) if number else None
        status = code if code >= 0 else 128 - code
        own_use = [*map(sub, _usage_numbers(usage), self._usage_before)]
        user_s, sys_s = (round(max(0.0, s), 6) for s in own_use[:2])  # the kernel counts µs
        switches, faults, disk_faults = map(int, own_use[2:])
        peak_bytes = usage.ru_maxrss * 1024
        peak = peak_bytes if peak_bytes > MIN_PEAK_FACTOR * self._forked_bytes else None
        return Run(
            self.pid, status, failure, self.start_ns, self._end_ns, self._late_s, user_s, sys_s,
            switches, faults, disk_faults, peak,
        )  # fmt: skip


@contextlib.contextmanager
def _end_signals_blocked() -> Iterator[None]:
    """Delays signals that ask perftop to end until the end of the block. During a fork, Python runs
    hooks, and only prints the exceptions raised in them: that of a signal handler would be lost."""
    try:
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    except OSError:  # refused
        yield
        return
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)


def _usage_numbers(usage: resource.struct_rusage) -> tuple[float, float, int, int, int]:
    """Returns the user and system time in s, the context switches, the page faults, and how many of
    those waited for a disk."""
    faults = usage.ru_minflt + usage.ru_majflt
    switches = usage.ru_nvcsw + usage.ru_nivcsw
    return usage.ru_utime, usage.ru_stime, switches, faults, usage.ru_majflt


def _resident_bytes() -> int:
    """Returns the resident memory of this process in bytes; without /proc, the maximum so far, or
    0."""
    try:
        with open(MEMORY_FILE, "rb") as file:  # noqa: PTH123 - quick to import
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        with contextlib.suppress(OSError):
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return 0


def _wait_and_run(argv: list[str], gate: int, reports: int, terminal: int | None) -> NoReturn:
    """The child process: waits at the gate and becomes the command. It must run no other code of
    the parent, in particular no exit handlers."""
    status = NOT_EXECUTABLE
    try:
        if terminal is not None:
            # a session on that terminal: signals from its keys and hangups reach only the command
            os.setsid()
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            for fd in range(3):
                os.dup2(terminal, fd)
        for number in _IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        programs = [argv[0]]
        # all paths that execvp would try, because some may not be executable
        if "/" not in argv[0]:
            folders = os.get_exec_path() if argv[0] else []
            paths = [os.path.join(folder, argv[0]) for folder in folders]  # noqa: PTH118
            programs = [path for path in paths if os.path.exists(path)]  # noqa: PTH110
        if os.read(gate, 1):
            # without getrusage, the few ms of the fork count as time of the command
            usage = 0.0, 0.0, 0, 0, 0
            with contextlib.suppress(OSError):
                usage = _usage_numbers(resource.getrusage(resource.RUSAGE_SELF))
            os.write(reports, _START_MESSAGE.pack(raw_ns(), *usage))
            failure = OSError(errno.ENOENT, "")
            for program in programs:
                try:
                    os.execv(program, argv)  # noqa: S606
                except OSError as error:
                    failure = error
            raise failure
    except OSError as error:
        status = NOT_FOUND if error.errno in {errno.ENOENT, errno.ENOTDIR} else NOT_EXECUTABLE
        os.write(reports, str(error.errno).encode())
    finally:
        os._exit(status)


# --- Marks that a command sets itself, with `perftop mark NAME`. The command's environment has the
# address of a socket: a random abstract name, so that no file is left behind. All users can list
# such names, so only messages of our own user and of root are accepted. The name contains our user
# ID, so that `perftop mark` of another user fails with a message instead of having no effect.

SOCKET_VARIABLE = "PERFTOP_MARKS"
MAX_MARK_MESSAGE_BYTES = 256
"""Maximum size of a message in bytes: raw time and name of the mark, cut if necessary. The sender
sets the time, because a busy perftop reads late."""
MAX_PENDING_MARKS = 1024
"""Maximum number of marks between two samples; more are lost."""
SEND_TIMEOUT_S = 1.0
"""Maximum time in s for which a mark delays the command if perftop does not read it."""
_TIME = struct.Struct("=q")
_CREDENTIALS = struct.Struct("=3i")
"""PID, user and group of a sender."""


class MarkSocket:
    """Receives marks. Without permission to create a socket, it receives none."""

    _socket: socket.socket | None = None
    """A class attribute, because __del__ runs even if a signal has ended __init__ early."""

    def __init__(self) -> None:
        self.address = f"perftop-{os.getuid()}-{os.urandom(16).hex()}"
        self._pending_marks: list[tuple[int, str]] = []
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(f"\0{self.address}")
        except OSError:  # refused by a sandbox: the command runs without marks
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    __del__ = close

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that the command needs to set marks."""
        return {} if self._socket is None else {SOCKET_VARIABLE: self.address}

    def fileno(self) -> int:
        """Returns the descriptor on which marks arrive; -1 if there is none."""
        return -1 if self._socket is None else self._socket.fileno()

    def new_marks(self) -> list[tuple[int, str]]:
        """Returns the raw time in ns and the name of each mark that has arrived since the last
        call."""
        self.collect()
        arrived, self._pending_marks = self._pending_marks, []
        return arrived

    def collect(self) -> None:
        """Reads the marks that have arrived. The kernel queues only a few; then the command has to
        wait."""
        for mark in self._messages():
            if len(self._pending_marks) < MAX_PENDING_MARKS:
                self._pending_marks.append(mark)

    def _messages(self) -> Iterator[tuple[int, str]]:
        for _ in range(MAX_PENDING_MARKS):  # another user may send messages endlessly
            if self._socket is None:
                return
            try:
                data, ancillary, _, _ = self._socket.recvmsg(
                    MAX_MARK_MESSAGE_BYTES, socket.CMSG_SPACE(64)
                )
            except OSError:  # no message is waiting any more
                return
            credentials = socket.SOL_SOCKET, socket.SCM_CREDENTIALS
            users = [
                _CREDENTIALS.unpack_from(sender)[1]
                for *kind, sender in ancillary
                if tuple(kind) == credentials
            ]
            if users and users[0] in {0, os.getuid()} and len(data) >= _TIME.size:
                name = data[_TIME.size :].decode(errors="replace")
                yield _TIME.unpack_from(data)[0], name or "no name"


def send_mark(name: str) -> None:
    """Sets a mark in the measurement of the command that runs this process. Raises Failed."""
    address = os.environ.get(SOCKET_VARIABLE)
    if not address:
        text = f"no mark was set: {SOCKET_VARIABLE} is not set, so no perftop runs this command"
        raise Failed(f"{text}; run it under perftop record -- CMD, or stat, why")
    if os.getuid() and not address.startswith(f"perftop-{os.getuid()}-"):
        raise Failed("no mark was set: another user's perftop runs this command")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_TIMEOUT_S)
            message = _TIME.pack(raw_ns()) + name.encode(errors="replace")
            sender.sendto(message[:MAX_MARK_MESSAGE_BYTES], f"\0{address}")
    except ConnectionRefusedError:
        raise Failed("no mark was set: the perftop that ran this command has ended") from None
    except TimeoutError:
        raise Failed("no mark was set: perftop does not answer") from None
    except OSError as error:
        raise Failed(f"no mark was set: {failure_to('reach perftop', error)}") from None
