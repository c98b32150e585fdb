"""Panels: their sizes, losses, and episodes."""

from __future__ import annotations

import dataclasses
from itertools import product
from math import isnan, nan

import numpy as np
import pytest
import sim_streams
from fakes import CpuLoad, Machine, guest, observe, task_records
from sessions import session_of

from perftop.draw import strips
from perftop.draw.columns import MAX_SIMILAR_ROWS
from perftop.model.confidence import TaskOnCpu
from perftop.model.kinds import Episode
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.loss_history import LossHistory
from perftop.session.losses import LossSums
from perftop.session.session import Session
from perftop.tui.shared import loss_panels, panels
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.episode_style import RowEpisodes, drop_duplicate_losses
from perftop.tui.shared.loss_panels import (
    CoreLoss,
    losing_cores,
    package_loss_lines,
    worst_core_lines,
)
from perftop.tui.shared.panels import PANEL_FUNCTIONS, PanelKind, PanelRow
from perftop.tui.shared.row_numbers import ViewSettings

NAMES = ("lmp", "日本語タスク", "a\x1b[31mred", "x" * 80, "ﾊﾝｶｸ", "e\u0301\u0301")
"""Names that are plain, wide, unsafe, long, narrow, and with zero-width marks."""
WIDTHS = 20, 27, 34, 48, 62, 83, 111, 160, 240, 300


