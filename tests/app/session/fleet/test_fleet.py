"""Many machines: order, shared causes, filters, racks; and each of them live."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from math import isnan, nan

import pytest
import sim_streams
import synth
from fakes import CpuLoad, Machine, guest, observe, queue_records

from perfprobe import wire
from perftop.model.kinds import Episode
from perftop.output.sentences import group_key
from perftop.session.fleet import (
    Fleet,
    TableSelection,
    natural_sort_key,
    racks,
)
from perftop.session.fleet_machine import (
    UNKNOWN_NUMBERS,
    LiveMachine,
    LostShareHistory,
    MachineEpisode,
    lost_share,
    main_task,
    read_numbers,
)
from perftop.session.fleet_machine import Machine as Row
from perftop.session.history import History
from perftop.session.losses import WAIT_CAUSE
from perftop.session.session import Session

NOW = 1_700_000_000.0


def machine(name: str, lost_: float = 0.0, cause: str = "", start: float = NOW - 60) -> Row:
    result = Row(name)
    result.add_numbers(NOW - 1, {**UNKNOWN_NUMBERS, "lost": lost_, "busy": 1.0, "power_w": 100.0})
    if cause:
        result.running = [MachineEpisode(name, "turbo-drop", cause, start, None, 5e8, 1.0)]
    return result


def names(fleet: Fleet, **sight: object) -> list[str]:
    return [m.name for m in fleet.rows(replace(TableSelection(), **sight), NOW)]  # type: ignore[arg-type]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("worst", "other"), [
    (("throttle", 0.1, 0.5), ("throttle", 0.9, 0.25)),  # more CPUs count before a greater depth
    (("throttle", 0.9, 0.5), ("throttle", 0.1, 0.5)),
    (("throttle", 0.1, 0.5), ("throttle", None, 0.5)),
    (("throttle", 0.1, 0.1), ("suspect", 0.9, 1.0)), (("throttle", 0.1, 0.1), ("online", 0.9, 1.0)),
    (("throttle", 0.1, 0.1), ("offline", 0.9, 1.0)), (("throttle", 0.1, 0.1), ("ramp", 0.9, 1.0)),
])  # fmt: skip
def test_the_cause_of_a_machine_is_that_of_the_episode_on_most_cpus(
    worst: tuple[str, float, float], other: tuple[str, float | None, float], *, turned: bool
) -> None:
    row = machine("n1")
    row.running = [
        MachineEpisode("n1", kind, cause, NOW - 60, None, depth, share)
        for cause, (kind, depth, share) in (("thermal", worst), ("prochot", other))
    ][:: -1 if turned else 1]
    assert row.cause == ("throttle", "thermal")


@pytest.mark.parametrize(("kind", "cause"), [
    ("steal", "unknown"), ("neighbour", "hypervisor"), ("turbo-drop", "hypervisor"),
    ("neighbour", "sibling"),
])  # fmt: skip
def test_episodes_have_the_groups_of_other_screens(kind: str, cause: str) -> None:
    """A clock that the hypervisor lowers is no steal: it is a cause with a loss of its own."""
    episode = MachineEpisode("n1", kind, cause, NOW - 60, None)
    assert episode.group == group_key(Episode(kind, [0], 0, cause=cause))
    row = machine("n1")
    row.running, row.lost_shares = [episode], {episode.group: 0.2}
    assert Fleet([row]).running()[0].lost == 0.2


def test_the_cost_of_a_probe_is_cpu_time_per_second() -> None:
    hello, messages = sim_streams.messages("steady,cpus=2", 31)
    row = Row("n1")
    live = LiveMachine(row, 0.5)
    live.process([hello, *messages])
    elapsed_s = (live.session.now_ns - hello.raw_ns) / 1e9
    assert elapsed_s > 2
    assert row.probe_share == pytest.approx(live.session.probe_cpu_s() / elapsed_s, rel=0.2)


def test_silent_machines_come_first_followed_by_the_largest_losses() -> None:
    gone = Row("z9")
    gone.fall_silent(NOW, "refused")
    fleet = Fleet([machine("a", 0.1), machine("b", 0.4), machine("c", nan), gone])
    assert names(fleet) == ["z9", "b", "a", "c"]
    assert names(fleet, reverse=True) == ["z9", "a", "b", "c"]
    assert names(fleet, order="name") == ["z9", "a", "b", "c"]


def fleet_of_three() -> Fleet:
    """Machine c is the newest, b has the most episodes and a the most suspect counters; d is
    silent."""
    a, b, c, d = machine("a", 0.3, "thermal"), machine("b", 0.2, "thermal"), machine("c"), Row("d")
    b.running += [MachineEpisode("b", "throttle", "thermal", NOW, None),
                  MachineEpisode("b", "ramp", "-", NOW, None)]  # fmt: skip
    for row, age, suspects, busy, power in ((a, 9, 5, 0.5, 90.0), (b, 7, 1, 1.0, 60.0),
                                            (c, 5, 3, nan, nan), (d, 1, 9, 0.1, 10.0)):  # fmt: skip
        row.set_numbers(NOW - age, {**UNKNOWN_NUMBERS, "busy": busy, "power_w": power}, suspects)
    d.fall_silent(NOW, "refused")
    return Fleet([a, b, c, d])


@pytest.mark.parametrize(("order", "expected"), [
    ("name", "abc"), ("age", "abc"), ("busy", "bac"),
    ("power_w", "abc"), ("power_limit_w", "abc"),
])  # fmt: skip
def test_machines_are_sorted_by_each_number(order: str, expected: str) -> None:
    assert names(fleet_of_three(), order=order) == ["d", *expected]
    unknown = expected[2:] if order in {"busy", "power_w"} else expected if "limit" in order else ""
    known = expected.removesuffix(unknown)
    assert names(fleet_of_three(), order=order, reverse=True) == ["d", *known[::-1], *unknown]


def test_a_shared_cause_is_listed_once() -> None:
    limited = [machine(f"n{i}", 0.2, "power-pl1", NOW - i) for i in range(31)]
    unknown = machine("u", nan, "power-pl1")
    fleet = Fleet([*limited, machine("m", 0.4, "thermal"), unknown])
    unknown.running[0].depth, fleet.machines["n3"].running[0].depth = None, 7e8
    shared, alone = fleet.running()
    assert (shared.cause, len(shared.machines), shared.start) == ("power-pl1", 32, NOW - 60)
    assert (shared.depth, shared.min_depth) == (7e8, 5e8)
    assert alone.machines == ("m",)
    assert shared.lost == pytest.approx(31 * 0.2)


def test_ended_episodes_are_joined_only_if_they_began_together() -> None:
    results = []
    for i in range(4):
        one = machine(f"n{i}")
        for start in (NOW - 500 + 15 * i, NOW - 100 - 400 * (i == 3)):
            one.ended.append(
                MachineEpisode(one.name, "turbo-drop", "current", start, start + 3, 1e8)
            )
        results.append(one)
    report = Fleet(results).newest_episodes(50)
    assert [len(each.machines) for each in report] == [3, 1, 4]
    assert [each.start for each in report] == [NOW - 100, NOW - 455, NOW - 500]


def test_a_filter_matches_names_causes_and_states() -> None:
    gone = Row("k8n1")
    gone.fall_silent(NOW, "refused")
    fleet = Fleet([machine("k7n1", 0.1, "power-pl1"), machine("k7n2"), gone, Row("new")])
    assert names(fleet, filter="k7") == ["k7n1", "k7n2"]
    assert names(fleet, filter="k7 pl1") == ["k7n1"]
    assert names(fleet, filter="silent") == ["k8n1", "new"]
    assert names(fleet, filter="suspect") == []


def test_lost_time_is_relative_to_the_wanted_time() -> None:
    results = {**UNKNOWN_NUMBERS, "busy": 0.6, "steal": 0.2, "clock_hz": 2e9, "ceiling_hz": 4e9}
    assert lost_share(results) == pytest.approx((0.2 + 0.6 * 0.5) / 0.8)
    assert lost_share(UNKNOWN_NUMBERS) != lost_share(UNKNOWN_NUMBERS)
    assert lost_share({**results, "busy": 0.0, "steal": 0.0}) == 0.0, "the machine is idle"


@pytest.mark.parametrize(("share", "is_named"), [(0.01, True), (0.0099, False)])
def test_the_largest_loss_is_named_from_one_per_cent_on(share: float, *, is_named: bool) -> None:
    row = machine("n1")
    row.lost_shares = {WAIT_CAUSE: share}
    assert (row.cause == WAIT_CAUSE) is is_named
    assert (row.lost_to(WAIT_CAUSE), row.lost_to(("steal", "hypervisor"))) == (share, 0.0)


def test_without_shares_the_loss_beside_steal_is_that_of_the_cause() -> None:
    row = machine("n1", cause="thermal")
    row.numbers = {**UNKNOWN_NUMBERS, "busy": 0.6, "steal": 0.2, "lost": 0.5}
    causes = ("steal", "hypervisor"), ("turbo-drop", "thermal"), ("turbo-drop", "policy")
    assert [row.lost_to(cause) for cause in causes] == pytest.approx([0.25, 0.25, 0.0])
    assert isnan(row.lost_to(WAIT_CAUSE))


def test_numbers_are_means_of_at_most_a_hundred_samples() -> None:
    row = Row("n1")
    for number in range(150):
        row.add_numbers(NOW, {**UNKNOWN_NUMBERS, "busy": number})
    assert row.numbers["busy"] == 99.5


@pytest.mark.parametrize(("unknown", "ceiling_hz", "below"), [
    ("", 3e9, 0.75), ("busy_hz", 2e9, 0.5), ("ceiling", 2e9, 0.5),
])  # fmt: skip
def test_clocks_and_ceilings_are_weighted_with_the_work_of_cores(
    unknown: str, ceiling_hz: float, below: float
) -> None:
    """Core 0 is busy twice as much as cores 1 and 2, core 3 not at all. `unknown` is what is not
    known of core 0."""
    session, interval = observe(Machine(cores=4, threads=1))
    columns = {"util": interval.values["util"], "busy_hz": interval.values["busy_hz"],
               "ceiling": interval.ceiling_hz}  # fmt: skip
    columns["util"][:] = 1.0, 0.5, 0.5, 0.0
    columns["busy_hz"][:] = 3e9, 2e9, 1e9, nan
    columns["ceiling"][:] = 4e9, 2e9, 2e9, 2e9
    if unknown:
        columns[unknown][0] = nan
    numbers = read_numbers(session, interval)
    assert (numbers["ceiling_hz"], numbers["below"]) == (ceiling_hz, below)


def test_names_are_sorted_by_their_numbers() -> None:
    names = ["n10", "n9", "m2", "n9-b", "n1", "n"]
    assert sorted(names, key=natural_sort_key) == ["m2", "n", "n1", "n9", "n9-b", "n10"]
    result = racks([Row(name) for name in ("k2n10", "k2n9", "k10n1", "db")])
    assert {rack: [m.name for m in mine] for rack, mine in result.items()} == {
        "db": ["db"], "k2": ["k2n9", "k2n10"], "k10": ["k10n1"],
    }  # fmt: skip


# --- one machine, live


START = 1_700_000_000.0


def row_after_samples(
    machine: Machine, samples: int = 3, late_s: float = 0.0,
    later_loads: dict[int, CpuLoad] | None = None,
) -> Row:  # fmt: skip
    """Returns a machine's row after this number of samples; frame n arrives `late_s` after n
    samples. `later_loads`: those of the second half."""
    row = Row("n1")
    arrivals = iter([START] + [START + seq * synth.SAMPLE_NS / 1e9 + late_s
                               for seq in range(samples + 1)])  # fmt: skip
    live = LiveMachine(row, 0.1, lambda: next(arrivals))
    live.process([machine.hello])
    for seq in range(samples + 1):
        if seq == samples // 2 and later_loads is not None:
            machine.loads = later_loads
        live.process([machine.frame(seq)])
    return row


def test_suspect_samples_are_counted_once() -> None:
    machine, row, times = Machine(), Row("n1"), itertools.count(START, 0.1)
    live = LiveMachine(row, 0.1, lambda: next(times))
    live.process([machine.hello])
    for seq in range(5):
        live.process([machine.frame(seq)])
        live.session.run.span.suspect_count += 1
    assert row.suspect_count == 4


def test_episodes_have_arrival_times() -> None:
    """The least delayed frame gives the offset between the two clocks."""
    loads = {cpu: CpuLoad(1.0, hz=2.4e9 if cpu in {0, 4} else 3.2e9) for cpu in range(8)}
    row = row_after_samples(Machine(loads=loads), 40, late_s=2.0)
    (event,) = [event for event in row.running if event.kind == "turbo-drop"]
    assert START + 2 <= event.start <= START + 2 + 4
    assert event.share == 2 / 8
    assert event.depth == pytest.approx(0.8e9, rel=0.01)
    assert row.cause == event.group
    fast = {cpu: CpuLoad(1.0, hz=3.2e9) for cpu in range(8)}
    row = row_after_samples(Machine(loads=loads), 80, late_s=2.0, later_loads=fast)
    (ended,) = [event for event in row.ended if event.kind == "turbo-drop"]
    assert ended.start == event.start
    assert ended.end == pytest.approx(START + 2 + 4, abs=0.11)


def test_a_silent_machine_keeps_its_history_but_no_current_values() -> None:
    row = row_after_samples(
        Machine(loads={cpu: CpuLoad(util=1.0, hz=2.4e9) for cpu in range(8)}), 40
    )
    heard = row.updated_at
    row.fall_silent(heard + 60, "the link broke", heard + 62)
    assert not row.is_answering
    assert row.numbers == UNKNOWN_NUMBERS
    assert row.silent_since == heard
    assert row.running == []
    assert row.ended[-1].end == heard
    assert len(row.history.times) > 0


def test_frames_without_a_hello_are_refused() -> None:
    machine = Machine()
    with pytest.raises(wire.WireError):
        LiveMachine(Row("n1")).process([machine.frame(0)])


def test_the_history_is_bounded_and_evenly_spaced() -> None:
    past = LostShareHistory()
    for second in range(2000):
        past.add(START + second, second / 2000)
    assert len(past.times) == 600
    result = past.series(6, START + 2000)
    assert result == sorted(result)
    assert result[-1] == pytest.approx(0.975, abs=0.03)
    assert isnan(past.series(6, START + 2500)[-1])


@pytest.mark.parametrize(("times", "means"), [
    (range(-290, 50, 10), [nan, nan, -245, -145, -45, 25]),
    (range(-290, 0, 10), [nan, nan, -245, -145, -50, -50]),  # its next point will come soon
    (range(-295, -20, 10), [nan, nan, -250, -150, -60, nan]),  # two points are missing
    ((-550, -450, -350, -150, -50, 50), [-450, -350, -350, -150, -50, 50]),
    ((*range(-590, -400, 10), 50), [-450, nan, nan, nan, nan, 50]),
    ((-250, 150), [nan, nan, -250, -250, -250, -250]),  # from a time after the last part
    ((), [nan] * 6),
])  # fmt: skip
def test_parts_of_the_history_without_a_point_have_the_value_before_them_if_it_is_near(
    times: Iterable[int], means: list[float]
) -> None:
    """Six parts of 100 s end 100 s after `START`; it is now 50 s after it."""
    past = LostShareHistory()
    for time in times:
        past.add(START + time, time)
    assert past.series(6, START + 50) == pytest.approx(means, abs=1, nan_ok=True)


def test_lost_time_equals_the_verdict_over_ten_seconds() -> None:
    """For 15 s no task waits, then two tasks share a CPU; the other CPU is idle."""
    machine = guest({0: CpuLoad(util=1.0, system=0.0), 1: CpuLoad(util=0.0, system=0.0)})
    row = Row("n1")
    live, session = LiveMachine(row, 1.0), Session(machine.hello, History(machine.hello))
    session.run.track_losses()
    live.process([machine.hello])
    for seq in range(301):
        wait = 0.5 if seq > 150 else 0.0
        records = queue_records(cpu0=[(1, "a", 0.5, wait), (2, "b", 0.5, wait)])
        frame = machine.frame(seq, records={} if seq % 10 else records)
        live.process([frame])
        session.apply(frame)
    totals = session.totals_between(session.now_ns - 10 * 10**9, session.now_ns)
    assert totals is not None
    assert row.numbers["lost"] == pytest.approx(totals.losses.lost_ratio, abs=0.06)
    assert row.numbers["lost"] == pytest.approx(0.5, abs=0.06)
    cause, share = row.largest_loss or (("", ""), 0.0)
    assert cause == WAIT_CAUSE
    assert share == pytest.approx(0.5, abs=0.06)
    assert row.cause == WAIT_CAUSE, "although no episode runs"
    row.fall_silent(NOW, "no answer")
    assert row.cause == ("", "")


def test_the_task_that_waits_most_is_that_of_the_same_ten_seconds_as_the_loss() -> None:
    """In the last second, lmp has ended, and cron waits hardly at all."""
    machine = guest({0: CpuLoad(util=1.0, system=0.0), 1: CpuLoad(util=0.0, system=0.0)})
    row = Row("n1")
    live = LiveMachine(row, 1.0)
    live.process([machine.hello])
    for seq in range(101):
        name, wait = ("lmp", 0.5) if seq < 90 else ("cron", 0.01)
        records = queue_records(
            cpu0=[(1, name, 0.5, wait), (2, "stream", 0.5, 0.0)], cpu1=[(3, name, 0.9, 0.0)]
        )
        live.process([machine.frame(seq, records={} if seq % 10 else records)])
    assert row.largest_loss is not None
    assert row.largest_loss[0] == WAIT_CAUSE
    assert row.waiting_task == "lmp"
    assert row.tasks == "cron × 1.4 CPUs"


@pytest.mark.parametrize(
    ("records", "victim"),
    [([[1, "stream", 0.9], [2, "lmp", 0.6], None, "bad"], "lmp"),
     ([[2, "lmp", 0.49], [3, "lmp2", 0.5]], "lmp2"),
     ([[1, "stream", 0.9], [2, "lmp", 0.4]], ""), ([], "")],
)  # fmt: skip
def test_the_task_that_loses_runs_most_and_is_not_the_taker(
    records: list[object], victim: str
) -> None:
    assert main_task(records, {1}) == victim
