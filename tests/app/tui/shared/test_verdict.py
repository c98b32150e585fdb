"""The verdict on the screen equals the first line of why; episodes of the displayed time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby, pairwise
from math import nan, sin
from pathlib import Path
from typing import Any

import exports
import pytest
from fakes import Machine, observe, queue_records
from make import capture, live, replayed
from nightly import nightly_case
from recording_files import write_recording
from sessions import session_of
from waiting import until_true

from perfprobe import wire
from perftop.base.text import time_of_day
from perftop.draw import strips
from perftop.model.confidence import TaskOnCpu
from perftop.model.kinds import Episode
from perftop.output import why_text
from perftop.output.report import Report
from perftop.output.sentences import sentence, text
from perftop.output.why_report import report
from perftop.output.why_text import answer, why_json
from perftop.recording.file import open_recording
from perftop.session import selection
from perftop.session.episodes import RecordingEpisodes
from perftop.session.history import History
from perftop.session.losses import VERDICT_SPAN_NS
from perftop.session.selection import nearest_episode, reachable_episodes
from perftop.session.session import Session
from perftop.tui.frame.top import AppStatus, TopLines, alert_line
from perftop.tui.replay import ReplaySource
from perftop.tui.shared import verdict as verdict_module
from perftop.tui.shared.episode_style import ended_sentence, episodes_during
from perftop.tui.shared.row_numbers import ViewSettings
from perftop.tui.shared.verdict import (
    CALM_SIGN,
    HISTORY_CELLS,
    Loss,
    Verdict,
    loss_line,
    verdict_at,
)
from perftop.tui.stream import StreamSource
from perftop.verbs.options import SHIPPED_DIRECTORY

SECOND = 1_000_000_000
TWO_HOGS = (11, "hogA", 0.5, 0.5), (12, "hogB", 0.5, 0.5)
HOGS = queue_records(cpu1=TWO_HOGS)
SENTENCE_ON_HOGS = "hogA[11] and hogB[12] shared CPU 1: each waited 50 % of its time"


def two_cpus(**changes: Any) -> Machine:
    return Machine(cores=2, threads=1, ceiling_hz=3.0e9, changes=changes)


def messages_of_two_hogs(samples: int = 141) -> list[wire.Message]:
    """Returns the messages of a machine on which two tasks share CPU 1 equally."""
    return Machine(cores=2, ceiling_hz=3.0e9).messages(samples, lambda _: HOGS)


def new_session(hello: wire.Message) -> Session:
    assert isinstance(hello, wire.Hello)
    session = Session(hello, History(hello))
    session.run.track_losses()
    return session


def session_and_verdicts(messages: list[wire.Message]) -> tuple[Session, list[tuple[int, Verdict]]]:
    """Returns a session, and its verdict after each second."""
    hello, *frames = messages
    session, verdicts = new_session(hello), []
    for _, second in groupby(frames, lambda m: (getattr(m, "time_ns", 0) - 1) // SECOND):
        session_of(session, [*second])
        if session.frames > 1:
            verdict = verdict_at(session, session.take_interval())
            assert verdict is not None
            verdicts.append((session.now_ns, verdict))
    return session, verdicts


def why_between(messages: list[wire.Message], start_ns: int, until_ns: int) -> tuple[str, Report]:
    """Returns the first line of `why` for a span, and its report."""
    session = Session(exports.hello(messages))
    session.run.track_losses()
    frames = (message for message in messages if isinstance(message, wire.Frame))
    session_of(session, [f for f in frames if start_ns <= f.time_ns <= until_ns])
    why = report(session)
    return answer(why), why


@pytest.mark.parametrize("spec", ["", "sim:guest,cpus=4", "sim:steady,cpus=4", "sim:idle,cpus=2"])
def test_the_verdict_equals_the_first_line_of_why(spec: str) -> None:
    """The line, and the numbers of the report behind it, which are of the same seconds."""
    messages = exports.messages(spec, 14) if spec else messages_of_two_hogs()
    session, verdicts = session_and_verdicts(messages)
    for until_ns, verdict in verdicts[4::3]:
        assert verdict.report is not None
        totals = verdict.report.totals  # of a calm machine, up to a second old
        line, why = why_between(messages, totals.start_ns, totals.end_ns)
        seen_ns = min(until_ns - session.run.start_ns, VERDICT_SPAN_NS)
        assert totals.elapsed_s * 1e9 == pytest.approx(seen_ns, abs=SECOND)
        assert f"{verdict.text}." == line
        second_row = strips.text(loss_line(verdict, 160, [], "colour")[0])
        assert verdict.wanted_s > 0 or "ran " not in second_row, "no zeros beside an unknown loss"
        assert "lost 0.00 s" not in second_row
        numbers = verdict.report.interval
        for key in ("util", "ipc", "steal"):
            expected = why.interval.values.mean(key, session.selected)
            assert numbers.values.mean(key, session.selected) == pytest.approx(
                expected, nan_ok=True
            )
        assert numbers.machine == pytest.approx(why.interval.machine, nan_ok=True)


def test_two_tasks_that_share_a_cpu_are_both_named() -> None:
    session, verdicts = session_and_verdicts(messages_of_two_hogs())
    verdict = verdicts[-1][1]
    assert verdict.text == "hogA[11] and hogB[12] share CPU 1: each waits 50 % of its time"
    line, mood = alert_line(session, None, AppStatus(0), 80, verdict=verdict)
    assert mood == "victim"
    assert strips.text(line).startswith(f"▌ ◐ {verdict.text} · for 1")
    assert ("50 %", "alarm") in line


def test_keys_below_the_verdict_are_whole_or_left_out() -> None:
    _, verdicts = session_and_verdicts(messages_of_two_hogs())
    words = ("d compare", "y copy range", "space live", "w why")
    keys = [(rank, [(word, "key")]) for rank, word in zip((1, 2, 3, 0), words, strict=True)]
    for size in range(70, 161):
        runs, _ = loss_line(verdicts[-1][1], size, keys, "colour")
        line = strips.text(runs)
        assert line.rstrip().endswith("w why")
        assert len(line) <= size
        for word in words:
            line = line.replace(word, "")
        assert not {"compare", "copy", "space"} & {*line.split()}
    assert words[2] in strips.text(runs)


def test_a_sentence_is_always_shown() -> None:
    """First "Watching", then a verdict every 5 s; a past time has its own sentence."""
    messages = exports.messages("sim:steady,cpus=2", 22)
    session, verdicts = session_and_verdicts(messages)
    assert verdicts[0][1].text.startswith("Watching: 1 of 10 s")
    assert verdicts[-1][1].text.startswith("Nothing is slowing this machine down (0.")
    assert verdicts[-1][1].marker == CALM_SIGN
    renewed = [n for n, ((_, a), (_, b)) in enumerate(pairwise(verdicts)) if a is not b]
    assert renewed[3:] == [7, 9, 14, 19]
    interval = session.interval_at(session.now_ns - 2 * SECOND, SECOND)
    assert interval is not None
    then = verdict_at(session, interval)
    assert then is not None
    assert then.is_past
    assert then.text.startswith("Nothing slowed this machine down (0.")
    assert then.report is not None
    assert why_json(then.report, None)["seen"]["end"] == session.unix_s(interval.time_ns)
    end = time_of_day(session.unix_s(interval.time_ns))
    assert f" until {end}, " in "".join(why_text.lines(then.report, colour=False, unicode=True))


def test_the_loss_is_unknown_until_the_first_verdict() -> None:
    _, verdicts = session_and_verdicts(messages_of_two_hogs())
    watching = [verdict for _, verdict in verdicts if verdict.text.startswith("Watching")]
    rows = [strips.text(loss_line(verdict, 160, [], "colour")[0]) for verdict in watching]
    assert rows
    expected = ["lost", "–", "grows", "as", "seconds", "come", "in"]
    assert all(row.split()[:7] == expected for row in rows), rows


def test_a_calm_verdict_names_the_longest_wait_of_its_own_seconds() -> None:
    """A task that switches 20 times a second waits for 4 % of a second, then for 0.4 %."""
    early, late = (queue_records(cpu0=[(11, "nginx", 0.5, wait)]) for wait in (0.04, 0.004))
    messages = two_cpus().messages(201, lambda seq: early if seq == 40 else late)
    verdicts = [verdict for _, verdict in session_and_verdicts(messages)[1]]
    assert "longest wait 1.9 ms or more (nginx)" in verdicts[7].evidence
    assert "longest wait 200 µs or more (nginx)" in verdicts[-1].evidence


def test_the_time_of_a_cause_that_returns_begins_with_its_present_episode() -> None:
    """The memory is saturated from 9 to 19 s, and again from 25 s on."""
    _, verdicts = session_and_verdicts(exports.messages("sim:memory,cpus=8,packages=1,seed=1", 30))
    texts = [verdict.duration_text for _, verdict in verdicts if verdict.level]
    assert texts[-1] in {"for 4 s", "for 5 s"}


def test_red_starts_at_once_and_ends_after_three_seconds() -> None:
    """The tasks stop after 14 s, and are named as the last cause for a minute. From then on, the
    list of episodes shows when they waited; no detector reports waiting tasks."""
    machine = Machine(cores=2, ceiling_hz=3.0e9)
    messages = machine.messages(800, lambda seq: HOGS if seq <= 140 else {})
    session, verdicts = session_and_verdicts(messages)
    levels = [verdict.level for _, verdict in verdicts]
    assert levels == [0, 0, *([2] * 14), *([0] * 64)]
    computed = [a is not b for (_, a), (_, b) in pairwise(verdicts[4:14])]
    assert computed in ([True, False] * 4 + [True], [False, True] * 4 + [False]), "every 2 s"
    assert not any("for 0 s" in verdict.evidence for _, verdict in verdicts)
    assert verdicts[18][1].evidence[0] == f"5 s ago for 14 s: {SENTENCE_ON_HOGS}"
    assert not any("hogA" in piece for piece in verdicts[-1][1].evidence)
    (loss,) = session.ended
    assert (loss.start_ns, loss.end_ns) == pytest.approx((0, 14 * SECOND), abs=SECOND)
    assert text(ended_sentence(session, [loss])) == SENTENCE_ON_HOGS
    assert not session.episodes(0, session.now_ns), "losses are not computed from it"
    ends_ns = nearest_episode(session, session.now_ns, reachable_episodes(session), -1)
    assert ends_ns == pytest.approx((0, 14 * SECOND), abs=SECOND)


def test_tasks_that_still_wait_can_be_visited() -> None:
    """The key N once said that there was no earlier episode, beside a list with this one."""
    session, _ = session_and_verdicts(messages_of_two_hogs())
    ends_ns = nearest_episode(session, session.now_ns, reachable_episodes(session), -1)
    assert ends_ns == pytest.approx((0, 14 * SECOND), abs=SECOND)


def tasks_that_stop_waiting(machine: Machine, waiting_samples: int) -> list[wire.Message]:
    """Returns the messages of 30 s in which two tasks share CPU 1 at first, and then wait no
    longer."""
    free = queue_records(cpu0=[(12, "hogB", 1.0, 0.0)], cpu1=[(11, "hogA", 1.0, 0.0)])
    return machine.messages(300, lambda seq: HOGS if seq <= waiting_samples else free)


def test_the_last_loss_of_few_tasks_on_a_big_machine_has_its_real_end() -> None:
    """They lose less than 1 % of all CPU time. Their loss was once said to have ended 8 s early."""
    machine = Machine(cores=128, threads=1, ceiling_hz=3.0e9)
    for cpu in range(128):
        machine.cpu(cpu).util = 1.0
    session, verdicts = session_and_verdicts(tasks_that_stop_waiting(machine, 140))
    (loss,) = session.ended
    assert (loss.start_ns, loss.end_ns) == pytest.approx((0, 14 * SECOND), abs=SECOND)
    assert " ago for 14 s: " in verdicts[-1][1].evidence[0]


def test_a_loss_that_ends_while_the_screen_is_paused_does_not_last_until_its_end() -> None:
    messages = tasks_that_stop_waiting(two_cpus(), 100)
    session = new_session(messages[0])
    for seq, message in enumerate(messages[1:]):
        session.apply(message)
        interval = session.take_interval()
        if 50 < seq < 280:
            past_interval = session.interval_at(5 * SECOND, SECOND)
            assert past_interval is not None
            interval = past_interval
        if seq and seq % 10 == 0:
            verdict_at(session, interval)
    (loss,) = session.ended
    assert (loss.start_ns, loss.end_ns) == pytest.approx((0, 5 * SECOND), abs=SECOND)


def test_the_last_loss_of_the_first_seconds_is_described_as_it_was_then() -> None:
    """The times of its tasks once went on growing after the loss."""
    messages = tasks_that_stop_waiting(two_cpus(), 50)
    session, verdicts = session_and_verdicts(messages)
    assert verdicts[-1][1].evidence[0].endswith(f" ago for 6 s: {SENTENCE_ON_HOGS}")
    assert text(ended_sentence(session, session.ended)) == SENTENCE_ON_HOGS


def test_one_long_wait_is_listed_once_although_another_loss_is_at_times_greater() -> None:
    """Each time, the list once got another episode of about 15 s, which overlapped the last."""
    machine = two_cpus(virtualisation="kvm")
    messages: list[wire.Message] = [machine.hello]
    records = queue_records(cpu1=[(11, "hogA", 0.5, 0.15), (12, "hogB", 0.5, 0.15)])
    for seq in range(1000):
        for cpu in (0, 1):
            steal = max(0.0, 0.15 + 0.06 * sin(seq / 15))
            machine.cpu(cpu).steal, machine.cpu(cpu).util = steal, 1 - steal
        messages.append(machine.frame(seq, records={} if seq % 10 else records))
    session, verdicts = session_and_verdicts(messages)
    assert len({verdict.cause for _, verdict in verdicts[4:]}) == 2
    waits = [episode for episode in session.ended if episode.cause == "scheduler"]
    assert all(a.end_ns is not None and a.end_ns < b.start_ns for a, b in pairwise(waits))
    assert len(waits) < 4


POSTGRES_AND_RESTIC = (21, "postgres", 0.7, 0.25), (22, "restic", 0.3, 0.0)


def test_a_shorter_wait_beside_a_longer_one_is_listed_from_its_start_to_its_end() -> None:
    """Only the longest wait was once listed. hogA waits on CPU 1 all the time; from 20 to 35 s,
    postgres waits for restic on CPU 0."""
    both = queue_records(cpu0=POSTGRES_AND_RESTIC, cpu1=TWO_HOGS)
    messages = two_cpus().messages(600, lambda seq: both if 200 < seq <= 350 else HOGS)
    session, _ = session_and_verdicts(messages[:300])
    longer, shorter = session.log.listed_running
    assert longer.start_ns == pytest.approx(0, abs=SECOND)
    assert shorter.start_ns == pytest.approx(20 * SECOND, abs=SECOND)
    assert not session.running, "losses are not computed from waits"
    session, _ = session_and_verdicts(messages)
    (ended,) = session.ended
    assert (ended.start_ns, ended.end_ns) == pytest.approx((20 * SECOND, 35 * SECOND), abs=SECOND)
    whole, short = (text(ended_sentence(session, [ended], size)) for size in (76, 32))
    assert whole == "postgres waited 26 % of its time behind restic[22] on CPU 0"
    assert short == "postgres waited 26 % for restic"


TWO_USERS = {"details": {"11": {"user": "one"}, "21": {"user": "two"}}}


def test_the_listed_wait_is_that_of_the_verdict_if_two_users_tasks_have_its_name() -> None:
    """The list once had the smaller share of the other user's tasks."""
    record = TWO_USERS | queue_records(
        cpu0=[(21, "hogA", 0.8, 0.2), (22, "restic", 0.2, 0.0)],
        cpu1=[(11, "hogA", 0.5, 0.5), (12, "hogB", 0.5, 0.2)],
    )
    session, verdicts = session_and_verdicts(two_cpus().messages(200, lambda _: record))
    wait, other_wait = session.log.listed_running
    assert wait.evidence["label"] == verdicts[-1][1].text
    assert "50 %" in verdicts[-1][1].text
    assert (wait.cpus, other_wait.cpus) == ([1], [0])


