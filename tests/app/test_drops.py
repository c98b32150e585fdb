"""Turbo drops, step by step, of clocks made by hand."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import made
import numpy as np
import pytest
from fakes import Does, Machine, seen

from perfprobe import wire
from perfprobe.wire import Block, Counter
from perftop.believe import Sieve
from perftop.counters import Counters
from perftop.detect import Detector, Episode
from perftop.drops import AWAKE, END, GAP_NS, START, Clocks, Drops, Why
from perftop.format import evidence
from perftop.session import Session
from perftop.widgets import alert, strips
from perftop.widgets.status import Status

S = made.SAMPLE_NS
CEILING = Counter("ceiling_hz", "ceiling", "Hz", "made", kind="gauge")
ENERGY = Counter("energy_j", "energy", "J", "made")
LIMIT = Counter("power_limit_w", "limit", "W", "made", kind="gauge")
PARTS = ["PROCHOT", "thermal", "bit 2", "PL1", "electrical", "max turbo limit"]
REASONS = Counter("limit_reasons", "r", "1", "made", "flags", columns=7, parts=PARTS)
LEVELS = [made.counter("license_1"), made.counter("license_2")]
HZ = 3.0e9
NAN = float("nan")


class Walk:
    """Cores at a ceiling of 3 GHz, two threads each, that do what a test says, sample by sample."""

    def __init__(
        self, cores: int = 4, package: Sequence[Counter] = (), cpu: Sequence[Counter] = ()
    ) -> None:
        hello = made.hello([made.REF, made.CYCLES, *cpu], cores=cores)
        hello.blocks.append(Block("package", "package", [CEILING, *package]))
        self.detector = Detector()
        self.ended: list[Episode] = []
        self.cores, self.now_ns = cores, 0
        self.drops = Drops(Sieve(hello), self.detector)
        self.sums = [0.0] * (4 + sum(c.columns for c in package if c.kind == "flags"))
        self.levels = np.zeros((cores, len(cpu)))

    def go(
        self, depth: float | Sequence[float] = 0.0, *, samples: int = 1, ns: int = S,
        ceiling: float = HZ, util: float | Sequence[float] = 1.0, **whole: float,
    ) -> Walk:  # fmt: skip
        """Cores so far below what their ceiling was at first. `util` NaN: not read. `whole`: of the
        package, by place."""
        for _ in range(samples):
            use = np.broadcast_to(np.asarray(util, float), self.cores)
            run_s = np.nan_to_num(use) * ns / 1e9
            package = list(self.sums)
            for place, value in whole.items():
                package[int(place[1:])] = value
            cycles = run_s * HZ * (1 - np.asarray(depth))
            sums = self.levels * run_s[:, None] * HZ, np.array([package])
            clocks = Clocks(run_s, cycles, use, np.full(self.cores, ceiling), partial(tuple, sums))
            since_ns, self.now_ns = self.now_ns, self.now_ns + ns
            self.ended += self.drops.step(clocks, since_ns, self.now_ns)
        return self

    @property
    def running(self) -> list[Episode]:
        return self.detector.running


def spans(episodes: list[Episode]) -> list[tuple[int, int | None]]:
    """In samples."""
    return [(e.start_ns // S, None if e.end_ns is None else e.end_ns // S) for e in episodes]


def test_it_lasts_from_the_first_sample_that_shows_it_to_the_first_that_does_not() -> None:
    walk = Walk().go(samples=3).go(0.2, samples=4).go(samples=2)
    assert spans(walk.ended) == [(3, 7)]
    (episode,) = walk.ended
    assert (episode.kind, episode.cpus) == ("turbo-drop", list(range(8)))
    assert episode.depth == pytest.approx(0.2 * HZ)
    assert walk.running == []


def test_one_that_runs_is_told_at_once() -> None:
    walk = Walk().go(0.2)
    assert spans(walk.running) == [(0, None)]
    assert walk.running[0].depth == pytest.approx(0.2 * HZ)
    assert walk.ended == []


@pytest.mark.parametrize(("first", "then", "expected"), [
    (START + 0.001, END + 0.001, [(1, None)]),
    (START - 0.001, START - 0.001, []),
    (START + 0.001, END - 0.001, [(1, 2)]),
    (0.2, 0.04, [(1, None)]),
])  # fmt: skip
def test_less_keeps_it_going_than_begins_it(
    first: float, then: float, expected: list[tuple[int, int | None]]
) -> None:
    walk = Walk().go().go(first).go(then, samples=3)
    assert spans([*walk.ended, *walk.running]) == expected


def test_a_deep_and_a_shallow_part_weigh_by_their_time() -> None:
    walk = Walk().go(0.1, samples=2, ns=S).go(0.25, ns=2 * S)
    assert walk.running[0].depth == pytest.approx(0.175 * HZ)


def test_a_core_that_drops_alone_is_told_alone() -> None:
    walk = Walk().go([0, 0.2, 0, 0.04], samples=2)
    assert [e.cpus for e in walk.running] == [[1, 5]]
    assert walk.running[0].depth == pytest.approx(0.2 * HZ)


def test_some_of_many_are_told_together_and_the_others_are_not() -> None:
    walk = Walk().go([0.2, 0, 0, 0.3], samples=2)
    assert [e.cpus for e in walk.running] == [[0, 3, 4, 7]]
    assert walk.running[0].depth == pytest.approx(0.25 * HZ)
    walk.go([0.2, 0.2, 0, 0.3])
    assert [e.cpus for e in walk.running] == [[0, 3, 4, 7], [1, 5]]
    walk.go([0, 0.2, 0, 0])
    assert [e.cpus for e in walk.ended] == [[0, 3, 4, 7]]


def test_a_package_of_which_not_all_show_it_in_its_first_sample_is_one_episode() -> None:
    walk = Walk().go().go([0.06, 0.045, 0.02, 0.045]).go(0.2, samples=3)
    assert spans(walk.running) == [(1, None)]
    assert walk.running[0].cpus == list(range(8))


def test_cores_that_wake_up_in_a_package_that_dropped_join() -> None:
    walk = Walk().go(0.2, util=[1, 1, 1, 0], samples=4)
    assert walk.running[0].cpus == [0, 1, 2, 4, 5, 6]
    walk.go(0.2, samples=4)
    assert [e.cpus for e in walk.running] == [list(range(8))]


def test_a_core_that_hardly_works_or_has_just_woken_up_shows_nothing() -> None:
    assert Walk().go(0.5, util=AWAKE / 2, samples=5).running == []
    walk = Walk().go(util=0, samples=3).go(0.5, samples=2).go(samples=3)
    assert walk.running == walk.ended == []


def test_a_core_that_was_not_read_shows_nothing_of_the_span_that_covers_both() -> None:
    walk = Walk().go(util=[1, NAN, 1, 1]).go([0, 0.1, 0, 0]).go()
    assert walk.running == walk.ended == []


@pytest.mark.parametrize("ceiling", [0.8 * HZ, 1.2 * HZ])
def test_a_step_of_the_ceiling_is_no_drop(ceiling: float) -> None:
    """The clock may follow it in the same sample or may have gone before."""
    follows = 1 - ceiling / HZ
    walk = Walk().go(samples=2).go(ceiling=ceiling).go(follows, ceiling=ceiling, samples=3)
    walk.go(follows).go(samples=2)
    assert walk.running == walk.ended == []


def test_a_clock_that_stays_below_a_ceiling_that_rose_is_a_drop() -> None:
    walk = Walk().go(samples=2).go(ceiling=1.2 * HZ, samples=3)
    assert spans(walk.running) == [(3, None)]
    assert walk.running[0].depth == pytest.approx(0.2 * HZ)


@pytest.mark.parametrize(("util", "ceiling"), [(0.0, HZ), (NAN, HZ), (1.0, NAN)])
def test_no_evidence_ends_nothing_and_begins_nothing(util: float, ceiling: float) -> None:
    walk = Walk().go(0.2, samples=2).go(samples=10, util=util, ceiling=ceiling)
    assert spans(walk.running) == [(0, None)]
    walk.go(0.2, samples=4)
    assert spans(walk.running) == [(0, None)]
    assert Walk().go(0.2, samples=10, util=util, ceiling=ceiling).running == []


def test_of_one_that_is_not_seen_for_long_the_last_that_was_seen_is_the_end() -> None:
    most = GAP_NS // S
    walk = Walk().go(0.2, samples=2).go(util=NAN, samples=most)
    assert spans(walk.running) == [(0, None)]
    assert spans(walk.go(util=NAN).ended) == [(0, 2)]


def test_a_gap_in_the_stream_ends_it_before_the_gap() -> None:
    walk = Walk().go(0.2, samples=2).go(0.2, ns=GAP_NS + S)
    assert spans(walk.ended) == [(0, 2)]
    assert walk.running == []
    assert spans(Walk().go(0.2, samples=2).go(0.2, ns=GAP_NS).running) == [(0, None)]


def test_time_that_goes_back_ends_it() -> None:
    walk = Walk().go(0.2, samples=2).go(0.2, ns=-S)
    assert spans(walk.ended) == [(0, 2)]


def test_cores_of_different_types_do_not_hide_each_other() -> None:
    greeting = made.hello([made.REF, made.CYCLES], cores=4, threads=1)
    rows = [dataclasses.replace(r, type="P" if r.cpu < 3 else "E") for r in greeting.topology]
    greeting = dataclasses.replace(greeting, topology=rows)
    detector = Detector()
    drops = Drops(Sieve(greeting), detector)
    run_s = np.array([1.0, 1.0, 1.0, 3.0])
    ceiling = np.array([3e9, 3e9, 3e9, 2.4e9])
    cycles = run_s * ceiling * [0.92, 0.92, 0.96, 1.0]
    clocks = Clocks(run_s, cycles, np.ones(4), ceiling, lambda: (np.zeros((4, 0)), np.ones((1, 4))))
    drops.step(clocks, 0, S)
    assert [e.cpus for e in detector.running] == [[0, 1, 2]]


# --- causes


def caused(walk: Walk, **sums: Any) -> Episode:
    return walk.go(0.2, samples=4, **sums).running[0]


def polled(**seen: float) -> Episode:
    """Ten polls a sample; so many of which saw a bit."""
    return caused(Walk(package=[ENERGY, LIMIT, REASONS]), s4=10.0, **seen)


def test_the_limit_reason_that_was_seen_most_is_the_cause() -> None:
    episode = polled(s8=9.0, s6=3.0, s10=10.0, s7=0.5)
    assert (episode.cause, episode.confidence) == ("power-pl1", "measured")
    assert episode.evidence["limit reason"] == (
        "bit 3 (PL1) in 36 of 40 polls, bit 1 (thermal) in 12 of 40 polls, "
        "bit 5 (max turbo limit) in 40 of 40 polls"
    )


def test_of_two_that_were_seen_as_often_power_goes_first() -> None:
    assert polled(s5=9.0, s6=9.0, s8=9.0, s9=9.0).cause == "power-pl1"
    assert polled(s5=9.0, s6=9.0).cause == "thermal"
    assert polled(s9=9.0).cause == "current"


def test_a_bit_that_nobody_knows_is_no_cause() -> None:
    episode = polled(s7=10.0)
    assert (episode.cause, episode.confidence) == ("unknown", "unknown")
    assert episode.evidence["limit reason"] == "bit 2 in 40 of 40 polls"
    assert polled().evidence["limit reason"] == "none in 40 polls"


def test_power_at_its_limit_is_inferred() -> None:
    walk = Walk(package=[ENERGY, LIMIT])
    episode = caused(walk, s0=14.9, s1=0.1, s2=150.0, s3=1.0)
    assert (episode.cause, episode.confidence) == ("power-pl1", "inferred")
    assert episode.evidence["limit reason"] == "not told by this source"
    assert (episode.evidence["power_w"], episode.evidence["power_limit_w"]) == (149.0, 150.0)
    episode = caused(Walk(package=[ENERGY, LIMIT]), s0=14.5, s1=0.1, s2=150.0, s3=1.0)
    assert (episode.cause, episode.confidence) == ("unknown", "unknown")
    assert caused(Walk()).cause == "unknown"


def test_wide_code_on_these_cores_goes_before_limits_of_the_package() -> None:
    walk = Walk(cpu=LEVELS, package=[ENERGY, LIMIT, REASONS])
    walk.levels[:] = [[0.0, 0.0], [0.1, 0.8], [0.0, 0.0], [0.0, 0.0]]
    episode = walk.go([0, 0.2, 0, 0], samples=2, s4=10.0, s8=9.0).running[0]
    assert (episode.cpus, episode.cause, episode.confidence) == ([1, 5], "license", "measured")
    assert next(iter(episode.evidence)) == "SIMD"
    assert "PL1" in episode.evidence["limit reason"]
    walk.levels[:] = 0.02
    other = walk.go([0, 0.2, 0.2, 0], samples=1, s4=10.0, s8=9.0).running[1]
    assert (other.cpus, other.cause) == ([2, 6], "power-pl1")


# --- through a session


def test_a_session_tells_it_with_its_evidence() -> None:
    session, interval = seen(Machine(ceiling_hz=3.62e9))
    (episode,) = session.detector.running
    assert episode.depth == pytest.approx(0.62e9)
    assert json.loads(json.dumps(episode.evidence)) == episode.evidence
    assert evidence("unknown", episode.evidence) == (
        "limit reason: not told by this source · busy 3.00 GHz · ceiling 3.62 GHz · active_cores: 4"
    )
    text = strips.text(alert.line(session, interval, Status(0), 160))
    assert text.startswith(" ▼ turbo-drop 0 s  CPU 0-7 −0.62 GHz  unknown · limit reason: ")
    session.ended.clear()
    calm = Machine(ceiling_hz=3.0e9)
    assert seen(calm)[0].detector.running == []
    assert seen(Machine(ceiling_hz=None))[0].detector.running == []


def test_suspect_rows_begin_and_end_nothing() -> None:
    machine = Machine(ceiling_hz=3.62e9, broken={0, 1})
    session, _ = seen(machine)
    (episode,) = [e for e in session.detector.running if e.kind == "turbo-drop"]
    assert episode.cpus == [2, 3, 6, 7]
    everywhere = Machine(ceiling_hz=3.62e9, broken=set(range(8)))
    assert {e.kind for e in seen(everywhere)[0].detector.running} == {"suspect"}


def test_hotplug_goes_on_with_the_same_episode() -> None:
    machine = Machine(ceiling_hz=3.62e9)
    session = Session(machine.hello)
    for seq in range(20):
        if seq in {5, 10}:
            machine.gone ^= {3, 7}
            for cpu in (3, 7):
                data = {"cpu": cpu, "online": seq == 10}
                session.apply(wire.Note("hotplug", seq * S, data=data))
        session.apply(machine.frame(seq))
    drops = [e for e in session.detector.running if e.kind == "turbo-drop"]
    assert spans(drops) == [(0, None)]
    assert [e for e in session.ended if e.kind == "turbo-drop"] == []


def test_a_core_that_was_not_known_before_takes_nothing_from_others() -> None:
    does = {cpu: Does(alone=0.0) for cpu in range(8)}
    machine = Machine(ceiling_hz=3.62e9, gone={3, 7}, does=does)
    rows = [dataclasses.replace(r, online=r.cpu not in {3, 7}) for r in machine.hello.topology]
    machine.hello = dataclasses.replace(machine.hello, topology=rows, cores=machine.hello.cores[:3])
    session = Session(machine.hello)
    for seq in range(12):
        if seq == 5:
            machine.gone.clear()
            for cpu in (3, 7):
                session.apply(wire.Note("hotplug", seq * S, data={"cpu": cpu, "online": True}))
        session.apply(machine.frame(seq))
    (episode,) = [e for e in session.detector.running if e.kind == "turbo-drop"]
    assert (episode.start_ns, episode.cpus) == (0, list(range(8)))


def test_what_is_counted_for_the_machine_is_no_cause_in_a_package() -> None:
    greeting = made.hello(cores=2, threads=1, packages=[[0], [1]])
    greeting.blocks.append(Block("machine", "machine", [ENERGY, LIMIT]))
    counters = Counters(greeting)
    assert Why(counters).packages(counters.nothing()).shape == (2, 4)
