"""States from the kernel's idle transitions, through the sampler, the wire and the session. This
machine may have no siblings, so the tests treat two of its CPUs as siblings."""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from attempts import up_to_three_attempts
from capabilities import cannot_trace, setpriv
from command import burning_cpu, python
from nightly import cases_by_day
from traced import busy_ns
from waiting import whenever_due

from perfprobe import wire
from perfprobe.machine import idle
from perfprobe.machine.source import Machine, os_parts
from perfprobe.native.sampler import Slot
from perfprobe.wire import Cpu
from perftop.session.interval import Interval
from perftop.session.session import Session

CPUS = sorted(os.sched_getaffinity(0))[:2]


def unavailable() -> str:
    if len(CPUS) < 2:
        return "two CPUs are needed"
    return cannot_trace()


pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "it can be traced")


def measure(seconds: float) -> tuple[Session, Interval]:
    rows = [Cpu(cpu, True, 0, 0, 0, lp, siblings=CPUS) for lp, cpu in enumerate(CPUS)]
    parts = [*idle.open_traced_parts(rows), *os_parts(Path("/nothing"), rows)]
    source = Machine(Path("/"), 50_000_000, rows, None, parts)
    session = Session(source.hello)
    end = time.monotonic() + seconds
    try:
        for messages in whenever_due(source.due_s, source.poll, f"{seconds} s"):
            for message in messages:
                data = wire.encode(source.hello) + wire.encode(message)
                session.apply(list(wire.Decoder().feed(data))[1])
            if time.monotonic() > end:
                break
    finally:
        source.close()
    return session, session.take_interval()


@pytest.mark.parametrize("lp", cases_by_day([0, 1], [1]))
@up_to_three_attempts
def test_busy_and_idle_siblings_are_distinguished(lp: int) -> None:
    """The other CPU's load is unknown: the states must agree with its own busy time."""
    with burning_cpu(CPUS[lp]):
        session, interval = measure(1.0)
    assert session.hello.smt_methods[0] == "traced"
    assert interval.split.method == ["traced"]
    states = interval.split.shares(0)
    busy_share, other_share = states["lp0"] + states["both"], states["lp1"] + states["both"]
    if lp:
        busy_share, other_share = other_share, busy_share
    assert busy_share > 0.98
    assert states["neither"] < 0.02
    assert sum(states.values()) == pytest.approx(1)
    steal = interval.values["steal"]
    util = interval.values["util"] + steal
    assert busy_share == pytest.approx(util[lp], abs=0.01)
    assert other_share == pytest.approx(util[1 - lp], abs=0.01)
    assert session.run.span.suspect_count == 0


def assert_a_busy_cpu_is_traced(rows: list[Cpu], *, closed_first: bool) -> None:
    """Checks that the second CPU is opened while it is busy, and that its busy time follows the
    clock."""
    cpu = CPUS[1]
    part, *_ = idle.open_traced_parts(rows)
    assert isinstance(part, idle.TracedPart)
    assert part._trace is not None
    try:
        with burning_cpu(cpu):
            if closed_first:
                part.close_cpu(cpu)
            assert part.open(cpu)
            before_ns, start_ns = busy_ns(part._trace, cpu), time.monotonic_ns()
            time.sleep(0.1)
            after_ns, lasted_ns = busy_ns(part._trace, cpu), time.monotonic_ns() - start_ns
    finally:
        part.close()
    assert before_ns is not None
    assert after_ns is not None
    assert after_ns - before_ns > 0.9 * lasted_ns


@up_to_three_attempts
def test_a_busy_cpu_that_returns_counts_as_busy() -> None:
    """The CPU has no idle transition while it stays busy."""
    rows = [Cpu(cpu, True, 0, 0, index, 0) for index, cpu in enumerate(CPUS)]
    assert_a_busy_cpu_is_traced(rows, closed_first=True)


def test_one_part_reports_offline_cpus_to_the_trace_and_closes_it() -> None:
    trace = Mock()
    slots = {0: [Slot(1, 0, 0)], 1: [Slot(1, 0, 1)]}
    owner = idle.TracedPart(trace, "cpu", [idle.BUSY], slots, [1])
    states = idle.TracedPart(None, "core", [], slots)
    for part in (owner, states):
        part.close_cpu(0)
        part.close_cpu(9)  # a CPU that is not traced
        assert [part.open(cpu) for cpu in (0, 1, 9)] == [slots[0], slots[1], []]
        part.close()
    assert trace.mock_calls == [
        call.mark_offline(1), call.mark_offline(0), call.learn_states([0]), call.learn_states([1]),
        call.close(),
    ]  # fmt: skip


@up_to_three_attempts
def test_a_cpu_that_comes_online_later_is_traced() -> None:
    """The kernel does not describe the core of an offline CPU."""
    rows = [Cpu(CPUS[0], True, 0, 0, 0, 0), Cpu(CPUS[1], False)]
    assert_a_busy_cpu_is_traced(rows, closed_first=False)


def test_utilisation_names_its_origin() -> None:
    session, _ = measure(0.3)
    origin = session.evaluator.origin("util") or ""
    assert "idle transitions" in origin


def test_cores_of_one_and_of_four_threads_share_no_states() -> None:
    assert idle._cores_by_cpu([[0], [1]], [0, 1]) == {0: (0, 0), 1: (1, 0)}
    assert idle._cores_by_cpu([[0, 4], [1, 5], [2, 3, 6, 7], [8]], range(9)) == {
        0: (0, 0), 4: (0, 1), 1: (1, 0), 5: (1, 1),
        2: (2, 0), 3: (3, 0), 6: (4, 0), 7: (5, 0), 8: (6, 0),
    }  # fmt: skip


def test_without_rights_the_reason_is_given() -> None:
    code = (
        "from perfprobe.machine import idle\nfrom perfprobe.wire import Cpu\n"
        "(part,) = idle.open_traced_parts([Cpu(0, True)])\nprint(part.missing[0].why)"
    )
    result = python(code, setpriv(), "--bounding-set=-all", "--inh-caps=-all", check=False)
    assert "CAP_BPF and CAP_PERFMON" in result.stdout, result.stderr
