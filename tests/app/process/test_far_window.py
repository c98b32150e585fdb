"""The window on a machine far away, whose clock is another: only the order of what was sent and
what came counts, and lengths."""

from __future__ import annotations

from math import inf

import made
from far import Far
from waiting import until

from perfprobe import wire
from perftop.process.command_window import CommandStart, CommandWindow
from perftop.process.job import Job, Run
from perftop.process.link import MAX_UNANSWERED, Echo, Link

HELLO = made.hello(cores=2, boot_id="another")
VALUES = dict.fromkeys(("ref", "cycles", "instructions"), [0] * 4)
GOOD = [wire.ROW_SAMPLED] * 4
THERE_NS = 5 * 10**15
"""What the clock there says; that here is far from it."""
MS = 1_000_000


def sample(ms: int) -> wire.Frame:
    frame = made.frame(HELLO, 1, VALUES, flags=GOOD)
    return wire.Frame(1, THERE_NS + ms * MS, frame.blocks)


def begun(job: Job, start: CommandStart | None = None) -> tuple[CommandWindow, Link, Far]:
    far = Far()
    link = Link("n7", far, lambda: 0.0)
    bracket = CommandWindow(job, start)
    bracket.reached(link)
    bracket.begin(HELLO)
    return bracket, link, far


async def ran(bracket: CommandWindow) -> Run:
    run = await bracket.ended()
    assert run is not None
    return run


async def test_only_a_read_after_an_echo_of_after_the_end_closes_it() -> None:
    with Job(["true"]) as job:
        bracket, link, far = begun(job)
        assert bracket.far
        assert bracket.admit(sample(0))
        assert not bracket.take(sample(0))
        run = await ran(bracket)
        assert not bracket.take(sample(100))
        assert far.asked == [1], "it asks as soon as the run has ended"
        link.echoed = Echo(run.end_ns - 1, THERE_NS + 150 * MS, 1)
        assert not bracket.take(sample(200)), "the echo may have been heard before the end"
        link.echoed = Echo(run.end_ns, THERE_NS + 250 * MS, 1)
        assert not bracket.take(sample(249)), "read before the echo was heard"
        assert bracket.take(sample(251))
        bounds = bracket.bounds
        assert bounds is not None
        assert bounds.first_ns == (THERE_NS,) * 2
        assert bounds.last_ns == (THERE_NS + 251 * MS,) * 2
        slack_s = bounds.slack_s(run.start_ns, run.end_ns)
        assert abs(slack_s - (0.251 - run.wall_s)) < 1e-9


async def test_without_echoes_nothing_is_claimed() -> None:
    with Job(["true"]) as job:
        bracket, _, far = begun(job)
        bracket.take(sample(0))
        await ran(bracket)
        taken = [bracket.take(sample(100 * i)) for i in range(1, MAX_UNANSWERED + 2)]
        assert any(taken)
        assert len(far.asked) == MAX_UNANSWERED
        assert bracket.bounds is None


async def test_the_run_waits_for_all_and_for_none_that_is_gone() -> None:
    with Job(["true"]) as job:
        start = CommandStart(job, 3)
        one, two, gone = (begun(job, start)[0] for _ in range(3))
        assert not one.admit(sample(0)), "the others have not been heard"
        gone.leave()
        gone.leave()
        assert two.admit(sample(0))
        assert not two.take(sample(0))
        assert job.start_ns == 0
        assert one.admit(sample(100))
        one.take(sample(100))
        assert job.start_ns > 0
        run = await ran(two)
        assert run.status == 0


async def test_it_does_not_start_if_all_are_gone_or_we_are_told_to_end() -> None:
    with Job(["true"]) as job:
        start = CommandStart(job, 2)
        one, two = (begun(job, start)[0] for _ in range(2))
        one.leave()
        two.leave()
        assert start.running is None
        start = CommandStart(job, 2)
        one, two = (begun(job, start)[0] for _ in range(2))
        one.admit(sample(0))
        two.admit(sample(0))
        one.take(sample(0))
        two.stop()
        two.leave()
        assert start.running is None
        assert job.start_ns == 0


async def test_after_the_run_a_broken_link_is_not_waited_for_without_end() -> None:
    with Job(["true"]) as job:
        bracket, link, _ = begun(job)
        bracket.take(sample(0))
        assert link.until_s == inf
        await ran(bracket)
        await until(lambda: link.until_s < inf, "an end of the tries")
