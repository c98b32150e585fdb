"""Which counters the perf source has on which machine, and what it says of the others."""

from __future__ import annotations

import errno
from pathlib import Path

import fakeperf
import pytest
import trees

from perfprobe import cpuid, topology, uarch
from perfprobe.sampler import PERF
from perfprobe.sources import perf, perfplan
from perfprobe.sources.part import Part
from perfprobe.wire import Rate

INTEL, AMD = "GenuineIntel", "AuthenticAMD"
SKX, ICX, ALDER = 0x55, 0x6A, 0x97
ALL = ["ref", "cycles", "instructions", "kernel_instructions", "kernel_cycles"]
TIMES = ["perf_enabled_s", "perf_running_s"]


class Leaves:
    """PMU version 4 or 5, and a crystal."""

    def __init__(self, version: int = 4, *, deprecated: bool = False, gp: int = 4) -> None:
        self._read: dict[int, cpuid.Registers] = {
            0: (0x16, 0, 0, 0),
            1: (0, 0, 0, 0),
            0xA: (version | gp << 8 | 48 << 16 | 8 << 24, 0, 0, 3 | 48 << 5 | deprecated << 15),
            0x15: (2, 168, 0, 0),
            0x16: (2100, 3700, 100, 0),
        }

    def __call__(self, leaf: int, _subleaf: int = 0, /) -> cpuid.Registers | None:
        return self._read.get(leaf, (0, 0, 0, 0))


def machine(root: Path, cores: int = 2, threads: int = 2) -> None:
    n = cores * threads
    trees.lists(root, f"0-{n - 1}")
    for cpu in range(n):
        mates = range(cpu % cores, n, cores)
        trees.cpu(root, cpu, 0, cpu % cores, ",".join(map(str, mates)))


def skylake(root: Path) -> perfplan.Planner:
    machine(root)
    fakeperf.identity(root, INTEL, 6, SKX)
    fakeperf.pmu(root, "cpu", 4)
    return perfplan.Planner(root, topology.read(root), lambda _: Leaves())


def opened(root: Path, planner: perfplan.Planner, kernel: fakeperf.Kernel) -> list[Part]:
    return perf.open_perf(root, topology.read(root), planner, kernel=kernel)


def has(part: Part, *, cpu: int | None = None) -> list[str]:
    return [c.key for c in part.counters if cpu is None or c.cpus is None or cpu in c.cpus]


# --- what is opened ------------------------------------------------------------------------------


def test_all_of_a_skylake(tmp_path: Path) -> None:
    kernel = fakeperf.Kernel()
    core, rest = opened(tmp_path, skylake(tmp_path), kernel)
    assert has(core) == [*TIMES, *ALL, "one_thread"]
    assert {(c.bits, c.origin, c.cpus is None) for c in core.counters} == {(64, "perf", True)}
    assert core.missing == []
    assert has(rest) == []
    events = [event for event, cpu, _, _ in kernel.opened.values() if cpu == 0]
    assert [(e.type, e.config, e.kernel) for e in events] == [
        (0, 9, False),
        (0, 0, False),
        (0, 1, False),
        (0, 1, True),
        (0, 0, True),
        (4, 0x23C, False),
    ]
    assert sorted({cpu for _, cpu, _, _ in kernel.opened.values()}) == [0, 1, 2, 3]
    (slot,) = core.open(1)
    assert (slot.kind, slot.column, slot.count) == (PERF, 0, 8)
    assert perf.blocker([core, rest]) is None


def test_groups_that_were_tried_are_used(tmp_path: Path) -> None:
    kernel = fakeperf.Kernel()
    core, _ = opened(tmp_path, skylake(tmp_path), kernel)
    before = len(kernel.groups)
    addresses = [core.open(cpu)[0].arg for cpu in range(4)]
    assert len(kernel.groups) == before == len(set(addresses))
    core.shut(2)
    (again,) = core.open(2)
    assert again.arg not in addresses
    assert len(kernel.groups) == before + 1
    core.close()
    assert all(group.closed for group in kernel.groups)


