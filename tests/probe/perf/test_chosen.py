"""Events of -e: the events that a name opens on each CPU, their groups, and events that do not
fit."""

from __future__ import annotations

import errno
from pathlib import Path

import fakeperf
import pytest
import trees
from fakeperf import TIMES, keys_on, online_rows, opened_parts, skylake, write_machine_files

from perfprobe.cpu import topology
from perfprobe.errors import Unavailable
from perfprobe.perf import chosen_events, perf_pmus
from perfprobe.perf.cores import open_parts
from perfprobe.perf.groups import PerfPart


def open_chosen_events(
    root: Path, kernel: fakeperf.Kernel, text: str, *, multiplex: bool = True, own: bool = True
) -> list[PerfPart]:
    """Opens the events of `text` on a Skylake, after the probe's own counters, which are pinned."""
    rows, groups = topology.read_cpus(root), chosen_events.find_events(root, text)
    online, kernel.root = online_rows(root), root
    if own:
        planner = skylake(root)
        other_group = chosen_events.largest_group_finder(groups, planner.pmus)
        open_parts(kernel, rows, planner, online=online, other_group=other_group)
    pmus = perf_pmus.core_pmus(root)
    return chosen_events.open_chosen(kernel, rows, groups, pmus, online=online, multiplex=multiplex)


def test_software_events_share_a_group_and_need_no_pmu(tmp_path: Path) -> None:
    write_machine_files(tmp_path)
    kernel = fakeperf.Kernel()
    (part,) = open_chosen_events(tmp_path, kernel, "cs,page-faults:u", own=False)
    assert [counter.scale for counter in part.counters[2:]] == [1.0, 1.0]
    assert keys_on(part) == [*TIMES, "e.cs", "e.page-faults:u"]
    assert all(counter.cpus is None for counter in part.counters)
    request = {(e.type, e.config, e.user_only) for e, *_ in kernel.opened.values()}
    assert request == {(1, 3, False), (1, 2, True)}
    assert not any(group.mapped for group in kernel.groups)
    (slot,) = part.open(1)
    assert (slot.column, slot.count) == (0, 4)


@pytest.mark.parametrize(("events", "groups"), [(16, 1), (17, 17)])
def test_a_group_has_a_limited_number_of_events(tmp_path: Path, events: int, groups: int) -> None:
    skylake(tmp_path)
    text = ",".join(f"r{n}" for n in range(1, events + 1))
    parts = open_chosen_events(tmp_path, fakeperf.Kernel(counters=40), text)
    assert len(parts) == groups


def test_events_that_do_not_fit_take_turns(tmp_path: Path) -> None:
    skylake(tmp_path)
    kernel = fakeperf.Kernel(counters=8)
    parts = open_chosen_events(
        tmp_path, kernel, "branches,branch-misses,{cache-references,cache-misses}"
    )
    assert [keys_on(part)[2:] for part in parts] == [
        ["e.cache-references", "e.cache-misses"], ["e.branches"], ["e.branch-misses"],
    ]  # fmt: skip
    with pytest.raises(Unavailable, match="-e branch-misses: no counter is left for it"):
        open_chosen_events(
            tmp_path, fakeperf.Kernel(counters=7), "branches,branch-misses", multiplex=False
        )
    (together,) = open_chosen_events(
        tmp_path, fakeperf.Kernel(counters=8), "branches,branch-misses", multiplex=False
    )
    assert keys_on(together)[2:] == ["e.branches", "e.branch-misses"]


def test_each_core_type_needs_free_counters(tmp_path: Path) -> None:
    write_machine_files(tmp_path)
    fakeperf.write_pmu(tmp_path, "cpu_core", 4, "0,2")
    fakeperf.write_pmu(tmp_path, "cpu_atom", 10, "1,3")
    for taken in ({0: 8}, {1: 8}):
        kernel = fakeperf.Kernel(counters=8, taken=taken)
        with pytest.raises(Unavailable, match="no counter is left for it"):
            open_chosen_events(tmp_path, kernel, "branches", multiplex=False, own=False)


def test_a_group_that_no_cpu_can_hold_is_named(tmp_path: Path) -> None:
    skylake(tmp_path)
    kernel = fakeperf.Kernel(counters=9)
    group = "{" + ",".join(f"r{n}" for n in range(10, 20)) + "},cs"
    soft, hard = open_chosen_events(tmp_path, kernel, group)
    assert soft.missing == []
    assert {missing.what for missing in hard.missing} == {f"e.r{n}" for n in range(10, 20)}
    assert hard.missing[0].why == "this CPU has too few counters for its group"
    assert all(counter.cpus == [] for counter in hard.counters)


def test_an_empty_selection_has_a_reason(tmp_path: Path) -> None:
    write_machine_files(tmp_path)
    with pytest.raises(Unavailable, match="-e cycles: the kernel offers no core PMU"):
        open_chosen_events(tmp_path, fakeperf.Kernel(), "cycles", own=False)
    refused = fakeperf.Kernel(refuse=lambda *_: errno.EACCES)
    with pytest.raises(Unavailable, match=r"-e cs: .*perf_event_open is refused"):
        open_chosen_events(tmp_path, refused, "cs", own=False)
    assert all(group.closed for group in refused.groups)


