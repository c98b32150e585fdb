"""Tests that need a quiet CPU run alone, even with several workers."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from run_order import TurnTaking, pytest_collection_modifyitems, runs_alone


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
