"""An `ssh` for tests: remote hosts are simulated machines. A directory has a file for each host,
which a test may rewrite at any time, with the behaviour of the host:

    run [SOURCE]   the probe, with that source instead of the requested one (default: sim:idle)
    real           the probe, with the requested source
    other          like real, and its machine reports the identity of a different machine
    old            like other, and its probe does not support echo
    hang           nothing at all
    garbage        bytes that are not a stream
    banner         a line of the shell's start file, then the probe
    cut N          the probe, up to that byte; then the link breaks
    code CODE      that Python code
    any SSH_ERRORS ssh's own message for that failure, and its status

HOST.pid beside that file has the process ids of all connections so far. Killing one breaks its
connection.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported here, because the import takes most of a connection's time
    import pytest


HOSTS = "FAKE_SSH_HOSTS"
WITHOUT_ECHO = """
from perfprobe import serve
serve.ECHO_COMMAND = b"unknown "
"""
ANOTHER_MACHINE = """
import dataclasses, sys
from perfprobe import __main__, serve
serving = serve.serve
def other(source, stdin, stdout, stop, hello=None, **more):
    hello = dataclasses.replace(hello or source.hello, boot_id="another")
    serving(source, stdin, stdout, stop, hello, **more)
serve.serve = other
sys.exit(__main__.main(sys.argv[1:]))
"""
SSH_ERRORS = {
    "noname": (255, "ssh: Could not resolve hostname {host}: Name or service not known"),
    "refused": (255, "ssh: connect to host {host} port 22: Connection refused"),
    "timeout": (255, "ssh: connect to host {host} port 22: Connection timed out"),
    "badkey": (255, "No ED25519 host key is known for {host}.\nHost key verification failed."),
    "nologin": (255, "{host}: Permission denied (publickey,password)."),
    "noprobe": (127, "bash: line 1: perfprobe: command not found"),
    "nosudo": (1, "sudo: a password is required"),
    "sudonoprobe": (1, "sudo: perfprobe: command not found"),
    "norights": (3, "perfprobe: --source perf: perf_event_paranoid is 4 here"),
}  # fmt: skip


class Hosts:
    def __init__(self, directory: Path) -> None:
        self.path = self._directory = directory

    def set(self, host: str, behaviour: str) -> None:
        """Sets the behaviour of a host for its next connections."""
        new = self._directory / f".{host}"
        new.write_text(behaviour, encoding="utf-8")
        new.rename(self._directory / host)

    def pids(self, host: str) -> list[int]:
        path = self._directory / f"{host}.pid"
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def disconnect(self, host: str) -> None:
        """Breaks the newest connection."""
        os.kill(self.pids(host)[-1], 9)


def install(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Puts the fake ssh first in PATH."""
    (directory / "bin").mkdir()
    (directory / "hosts").mkdir()
    program = directory / "bin" / "ssh"
    command = shlex.join([sys.executable, "-S", __file__])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(HOSTS, str(directory / "hosts"))
    return Hosts(directory / "hosts")


def _main() -> int:
    *options, dashes, host, command = sys.argv[1:]
    required = {"BatchMode=yes", "StrictHostKeyChecking=yes"}
    if dashes != "--" or host.startswith("-") or not required <= set(options):
        return _end(255, f"fake ssh: unexpected arguments: {sys.argv}")
    hosts = Path(os.environ[HOSTS])
    with (hosts / f"{host}.pid").open("a") as pids:
        pids.write(f"{os.getpid()}\n")
    path = hosts / host
    behaviour, _, more = (path.read_text(encoding="utf-8") if path.exists() else "run").partition(
        " "
    )
    if behaviour in SSH_ERRORS:
        status, text = SSH_ERRORS[behaviour]
        return _end(status, text.format(host=host))
    if behaviour == "hang":
        time.sleep(600)
    elif behaviour == "garbage":
        os.write(1, b"\xc4\x05" + bytes(range(256)) * 64)
    elif behaviour == "code":
        exec(more)  # noqa: S102 - a test's own code
    else:
        if behaviour == "banner":
            os.write(1, b"Welcome to this machine\n")
        return _run(behaviour, more, shlex.split(command))
    return 0


def _run(behaviour: str, more: str, words: list[str]) -> int:
    own = words[words.index("perfprobe") + 1 :]
    if "--source" in own and behaviour not in {"real", "other", "old"}:
        own[own.index("--source") + 1] = more if behaviour == "run" and more else "sim:idle"
    argv = [sys.executable, "-P", "-m", "perfprobe", *own]
    if behaviour in {"other", "old"}:
        argv[2:4] = ["-c", (WITHOUT_ECHO if behaviour == "old" else "") + ANOTHER_MACHINE]
    if behaviour != "cut":
        os.execv(argv[0], argv)  # noqa: S606 - there is none on purpose
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as probe:
        assert probe.stdout
        os.write(1, probe.stdout.read(int(more)))
        probe.kill()
    return _end(255, "client_loop: send disconnect: Broken pipe")


def _end(status: int, text: str) -> int:
    print(text, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(_main())


class RemoteFeed:
    def __init__(self) -> None:
        self.requested_echoes: list[int] = []

    def request_echo(self, number: int) -> None:
        self.requested_echoes.append(number)

    def start(self) -> None: ...

    def end(self) -> None: ...
