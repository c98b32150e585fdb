"""The counters of the perf source on several machines, and the reasons for missing counters."""

from __future__ import annotations

import errno
from pathlib import Path

import fakeperf
import pytest
import trees
from fakeperf import (
    ALDER,
    ALL,
    AMD,
    ICX,
    INTEL,
    LEVELS,
    LICENSES,
    SKX,
    TIMES,
    Leaves,
    keys_on,
    make_planner,
    opened_parts,
    skylake,
    write_machine_files,
)

from perfprobe._native import lib
from perfprobe.cpu import cpuid, model, topology
from perfprobe.perf import cores
from perfprobe.perf.cores import no_clock_problem
from perfprobe.wire import Rate


def test_groups_that_were_never_read_are_closed(tmp_path: Path) -> None:
    kernel = fakeperf.Kernel()
    parts = opened_parts(tmp_path, skylake(tmp_path), kernel)
    assert kernel.opened
    parts[0].open(1)
    for part in parts:
        part.close()
    assert all(group.closed for group in kernel.groups)


# --- opened events --------------------------------------------------------------------------------


def test_a_skylake_opens_all_its_counters(tmp_path: Path) -> None:
    kernel = fakeperf.Kernel()
    core, rest = opened_parts(tmp_path, skylake(tmp_path), kernel)
    assert keys_on(core) == [*TIMES, *ALL, "one_thread", *LICENSES]
    assert {(c.bits, c.origin, c.cpus is None) for c in core.counters} == {(64, "perf", True)}
    assert core.missing == []
    assert keys_on(rest) == []
    events = [event for event, cpu, _, _ in kernel.opened.values() if cpu == 0]
    assert [(e.type, e.config, e.kernel_only) for e in events] == [
        (0, 9, False), (0, 0, False), (0, 1, False), (0, 1, True), (0, 0, True), (4, 0x23C, False),
        (4, 0x1828, False), (4, 0x2028, False), (4, 0x4028, False),
    ]  # fmt: skip
    assert {(e.config1, e.config2) for e in events} == {(0, 0)}
    opened = [leader for _, cpu, leader, _ in kernel.opened.values() if cpu == 0]
    assert (opened[0], len({*opened[1:]})) == (-1, 1), "perf_event_open: -1 opens a leader"
    assert sorted({cpu for _, cpu, _, _ in kernel.opened.values()}) == [0, 1, 2, 3]
    (slot,) = core.open(1)
    assert (slot.kind, slot.column, slot.count) == (lib.PP_PERF, 0, 11)
    assert no_clock_problem([core, rest]) is None


def test_any_thread_is_refused_if_cpuid_denies_it() -> None:
    """The any-thread event is refused even if the kernel accepts it and a table has it."""
    raw = model.find_uarch(INTEL, 6, SKX, 4, Leaves())
    usable = [event.key for event in cores.smt_events(raw, Leaves(), 4)]
    assert usable == ["one_thread", "any_thread"]
    any_thread = next(e for e in cores.smt_events(raw, Leaves(), 4) if e.key == "any_thread")
    assert any_thread.config == 0x20013C
    for gone in (Leaves(5, deprecated=True), Leaves(4, deprecated=True), Leaves(2)):
        assert [e.key for e in cores.smt_events(raw, gone, 4)] == ["one_thread"]
    assert [e.key for e in cores.smt_events(raw, cpuid.read_no_leaf, 4)] == ["one_thread"]


def test_ice_lake_falls_back_on_distributed(tmp_path: Path) -> None:
    planner = make_planner(tmp_path, INTEL, 6, ICX, Leaves(5, deprecated=True, gp=8))
    refuse = lambda event, _, __: errno.ENOENT if event.key == "one_thread" else 0  # noqa: E731
    core, _ = opened_parts(tmp_path, planner, fakeperf.Kernel(refuse=refuse))
    assert keys_on(core) == [*TIMES, *ALL, "distributed", *LEVELS]
    assert core.missing == []
    assert cores.smt_methods(set(keys_on(core))) == ["distributed", "bounds"]
    multipliers = planner.multipliers(set(keys_on(core)), None)
    assert [(m.counter, m.factor) for m in multipliers[:1]] == [("distributed", 84.0)]


