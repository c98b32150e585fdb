"""Tests that need a quiet CPU run alone, even with several workers."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from roots import ROOT
from run_order import TurnTaking, pytest_collection_modifyitems, runs_alone
from waiting import MAX_WAIT_S

CONFTEST = "from run_order import pytest_collection_modifyitems, pytest_configure\n"
SUITE = """
import os, time, pytest

{mark}
@pytest.mark.parametrize("n", range(4))
def test_it(n):
    begin = time.monotonic()
    time.sleep(0.03)
    worker = os.environ["PYTEST_XDIST_WORKER"]
    with open("ran", "a") as file:
        file.write(f"{kind} {{begin}} {{time.monotonic()}} {{worker}}\\n")
"""
MACHINE_MARK = "pytestmark = pytest.mark.machine"


def item(nodeid: str, *marks: str) -> Any:
    marked = {*marks}
    return SimpleNamespace(
        nodeid=nodeid,
        add_marker=marked.add,
        get_closest_marker=lambda mark: mark if mark in marked else None,
    )


def test_files_of_programs_are_spread_and_files_stay_together() -> None:
    programs = [f"tests/test_{name}.py" for name in "ab"]
    others = [f"tests/app/test_{n}.py" for n in range(6)]
    # From the last file to the first, because each worker collects in another order.
    items = [item(f"{file}::{test}") for file in (*programs, *others)[::-1] for test in "xy"]
    items.insert(0, item("tests/app/test_0_alone.py::alone", "machine"))
    pytest_collection_modifyitems(items)
    *order, last = [each.nodeid for each in items]
    assert last.endswith("::alone")
    assert [file.partition("::")[0] for file in order[::2]] == [
        others[0], programs[1], *others[1:3], programs[0], *others[3:]
    ]  # fmt: skip
    assert [test.rpartition("::")[2] for test in order] == ["x", "y"] * 8
    items.append(item(f"{others[0]}::alone", "machine"))
    pytest_collection_modifyitems(items)
    assert [each.nodeid.partition("::")[2] for each in items if runs_alone(each)] == [
        "x", "y", "alone", "alone"
    ]  # fmt: skip


def locks_allowed(path: Path) -> list[str]:
    """The locks that another worker can take now."""
    allowed = []
    with path.open() as file:
        for name, lock in {"exclusive": fcntl.LOCK_EX, "shared": fcntl.LOCK_SH}.items():
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, lock | fcntl.LOCK_NB)
                allowed.append(name)
    return allowed


def test_a_worker_shares_the_lock_except_during_a_test_that_runs_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    worker = TurnTaking()
    worker._file.close()
    worker._file = path.open("rb")
    ordinary, alone = item("ordinary"), item("alone", "machine")
    for current, following, during, after in (
        (ordinary, ordinary, ["shared"], ["shared"]),
        (ordinary, alone, ["shared"], ["exclusive", "shared"]),
        (alone, alone, [], ["exclusive", "shared"]),
        (alone, None, [], ["exclusive", "shared"]),
        (ordinary, None, ["shared"], ["exclusive", "shared"]),
    ):
        protocol = worker.pytest_runtest_protocol(current, following)
        next(protocol)
        assert locks_allowed(path) == during
        next(protocol, None)
        assert locks_allowed(path) == after
    worker._file.close()


@pytest.mark.nightly
def test_marked_tests_run_last_and_alone(tmp_path: Path) -> None:
    # A copy, because the lock is on the file, and workers of this run hold that of the original.
    shutil.copy(ROOT / "tests/support/run_order.py", tmp_path)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for file in range(6):
        kind, mark = ("alone", MACHINE_MARK) if file < 2 else ("ordinary", "")
        (tmp_path / f"test_{file}.py").write_text(SUITE.format(kind=kind, mark=mark))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = machine\npythonpath = .\n")
    # Separate directories, because pytest would spend half a minute removing those of earlier runs.
    own = ("-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n2", "--dist=loadfile", *own],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=MAX_WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    ordinary = [(float(begin), float(end)) for kind, begin, end, _ in ran if kind == "ordinary"]
    alone = sorted((float(begin), float(end)) for kind, begin, end, _ in ran if kind == "alone")
    assert (len(ordinary), len(alone)) == (16, 8)
    assert {worker for kind, *_, worker in ran if kind == "ordinary"} == {"gw0", "gw1"}
    assert alone[0][0] >= max(end for _, end in ordinary)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(alone))
