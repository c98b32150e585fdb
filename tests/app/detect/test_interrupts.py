"""Interrupts that take CPU time from tasks, from simulated records."""

from __future__ import annotations

from typing import Any

import made
import pytest
from fakes import CpuLoad
from record_streams import PER_S, RecordStream

from perftop.output.sentences import sentence, text
from perftop.output.why_report import report
from perftop.output.why_text import lines

NAMES: tuple[list[object], list[object]] = (
    [["36 eth0", 9000]],
    [["RCU", 50_000], ["NET_RX", 40_000]],
)


class Flooded(RecordStream):
    """Two CPUs with one record of tasks a second, and a record of interrupts when CPU 0 has any."""

    def flood(self, entry: object = None, tasks: list[object] | None = None) -> None:
        records: dict[str, Any] = {"tasks": {}, "others": {"0": tasks or []}}
        self.second(records | ({} if entry is None else {"interrupts": {"0": entry}}))


def test_softirqs_are_an_episode_with_kind_and_share() -> None:
    cpu = Flooded()
    for entry in (None, [0.6, 0.0, 0.4, [], []], [0.7, 0.0, 0.3, *NAMES], None, None):
        cpu.flood(entry)
    (result,) = cpu.episodes("interrupt")
    assert (result.cause, result.cpus, result.confidence) == ("softirq", [0], "measured")
    assert result.depth == pytest.approx(0.35)
    second_ns = PER_S * made.SAMPLE_NS
    assert (result.start_ns, result.end_ns) == (second_ns, 3 * second_ns)
    assert result.evidence == {"line": "NET_RX", "came_per_s": 40_000, "raised_by": "36 eth0"}
    words = text(sentence(cpu.session.topology, [result], over=True))
    assert words == "Softirq work (NET_RX) took 35 % of CPU 0"


def test_an_interrupt_line_has_its_name() -> None:
    cpu = Flooded()
    cpu.flood()
    cpu.flood([0.8, 0.2, 0.0, [["local timer interrupts", 99_000], ["36 eth0", 9000]], []])
    (result,) = cpu.episodes("interrupt")
    assert (result.cause, result.evidence["line"]) == ("irq", "36 eth0")


def test_a_task_with_almost_no_cpu_time_loses_most() -> None:
    cpu = Flooded()
    for entry in (None, [0.05, 0.0, 0.93, *NAMES], [0.05, 0.0, 0.93, *NAMES]):
        cpu.flood(entry)
    (result,) = cpu.episodes("interrupt")
    assert result.depth == pytest.approx(0.93)


@pytest.mark.parametrize(
    ("entry", "tasks"),
    [
        ([0.9, 0.0, 0.04, [], []], []),
        ([0.05, 0.0, 0.6, [], []], []),  # no other task wants the CPU
        ([0.2, 0.0, 0.2, [], []], []),  # the CPU has idle time
        ([0.5, 0.0, 0.4, *NAMES], [[17, "ksoftirqd/0", 0.38]]),  # others wait for it
        ([0.5, float("nan"), -1, [], []], []),
        ([0.5, "x", 0.4, [], []], []),
    ],
)  # fmt: skip
def test_small_and_invalid_interrupt_loads_cause_no_episode(
    entry: object, tasks: list[object]
) -> None:
    cpu = Flooded()
    for _ in range(3):
        cpu.flood(entry, tasks)
    assert cpu.episodes("interrupt") == []


@pytest.mark.parametrize(
    ("line", "remedy"),
    [("threshold apic interrupts", "replace the memory"), ("tlb shootdowns", "fewer munmap")],
)
def test_a_line_without_a_device_has_its_name_and_its_remedy(line: str, remedy: str) -> None:
    """Corrected errors of a failing DIMM cause machine check interrupts without a number."""
    cpu = Flooded()
    cpu.session.start_accounts()
    cpu.machine.does = {0: CpuLoad(util=1.0)}
    for _ in range(4):
        cpu.flood([0.8, 0.2, 0.0, [["local timer interrupts", 9000], [line, 4000]], []])
    result = report(cpu.session, cpu.session.run.start_ns)
    (first,) = [finding for finding in result.findings if finding.cause == ("interrupt", "irq")]
    assert first.text == f"Interrupt work ({line}) takes 20 % of CPU 0"
    assert first.hint.startswith(remedy)


def test_a_storm_of_unknown_lines_is_measured_by_softirq_time() -> None:
    cpu = Flooded()
    cpu.session.start_accounts()
    cpu.machine.does = {0: CpuLoad(util=1.0)}
    for _ in range(3):
        cpu.flood([0.6, 0.0, 0.4, [], []])
    result = report(cpu.session, cpu.session.run.start_ns)
    output = lines(cpu.session, result, colour=False, unicode=True)
    assert any("measured: the kernel's account of time in softirqs" in line for line in output)