def test_no_smt_event_where_no_core_has_siblings(tmp_path: Path) -> None:
    machine(tmp_path, 2, 1)
    fakeperf.identity(tmp_path, INTEL, 6, SKX)
    fakeperf.pmu(tmp_path, "cpu", 4)
    planner = perfplan.Planner(tmp_path, topology.read(tmp_path), lambda _: Leaves())
    core, _ = opened(tmp_path, planner, fakeperf.Kernel())
    assert has(core) == [*TIMES, *ALL]


def test_any_thread_is_refused_where_cpuid_says_it_is_gone() -> None:
    """Whatever the kernel lets through, and even if a table named it."""
    raw = uarch.find(INTEL, 6, SKX, 4, Leaves())
    usable = [event.key for event in perfplan.smt_events(raw, Leaves(), 4)]
    assert usable == ["one_thread", "any_thread"]
    any_thread = next(e for e in perfplan.smt_events(raw, Leaves(), 4) if e.key == "any_thread")
    assert any_thread.config == 0x20013C
    for gone in (Leaves(5, deprecated=True), Leaves(4, deprecated=True), Leaves(2)):
        assert [e.key for e in perfplan.smt_events(raw, gone, 4)] == ["one_thread"]
    assert [e.key for e in perfplan.smt_events(raw, cpuid.unreadable, 4)] == ["one_thread"]


def test_ice_lake_has_distributed_for_second_choice(tmp_path: Path) -> None:
    machine(tmp_path)
    fakeperf.identity(tmp_path, INTEL, 6, ICX)
    fakeperf.pmu(tmp_path, "cpu", 4)
    leaves = Leaves(5, deprecated=True, gp=8)
    planner = perfplan.Planner(tmp_path, topology.read(tmp_path), lambda _: leaves)
    refuse = lambda event, _, __: errno.ENOENT if event.key == "one_thread" else 0  # noqa: E731
    core, _ = opened(tmp_path, planner, fakeperf.Kernel(refuse=refuse))
    assert has(core) == [*TIMES, *ALL, "distributed"]
    assert core.missing == []
    assert perfplan.methods(set(has(core))) == ["distributed", "bounds"]
    found = planner.multipliers(set(has(core)), None)
    assert [(m.counter, m.factor) for m in found[:1]] == [("distributed", 84.0)]


def hybrid(root: Path) -> tuple[perfplan.Planner, list[int]]:
    trees.hybrid(root)
    fakeperf.identity(root, INTEL, 6, ALDER)
    fakeperf.pmu(root, "cpu_core", 4, "0-15")
    fakeperf.pmu(root, "cpu_atom", 10, "16-31")
    asked: list[int] = []

    def leaves_of(cpu: int) -> Leaves:
        asked.append(cpu)
        return Leaves(5, deprecated=True, gp=8 if cpu < 16 else 6)

    return perfplan.Planner(root, topology.read(root), leaves_of), asked


def test_hybrids_name_the_pmu(tmp_path: Path) -> None:
    planner, asked = hybrid(tmp_path)
    assert asked == [0, 16]  # CPUID is read on one CPU of each type
    kernel = fakeperf.Kernel()
    core, _ = opened(tmp_path, planner, kernel)
    by_cpu: dict[int, list[tuple[str, int, int]]] = {}
    for event, cpu, _, _ in kernel.opened.values():
        by_cpu.setdefault(cpu, []).append((event.key, event.type, event.config))
    assert by_cpu[3][:3] == [
        ("ref", 0, 4 << 32 | 9),
        ("cycles", 0, 4 << 32 | 0),
        ("instructions", 0, 4 << 32 | 1),
    ]
    assert by_cpu[3][-1] == ("one_thread", 4, 0x23C)
    assert by_cpu[20] == [
        ("ref", 0, 10 << 32 | 9),
        ("cycles", 0, 10 << 32 | 0),
        ("instructions", 0, 10 << 32 | 1),
        ("kernel_instructions", 0, 10 << 32 | 1),
        ("kernel_cycles", 0, 10 << 32 | 0),
    ]
    assert has(core, cpu=3) == [*TIMES, *ALL, "one_thread"]
    assert has(core, cpu=20) == [*TIMES, *ALL]
    assert core.missing == []
    assert core.open(3)[0].count == 8
    assert core.open(20)[0].count == 7