def test_an_event_of_one_core_type_is_counted_only_there(tmp_path: Path) -> None:
    write_machine_files(tmp_path)
    fakeperf.write_pmu(tmp_path, "cpu_core", 4, "0,2")
    fakeperf.write_pmu(tmp_path, "cpu_atom", 10, "1,3")
    fakeperf.write_events(tmp_path, "cpu_core", slots=4, both=1)
    fakeperf.write_events(tmp_path, "cpu_atom", both=2)
    kernel = fakeperf.Kernel()
    (part,) = open_chosen_events(tmp_path, kernel, "slots,both,instructions", own=False)
    assert {c.key: c.cpus for c in part.counters[2:]} == {
        "e.slots": [0, 2], "e.both": None, "e.instructions": None,
    }  # fmt: skip
    assert [(m.what, m.cpus) for m in part.missing] == [("e.slots", [1, 3])]
    codes = {(cpu, e.type, e.config) for e, cpu, *_ in kernel.opened.values() if e.key != "e.slots"}
    assert {(0, 4, 1), (1, 10, 2), (0, 0, 4 << 32 | 1), (3, 0, 10 << 32 | 1)} <= codes


def test_own_counters_make_room_for_chosen_events(tmp_path: Path) -> None:
    """Skylake's own events need six counters."""
    skylake(tmp_path)
    for taken, given in ((1, set[str]()), (2, {"kernel_instructions"}),
                         (3, {"kernel_instructions", "kernel_cycles"})):  # fmt: skip
        kernel = fakeperf.Kernel(counters=8, taken=taken)
        (part,) = open_chosen_events(tmp_path, kernel, "branches")
        assert part.missing == []
        assert part.counters[0].cpus is None
        live = {event.key for event, _ in kernel.open_events(0)}
        assert {"kernel_instructions", "kernel_cycles"} - live == given


def test_events_that_perftop_counts_need_no_counter_of_their_own(tmp_path: Path) -> None:
    """The reference cycles of Intel have one counter."""
    planner = skylake(tmp_path)
    core, *_ = opened_parts(tmp_path, planner, fakeperf.Kernel())
    text = "ref-cycles,cycles,instructions,cycles:k,ref-cycles:u,branches,cs"
    asked = chosen_events.find_events(tmp_path, text)
    assert chosen_events.always_counted_keys(asked, core.counters) == {
        "e.ref-cycles": "ref", "e.cycles": "cycles", "e.instructions": "instructions",
    }  # fmt: skip
    fakeperf.write_pmu(tmp_path, "cpu_core", 5, "0-3")  # of a hybrid; its type is in the config
    assert (
        chosen_events.always_counted_key(chosen_events.find_events(tmp_path, "cycles")[0])
        == "cycles"
    )
    (tmp_path / fakeperf.DEVICES / "cpu_core/type").unlink()
    in_braces = chosen_events.find_events(tmp_path, "{ref-cycles,r1}")
    assert chosen_events.always_counted_keys(in_braces, core.counters) == {}
    without_ref = [counter for counter in core.counters if counter.key != "ref"]
    assert "e.ref-cycles" not in chosen_events.always_counted_keys(asked, without_ref)


@pytest.mark.parametrize(("watchdog", "why", "fix"), [
    ("0", "perftop's own and other pinned events", "fewer events in braces"),
    ("1", "perftop's own events and the NMI watchdog", "sysctl kernel.nmi_watchdog=0"),
])  # fmt: skip
def test_an_event_that_never_has_a_counter_is_refused_with_the_reason(
    watchdog: str, why: str, fix: str, tmp_path: Path
) -> None:
    skylake(tmp_path)
    trees.put(tmp_path, "proc/sys/kernel/nmi_watchdog", f"{watchdog}\n")
    kernel = fakeperf.Kernel(counters=8, taken=2)
    soft, hard = open_chosen_events(
        tmp_path, kernel, "{branches,branch-misses,cache-misses,r81d0},cs"
    )
    assert soft.missing == []
    assert {missing.what for missing in hard.missing} == {
        "e.branches", "e.branch-misses", "e.cache-misses", "e.r81d0",
    }  # fmt: skip
    assert why in hard.missing[0].why
    assert hard.missing[0].fix is not None
    assert fix in hard.missing[0].fix
    live = {event.key for event, _ in kernel.open_events(0)}
    # Dropping these two would not free enough counters.
    assert {"kernel_instructions", "kernel_cycles"} <= live
    with pytest.raises(Unavailable, match=f"-e branches: no counter is left for it: {why}"):
        open_chosen_events(
            tmp_path, fakeperf.Kernel(counters=8, taken=2), "{branches,branch-misses,r81d0,r1}"
        )


def test_chosen_events_wait_for_their_turn(tmp_path: Path) -> None:
    skylake(tmp_path)
    kernel = fakeperf.Kernel(counters=8, turns=dict.fromkeys(range(4), 8))
    (part,) = open_chosen_events(tmp_path, kernel, "branches")
    assert part.missing == []
    assert part.counters[0].cpus is None