def hybrid(root: Path) -> tuple[cores.EventPlanner, list[int]]:
    trees.write_hybrid(root)
    fakeperf.write_identity(root, INTEL, 6, ALDER)
    fakeperf.write_pmu(root, "cpu_core", 4, "0-15")
    fakeperf.write_pmu(root, "cpu_atom", 10, "16-31")
    asked_cpus: list[int] = []

    def leaves_of(cpu: int) -> Leaves:
        asked_cpus.append(cpu)
        return Leaves(5, deprecated=True, gp=8 if cpu < 16 else 6)

    return cores.EventPlanner(root, topology.read_cpus(root), leaves_of), asked_cpus


def test_hybrids_name_the_pmu(tmp_path: Path) -> None:
    planner, asked_cpus = hybrid(tmp_path)
    assert asked_cpus == [0, 16]  # CPUID is read on one CPU of each type
    kernel = fakeperf.Kernel()
    core, _ = opened_parts(tmp_path, planner, kernel)
    by_cpu: dict[int, list[tuple[str, int, int]]] = {}
    for event, cpu, _, _ in kernel.opened.values():
        by_cpu.setdefault(cpu, []).append((event.key, event.type, event.config))
    for cpu, type_ in ((3, 4), (20, 10)):
        assert by_cpu[cpu][:5] == [
            (key, 0, type_ << 32 | config) for key, config in zip(ALL, (9, 0, 1, 1, 0), strict=True)
        ]
    assert (by_cpu[3][5:], by_cpu[20][5:]) == ([("one_thread", 4, 0x23C)], [])
    assert keys_on(core, cpu=3) == [*TIMES, *ALL, "one_thread"]
    assert keys_on(core, cpu=20) == [*TIMES, *ALL]
    assert core.missing == []
    assert core.open(3)[0].count == 8
    assert core.open(20)[0].count == 7


def test_amd_has_its_own_reference_event(tmp_path: Path) -> None:
    planner = make_planner(tmp_path, AMD, 0x1A, 2, cpuid.read_no_leaf)
    kernel = fakeperf.Kernel(refuse=lambda e, _, __: errno.ENOENT if e.config == 9 else 0)
    core, _ = opened_parts(tmp_path, planner, kernel)
    assert keys_on(core) == [*TIMES, *ALL, "smt_contention"]
    assert core.counters[-1].scale == 1 / 8  # Zen 5 dispatches 8 slots in a cycle
    assert {e.config for e, *_ in kernel.opened.values() if e.key == "ref"} == {0x100000120}
    assert planner.base_hz(Rate(2e9, "made")) == Rate(
        2e9, "that of the TSC: both count at the P0 rate", None
    )


def test_the_base_clock_of_intel_is_that_of_cpuid(tmp_path: Path) -> None:
    expected_rates = ((Leaves(), Rate(2.1e9, "CPUID.16H: 2100 MHz")), (cpuid.read_no_leaf, None))
    for leaves, expected in expected_rates:
        planner = make_planner(tmp_path, INTEL, 6, SKX, leaves)
        assert planner.base_hz(Rate(2e9, "made")) == expected
    amd = make_planner(tmp_path, AMD, 0x1A, 2, cpuid.read_no_leaf)
    assert amd.base_hz(None) is None


def test_the_msr_pmu_has_a_group_of_its_own(tmp_path: Path) -> None:
    """The group is never rotated, so its origin must not begin with perf."""
    planner = skylake(tmp_path)
    fakeperf.write_pmu(tmp_path, "msr", 9)
    fakeperf.write_events(tmp_path, "msr", tsc=0, aperf=1, mperf=2, smi=4)
    planner = cores.EventPlanner(tmp_path, topology.read_cpus(tmp_path), lambda _: Leaves())
    kernel = fakeperf.Kernel(4, taken=3)
    core, rest = opened_parts(tmp_path, planner, kernel)
    assert keys_on(core) == [*TIMES, "ref"]
    assert keys_on(rest) == ["msr_tsc", "aperf", "mperf", "smi"]
    assert {c.origin for c in rest.counters} == {"msr PMU"}
    assert rest.open(0)[0].count == 4


def test_the_tsc_alone_is_not_worth_a_read(tmp_path: Path) -> None:
    write_machine_files(tmp_path)
    fakeperf.write_pmu(tmp_path, "msr", 9)
    fakeperf.write_events(tmp_path, "msr", tsc=0)
    planner = cores.EventPlanner(tmp_path, topology.read_cpus(tmp_path), lambda _: Leaves())
    kernel = fakeperf.Kernel()
    core, rest = opened_parts(tmp_path, planner, kernel)
    assert (keys_on(core), keys_on(rest), kernel.opened) == ([], [], {})
    assert {m.what for m in core.missing} == set(ALL)


