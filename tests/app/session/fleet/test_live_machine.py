"""A machine among many: what is read off its frames, and what is left when it falls silent."""

from __future__ import annotations

from math import isnan

import made
import pytest
from fakes import Does, Machine, guest

from perfprobe import wire
from perftop.session.fleet.machine import NOTHING, LiveMachine, Past
from perftop.session.fleet.machine import Machine as Row

START = 1_700_000_000.0


def fed(machine: Machine, samples: int = 3, late_s: float = 0.0) -> Row:
    """A row after so many samples; frame n arrives `late_s` after n samples."""
    row = Row("n1")
    live = LiveMachine(row, 0.1)
    live.take([machine.hello], START)
    for seq in range(samples + 1):
        live.take([machine.frame(seq)], START + seq * made.SAMPLE_NS / 1e9 + late_s)
    return row


def test_numbers_are_those_of_the_cpus() -> None:
    row = fed(Machine(does={cpu: Does(util=0.75, hz=2.4e9) for cpu in range(8)}))
    found = row.numbers
    assert found["busy"] == pytest.approx(0.75, abs=0.01)
    assert found["clock_hz"] == pytest.approx(2.4e9, rel=0.01)
    assert found["ceiling_hz"] == pytest.approx(3.2e9)
    assert found["below"] == pytest.approx(1.0)
    assert found["both"] + found["lp0"] + found["lp1"] + found["neither"] == pytest.approx(1.0)
    assert (row.cpus, row.cores, row.answers) == (8, 4, True)


def test_half_of_the_work_is_below_its_ceiling() -> None:
    does = {cpu: Does(hz=2.4e9 if cpu in {0, 1, 4, 5} else 3.2e9) for cpu in range(8)}
    machine = Machine(does=does)
    slow = {cpu for core in machine.hello.cores[:2] for cpu in core}
    for cpu in range(8):
        does[cpu].hz = 2.4e9 if cpu in slow else 3.2e9
    assert fed(machine).numbers["below"] == pytest.approx(0.5)


def test_numbers_that_a_guest_lacks_have_a_reason() -> None:
    row = fed(guest())
    assert isnan(row.numbers["clock_hz"])
    assert isnan(row.numbers["both"])
    assert "hypervisor" in row.absent
    assert row.guest


def test_times_of_episodes_are_those_of_arrival() -> None:
    """The frame that was least delayed says how the two clocks lie to each other."""
    machine = Machine(does={cpu: Does(util=1.0, hz=2.4e9) for cpu in range(8)})
    row = fed(machine, 40, late_s=2.0)
    (event,) = [event for event in row.running if event.kind == "turbo-drop"]
    assert START + 2 <= event.start <= START + 2 + 4
    assert row.cause == event.group


def test_a_silent_machine_keeps_its_past_and_no_numbers() -> None:
    row = fed(Machine(does={cpu: Does(util=1.0, hz=2.4e9) for cpu in range(8)}), 40)
    heard = row.updated
    row.fall_silent(heard + 60, "the link broke", heard + 62)
    assert not row.answers
    assert row.numbers == NOTHING
    assert row.silent_since == heard
    assert row.running == []
    assert row.ended[-1].end == heard
    assert len(row.past.times) > 0


def test_frames_without_a_hello_are_refused() -> None:
    machine = Machine()
    with pytest.raises(wire.WireError):
        LiveMachine(Row("n1")).take([machine.frame(0)], START)


def test_the_past_is_bounded_and_evenly_spaced() -> None:
    past = Past()
    for second in range(2000):
        past.add(START + second, {**NOTHING, "busy": second / 2000})
    assert len(past.times) == 600
    found = past.series("busy", 6, START + 2000, 600)
    assert found == sorted(found)
    assert found[-1] == pytest.approx(0.975, abs=0.03)
    assert isnan(past.series("busy", 6, START + 2000, 6000)[0])
