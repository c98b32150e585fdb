"""CPUs of a simulated machine that come and go, and CPUs that are not wanted."""

import numpy as np
import pytest
from simulated import column, head, run, schedule_of, valid

from perfprobe.sources.sim.schedule import Row
from perfprobe.wire import (
    ROW_OFFLINE,
    ROW_REBASED,
    ROW_SAMPLED,
    ROW_WIDE,
)


def test_hotplug() -> None:
    hello, frames, notes = run("hotplug", 20)
    flags = np.array([head(f)[15, 4] for f in frames]) & ~ROW_WIDE
    assert (flags[:80] == ROW_SAMPLED).all()
    assert (flags[80:160] == ROW_OFFLINE).all()
    assert flags[160] == ROW_SAMPLED | ROW_REBASED
    assert (flags[161:] == ROW_SAMPLED).all()
    assert [(n.kind, n.time_ns - hello.raw_ns, n.data["online"]) for n in notes] == [
        ("hotplug", 8 * 10**9, False),
        ("hotplug", 16 * 10**9, True),
    ]
    assert notes[0].data["row"]["package"] is None
    assert notes[1].data["row"] == {
        **notes[1].data["row"],
        "cpu": 15,
        "core": 7,
        "siblings": [7, 15],
    }
    assert not valid(hello, frames[100], "ref")[15]
    assert not valid(hello, frames[100], "stat_user_s")[15]
    restarted = column(hello, frames[160:], "ref")[:, 15]
    assert restarted[0] < 1_000_000, "counters start anew"
    assert (np.diff(restarted.astype(np.int64)) >= 0).all()
    others = np.array([head(f)[:15, 4] for f in frames]) & ~ROW_WIDE
    assert (others == ROW_SAMPLED).all()


def test_hotplug_again_in_the_next_turn_of_the_script() -> None:
    hello, _, notes = run("hotplug", 70)
    times = [(n.time_ns - hello.raw_ns) / 1e9 for n in notes]
    assert times == [8, 16, 34, 42, 60, 68]
    assert run("hotplug,cpus=1,smt=1", 10)[2] == []


def test_a_restarted_counter_counts_from_the_return_of_its_cpu() -> None:
    hello, frames, _ = run("hotplug", 20)
    schedule = schedule_of("hotplug")
    moment = int(head(frames[190])[15, :2].mean() / 2.1) - hello.raw_ns
    truth = schedule.between(16 * 10**9, moment)[Row.IDLE, 15] // 1000
    assert column(hello, frames, "idle_s")[190, 15] == pytest.approx(truth, abs=2)


def test_what_was_not_asked_for_is_not_read_but_siblings_are() -> None:
    hello, frames, _ = run("smt-mix", 1, select=(1, 12))
    assert hello.selected == [1, 12]
    assert np.flatnonzero(head(frames[3])[:, 4]).tolist() == [1, 4, 9, 12]
    assert np.flatnonzero(valid(hello, frames[3], "ref")).tolist() == [1, 4, 9, 12]
    by_rule, _, _ = run("smt-mix", 0, select=lambda rows: [r.cpu for r in rows if r.core == 3])
    assert by_rule.selected == [3, 11]
    assert run("smt-mix", 0, select=lambda _: None)[0].selected is None
