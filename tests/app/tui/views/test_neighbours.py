"""The view of neighbours, as its user sees it."""

from __future__ import annotations

from typing import Any

import made
import pytest
from fakes import Does, Machine, guest
from playing import Run, running
from waiting import until

from perftop.draw.strips import text
from perftop.tui.panels.tasks import NO_LOSS_TEXT
from perftop.tui.views import neighbours
from perftop.tui.views.neighbours import Neighbours

LMP, STREAM = [4000, "lmp", 0.95], [4001, "stream", 0.95]
REST = Does(util=0.01, system=0.0)


def lines(run: Run) -> list[str]:
    view = run.app.screen_stack[0].query_one(Neighbours)
    return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


async def sees(run: Run, what: str) -> None:
    await until(lambda: any(what in line for line in lines(run)), f"{what!r} in view 6")


def crowded(**more: Any) -> Machine:
    """Two cores, on the first of which two meet."""
    machine = Machine(cores=2, **more)
    machine.does = dict.fromkeys(range(4), REST) | {0: Does(1.0, ipc=2.0)}
    return machine


async def meet(run: Run, **records: Any) -> None:
    """CPU 0 works alone for 3 s, then beside CPU 2 for another 3 s."""
    for together in (False, True):
        tasks = {"0": LMP} | ({"2": STREAM} if together else {})
        if together:
            run.feed.machine.does |= {0: Does(1.0, ipc=1.5), 2: Does(1.0, ipc=0.4)}
        await run.intervals(15, records={"tasks": tasks} | records)


async def test_ended_losses_are_below_running_ones() -> None:
    async with running(crowded()) as run:
        await run.pilot.press("6")
        await meet(run)
        run.feed.machine.does |= {0: Does(1.0, ipc=2.0), 2: REST}
        await run.intervals(5, records={"tasks": {"0": LMP}})
        await sees(run, NO_LOSS_TEXT)
        await sees(run, " ended")
        (row,) = [line for line in lines(run) if "stream 4001" in line]
        assert "took  25 %  from  CPU 0" in row
        assert "IPC 1.55, alone 2.00" in row, "over all of the loss"
        assert "for 3.0 s" in row


async def test_a_step_into_the_past_shows_who_lost_then() -> None:
    async with running(crowded()) as run:
        await run.pilot.press("6")
        await meet(run)
        await sees(run, "stream 4001")
        await run.pilot.press("space", "shift+left", *["right"] * 5)
        await sees(run, NO_LOSS_TEXT)
        await run.pilot.press("space")
        await sees(run, "stream 4001")


async def test_enter_opens_the_core_and_a_filter_hides_the_others() -> None:
    async with running(crowded()) as run:
        await run.pilot.press("6")
        await meet(run)
        await sees(run, "who takes")
        await run.pilot.press("slash", *"1,3", "enter")
        await sees(run, NO_LOSS_TEXT)
        await run.pilot.press("backslash")
        await sees(run, "who takes")
        await run.pilot.press("home", "enter")
        assert run.app.screen_stack[0].view.id == "core"  # type: ignore[attr-defined]
        assert run.app.screen_stack[0].choice.cpu == 0  # type: ignore[attr-defined]


async def test_each_cpu_of_one_episode_has_lost_its_own_share() -> None:
    async with running(crowded()) as run:
        await run.pilot.press("6")
        run.feed.machine.does |= {0: Does(0.7, steal=0.3), 1: Does(0.9, steal=0.1)}
        await run.intervals(10)
        await sees(run, "hypervisor")
        shares = [line for line in lines(run) if "hypervisor" in line and " from " in line]
        assert ["takes 30 %" in row for row in shares] == [True, False]
        assert ["takes 10 %" in row for row in shares] == [False, True]
        assert all(row[1] == "╳" for row in shares), "a steal is no neighbour's sign"


# --- a watched job


def watched(seq: int, cpus: tuple[int, ...], share: float) -> dict[str, Any]:
    """Threads of a job that run for this share of the time and wait for the rest."""
    ns = seq * made.SAMPLE_NS
    run_ns = int(share * ns)
    threads = {str(4100 + cpu): [4000, "lmp", cpu, run_ns, ns - run_ns, 0, seq] for cpu in cpus}
    return {"watched": {"threads": threads, "more": 0}}


async def watch(run: Run, intervals: int, cpus: tuple[int, ...], share: float) -> None:
    others = {"0": [STREAM, LMP]}
    last = run.seq() + intervals
    for _ in range(2 * intervals):
        output = watched(run.feed.seq, cpus, share) | {"tasks": {"0": STREAM}, "others": others}
        run.feed.frames(1, records=output)
    await until(lambda: run.seq() >= last, "the intervals")
    await run.pilot.pause()


