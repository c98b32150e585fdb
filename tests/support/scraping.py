"""The exporter as a program, and a client of it."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence

from command import argv
from started import going
from waiting import MOST_S

READY = re.compile(rb"perftop: (http://|unix:)(.*?): (\d+) series")


class Running:
    """An exporter that listens."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stderr is not None
        said = process.stderr.readline()
        found = READY.match(said)
        assert found, said + process.stderr.read()
        self.kind, self.where, self.series = found[1], found[2].decode(), int(found[3])

    def get(self, path: str = "/metrics", accept: str = "*/*") -> tuple[int, str, bytes]:
        """Status, form and body."""
        address = "localhost" if self.kind == b"unix:" else self.where.partition("/")[0]
        connection = http.client.HTTPConnection(address, timeout=MOST_S)
        if self.kind == b"unix:":
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(self.where)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Accept": accept})
            found = connection.getresponse()
            return found.status, found.getheader("Content-Type", ""), found.read()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, bytes]:
        """Status, and what it said last."""
        self.process.send_signal(number)
        return self.process.wait(MOST_S), self.process.communicate()[1]


def started(
    command: Sequence[str], pass_fds: Sequence[int] = ()
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """A program whose output is heard."""
    pipe = subprocess.PIPE
    return going(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, pass_fds=pass_fds)


@contextlib.contextmanager
def exporter(*arguments: str) -> Iterator[Running]:
    with started(argv("exporter", *arguments)) as process:
        yield Running(process)
