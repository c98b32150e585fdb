"""Decides how many tests run at once, and in which order: tests of whole programs are spread among
the others, and tests marked `machine` run after all others, one at a time.

conftest.py imports this module. Workers of pytest-xdist take a file at a time, in the order of the
list. They share a lock: workers hold it jointly from their first ordinary test to their last, and
one worker holds it exclusively for each test marked `machine`. A file with such a test runs at the
end of the list, all its tests alone: a worker that waits for the lock would delay ordinary tests.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

PROGRAMS = re.compile(
    r"tests/(test_|native/|incidents/|probe/(machine|polled|programming|registers)/"
    r"|probe/instruments/selftest/test_on_this_machine|app/(process|verbs|recording/test_writer))"
)
"""Pattern of test files that start programs and wait for them. They are spread evenly, so that
other workers compute meanwhile."""
SHARED_SIMULATIONS = "PLAYED_S"
"""Files that contain this name use the same simulated machines (see sim_truth.py): one worker runs
them all, and simulates each machine once."""
MAX_POSITION = 0.9
"""Highest position of the last of these files, as a share of the list: if it were later, other
workers would be idle at the end."""


def pytest_xdist_auto_num_workers() -> int:
    """Two more workers than CPUs: a worker waits for programs and apps 40 % of its time."""
    return len(os.sched_getaffinity(0)) + 2


def runs_alone(item: pytest.Item | None) -> bool:
    return item is not None and item.get_closest_marker("machine") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts the files, and marks all tests of a file in which one is marked `machine`. The tests of
    a file stay together, because they share its fixtures. Runs after -m has deselected tests, so a
    file may be marked at night only."""
    files = sorted({_file(item) for item in items})
    quiet = {_file(item) for item in items if runs_alone(item)}
    for item in items:
        if _file(item) in quiet:
            item.add_marker("machine")
    remote_name: dict[str, float] = {}
    for waits, max_position in ((True, MAX_POSITION), (False, 1.0)):
        chosen = [file for file in files if bool(PROGRAMS.match(file)) == waits]
        if waits:
            chosen.reverse()  # starts with files at the end of the alphabet, which wait longest
        remote_name |= {file: max_position * at / len(chosen) for at, file in enumerate(chosen)}
    items.sort(key=lambda item: (_file(item) in quiet, remote_name[_file(item)], _file(item)))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@cache
def _shares_simulations(path: Path) -> bool:
    return SHARED_SIMULATIONS in path.read_text(encoding="utf-8")


class ByFileScheduling(LoadFileScheduling):  # type: ignore[misc]
    """A scheduler that assigns one file at a time; files that share simulations are assigned
    together."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "together" if _shares_simulations(self.config.rootpath / file) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFileScheduling | None:
    """Makes the scheduler for --dist=loadfile; None for other values of --dist."""
    return ByFileScheduling(config, log) if config.option.dist == "loadfile" else None


class TurnTaking:
    """The lock of a worker, on this module's file so that no lock file remains, and the order in
    which the worker collects."""

    def __init__(self) -> None:
        self._file = Path(__file__).open("rb")  # noqa: SIM115 - held to the end of the worker

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Rotates the order of collection by worker: in a fresh checkout tests are compiled during
        collection, and workers can read files that others have compiled."""
        report = yield
        if isinstance(collector, pytest.Dir):
            worker = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
            first = len(report.result) * worker // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
            report.result = report.result[first:] + report.result[:first]
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        """Takes the lock before the timeout of the test starts, so that the wait does not count."""
        fcntl.flock(self._file, fcntl.LOCK_EX if runs_alone(item) else fcntl.LOCK_SH)
        try:
            return (yield)
        finally:
            if nextitem is None or runs_alone(nextitem):
                fcntl.flock(self._file, fcntl.LOCK_UN)


def send_few_reports(config: pytest.Config) -> None:
    """Makes a worker send no reports of setups and teardowns that have passed, because to send and
    to handle one takes 0.3 ms. Only lists of durations need them."""
    (sender,) = (p for p in config.pluginmanager.get_plugins() if hasattr(p, "sendevent"))
    send = sender.sendevent

    def send_unless_trivial(name: str, **event: Any) -> None:
        report = event.get("data", {})
        is_result = report.get("when") == "call" or report.get("outcome") != "passed"
        if name != "testreport" or is_result:
            send(name, **event)

    sender.sendevent = send_unless_trivial


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.pluginmanager.register(TurnTaking())
        if config.option.durations is None and config.option.xmlpath is None:
            send_few_reports(config)