async def test_a_watched_job_its_threads_and_who_hurts_it() -> None:
    async with running(crowded(changes={"watch": "lmp"})) as run:
        await run.pilot.press("6")
        await watch(run, 10, (0, 1), 0.75)
        await sees(run, "lmp  2 threads   on CPUs 0-1   runs 1.50 CPUs   waits 25.0 %")
        await sees(run, "takes 25 %  from  lmp 4100")
        result = lines(run)
        assert any("stream 4001" in line and "scheduler" in line for line in result)
        (thread,) = [line for line in result if "lmp 4101" in line and "scheduler" not in line]
        assert thread.split()[:5] == ["1", "lmp", "4101", "75.0", "25.0"]


async def test_a_step_into_the_past_shows_how_the_job_fared_then() -> None:
    async with running(crowded(changes={"watch": "lmp"})) as run:
        await run.pilot.press("6")
        await watch(run, 15, (0, 1), 0.5)
        await sees(run, "runs 1.00 CPUs   waits 50.0 %")
        await watch(run, 20, (0, 1), 1.0)
        await sees(run, "waits 0.0 %")
        await run.pilot.press("space", "shift+left", *["right"] * 10)
        await sees(run, "runs 1.00 CPUs   waits 50.0 %")


async def test_a_job_without_threads_is_reported_to_have_none() -> None:
    async with running(crowded(changes={"watch": "lmp"})) as run:
        await run.pilot.press("6")
        await run.intervals(1)
        await sees(run, "lmp  its threads are not known yet")
        await run.intervals(2, records={"watched": {"threads": {}, "more": 0}})
        await sees(run, "lmp  is not running")


async def test_a_thread_on_a_cpu_that_nobody_knows_is_counted_all_the_same() -> None:
    async with running(crowded(changes={"watch": "lmp"})) as run:
        await run.pilot.press("6")
        await watch(run, 5, (0, 99), 1.0)
        await sees(run, "lmp  2 threads   on CPU 0   runs 2.00 CPUs")


async def test_the_cursor_goes_over_losses_and_threads_and_stays_on_what_it_is_on() -> None:
    async with running(crowded(changes={"watch": "lmp"})) as run:
        await run.pilot.press("6")
        await watch(run, 10, (0, 1), 0.75)
        await sees(run, "scheduler")
        await run.pilot.press("home", "down", "down", "down")
        await until(lambda: any(line.startswith("▌     1  lmp 4101") for line in lines(run)), "it")
        await run.pilot.press("down", "down")
        assert sum(line.startswith("▌") for line in lines(run)) == 1
        await watch(run, 5, (0, 1), 1.0)
        assert any(line.startswith("▌     1  lmp 4101") for line in lines(run))


# --- what cannot be shown, and where there is little room


async def test_a_guest_shows_what_it_cannot_tell() -> None:
    async with running(guest()) as run:
        await run.pilot.press("6")
        await run.intervals(2)
        await sees(run, NO_LOSS_TEXT)
        await sees(run, "not checked: siblings (no core has two threads here")
        await sees(run, "not checked: scheduler, package (only for a watched job: --watch")


@pytest.mark.parametrize(("machine", "why"), [
    (Machine(split=False), "how long two threads ran at once is known only within bounds"),
    (Machine(cores=2, threads=4), "only detected on cores with two threads"),
])  # fmt: skip
async def test_siblings_are_not_said_to_be_looked_at_where_they_are_not(
    machine: Machine, why: str
) -> None:
    async with running(machine) as run:
        await run.pilot.press("6")
        await run.intervals(2)
        await sees(run, f"not checked: siblings ({why}")
        assert not any("siblings, by IPC" in line for line in lines(run))


@pytest.mark.parametrize("ascii_", [False, True])
async def test_every_line_is_as_wide_as_the_screen(ascii_: bool) -> None:
    async with running(crowded(changes={"watch": "lmp"}), ascii_=ascii_) as run:
        await run.pilot.press("6")
        await watch(run, 8, (0, 1), 0.75)
        view = run.app.screen_stack[0].query_one(Neighbours)
        for size in ((80, 24), (120, 30), (240, 70), (40, 10), (20, 5)):
            await run.pilot.resize_terminal(*size)
            await run.pilot.pause()
            made_of = [view.render_line(y) for y in range(view.size.height)]
            assert {strip.cell_length for strip in made_of} == {size[0]}
            assert not ascii_ or all(strip.text.isascii() for strip in made_of)
            if size[0] >= 80:
                assert any("stream" in strip.text for strip in made_of)


async def test_names_cannot_reach_the_terminal() -> None:
    async with running(crowded()) as run:
        await run.pilot.press("6")
        run.feed.machine.does |= {0: Does(0.7, steal=0.3)}
        await run.intervals(10, records={"tasks": {"0": [1, "\x1b[2J\u202e猫", 0.7]}})
        await sees(run, "hypervisor")
        assert any("?[2J??" in line for line in lines(run))


def test_a_long_list_continues_on_the_next_line() -> None:
    results = [
        text(runs) for runs in neighbours.wrapped("checked: ", ["a" * 30, "b" * 30, "c"], 58)
    ]
    assert results == [f" checked: {'a' * 30}", f"          {'b' * 30} · c"]
