"""Memory controllers: PMUs as listed by the kernel's drivers; their counts add up to the traffic of
a package."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import fakeperf
import pytest
import trees
from fakeperf import AMD, INTEL, Leaves, keys_on, opened_parts

from perfprobe.cpu import topology
from perfprobe.machine.parts import Part
from perfprobe.perf import cores, uncore
from perfprobe.perf.perf_events import Event
from perfprobe.perf.uncore import TRAFFIC_KEYS

MIB = "6.103515625e-5\n"  # MiB of one count, 64 bytes
ICX_FORMAT = {"event": "config:0-7", "umask": "config:8-15"}
ICX_EVENTS = {"cas_count_read": "event=0x04,umask=0x0f", "cas_count_write": "event=0x04,umask=0x30"}
"""As arch/x86/events/intel/uncore_snbep.c describes Ice Lake's."""


def two_packages(root: Path, vendor: str = INTEL, family: int = 6, model: int = 0x6A) -> None:
    """CPUs 0-3 in package 0, 4-7 in package 1."""
    trees.write_machine(root, 4, packages=2)
    fakeperf.write_identity(root, vendor, family, model)
    fakeperf.write_pmu(root, "cpu", 4)


def write_controller(
    root: Path, name: str, number: int, mask: str, formats: dict[str, str], **events: str
) -> None:
    fakeperf.write_pmu(root, name, number, mask=mask)
    at = f"{fakeperf.DEVICES}/{name}"
    for term, bits in formats.items():
        trees.put(root, f"{at}/format/{term}", f"{bits}\n")
    for event, code in events.items():
        trees.put(root, f"{at}/events/{event}", f"{code}\n")
        trees.put(root, f"{at}/events/{event}.scale", MIB)
        trees.put(root, f"{at}/events/{event}.unit", "MiB\n")


def ice_lake_server(root: Path, masks: Sequence[str], **more: str) -> None:
    """Controllers of an Ice Lake-SP, which have the same names in both packages."""
    for i, mask in enumerate(masks):
        write_controller(root, f"uncore_imc_{i}", 40 + i, mask, ICX_FORMAT, **ICX_EVENTS, **more)


def memory_part(root: Path, kernel: fakeperf.Kernel) -> Part:
    rows, kernel.root = topology.read_cpus(root), root
    return uncore.memory_part(kernel, rows, [row for row in rows if row.online])


def codes(kernel: fakeperf.Kernel, group: fakeperf.Group) -> list[tuple[int, int]]:
    """Returns the type and the config of each event in a group."""
    return [(e.type, e.config) for e, *_ in (kernel.opened[fd] for fd in group.fds)]


def test_the_clock_of_each_controller_of_a_server_is_counted(tmp_path: Path) -> None:
    """As uncore_snbep.c describes Ice Lake's: clockticks is event=0x00."""
    two_packages(tmp_path)
    ice_lake_server(tmp_path, ["0,4"] * 3, clockticks="event=0x00")
    kernel = fakeperf.Kernel()
    part = memory_part(tmp_path, kernel)
    assert [(c.key, c.unit, c.columns) for c in part.counters] == [
        *((key, "B", 3) for key in TRAFFIC_KEYS), ("memory_clock", "cycles", 3)
    ]  # fmt: skip
    part.open(0)
    assert codes(kernel, kernel.groups[-1]) == [(42, 0x0F04), (42, 0x3004), (42, 0x0000)]
    assert kernel.groups[-1].at == [0, 3, 6]


@pytest.mark.parametrize(("controllers", "has_clock"), [(31, True), (32, False)])
def test_the_clock_is_left_out_if_it_does_not_fit(
    tmp_path: Path, controllers: int, has_clock: bool
) -> None:
    two_packages(tmp_path)
    ice_lake_server(tmp_path, ["0,4"] * controllers, clockticks="event=0x00")
    part = memory_part(tmp_path, fakeperf.Kernel())
    assert ("memory_clock" in {c.key for c in part.counters}) is has_clock


