"""The header as text: the machine, what is watched, and the cost of perftop."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest
from fakes import Machine, guest, observe

from perftop.draw import strips
from perftop.process.link import LinkState
from perftop.tui.frame import header
from perftop.tui.frame.header import Replay, Status

STATUS = Status(500_000_000, own_cpu_share=0.021)


def text(status: Status = STATUS, width: int = 160) -> str:
    return strips.text(header.header_line(*observe(Machine()), status, width))


def test_the_name_has_no_background() -> None:
    runs = header.header_line(*observe(Machine()), STATUS, 160)
    assert ("perftop", "key") in runs


@pytest.mark.parametrize(
    ("name", "short"),
    [("Intel(R) Xeon(R) W-2225 CPU @ 4.10GHz", "Xeon W-2225"), ("AMD EPYC 7763 64-Core Processor",
      "AMD EPYC 7763"), ("AMD EPYC", "AMD EPYC"), ("", "")],
)  # fmt: skip
def test_a_model_name_is_shortened(name: str, short: str) -> None:
    assert header.short_model(name) == short


def test_a_guest_is_reported() -> None:
    session, interval = observe(guest())
    session.hello = replace(session.hello, virtualisation="KVM")
    output = strips.text(header.header_line(session, interval, STATUS, 160))
    assert "KVM guest · " in output
    assert "skew" not in output


def test_a_large_skew_is_a_warning() -> None:
    session, interval = observe(Machine())
    styles = []
    for skew_s in (0.009, 0.011):
        runs = header.header_line(session, replace(interval, skew_s=skew_s), STATUS, 160)
        at = next(i for i, (part, _) in enumerate(runs) if "skew" in part)
        styles.append(runs[at + 1][1])
    assert styles == ["text", "warn"]


def test_states_remain_when_other_parts_are_dropped() -> None:
    session, interval = observe(Machine())
    session.late_samples = 3
    replay = Replay(True, 1.0, (0, 10**10), None, is_over=False, damage=None)
    for state, word in (
        (replace(STATUS, paused=interval.time), "PAUSED"),
        (replace(STATUS, replay=replay), "REPLAY"),
        (replace(STATUS, silent_s=4.0), "NO DATA"),
        (replace(STATUS, recording="3 MB"), "REC 3 MB"),
        (replace(STATUS, recording=""), "NOT RECORDING"),
        (replace(STATUS, failed="gone"), "DEAD"),
    ):
        for width in range(20, 300):
            output = strips.text(header.header_line(session, interval, state, width))
            assert len(output) <= max(width, 60)
            assert word in output or width < 60
        assert "dropped 0" in strips.text(header.header_line(session, interval, state, 120))
    assert "late 3" in strips.text(header.header_line(session, interval, STATUS, 160))


@pytest.mark.parametrize(("status", "style"), [(None, "clock"), (0, "text"), (7, "warn")])
def test_only_a_running_command_is_green(status: int | None, style: str) -> None:
    state = replace(STATUS, job="sh ended: 7", job_status=status)
    assert ("sh ended: 7", style) in header.header_line(*observe(Machine()), state, 160)


def test_the_connection_to_a_remote_machine_is_shown() -> None:
    link = LinkState("n7", 0.0123, 4321.0)
    assert "ssh 12.3 ms 4.3 kB/s" in text(replace(STATUS, link=link))
    unknown = replace(STATUS, link=replace(link, rtt_s=nan, place="unix:/run/s"))
    assert "socket 4.3 kB/s" in text(unknown)
    assert "ms" not in text(unknown).partition("socket")[2].partition("kB/s")[0]


@pytest.mark.parametrize("width", [80, 160])
def test_a_broken_link_is_shown_at_all_widths(width: int) -> None:
    link = LinkState("n7", 0.01, 4321.0, "n7: connection: refused", 12.3, 4.0)
    assert " NO LINK FOR 12 s " in text(replace(STATUS, link=link, silent_s=12.3), width)
