"""The counter of a CPU's cycles, or why there is none."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import fakeperf
import pytest
import trees

from perfprobe.instruments import ramp
from perfprobe.kernel import access, perf_events


class Direct(fakeperf.Kernel):
    def group(self, fds: Sequence[int], *, timed: bool, mapped: bool = True) -> fakeperf.Group:
        found = super().group(fds, timed=timed, mapped=mapped)
        found.direct = True
        return found


@pytest.mark.parametrize(("pmus", "config"), [
    ({"cpu": (4, None)}, 0),
    ({"cpu_core": (4, "0-1"), "cpu_atom": (10, "2-3")}, 10 << 32),
])  # fmt: skip
def test_cycles_in_all_rings_of_that_cpu(
    tmp_path: Path, pmus: dict[str, tuple[int, str | None]], config: int
) -> None:
    for name, (number, cpus) in pmus.items():
        fakeperf.pmu(tmp_path, name, number, cpus)
    kernel = Direct()
    group = ramp.open_cycles(3, kernel, tmp_path)
    assert kernel.groups == [group]
    ((event, cpu, leader, host_only),) = kernel.opened.values()
    assert (event.type, event.config, event.kernel) == (perf_events.HARDWARE, config, False)
    assert (cpu, leader, host_only) == (3, perf_events.LEADER, False)


def refused(kernel: fakeperf.Kernel, root: Path) -> access.Trouble:
    with pytest.raises(perf_events.Refused) as raised:
        ramp.open_cycles(0, kernel, root)
    assert all(group.closed for group in kernel.groups)
    return raised.value.trouble


def test_why_there_is_no_counter(tmp_path: Path) -> None:
    assert "no core PMU" in refused(Direct(), tmp_path).why
    fakeperf.pmu(tmp_path, "cpu", 4)
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "2\n")
    trees.put(tmp_path, "proc/self/status", "CapEff:\t0000000000000000\n")
    held = refused(Direct(refuse=lambda *_: errno.EACCES), tmp_path)
    assert held.why == "needs CAP_PERFMON or kernel.perf_event_paranoid <= 0, it is 2"
    assert "does not count" in refused(Direct(moved={"cycles": 0}), tmp_path).why
    assert "only 0 counters free" in refused(Direct(1, taken=1), tmp_path).why
    assert "RDPMC may not read it" in refused(fakeperf.Kernel(), tmp_path).why
    trees.put(tmp_path, f"{fakeperf.DEVICES}/cpu/rdpmc", "0\n")
    forbidden = refused(fakeperf.Kernel(), tmp_path)
    assert forbidden.why == "the kernel forbids RDPMC"
    assert forbidden.fix == f"echo 1 | sudo tee {tmp_path}/{fakeperf.DEVICES}/cpu/rdpmc"
