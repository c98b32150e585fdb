"""What the exporter costs: a sample that is added up, a page that is made, a scrape of it, and all
of it in a minute with a scrape every 15 s; a line for each number of CPUs and each detail.

CPU time of the exporter alone, the least of some rounds; a scrape goes over loopback, and its cost
is what the exporter's process used for it. Run by hand: python tests/bench/bench_exporter.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("support", "bench")]

import terminal  # noqa: E402
from exported import messages  # noqa: E402
from scraping import exporter  # noqa: E402
from timing import best_us  # noqa: E402

from perfprobe import wire  # noqa: E402
from perftop.output.exporter.page import DETAILS, Detail, Page  # noqa: E402
from perftop.session.session import Session  # noqa: E402

MOST_MS = 2.0
"""Allowed CPU time of a scrape at 256 CPUs."""
SCRAPES = 400
SCRAPE_EVERY_S = 15
Line = tuple[float, float, int, int]
"""us for adding up a sample, us for making the page, its bytes, its series."""


def page(cpus: int, detail: Detail) -> Line:
    """Without processes and sockets."""
    found = messages(f"demo,cpus={cpus}", 30, 10**9)
    assert isinstance(found[0], wire.Hello)
    session = Session(found[0], summary_bytes=1 << 16)
    made = Page(session, detail)
    since_ns = session.now_ns
    for message in session.play(found[1:]):
        if isinstance(message, wire.Frame):
            made.take(since_ns)
            since_ns = message.time_ns
    text = made.text(openmetrics=False)

    def again() -> None:
        made._texts.clear()
        made.text(openmetrics=False)

    return (
        best_us(lambda: made.take(since_ns), 20), best_us(again, 20), len(text), made.series,
    )  # fmt: skip


def scrapes(cpus: int, detail: Detail) -> Iterator[float]:
    """CPU ms of a scrape that gets a page that is there, and of one that is made for it; then what
    the exporter uses in a minute."""
    source = "--source", f"sim:demo,cpus={cpus}", "--detail", detail
    with exporter(*source, "--listen", "127.0.0.1:0") as running:
        pid = running.process.pid
        for _ in range(20):
            running.get()
        time.sleep(3)
        rest = _rate(pid, 8.0)
        before, start = terminal.cpu_s([pid]), time.monotonic()
        for _ in range(SCRAPES):
            running.get()
        took_s = time.monotonic() - start
        each_s = (terminal.cpu_s([pid]) - before - rest * took_s) / SCRAPES
        yield 1000 * each_s
        yield 60 * rest
        running.end()


def _rate(pid: int, seconds: float) -> float:
    before = terminal.cpu_s([pid])
    time.sleep(seconds)
    return (terminal.cpu_s([pid]) - before) / seconds


def main() -> int:
    print(
        "CPUs  detail    series     bytes   add up us  make us   a scrape ms   new page ms  s/min"
    )
    missed = 0
    for cpus in (2, 256):
        for detail in DETAILS:
            take_us, make_us, size, count = page(cpus, detail)
            scrape_ms, rest_s = scrapes(cpus, detail)
            whole_ms = scrape_ms + make_us / 1000
            minute_s = rest_s + 60 / SCRAPE_EVERY_S * whole_ms / 1000
            missed += whole_ms > MOST_MS
            print(f"{cpus:4}  {detail:8}{count:8}{size:10}{take_us:12.0f}{make_us:9.0f}"
                  f"{scrape_ms:14.2f}{whole_ms:14.2f}{minute_s:7.2f}", flush=True)  # fmt: skip
    print(f"a scrape costs {'at most' if not missed else 'MORE THAN'} {MOST_MS} ms")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