def test_amd_has_its_own_reference_event(tmp_path: Path) -> None:
    machine(tmp_path)
    fakeperf.identity(tmp_path, AMD, 0x1A, 2)
    fakeperf.pmu(tmp_path, "cpu", 4)
    planner = perfplan.Planner(tmp_path, topology.read(tmp_path), lambda _: cpuid.unreadable)
    kernel = fakeperf.Kernel(refuse=lambda e, _, __: errno.ENOENT if e.config == 9 else 0)
    core, _ = opened(tmp_path, planner, kernel)
    assert has(core) == [*TIMES, *ALL]
    assert {e.config for e, *_ in kernel.opened.values() if e.key == "ref"} == {0x100000120}
    assert planner.base_hz(Rate(2e9, "made")) == Rate(
        2e9, "the TSC's: both count at the P0 rate", None
    )


def test_the_msr_pmu_has_a_group_of_its_own(tmp_path: Path) -> None:
    """It takes no turns, so its origin must not say perf."""
    planner = skylake(tmp_path)
    fakeperf.pmu(tmp_path, "msr", 9)
    fakeperf.events(tmp_path, "msr", tsc=0, aperf=1, mperf=2, smi=4)
    planner = perfplan.Planner(tmp_path, topology.read(tmp_path), lambda _: Leaves())
    kernel = fakeperf.Kernel(4, taken=3)
    core, rest = opened(tmp_path, planner, kernel)
    assert has(core) == [*TIMES, "ref"]
    assert has(rest) == ["msr_tsc", "aperf", "mperf", "smi"]
    assert {c.origin for c in rest.counters} == {"msr PMU"}
    assert rest.open(0)[0].count == 4


def test_the_tsc_alone_is_not_worth_a_read(tmp_path: Path) -> None:
    machine(tmp_path)
    fakeperf.pmu(tmp_path, "msr", 9)
    fakeperf.events(tmp_path, "msr", tsc=0)
    planner = perfplan.Planner(tmp_path, topology.read(tmp_path), lambda _: Leaves())
    kernel = fakeperf.Kernel()
    core, rest = opened(tmp_path, planner, kernel)
    assert (has(core), has(rest), kernel.calls) == ([], [], [])
    assert {m.what for m in core.missing} == set(ALL)


# --- what is missing -----------------------------------------------------------------------------


def test_a_cpu_with_fewer_counters_lacks_only_its_own(tmp_path: Path) -> None:
    """Columns stay where they are; its group fills the others."""
    kernel = fakeperf.Kernel(8, taken={2: 4})
    core, _ = opened(tmp_path, skylake(tmp_path), kernel)
    assert has(core, cpu=2) == [*TIMES, "ref", "cycles", "instructions", "one_thread"]
    assert has(core, cpu=1) == [*TIMES, *ALL, "one_thread"]
    assert sorted((m.what, m.cpus) for m in core.missing) == [
        ("kernel_cycles", [2]),
        ("kernel_instructions", [2]),
    ]
    assert core.missing[0].why.startswith("only 4 counters free")


def test_a_gap_in_the_columns(tmp_path: Path) -> None:
    kernel = fakeperf.Kernel(
        refuse=lambda e, cpu, _: errno.ENOENT if (e.key, cpu) == ("cycles", 1) else 0
    )
    core, _ = opened(tmp_path, skylake(tmp_path), kernel)
    for _again in range(2):  # as it was tried, and as it is opened when the CPU comes back
        (slot,) = core.open(1)
        group = next(g for g in kernel.groups if g.address == slot.arg)
        assert group.at == [0, 2, 3, 4, 5]
        assert slot.count == 8
        core.shut(1)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.EMFILE])
def test_nothing_opens(number: int, tmp_path: Path) -> None:
    kernel = fakeperf.Kernel(refuse=lambda _, __, ___: number)
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "2\n")
    parts = opened(tmp_path, skylake(tmp_path), kernel)
    assert parts[0].counters == []
    assert {m.what for m in parts[0].missing} == {*ALL, "one_thread"}
    blocker = perf.blocker(parts)
    assert blocker is not None
    if number == errno.EACCES:
        assert blocker.why.endswith("kernel.perf_event_paranoid <= 0, it is 2")
        assert "setcap" not in (blocker.fix or "")


