"""Starts a probe and waits for its end. The module imports quickly, so that the probe starts while
the app is still being imported.

A probe that programs registers restores them before it ends. So we always wait for it, also when a
signal ends us, and raise Failed for registers that it could not restore.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from perftop.base.errors import UNAVAILABLE, Failed
from perftop.process import ssh
from perftop.process.signals import Exits
from perftop.process.socket_probe import SCHEME, SocketProbe

if TYPE_CHECKING:
    from perftop.process.link import Link

QUIETLY = {"PYTHONWARNINGS": "ignore", "OPENBLAS_NUM_THREADS": "1"}
"""What a probe is told: no warnings on its stderr, no threads of numpy in a simulation."""
STDERR_BYTES = 4096
"""Bytes kept of the end of a probe's stderr, where its line with the reason is."""
GRACE_S = 2.0
"""Longest wait for a probe that has no registers to restore; then it is killed."""
RESTORE_S = 60.0
"""Longest wait for a probe that restores registers. It is never killed."""
LISTEN_S = 0.5
"""Longest wait for stderr after the probe's end, in case a descendant keeps it open."""


def probe_command(*arguments: str, sudo: bool = False) -> list[str]:
    """The argv of a probe on this machine. It uses the same interpreter, never one from PATH. With
    `sudo` only the probe runs as root; `authorize` must have asked for the password before."""
    # -P: a perfprobe/ in the working directory must not run with our rights.
    own = [os.path.abspath(sys.executable), "-P", "-m", "perfprobe", *arguments]  # noqa: PTH100
    return ["sudo", "-n", "--", *own] if sudo else own


def authorize() -> None:
    """Make sudo ask for the password now, before the screen takes the terminal."""
    if shutil.which("sudo") is None:
        raise Failed("--sudo: there is no sudo here; run perftop as root instead", UNAVAILABLE)
    if subprocess.run(["sudo", "-v"], check=False).returncode:
        refused = "--sudo: sudo did not let the probe run as root"
        raise Failed(f"{refused}; without --sudo you see what you may read", UNAVAILABLE)


class Probe:
    """A running probe. A thread reads its stderr, so that its last lines are known at its end, with
    or without an event loop."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)
        self.host = ssh.host(argv)
        """The machine that it runs on, as ssh knows it; None: this one."""
        self._programs = "msr" in ssh.words(argv)
        self.told = False
        """A caller has already raised how it ended."""
        self.place = self.host
        """What the way to it is called; None: there is none, it runs here."""
        self.link: Link | None = None
        """The state of the way to it, while its stream is read; None: it runs here."""
        self._batch_ns: int | None = None
        self.again()

    def again(self) -> None:
        """Starts it; anew if it has ended. It has its own process group, so that the terminal's
        signals reach only us. It ends when its stdin closes, so it never outlives us."""
        pipe, self._words = subprocess.PIPE, b""
        with _starting(self._argv):
            self.process = subprocess.Popen(
                self._argv, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0, bufsize=0,
                env=os.environ | QUIETLY,
            )  # fmt: skip
        stderr = self.process.stderr
        assert stderr is not None
        self._listener = threading.Thread(target=self._listen, args=(stderr,), daemon=True)
        self._listener.start()
        if self._batch_ns is not None:
            self.pace(self._batch_ns)

    def _listen(self, stderr: IO[bytes]) -> None:
        with stderr, suppress(OSError):
            while data := stderr.read(STDERR_BYTES):
                self._words = (self._words + data)[-STDERR_BYTES:]

    def pace(self, batch_ns: int) -> None:
        """Ask for frames once in this time, counted from the last that it wrote; it bounds the time
        to a sample and to a second. It may be called often, and from any thread."""
        self._batch_ns = batch_ns
        self._order(b"batch %d\n" % batch_ns)

    def echo(self, number: int) -> None:
        """Ask for a note with this number, at once."""
        self._order(b"echo %d\n" % number)

    def _order(self, line: bytes) -> None:
        if self.process.stdin is not None:
            with suppress(OSError, ValueError):  # it has ended, or is told to
                self.process.stdin.write(line)

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    # --- how it ended

    def ended(self, cut: int = 0) -> Failed:
        """Why a stream ended without a farewell; `cut`: bytes of an unfinished message."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)
        return self._failure(f", {cut} bytes into a message" if cut else "")

    def _failure(self, tail: str = "") -> Failed:
        self._listener.join(LISTEN_S)
        code = self.process.returncode
        killed = 0 if code is None else -code if code < 0 else max(0, code - 128)  # sudo: 128+n
        lines = self._words.decode(errors="replace").strip().splitlines()
        if (far := ssh.failure(self._argv, code, lines)) is not None:
            return self._doubted(far)
        there = f"{self.host}: " if self.host else ""
        if lines and code is not None and code > 0 and not killed:
            return Failed(there + lines[-1].removeprefix("perfprobe: "), code)
        how = f"ended by signal {killed}" if killed else "ended"
        left = f"; its registers stay programmed · {self._mend()}" if killed else ""
        left = left if self._programs else ""
        status = code if code is not None and code > 0 and not killed else 1
        return Failed(f"{there}the probe {how} without a word{tail}{left}", status)

    def _doubted(self, far: Failed) -> Failed:
        """A failure of the way to a probe, which may have programmed registers there."""
        if self._programs and isinstance(far, ssh.Broken):
            asked = f"perftop doctor --host {self.host}"
            return ssh.Broken(f"{far}; {asked} tells whether its registers are free", far.status)
        return far

    def _mend(self) -> str:
        """The command that restores what such a probe left behind when it was killed."""
        words = ssh.words(self._argv)
        more = [f"--host {self.host}"] if self.host else []
        more += ["--sudo"] if words[0] == "sudo" else []
        if "--sysroot" in words:
            more += ["--sysroot", words[words.index("--sysroot") + 1]]
        return " ".join(["to restore it: perftop stat --source msr -n 1", *more])

    # --- ending it

    def end(self) -> Failed | None:
        """Tell it to end and wait for that. Returns a failure if registers are not restored. It may
        be called again, and from any thread."""
        process = self.process
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(RESTORE_S if self._programs else GRACE_S)
        except subprocess.TimeoutExpired:
            if self._programs:
                text = f"the probe (pid {process.pid}) is still giving registers back"
                return Failed(f"{text}; perftop doctor tells whether it has")
            with suppress(PermissionError):  # it runs as root; its closed stdin ends it
                process.kill()
                process.wait()
        bad = self._programs and process.returncode and not self.told
        return self._failure() if bad else None


