"""A command between samples: what opens its gate, and what ends the time that is measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import made
import pytest
from waiting import quiet, until

from perfprobe import wire
from perftop.process.command_window import ECHO_NS, PATIENCE, PATIENCE_NS, CommandWindow
from perftop.process.job import Job, raw_ns

SAMPLED, OFFLINE = wire.ROW_SAMPLED, wire.ROW_OFFLINE
WIDE, ELSEWHERE = SAMPLED | wire.ROW_WIDE, SAMPLED | wire.ROW_ELSEWHERE
GOOD = [SAMPLED] * 4
TWO_CORES = made.hello(cores=2)  # CPUs 0 and 2, and 1 and 3
VALUES = dict.fromkeys(("ref", "cycles", "instructions"), [0] * 4)


def sample(flags: list[int], at_ns: int | None = None, late_ns: int = 0) -> wire.Frame:
    frame = made.frame(TWO_CORES, 1, VALUES, flags=flags, late_ns=[0, 0, 0, late_ns])
    return wire.Frame(1, raw_ns() if at_ns is None else at_ns, frame.blocks)


@asynccontextmanager
async def around(argv: list[str], **changes: Any) -> AsyncIterator[tuple[CommandWindow, Job]]:
    """With the job held."""
    with Job(argv) as job:
        bracket = CommandWindow(job)
        bracket.begin(made.hello(cores=2, **changes))
        yield bracket, job


@pytest.mark.parametrize(
    ("flags", "opens"),
    [
        (GOOD, True),
        ([SAMPLED, SAMPLED, SAMPLED, 0], False),
        ([SAMPLED, WIDE, SAMPLED, SAMPLED], False),
        ([SAMPLED, SAMPLED, ELSEWHERE, SAMPLED], False),
        ([SAMPLED, SAMPLED, SAMPLED, OFFLINE], True),
    ],
)
async def test_the_gate_opens_when_every_cpu_that_is_on_was_read(
    flags: list[int], opens: bool
) -> None:
    async with around(["true"]) as (bracket, _job):
        assert not bracket.take(sample(flags))
        assert bracket.on_signal(2) is opens, "from now on signals are the command's"


async def test_the_reader_may_rest_while_the_command_runs() -> None:
    told: list[float] = []
    with Job(["true"]) as job:
        bracket = CommandWindow(job, rest_s=0.5)
        bracket.reads(told.append)
        bracket.begin(TWO_CORES)
        assert told == [], "the command waits for samples"
        bracket.take(sample(GOOD))
        assert told == [0.5]
        await bracket.ended()
        await quiet()
        assert told == [0.5, 0.0]


async def test_a_reader_that_is_waited_for_does_not_rest() -> None:
    told: list[float] = []
    async with around(["true"]) as (bracket, _job):
        bracket.reads(told.append)
        bracket.take(sample(GOOD))
        await bracket.ended()
    assert told == []


async def test_reads_of_several_frames_add_up() -> None:
    async with around(["true"]) as (bracket, _job):
        for flags in ([SAMPLED, 0, SAMPLED, 0], [0, WIDE, 0, SAMPLED]):
            bracket.take(sample(flags))
            assert not bracket.on_signal(2)
        bracket.take(sample([0, SAMPLED, 0, SAMPLED]))
        assert bracket.on_signal(2)


async def test_only_cpus_that_were_asked_for_are_waited_for() -> None:
    async with around(["true"], selected=[1]) as (bracket, _job):
        bracket.take(sample([0, SAMPLED, 0, SAMPLED]))
        assert bracket.on_signal(2)


async def test_one_that_cannot_be_read_holds_nobody_up_for_good() -> None:
    flags = [SAMPLED, SAMPLED, SAMPLED, ELSEWHERE]

    async with around(["true"]) as (bracket, _job):
        begin_ns = raw_ns()
        times_ns = [*(begin_ns + i for i in range(PATIENCE)), begin_ns + PATIENCE_NS]
        for time_ns in times_ns:
            assert not bracket.on_signal(2)
            bracket.take(sample(flags, time_ns))
        await bracket.ended()
        for time_ns in times_ns:
            assert not bracket.closed
            bracket.take(sample(flags, time_ns + PATIENCE_NS))
        assert bracket.closed
    assert bracket.missed == [1, 3], "its sibling's differences wait for it"
    assert bracket.bounds is not None


async def test_what_was_sampled_before_the_end_does_not_close_it() -> None:
    async with around(["sleep", "0.05"]) as (bracket, _):
        assert not bracket.admit(sample(GOOD, 1))
        first_ns = raw_ns()
        assert bracket.admit(sample(GOOD, first_ns))
        bracket.take(sample(GOOD, first_ns, late_ns=7))
        before_ns = raw_ns()
        run = await bracket.ended()
        assert run is not None
        assert not bracket.take(sample(GOOD, before_ns))
        assert not bracket.take(sample(GOOD, run.end_ns - 1, late_ns=1)), "only one was late enough"
        assert not bracket.closed
        assert bracket.take(sample(GOOD, run.end_ns + 5))
        bounds = bracket.bounds
        assert bounds is not None
        assert bounds.first_ns == (first_ns, first_ns + 7)
        assert bounds.last_ns == (run.end_ns, run.end_ns + 5)
        slack_s = (run.start_ns - first_ns + 5) / 1e9
        assert bounds.slack_s(run.start_ns, run.end_ns) == pytest.approx(slack_s, abs=1e-12)
    assert bracket.missed == []


async def test_samples_that_waited_in_the_pipe_do_not_use_up_the_patience() -> None:
    """The command may end while a slow terminal holds us up."""
    async with around(["sleep", "0.05"]) as (bracket, _):
        bracket.take(sample(GOOD))
        run = await bracket.ended()
        assert run is not None
        step_ns = PATIENCE_NS // PATIENCE
        for n in range(2 * PATIENCE, 0, -1):
            assert not bracket.take(sample(GOOD, run.end_ns - n * step_ns))
        assert bracket.take(sample(GOOD, run.end_ns + 5))
    assert bracket.missed == []
    assert bracket.bounds is not None


async def test_a_simulated_machine_tells_no_bounds() -> None:
    """It may be years ahead, or behind."""

    async with around(["sleep", "0.05"], source="sim:steady") as (bracket, _job):
        assert bracket.admit(sample(GOOD, 1))
        bracket.take(sample(GOOD, 1))
        assert not bracket.take(sample(GOOD, 10**18)), "it still runs"
        await bracket.ended()
        assert bracket.take(sample(GOOD, 2))
    assert bracket.bounds is None


async def test_signals_to_us_alone_are_passed_on() -> None:
    async with around(["sleep", "60"]) as (bracket, _job):
        assert not bracket.on_signal(15), "it has not begun: it is for us to end"
        bracket.take(sample(GOOD))
        assert bracket.on_signal(2), "the terminal has sent it to the command too"
        assert bracket.on_signal(15)
        run = await bracket.ended()
        assert run is not None
        assert run.status == 143
        assert not bracket.on_signal(15), "its number may be another's by now"


async def test_what_ended_the_command_may_be_heard_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The terminal sends it to both; the last samples are to be waited for all the same."""

    async with around(["sleep", "60"]) as (bracket, job):
        bracket.take(sample(GOOD))
        job.kill(9)
        run = await bracket.ended()
        assert run is not None
        assert bracket.on_signal(2)
        assert not bracket.closed
        monkeypatch.setattr("perftop.process.command_window.raw_ns", lambda: run.end_ns + ECHO_NS)
        assert not bracket.on_signal(2), "that one was for us"


async def test_who_gave_up_waiting_for_it_knows_of_no_run() -> None:
    async with around(["sleep", "60"]) as (bracket, job):
        bracket.take(sample(GOOD))
        waiting = asyncio.ensure_future(bracket.ended())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert bracket.run is None
        job.kill(9)
        await job.ended()


async def test_one_that_was_killed_at_the_gate() -> None:
    async with around(["true"]) as (bracket, job):
        job.kill(9)
        state = Path(f"/proc/{job.pid}/stat")
        await until(lambda: state.read_text(encoding="ascii").split()[2] == "Z", "it is dead")
        bracket.take(sample(GOOD))
        run = await bracket.ended()
        assert run is not None
        assert run.status == 137
