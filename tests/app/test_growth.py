"""Work grows at most in proportion to its input. Function calls are counted, so the load of the
machine has no influence."""

from __future__ import annotations

from pathlib import Path

import growth
import pytest
from calls import count_calls

SIZES = {
    "marks in a pass": 300, "episodes in a pass": 10, "episodes listed": 2000,
    "renamed tasks": 80, "CPUs, a session": 64, "CPUs, export": 32, "CPUs, why": 64,
    "seconds, summary": 300, "seconds, live": 60, "kept recordings": 60, "a full ring": 60,
    "damages": 8, "hotplugs": 30, "machines": 100,
}  # fmt: skip


def calls_of(name: str, size: int, place: Path) -> int:
    place.mkdir(mode=0o700)
    work = growth.CASES[name][0](size, place)
    with count_calls() as calls:
        work()
    return calls.count


@pytest.mark.parametrize("name", SIZES)
def test_work_at_most_doubles_with_the_size_of_its_input(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # the first call includes imports and fills caches
    calls_of(name, max(1, SIZES[name] // 10), tmp_path / "warm")
    half, whole = (calls_of(name, SIZES[name] * n, tmp_path / str(n)) for n in (1, 2))
    assert whole < growth.MAX_CALLS * half


def test_the_cost_of_a_part_of_a_ring_does_not_depend_on_the_number_of_kept_recordings(
    tmp_path: Path,
) -> None:
    few, many = (calls_of("kept recordings", n, tmp_path / str(n)) for n in (20, 200))
    assert many < 1.2 * few