def test_a_wait_does_not_begin_with_that_of_another_users_tasks_of_the_same_name() -> None:
    """hogA of one user waits on CPU 1; from 20 s on, that of another waits longer on CPU 0."""
    hogs = (11, "hogA", 0.5, 0.2), (12, "hogB", 0.5, 0.2)
    longer_wait = (21, "hogA", 0.5, 0.7), (22, "restic", 0.5, 0.0)
    alone = TWO_USERS | queue_records(cpu1=hogs)
    both = TWO_USERS | queue_records(cpu0=longer_wait, cpu1=hogs)
    messages = two_cpus().messages(400, lambda seq: both if seq > 200 else alone)
    session, verdicts = session_and_verdicts(messages)
    starts_s = {e.cpus[0]: e.start_ns / SECOND for e in session.log.listed_running}
    assert starts_s == pytest.approx({0: 20, 1: 0}, abs=1)
    start_ns = verdicts[-1][1].wait_start_ns
    assert start_ns == pytest.approx(20 * SECOND, abs=SECOND)


def test_tasks_that_no_longer_wait_are_not_named_while_others_still_do() -> None:
    """hogA and hogB end after 20 s; postgres waits for restic all the time, but for less."""
    rest = queue_records(cpu0=POSTGRES_AND_RESTIC)
    both = queue_records(cpu0=POSTGRES_AND_RESTIC, cpu1=TWO_HOGS)
    messages = two_cpus().messages(300, lambda seq: both if seq <= 200 else rest)
    _, verdicts = session_and_verdicts(messages)
    named = [(ns / SECOND, verdict.text.split()[0]) for ns, verdict in verdicts if ns > 11 * SECOND]
    assert {name for at_s, name in named if at_s < 20} == {"hogA[11]"}
    assert {name for at_s, name in named if at_s > 24.5} == {"postgres"}


