"""Starts perftop, perfprobe and the fake kernel by forks of a process that has imported them, the
preloader, because a short run spends most of its CPU time on imports.

`install` makes subprocess start `python -m` with one of them in this way. The new process is a
child of its caller, with the environment, directory, open files and signals that exec would leave
it. All other programs start as usual, including those that start perftop themselves; so do programs
of another user, and those with another locale or interpreter variable.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import os
import pickle
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from roots import TESTS

PACKAGES = ("perftop", "perfprobe")
FAKE_KERNEL = ("fakekernel.fuse", "fakekernel.machine", "fakekernel.tree")
"""The module with its server; PYTHONPATH contains the directory of tests."""
PROGRAMS = (*PACKAGES, "fakekernel.server")
SYS_CLONE, CLONE_PARENT = 56, 0x8000
"""Number of the system call on x86-64, and its flag that makes the new process a child of the
caller's parent."""
MAX_REQUEST_BYTES = 1 << 17
MAX_FILES = 100
UNUSED_FD = 500
"""Descriptors from here on are unused before a program starts."""
_fork_exec: Any = subprocess._fork_exec  # type: ignore[attr-defined]
_lock = threading.Lock()


def install(fork: Callable[..., int] | None = None) -> None:
    """`fork` gets open files and the arguments of `_become`; it is the preloader's by default."""

    def start_process(*call: Any) -> int:
        """Replaces the C function with which subprocess forks and executes a program."""
        argv = [os.fsdecode(word) for word in call[0]]
        close_fds, passed, directory, environment = call[2:6]
        stdin, stdout, stderr, errors, session, group = (call[i] for i in (6, 9, 11, 13, 15, 16))
        pairs = (pair.split(b"=", 1) for pair in environment or ())
        variables = os.environb.copy() if environment is None else dict(pairs)
        same = _of_interpreter(variables) == _of_interpreter(os.environb)
        others, before_start = call[17:21], call[21]  # the user and umask; preexec_fn
        if not (_module(argv) and same and close_fds and others == (None, None, None, -1)):
            return int(_fork_exec(*call))
        kept = [fd for fd in passed if fd != errors]
        standard = [fd if fd >= 0 else own for own, fd in enumerate((stdin, stdout, stderr))]
        ignored = {n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN}
        return (fork or _ask_preloader)(
            [*standard, *kept], [0, 1, 2, *kept], argv, variables,
            Path.cwd() / os.fsdecode(directory or ""), session, group, before_start, ignored,
            {*signal.pthread_sigmask(signal.SIG_BLOCK, ())},
        )  # fmt: skip

    if fork is None:
        _channel()  # opened before any test, because some count the open files of this process
    subprocess._fork_exec = start_process  # type: ignore[attr-defined]


def _module(argv: list[str]) -> str | None:
    """The one of PROGRAMS that `argv` starts."""
    words = [word for word in argv[:4] if word != "-P"]
    starts = words[:2] == [sys.executable, "-m"] and words[2] in PROGRAMS
    return words[2] if starts else None


def _of_interpreter(variables: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The variables that an interpreter reads at its start, except those that `_become` obeys."""
    names, obeyed = (b"PYTHON", b"LC_", b"LANG"), {b"PYTHONPATH", b"PYTHONWARNINGS"}
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(names) and name not in obeyed
    }


@cache
def _channel() -> tuple[socket.socket, socket.socket]:
    """Both ends of the connection with the preloader; it ends when this process does."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@cache
def _preloader() -> subprocess.Popen[bytes]:
    end = _channel()[1].fileno()
    return subprocess.Popen([sys.executable, __file__, str(end)], pass_fds=[end])


def _ask_preloader(files: list[int], *start: Any) -> int:
    with _lock:
        _preloader()
        socket.send_fds(_channel()[0], [pickle.dumps(start)], files)
        return int(_channel()[0].recv(20))


def _answer_requests(channel: socket.socket) -> None:
    gc.disable()  # imported modules live to the end
    for name in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    sys.path.append(str(TESTS))
    for name in FAKE_KERNEL:
        importlib.import_module(name)
    sys.path.pop()
    gc.freeze()
    gc.enable()
    while (received := socket.recv_fds(channel, MAX_REQUEST_BYTES, MAX_FILES))[0]:
        request, files, *_ = received
        pid = ctypes.PyDLL(None).syscall(SYS_CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
            _become(files, *pickle.loads(request))  # noqa: S301 - it comes from the tests
        for fd in files:
            os.close(fd)
        channel.send(b"%d" % pid)


def _fork_here(*start: Any) -> int:
    """For a probe that perftop starts: the preloader could not make it a child of perftop."""
    return os.fork() or _become(*start)


def _become(
    files: list[int], descriptors: list[int], argv: list[str], variables: dict[bytes, bytes],
    directory: Path, session: bool, group: int, before_start: Callable[[], object] | None,
    ignored: set[int], blocked: Iterable[int],
) -> NoReturn:  # fmt: skip
    """Runs a program in this process, like exec and a new interpreter: it gets these files as
    `descriptors`, and no others."""
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD, UNUSED_FD) for fd in files]
    for copy, descriptor in zip(copies, descriptors, strict=True):
        os.dup2(copy, descriptor)
    edges = [*sorted(descriptors), 1 << 20]
    for before, after in pairwise(edges):
        os.closerange(before + 1, after)
    os.chdir(directory)
    if session:
        os.setsid()
    if group >= 0:
        os.setpgid(0, group)
    if before_start:
        before_start()
    os.environ.clear()
    os.environb.update(variables)
    time.tzset()
    sys.path[:0] = os.environ.get("PYTHONPATH", "").split(":")
    if "PYTHONWARNINGS" in os.environ:
        warnings.simplefilter("ignore")  # it is never used for anything else
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        is_ignored = number in {*ignored, signal.SIGPIPE, signal.SIGXFSZ}
        signal.signal(number, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    if signal.SIGINT not in ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        encoding, errors = getattr(sys, name).encoding, getattr(sys, name).errors
        file = open(fd, "w" if fd else "r", encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
        file.reconfigure(line_buffering=fd == 2 or file.isatty())
        setattr(sys, name, file)
    install(_fork_here)
    module = _module(argv)
    assert module
    sys.orig_argv, sys.argv, status = argv, argv[argv.index(module) :], 0
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        status = 120
    os._exit(status)


if __name__ == "__main__":
    _answer_requests(socket.socket(fileno=int(sys.argv[1])))
