"""A Prometheus of this machine that scrapes one target, on loopback."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from waiting import MOST_S

from perftop.verbs.exporter import shipped

CONFIG = """
global: {{scrape_interval: 200ms, evaluation_interval: 1s}}
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
        """The data of an answer; None: it does not answer yet."""
        with contextlib.suppress(OSError):
            url = f"{self._url}{path}?{urllib.parse.urlencode(fields)}"
            with urllib.request.urlopen(url, timeout=MOST_S) as answer:  # noqa: S310
                found = json.load(answer)
                assert found["status"] == "success"
                return found["data"]
        return None

    def value(self, query: str) -> float | None:
        """That of the only series; None: there is not one."""
        found = self.get("query", query=query)
        if found is None or len(found["result"]) != 1:
            return None
        return float(found["result"][0]["value"][1])


@contextlib.contextmanager
def scraping(target: str, directory: Path) -> Iterator[Prometheus]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (directory / "prometheus.yml").write_text(CONFIG.format(target=target))
    (directory / "rules.yml").write_text(shipped("rules"))
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
                process.wait(MOST_S)
            except subprocess.TimeoutExpired:
                process.kill()
