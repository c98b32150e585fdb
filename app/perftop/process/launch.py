"""Starts a probe on this machine or over ssh, or connects to a stream served at a socket, and waits
for it to end. This module imports quickly, so that the probe starts before the rest of perftop is
imported. A probe that programs registers restores them before it ends. So perftop always waits for
it to end, even after a signal, and raises Failed if registers were not restored."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from perfprobe.native import batches
from perftop.base.errors import UNAVAILABLE, USAGE, Failed, failure_to
from perftop.process.signals import ExitSignals

if TYPE_CHECKING:
    from perftop.process.link import Link

ENVIRONMENT = {"PYTHONWARNINGS": "ignore", "OPENBLAS_NUM_THREADS": "1"}
"""Environment variables of a probe: no warnings on stderr, and no threads of numpy, which simulated
machines use."""
_INTERPRETER_VARIABLES = ("PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__")
"""Environment variables that change the path of Python's interpreter, and so the directory of its
packages."""
MAX_STDERR_BYTES = 4096
"""Bytes kept of the end of a probe's stderr, whose last line has the reason for a failure."""
GRACE_S = 2.0
"""Longest wait in s for the end of a probe without registers to restore, before it is killed."""
MAX_RESTORE_S = 60.0
"""Longest wait in s for the end of a probe that restores registers. It is never killed."""
MAX_STDERR_WAIT_S = 0.5
"""Longest wait in s for the end of stderr after the probe's end: a descendant may keep it open."""
MAX_ANSWER_S = 180.0
"""Longest wait in s for the answer of a probe that measures once, for up to a minute."""
MAX_ANSWER_BYTES = 64 << 20
READ_BYTES = 1 << 16
INTERRUPTED_STATUS = 130
"""Exit status of a probe that was asked to end before its answer, and has restored all registers.
It cannot mean a death by SIGINT, because a probe that programs registers handles SIGINT."""
SOCKET_SCHEME = "unix:"
"""Prefix of the address of a served stream."""
CONNECT_TIMEOUT_S = 5.0


def probe_command(*arguments: str, sudo: bool = False) -> list[str]:
    """Returns the argv of a probe on this machine, run by the same Python. `sudo`: it runs as root;
    `ask_sudo_password` must have been called."""
    # A perfprobe/ in the working directory must not run with our privileges (-P). As root, none of
    # the user's packages may be imported (-I): sudo may keep PYTHONPATH or HOME.
    if sudo:
        return ["sudo", "-n", "--", _interpreter(), "-I", "-m", "perfprobe", *arguments]
    return [os.path.abspath(sys.executable), "-P", "-m", "perfprobe", *arguments]  # noqa: PTH100


def probe_environment() -> dict[str, str]:
    """Returns the environment of a probe. Variables that set Python's package directories even with
    -I are left out, because sudo may keep them."""
    safe = {name: value for name, value in os.environ.items() if name not in _INTERPRETER_VARIABLES}
    return safe | ENVIRONMENT


def _interpreter() -> str:
    """Returns the path by which this Python was started. sys.executable is not safe for root:
    variables of the environment can set it to another program."""
    path = shutil.which(sys.orig_argv[0])
    with suppress(OSError):
        if path is not None and Path(path).samefile("/proc/self/exe"):
            return os.path.abspath(path)  # noqa: PTH100
    return os.path.abspath(sys.executable)  # noqa: PTH100


def ask_sudo_password() -> None:
    """Lets sudo ask for the password now, before the screen uses the terminal. Raises Failed."""
    if shutil.which("sudo") is None:
        raise Failed("--sudo: sudo was not found; run perftop as root instead", UNAVAILABLE)
    if subprocess.run(["sudo", "-v"], check=False).returncode:
        refused = "--sudo: sudo did not let the probe run as root"
        raise Failed(f"{refused}; without --sudo you see what your user may read", UNAVAILABLE)


def longest_batch_ns(sample_ns: int, *spans_ns: int | None) -> int:
    """Returns the maximum time in ns between two writes of a probe, for a reader that shows these
    spans (multiples of the sample period). Each span must end with a batch: it would be shown late
    if it ended inside one."""
    samples = math.gcd(*(round(span_ns / sample_ns) for span_ns in spans_ns if span_ns))
    max_samples = batches.max_frames(sample_ns)
    return sample_ns * max(n for n in range(1, max_samples + 1) if samples % n == 0)


