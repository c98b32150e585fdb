"""Lost time by cause, compared with the scripts of simulated machines; nothing counts twice."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import sim_streams
from fakes import CpuLoad, Machine
from hypothesis import given
from hypothesis import strategies as st
from sessions import session_of
from sim_truth import PLAYED_S, SMALL, found_episodes
from why_reports import session_of_job

from perfprobe import wire
from perftop.model.evaluation import LOSS_PARTS, LostSeconds
from perftop.model.kinds import STEAL_CAUSE, Episode
from perftop.session import loss_history
from perftop.session.episodes import LATE_NS
from perftop.session.history import History
from perftop.session.losses import (
    MAX_UNSETTLED,
    UNEXPLAINED,
    WAIT_CAUSE,
    CauseKey,
    KernelWork,
    Losses,
    LossSums,
    RecordHints,
)
from perftop.session.run_sums import Totals
from perftop.session.session import Session
from perftop.session.task_times import TaskTimes

SECOND = 1_000_000_000
SAMPLE_NS = SECOND // 10
QUEUED = (0.43 * 0.017 * 51 + 0.7 * 0.26 * 9) / (0.43 * 0.967 * 51 + 0.7 * 9)
"""Share of the time for which the database of the guest waits, in 51 s without and 9 s with a
backup."""
LIMIT: CauseKey = ("turbo-drop", "power-pl1")


def lost_time(scenario: str, seconds: float = PLAYED_S, watch: str | None = None) -> LossSums:
    return found_episodes(f"{scenario},{SMALL}", SAMPLE_NS, seconds, watch)[0].run.lost_time()


@pytest.mark.parametrize(("scenario", "watch", "seconds", "cause", "share"), [
    ("turbo-drop", None, PLAYED_S, LIMIT, 620 / 3300 * 2 * 4.1 / 37),
    ("license", None, PLAYED_S, ("turbo-drop", "license"), 500 / 3300 * 11 / 37 / 2),
    ("throttle", None, PLAYED_S, ("throttle", "thermal"), 0.125 * 6 / 37),
    ("halts", None, PLAYED_S, ("involuntary-halt", "clock-change"), (0.1 + 0.12) / 2 / 37),
    ("neighbour", None, PLAYED_S, ("neighbour", "sibling"), 0.31 * 10 / (37 + 10)),
    ("neighbour", "lmp", PLAYED_S, ("neighbour", "sibling"), 0.31 * 10 / 37),
    ("neighbour", "lmp", PLAYED_S, STEAL_CAUSE, 0.2 * 8 / 37),
    ("guest", "postgres", 60, WAIT_CAUSE, QUEUED),
])  # fmt: skip
def test_losses_by_cause_match_the_script(
    scenario: str, watch: str | None, seconds: float, cause: CauseKey, share: float
) -> None:
    sums = lost_time(scenario, seconds, watch)
    assert sums.share(cause) == pytest.approx(share, rel=0.15, abs=0.002), sums.shares()


# --- sums -----------------------------------------------------------------------------------------


def sample(
    losses: Losses, number: int, *, steal_s: float = 0.0, halted_s: float = 0.0,
    clock_s: float = 0.0, waited_s: float = 0.0, run_s: float | None = None,
) -> None:  # fmt: skip
    """A sample of 0.1 s in which both CPUs are busy and lose the same."""
    parts = {"steal": steal_s, "involuntary": halted_s, "clock": clock_s}
    lost = LostSeconds(np.full((1, 2), 0.1), np.array([[[parts[part]] * 2 for part in LOSS_PARTS]]))
    ran = None if run_s is None else np.full(2, run_s)
    since_ns = number * SAMPLE_NS
    losses.add_wait(np.full(2, waited_s))
    losses.add(lost, np.array([since_ns]), np.array([since_ns + SAMPLE_NS]), ran)


def episode(
    cause: CauseKey, cpus: list[int], end_ns: int | None = None, depth: float = 0
) -> Episode:
    return Episode(cause[0], cpus, 0, end_ns, depth, cause[1])


def test_an_episode_is_the_cause_on_its_cpus_and_during_its_time() -> None:
    losses = Losses([4, 7])
    for number in range(4):
        sample(losses, number, clock_s=0.02)
    sums = losses.sums([episode(LIMIT, [7], 2 * SAMPLE_NS)])
    assert sums.by_cause[LIMIT].tolist() == pytest.approx([0, 0.04])
    assert sums.by_cause["turbo-drop", UNEXPLAINED].tolist() == pytest.approx([0.08, 0.04])


def test_two_episodes_do_not_count_the_same_time() -> None:
    losses = Losses([0, 1])
    sample(losses, 0, clock_s=0.02)
    sums = losses.sums([episode(LIMIT, [0, 1]), episode(("license", "level"), [0, 1])])
    assert sums.shares() == {LIMIT: pytest.approx(0.2)}


def test_a_sibling_gets_a_share_of_the_remaining_loss() -> None:
    losses = Losses([0, 1])
    sample(losses, 0, steal_s=0.05)
    sums = losses.sums([episode(("neighbour", "sibling"), [0, 1], depth=0.5)])
    assert sums.shares() == {STEAL_CAUSE: pytest.approx(0.5), ("neighbour", "sibling"): 0.25}


def test_a_power_limited_package_is_part_of_the_clock_loss() -> None:
    losses = Losses([0, 1])
    sample(losses, 0, clock_s=0.02)
    other = episode(("neighbour", "package"), [0, 1], depth=0.2)
    other.evidence["turbo_drop"] = "power-pl1"
    assert losses.sums([other, episode(LIMIT, [0, 1])]).shares() == {LIMIT: pytest.approx(0.2)}


def test_waiting_is_added_to_the_time_of_the_cpu() -> None:
    losses = Losses([0, 1])
    sample(losses, 0, waited_s=0.1)
    assert losses.sums([]).shares() == {WAIT_CAUSE: pytest.approx(0.5)}


def test_a_job_loses_only_on_cpus_where_it_ran() -> None:
    losses = Losses([0, 1])
    for number in range(10):
        sample(losses, number, clock_s=0.02, run_s=0.05)
    sums = losses.sums([episode(LIMIT, [0, 1])])
    assert sums.whole_s == pytest.approx(1)
    assert sums.share(LIMIT) == pytest.approx(0.2)


def test_a_sample_with_an_unknown_part_adds_nothing() -> None:
    losses = Losses([0, 1])
    parts_s = np.zeros((len(LOSS_PARTS), 2))
    parts_s[0, 0] = np.nan
    losses.add(
        LostSeconds(np.full((1, 2), 0.1), parts_s[None]), np.array([0]), np.array([SAMPLE_NS])
    )
    assert losses.sums([]).wanted_s.tolist() == [0.0, 0.1]


def test_stalls_for_memory_share_the_time_in_which_the_job_was_blocked() -> None:
    """A stall gets what it lacks, as long as there is such time."""
    limit, reclaim, swap = (
        ("memory-stall", cause) for cause in ("memory-limit", "reclaim", "swap")
    )
    sums = LossSums(np.ones(2), np.zeros(2), {limit: np.array([0.1, 0.0])})
    stalled_s = {limit: 0.3, reclaim: 0.4, swap: 0.5}
    sums = sums.with_blocked(stalled_s, np.array([0.3, 0.1]))
    assert sums.waited_s.tolist() == pytest.approx([0.3, 0.1])
    assert {cause: seconds.tolist() for cause, seconds in sums.by_cause.items()} == {
        limit: pytest.approx([0.25, 0.05]), reclaim: pytest.approx([0.15, 0.05]),
    }  # fmt: skip


def test_settling_does_not_change_the_sums() -> None:
    losses, ends = Losses([0, 1]), 3 * LATE_NS
    drop = episode(LIMIT, [0, 1], SECOND)
    for number in range(ends // SAMPLE_NS):
        sample(losses, number, clock_s=0.02)
        if losses.oldest_due_ns((number + 1) * SAMPLE_NS) is not None:
            losses.settle([drop], (number + 1) * SAMPLE_NS)
    assert 0 < losses._wanted_s.sum() < losses.sums([]).wanted_s.sum()
    assert losses.sums([]).by_cause[LIMIT].sum() == pytest.approx(0.4)
    assert losses.sums([]).wanted_s.sum() == pytest.approx(2 * ends / SECOND)


def test_the_number_of_unsettled_samples_is_limited() -> None:
    losses = Losses([0, 1])
    for number in range(2 * MAX_UNSETTLED):
        sample(losses, 0, clock_s=0.02)
        if losses.oldest_due_ns(number) is not None:
            losses.settle([], number)
    assert losses._wanted_s.sum() > 0


shares = st.floats(0, 1)


@given(shares, shares, shares, st.floats(0, 5), st.one_of(st.none(), shares), shares)
def test_nothing_counts_twice(
    steal: float, halted: float, clock: float, waited_s: float, ran: float | None, depth: float
) -> None:
    losses = Losses([0, 1])
    steal_s = 0.1 * steal
    halted_s = halted * (0.1 - steal_s)
    clock_s = clock * (0.1 - steal_s - halted_s)
    run_s = None if ran is None else 0.1 * ran
    sample(losses, 0, steal_s=steal_s, halted_s=halted_s, clock_s=clock_s,
           waited_s=waited_s, run_s=run_s)  # fmt: skip
    kinds = [LIMIT, ("throttle", "thermal"), ("involuntary-halt", "smm")]
    results = [episode(cause, [0, 1]) for cause in kinds]
    results += [episode(("neighbour", "sibling"), [0, 1], depth=depth)] * 2
    sums = losses.sums(results)
    if sums.whole_s > 0:
        assert sum(float(lost_s.sum()) for lost_s in sums.by_cause.values()) <= sums.whole_s + 1e-9


# --- sums between two moments equal those of a session that began at the first


SAMPLES, FIRST = 200, 100
STREAMS = [
    ("sim:guest,cpus=2", "postgres"), ("sim:guest,cpus=2", None),
    ("sim:memory,cpus=4,packages=2", None),
]  # fmt: skip


@cache
def totals(spec: str, watch: str | None) -> tuple[Totals, Totals]:
    """Returns the totals since a snapshot of tasks in the middle of a stream: the difference of two
    totals, and those of a session that starts there."""
    hello, messages = sim_streams.messages(spec, SAMPLES, watch=watch)
    first = next(i for i, m in enumerate(messages) if i >= FIRST and "tasks" in m.records)  # type: ignore[union-attr]
    whole, later = Session(hello), Session(replace(hello, raw_ns=messages[first].time_ns))
    for session in (whole, later):
        session.run.track_losses()
    earlier = session_of(whole, messages[: first + 1]).run.totals().copy()
    difference = session_of(whole, messages[first + 1 :]).run.totals().minus(earlier)
    return difference, session_of(later, messages[first:]).run.totals()


@pytest.mark.parametrize(("spec", "watch"), STREAMS)
def test_sums_since_a_moment_are_those_of_a_later_start(spec: str, watch: str | None) -> None:
    difference, later = totals(spec, watch)
    for key in ("start_ns", "end_ns", "elapsed_s"):
        assert getattr(difference, key) == getattr(later, key), key
    assert difference.losses.whole_s == pytest.approx(later.losses.whole_s, rel=0.02, abs=0.02)
    expected = {cause: pytest.approx(share, abs=0.02) for cause, share in
                later.losses.shares().items() if share > 0.02}  # fmt: skip
    shares = difference.losses.shares()
    assert {cause: shares[cause] for cause in expected} == expected
    assert sum(share for cause, share in shares.items() if cause not in expected) < 0.05
    assert difference.span.sample_count == later.span.sample_count
    assert difference.span.suspect_count == later.span.suspect_count
    assert difference.span.read_shares() == later.span.read_shares()
    assert difference.span.delta.skew_ns >= later.span.delta.skew_ns
    for name, table in later.span.delta.tables.items():
        np.testing.assert_allclose(difference.span.delta.tables[name].increments, table.increments)


@pytest.mark.parametrize("is_running", [True, False])
def test_a_span_has_only_its_part_of_a_longer_memory_stall(is_running: bool) -> None:
    session = session_of_job(TaskTimes("job", 0.1, 0.0, {0: 0.1}, 0.5, 0.1, {"D": 0.4, "R": 0.1}))
    start_ns, now_ns = session.run.start_ns, session.now_ns
    end_ns = None if is_running else now_ns + 60 * SECOND
    stall = Episode("memory-stall", [0], start_ns - 60 * SECOND, end_ns, 0.02, "memory-limit")
    session.detector.running.append(stall)
    lost_s = session.run.lost_time().by_cause["memory-stall", "memory-limit"].sum()
    assert lost_s == pytest.approx(0.02 * (now_ns - start_ns) / SECOND)
    ended = Episode("steal", [1, 2], 10 * SECOND, 80 * SECOND, 0.5)
    assert ended.lost_s(40 * SECOND) == 30.0


@pytest.mark.parametrize(("scenario", "watch"), [
    ("turbo-drop", None), ("neighbour", "lmp"), ("memory", None), ("guest", "postgres"),
])  # fmt: skip
def test_the_losses_of_a_past_span_are_those_of_the_live_session(
    scenario: str, watch: str | None
) -> None:
    hello, messages = sim_streams.messages_lasting(f"sim:{scenario},cpus=8", 40.0, watch=watch)
    session = Session(hello, History(hello))
    session.run.track_losses()
    parts = (messages[first : first + 25] for first in range(0, len(messages), 25))
    states = [session_of(session, part).run.totals().copy() for part in parts]
    for earlier, state in zip(states, states[4:], strict=False):
        live, past = state.minus(earlier), session.totals_between(earlier.end_ns, state.end_ns)
        assert past is not None
        assert (past.start_ns, past.end_ns) == (live.start_ns, live.end_ns)
        assert past.span.sample_count == live.span.sample_count
        assert past.losses.wanted_s == pytest.approx(live.losses.wanted_s, abs=0.03)
        assert past.losses.lost_ratio == pytest.approx(live.losses.lost_ratio, abs=0.002)
        named_shares = [
            sum(share for cause, share in part.losses.shares().items() if cause[1] != UNEXPLAINED)
            for part in (past, live)
        ]
        assert named_shares[0] >= 0.98 * named_shares[1], "the causes are known by now"


def test_a_long_past_span_has_the_causes_that_the_session_knows() -> None:
    """The span starts in the middle of an episode, and most of its samples are settled before its
    end. A session that starts there learns of the episode too late."""
    hello, messages = sim_streams.messages_lasting(f"neighbour,{SMALL}", 37.0, SAMPLE_NS)
    middle = next(i for i, m in enumerate(messages) if m.time_ns >= hello.raw_ns + 12 * 10**9)
    session = Session(hello, History(hello))
    session.run.track_losses()
    earlier = session_of(session, messages[:middle]).run.totals().copy()
    live = session_of(session, messages[middle:]).run.totals().minus(earlier)
    past = session.totals_between(earlier.end_ns, session.now_ns)
    assert past is not None
    assert live.losses.share(("neighbour", "sibling")) > 0.02
    assert past.losses.shares() == pytest.approx(live.losses.shares(), abs=0.005)
    live_lost, past_lost = (
        session.interval_for(totals, session.snapshot).values["lost_ratio"]
        for totals in (live, past)
    )
    assert np.nanmax(live_lost) > 0.02
    assert live_lost == pytest.approx(past_lost, abs=0.005, nan_ok=True)


def test_the_losses_of_a_past_span_rest_on_the_numbers_that_the_screen_shows() -> None:
    """Another program takes a counter of CPU 1 before the span, and CPU 3 goes offline after it."""
    machine = Machine(cores=2, threads=2, loads={1: CpuLoad(util=0.9, hz=2e9)})
    notes = {
        50: wire.Note("taken", 50 * SAMPLE_NS, data={"cpus": [1], "counters": ["cycles"]}),
        300: wire.Note("hotplug", 300 * SAMPLE_NS, data={"cpu": 3, "online": False}),
    }
    session = Session(machine.hello, History(machine.hello))
    session.run.track_losses()
    totals = {}
    for seq in range(401):
        if note := notes.get(seq):
            session.apply(note)
        machine.offline_cpus |= {3} if seq == 300 else set()
        session.apply(machine.frame(seq))
        if seq in {100, 200}:
            totals[seq] = session.run.totals().copy()
    live = totals[200].minus(totals[100])
    past = session.totals_between(live.start_ns, live.end_ns)
    shown = session.interval_at(live.end_ns, live.end_ns - live.start_ns)
    assert past is not None
    assert shown is not None
    assert (past.start_ns, past.end_ns) == (live.start_ns, live.end_ns)
    interval = session.interval_for(past, session.snapshot)
    np.testing.assert_array_equal(interval.values.metrics, shown.values.metrics)
    np.testing.assert_array_equal(interval.split.states, shown.split.states)
    np.testing.assert_array_equal(interval.online, shown.online)
    assert np.isnan(shown.values["busy_hz"][1])
    assert shown.online.all()
    assert past.losses.wanted_s == pytest.approx(live.losses.wanted_s)
    lost_s, live_lost_s = (np.sum([*part.losses.by_cause.values()], 0) for part in (past, live))
    assert lost_s == pytest.approx(live_lost_s)
    assert (lost_s > 0).tolist() == [True, False, True, True]


@pytest.mark.parametrize(("is_whole", "first_known_s"), [(False, 101.0), (True, 0.0)])
def test_a_history_keeps_ten_minutes_or_a_whole_recording_in_longer_steps(
    is_whole: bool, first_known_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_history, "MAX_RECORDING_SUMS", 50)
    history = loss_history.LossHistory([0, 1, 1], is_whole=is_whole)
    for half_second in range(1, 1401):
        second = half_second / 2
        lost_s = {("steal", "hypervisor"): second * np.array([0.0, 0.25, 0.25])}
        now_ns, wanted_s = half_second * SECOND // 2, second * np.array([1.0, 1.0, 0.0])
        history.add_losses(0, now_ns, wanted_s, lost_s)
        assert len(history._sums) <= (51 if is_whole else 600)
    steps_ns = np.diff([time_ns for time_ns, *_ in history._sums])
    assert steps_ns.max() <= (32 if is_whole else 1) * SECOND, "all are about equally long"
    edges_ns = np.array([-100, 0, 200, 400, 600, 700, 800]) * SECOND
    known_s, all_wanted_s, all_lost_s = history.between(edges_ns)
    expected = np.array([0.0, 200.0 - first_known_s, 200.0, 200.0, 100.0, 0.0])
    assert known_s == pytest.approx(expected)
    assert all_wanted_s == pytest.approx(2 * expected)
    assert all_lost_s["hypervisor"] == pytest.approx(0.5 * expected)
    shares = history.shares(edges_ns, 1)
    assert shares == pytest.approx([np.nan, *[0.5] * 4, np.nan], nan_ok=True)
    assert history.between(edges_ns[3:5] + 1)[1] == pytest.approx(400.0)


def test_hints_are_checked_and_limited() -> None:
    rows = [["softirq", f"f{n}", 7, "x", SECOND] for n in (*range(1025), 0)]
    log = [["oom", f"n{n}", 2] for n in (*range(65), 0)] + [["oom", "n1", 0], ["oom", "n1", 1]]
    groups = {"/a": [100, 2, 3, 4], "/b": [100, 0, 3, 4], "/c": [0, 2, 3, 4], "/d": [100, 2, 0, 4]}
    hints = RecordHints()
    for span_ns in (SECOND, 0):
        functions = [["softirq", "no time", 7, "x", 0], *rows]
        memory = {"groups": groups if span_ns else {"/a": [100, 0, 3, 4]}, "pids": {}}
        kernel = {"span_ns": span_ns, "functions": functions}
        hints.read_records({"kernel": kernel, "memory": memory, "kernel_log": log})
        log = []
    seconds = [hints.kernel_s[KernelWork("softirq", f"f{n}", 7, "x")] for n in range(1024)]
    assert (seconds, len(hints.kernel_s)) == ([2.0] + [1.0] * 1023, 1024)
    assert hints.kernel_span_s == 1.0
    assert [*hints.messages.values()] == [4, 3] + [2] * 62
    assert [(name, g.pages_read_back) for name, g in hints.groups_at_limit.items()] == [("/a", 3)]


def test_losses_of_parts_of_a_step_are_interpolated_in_that_step() -> None:
    history = loss_history.LossHistory([0])
    for second in range(1, 7):
        history.add_losses(0, second * SECOND, np.array([2.0**second]), {})
    edges_ns = np.array([2.5, 3.5, 4.0, 5.75]) * SECOND
    assert history.between(edges_ns)[1].tolist() == [6.0, 4.0, 40.0]


def test_a_loss_with_a_new_cause_is_moved_to_that_cause_in_each_second() -> None:
    """In the fourth second, episodes are detected that began with the first and the second one, and
    a sibling turns out to have cost less. The first package loses nothing but steal."""
    history = loss_history.LossHistory([0, 1])
    for second, (other, thermal, sibling) in enumerate(
        [(0.1, 0.0, 0.5), (0.3, 0.0, 0.5), (0.5, 0.0, 0.5), (0.1, 0.7, 0.4)], 1
    ):
        history.add_losses(0, second * SECOND, np.full(2, float(second)), {
            ("turbo-drop", UNEXPLAINED): np.array([0.0, other]),
            ("throttle", "thermal"): np.array([0.0, thermal]),
            ("neighbour", "sibling"): np.array([0.0, sibling]),
            STEAL_CAUSE: np.full(2, 0.05 * second),
            ("involuntary-halt", "smm" if second > 3 else "hdc"): np.array([0.01 * second, 0.0]),
        })  # fmt: skip
    _, _, lost_s = history.between(np.arange(5) * SECOND)
    assert {cause: seconds.round(2).tolist() for cause, seconds in lost_s.items()} == {
        UNEXPLAINED: [0.1, 0.0, 0.0, 0.0], "thermal": [0.0, 0.2, 0.2, 0.3],
        "sibling": [0.4, 0.0, 0.0, 0.0], "hypervisor": [0.1] * 4, "smm": [0.01] * 4,
        "hdc": [0.0] * 4,
    }  # fmt: skip


def test_an_estimated_loss_that_falls_takes_nothing_from_a_measured_one() -> None:
    """Time in interrupts is an estimate: less of it is no more loss of the clock."""
    history = loss_history.LossHistory([0])
    for second, (power, softirq) in enumerate([(0.2, 0.4), (0.6, 0.1)], 1):
        history.add_losses(0, second * SECOND, np.full(1, float(second)), {
            ("turbo-drop", "power-pl1"): np.array([power]),
            ("interrupt", "softirq"): np.array([softirq]),
        })  # fmt: skip
    _, _, lost_s = history.between(np.arange(3) * SECOND)
    assert lost_s["power-pl1"] == pytest.approx([0.2, 0.4])
    assert lost_s["softirq"] == pytest.approx([0.1, 0.0])


def test_a_loss_that_falls_again_and_again_corrects_only_the_newest_sums() -> None:
    history = loss_history.LossHistory([0], is_whole=True)
    count = 3 * loss_history.MAX_CORRECTED_SUMS
    for second in range(1, count + 1):
        falling = {("halt", "smm"): np.array([1.0 - second / (2 * count)])}
        history.add_losses(0, second * SECOND, np.full(1, float(second)), falling)
    lost_s = [lost["smm"][0] for _, _, lost in history._sums[1:]]
    is_corrected = np.isclose(lost_s, lost_s[-1])
    assert is_corrected.sum() == loss_history.MAX_CORRECTED_SUMS + 1
    assert is_corrected[-loss_history.MAX_CORRECTED_SUMS :].all()


def test_a_loss_with_a_new_cause_is_not_counted_again_in_a_later_span() -> None:
    """A drop of the first second is detected in the second one; a wait and a sibling are not."""
    unexplained, sibling = ("turbo-drop", UNEXPLAINED), ("neighbour", "sibling")
    before = {unexplained: [0.0, 0.3], WAIT_CAUSE: [0.1, 0.0], sibling: [0.2, 0.0]}
    after = {LIMIT: [0.0, 0.5], WAIT_CAUSE: [0.3, 0.0], sibling: [0.1, 0.0]}
    earlier, later = (
        LossSums(np.full(2, 1.0 + n), np.zeros(2), {c: np.array(s) for c, s in by_cause.items()})
        for n, by_cause in enumerate((before, after))
    )
    shares = later.minus(earlier).shares()
    assert {cause: share for cause, share in shares.items() if share} == {
        LIMIT: pytest.approx(0.1), WAIT_CAUSE: pytest.approx(0.1),
    }  # fmt: skip
