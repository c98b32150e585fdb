"""The time window of a measured command: when the command may start, and when its time ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import synth
from fake_ssh import RemoteFeed
from waiting import until_true

from perfprobe import wire
from perftop.base import raw_ns
from perftop.process import command_window
from perftop.process.command_window import (
    LATE_SIGNAL_NS,
    MAX_ARGV_LENGTH,
    MIN_WAIT_FRAMES,
    MIN_WAIT_NS,
    RETRY_AFTER_RUN_S,
    CommandStart,
    CommandWindow,
    argv_text,
)
from perftop.process.job import Job, Run
from perftop.process.link import Echo, Link

SAMPLED, OFFLINE = wire.ROW_SAMPLED, wire.ROW_OFFLINE
WIDE, ELSEWHERE = SAMPLED | wire.ROW_WIDE, SAMPLED | wire.ROW_ELSEWHERE
GOOD = [SAMPLED] * 4
TWO_CORES = synth.hello(cores=2)  # CPUs 0 and 2 are siblings, and so are 1 and 3
VALUES = dict.fromkeys(("ref", "cycles", "instructions"), [0] * 4)


def sample(flags: list[int], at_ns: int | None = None, late_ns: int = 0) -> wire.Frame:
    frame = synth.frame(TWO_CORES, 1, VALUES, flags=flags, late_ns=[0, 0, 0, late_ns])
    return wire.Frame(1, raw_ns() if at_ns is None else at_ns, frame.blocks)


@asynccontextmanager
async def window_around(
    argv: list[str], **changes: Any
) -> AsyncIterator[tuple[CommandWindow, Job]]:
    """A window around a job that has not started."""
    with Job(argv) as job:
        command_window = CommandWindow(job)
        command_window.begin(synth.hello(cores=2, **changes))
        yield command_window, job


async def finished_run(command_window: CommandWindow) -> Run:
    run = await command_window.wait_for_end()
    assert run is not None
    return run


@pytest.mark.parametrize(("flags", "opens"), [
    (GOOD, True),
    ([SAMPLED, SAMPLED, SAMPLED, 0], False),
    ([SAMPLED, WIDE, SAMPLED, SAMPLED], False),
    ([SAMPLED, SAMPLED, ELSEWHERE, SAMPLED], False),
    ([SAMPLED, SAMPLED, SAMPLED, OFFLINE], True),
])  # fmt: skip
async def test_the_command_starts_after_all_online_cpus_were_read(
    flags: list[int], opens: bool
) -> None:
    async with window_around(["true"]) as (command_window, _job):
        assert not command_window.add_frame(sample(flags))
        assert command_window.on_signal(2) is opens, "signals are for the command from its start on"


async def test_the_reader_does_not_pause_while_the_command_waits_for_it() -> None:
    results: list[float] = []
    async with window_around(["true"]) as (command_window, _job):
        command_window.set_pause_function(results.append)
        command_window.add_frame(sample(GOOD))
        await command_window.wait_for_end()
    assert results == []


@pytest.mark.parametrize("frames", [0, 2])
async def test_an_unreadable_cpu_delays_the_command_for_a_limited_time(frames: int) -> None:
    """Both limits must be reached: the last frame is the one that reaches one or both of them."""
    flags = [SAMPLED, SAMPLED, SAMPLED, ELSEWHERE]

    async with window_around(["true"]) as (command_window, _job):
        begin_ns = raw_ns()
        first_ns = [*range(MIN_WAIT_FRAMES - frames), MIN_WAIT_NS - 1]
        times_ns = [begin_ns + ns for ns in (*first_ns, MIN_WAIT_NS)]
        for time_ns in times_ns:
            assert not command_window.on_signal(2)
            command_window.add_frame(sample(flags, time_ns))
        await command_window.wait_for_end()
        for time_ns in times_ns:
            assert not command_window.is_closed
            command_window.add_frame(sample(flags, time_ns + MIN_WAIT_NS))
        assert command_window.is_closed
    assert command_window.missed_cpus == [1, 3], "differences of a sibling need both"
    assert command_window.bounds is not None


async def test_a_stopped_measurement_does_not_start_the_command() -> None:
    async with window_around(["true"]) as (command_window, job):
        command_window.stop()
        command_window.add_frame(sample(GOOD))
        assert await command_window.wait_for_end() is None
        assert job.start_ns == 0


async def test_samples_before_the_end_do_not_close_the_window() -> None:
    async with window_around(["sleep", "0.05"]) as (command_window, _):
        assert not command_window.admit(sample(GOOD, 1))
        first_ns = raw_ns()
        assert command_window.admit(sample(GOOD, first_ns))
        command_window.add_frame(sample(GOOD, first_ns, late_ns=7))
        before_ns = raw_ns()
        run = await finished_run(command_window)
        assert not command_window.add_frame(sample(GOOD, before_ns))
        assert not command_window.add_frame(sample(GOOD, run.end_ns - 1, late_ns=1)), (
            "only one CPU was read after the end"
        )
        assert not command_window.is_closed
        assert command_window.add_frame(sample(GOOD, run.end_ns + 5))
        bounds = command_window.bounds
        assert bounds is not None
        assert bounds.first_ns == (first_ns, first_ns + 7)
        assert bounds.last_ns == (run.end_ns, run.end_ns + 5)
        slack_s = (run.start_ns - first_ns + 5) / 1e9
        assert bounds.slack_s(run.start_ns, run.end_ns) == pytest.approx(slack_s, abs=1e-12)
    assert command_window.missed_cpus == []


async def test_signals_sent_only_to_perftop_are_forwarded() -> None:
    async with window_around(["sleep", "60"]) as (command_window, _job):
        assert not command_window.on_signal(15), "the command has not started, so perftop ends"
        command_window.add_frame(sample(GOOD))
        assert command_window.on_signal(2), "the terminal sent it to the command, too"
        assert command_window.on_signal(15)
        run = await finished_run(command_window)
        assert run.status == 143
        assert not command_window.on_signal(15), "another process may have its number now"


async def test_a_signal_that_ended_the_command_does_not_end_perftop_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The terminal sends the signal to both; perftop must still wait for the last samples."""

    async with window_around(["sleep", "60"]) as (command_window, job):
        command_window.add_frame(sample(GOOD))
        job.kill(9)
        run = await finished_run(command_window)
        assert command_window.on_signal(2)
        assert not command_window.is_closed
        monkeypatch.setattr(
            "perftop.process.command_window.raw_ns", lambda: run.end_ns + LATE_SIGNAL_NS
        )
        assert not command_window.on_signal(2), "later signals end perftop"


