"""Counters that perf read in turns: scaled up to the whole span, or unknown."""

from __future__ import annotations

import made
import numpy as np
import pytest
from made import frame

from perfprobe import wire
from perftop.model.counters import Counters
from perftop.model.delta import Delta
from perftop.output import stat_json
from perftop.output.stat_table import StatTable
from perftop.session.session import Session

NS = 100_000_000  # of a sample
ENABLED, RUNNING = (
    wire.Counter(key, key, "s", "perf", scale=1e-9) for key in ("perf_enabled_s", "perf_running_s")
)
CYCLES = wire.Counter("cycles", "cycles", "cycles", "perf")
REF = wire.Counter("ref", "ref", "cycles", "perf, without guests")
APERF = wire.Counter("aperf", "aperf", "cycles", "msr PMU")
ALL = [ENABLED, RUNNING, REF, CYCLES, APERF]


def deltas(greeting: wire.Hello, *samples: made.Values) -> tuple[Counters, list[Delta]]:
    counters = Counters(greeting)
    return counters, [counters.steps([frame(greeting, i, s)])[0] for i, s in enumerate(samples)]


def sample(
    enabled: list[int], running: list[int], cycles: list[int], aperf: list[int] | None = None
) -> made.Values:
    return {
        "perf_enabled_s": enabled,
        "perf_running_s": running,
        "ref": cycles,
        "cycles": cycles,
        "aperf": aperf or cycles,
    }


def test_a_count_of_a_quarter_of_the_time_is_scaled_by_four() -> None:
    greeting = made.hello(ALL, threads=2)
    counters, (_, delta) = deltas(
        greeting,
        sample([7, 7], [5, 7], [1000, 1000]),
        sample([7 + NS, 7 + NS], [5 + NS // 4, 7 + NS], [1000 + 5_000_000, 1000 + 5_000_000]),
    )
    moved = delta.tables["cpu"].moved
    assert moved[:, 2].tolist() == [20_000_000, 5_000_000]  # ref: its origin begins with perf too
    assert moved[:, 3].tolist() == [20_000_000, 5_000_000]
    assert moved[:, 4].tolist() == [5_000_000, 5_000_000]  # the msr PMU takes no turns
    assert moved[:, :2].tolist() == pytest.approx(np.array([[0.1, 0.025], [0.1, 0.1]]))
    counted = counters.counted_share(delta)
    assert counted is not None
    assert counted.tolist() == pytest.approx([0.25, 1.0])


def test_shares_of_turns_add_up_over_samples() -> None:
    """A third of the first sample, all of the second: an estimate, then an exact count."""
    greeting = made.hello(ALL, threads=1)
    counters, steps = deltas(
        greeting,
        sample([0], [0], [0]),
        sample([NS], [NS // 4], [1_000_000]),
        sample([2 * NS], [NS // 4 + NS], [1_000_000 + 6_000_000]),
    )
    total = counters.empty_delta()
    for delta in steps:
        total.add(delta)
    assert total.tables["cpu"].moved[0, 3] == 4_000_000 + 6_000_000


def test_never_on_the_counters_is_unknown_not_zero() -> None:
    greeting = made.hello(ALL, threads=1)
    _, (_, delta) = deltas(greeting, sample([0], [0], [0]), sample([NS], [0], [0], [12_345]))
    moved = delta.tables["cpu"].moved[0]
    assert np.isnan(moved[[2, 3]]).all()
    assert moved[4] == 12_345
    assert delta.suspect == {}


def test_other_sources_are_not_scaled() -> None:
    """Without the times there is nothing to scale by."""
    plain = made.hello([CYCLES], threads=1)
    counters, (_, delta) = deltas(plain, {"cycles": [0]}, {"cycles": [77]})
    assert delta.tables["cpu"].moved[0, 0] == 77
    assert counters.counted_share(delta) is None


def test_estimates_are_marked() -> None:
    """A scaled count says for how much of the time it was counted."""
    greeting = made.hello([ENABLED, RUNNING, REF], threads=1)
    session = Session(greeting)
    for seq in (0, 1):
        ran = seq * 40_000_000
        values = {"perf_enabled_s": [seq * 10**8], "perf_running_s": [ran], "ref": [seq * 10**7]}
        session.apply(made.frame(greeting, seq, values))
    interval = session.take()
    line = stat_json.interval_line(session, interval)
    assert line["cpus"][0]["counted"] == 0.4
    assert line["cpus"][0]["util"] == pytest.approx(0.125)
    assert "counted 40.0 % of the time" in StatTable(session).lines(interval)[1]
