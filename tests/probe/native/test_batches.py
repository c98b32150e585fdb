"""Which rounds are waited for: on a grid that the reader sets, within bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perfprobe.native.batches import LONGEST_NS, MOST_BYTES, MOST_FRAMES, Batches

MS = 1_000_000


def ends(batches: Batches, count: int, first: int = 0) -> list[int]:
    """The rounds that end the next batches."""
    found = []
    for _ in range(count):
        first = batches.end(first)
        batches.took(first)
        found.append(first)
        first += 1
    return found


def test_without_a_pace_every_round_is_a_batch() -> None:
    assert ends(Batches(100 * MS, 1000), 5) == [0, 1, 2, 3, 4]


def test_the_first_numbers_come_early_and_the_grid_begins_at_the_first_round() -> None:
    batches = Batches(100 * MS, 1000)
    batches.pace(500 * MS)
    assert ends(batches, 5, first=3) == [3, 4, 8, 13, 18]


def test_a_new_pace_counts_from_the_last_round() -> None:
    batches = Batches(100 * MS, 1000)
    assert ends(batches, 2) == [0, 1]
    batches.pace(500 * MS)
    assert ends(batches, 2, first=2) == [6, 11]
    batches.pace(200 * MS)
    assert ends(batches, 3, first=12) == [13, 15, 17]
    assert batches.end(25) == 25, "rounds that were missed do not move the grid"
    assert batches.end(26) == 27


def test_lengths_that_are_rounded_are_whole_multiples() -> None:
    batches = Batches(166_667_000, 1000)
    batches.pace(1_000_000_000)
    assert ends(batches, 4) == [0, 1, 6, 12]


@given(
    period_ns=st.integers(MS, 3_600 * 1000 * MS),
    frame_bytes=st.integers(1, 1 << 24),
    paces=st.lists(st.integers(0, 10**12), max_size=5),
)
def test_a_batch_is_a_round_at_least_and_bounded(
    period_ns: int, frame_bytes: int, paces: list[int]
) -> None:
    batches = Batches(period_ns, frame_bytes)
    last = ends(batches, 2)[-1]
    for batch_ns in paces:
        batches.pace(batch_ns)
        (end,) = ends(batches, 1, first=last + 1)
        rounds, last = end - last, end
        assert rounds >= 1
        if rounds > 1:
            assert rounds <= MOST_FRAMES
            assert rounds * period_ns <= min(LONGEST_NS, batch_ns) + 0.02 * period_ns
            assert rounds * frame_bytes <= MOST_BYTES