async def test_a_command_killed_before_its_start_has_a_status() -> None:
    async with window_around(["true"]) as (command_window, job):
        job.kill(9)
        state = Path(f"/proc/{job.pid}/stat")
        await until_true(
            lambda: state.read_text(encoding="ascii").split()[2] == "Z", "the command has ended"
        )
        command_window.add_frame(sample(GOOD))
        run = await finished_run(command_window)
        assert run.status == 137


# --- a remote machine with another clock: only order and lengths count

REMOTE_HELLO = synth.hello(cores=2, boot_id="another")
REMOTE_NS = 5 * 10**15
"""The remote clock, which is far from the local one."""
MS = 1_000_000


def remote_sample(ms: int) -> wire.Frame:
    frame = synth.frame(REMOTE_HELLO, 1, VALUES, flags=GOOD)
    return wire.Frame(1, REMOTE_NS + ms * MS, frame.blocks)


def remote_window(
    job: Job, start: CommandStart | None = None
) -> tuple[CommandWindow, Link, RemoteFeed]:
    remote = RemoteFeed()
    link = Link("n7", remote, lambda: 0.0)
    command_window = CommandWindow(job, start)
    command_window.set_link(link)
    command_window.begin(REMOTE_HELLO)
    return command_window, link, remote


async def test_only_a_read_after_an_echo_sent_after_the_end_closes_the_window() -> None:
    with Job(["true"]) as job:
        command_window, link, remote = remote_window(job)
        assert command_window.is_remote
        assert command_window.admit(remote_sample(0))
        assert not command_window.add_frame(remote_sample(0))
        run = await finished_run(command_window)
        assert not command_window.add_frame(remote_sample(100))
        assert remote.requested_echoes == [1], "an echo is requested as soon as the run has ended"
        link.last_echo = Echo(run.end_ns - 1, REMOTE_NS + 150 * MS, 1)
        assert not command_window.add_frame(remote_sample(200)), (
            "the echo may have arrived before the end"
        )
        link.last_echo = Echo(run.end_ns, REMOTE_NS + 250 * MS, 1)
        assert not command_window.add_frame(remote_sample(249)), "read before the echo arrived"
        assert command_window.add_frame(remote_sample(251))
        bounds = command_window.bounds
        assert bounds is not None
        assert bounds.first_ns == (REMOTE_NS,) * 2
        assert bounds.last_ns == (REMOTE_NS + 251 * MS,) * 2
        slack_s = bounds.slack_s(run.start_ns, run.end_ns)
        assert abs(slack_s - (0.251 - run.wall_s)) < 1e-9