def test_a_wait_does_not_begin_with_that_of_other_tasks_on_its_cpu() -> None:
    """cron waits on CPU 1 all the time; from 20 to 30 s, hogA and hogB wait longer. Only the first
    is listed. After the end of the hogs, they are not named again."""
    cron = (31, "cron", 0.3, 0.2)
    alone = queue_records(cpu1=[(32, "stream", 0.5, 0.0), cron])
    crowded = queue_records(cpu1=[(11, "hogA", 0.35, 0.6), (12, "hogB", 0.35, 0.6), cron])
    messages = two_cpus().messages(450, lambda seq: crowded if 200 < seq <= 300 else alone)
    session, _ = session_and_verdicts(messages[:202])
    (listed,) = session.log.listed_running
    assert listed.evidence["loser"] == [TaskOnCpu(31, "cron", 1)]
    session, verdicts = session_and_verdicts(messages)
    named = [(ns / SECOND, verdict) for ns, verdict in verdicts if verdict.text.startswith("hog")]
    assert named[-1][0] < 35
    assert all(v.wait_start_ns == pytest.approx(20 * SECOND, abs=SECOND) for at_s, v in named)
    assert not session.ended, "cron still waits"


def job_messages(
    watch: str, samples: int, pid_at: Callable[[int], int], sample_ns: int = SECOND // 20
) -> list[wire.Message]:
    """Returns the messages of a job beside two hogs, whose only thread waits half of its time.
    `pid_at`: its PID at a sample; 0: the job does not run. `sample_ns`: for how long it runs in a
    sample, in ns."""
    runs_by_pid: dict[int, int] = {}

    def records(seq: int) -> dict[str, Any]:
        pid, threads = pid_at(seq), {}
        if pid:
            ran_ns = (seq - runs_by_pid.setdefault(pid, seq)) * sample_ns
            threads = {f"{pid}": [pid, "make", 1, ran_ns, ran_ns, 0, 0]}
        return HOGS | {"watched": {"threads": threads, "more": 0}}

    machine = Machine(cores=2, ceiling_hz=3.0e9, changes={"watch": watch})
    return machine.messages(samples, records)


