"""Groups of perf events on this machine's kernel: software events and the msr PMU."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import command
import pytest
from capabilities import SETGID, SETUID, has_capabilities
from command import python
from waiting import whenever_due

from perfprobe import wire
from perfprobe._native import lib
from perfprobe.cpu import topology
from perfprobe.errors import Unavailable
from perfprobe.kernel import access
from perfprobe.machine.source import Machine
from perfprobe.native.sampler import RowPlan, Sampler, Slot
from perfprobe.opening import open_perf
from perfprobe.perf import cores, perf_pmus
from perfprobe.perf.cores import open_parts
from perfprobe.perf.perf_events import (
    HARDWARE,
    NO_LEADER,
    SOFTWARE,
    Event,
    Group,
    Kernel,
    open_group,
)
from perfprobe.wire import Counter, Cpu
from perftop.session.session import Session

TASK_CLOCK, CPU_CLOCK, FAULTS, SWITCHES = 1, 0, 2, 3
PERIOD_NS = 5_000_000
MAX_TRIALS = 50
"""Maximum number of trials until one is not interrupted by another task."""
CORE = [Event(key, HARDWARE, n) for key, n in (("ref", 9), ("cycles", 0), ("instructions", 1))]


@pytest.fixture
def system() -> Kernel:
    kernel = Kernel()
    try:
        kernel.close(
            kernel.open(
                Event("x", SOFTWARE, CPU_CLOCK, is_core=False), 0, NO_LEADER, host_only=False
            )
        )
    except OSError as error:
        pytest.skip(access.perf_open_problem(error).why)
    return kernel


def test_only_the_perf_source_needs_a_core_pmu() -> None:
    if perf_pmus.core_pmus(Path("/")):
        pytest.skip("there is a core PMU")
    with closing(open_perf("auto", PERIOD_NS, None)) as source:
        assert source.hello.source == "os"
    with pytest.raises(Unavailable, match="the perf source is not available: "):
        open_perf("perf", PERIOD_NS, None)


@pytest.fixture
def cpu() -> int:
    return min(os.sched_getaffinity(0))


def software(*configs: int) -> list[Event]:
    return [Event(f"sw{config}", SOFTWARE, config, is_core=False) for config in configs]


def msr_tsc() -> Event:
    pmu = perf_pmus.find_pmu(Path("/"), "msr")
    config = perf_pmus.event_config(pmu, "tsc") if pmu else None
    if pmu is None or config is None:
        pytest.skip("no msr PMU here")
    return Event("msr_tsc", pmu.type, config, is_core=False)


@pytest.fixture
def group(system: Kernel, cpu: int) -> Iterator[Group]:
    """A group with CPU clock, page faults and TSC, from different PMUs."""
    events = [*software(CPU_CLOCK, FAULTS), msr_tsc()]
    fds: list[int] = []
    for event in events:
        fds.append(system.open(event, cpu, fds[0] if fds else NO_LEADER, host_only=False))
    system.enable(fds[0])
    result = system.group(fds, timed=True, mapped=True)
    yield result
    result.close()


def test_a_real_group_counts(system: Kernel, group: Group, cpu: int) -> None:
    for _ in range(MAX_TRIALS):
        trial = system.trial(group, cpu, 2_000_000)
        clock, _, ticks = trial.counts
        # Otherwise another task ran between the two reads of the TSC.
        if ticks <= 1.05 * trial.tsc_ticks:
            break
    assert trial.counted_share == 1.0
    assert clock >= 2_000_000
    assert 0.5 * trial.tsc_ticks <= ticks <= 1.05 * trial.tsc_ticks
    enabled, running, *_ = group.read()
    assert enabled == running > 2_000_000
    assert not group.uses_rdpmc


def words(sampler: Sampler, n: int) -> list[int]:
    return list(sampler.frame.cast("Q")[:n])


def test_a_real_group_through_the_sampler(group: Group, cpu: int) -> None:
    """The events are spread over columns 1 to 8 of a row; columns without events are not valid."""
    group.set_columns([0, 3, 5])
    assert group.columns == 8
    slot = Slot(lib.PP_PERF, 1, -1, group.address, group.columns)
    n = wire.HEAD + 1 + 9
    seen: list[list[int]] = []
    with Sampler(PERIOD_NS, n) as sampler:
        sampler.attach(cpu, [RowPlan(0, wire.HEAD, 1, wire.HEAD + 1, [slot])])
        for drained in whenever_due(sampler.due_s, sampler.drain, "four rows that were read"):
            row = words(sampler, n)
            if drained is not None and row[4] & ~wire.ROW_WIDE == wire.ROW_SAMPLED:
                seen.append(row)
            if len(seen) == 4:
                break
        assert sampler.stats(cpu).slot_errno == 0
    for a, b in itertools.pairwise(seen):
        assert a[wire.HEAD] == mask(1, 2, 3, 6, 8)
        enabled, running, clock, faults, ticks = (
            b[wire.HEAD + 1 + c] - a[wire.HEAD + 1 + c] for c in (1, 2, 3, 6, 8)
        )
        assert enabled == running > 0
        assert clock > 0
        assert faults >= 0
        assert ticks > 0
        stamps = b[0] - a[0]  # the sampler's TSC, to compare with the kernel's
        assert abs(ticks - stamps) <= (a[1] - a[0]) + (b[1] - b[0])


def mask(*columns: int) -> int:
    return sum(1 << column for column in columns)


def test_a_plan_with_too_few_columns_is_refused(group: Group, cpu: int) -> None:
    with Sampler(PERIOD_NS, 20) as sampler, pytest.raises(OSError, match="Invalid argument"):
        slot = Slot(lib.PP_PERF, 0, -1, group.address, group.columns - 1)
        sampler.attach(cpu, [RowPlan(0, wire.HEAD, 1, wire.HEAD + 1, [slot])])


def test_opening_events_on_the_real_kernel(system: Kernel, cpu: int) -> None:
    """All events count, or the reason is that there is no core PMU."""
    opened = open_group(system, [*CORE, *software(CPU_CLOCK)], cpu, timed=True, with_trial=True)
    assert opened.group is not None
    opened.group.close()
    assert "sw0" in [e.key for e in opened.events]
    if not perf_pmus.core_pmus(Path("/")):
        assert {why.why for why in opened.missing.values()} == {
            "this CPU, or its hypervisor, has no such event"
        }
        assert [e.key for e in opened.events] == ["sw0"]


def test_groups_close_all_descriptors_and_unmap_all_pages(system: Kernel, cpu: int) -> None:
    for _ in range(20):
        opened = open_group(
            system, [*CORE, *software(CPU_CLOCK, SWITCHES)], cpu, timed=True, with_trial=True
        )
        assert opened.group is not None
        opened.group.close()
    assert "perf_event" not in Path("/proc/self/maps").read_text(encoding="utf-8")


# --- from kernel to session -----------------------------------------------------------------------


class EventPlanner:
    """A planner with software events instead of core events: all except the PMU is real."""

    pmus = ("software",)

    def core_events(self, _row: Cpu) -> list[Event]:
        return [
            Event("cycles", SOFTWARE, CPU_CLOCK, is_core=False),
            Event("ref", 4711, 0),  # no PMU has this number
            Event("instructions", SOFTWARE, TASK_CLOCK, is_core=False),
        ]

    def counters(self) -> list[Counter]:
        return [*cores.CORE_COUNTERS]

    def msr_events(self, _row: Cpu) -> list[Event]:
        return [msr_tsc()]


def test_from_the_kernel_to_the_session(system: Kernel) -> None:
    rows = topology.read_cpus()
    planner: Any = EventPlanner()
    parts = open_parts(system, rows, planner, online=rows)
    assert [[c.key for c in part.counters] for part in parts[:2]] == [
        ["perf_enabled_s", "perf_running_s", "cycles", "instructions"],
        ["msr_tsc"],
    ]
    assert [m.what for m in parts[0].missing] == ["ref"]
    source = Machine(Path("/"), 20_000_000, rows, None, parts)
    session = Session(source.hello)
    usable = os.sched_getaffinity(0)
    read_rows = [row for row, cpu in enumerate(rows) if cpu.online and cpu.cpu in usable]
    for messages in whenever_due(source.due_s, source.poll, "12 frames, and 0.1 s of each CPU"):
        for message in messages:
            session.apply(message)
        if session.frames >= 12:
            table = session.run.span.delta.tables["cpu"]
            seconds = table.ticks / session.counters.stamp_hz
            if (seconds[read_rows] > 0.1).all():
                break
    source.close()
    column = {key: session.counters.columns[key].index for key in session.counters.columns}
    for row in read_rows:
        moved = table.increments[row]
        assert moved[column["perf_enabled_s"]] == moved[column["perf_running_s"]]
        assert moved[column["perf_enabled_s"]] == pytest.approx(seconds[row], rel=0.02)
        assert moved[column["cycles"]] * 1e-9 == pytest.approx(seconds[row], rel=0.02)
        assert moved[column["msr_tsc"]] == pytest.approx(table.ticks[row], rel=0.02)
        assert moved[column["instructions"]] == pytest.approx(moved[column["cycles"]], rel=0.02)
    counted = session.counters.counted_share(session.run.span.delta)
    assert counted is not None
    assert session.run.span.suspect_count == 0


def test_no_perf_below_a_directory(tmp_path: Path) -> None:
    result = command.run(
        "stream", "--source", "perf", "--sysroot", str(tmp_path), program="perfprobe"
    )
    assert result.returncode == 2
    assert "perf events are not files" in result.stderr


def test_an_ordinary_user_gets_a_reason(system: Kernel) -> None:
    level = Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii").strip()
    if not has_capabilities(SETUID, SETGID) or int(level) <= 0:
        pytest.skip("needs CAP_SETUID, to become nobody, and a paranoid kernel")
    code = (
        "import os\nfrom perfprobe.perf.perf_events import *\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: Kernel().open(Event('x', 1, 0, is_core=False), 0, -1, host_only=False)\n"
        "except OSError as e: print(access.perf_open_problem(e).why)\n"
    )
    result = python(code)
    assert "needs CAP_PERFMON or kernel.perf_event_paranoid <= 0 (it is " + level in result.stdout