def test_a_clock_that_some_controllers_lack_is_not_counted(tmp_path: Path) -> None:
    two_packages(tmp_path)
    ice_lake_server(tmp_path, ["0,4"] * 2, clockticks="event=0x00")
    (tmp_path / f"{fakeperf.DEVICES}/uncore_imc_1/events/clockticks").unlink()
    kernel = fakeperf.Kernel()
    part = memory_part(tmp_path, kernel)
    assert [counter.key for counter in part.counters] == [*TRAFFIC_KEYS]
    part.open(0)
    assert [len(group.fds) for group in kernel.groups] == [2, 2]


def test_a_server_has_a_group_for_each_controller(tmp_path: Path) -> None:
    two_packages(tmp_path)
    ice_lake_server(tmp_path, ["0,4"] * 3)
    planner = cores.EventPlanner(tmp_path, topology.read_cpus(tmp_path), lambda _: Leaves())
    kernel = fakeperf.Kernel()
    part = opened_parts(tmp_path, planner, kernel)[2]
    assert (part.scope, keys_on(part)) == ("package", [*TRAFFIC_KEYS])
    assert [(c.unit, c.scale, c.columns) for c in part.counters] == [("B", 64.0, 3)] * 2
    assert part.missing == []
    before = len(kernel.groups)
    slots = part.open(5)
    groups = kernel.groups[before:]
    assert [kernel.opened[group.fds[0]][1] for group in groups] == [4, 4, 4]
    assert [codes(kernel, group) for group in groups] == [
        [(40 + i, 0x0F04), (40 + i, 0x3004)] for i in range(3)
    ]
    assert [slot.column for slot in slots] == [0, 1, 2]
    assert [group.at for group in groups] == [[0, 3]] * 3, "reads, then writes after all reads"


def test_xeon_max_reports_that_its_hbm_is_not_read(tmp_path: Path) -> None:
    """arch/x86/events/intel/uncore_snbep.c, spr_uncore_hbm: event 5, and the umasks of DDR."""
    two_packages(tmp_path, model=0x8F)
    names = {"cas_count_read": "event=0x05,umask=0xcf", "cas_count_write": "event=0x05,umask=0xf0"}
    write_controller(tmp_path, "uncore_imc_0", 40, "0,4", ICX_FORMAT, **names)
    assert memory_part(tmp_path, fakeperf.Kernel()).missing == []
    write_controller(tmp_path, "uncore_hbm_0", 60, "0,4", ICX_FORMAT)
    part = memory_part(tmp_path, fakeperf.Kernel())
    assert [missing.what for missing in part.missing] == ["hbm_bytes"]
    assert keys_on(part) == [*TRAFFIC_KEYS]


def test_granite_rapids_has_two_channels_per_controller(tmp_path: Path) -> None:
    two_packages(tmp_path, model=0xAD)

    def add_controllers(first: int, end: int) -> None:
        for i in range(first, end):
            write_controller(
                tmp_path, f"uncore_imc_{i}", 40 + i, "0,4", ICX_FORMAT,
                cas_count_read_sch0="event=0x05,umask=0xcf",
                cas_count_read_sch1="event=0x06,umask=0xcf",
                cas_count_write_sch0="event=0x05,umask=0xf0",
                cas_count_write_sch1="event=0x06,umask=0xf0",
            )  # fmt: skip

    add_controllers(0, 12)
    kernel = fakeperf.Kernel()
    part = memory_part(tmp_path, kernel)
    assert [c.columns for c in part.counters] == [24, 24]
    slots = part.open(0)
    assert [slot.column for slot in slots] == [*range(0, 24, 2)]
    assert {tuple(group.at) for group in kernel.groups} == {(0, 1, 24, 25)}
    assert codes(kernel, kernel.groups[-1]) == [
        (51, code) for code in (0xCF05, 0xCF06, 0xF005, 0xF006)
    ]
    add_controllers(12, 32)
    (missing, _) = memory_part(tmp_path, kernel).missing
    assert missing.why == "a package has more than 63 memory channels"