def test_hosts_of_guests_say_so(tmp_path: Path) -> None:
    kernel = fakeperf.Kernel(refuse=lambda _, __, host: 0 if host else errno.EOPNOTSUPP)
    core, _ = opened(tmp_path, skylake(tmp_path), kernel)
    assert has(core) == [*TIMES, *ALL, "one_thread"]
    assert [(m.what, m.cpus) for m in core.missing] == [("guests", None)]


def test_a_cpu_that_is_off_gets_what_its_like_have(tmp_path: Path) -> None:
    planner = skylake(tmp_path)
    trees.lists(tmp_path, "0-3", "0-2")
    kernel = fakeperf.Kernel()
    core, _ = opened(tmp_path, planner, kernel)
    assert 3 not in {cpu for _, cpu, _, _ in kernel.opened.values()}
    assert all(c.cpus is None for c in core.counters)
    (slot,) = core.open(3)
    assert slot.count == 8


def test_only_what_will_be_read_is_opened(tmp_path: Path) -> None:
    planner = skylake(tmp_path)
    kernel = fakeperf.Kernel()
    perf.open_perf(tmp_path, topology.read(tmp_path), planner, cpus=[0, 2], kernel=kernel)
    assert {cpu for _, cpu, _, _ in kernel.opened.values()} == {0, 2}


# --- cores and packages --------------------------------------------------------------------------


def uncore(root: Path, mask: str = "0") -> None:
    fakeperf.pmu(root, "cstate_core", 20, mask="0-1")
    fakeperf.events(root, "cstate_core", c1_residency=0, c6_residency=2)
    fakeperf.pmu(root, "power", 22, mask=mask)
    fakeperf.events(root, "power", energy_cores=1, energy_pkg=2, energy_ram=3)
    at = f"{fakeperf.DEVICES}/power/events/energy-pkg"
    trees.put(root, f"{at}.scale", "2.3283064365386962890625e-10\n")
    trees.put(root, f"{at}.unit", "Joules\n")


def test_core_and_package_counters(tmp_path: Path) -> None:
    planner = skylake(tmp_path)
    uncore(tmp_path)
    kernel = fakeperf.Kernel()
    _, _, cstate, power = opened(tmp_path, planner, kernel)
    assert (cstate.scope, has(cstate)) == ("core", ["core_c1", "core_c6"])
    assert (power.scope, has(power)) == ("package", ["energy_j", "energy_cores_j", "energy_ram_j"])
    assert power.counters[0].scale == 2**-32
    assert power.counters[0].unit == "J"
    (slot,) = cstate.open(3)
    group = kernel.groups[-1]
    assert slot.count == 2
    assert [kernel.opened[fd][1] for fd in group.fds] == [1, 1]  # the mask's CPU of core 1
    (slot,) = power.open(2)
    assert slot.count == 3
    assert [kernel.opened[fd][1] for fd in kernel.groups[-1].fds] == [0, 0, 0]
    assert not kernel.groups[-1].timed


def test_a_package_of_two_dies_is_the_sum(tmp_path: Path) -> None:
    planner = skylake(tmp_path)
    uncore(tmp_path, mask="0,1")
    kernel = fakeperf.Kernel()
    power = opened(tmp_path, planner, kernel)[-1]
    assert (power.counters[0].key, power.counters[0].columns) == ("energy_j", 2)
    slots = power.open(0)
    assert [slot.count for slot in slots] == [5, 6]
    assert [group.at for group in kernel.groups[-2:]] == [[0, 2, 4], [1, 3, 5]]
    assert [kernel.opened[g.fds[0]][1] for g in kernel.groups[-2:]] == [0, 1]


def test_energy_that_may_not_be_read(tmp_path: Path) -> None:
    planner = skylake(tmp_path)
    uncore(tmp_path)
    refuse = lambda e, _, __: errno.EACCES if e.type == 22 else 0  # noqa: E731
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "2\n")
    power = opened(tmp_path, planner, fakeperf.Kernel(refuse=refuse))[-1]
    assert power.counters == []
    assert {m.what for m in power.missing} == {"energy_j", "energy_cores_j", "energy_ram_j"}
    assert power.open(0) == []
