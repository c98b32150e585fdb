"""The list of episodes: contents and navigation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fakes import Machine
from played_apps import Run, running_app
from synth import SAMPLE_NS
from textual import events
from waiting import until_true

from perfprobe.wire import Missing
from perftop.draw.columns import total_width
from perftop.draw.strips import text
from perftop.model.kinds import KINDS, Episode
from perftop.session.session import Session
from perftop.tui.views.episodes import Episodes, empty_list_lines, episode_columns

S = 1_000_000_000
EPISODES = {key: kind.marker for key, kind in KINDS.items()}
MOMENTS = 20
"""Intervals before the view opens: 4 s."""
DROP = Episode("turbo-drop", [*range(8)], S, 2 * S, 6.2e8, "power-pl1", {"power_w": 150})


def lines(run: Run) -> list[str]:
    output = run.monitor.view
    return [output.render_line(y).text.rstrip() for y in range(output.size.height)]


def kinds(run: Run) -> list[str]:
    """Returns the kinds of the listed episodes from the top, by their signs."""
    signs = {sign: kind for kind, sign in EPISODES.items()}
    return [signs[line[1]] for line in lines(run)[2:] if line[1:2] in signs and line[3:4].isdigit()]


def body(run: Run) -> list[str]:
    """The lines below the titles, with evidence."""
    return [line for line in lines(run)[2:] if line]


def selected_line(run: Run) -> str:
    return next(line for line in lines(run) if line.startswith("▌"))


def moment(run: Run) -> int:
    """Returns the displayed time in samples."""
    return run.interval.time_ns // SAMPLE_NS


@asynccontextmanager
async def at_list(*episodes: Episode) -> AsyncIterator[Run]:
    """Opens the list on a machine that has no episodes of its own."""
    async with running_app(Machine(ceiling_hz=3.0e9), (120, 30)) as run:
        await run.send_intervals(MOMENTS)
        draw_episodes(run, *episodes)
        await run.pilot.press("5")
        yield run


def draw_episodes(run: Run, *episodes: Episode) -> None:
    run.session.detector.running += [e for e in episodes if e.end_ns is None]
    run.session.ended.extend([e for e in episodes if e.end_ns is not None])


# --- contents


@pytest.mark.parametrize("is_readable", [False, True])
def test_an_empty_list_names_only_what_could_be_found_here(*, is_readable: bool) -> None:
    """Quotas, stops, interrupts and memory stalls were once promised to every stream."""
    changes: dict[str, object] = {"missing": [Missing("tasks", "no /proc here")]}
    if is_readable:
        changes = {"watch": "job"}
    session = Session(Machine(ceiling_hz=3.0e9, changes=changes).hello)
    found, *unseen = (text(runs) for runs in empty_list_lines(session, 200, is_filtered=False)[1:])
    kinds = {"quota", "stopped", "interrupt"}
    assert kinds.intersection(found.split()) == (kinds if is_readable else set())
    assert "memory-stall" not in found  # this machine reports no pressure
    reasons = ["time in interrupts, CPU quotas: no /proc here", "stopped jobs: no job is watched"]
    shown = [any(reason in line for line in unseen) for reason in reasons]
    assert shown == [not is_readable] * 2


async def test_a_running_episode_grows_and_remains_selected() -> None:
    ending = Episode("steal", [3], 3 * S, None, 0.2, "hypervisor")

    async with at_list(DROP, ending) as run:
        before = body(run)[0]
        await run.send_intervals(5)
        assert (before.split()[2], body(run)[0].split()[2]) == ("1.1", "2.1")
        run.session.ended.append(run.session.detector.end(ending, 4 * S))
        draw_episodes(run, Episode("smi", [0], 4 * S, None, 12))
        await run.send_intervals(1)
        assert kinds(run) == ["smi", "steal", "turbo-drop"]
        assert "steal" in selected_line(run)


async def test_the_wait_of_the_verdict_is_in_the_list() -> None:
    hogs = {
        "tasks": {"1": [11, "hogA", 0.5]},
        "others": {"1": [[11, "hogA", 0.5], [12, "hogB", 0.5]]},
        "waits": {"1": [[0.5, 20], [0.5, 20]]},
    }
    async with running_app(Machine(cores=2, ceiling_hz=3.0e9)) as run:
        for _ in range(8):
            await run.send_intervals(5, records=hogs)
        await run.pilot.press("5")
        view = run.monitor.view
        text = [view.render_line(y).text.strip() for y in range(view.size.height)]
    assert text[0].startswith("episodes  1 in 8.1 s   ◐ 1 neighbour")
    assert "hogA[11] and hogB[12] share CPU 1: each waits 50 % of its time" in text[2]


@pytest.mark.parametrize(("width", "keys"), [
    (99, "start length what"), (100, "start length kind what"), (115, "start length kind what"),
    (116, "start length kind depth what"),
])  # fmt: skip
def test_wide_lists_have_a_column_of_kinds_and_of_depths(width: int, keys: str) -> None:
    columns = episode_columns(width)
    assert " ".join(column.key for column in columns) == keys
    assert total_width(columns) == width - 3


# --- empty lists


async def test_keys_before_the_first_sample_do_nothing() -> None:
    async with running_app(Machine(ceiling_hz=3.0e9), (120, 30)) as run:
        await run.pilot.press("5", "enter", "down", "enter")
        await run.pilot.pause()
        assert run.monitor.view.id == "episodes"


# --- navigation to an episode


async def test_a_short_episode_is_shown_at_its_time() -> None:
    async with at_list(
        Episode("steal", [3], 14 * SAMPLE_NS, 15 * SAMPLE_NS, 0.2, "hypervisor")
    ) as run:
        await run.pilot.press("enter")
        await until_true(lambda: run.source.status.paused_at is not None, "paused")
        await run.pilot.pause()
        assert moment(run) == 15
        await run.wait_for_text("╳ The hypervisor took 20 % of CPU 3 for 0.1 s")


@pytest.mark.parametrize(("cpus", "cpu"), [([0, 1, 2, 3], 2), ([3], 3), ([7, 1], 1)])
async def test_an_opened_episode_keeps_the_selected_core_if_it_is_affected(
    cpus: list[int], cpu: int
) -> None:
    """CPUs 3 and 7 are on one core."""
    steal = Episode("steal", cpus, 14 * SAMPLE_NS, 15 * SAMPLE_NS, 0.2, "hypervisor")
    async with at_list(steal) as run:
        run.monitor.settings.cpu = 2
        await run.pilot.press("enter")
        await until_true(lambda: run.source.status.paused_at is not None, "paused")
        assert run.monitor.settings.cpu == cpu
        assert run.monitor.view.id == "core"


async def test_only_a_second_click_opens_an_episode_clicked_in_another_view() -> None:
    steal = Episode("steal", [3], 14 * SAMPLE_NS, 15 * SAMPLE_NS, 0.2, "hypervisor")
    for chain, name in ((1, "episodes"), (2, "core")):
        async with at_list(steal) as run:
            view = run.monitor.view
            assert isinstance(view, Episodes)
            view.select_episode(steal)
            view.on_click(events.Click(view, 20, 2, 0, 0, 1, False, False, False, chain=chain))
            await run.pilot.pause()
            await until_true(lambda now=name: run.monitor.view.id == now, name)  # type: ignore[misc]


async def test_a_time_dropped_from_history_is_reported() -> None:
    old = Episode("steal", [0], -9 * S, -8 * S, 0.5, "long ago")
    async with at_list(old) as run:
        await run.pilot.press("enter")
        refusal = "that moment is no longer kept: history begins at 22:13:20"
        assert any(refusal in line for line in lines(run))
        assert (run.monitor.view.id, run.source.status.paused_at) == ("episodes", None)
        await run.pilot.press("up")
        assert not any("no longer kept" in line for line in lines(run))