# --- missing counters -----------------------------------------------------------------------------


def test_a_cpu_with_fewer_counters_lacks_only_its_own(tmp_path: Path) -> None:
    """Columns keep their positions; the group fills only those of the counters that the CPU has."""
    kernel = fakeperf.Kernel(9, taken={2: 5})
    core, _ = opened_parts(tmp_path, skylake(tmp_path), kernel)
    assert keys_on(core, cpu=2) == [*TIMES, "ref", "cycles", "instructions", "one_thread"]
    assert keys_on(core, cpu=1) == [*TIMES, *ALL, "one_thread", *LICENSES]
    assert sorted((m.what, m.cpus) for m in core.missing) == [
        (key, [2]) for key in sorted(["kernel_cycles", "kernel_instructions", *LICENSES])
    ]
    why = {m.what: m.why for m in core.missing}
    assert why["kernel_cycles"].startswith("only 4 counters free")
    assert why["license_1"] == "this CPU has no counter left for it: other events have them"


def test_simd_levels_are_dropped_first(tmp_path: Path) -> None:
    """A Skylake has 3 fixed and, with SMT, 4 general counters: one is left for the SIMD level that
    most code has."""
    core, _ = opened_parts(tmp_path, skylake(tmp_path), fakeperf.Kernel(7))
    assert keys_on(core) == [*TIMES, *ALL, "one_thread", "license_1"]
    assert [(m.what, m.fix) for m in core.missing] == [
        ("license_2", None),
        ("license_throttle", None),
    ]


def test_columns_of_a_missing_counter_stay_empty(tmp_path: Path) -> None:
    kernel = fakeperf.Kernel(
        refuse=lambda e, cpu, _: errno.ENOENT if (e.key, cpu) == ("cycles", 1) else 0
    )
    core, _ = opened_parts(tmp_path, skylake(tmp_path), kernel)
    for _again in range(2):  # first for the trial, then when the CPU comes online again
        (slot,) = core.open(1)
        group = next(g for g in kernel.groups if g.address == slot.arg)
        assert group.at == [0, 2, 3, 4, 5, 6, 7, 8]
        assert slot.count == 11
        core.close_cpu(1)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.EMFILE])
def test_the_reason_is_reported_if_no_counter_opens(number: int, tmp_path: Path) -> None:
    kernel = fakeperf.Kernel(refuse=lambda _, __, ___: number)
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "2\n")
    parts = opened_parts(tmp_path, skylake(tmp_path), kernel)
    assert parts[0].counters == []
    assert {m.what for m in parts[0].missing} == {*ALL, "one_thread", *LICENSES}
    why_not = no_clock_problem(parts)
    assert why_not is not None
    if number == errno.EACCES:
        assert why_not.why.endswith("kernel.perf_event_paranoid <= 0 (it is 2)")
        assert "setcap" not in (why_not.fix or "")


def test_hosts_of_guests_report_that_guests_are_excluded(tmp_path: Path) -> None:
    kernel = fakeperf.Kernel(refuse=lambda _, __, host: 0 if host else errno.EOPNOTSUPP)
    core, _ = opened_parts(tmp_path, skylake(tmp_path), kernel)
    assert keys_on(core) == [*TIMES, *ALL, "one_thread", *LICENSES]
    assert [(m.what, m.cpus) for m in core.missing] == [("guests", None)]


@pytest.mark.parametrize(("files", "host_only", "is_reported"), [
    (["dev/kvm", "sys/module/kvm/x"], True, True),
    (["dev/kvm"], True, False),  # a device without its module
    (["sys/module/kvm/x", "sys/module/kvm_amd/parameters/enable_mediated_pmu"], True, True),
    (["sys/module/kvm/x"], False, False),
])  # fmt: skip
def test_events_leave_out_guests_where_kvm_may_run_some(
    files: list[str], host_only: bool, is_reported: bool, tmp_path: Path
) -> None:
    """KVM may start no guest with a PMU while an event includes guests."""
    planner = skylake(tmp_path)
    for path in files:
        trees.put(tmp_path, path, "Y\n")
    kernel = fakeperf.Kernel()
    core, _ = opened_parts(tmp_path, planner, kernel)
    assert {host for _, _, _, host in kernel.opened.values()} == {host_only}
    assert [m.what for m in core.missing] == ["guests"] * is_reported