class Probe:
    """A probe, as a child process. A thread reads its stderr, so that the last lines are available
    at its end, with or without an event loop."""

    def __init__(self, argv: Sequence[str], *, measures_once: bool = False) -> None:
        """`measures_once`: the probe prints one answer, not a stream."""
        self._argv, self._measures_once = list(argv), measures_once
        self.host = ssh_host(argv)
        """Name of the machine for ssh; None if the probe runs on this machine."""
        self._programs = "msr" in probe_words(argv)
        """Whether the probe programs registers."""
        self.failure_raised = False
        """Whether a caller has raised the failure with which the probe ended."""
        self.remote_name = self.host
        """Name of the connection, for messages; None if the probe runs on this machine."""
        self.link: Link | None = None
        """The state of the connection while a stream is read; None if the probe runs on this
        machine."""
        self._batch_ns: int | None = None
        self.start()

    def start(self) -> None:
        """Starts the probe, or starts it again after its end. It has its own process group, so that
        signals of the terminal reach only perftop. It ends when its stdin closes, so it never
        outlives perftop."""
        pipe, self._stderr = subprocess.PIPE, b""
        try:
            self.process = subprocess.Popen(
                self._argv, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0, bufsize=0,
                env=probe_environment(),
            )  # fmt: skip
        except OSError as error:
            raise failure_to(f"run the probe: {self._argv[0]}", error) from None
        stderr = self.process.stderr
        assert stderr is not None
        self._reader = threading.Thread(target=self._read, args=(stderr,), daemon=True)
        try:
            self._reader.start()
        except RuntimeError:  # no thread can be started
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()
            raise
        if self._batch_ns is not None:
            self.set_batch_length(self._batch_ns)

    def _read(self, stderr: IO[bytes]) -> None:
        with stderr, suppress(OSError):
            while data := stderr.read(MAX_STDERR_BYTES):
                self._stderr = (self._stderr + data)[-MAX_STDERR_BYTES:]

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def set_batch_length(self, batch_ns: int) -> None:
        """Asks the probe to write frames every `batch_ns`, beginning with its last write. The probe
        limits this time to between a sample and a second. May be called often, and from any
        thread."""
        self._batch_ns = batch_ns
        self._send_command(b"batch %d\n" % batch_ns)

    def request_echo(self, number: int) -> None:
        """Asks the probe to send a note with this number immediately."""
        self._send_command(b"echo %d\n" % number)

    def read_to_end(self) -> bytes:
        """Returns all output of the probe until it ends. Raises Failed if it takes too long or is
        too large."""
        import select

        remote_name = f"{self.host}: " if self.host else ""
        timeout = Failed(f"{remote_name}the probe did not answer within {MAX_ANSWER_S:.0f} s")
        output, until_s, poll = bytearray(), time.monotonic() + MAX_ANSWER_S, select.poll()
        poll.register(self.stdout, select.POLLIN)
        while poll.poll(1e3 * max(0.0, until_s - time.monotonic())):
            piece = os.read(self.stdout.fileno(), READ_BYTES)
            output += piece
            if len(output) > MAX_ANSWER_BYTES:
                text = f"the probe's answer is larger than {MAX_ANSWER_BYTES >> 20} MB"
                raise Failed(remote_name + text)
            if not piece:
                with suppress(subprocess.TimeoutExpired):
                    self._wait(max(0.0, until_s - time.monotonic()))
                    return bytes(output)
                break
        raise timeout

    def _send_command(self, line: bytes) -> None:
        if self.process.stdin is not None:
            with suppress(OSError, ValueError):  # the probe has ended, or its stdin is closed
                self.process.stdin.write(line)

    def _wait(self, seconds: float) -> None:
        """Waits for the probe to end. Raises TimeoutExpired."""
        try:
            self.process.wait(seconds)
        except OSError:  # a sandbox refuses the sleep between two checks
            self._reader.join(seconds)  # stderr closes when the probe ends
            if self._reader.is_alive():
                raise subprocess.TimeoutExpired(self._argv, seconds) from None
            self.process.wait()

    def end_failure(self, cut_bytes: int = 0) -> Failed:
        """Returns the failure of a stream that ended without a bye. `cut_bytes`: bytes received of
        an incomplete message."""
        with suppress(subprocess.TimeoutExpired):
            self._wait(GRACE_S)
        return self._failure(f", {cut_bytes} bytes into a message" if cut_bytes else "")

    def end(self) -> Failed | None:
        """Ends the probe and waits for it. Returns a failure if registers were not restored. May be
        called again, and from any thread."""
        process = self.process
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        if self.host is None and self._measures_once and not self._programs:
            # A probe that measures once reads its stdin only if it may restore registers. Killed
            # before it handles signals, such a probe would be reported as not having done so.
            with suppress(PermissionError):
                process.terminate()
        try:
            self._wait(MAX_RESTORE_S if self._programs else GRACE_S)
        except subprocess.TimeoutExpired:
            if self._programs:
                text = f"the probe (pid {process.pid}) is still restoring registers"
                return Failed(f"{text}; to check later: perftop doctor")
            # a probe that runs as root gets no signal from us; it ends because its stdin was closed
            with suppress(PermissionError):
                process.kill()
                process.wait()
        code = process.returncode
        if not self._programs or self.failure_raised or code in {0, INTERRUPTED_STATUS}:
            return None
        self._reader.join(MAX_STDERR_WAIT_S)
        # A probe that fails to restore registers prints a message. A probe that only reports a
        # wrong counter also exits with an error, but prints no message.
        killed = code < 0 or code > 128
        return self._failure() if killed or self._stderr.strip() else None

    def _failure(self, suffix: str = "") -> Failed:
        self._reader.join(MAX_STDERR_WAIT_S)
        code = self.process.returncode
        signal_number = 0
        if code is not None and code != INTERRUPTED_STATUS:
            # sudo reports a signal n as 128 + n
            signal_number = -code if code < 0 else max(0, code - 128)
        lines = self._stderr.decode(errors="replace").strip().splitlines()
        if (failed := ssh_failure(self._argv, code, lines)) is not None:
            if self._programs and isinstance(failed, BrokenLink):
                hint = f"to check its registers: perftop doctor --host {self.host}"
                return BrokenLink(f"{failed}; {hint}", failed.status)
            return failed
        remote_name = f"{self.host}: " if self.host else ""
        if lines and code is not None and code > 0 and not signal_number:
            return Failed(remote_name + lines[-1].removeprefix("perfprobe: "), code)
        end_text = f"ended by signal {signal_number}" if signal_number else "ended"
        hint = ""
        if signal_number and self._programs:
            words = probe_words(self._argv)
            options = [f"--host {self.host}"] if self.host else []
            options += ["--sudo"] if words[0] == "sudo" else []
            if "--sysroot" in words:
                options += ["--sysroot", words[words.index("--sysroot") + 1]]
            fix = " ".join(["to restore it: perftop stat --source msr -n 1", *options])
            hint = f"; its registers stay programmed · {fix}"
        status = code if code is not None and code > 0 and not signal_number else 1
        return Failed(
            f"{remote_name}the probe {end_text} without an error message{suffix}{hint}", status
        )