def test_without_a_boot_id_a_machine_counts_as_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hello = synth.hello(boot_id=command_window.BOOT_ID.read_text(encoding="ascii").strip())
    assert command_window.is_this_machine(hello)
    monkeypatch.setattr(command_window, "BOOT_ID", tmp_path / "missing")
    assert not command_window.is_this_machine(hello)


async def test_an_old_remote_probe_that_never_answers_echoes_does_not_keep_the_window_open() -> (
    None
):
    with Job(["true"]) as job:
        command_window, _, remote = remote_window(job)
        assert command_window.admit(remote_sample(0))
        command_window.add_frame(remote_sample(0))
        await finished_run(command_window)
        closed = [command_window.add_frame(remote_sample(100 * n)) for n in range(1, 12)]
        requested = len(remote.requested_echoes)
        assert closed[: requested + 1] == [False] * (requested - 1) + [True, True]
        assert command_window.bounds is None, "the time of the end is unknown there"


async def test_the_command_waits_for_all_remaining_machines() -> None:
    pauses_s: list[float] = []
    limits_s: list[float] = []
    link: Any = SimpleNamespace(limit_retries=limits_s.append)
    with Job(["true"]) as job:
        start = CommandStart(job, 3)
        start.pauses.append((pauses_s.append, 0.5))
        start.links.append(link)
        first, second, third = (remote_window(job, start)[0] for _ in range(3))
        for ms in range(4):
            assert not first.admit(remote_sample(ms)), "no sample of the others arrived"
        third.give_up()
        third.give_up()
        assert not first.admit(remote_sample(4))
        assert second.admit(remote_sample(0))
        assert not second.add_frame(remote_sample(0))
        assert job.start_ns == 0
        assert first.admit(remote_sample(100))
        first.add_frame(remote_sample(100))
        assert job.start_ns > 0
        run = await finished_run(second)
        assert run.status == 0
        await asyncio.sleep(0)
    assert (pauses_s, limits_s) == ([0.5, 0.0], [RETRY_AFTER_RUN_S])


# --- notes of the run


class UnboundedWindow(CommandWindow):
    run: Any = None
    bounds = None


@pytest.mark.parametrize(("clock", "frames_ns", "expected"), [
    ("ours", [1000, 1010, 1030], [
        [("run-start", 1000)], [("a", 1005), ("b", 1010)],
        [("c", 1011), ("late", 1030), ("run-end", 1020)],
    ]),
    # from the frame in which it started, as long as the run
    ("remote", [70, 71, 72], [
        [("run-start", 70), ("a", 70), ("b", 70), ("c", 70)], [], [("late", 72), ("run-end", 90)],
    ]),
    ("simulated", [70, 71, 72], [
        [("run-start", 70), ("a", 70), ("b", 70), ("c", 70)], [], [("late", 72), ("run-end", 72)],
    ]),
])  # fmt: skip
def test_notes_of_a_run_are_in_order_and_not_ahead_of_the_frames(
    clock: str, frames_ns: list[int], expected: list[list[tuple[str, int]]]
) -> None:
    """The run is from 1000 to 1020 ns on our clock."""
    marks: list[tuple[int, str]] = []
    new_marks = SimpleNamespace(new_marks=lambda: [marks.pop(0) for _ in marks[:]])
    job: Any = SimpleNamespace(start_ns=0, pid=7, argv=["make"], marks=new_marks)
    window = UnboundedWindow(job)
    window.has_our_clock, window.is_remote = clock == "ours", clock == "remote"

    def due(now_ns: int, *, is_over: bool = False) -> list[tuple[str, int]]:
        due_notes = [*window.due_notes(now_ns, is_over=is_over)]
        assert all(
            n.data["remote"] is (clock == "remote") for n in due_notes if n.kind == "run-end"
        )
        return [(note.data.get("label", note.kind), note.time_ns) for note in due_notes]

    assert due(1, is_over=True) == [], "the command was not started"
    job.start_ns = 1000
    marks += [(1005, "a"), (1010, "b"), (1011, "c")]
    assert [due(now_ns) for now_ns in frames_ns[:2]] == expected[:2]
    marks.append((1040, "late"))
    window.run = Run(7, 0, None, 1000, 1020, 0.0, 0.0, 0.0)
    assert due(frames_ns[2], is_over=True) == expected[2]
    assert due(frames_ns[2], is_over=True) == []


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_a_command_line_is_cut_at_its_limit(spare: int) -> None:
    last = "x" * (MAX_ARGV_LENGTH - len("make \udcff ") - spare)
    text = ["make", "?", last] if spare >= 0 else ["make", "?", last[:-1] + "…"]
    assert argv_text(["make", "\udcff", last]) == text
