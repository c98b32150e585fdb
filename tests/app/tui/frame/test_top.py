"""The top line, which reports the worst running episode."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import Machine, observe

from perfprobe.wire import Note
from perftop.draw import strips
from perftop.draw.columns import Run
from perftop.model.kinds import Episode
from perftop.process.link import LinkState
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.frame import top
from perftop.tui.frame.header import Status
from perftop.tui.frame.top import alert_line
from perftop.tui.shared.verdict import CALM_SIGN, Verdict


def text(session: Session, interval: Interval | None, status: Status, width: int = 160) -> str:
    return strips.text(alert_line(session, interval, status, width)[0])


def test_a_dead_probe_comes_before_all_episodes() -> None:
    session, interval = observe(Machine())
    output = alert_line(session, interval, Status(0, failed="the probe ended by signal 9"), 80)[0]
    assert output[0] == (" ▼ the probe ended by signal 9", "alarm")
    assert "q quits" in strips.text(output)


@pytest.mark.parametrize(
    ("length", "end"),
    [(41, " · these are the last numbers · q quits "), (65, " · q quits "), (75, "")],
)
def test_the_reason_of_a_dead_probe_is_in_narrow_lines_too(length: int, end: str) -> None:
    session, interval = observe(Machine())
    status = Status(0, failed="the probe ended: ".ljust(length - 4, "x"))
    assert text(session, interval, status, 80) == f" ▼ {status.failed}{end}"
    assert len(text(session, interval, status, 30)) == 30


def test_a_warning_is_shown_while_it_is_recent_and_nothing_is_worse() -> None:
    m = Machine(ceiling_hz=3.0e9)
    session, interval = observe(m)

    def shown() -> list[Run]:
        return alert_line(session, interval, Status(0), 80)[0]

    assert shown() == []
    at_ns = session.now_ns
    session.apply(Note("warning", at_ns, data={"text": "the clock\x1b was set"}))
    assert shown() == [(" ! the clock? was set", "warn")]
    session.now_ns = at_ns + top.WARNING_SHOWN_NS
    assert shown() == []


def test_episodes_that_cost_little_precede_a_calm_verdict() -> None:
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    calm = Verdict("Nothing is slowing this machine down", ("CPUs 5 % busy",), CALM_SIGN, 0.0)
    session.detector.hotplug(3, interval.time_ns, online=False)
    steal = Episode("steal", [1], interval.time_ns - 2 * 10**9, depth=0.004, cause="hypervisor")
    session.detector.running.append(steal)
    session.now_ns = interval.time_ns + 4 * 10**8  # samples of the next interval
    line, mood = alert_line(session, interval, Status(0), 200, calm)
    assert mood == "calm"
    output = strips.text(line)
    assert output.startswith("  ╳ The hypervisor takes 0.4 % of CPU 1 for 2.0 s · ")
    assert "○ CPU 3 is offline" in output
    session.detector.running.remove(steal)
    output = strips.text(alert_line(session, interval, Status(0), 200, calm)[0])
    assert output.startswith("  ✓ Nothing is slowing this machine down · CPUs 5 % busy · ○ CPU 3")
    assert strips.text(alert_line(session, interval, Status(0), 60, calm)[0]).count("·") == 1
    paused = Status(0, paused=interval.time)
    then = replace(interval, time_ns=interval.time_ns - 3 * 10**9)
    assert "╳" not in strips.text(alert_line(session, then, paused, 200, calm)[0])


def test_a_broken_link_has_its_reason_and_the_next_try() -> None:
    session, interval = observe(Machine())
    link = LinkState("n7", 0.01, 0.0, "n7: connection: refused", 12.3, 4.2)
    output = alert_line(session, interval, Status(0, link=link), 160)[0]
    assert output[0] == (" next try in 4 s · n7: connection: refused", "alarm")
    tried = Status(0, link=replace(link, next_s=0.0))
    assert text(session, interval, tried).startswith(" trying again · n7")