class SocketProbe:
    """A stream served on this machine, used like a `Probe`. Nothing is sent to the server."""

    def __init__(self, address: str) -> None:
        self.remote_name = address
        self.link: Link | None = None
        self.failure_raised = False
        self._path = socket_path(address)
        self.start()

    def start(self) -> None:
        """Connects, or connects again after the connection has ended."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(CONNECT_TIMEOUT_S)
        try:
            self._socket.connect(self._path)
        except OSError as error:
            self._socket.close()
            match error:
                case FileNotFoundError():
                    reason = "no such socket; start a server: perftop serve --socket PATH"
                case ConnectionRefusedError():
                    reason = "its server has ended; start it again: perftop serve --socket PATH"
                case PermissionError():
                    reason = "permission denied; its server can admit a group: serve --group NAME"
                case _:
                    reason = error.strerror or str(error)
            raise Failed(f"{self.remote_name}: {reason}", UNAVAILABLE) from None

    @property
    def stdout(self) -> socket.socket:
        return self._socket

    def set_batch_length(self, batch_ns: int) -> None:
        """Does nothing: all readers of the stream share the batches."""

    def request_echo(self, number: int) -> None: ...

    def end_failure(self, cut_bytes: int = 0) -> Failed:
        position = f", {cut_bytes} bytes into a message" if cut_bytes else ""
        text = f"the server has ended, has too many readers, or does not admit this user{position}"
        return BrokenLink(f"{self.remote_name}: {text}", UNAVAILABLE)

    def end(self) -> None:
        with suppress(OSError):
            self._socket.close()


AnyProbe = Probe | SocketProbe


def socket_path(address: str) -> str:
    """Returns the path in `unix:PATH`. Raises Failed."""
    path = address.removeprefix(SOCKET_SCHEME)
    if not address.startswith(SOCKET_SCHEME) or not path or "\0" in path:
        raise Failed(f"invalid address {address!r} (try unix:PATH)", USAGE)
    return path


def start_probe(argv: Sequence[str]) -> AnyProbe:
    """Starts the probe with this command line, or connects to the stream if its only word is
    `unix:PATH`."""
    is_served = len(argv) == 1 and argv[0].startswith(SOCKET_SCHEME)
    return SocketProbe(argv[0]) if is_served else Probe(argv)


@contextmanager
def running_probe(argv: Sequence[str], *, measures_once: bool = False) -> Iterator[AnyProbe]:
    """Starts a probe, which ends with the block. In the block, signals that ask perftop to end
    raise an exception, as Ctrl-C does; after it, they are ignored."""
    with ExitSignals() as exits:
        probe = Probe(argv, measures_once=True) if measures_once else start_probe(argv)
        try:
            try:
                exits.raise_signals()
                yield probe
            finally:
                exits.hold()
        finally:
            exits.ignore_all()
            with closing(probe.stdout):  # a held signal may have prevented the read
                failed = probe.end()
            if failed is not None and not probe.failure_raised:
                raise failed


def ask_probe(argv: Sequence[str]) -> dict[str, Any]:
    """Returns the answer of a probe that measures once. Waits for the probe to end, because it may
    restore registers. Raises Failed if the answer is missing or not a JSON object."""
    import json

    with running_probe(argv, measures_once=True) as probe:
        assert isinstance(probe, Probe)
        with probe.stdout:  # closed after reading, so that the probe does not block in a write
            output = probe.read_to_end()
        with suppress(ValueError, RecursionError):
            answer = json.loads(output)
            if isinstance(answer, dict):
                probe.failure_raised = True  # the answer contains the reason for its exit status
                return answer
        if probe.host and not probe.process.returncode:
            fix = START_FILE_FIX.format(host=probe.host)
            text = f"{probe.host}: its output is not a perfprobe answer; {fix}"
            raise Failed(text, UNAVAILABLE)
        raise probe.end_failure()


# --- Probes of remote machines: the ssh command, and why it may fail. Compression reduces frames to
# a third, for about 3 ms of CPU time a second at 256 CPUs. ssh never asks for a password or about a
# host key, because the screen uses the terminal. It ends after three unanswered tests of the
# connection, one every SSH_ALIVE_S seconds.

SSH = "ssh"
REMOTE_PROBE = "perfprobe"
"""Name of the probe on a remote machine, in the PATH of a non-login shell."""
SSH_CONNECT_S, SSH_ALIVE_S = 10, 5
SSH_OPTIONS = (
    "-T", "-x",
    "-o", "BatchMode=yes",
    "-o", "Compression=yes",
    "-o", "StrictHostKeyChecking=yes",
    "-o", f"ConnectTimeout={SSH_CONNECT_S}",
    "-o", f"ServerAliveInterval={SSH_ALIVE_S}",
    "-o", "ServerAliveCountMax=3",
)  # fmt: skip
SSH_FAILED_STATUS = 255
"""Exit status of ssh for its own failures; otherwise, it is that of the remote program."""
MAX_HOST_LENGTH = 255

FAILURE_PATTERNS = (
    ("no such host", r"Could not resolve hostname|Name or service not known",
     "check the spelling, or give it a HostName in ~/.ssh/config"),
    ("host key not accepted",
     r"Host key verification failed|HOST IDENTIFICATION HAS CHANGED|host key is known",
     "check the key and accept it once by hand: ssh {host} true"),
    ("login failed",
     r"Permission denied|Too many authentication failures|No supported authentication",
     "perftop never asks for a password: ssh-copy-id {host}, or load the key with ssh-add"),
    ("connection failed",
     r"refused|timed out|No route|unreachable|reset|[Cc]losed|kex_|pipe|respond",
     "is it up, and is sshd running there? ssh {host} true"),
)  # fmt: skip
"""Failures of a connection: what failed, the pattern of ssh's messages, and a suggested fix."""
START_FILE_FIX = "its shell's startup files must print nothing: ssh {host} true"
"""Suggested fix if the output is not that of the probe."""
NOT_FOUND_PATTERN = re.compile(r"not found|No such file|[Pp]ermission denied|[Uu]nknown command")
SUDO_REFUSED_PATTERN = re.compile(
    r"^sudo: .*(password|terminal|not allowed|not in the sudoers|askpass)"
)


