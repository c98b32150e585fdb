"""Measures the cost of hostile clients of the exporter; prints a line for each kind of client.

Each kind runs for some seconds against a separate exporter, which reads a simulated machine of 256
CPUs ten times a second and exports every CPU. Meanwhile a well-behaved client scrapes once a
second, like Prometheus. The exporter must lose no sample, keep memory and descriptors bounded,
answer the well-behaved client, and end with 0 on SIGTERM.

Run by hand: python tests/bench/hostile_scrapes.py [SECONDS] [SEED] (10 each; quick: 3)
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("support", "bench")]

import terminal  # noqa: E402
from scraped import series  # noqa: E402
from scraping import RunningExporter, exporter  # noqa: E402

SOURCE = "--source", "sim:smt-mix,cpus=256", "--sample", "100ms", "--detail", "cpu"
MOST_MORE_MB, MOST_FDS = 40.0, 64
WARM_S = 3.0
"""Time in s after which memory is stable."""
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
Address = tuple[str, int]
Client = Callable[[Address, float, random.Random], int]
"""A hostile client: runs for a number of seconds, and returns its number of connections."""


class Crowd:
    """Connections that are kept open; closed connections are replaced."""

    def __init__(self, address: Address, count: int) -> None:
        self._address, self._count = address, count
        self._open: list[socket.socket] = []
        self.made = 0

    def fill(self, first: bytes, most: int = 50) -> None:
        """Opens the missing connections, at most `most` at once. Each sends `first`."""
        self._open = [one for one in self._open if not _closed(one)]
        for _ in range(min(most, self._count - len(self._open))):
            with contextlib.suppress(OSError):
                one = socket.socket()
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.settimeout(1.0)
                one.connect(self._address)
                one.sendall(first)
                one.setblocking(False)
                self._open.append(one)
                self.made += 1

    def say(self, data: bytes) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.send(data)

    def leave(self) -> None:
        for one in self._open:
            one.close()


def _closed(one: socket.socket) -> bool:
    try:
        gone = one.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        gone = True
    if gone:
        one.close()
    return gone


def _crowd(count: int, first: bytes, more: bytes = b"", each_s: float = 0.1) -> Client:
    def client(address: Address, seconds: float, _: random.Random) -> int:
        crowd, end_s = Crowd(address, count), time.monotonic() + seconds
        while time.monotonic() < end_s:
            crowd.fill(first)
            if more:
                crowd.say(more)
            time.sleep(each_s)
        crowd.leave()
        return crowd.made

    return client


def long_heads(address: Address, seconds: float, _: random.Random) -> int:
    """Sends a header of ten megabytes on each connection."""
    result, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError), socket.create_connection(address, 5) as connection:
            result += 1
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
            for _line in range(160):
                connection.sendall(b"x: " + b"y" * (1 << 16))
    return result


def flood(address: Address, seconds: float, _: random.Random) -> int:
    """Makes complete scrapes as fast as possible, twenty at a time."""
    result, end_s = 0, time.monotonic() + seconds
    with selectors.DefaultSelector() as waiting:
        while time.monotonic() < end_s:
            while len(waiting.get_map()) < 20:
                connection = socket.create_connection(address, 5)
                connection.sendall(GET)
                waiting.register(connection, selectors.EVENT_READ)
            for key, _events in waiting.select(1.0):
                connection = key.fileobj  # type: ignore[assignment]
                with contextlib.suppress(OSError):
                    if connection.recv(1 << 20):
                        continue
                result += 1
                waiting.unregister(connection)
                connection.close()
        for key in [*waiting.get_map().values()]:
            key.fileobj.close()  # type: ignore[union-attr]
    return result


def garbage(address: Address, seconds: float, rng: random.Random) -> int:
    """Sends random bytes, and requests in which some bytes were changed."""
    result, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        data = (
            bytearray(GET)
            if rng.random() < 0.5
            else bytearray(rng.randbytes(rng.choice((1, 300, 9000))))
        )
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(OSError), socket.create_connection(address, 5) as connection:
            connection.sendall(data + rng.choice((b"", b"\r\n\r\n")))
            if rng.random() < 0.5:
                connection.settimeout(0.05)
                connection.recv(1 << 12)
            result += 1
    return result


KINDS: dict[str, Client] = {
    "half a request, 1000 at once": _crowd(1000, b"GET /metrics HT"),
    "a byte at a time, 200 at once": _crowd(200, b"G", b"a", 1.0),
    "who take no answer, 100 at once": _crowd(100, GET),
    "10 MB of header": long_heads,
    "scrapes without end": flood,
    "garbage": garbage,
}


class Honest:
    """A client that scrapes like Prometheus."""

    def __init__(self, running: RunningExporter) -> None:
        self._running = running
        self.asked = self.answered = 0
        self.longest_s = 0.0
        self.found = self._scrape() or {}

    def _scrape(self) -> dict[tuple[str, ...], float] | None:
        start = time.monotonic()
        self.asked += 1
        with contextlib.suppress(OSError):
            status, _, body = self._running.get()
            if status == 200:
                self.longest_s = max(self.longest_s, time.monotonic() - start)
                self.answered += 1
                return series(body, openmetrics=False)
        return None

    def scrape(self) -> None:
        self.found = self._scrape() or self.found


def beside(client: Client, address: Address, seconds: float, seed: int, honest: Honest) -> int:
    """Runs the client in a child process. Returns its number of connections."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(into, str(client(address, seconds, random.Random(seed))).encode())
        os._exit(0)
    os.close(into)
    while not os.waitpid(pid, os.WNOHANG)[0]:
        honest.scrape()
        time.sleep(1.0)
    with os.fdopen(out) as report:
        return int(report.read() or -1)


def run_client(name: str, client: Client, seconds: float, seed: int) -> bool:
    with exporter(*SOURCE, "--listen", "127.0.0.1:0") as running:
        host, port = running.where.partition("/")[0].split(":")
        honest, pid = Honest(running), running.process.pid
        time.sleep(WARM_S)
        honest.scrape()
        before_mb, cpu_s = terminal.rss_mb(pid), _own_s(honest)
        result = beside(client, (host, int(port)), seconds, seed, honest)
        more_mb, fds = terminal.rss_mb(pid) - before_mb, len([*Path(f"/proc/{pid}/fd").iterdir()])
        honest.scrape()
        lost = honest.found["perftop_lost_samples_total",]
        cpu_s = _own_s(honest) - cpu_s
        status, message = running.end()
    wrong = [f"{lost:.0f} samples lost"] * bool(lost)
    wrong += [f"{fds} descriptors"] * (fds > MOST_FDS)
    wrong += ["too much memory"] * (more_mb > MOST_MORE_MB)
    wrong += [f"status {status}: {message!r}"] * bool(status or message)
    wrong += ["nobody was answered"] * (honest.answered < 2)
    print(
        f"{name}: {result} connections, {more_mb:+.1f} MB, {cpu_s / seconds:.2f} CPUs; honest "
        f"scrapes {honest.answered} of {honest.asked}, {1000 * honest.longest_s:.0f} ms at most: "
        f"{'; '.join(wrong) or 'fine'}",
        flush=True,
    )
    return not wrong


def _own_s(honest: Honest) -> float:
    return honest.found["perftop_exporter_cpu_seconds_total",]


def main(seconds: float = 10.0, seed: float = 1) -> int:
    good = [run_client(name, client, seconds, int(seed)) for name, client in KINDS.items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:3])))