def test_clients_have_free_running_counters(tmp_path: Path) -> None:
    """Alder Lake: uncore_imc_0 names no events, and data_read is event=0xff,umask=0x20."""
    two_packages(tmp_path, model=0x97)
    for i in (0, 1):
        write_controller(tmp_path, f"uncore_imc_{i}", 40 + i, "0,4", ICX_FORMAT)
        write_controller(
            tmp_path, f"uncore_imc_free_running_{i}", 50 + i, "0,4", ICX_FORMAT,
            data_read="event=0xff,umask=0x20", data_write="event=0xff,umask=0x30",
        )  # fmt: skip
    kernel = fakeperf.Kernel()
    part = memory_part(tmp_path, kernel)
    assert part.counters[0].origin == "perf uncore_imc_free_running"
    part.open(0)
    assert [codes(kernel, g) for g in kernel.groups] == [[(50, 0x20FF), (50, 0x30FF)],
                                                         [(51, 0x20FF), (51, 0x30FF)]]  # fmt: skip


def test_amd_names_no_events(tmp_path: Path) -> None:
    """Each PMU belongs to one package: arch/x86/events/amd/uncore.c numbers them across packages,
    and has event in config:0-7, rdwrmask in config:8-9."""
    two_packages(tmp_path, AMD, 0x19, 0x11)
    form = {"event": "config:0-7", "rdwrmask": "config:8-9"}
    for i in range(4):
        write_controller(tmp_path, f"amd_umc_{i}", 40 + i, "0" if i < 2 else "4", form)
    kernel = fakeperf.Kernel()
    part = memory_part(tmp_path, kernel)
    assert [(c.unit, c.scale, c.columns) for c in part.counters] == [("B", 64.0, 2)] * 2
    assert [c.parts for c in part.counters] == [["controller 0", "controller 1"]] * 2
    part.open(6)
    results = [kernel.opened[fd][1] for group in kernel.groups for fd in group.fds]
    assert results == [4] * 4
    assert [codes(kernel, g) for g in kernel.groups] == [[(42, 0x10A), (42, 0x20A)],
                                                         [(43, 0x10A), (43, 0x20A)]]  # fmt: skip


def refuse_event(event: Event, _cpu: int, _host_only: bool) -> int:
    return errno.EACCES if event.type == 41 else 0


@pytest.mark.parametrize(("masks", "kernel", "why"), [
    (["0,4", "0,4"], fakeperf.Kernel(refuse=refuse_event), "perf_event_paranoid <= 0 (it is 2)"),
    (["0,4", "0"], fakeperf.Kernel(), "different numbers of memory controllers"),
    (["9", "9"], fakeperf.Kernel(), "different numbers of memory controllers"),
    ([], fakeperf.Kernel(), "shows no memory controllers"),
])  # fmt: skip
def test_missing_traffic_has_its_reason(
    tmp_path: Path, masks: list[str], kernel: fakeperf.Kernel, why: str
) -> None:
    """If one controller cannot be read, each sum would be too small."""
    two_packages(tmp_path)
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "2\n")
    ice_lake_server(tmp_path, masks)
    part = memory_part(tmp_path, kernel)
    assert (part.counters, part.open(0)) == ([], [])
    assert [m.what for m in part.missing] == [*TRAFFIC_KEYS]
    assert why in part.missing[0].why
    assert kernel.opened == {}, "what was tried is closed"


def test_an_unknown_unit_gives_no_traffic(tmp_path: Path) -> None:
    two_packages(tmp_path)
    ice_lake_server(tmp_path, ["0,4"])
    trees.put(tmp_path, f"{fakeperf.DEVICES}/uncore_imc_0/events/cas_count_read.unit", "furlongs\n")
    assert memory_part(tmp_path, fakeperf.Kernel()).counters == []


def test_different_units_are_not_added_up(tmp_path: Path) -> None:
    two_packages(tmp_path)
    ice_lake_server(tmp_path, ["0,4"] * 2)
    for event in ICX_EVENTS:
        trees.put(tmp_path, f"{fakeperf.DEVICES}/uncore_imc_1/events/{event}.scale", "1\n")
    (missing, _) = memory_part(tmp_path, fakeperf.Kernel()).missing
    assert missing.why == "its memory controllers count in different units"


def test_old_amd_names_the_kernel_and_cpus_that_support_it(tmp_path: Path) -> None:
    two_packages(tmp_path, AMD, 0x17, 0x31)
    assert "Linux 6.7" in memory_part(tmp_path, fakeperf.Kernel()).missing[0].why