def ssh_command(
    host: str, arguments: Sequence[str], *, sudo: bool = False, remote: str = REMOTE_PROBE
) -> list[str]:
    """Returns the argv that runs the probe with these arguments on a remote machine, where its path
    is `remote`. Raises Failed for a host name that ssh would misinterpret."""
    is_option = host.startswith("-") or _without_user(host).startswith("-")
    if not host or is_option or len(host) > MAX_HOST_LENGTH:
        raise Failed(f"--host {shlex.quote(host[:40])}: not a [USER@]HOST", USAGE)
    if not host.isprintable() or " " in host:
        raise Failed(f"--host {host[:40]!r}: a host name has no spaces", USAGE)
    home_prefix = "~/" if remote.startswith("~/") else ""  # expanded by the remote shell
    command = home_prefix + shlex.join([remote.removeprefix(home_prefix), *arguments])
    return [SSH, *SSH_OPTIONS, "--", host, f"sudo -n -- {command}" if sudo else command]


def ssh_host(argv: Sequence[str]) -> str | None:
    """Returns the host in an argv made by `ssh_command`; None for any other argv."""
    is_own_command = argv[: len(SSH_OPTIONS) + 1] == [SSH, *SSH_OPTIONS]
    return argv[-2] if is_own_command else None


def probe_words(argv: Sequence[str]) -> list[str]:
    """Returns the words of the probe's command line, on this machine or on a remote one."""
    return list(argv) if ssh_host(argv) is None else shlex.split(argv[-1])