Feed = Probe | SocketProbe


def started(argv: Sequence[str]) -> Feed:
    """The probe of this command line, or, for `unix:PATH` alone, the stream served there."""
    served = len(argv) == 1 and argv[0].startswith(SCHEME)
    return SocketProbe(argv[0]) if served else Probe(argv)


@contextmanager
def launched(argv: Sequence[str]) -> Iterator[Feed]:
    """A probe that ends with the block. Signals that ask perftop to end leave the block by an
    exception, as Ctrl-C does; from its end on they are ignored."""
    with Exits() as exits:
        probe = started(argv)
        try:
            try:
                exits.open()
                yield probe
            finally:
                exits.hold()
        finally:
            exits.over()
            failed = probe.end()
            if failed is not None and not probe.told:
                raise failed


def ask(argv: Sequence[str]) -> dict[str, Any]:
    """The answer of a probe that measures once. It restores what it programmed, so it is waited for
    in any case."""
    import json

    stdin, lifeline = os.pipe()
    with os.fdopen(stdin), os.fdopen(lifeline, "wb") as held, Exits() as exits:
        with _starting(argv):
            process = subprocess.Popen(
                argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        try:
            try:
                exits.open()
                out, errors = process.communicate()
            finally:
                exits.hold()
        except BaseException:
            exits.over()
            held.close()
            with suppress(PermissionError):  # it runs as root; its closed stdin ends it
                process.terminate()
            _, errors = process.communicate()
            if process.returncode == 1 and errors:
                raise _refused(argv, process.returncode, errors) from None
            raise
    with suppress(ValueError):
        answer: dict[str, Any] = json.loads(out)
        return answer
    raise _refused(argv, process.returncode, errors)


def _refused(argv: Sequence[str], code: int, errors: bytes) -> Failed:
    """The failure of a probe without an answer, from the last line of its stderr."""
    lines = errors.decode(errors="replace").strip().splitlines()
    if (far := ssh.failure(argv, code, lines)) is not None:
        return far
    why = lines[-1] if lines else f"perfprobe ended with status {code}"
    there = f"{name}: " if (name := ssh.host(argv)) else ""
    return Failed(there + why.removeprefix("perfprobe: "), max(1, code))


@contextmanager
def _starting(argv: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failed(f"cannot run the probe: {argv[0]}: {error.strerror or error}") from None
