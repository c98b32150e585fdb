"""The line that tells the worst there is, as text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import Machine, guest, seen

from perfprobe.wire import Note
from perftop.draw import strips
from perftop.output.episode_words import evidence
from perftop.samples.episode import Episode
from perftop.tui.frame import alert, machine_line
from perftop.tui.frame.status import Status

FIX = "ask for a vPMU, or use a metal instance"


def test_a_guest_is_told_once_what_it_cannot_know() -> None:
    session, interval = seen(guest())
    told = strips.text(alert.line(session, interval, Status(0), 160))
    assert told.count("clock") == 1
    assert "IPC" in told
    assert "clock" not in strips.text(machine_line.numbers(session, interval, 160))


def test_a_dead_probe_is_the_worst_there_is() -> None:
    session, interval = seen(Machine())
    told = alert.line(session, interval, Status(0, failed="the probe ended by signal 9"), 80)
    assert told[0] == (" ▼ the probe ended by signal 9", "alarm")
    assert "q quits" in strips.text(told)


@pytest.mark.parametrize(
    ("length", "end"),
    [(41, " · these are the last numbers · q quits "), (65, " · q quits "), (75, "")],
)
def test_of_a_dead_probe_the_reason_is_what_stays(length: int, end: str) -> None:
    session, interval = seen(Machine())
    status = Status(0, failed="the probe ended: ".ljust(length - 4, "x"))
    told = alert.line(session, interval, status, 80)
    assert strips.text(told) == f" ▼ {status.failed}{end}"
    assert strips.width(alert.line(session, interval, status, 30)) == 30


def test_a_warning_is_told_while_it_is_new_and_nothing_is_worse() -> None:
    m = Machine(ceiling_hz=3.0e9)
    session, interval = seen(m)

    def told() -> list[strips.Run]:
        return alert.line(session, interval, Status(0), 80)

    assert told() == []
    at_ns = session.now_ns
    session.apply(Note("warning", at_ns, data={"text": "the clock\x1b was set"}))
    assert told() == [(" ! the clock? was set", "warn")]
    session.detector.hotplug(3, at_ns, online=False)  # no harm: the warning goes before it
    assert told() == [(" ! the clock? was set", "warn")]
    session.detector.running.append(Episode("throttle", [1], at_ns))
    assert "throttle" in strips.text(told())
    session.detector.running.pop()
    session.now_ns = at_ns + alert.NEW_NS
    assert "offline" in strips.text(told())


def test_of_a_past_moment_it_is_told_what_went_on_then() -> None:
    session, interval = seen(Machine(ceiling_hz=3.0e9))
    then_ns = interval.time_ns
    session.ended.append(Episode("throttle", [1], then_ns - 2 * 10**9, then_ns + 1))
    session.detector.running.append(Episode("steal", [2], then_ns + 1))
    session.apply(Note("warning", then_ns + 1, data={"text": "the clock was set"}))
    session.now_ns = then_ns + 60 * 10**9

    def told(status: Status) -> str:
        return strips.text(alert.line(session, interval, status, 160))

    assert told(Status(0)).startswith(" ╳ CPU 2 steal 59.9 s")
    assert told(Status(0, paused=interval.time)).startswith(" ◆ CPU 1 throttle 2.0 s")
    session.ended.extend([Episode("throttle", [1], then_ns - 10**9, then_ns + 3 * 10**9)])
    # what it rests on is of all of it
    assert told(Status(0, paused=interval.time)).startswith(" ◆ CPU 1 throttle 1.0 s of 4.0 s")
    session.ended.clear()
    assert told(Status(0, paused=interval.time)) == ""
    assert "last numbers" not in told(Status(0, paused=interval.time, failed="it ended"))


def test_a_cause_is_told_once() -> None:
    assert evidence("ref", {"ref": "fast", "samples": 3}) == "samples: 3"
    session, interval = seen(Machine(ceiling_hz=3.0e9))
    told = Episode("suspect", [1], 0, cause="ref", evidence={"ref": "fast", "samples": 3})
    session.detector.running.append(told)
    text = strips.text(alert.line(session, interval, Status(0), 160))
    assert text.endswith("  ref · samples: 3")


@pytest.mark.parametrize(
    ("width", "end"),
    [(80, "clock, IPC, halts unknown · perftop doctor"),
     (90, "kernel share unknown · perftop doctor"), (160, f"unknown · {FIX}")],
)  # fmt: skip
def test_what_is_missing_is_told_whole_at_any_width(width: int, end: str) -> None:
    machine = guest()
    missing = [replace(m, fix=FIX) for m in machine.hello.missing]
    machine.hello = replace(machine.hello, missing=missing)
    session, interval = seen(machine)
    told = strips.text(alert.line(session, interval, Status(0), width))
    assert len(told) <= width
    assert told.endswith(end)
