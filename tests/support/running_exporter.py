"""Runs the exporter, requests its pages, and runs a Prometheus that scrapes it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from command import argv, running_command
from waiting import MAX_WAIT_S

from perftop.verbs.serve import shipped_text

READY = re.compile(rb"perftop: (http://|unix:)(.*?): (\d+) series")


class RunningExporter:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stderr is not None
        line = process.stderr.readline()
        result = READY.match(line)
        assert result, line + process.stderr.read()
        self.kind, self.where, self.series = result[1], result[2].decode(), int(result[3])

    def get(self, path: str = "/metrics", accept: str = "*/*") -> tuple[int, str, bytes]:
        """Returns the status, the content type and the body."""
        address = "localhost" if self.kind == b"unix:" else self.where.partition("/")[0]
        connection = http.client.HTTPConnection(address, timeout=MAX_WAIT_S)
        if self.kind == b"unix:":
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(self.where)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Accept": accept})
            result = connection.getresponse()
            return result.status, result.getheader("Content-Type", ""), result.read()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, bytes]:
        """Ends the exporter; returns its status and the rest of its stderr."""
        self.process.send_signal(number)
        return self.process.wait(MAX_WAIT_S), self.process.communicate()[1]


def started_exporter(
    command: Sequence[str], pass_fds: Sequence[int] = ()
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Starts a program with pipes for its output."""
    pipe = subprocess.PIPE
    return running_command(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, pass_fds=pass_fds
    )


@contextlib.contextmanager
def exporter(*arguments: str) -> Iterator[RunningExporter]:
    with started_exporter(argv("exporter", *arguments)) as process:
        yield RunningExporter(process)


CONFIG = """
global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: perftop
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self._url = f"{self.root}/api/v1/"

    def get(self, path: str, **fields: str) -> Any:
        """The data of an answer; None if Prometheus does not answer yet."""
        with contextlib.suppress(OSError):
            url = f"{self._url}{path}?{urllib.parse.urlencode(fields)}"
            with urllib.request.urlopen(url, timeout=MAX_WAIT_S) as answer:  # noqa: S310
                result = json.load(answer)
                assert result["status"] == "success"
                return result["data"]
        return None

    def value(self, query: str) -> float | None:
        """The value of the series; None unless there is exactly one."""
        result = self.get("query", query=query)
        if result is None or len(result["result"]) != 1:
            return None
        return float(result["result"][0]["value"][1])


@contextlib.contextmanager
def start_prometheus(target: str, directory: Path) -> Iterator[Prometheus]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (directory / "prometheus.yml").write_text(CONFIG.format(target=target))
    (directory / "rules.yml").write_text(shipped_text("rules"))
    command = ["prometheus", f"--config.file={directory / 'prometheus.yml'}",
               f"--storage.tsdb.path={directory / 'data'}",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    null = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=null, stdout=null, stderr=null) as process:
        try:
            yield Prometheus(port)
        finally:
            process.terminate()
            try:
                process.wait(MAX_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
