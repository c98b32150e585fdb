"""Intel's group of issue slots: the machines that have it, and its failures."""

from __future__ import annotations

import errno
from pathlib import Path
from unittest.mock import Mock

import fakeperf
import trees
from fakeperf import TIMES, keys_on, online_rows, write_machine_files

from perfprobe.cpu import topology
from perfprobe.perf import chosen_events, perf_pmus
from perfprobe.perf.chosen_events import TOPDOWN_LEVEL_1, TOPDOWN_LEVEL_2
from perfprobe.perf.groups import PerfPart
from perfprobe.perf.perf_events import NO_LEADER, Event
from perfprobe.wire import Missing

MOVED = {"slots": 1000, "topdown_retiring": 400, "topdown_bad_speculation": 50,
         "topdown_frontend": 150, "topdown_backend": 400}  # fmt: skip


def write_events(root: Path, pmu: str, *tables: dict[str, tuple[str, str]]) -> None:
    """Writes the events of a PMU as Linux lists them: event 0 with a umask of the pseudo code."""
    trees.put(root, f"{fakeperf.DEVICES}/{pmu}/format/event", "config:0-7\n")
    trees.put(root, f"{fakeperf.DEVICES}/{pmu}/format/umask", "config:8-15\n")
    names = [name for table in tables for name, _ in table.values()]
    for at, name in enumerate(names):
        code = "0x4" if name == "slots" else f"0x{0x7F + at:x}"
        trees.put(root, f"{fakeperf.DEVICES}/{pmu}/events/{name}", f"event=0x00,umask={code}\n")


def open_part(root: Path, kernel: fakeperf.Kernel) -> tuple[list[PerfPart], list[Missing]]:
    rows, pmus, kernel.root = topology.read_cpus(root), perf_pmus.core_pmus(root), root
    return chosen_events.open_topdown(kernel, rows, pmus, online=online_rows(root))


def test_ice_lake_has_a_group_led_by_slots(tmp_path: Path) -> None:
    write_machine_files(tmp_path)
    fakeperf.write_pmu(tmp_path, "cpu", 4)
    write_events(tmp_path, "cpu", TOPDOWN_LEVEL_1)
    kernel = fakeperf.Kernel(moved=MOVED)
    (part,), missing = open_part(tmp_path, kernel)
    assert keys_on(part) == [*TIMES, *TOPDOWN_LEVEL_1]
    assert missing == []
    opens = [(e.key, e.config, leader) for e, cpu, leader, _ in kernel.opened.values() if cpu == 1]
    assert [key for key, _, _ in opens[-5:]] == [*TOPDOWN_LEVEL_1]
    assert {(key, config) for key, config, leader in opens if leader == NO_LEADER} == {
        ("slots", 0x400)
    }
    assert ("topdown_backend", 0x8300) in {(key, config) for key, config, _ in opens}
    assert not any(group.mapped for group in kernel.groups)


def test_sapphire_rapids_has_the_second_level_too(tmp_path: Path) -> None:
    write_machine_files(tmp_path)
    fakeperf.write_pmu(tmp_path, "cpu", 4)
    write_events(tmp_path, "cpu", TOPDOWN_LEVEL_1, TOPDOWN_LEVEL_2)
    (part,), _ = open_part(tmp_path, fakeperf.Kernel(moved=MOVED))
    assert keys_on(part) == [*TIMES, *TOPDOWN_LEVEL_1, *TOPDOWN_LEVEL_2]


def test_only_p_cores_of_a_hybrid_have_the_group(tmp_path: Path) -> None:
    write_machine_files(tmp_path)
    fakeperf.write_pmu(tmp_path, "cpu_core", 4, "0,2")
    fakeperf.write_pmu(tmp_path, "cpu_atom", 10, "1,3")
    write_events(tmp_path, "cpu_core", TOPDOWN_LEVEL_1)
    write_events(
        tmp_path, "cpu_atom", {key: TOPDOWN_LEVEL_1[key] for key in [*TOPDOWN_LEVEL_1][1:]}
    )
    (part,), _ = open_part(tmp_path, fakeperf.Kernel(moved=MOVED))
    assert {tuple(counter.cpus or ()) for counter in part.counters} == {(0, 2)}
    assert {m.why for m in part.missing} == {"cores of this type have no PERF_METRICS"}


def test_groups_that_fail_like_real_ones(tmp_path: Path) -> None:
    write_machine_files(tmp_path)
    fakeperf.write_pmu(tmp_path, "cpu", 4)
    parts, (lacking,) = open_part(tmp_path, fakeperf.Kernel())
    assert (parts, lacking.why) == ([], chosen_events.NO_PERF_METRICS)
    write_events(tmp_path, "cpu", TOPDOWN_LEVEL_1)
    zeros = fakeperf.Kernel(moved=MOVED | {"topdown_retiring": 0, "topdown_backend": 0})
    negative = fakeperf.Kernel(moved=MOVED | {"topdown_retiring": -400, "topdown_backend": 1200})

    def refuse_beside_slots(event: Event, _cpu: int, _host: bool) -> int:
        return errno.EINVAL if event.key == "topdown_retiring" else 0

    refusing = fakeperf.Kernel(refuse=refuse_beside_slots)
    denying = fakeperf.Kernel(refuse=lambda *_: errno.EACCES)
    silent = fakeperf.Kernel(moved=dict.fromkeys(MOVED, 0))
    less = fakeperf.Kernel(moved=MOVED | {"topdown_backend": 349})
    more = fakeperf.Kernel(moved=MOVED | {"topdown_backend": 451})
    for kernel in (zeros, negative, refusing, denying, silent, less, more):
        parts, missing = open_part(tmp_path, kernel)
        assert parts == []
        assert [m.what for m in missing] == ["topdown_retiring_ratio"]
        assert (missing[0].why == chosen_events.SLOTS_PROBLEM) == (
            kernel not in (refusing, denying)
        )
        assert all(group.closed for group in kernel.groups)


def test_a_group_that_cannot_be_tried_now_is_used(tmp_path: Path) -> None:
    write_machine_files(tmp_path)
    fakeperf.write_pmu(tmp_path, "cpu", 4)
    write_events(tmp_path, "cpu", TOPDOWN_LEVEL_1)
    waiting = fakeperf.Kernel(counters=5, turns=dict.fromkeys(range(4), 5))
    forbidden = fakeperf.Kernel()
    forbidden.trial = Mock(side_effect=PermissionError)  # type: ignore[method-assign]
    for kernel in (waiting, forbidden):
        (part,), missing = open_part(tmp_path, kernel)
        assert (keys_on(part), missing) == ([*TIMES, *TOPDOWN_LEVEL_1], [])
