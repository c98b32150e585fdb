"""What a summary keeps of all samples, in bounded memory."""

from __future__ import annotations

import tracemalloc

import made
import numpy as np
import pytest
from made import frame
from played import TICKS, played

from perftop.output import run_summary
from perftop.session.session import Session
from perftop.session.summary import Distribution, _p5


def test_percentiles_stay_right_when_samples_are_thinned() -> None:
    greeting = made.hello([made.REF], threads=1)
    session = Session(greeting)
    session.distribution = Distribution([0], max_bytes=4096, least_rows=2)
    rng = np.random.default_rng(1)
    shares = np.sort(rng.random(3000))  # in order: thinned unevenly, the late ones would weigh more
    refs = np.cumsum([0, *(int(share * TICKS) for share in shares)]) % 2**48
    frames = [frame(greeting, seq, {"ref": [ref]}) for seq, ref in enumerate(refs.tolist())]
    played(session, frames)
    found = run_summary.summary_line(session, {}, 1.0)["cpus"][0]["util"]
    assert found["min"] == pytest.approx(shares.min(), abs=1e-6)
    assert found["max"] == pytest.approx(shares.max(), abs=1e-6)
    assert found["mean"] == pytest.approx(shares.mean(), abs=1e-6)
    assert found["p5"] == pytest.approx(0.05, abs=0.06)


@pytest.mark.parametrize(("max_bytes", "least_rows", "room"), [(4352, 2, 32), (1, 2, 2), (1, 9, 9)])
def test_a_run_of_any_length_keeps_samples_in_bounded_memory(
    max_bytes: int, least_rows: int, room: int
) -> None:
    """A row is 34 numbers of 4 bytes: 15 metrics of the machine and of its CPU, and 4 states."""
    greeting = made.hello([made.REF], threads=1)
    session = Session(greeting)
    session.distribution = Distribution([0], max_bytes, least_rows)
    session.apply(frame(greeting, 0, {"ref": [0]}))
    for seq in range(1, 200):
        session.apply(frame(greeting, seq, {"ref": [seq * TICKS // 2]}))
        found = session.distribution.finish()
        assert len(found._kept) == room
        assert min(seq, room // 2) <= found._count <= room
        assert (found._kept[: found._count, 0] == 0.5).all()


@pytest.mark.parametrize("count", [2, 3, 511, 512, 513, 20_000])
def test_every_second_sample_is_dropped_without_a_copy_of_all(count: int) -> None:
    distribution = Distribution([0])
    rows = np.arange(count * 8, dtype=np.float32).reshape(count, 8)
    distribution._kept, distribution._count = rows.copy(), count
    tracemalloc.start()
    distribution._thin()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50_000, "half of the longest is 320,000 bytes"
    assert np.array_equal(distribution._kept[: distribution._count], rows[::2])


def test_the_fifth_percentile_is_that_of_numpy() -> None:
    random = np.random.default_rng(7)
    for count in (1, 2, 3, 20, 21, 22, 40, 41):
        table = random.random((count, 50)).astype(np.float32)
        table[random.random(table.shape) < 0.2] = np.nan
        table[0] = 0.5
        assert _p5(table) == pytest.approx(np.nanpercentile(table, 5, axis=0), rel=1e-6)
    assert np.isnan(_p5(np.full((3, 1), np.nan, np.float32))).all()
