"""Many machines: their order, causes that they share, filters, racks."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest

from perftop.session.fleet.fleet import Fleet, RowChoice, natural, racks
from perftop.session.fleet.machine import NOTHING, Machine, MachineEpisode, lost, mean

NOW = 1_700_000_000.0


def machine(name: str, lost_: float = 0.0, cause: str = "", start: float = NOW - 60) -> Machine:
    made = Machine(name)
    made.add_numbers(NOW - 1, {**NOTHING, "lost": lost_, "busy": 1.0, "power_w": 100.0})
    if cause:
        made.running = [MachineEpisode(name, "turbo-drop", cause, start, None, 5e8, 1.0)]
    return made


def names(fleet: Fleet, **sight: object) -> list[str]:
    return [m.name for m in fleet.rows(replace(RowChoice(), **sight), NOW)]  # type: ignore[arg-type]


def test_silent_machines_come_first_then_the_greatest_losses() -> None:
    gone = Machine("z9")
    gone.fall_silent(NOW, "refused")
    fleet = Fleet([machine("a", 0.1), machine("b", 0.4), machine("c", nan), gone])
    assert names(fleet) == ["z9", "b", "a", "c"]
    assert names(fleet, reverse=True) == ["z9", "a", "b", "c"]
    assert names(fleet, order="name") == ["z9", "a", "b", "c"]


def test_noise_moves_no_row() -> None:
    fleet = Fleet([machine("a", 0.2511), machine("b", 0.2536)])
    assert names(fleet) == ["a", "b"]


def test_a_shared_cause_is_listed_once() -> None:
    fleet = Fleet([machine(f"n{i}", 0.2, "power-pl1", NOW - i) for i in range(31)])
    fleet.add(machine("m", 0.4, "thermal"))
    shared, alone = fleet.running()
    assert (shared.cause, len(shared.machines), shared.start) == ("power-pl1", 31, NOW - 30)
    assert alone.machines == ("m",)
    assert shared.lost == pytest.approx(31 * 0.2)


def test_two_machines_are_listed_one_by_one() -> None:
    fleet = Fleet([machine("a", 0.2, "power-pl1"), machine("b", 0.2, "power-pl1")])
    assert [each.machines for each in fleet.running()] == [("a",), ("b",)]


def test_episodes_of_two_detectors_with_one_cause_are_joined() -> None:
    one = machine("a")
    one.running = [
        MachineEpisode("a", kind, "hypervisor", NOW - 5, None, 0.1)
        for kind in ("steal", "neighbour")
    ]
    (found,) = Fleet([one]).running()
    assert (found.kind, found.machines) == ("steal", ("a",))


def test_ended_episodes_are_joined_only_if_they_began_together() -> None:
    found = []
    for i in range(4):
        one = machine(f"n{i}")
        for start in (NOW - 500 + i, NOW - 100 - 400 * (i == 3)):
            one.ended.append(
                MachineEpisode(one.name, "turbo-drop", "current", start, start + 3, 1e8)
            )
        found.append(one)
    told = Fleet(found).happened(50)
    assert [len(each.machines) for each in told] == [3, 4]
    assert [each.start for each in told] == [NOW - 100, NOW - 500]


def test_machines_below_their_ceiling_are_counted_over_time() -> None:
    fleet = Fleet([machine("a", 0.1, "thermal"), machine("b", 0.1, "thermal", NOW - 300)])
    assert fleet.below(6, NOW, 360) == [0, 1, 1, 1, 1, 2]


def test_a_filter_asks_for_words_of_name_cause_or_state() -> None:
    gone = Machine("k8n1")
    gone.fall_silent(NOW, "refused")
    fleet = Fleet([machine("k7n1", 0.1, "power-pl1"), machine("k7n2"), gone])
    assert names(fleet, filter="k7") == ["k7n1", "k7n2"]
    assert names(fleet, filter="k7 pl1") == ["k7n1"]
    assert names(fleet, filter="silent") == ["k8n1"]


def test_lost_is_of_the_time_that_was_wanted() -> None:
    found = {**NOTHING, "busy": 0.6, "steal": 0.2, "clock_hz": 2e9, "ceiling_hz": 4e9}
    assert lost(found) == pytest.approx((0.2 + 0.6 * 0.5) / 0.8)
    assert lost(NOTHING) != lost(NOTHING)


def test_means_leave_out_what_is_unknown() -> None:
    a = {**NOTHING, "busy": 1.0, "clock_hz": 2e9, "steal": 0.1}
    b = {**NOTHING, "busy": 0.5, "clock_hz": 3.5e9}
    assert mean([a, b])["clock_hz"] == pytest.approx(2.5e9)
    assert mean([a, b])["steal"] == pytest.approx(0.1)


def test_names_are_ordered_as_people_count() -> None:
    assert sorted(["n10", "n9", "m2", "n9-b"], key=natural) == ["m2", "n9", "n9-b", "n10"]
    found = racks([Machine(name) for name in ("k2n10", "k2n9", "k10n1", "db")])
    assert {rack: [m.name for m in mine] for rack, mine in found.items()} == {
        "db": ["db"], "k2": ["k2n9", "k2n10"], "k10": ["k10n1"],
    }  # fmt: skip