def ssh_failure(argv: Sequence[str], status: int | None, lines: Sequence[str]) -> Failed | None:
    """Returns why ssh, the remote shell or sudo did not run the probe: the failed step, the message
    and a suggested fix. None: the probe ran, and reports its own failures. `lines`: lines of
    stderr."""
    name = ssh_host(argv)
    if name is None or status is None:
        return None
    last = next((line for line in reversed(lines) if line.strip()), "").strip()
    if status == SSH_FAILED_STATUS or status < 0:
        for failure, pattern, fix in FAILURE_PATTERNS:
            if line_found := next((line for line in lines if re.search(pattern, line)), None):
                text = f"{name}: {failure}: {line_found.strip().removeprefix('ssh: ')}"
                return BrokenLink(f"{text}; {fix.format(host=name)}", UNAVAILABLE)
        text = f"{name}: the connection ended" + (f": {last}" if last else "")
        return BrokenLink(text, UNAVAILABLE)
    remote_words = shlex.split(argv[-1])
    if remote_words[0] == "sudo" and SUDO_REFUSED_PATTERN.search(last):
        root = f"--host root@{_without_user(name)}"
        fix = f"let sudo there run {remote_words[3]} without a password, or use {root}"
        return Failed(f"{name}: sudo refused: {last}; {fix}", UNAVAILABLE)
    if status in {126, 127} or (remote_words[0] == "sudo" and NOT_FOUND_PATTERN.search(last)):
        if remote_words[0] == "sudo" and status == 127:
            text = f"{name}: no sudo there: {last}; use --host root@{_without_user(name)}"
            return Failed(text, UNAVAILABLE)
        probe = remote_words[3] if remote_words[0] == "sudo" else remote_words[0]
        fix = "install perftop there, or name its path: --remote PATH"
        return Failed(f"{name}: no {probe} there: {last or 'not found'}; {fix}", UNAVAILABLE)
    return None


class BrokenLink(Failed):
    """The connection has failed or ended; a new attempt may succeed."""


def _without_user(name: str) -> str:
    return name.rpartition("@")[2]
