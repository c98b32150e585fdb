"""The panel of episodes: its contents, order and text."""

from __future__ import annotations

import dataclasses

import pytest
from fakes import CpuLoad, Machine, guest, observe, task_records
from synth import hello

from perftop.base.text import time_of_day
from perftop.draw import strips
from perftop.draw.strips import wrap_line
from perftop.model.confidence import TaskOnCpu
from perftop.model.kinds import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels import panels
from perftop.tui.shared.episode_style import drop_duplicate_losses
from perftop.tui.shared.view_settings import ViewSettings

S = 1_000_000_000
STEAL = Episode("steal", [0], 2 * S, None, 0.138, "hypervisor", {"usually_share": 0.018})
ENDED_STEAL = Episode("steal", [1], S, 28 * S // 10, 0.063, "hypervisor")


def clock_at(seconds: float) -> str:
    return time_of_day(hello().wall_ns / 1e9 + seconds)


def session(*running: Episode, ended: tuple[Episode, ...] = (), samples: int = 40
            ) -> tuple[Session, Interval]:  # fmt: skip
    """Returns the session of a guest after 4 s by default, and its last interval."""
    machine = guest({0: CpuLoad(0.5), 1: CpuLoad(0.5)})
    result = observe(machine, samples, records=task_records(["cc1plus", "postgres"]))
    result[0].detector.running += [dataclasses.replace(e, cpus=list(e.cpus)) for e in running]
    result[0].ended.extend(ended)
    return result


def text(session_and_interval: tuple[Session, Interval], width: int, height: int) -> list[str]:
    return [
        strips.text(line).rstrip()
        for line, _ in panels.episode_panel(*session_and_interval, ViewSettings(), width, height)
    ]


def test_episodes_of_one_cause_are_one_line() -> None:
    who = {"who": [TaskOnCpu(4032, "stream", 32)], "ipc": 1.28, "ipc_alone": 1.85}
    each = [Episode("neighbour", [cpu], S, None, 0.31, "sibling", who) for cpu in range(4)]
    ramps = tuple(Episode("ramp", [cpu], S // 2 + cpu, S, 1.9e9) for cpu in (0, 1))
    much_later = Episode("ramp", [2], 3 * S, 31 * S // 10, 1.9e9)
    machine = Machine(cores=4)
    observed = observe(machine, 40)
    observed[0].detector.running += each
    observed[0].ended.extend([*ramps, much_later])
    groups = panels.episode_groups(*observed)
    drops = [e for e in observed[0].running if e.kind != "neighbour"]
    assert [len(alike) for alike in groups.running_groups] == [4] + [1] * len(drops)
    assert groups.ended_groups == [[much_later], [ramps[1], ramps[0]]]
    assert (
        groups.count
        == len(drop_duplicate_losses([*observed[0].running, *observed[0].ended]))
        == 7 + len(drops)
    )


def test_marks_are_listed_with_episodes() -> None:
    observed = session(ended=(ENDED_STEAL,))
    observed[0].marks.append(
        Episode("mark", [], 3 * S, 3 * S, cause="-", evidence={"label": "go\x1b[m"})
    )
    assert text(observed, 58, 4)[1] == f"│ {clock_at(3)}  go?[m"


def test_omitted_evidence_is_marked() -> None:
    results = {f"n{i}_share": 0.5 for i in range(30)}
    long = dataclasses.replace(STEAL, evidence=results)
    result = text(session(long, ended=(ENDED_STEAL,)), 58, 10)
    assert result[2].startswith("╳")
    assert result[8].endswith("·…")
    assert result[9].startswith("╳")
    broken = dataclasses.replace(STEAL, evidence={"blamed": "x" * 30 + " " + "y" * 30})
    assert text(session(broken, ended=(ENDED_STEAL,)), 58, 6)[4][-3:] != " ·…"
    tall = "\n".join(text(session(long, ended=(ENDED_STEAL,)), 58, 40))
    assert all(f"n{i} 50 %" in tall for i in range(30))
    assert "…" not in tall


@pytest.mark.parametrize(("evidence_text", "room", "lines"), [
    ("one · two · three", 9, ["one · two", "three"]),
    ("one two three", 8, ["one two", "three"]),
    ("a · abcdefghij · b", 4, ["a", "abcd", "efgh", "ij", "b"]),
    ("x abcdefghij y", 4, ["x ab", "cdef", "ghij", "y"]),
    ("", 4, []),
])  # fmt: skip
def test_evidence_is_cut_between_its_parts(evidence_text: str, room: int, lines: list[str]) -> None:
    assert wrap_line(evidence_text, room) == lines


def test_short_episodes_of_one_cause_share_a_line() -> None:
    short = [Episode("steal", [0], at * 10**9, at * 10**9 + 4 * 10**8, 0.1, "hypervisor")
             for at in range(40, 0, -4)]  # fmt: skip
    long = Episode("steal", [0], 2 * 10**9, 10 * 10**9, 0.2, "hypervisor")
    groups = panels._group_by_start([*short, long])
    assert [len(group) for group in groups] == [10, 1]