def test_a_job_that_has_ended_is_judged_over_its_whole_time() -> None:
    """Ten seconds after its end, such a job was once reported as 'ended before a sample, so nothing
    is known of it'."""
    session, verdicts = session_and_verdicts(job_messages("70", 381, lambda seq: 70 * (seq <= 80)))
    texts = [verdict.text for _, verdict in verdicts]
    assert texts[5].startswith("make loses 50 % of its time to ")
    assert set(texts[10:]) == {texts[5].replace("loses", "lost")}
    last = verdicts[-1][1]
    assert last.evidence[0].startswith("in all ")
    assert last.wanted_s == pytest.approx(7)  # the verdict appears from the job's second record on
    assert last.span_s == pytest.approx(9, abs=1.1)
    moment = session.interval_at(30 * SECOND, SECOND)
    assert moment is not None
    past = verdict_at(session, moment)
    assert past is not None
    assert past.text == "make was not running, so nothing is known about it"


def test_a_job_that_wanted_a_cpu_for_a_moment_has_no_lost_share() -> None:
    """Its screen once said 'too short a time to give shares of it' above 'lost 50 %' and a tick."""
    messages = job_messages("70", 61, lambda _: 70, SECOND // 2000)
    verdict = session_and_verdicts(messages)[1][-1][1]
    assert "too short a time to give shares" in verdict.text
    assert verdict.marker == "·"
    assert strips.text(loss_line(verdict, 160, [], "colour")[0]).split()[:2] == ["lost", "–"]


@pytest.mark.parametrize(("wanted_s", "words"), [
    (0.204, "ran 4 ms, lost 0.20 s"), (0.22, "ran 0.02 s, lost 0.20 s"),
    (1.3, "ran 1.1 s, lost 0.20 s"),
])  # fmt: skip
def test_a_short_time_is_never_zero(wanted_s: float, words: str) -> None:
    verdict = session_and_verdicts(messages_of_two_hogs(61))[1][-1][1]
    assert verdict.report is not None
    report_ = replace(verdict.report, findings=[])
    losses = (Loss(0.2 / wanted_s, "◐", "waits"),)
    short = replace(verdict, losses=losses, wanted_s=wanted_s, report=report_)
    assert words in strips.text(loss_line(short, 160, [], "colour")[0])


def test_the_history_of_losses_gives_way_to_words() -> None:
    losses = Loss(0.36, "▣", "quota"), Loss(0.04, "◐", "waits")
    verdict = Verdict("", (), "▣", 0.36, losses=losses, wanted_s=9.9, span_s=10.0)
    verdict = replace(verdict, loss_history=(0.36,) * HISTORY_CELLS)
    for size in range(70, 160):
        line = strips.text(loss_line(verdict, size, [], "colour")[0])
        assert "36.0 quota" in line
        assert ("10 min" in line) == (size >= 88)


def test_the_loss_of_an_ended_job_does_not_go_on_until_another_begins() -> None:
    """When the next process of that name began, the loss was once said to have lasted until
    then."""
    pids = [70 if seq <= 80 else 71 * (seq >= 400) for seq in range(441)]
    _, verdicts = session_and_verdicts(job_messages("make", len(pids), pids.__getitem__))
    assert verdicts[-1][1].level == 2
    assert not any(" ago for " in piece for _, verdict in verdicts for piece in verdict.evidence)


def test_a_verdict_at_the_end_of_a_recorded_job_is_on_its_whole_run() -> None:
    """The screen once named the share of the last ten seconds, beside that of `why` for all."""
    path = SHIPPED_DIRECTORY / "queue.perftop"

    async def texts() -> list[tuple[str, str]]:
        async with replayed(path, (160, 40), ()) as app:
            source = app.source
            assert isinstance(source, ReplaySource)
            top = app.screen_stack[0].query_one(TopLines)

            def shown_verdict() -> tuple[str, str]:
                assert top.verdict is not None
                return top.verdict.text, next(iter(top.verdict.evidence), "")

            await until_true(lambda: not source.indexing, "the search of the file")
            await app.run_action("source('go_to_end')")
            await until_true(lambda: "in all" in shown_verdict()[1], "the verdict at the end")
            at_end = shown_verdict()
            recorded, interval = source.session.log.recording, source.interval
            assert recorded is not None
            assert interval is not None
            recorded.is_complete = False  # as before the search of the file has ended
            early_verdict = verdict_at(source.session, interval)
            assert early_verdict is not None
            assert early_verdict.evidence[0].startswith("10.0 s until ")
            recorded.is_complete = True
            await app.run_action("source('step', -1)")
            await until_true(lambda: "10.0 s until" in shown_verdict()[1], "the moment before")
            return [at_end, shown_verdict()]

    at_end, before = asyncio.run(texts())
    with open_recording(path) as recording:
        session = Session(recording.hello)
        session.run.track_losses()
        session_of(session, [*recording.messages()])
        whole_answer = answer(report(session, is_past=True))
    assert f"{at_end[0]}." == whole_answer
    assert at_end[1] == "in all 13.0 s"
    assert before[1].startswith("10.0 s until ")
    assert before[0] != at_end[0]


@pytest.mark.parametrize("first", [19, nightly_case(50)])
def test_a_late_screen_does_not_read_the_history_again(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine draws late; reading ten seconds again each time would delay it further.
    `first`: sample at which the screen is first drawn."""

    def read_again(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Session, "totals_between", read_again)
    hello, *frames = messages_of_two_hogs(400)
    session, texts = new_session(hello), []
    for seq, frame in enumerate(frames):
        session.apply(frame)
        if seq >= first and seq % 19 == first % 19:
            verdict = verdict_at(session, session.take_interval())
            assert verdict is not None
            texts.append(verdict.text)
    assert texts[-1].startswith("hogA[11] and hogB[12] share CPU 1")


def test_after_a_pause_the_verdict_is_on_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine with too many CPUs to read ten seconds again, and between two samples."""
    hello, *frames = messages_of_two_hogs(600)
    session = new_session(hello)
    monkeypatch.setattr(selection, "MAX_REREAD_VALUES", 40 * len(session.topology))
    ends = [201, *range(501, 600, 10)]
    for begin, end in pairwise([0, *ends]):
        interval = session_of(session, frames[begin:end]).take_interval()
        live = verdict_at(session, interval)
        assert live is not None
        assert 3.9 <= live.span_s <= 10.1
        verdict_at(session, interval, is_range=True)
        again = verdict_at(session, interval)
        assert again is not None
        assert (again.text, again.span_s) == (live.text, live.span_s)


def test_a_span_without_samples_has_no_verdict_and_no_alarm() -> None:
    hello, *frames = messages_of_two_hogs()
    session = session_of(new_session(hello), frames)
    totals = session.run.totals()
    verdict = verdict_module._compute_verdict(session, totals.minus(totals), session.snapshot)
    assert (verdict.text, verdict.level) == ("No verdict: no samples in 10.0 s", 0)


# --- the episodes shown at a given time, and the sentences of ended ones


S = 10**9


def test_a_played_recording_shows_the_episodes_of_the_current_time() -> None:
    session, interval = observe(Machine(cores=2))
    assert interval.seq, "as it is played, not looked up"
    now_ns = interval.time_ns
    live = Episode("offline", [1], now_ns - 1)
    session.detector.running = [live]
    assert episodes_during(session, interval) == [live]
    session.log.recording = RecordingEpisodes()
    later, here, before = (
        Episode("steal", [0], now_ns + since, until if until is None else now_ns + until)
        for since, until in ((10**9, None), (-(10**8), 10**9), (-2 * 10**9, -(10**9)))
    )
    for episode in (before, here, later):
        session.log.recording.add(episode)
    session.log.recording.is_complete = True
    assert episodes_during(session, interval) == [here]


def test_sentences_are_cached_by_episodes_and_width() -> None:
    session, _ = observe(Machine())
    ended = [Episode("turbo-drop", [cpu], S, 2 * S, 1e8 * cpu, "thermal") for cpu in range(300)]
    for group in ([one] for one in ended):
        for width in (20, 70):
            cached = ended_sentence(session, group, width)
            assert cached == sentence(session.topology, group, past_tense=True, max_length=width)
            assert ended_sentence(session, group, width) is cached
    assert text(ended_sentence(session, ended[1:2], 20)) != text(
        ended_sentence(session, ended[1:2], 70)
    )
    assert ended_sentence(session, ended[1:3]) != ended_sentence(session, ended[1:2])


def test_a_recording_begins_without_a_verdict(tmp_path: Path) -> None:
    hello, *frames = messages_of_two_hogs()
    assert isinstance(hello, wire.Hello)
    timed = [frame for frame in frames if isinstance(frame, wire.Frame)]
    assert len(timed) == len(frames)
    path = write_recording(tmp_path / "a.perftop", hello, timed)

    async def texts() -> tuple[str, str]:
        async with replayed(path, (120, 30), ()) as app:
            top = app.screen_stack[0].query_one(TopLines)

            def verdict_text() -> str:
                assert top.verdict is not None
                return top.verdict.text

            first = verdict_text()
            await app.run_action("source('go_to_end')")
            await until_true(lambda: "hogA" in verdict_text(), "the verdict at the end")
            return first, verdict_text()

    first, last = asyncio.run(texts())
    assert first.startswith("Watching: ")
    assert last.startswith("hogA[11] and hogB[12] shared CPU 1")


@pytest.mark.parametrize("is_recorded", [False, True])
def test_after_n_the_verdict_and_the_panels_cover_the_episode(
    tmp_path: Path, *, is_recorded: bool
) -> None:
    """They once covered the ten seconds that ended shortly after the start of the episode."""
    hello, *messages = capture("guest", 45, None)

    async def shown_episode() -> tuple[Session, ViewSettings, Verdict | None, str]:
        made = live([hello, *messages], (160, 50), ["n"])
        if is_recorded:
            assert isinstance(hello, wire.Hello)
            timed = [m for m in messages if isinstance(m, wire.Frame | wire.Note)]
            path = write_recording(tmp_path / "recording", hello, timed)
            made = replayed(path, (160, 50), ["space", "n", "n"])
        async with made as app:
            source, top = app.source, app.screen_stack[0].query_one(TopLines)
            assert isinstance(source, StreamSource)
            rows = app.screen._compositor.render_strips()
            shown = "\n".join("".join(segment.text for segment in row) for row in rows)
            return source.session, source.settings, top.verdict, shown

    session, settings, verdict, shown = asyncio.run(shown_episode())
    episodes = reachable_episodes(session)
    assert settings.range_ns in {(e.start_ns, e.end_ns or session.now_ns) for e in episodes}
    first_ns, last_ns = settings.range_ns
    assert verdict is not None
    assert 1e9 * verdict.span_s == last_ns - first_ns
    assert f"in A, {verdict.span_s:.1f} s" in shown


# --- the second row of a verdict


MEMORY, STEAL = Loss(0.3, "x", "memory"), Loss(0.2, "y", "steal")
TINY = Loss(0.0099, "z", "tiny")


@pytest.mark.parametrize(("losses", "wanted_s", "span_s", "words"), [
    ((), nan, 0.0, "lost –"), ((), 0.0, 10.0, "lost –"), ((TINY,), 0.0, 10.0, "lost 1.0 %"),
    ((MEMORY,), 20.0, 10.0, f"lost 30.0 % {40 * '█'} x 30.0 memory"),
    ((MEMORY,), 20.0, 9.99, f"lost 30.0 % {40 * '█'} x 30.0 memory"),
    ((MEMORY, STEAL, TINY), 20.0, 5.0,
     "lost 51.0 % █████████▊█████▊███▊ x 30.0 memory y 20.0 steal"),
    ((), 5.0, 4.0, f"lost 0.0 % {16 * '█'} grows as seconds come in"),
    ((), 5.0, 10.0, f"lost 0.0 % {40 * '█'}"),
])  # fmt: skip
def test_the_second_row_has_the_bar_of_what_tasks_wanted(
    losses: tuple[Loss, ...], wanted_s: float, span_s: float, words: str
) -> None:
    verdict = Verdict("t", (), "◐", 0.3, losses=losses, wanted_s=wanted_s, span_s=span_s)
    runs, line_state = loss_line(verdict, 140, [], "colour")
    assert " ".join(strips.text(runs).removeprefix("▌").split()) == words
    assert (line_state, len(strips.text(runs))) == ("victim", 140)


def test_the_bar_of_a_short_range_has_its_full_length() -> None:
    """It had no cell for a range of 0.1 s, so the loss could not be seen."""
    verdict = Verdict("t", (), "◐", 0.3, is_past=True, losses=(MEMORY,), wanted_s=1.0, span_s=0.1)
    live, past = (
        text_of_bar.count("█")
        for verdict_at_time in (replace(verdict, is_past=False), verdict)
        for text_of_bar in [strips.text(loss_line(verdict_at_time, 140, [], "colour")[0])]
    )
    assert (live, past) == (0, 40)


@pytest.mark.parametrize(("size", "text_start"), [(140, 58), (139, 44)])
def test_the_bar_is_shorter_on_a_narrow_screen(size: int, text_start: int) -> None:
    verdict = Verdict("t", (), "◐", 0.3, losses=(MEMORY,), wanted_s=20.0, span_s=10.0)
    line = strips.text(loss_line(verdict, size, [], "colour")[0])
    assert line.index("x 30.0") == text_start


@pytest.mark.parametrize(("severity", "level", "is_past", "style"), [
    (nan, 0, False, "good"), (0.0099, 0, False, "good"), (0.01, 1, False, "warn"),
    (0.0499, 1, False, "warn"), (0.05, 2, False, "alarm"), (0.05, 2, True, "warn"),
])  # fmt: skip
def test_the_level_of_a_verdict_depends_on_what_victims_lose(
    severity: float, level: int, is_past: bool, style: str
) -> None:
    verdict = Verdict("t", (), CALM_SIGN, severity, is_past=is_past)
    assert (verdict.level, verdict.marker_style) == (level, style)
    is_red = level == 2 and not is_past
    rows = verdict_module.verdict_line(verdict, 60), loss_line(verdict, 60, [], "colour")
    assert {line_state for _, line_state in rows} == {"victim" if is_red else "calm"}


@pytest.mark.parametrize(("share", "cell"), [
    (nan, (" ", "text")), (0.0, ("▁", "rule")), (0.0099, ("▁", "rule")), (0.01, ("▁", "warn")),
    (0.05, ("▁", "hot")), (0.25, ("▂", "hot")), (0.5, ("▄", "hot")), (1.0, ("█", "hot")),
    (1.5, ("█", "hot")),
])  # fmt: skip
def test_a_cell_of_the_history_has_the_height_of_the_loss(
    share: float, cell: tuple[str, str]
) -> None:
    assert verdict_module.loss_cell(share) == cell


@pytest.mark.parametrize(("size", "line"), [
    (14, "  ✓ calm · ab"), (13, "  ✓ calm"), (8, "  ✓ calm"), (7, "  ✓ ca…"),
])  # fmt: skip
def test_evidence_that_does_not_fit_is_left_out(size: int, line: str) -> None:
    runs, _ = verdict_module.verdict_line(Verdict("calm", ("ab", "long"), CALM_SIGN, 0.0), size)
    assert strips.text(runs) == line