def session_with_tasks(count: int) -> tuple[Session, Interval]:
    """A session with `count` tasks and episodes, half of which have ended."""
    cores = max(1, -(-count // 2))
    machine = Machine(cores=cores, loads={0: CpuLoad(1.0)})
    names = [NAMES[i % len(NAMES)] for i in range(count)]
    session, interval = observe(machine, 2, records=task_records(names))
    session.ended.extend([Episode("steal", [0], i * 1000, i * 2000, 0.1) for i in range(count)])
    session.detector.running += [
        Episode("turbo-drop", [0, 1], i * 1000, None, 6.2e8, "power-pl1", {"power_w": 150})
        for i in range(count // 2)
    ]
    return session, interval


@pytest.mark.parametrize("kind", PANEL_FUNCTIONS)
@pytest.mark.parametrize("count", [0, 1, 7, 200])
def test_all_panels_have_their_exact_size(kind: PanelKind, count: int) -> None:
    observed = _, interval = session_with_tasks(count)
    at_cursor = ViewSettings(cpu=0, cursor_ns=interval.time_ns, now=interval)
    for settings, width in product((ViewSettings(cpu=0), at_cursor), WIDTHS):
        for height in (1, 4, 5, 8, 30):
            lines = PanelRow((kind,), (1,), width, height).lines(*observed, settings)
            assert len(lines) == height
            assert {strips.width(line) for line in lines} == {width}
            assert all(c.isprintable() for line in lines for c in strips.text(line))


@pytest.mark.parametrize(("samples", "expected"), [
    (3, ["first verdict in 3 s, a firm one in 10 s", "tasks within 1 s"]),
    (12, ["first verdict in 2 s, a firm one in 9 s"]),
    (29, ["first verdict in 1 s, a firm one in 8 s"]), (30, []),
])  # fmt: skip
def test_before_the_first_verdict_the_panel_says_when_numbers_will_be_known(
    samples: int, expected: list[str]
) -> None:
    session, interval = observe(guest({0: CpuLoad(0.5)}), samples)
    session.hello = dataclasses.replace(session.hello, raw_ns=session.hello.raw_ns - 10**9)
    for width, height in ((60, 8), (160, 12)):  # both count from the first frame, after hello
        lines = panels.episode_panel(session, interval, ViewSettings(cpu=0), width, height)
        texts = [strips.text(runs).strip(" ─") for runs, _ in lines]
        pending = texts[texts.index("not known yet") + 1 :] if expected else texts[1:]
        assert [piece for text in pending for piece in text.split(" · ")] == expected
    past = dataclasses.replace(interval, seq=0)
    lines = panels.episode_panel(session, past, ViewSettings(cpu=0), 60, 8)
    assert not any("not known yet" in strips.text(runs) for runs, _ in lines)


# --- the panel of episodes


S = 1_000_000_000
STEAL = Episode("steal", [0], 2 * S, None, 0.138, "hypervisor", {"usually_share": 0.018})
ENDED_STEAL = Episode("steal", [1], S, 28 * S // 10, 0.063, "hypervisor")


def session(*running: Episode, ended: tuple[Episode, ...] = ()) -> tuple[Session, Interval]:
    """Returns the session of a guest after 4 s, and its last interval."""
    machine = guest({0: CpuLoad(0.5), 1: CpuLoad(0.5)})
    result = observe(machine, 40, records=task_records(["cc1plus", "postgres"]))
    result[0].detector.running += [dataclasses.replace(e, cpus=list(e.cpus)) for e in running]
    result[0].ended.extend(ended)
    return result


def episode_text(
    session_and_interval: tuple[Session, Interval], width: int, height: int
) -> list[str]:
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


def test_a_selected_range_has_only_its_own_episodes() -> None:
    first = Episode("steal", [0], S // 2, S, 0.1, "hypervisor")
    machine = guest({0: CpuLoad(0.5), 1: CpuLoad(0.5)})
    observed = observe(machine, 40)
    observed[0].ended.extend([first, ENDED_STEAL])
    observed[0].log.add_mark(S, "solve")
    for start_s, count, markers in (3, "no episode", []), (2, "1", ["╳"]), (1, "3", ["│", "╳"]):
        settings = ViewSettings(range_ns=(start_s * S, observed[1].time_ns))
        lines = panels.episode_panel(*observed, settings, 58, 12)
        title, *others = [strips.text(line) for line, _ in lines]
        assert title.startswith(f"what happened  {count} in {4 - start_s}.0 s ")
        assert sorted(line[0] for line in others if line[:1].strip()) == markers


def test_omitted_evidence_is_marked() -> None:
    results = {f"n{i}_share": 0.5 for i in range(30)}
    long = dataclasses.replace(STEAL, evidence=results)
    result = episode_text(session(long, ended=(ENDED_STEAL,)), 58, 10)
    assert result[2].startswith("╳")
    assert result[8].endswith("·…")
    assert result[9].startswith("╳")
    broken = dataclasses.replace(STEAL, evidence={"blamed": "x" * 30 + " " + "y" * 30})
    assert episode_text(session(broken, ended=(ENDED_STEAL,)), 58, 6)[4][-3:] != " ·…"
    tall = "\n".join(episode_text(session(long, ended=(ENDED_STEAL,)), 58, 40))
    assert all(f"n{i} 50 %" in tall for i in range(30))
    assert "…" not in tall


@pytest.mark.parametrize(("shares", "text"), [
    ([0.18, 0.22, 0.19], "18–22 %"), ([1.0, 0.9, 0.8], "80–100 %"), ([0.25, nan, 0.2], "20–25 %"),
    ([0.2, 0.2], "20 %"), ([nan, nan], "–"),
])  # fmt: skip
def test_cores_that_lose_alike_have_the_range_of_their_losses(
    shares: list[float], text: str
) -> None:
    session, interval = observe(Machine(cores=8, threads=1), 20)
    listed = [
        CoreLoss(cpu, Episode("neighbour", [cpu], 0, None, share, "sibling"), cpu, share, True)
        for cpu, share in enumerate([0.3] * MAX_SIMILAR_ROWS + shares)
    ]
    lines = worst_core_lines(session, interval, Cores(session), listed, None, 60, 20)
    texts = [strips.text(line) for line, _ in lines]
    (shared_row,) = (line for line in texts if f"+{len(shares)} alike" in line)
    share_text, history = shared_row.split("alike")[1].lstrip().split("  ", 1)
    assert (share_text, history.split()) == (text, ["█"]), "nothing was measured before the session"
    assert {len(line) for line in texts if line.endswith("█")} == {59}


def test_a_session_of_a_quarter_of_an_hour_has_a_whole_history_of_losses() -> None:
    session, interval = observe(Machine(cores=1, threads=1), 20)
    interval = dataclasses.replace(interval, time_ns=session.hello.raw_ns + 900 * S)
    session.detector.running[:] = [Episode("neighbour", [0], 890 * S, None, 0.3, "memory")]
    listed = [CoreLoss(0, session.detector.running[0], 0, 0.3, True)]
    _, (line, _), *_ = worst_core_lines(session, interval, Cores(session), listed, None, 60, 20)
    assert strips.text(line).split()[-2:] == ["%", 25 * "▁" + "█"]


def test_the_largest_loss_comes_first_and_one_of_unknown_size_last() -> None:
    session, interval = observe(Machine(cores=4, threads=1), 20)
    session.detector.running[:] = [
        Episode("neighbour", [cpu], 0, None, depth, "memory")
        for cpu, depth in enumerate((None, 0.2, 0.3, 0.4))
    ]
    cores, episodes = Cores(session), RowEpisodes(session, interval)
    listed = losing_cores(cores, episodes, episodes.worst_by_row(cores))
    assert [loss.cpu for loss in listed] == [3, 2, 1, 0]


def test_the_losses_of_a_package_are_shares_of_what_its_tasks_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the last of ten minutes, tasks of package 0 lose 30 of 120 s; those of package 2 want
    none."""
    hello, feed = sim_streams.messages("steady,cpus=12,smt=1,packages=3", 20)
    session = session_of(Session(hello, History(hello)), feed)
    packages = [row.package for row in session.hello.topology]
    history, now_ns = LossHistory(packages), session.now_ns
    monkeypatch.setattr(loss_panels, "loss_history", lambda _: history)
    wanted_s, lost_s = np.array([30.0] * 8 + [0.0] * 4), np.array([15.0, 15.0] + [0.0] * 10)
    sums = LossSums(wanted_s, 0 * lost_s, {("steal", "hypervisor"): lost_s})
    history.add_losses(now_ns - 60 * S, now_ns, sums.wanted_s, sums.by_cause)
    lines = package_loss_lines(session, now_ns, Cores(session), 122)
    texts = [strips.text(line) for line, _ in lines]
    assert [text.split()[1::2] for text in texts[1:]] == [["0", "25.0"], ["1", "0.0"], ["2", "–"]]
    assert [text.count("█") for text in texts] == [0, 10, 0, 0]
    assert [text.count("▁") for text in texts] == [0, 0, 10, 10], "only the last minute is known"
    assert [cpu for _, cpu in lines] == [None, 0, 4, 8]
    no_cores = Cores(session, frozenset())  # as under a filter that no core matches
    assert len(package_loss_lines(session, now_ns, no_cores, 122)) == 1


@pytest.mark.parametrize(("gap_ns", "length_ns", "kind", "groups"), [
    (S, 10, "ramp", 1), (S + 1, 10, "ramp", 2), (3 * S, S, "steal", 1), (3 * S, S + 1, "steal", 2),
    (S, 2 * S, "steal", 1),
])  # fmt: skip
def test_ended_episodes_that_began_together_and_short_steals_share_a_line(
    gap_ns: int, length_ns: int, kind: str, groups: int
) -> None:
    starts_ns = S, S + gap_ns
    ended = tuple(Episode(kind, [0], ns, ns + length_ns, 0.1) for ns in starts_ns)
    observed = observe(guest({0: CpuLoad(0.5)}), 200)
    observed[0].ended.extend(ended)
    assert len(panels.episode_groups(*observed).ended_groups) == groups
    assert panels.episode_groups(*observed).count == 2


def test_a_panel_lists_the_newest_of_many_ended_episodes() -> None:
    """Short steals of different CPUs have a line each."""
    observed = observe(guest(), 100)
    newest = panels.MAX_ENDED_EPISODES
    observed[0].ended.extend(
        [Episode("ramp", [i % 2], i * S // 100, i * S // 100 + 1, 1e9) for i in range(newest + 9)]
    )
    groups = panels.episode_groups(*observed)
    listed = [episode.start_ns * 100 // S for group in groups.ended_groups for episode in group]
    assert (min(listed), len(listed)) == (9, newest)
    assert groups.count == newest + 9
    assert panels.episode_groups(*observed, cpus=frozenset({1})).count == newest // 2


@pytest.mark.parametrize(("ended_s", "is_listed"), [(60.1, False), (59.9, True), (0.0, True)])
def test_a_core_is_listed_for_a_minute_after_its_loss(ended_s: float, is_listed: bool) -> None:
    session, interval = observe(Machine(cores=2, threads=1), 1000)
    end_ns = round(interval.time_ns - ended_s * S)
    session.detector.running[:] = []
    session.ended[:] = [
        Episode("neighbour", [0], end_ns - S, end_ns, depth, "memory") for depth in (0.2, 0.4, 0.3)
    ]
    episodes = RowEpisodes(session, interval)
    listed = losing_cores(Cores(session), episodes, {})
    losses = [(loss.row, loss.share, loss.is_running, loss.style) for loss in listed]
    assert losses == ([(0, 0.4, False, "over")] if is_listed else [])


@pytest.mark.parametrize(("shares", "order"), [
    ((0.3, 0.32), [0, 1]), ((0.22, 0.26), [1, 0]), ((nan, 0.0), [0, 1]), ((nan, 0.1), [1, 0]),
])  # fmt: skip
def test_losses_are_ordered_in_steps_of_five_per_cent(
    shares: tuple[float, float], order: list[int]
) -> None:
    session, interval = observe(Machine(cores=2, threads=1), 20)
    session.detector.running[:] = []
    session.ended[:] = [
        Episode("neighbour", [cpu], S, S + 1, None if isnan(share) else share, "memory")
        for cpu, share in enumerate(shares)
    ]
    episodes = RowEpisodes(session, interval)
    assert [loss.cpu for loss in losing_cores(Cores(session), episodes, {})] == order
