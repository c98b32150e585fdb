"""The top line, which reports the worst running episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fakes import Machine, observe

from perfprobe.wire import Note
from perftop.draw import strips
from perftop.draw.columns import Run
from perftop.model.kinds import Episode
from perftop.output.evidence import evidence_text
from perftop.process.link import LinkState
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.frame import top
from perftop.tui.frame.header import Status
from perftop.tui.frame.top import alert_line


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
    session.detector.hotplug(3, at_ns, online=False)  # less important than the warning
    assert shown() == [(" ! the clock? was set", "warn")]
    session.detector.running.append(Episode("throttle", [1], at_ns))
    assert "is active on CPU 1" in strips.text(shown())
    session.detector.running.pop()
    session.now_ns = at_ns + top.WARNING_SHOWN_NS
    assert "offline" in strips.text(shown())


def test_the_alert_of_the_past_is_that_of_then() -> None:
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    then_ns = interval.time_ns
    session.ended.append(Episode("throttle", [1], then_ns - 2 * 10**9, then_ns + 1))
    session.detector.running.append(Episode("steal", [2], then_ns + 1))
    session.apply(Note("warning", then_ns + 1, data={"text": "the clock was set"}))
    session.now_ns = then_ns + 60 * 10**9

    def shown(status: Status) -> str:
        return text(session, interval, status)

    paused = Status(0, paused=interval.time)
    now = text(session, replace(interval, time_ns=session.now_ns), Status(0))
    assert now.startswith("▌ ╳ The hypervisor takes time of CPU 2, since ")
    assert "is active on CPU 1 for 2.0 s" in shown(paused)
    session.ended[:] = [Episode("throttle", [1], then_ns - 10**9, then_ns + 3 * 10**9)]
    # the evidence covers the whole episode
    assert "is active on CPU 1 for 1.0 s of 4.0 s" in shown(paused)
    session.ended.clear()
    assert shown(paused) == ""
    assert "last numbers" not in shown(replace(paused, failed="it ended"))


def test_the_duration_equals_that_in_the_panels() -> None:
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    session.detector.running.append(Episode("throttle", [1], interval.time_ns - 2 * 10**9))
    session.now_ns = interval.time_ns + 4 * 10**8  # samples of the next interval
    assert "is active on CPU 1 for 2.0 s" in text(session, interval, Status(0))
    session.detector.running[-1].start_ns = session.now_ns
    assert "is active on CPU 1 for 0.0 s" in text(session, interval, Status(0))


def test_a_cause_is_shown_once() -> None:
    assert evidence_text("ref", {"ref": "fast", "samples": 3}) == "samples: 3"
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    episode = Episode("suspect", [1], 0, cause="ref", evidence={"ref": "fast", "samples": 3})
    session.detector.running.append(episode)
    assert text(session, interval, Status(0)).endswith(" · samples: 3")
    assert text(session, interval, Status(0)).count("ref") == 1


DROP = {"power_w": 150.0, "power_limit_w": 150.0, "busy_hz": 2.4e9, "ceiling_hz": 3.0e9}


def drop(session: Session, cpus: Sequence[int] = range(8), depth: float = 6e8) -> Episode:
    start_ns = session.now_ns - 4 * 10**9
    episode = Episode("turbo-drop", [*cpus], start_ns, None, depth, "power-pl1", dict(DROP))
    session.detector.running.append(episode)
    return episode


def test_the_sentence_is_complete_at_80_columns_and_evidence_in_whole_parts() -> None:
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    drop(session)
    for width in range(20, 300):
        output = alert_line(session, interval, Status(0), width)
        line = strips.text(output[0])
        assert len(line) <= width
        assert output[1] == "victim"
        assert [part for part, key in output[0][:3] if key == "alarm"] == ["▌", "▼"]
        if width >= 80:
            assert {"PL1", "2.40", "3.00", "GHz", "0", "4.0"} <= {*line.replace(",", "").split()}
            assert ("2.40 of 3.00 GHz", "alarm") in output[0]
            pieces = line.split(" · ")[1:]
            assert pieces == ["power 150 of 150 W"][: len(pieces)]
    assert len(pieces) == 1, "the sentence has the clocks"


def test_the_most_costly_episode_is_shown_and_others_are_counted() -> None:
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    loss = Episode("neighbour", [0], session.now_ns, None, 0.4, "sibling")
    session.detector.running += [loss, Episode("offline", [7], session.now_ns)]
    drop(session)
    assert text(session, interval, Status(0)).endswith(" · 1 more: ◐ CPU 0")
    assert text(session, interval, Status(0), 60).endswith(" · +1")
    session.detector.running[-1].depth = 2e8  # 0.53 of a CPU; 0.4 is less
    assert "◐ CPU 0" in text(session, interval, Status(0)).rpartition("more")[2]
    session.detector.running[-1].depth = 1e8
    assert text(session, interval, Status(0)).startswith("▌ ◐")


def test_steal_is_reported_once_and_not_as_a_neighbour() -> None:
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    for kind in ("steal", "neighbour"):
        episode = Episode(kind, [0], session.now_ns - 10**9, None, 0.2, "hypervisor")
        session.detector.running.append(episode)
    line = text(session, interval, Status(0))
    assert line.startswith("▌ ╳")
    assert "20 %" in line
    assert "◐" not in line
    assert "more" not in line


@pytest.mark.parametrize("paused", [False, True])
def test_the_last_episode_is_shown_for_a_minute(*, paused: bool) -> None:
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    over = drop(session)
    end_ns = session.now_ns
    session.detector.running.clear()
    session.ended.append(session.detector.end(over, end_ns))

    def shown(after_s: float, width: int = 80) -> str:
        now_ns = end_ns + round(after_s * 1e9)
        status = Status(0, paused=0.0 if paused else None)
        session.now_ns = end_ns + 10**12 if paused else now_ns
        return text(session, replace(interval, time_ns=now_ns), status, width)

    for width in (60, 80, 120):
        assert shown(12, width).startswith(" ▼ 12 s ago: ")
        assert shown(12, width).endswith(" for 4.0 s (5: all episodes)")
    assert shown(12, 120).startswith(" ▼ 12 s ago: power limit PL1 ")
    assert "package 0" in shown(12, 120)
    assert shown(59.9) != ""
    assert shown(60.1) == ""
    assert all(len(shown(1, width)) <= width for width in range(20, 300))
    assert alert_line(session, interval, Status(0), 80)[1] == "calm"


@pytest.mark.parametrize("reverse", [False, True])
def test_the_most_costly_of_simultaneously_ended_episodes_is_shown(*, reverse: bool) -> None:
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    at_ns = session.now_ns
    ended = [
        Episode("steal", cpus, at_ns - 2 * 10**9, at_ns, 0.2, "hypervisor")
        for cpus in ([0, 1], [0, 1, 2, 3])
    ]
    session.ended.extend(ended[::-1] if reverse else ended)
    assert "CPUs 0-3" in text(session, interval, Status(0))


def test_episodes_without_a_cost_are_not_shown_after_their_end() -> None:
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    at_ns = session.now_ns
    session.ended.append(Episode("ramp", [0], at_ns - 10**9, at_ns, 1e9, "-"))
    assert text(session, interval, Status(0)) == ""


def test_a_broken_link_has_its_reason_and_the_next_try() -> None:
    session, interval = observe(Machine())
    link = LinkState("n7", 0.01, 0.0, "n7: connection: refused", 12.3, 4.2)
    output = alert_line(session, interval, Status(0, link=link), 160)[0]
    assert output[0] == (" next try in 4 s · n7: connection: refused", "alarm")
    tried = Status(0, link=replace(link, next_s=0.0))
    assert text(session, interval, tried).startswith(" trying again · n7")
