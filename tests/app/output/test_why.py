"""`perftop why` on simulated machines: the scripted cause comes first, healthy machines have none,
no task waits for itself, and tasks that did not run on a CPU are not blamed for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fakes import CpuLoad, Machine
from fakes import observe as sampled
from nightly import cases_by_day
from sessions import session_of
from sim_streams import messages_lasting
from sim_truth import PLAYED_S, SMALL, found_episodes, play_episodes

from perfprobe.wire import Identity
from perftop.model.counters import Counters
from perftop.model.kinds import STEAL_CAUSE, Episode, cause_of
from perftop.output import why_report
from perftop.output.evidence import _memory_clues, measured_losses
from perftop.output.report import MAX_CAUSES, MIN_SHARE, Clue, Finding, Report
from perftop.output.waiting import UNKNOWN_NEIGHBOUR, waiting_finding
from perftop.output.why_report import _active_s, brief_report, report, with_checks
from perftop.output.why_text import answer, lines
from perftop.session.losses import (
    MAX_NAMES,
    MAX_WORKS,
    QUOTA_CAUSE,
    STOPPED_CAUSE,
    UNEXPLAINED,
    WAIT_CAUSE,
    Cause,
    LossSums,
    RecordHints,
    Totals,
)
from perftop.session.session import Session
from perftop.session.task_times import UNKNOWN_CPU, TaskTimes

SAMPLE_NS = 100_000_000
SCRIPTED: list[tuple[str, str | None, float, Cause]] = [
    ("turbo-drop", None, PLAYED_S, ("turbo-drop", "power-pl1")),
    ("license", None, PLAYED_S, ("turbo-drop", "license")),
    ("throttle", None, PLAYED_S, ("throttle", "thermal")),
    ("neighbour", None, PLAYED_S, ("neighbour", "sibling")),
    ("neighbour", "lmp", PLAYED_S, ("neighbour", "sibling")),
    ("guest", None, PLAYED_S, WAIT_CAUSE),
    ("guest", "postgres", 60, WAIT_CAUSE),
    ("demo", None, PLAYED_S, ("neighbour", "sibling")),
]
HEALTHY = ["steady", "idle", "jitter", "smt-mix", "hybrid", "hotplug", "warmup"]
HEALTHY_BY_DAY = ("jitter", "hybrid", "hotplug", "warmup")
ALL_CASES = [
    *((s, w, t) for s, w, t, _ in SCRIPTED),
    *((s, None, PLAYED_S) for s in HEALTHY_BY_DAY),
]


def empty_report(session: Session, job: str | None = None) -> Report:
    """Returns a report on the whole run, in which nothing was lost."""
    nothing = np.zeros(len(session.topology))
    losses = LossSums(nothing, nothing, {})
    totals = Totals(
        session.run.start_ns, session.now_ns, session.run_times, losses, 0, 0, session.run
    )
    return Report(
        session, totals, session.run_interval(), [], job, is_past=False, past_tense=False,
        is_whole_run=True,
    )  # fmt: skip


NO_FINDING = Finding(WAIT_CAUSE, 0.0, 0.0, "", "", [], None, None, False, "unknown", [], "")


def waits_of(session: Session, job: str | None) -> Finding:
    """Returns the wait of the job's tasks over the whole run."""
    result = waiting_finding(empty_report(session, job), NO_FINDING)
    assert result is not None
    return result


def session_and_report(
    scenario: str, seconds: float = PLAYED_S, watch: str | None = None
) -> tuple[Session, Report]:
    session, _ = found_episodes(f"{scenario},{SMALL}", SAMPLE_NS, seconds, watch)
    return session, report(session)


def printed_report(result: Report) -> list[str]:
    return lines(result, colour=False, unicode=True)


def finding_of(result: Report, cause: Cause) -> Finding:
    (finding,) = [finding for finding in result.findings if finding.cause == cause]
    return finding


def assert_checks_cover_all_losses(result: Report) -> None:
    whole = sum(result.sums.shares().values())
    assert sum(check.share for check in result.checks) == pytest.approx(whole)


@pytest.mark.parametrize(("scenario", "watch", "seconds", "cause"), SCRIPTED)
def test_the_scripted_cause_is_first(
    scenario: str, watch: str | None, seconds: float, cause: Cause
) -> None:
    _, result = session_and_report(scenario, seconds, watch)
    assert result.findings[0].cause == cause
    assert result.findings[0].share >= MIN_SHARE
    assert_checks_cover_all_losses(result)
    first = printed_report(result)[0]
    name = watch or (result.findings[0].culprit if cause[0] == "neighbour" else "This machine")
    assert name in first
    assert result.findings[0].culprit in first


@pytest.mark.parametrize(
    ("scenario", "hint"), [("neighbour", "taskset -acp "), ("demo", "run stream[")]
)
def test_a_sibling_is_moved_only_if_another_core_has_room(
    scenario: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the scenario demo, all cores run the job."""
    session, result = session_and_report(scenario)
    assert result.findings[0].hint.startswith(hint)
    cpus = {cpu for core in session.cores for cpu in core if cpu in result.findings[0].cpus}
    rows = [replace(row, online=row.cpu in cpus) for row in session.topology]
    monkeypatch.setattr(session, "topology", rows)
    hint = report(session).findings[0].hint
    assert hint.startswith("run stream["), "the other cores are offline"


@pytest.mark.parametrize(("least", "is_capped"), [(0.7, False), (0.1, True)])
def test_a_loss_too_large_for_a_sibling_is_explained_by_a_cap_on_bandwidth(
    least: float, is_capped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why_report, "MIN_CAPPED_LOSS", least)
    session, _ = session_and_report("neighbour")
    monkeypatch.setitem(session.hello.settings, "bandwidth_caps", "batch 10")
    finding = report(session).findings[0]
    assert ("(batch 10)" in " ".join(finding.evidence)) is is_capped
    assert finding.hint.startswith("MB in /sys/fs/resctrl") is is_capped


def test_a_neighbour_is_the_headline_with_the_share_that_the_worst_loses() -> None:
    finding = session_and_report("neighbour")[1].findings[0]
    assert finding.headline == finding.text
    assert 0.1 < finding.victim_share < 1


def test_the_answer_and_the_cause_name_the_same_cpu() -> None:
    session, _ = found_episodes("neighbour,cpus=64", SAMPLE_NS, 20.0, "lmp")
    first, *rest = printed_report(report(session))
    assert "on CPU 16 (+7)." in first
    assert any("on CPU 16 (+7)" in line for line in rest)


def test_a_command_stays_on_one_line() -> None:
    _, result = session_and_report("neighbour")
    command = f"taskset -acp {','.join(map(str, range(0, 128, 2)))} 4016"
    first = replace(result.named_findings[0], hint=command)
    report_of_first = replace(result, findings=[first])
    assert any(line.endswith(command) for line in printed_report(report_of_first))


@pytest.mark.parametrize(("tick_s", "confidence"), [(0.01, "measured"), (1000.0, "inferred")])
def test_steal_below_its_tick_is_inferred(
    tick_s: float, confidence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why_report, "TICK_S", tick_s)
    _, result = session_and_report("guest")
    assert finding_of(result, STEAL_CAUSE).confidence == confidence


def test_the_confidence_in_a_cause_covers_all_substantial_parts_of_its_loss() -> None:
    """The cause of the first part of each episode is only inferred; in the end, the episodes are
    forgotten."""
    session, _ = play_episodes(f"turbo-drop,{SMALL}", SAMPLE_NS, PLAYED_S)
    cause = "turbo-drop", "power-pl1"
    episodes = [*session.running, *session.ended]
    drops = [e for e in episodes if (e.kind, e.cause) == cause]
    assert {drop.confidence for drop in drops} == {"measured"}

    def confidence_with(parts: list[Episode]) -> str:
        session.log.running[:] = []
        session.log.ended[:] = [e for e in episodes if e not in drops] + parts
        return finding_of(report(session), cause).confidence

    for inferred_part, confidence in ((0.0, "measured"), (0.05, "measured"), (0.3, "inferred")):
        parts = []
        for drop in drops:
            end_ns = drop.end_ns or session.now_ns
            middle_ns = drop.start_ns + round((end_ns - drop.start_ns) * inferred_part)
            parts += [replace(drop, end_ns=middle_ns, confidence="inferred"),
                      replace(drop, start_ns=middle_ns)]  # fmt: skip
        assert confidence_with(parts) == confidence
    assert confidence_with([]) == "inferred"


@pytest.mark.parametrize("scenario", cases_by_day(HEALTHY, HEALTHY_BY_DAY))
def test_no_cause_is_named_on_a_healthy_machine(scenario: str) -> None:
    _, result = session_and_report(scenario)
    assert result.named_findings == []
    assert answer(result).startswith(
        ("Nothing is slowing this machine down", "This machine was idle")
    )
    assert not any("ruled out" in line for line in printed_report(result))
    if scenario == "warmup":
        assert finding_of(result, ("turbo-drop", UNEXPLAINED)).evidence == [
            "no active limit was found",
            "the CPUs were mostly idle, so the governor may have chosen this clock",
        ]


@pytest.mark.parametrize("seed", cases_by_day(range(2, 22), [2]))
@pytest.mark.parametrize("scenario", ["idle", "smt-mix", "steady"])
def test_a_ten_second_report_on_a_healthy_machine_names_no_cause(scenario: str, seed: int) -> None:
    session, _ = play_episodes(f"{scenario},cpus=8,packages=1,seed={seed}", SAMPLE_NS, 10)
    assert report(session).named_findings == []


def test_unreadable_cpus_are_not_reported_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    session, result = session_and_report("idle", 3)
    whole = session.run_interval()
    monkeypatch.setattr(whole.values, "mean", lambda *_: float("nan"))
    none = np.zeros(8)
    totals = replace(result.totals, losses=LossSums(none, none, {}))
    unread = replace(result, totals=totals, interval=whole)
    first, *rest = printed_report(unread)
    assert first == "Whether this machine had work is not known: CPU utilisation cannot be read."
    assert not any(line.startswith("Idle") for line in rest)
    unsampled = replace(unread, totals=replace(totals, sample_count=2, suspect_count=2))
    assert "no good sample" in answer(unsampled)
    assert "steal" not in {check.key for check in measured_losses(unread)}


def test_a_job_without_a_sample_is_not_reported_as_healthy() -> None:
    """The name of a job may be mistyped; a PID that existed at the start has ended."""
    session, result = session_and_report("steady", 3, "lmpp")
    first, *rest = printed_report(result)
    assert first.startswith("No process named lmpp was found")
    assert not any(line.startswith("Working") for line in rest), "only the machine works"
    session.neighbours.watched_job.name = "web.service"
    result = replace(result, job="web.service")
    assert answer(result).startswith("No process in web.service was found")
    session.neighbours.watched_job.name = "4711"
    assert answer(replace(result, job="process 4711")).startswith("Process 4711 ended")


@pytest.mark.parametrize(("argv", "job"), [
    (["nice", "-n", "5", "/usr/bin/postgres", "-D", "x"], "postgres"),
    (["/usr/bin/sh", "-c", "exec postgres"], "sh"),
])  # fmt: skip
def test_a_command_has_the_name_of_the_program_that_it_starts(argv: list[str], job: str) -> None:
    session, _ = session_and_report("guest", 60, "postgres")
    result = report(session, argv)
    assert result.job == job
    assert answer(result).startswith(f"{job} lost")


@pytest.mark.parametrize(("scenario", "selected", "first", "kind", "share"), [
    ("guest", "0", "2 tasks of cc1plus wait 53 % of their time behind as[", WAIT_CAUSE, 0.39),
    ("guest", "1", "1 of 2 tasks of postgres waits 2 % of its time", WAIT_CAUSE, 0.015),
    ("neighbour", "0,1", "stream takes 31 % of lmp's IPC on CPU 0", ("neighbour", "sibling"), 0.1),
    ("neighbour", "1", "This machine was idle", None, 0.0),
])  # fmt: skip
def test_only_selected_cpus_count(
    scenario: str, selected: str, first: str, kind: Cause | None, share: float
) -> None:
    session, _ = play_episodes(f"{scenario},{SMALL}", SAMPLE_NS, 12, selected=selected)
    result = report(session)
    assert answer(result).startswith(first)
    shares = result.sums.shares()
    assert (shares[kind] if kind else sum(shares.values())) == pytest.approx(share, abs=0.01)
    assert "memory" not in {check.key for check in result.checks}
    unread = [
        why for what, why, _ in result.unmeasured_losses if what.startswith("losses to others")
    ]
    assert unread == (["not all of its CPUs are read"] if scenario == "neighbour" else [])


def test_time_before_the_measurement_does_not_count() -> None:
    second = 1_000_000_000
    episode = Episode("steal", [0], 0, 11 * second)
    assert _active_s([episode], now_ns=20 * second, span_ns=10 * second) == 1.0


def test_unreported_waits_are_unknown_instead_of_zero() -> None:
    """Waits are unknown in a short measurement, so the report must not say that all is well."""
    session, result = session_and_report("steady")
    snapshots, session.run_times.wait_snapshots = session.run_times.wait_snapshots, 1
    first, *rest = printed_report(result)
    assert first.endswith("was found; how long tasks waited is not known.")
    assert not any("its own code" in line for line in rest)
    session.run_times.wait_snapshots = snapshots
    assert answer(result).startswith("Nothing is slowing this machine down")


def test_halts_below_one_percent_are_the_first_named_cause() -> None:
    _, result = session_and_report("halts")
    named = [finding.cause for finding in result.findings if finding.cause[1] != UNEXPLAINED]
    assert named[:2] == [("involuntary-halt", "clock-change"), ("involuntary-halt", "smm")]
    assert_checks_cover_all_losses(result)


@pytest.mark.parametrize(("scenario", "watch", "seconds"), ALL_CASES)
def test_all_lines_fit_into_80_columns(scenario: str, watch: str | None, seconds: float) -> None:
    _, result = session_and_report(scenario, seconds, watch)
    output = printed_report(result)
    assert max(map(len, output)) <= 80
    assert output[1] == ""
    labels = [line.split("  ")[0] for line in output]
    assert {"not seen", "seen"} <= {*labels}
    assert ("ruled out" in labels) == bool(result.named_findings)
    plain = lines(result, colour=False, unicode=False)
    assert all(line.isascii() for line in plain)


def test_only_running_causes_are_red() -> None:
    _, result = session_and_report("turbo-drop", 10)
    assert result.findings[0].is_running
    output = lines(result, colour=True, unicode=True)
    assert output[0].startswith("\x1b[1m")
    assert any(line.startswith("\x1b[31m▼") for line in output)
    assert any("\x1b[34m" in line for line in output if "try:" in line)
    _, result = session_and_report("turbo-drop")
    assert not any("\x1b[31m" in line for line in lines(result, colour=True, unicode=True))


def test_more_than_four_causes_are_counted() -> None:
    _, result = session_and_report("neighbour")
    many = Report(**{key: getattr(result, key) for key in Report.__match_args__} | {
        "findings": result.findings[:1] * (MAX_CAUSES + 2)})  # fmt: skip
    assert any(line.strip() == "+ 2 more" for line in printed_report(many))


# --- waiting for a CPU

SPAN_S = 0.5


def waits(
    threads: dict[tuple[int, int], TaskTimes] | None = None,
    tasks: dict[tuple[int, str, int], TaskTimes] | None = None,
    job: str | None = "job",
    details: dict[str, dict[str, object]] | None = None,
    machine: Machine | None = None,
) -> Finding:
    """Returns the wait of these tasks on a machine of two cores, idle by default."""
    session: Session = sampled(machine or Machine(cores=2))[0]
    session.run_times.threads = threads or {}
    session.run_times.tasks = tasks or {}
    session.run_times.covered_s = 1.0
    session.details = details or {}
    return waits_of(session, job)


def task_times(comm: str, run_s: float, wait_s: float = 0.0, cpu: int = 0) -> TaskTimes:
    return TaskTimes(comm, run_s, wait_s, {cpu: run_s + wait_s})


BLOCKED = {(1, 1): task_times("job", 0.2, 0.3)}
CROWDED = {(1, tid): task_times("job", SPAN_S / 2, SPAN_S / 2) for tid in (1, 2)}
EVERYWHERE = {(1, cpu): task_times("job", 0.2, 0.3, cpu) for cpu in range(4)}
DISPLACED = {(1, tid): task_times("job", 0.05, 0.45) for tid in (1, 2)}
IN_TURN = {(1, tid): task_times("job", 0.1, 0.1) for tid in (1, 2)}
BOTH = "2 threads of job wait for each other and hog[7] on CPU 0"


def hog(run_s: float, cpu: int = 0) -> dict[tuple[int, str, int], TaskTimes]:
    return {(7, "hog", cpu): task_times("hog", run_s, cpu=cpu)}


@pytest.mark.parametrize(("threads", "tasks", "sentence", "blamed_task"), [
    (BLOCKED, {}, "job waits for CPU 0", None),
    (EVERYWHERE, {}, "4 threads of job wait for a CPU", None),
    (BLOCKED, hog(0.3), "job waits behind hog[7] on CPU 0", "hog"),
    (BLOCKED, {(7, "job", 0): task_times("job", 0.3)}, "job waits behind job[7] on CPU 0",
     "job[7]"),
    (BLOCKED, hog(0.5, cpu=1), "job waits for CPU 0", None),  # `hog` ran on another CPU
    (CROWDED, {}, "2 threads of job wait for each other on CPU 0", "its own threads"),
    (IN_TURN, {}, "2 threads of job wait for CPU 0", None),
    # the two threads together ran for a fifth of the time
    (DISPLACED, {}, "2 threads of job wait for CPU 0", None),
    (DISPLACED, hog(0.4), "2 threads of job wait behind hog[7] on CPU 0", "hog"),
    (CROWDED, hog(0.1), BOTH, "its own threads"),
    (CROWDED, hog(0.3), BOTH, "hog"),  # without it, no more than two of five parts would remain
    (CROWDED, hog(2.0), BOTH, "hog"),
    (CROWDED, hog(2.0) | {(8, "cc", 0): task_times("cc", 1.0)},
     "2 threads of job wait for each other, hog[7] and 1 more on CPU 0", "hog"),
    (BLOCKED, hog(2.0) | {(8, "cc", 0): task_times("cc", 1.0)},
     "job waits behind hog[7] and 1 more on CPU 0", "hog"),
])  # fmt: skip
def test_a_wait_names_the_tasks_that_caused_it(
    threads: dict[tuple[int, int], TaskTimes], tasks: dict[tuple[int, str, int], TaskTimes],
    sentence: str, blamed_task: str | None,
) -> None:  # fmt: skip
    """`blamed_task` is None if the tasks are unknown; then no task is blamed, not even the job."""
    result = waits(threads, tasks)
    assert result.text == sentence
    assert (result.confidence != "unknown") == (blamed_task is not None)
    assert (UNKNOWN_NEIGHBOUR in result.evidence) == (blamed_task is None)
    assert result.culprit == blamed_task or (
        blamed_task is None and not {"own", "hog"} & {*result.culprit.split()}
    )


def test_many_tasks_that_each_ran_little_are_counted_and_the_largest_is_evidence() -> None:
    tasks = {(pid, f"t{pid}", 0): task_times(f"t{pid}", 0.015 + pid / 1e5) for pid in range(20, 40)}
    result = waits(BLOCKED, tasks)
    assert result.text == "job waits behind 20 other tasks on CPU 0"
    assert (result.culprit, result.confidence) == ("many other tasks", "measured")
    assert result.evidence[-1] == "t39[39] ran there 0.02 s"
    few = dict([*tasks.items()][:5])
    result = waits(BLOCKED, few)
    assert (result.text, result.confidence) == ("job waits for CPU 0", "unknown")
    assert result.evidence[-2:] == [f"most of {UNKNOWN_NEIGHBOUR}", "t24[24] ran there 0.02 s"]


def test_the_tasks_that_measure_are_not_the_victims_if_others_wait() -> None:
    own = {(9, "perftop", 0): task_times("perftop", 0.1, 0.4)}
    other = {(5, "web", 0): task_times("web", 0.3, 0.2)}
    assert waits(tasks=own | other | hog(0.3), job=None).text.startswith("web waits behind")
    assert waits(tasks=own | hog(0.3), job=None).text.startswith("perftop waits behind")


def children(run_s: float, child: str = "true") -> dict[tuple[int, str, int], TaskTimes]:
    """Children of process 8 that ended between two scans."""
    return {(8, child, UNKNOWN_CPU): task_times("sh", run_s, cpu=UNKNOWN_CPU)}


@pytest.mark.parametrize(("tasks", "sentence", "blamed_task"), [
    (children(0.3), "job waits behind short-lived true of sh[8] on CPU 0", "short-lived true"),
    (children(0.3, ""), "job waits behind short-lived children of sh[8] on CPU 0",
     "short-lived children"),
    (children(0.1), "job waits for CPU 0", "other tasks"),
    (hog(0.3) | children(0.3), "job waits behind hog[7] on CPU 0", "hog"),
])  # fmt: skip
def test_children_that_ended_between_scans_are_named_by_their_parent(
    tasks: dict[tuple[int, str, int], TaskTimes], sentence: str, blamed_task: str
) -> None:
    result = waits(BLOCKED, tasks)
    assert (result.text, result.culprit) == (sentence, blamed_task)
    if "short" in blamed_task:
        assert result.confidence == "inferred"
    else:
        assert result.confidence == ("measured" if blamed_task == "hog" else "unknown")


def test_a_mask_is_reported_even_if_some_processes_have_none() -> None:
    threads = PINNED | {(3, 3): task_times("timeout", 0.001, 0.001)}
    assert "may use 1 of 4 CPUs (mask)" in waits(threads, details=MASKS).evidence


def test_the_owner_of_the_other_task_is_evidence() -> None:
    details: dict[str, dict[str, object]] = {"7": {"group": "/system.slice/backup.service"}}
    assert waits(BLOCKED, hog(0.5), details=details).evidence[-1] == "hog is of backup.service"


@pytest.mark.parametrize(("comm", "details", "by", "hint"), [
    ("kswapd0", {}, "memory reclaim", cause_of("reclaim").remedy),
    ("idle_inject/0", {}, "idle injection", cause_of("idle-injection").remedy),
    ("kswapd0", {"command": "kswapd0"}, "kswapd0", "chrt --idle --all-tasks --pid 0 7"),
])  # fmt: skip
def test_a_kernel_thread_is_named_by_its_function(
    comm: str, details: dict[str, object], by: str, hint: str
) -> None:
    result = waits(BLOCKED, {(7, comm, 0): task_times(comm, 0.3)}, details={"7": details})
    assert result.text == f"job waits behind {comm}[7] on CPU 0"
    assert (result.culprit, result.hint) == (by, hint)


def test_the_longest_wait_is_reported_beside_the_sum() -> None:
    """Ten short waits, and one that fills the whole interval between two records."""
    job = (
        TaskTimes("job")
        .with_record(0, 0.9, 0.1, 10)
        .with_record(0, 0.0, 1.1, 0)
        .with_record(0, 0.9, 0.1, 10)
    )
    assert job.longest_s == pytest.approx(1.1)
    assert job.with_record(0, 0.0, 9.0, None).longest_s == pytest.approx(1.1)
    assert job.since(TaskTimes("job")).longest_s == pytest.approx(1.1)
    # the wait may have been earlier
    assert job.with_record(0, 1.0, 0.0, 1).since(job).longest_s == 0.0
    result = waits({(1, 1): job}, hog(1.3))
    assert result.evidence == ["it waited 1.30 of 3.1 s", "once for 1.1 s or longer"]
    assert "once" not in " ".join(waits(BLOCKED).evidence)


@pytest.mark.parametrize(("util", "switches", "sentence", "confidence"), [
    (0.2, 1500, "job waits for the end of idle states on CPU 0", "inferred"),
    (0.2, 200, "job waits for CPU 0", "unknown"),
    (0.9, 1500, "job waits for CPU 0", "unknown"),
])  # fmt: skip
def test_wake_up_waits_on_idle_cpus_are_exits_of_idle_states(
    util: float, switches: int, sentence: str, confidence: str
) -> None:
    machine = Machine(cores=2)
    machine.loads = dict.fromkeys(range(4), CpuLoad(util=util))
    machine.hello.settings["deepest_idle_state"] = "C6, 170 µs"
    result = waits({(1, 1): replace(BLOCKED[1, 1], switches=switches)}, machine=machine)
    assert (result.text, result.confidence) == (sentence, confidence)
    if confidence == "inferred":
        price = ["1500 wake-ups, 200 µs each", "CPU 0 80 % idle"]
        assert result.evidence[1:] == [*price, "deepest state: C6, 170 µs by its driver"]
        assert result.culprit == "leaving idle states"


@pytest.mark.parametrize(("wait_s", "sentence"), [
    (0.05, "job wanted a CPU for only 60 ms, too short a time to give shares of it."),
    (0.13, "job wanted a CPU for only 140 ms of 500 ms and lost 93 % of that to hog."),
    (0.43, "job lost 98 % of its time to hog on CPU 0."),
])  # fmt: skip
def test_a_job_that_mostly_sleeps_gets_its_wanted_time(wait_s: float, sentence: str) -> None:
    """A convoy at a lock hardly runs: a share of its wanted time would be mistaken for a share of
    the whole run."""
    session: Session = sampled(Machine(cores=2))[0]
    session.track_losses()
    session.run_times.threads = {(1, 1): task_times("job", 0.01, wait_s)}
    session.run_times.job_has_waits, session.run_times.tasks = True, hog(0.5)
    session._losses.add_wait(np.array([wait_s, 0, 0, 0]), np.array([0.01, 0, 0, 0]))
    result = report(session, ["job"])
    assert answer(result) == sentence
    shares = [line for line in printed_report(result) if "%" in line.split("seen")[0]]
    assert bool(shares) == (wait_s > 0.1), "no share of so little in the table"


@pytest.mark.parametrize(("wait_s", "sentence"), [(0.04, ", once 40 ms or longer"), (4e-4, "")])
def test_a_small_wait_is_shown_with_its_longest_part(wait_s: float, sentence: str) -> None:
    session: Session = sampled(Machine(cores=2))[0]
    session.track_losses()
    session.run_times.threads = {(1, 1): TaskTimes("job").with_record(0, 0.4, wait_s, 0)}
    session.run_times.job_has_waits = True
    result = report(session, ["job"])
    found = next(check.result for check in result.checks if check.key == "wait")
    assert found.partition(" s of 0 s")[2] == sentence


def test_tasks_that_share_a_cpu_wait_for_each_other_if_they_were_seen_for_a_part_of_the_time() -> (
    None
):
    session: Session = sampled(Machine(cores=2))[0]
    session.run_times.covered_s = 0.4 * (session.now_ns - session.run.start_ns) / 1e9
    half_s = session.run_times.covered_s / 2
    session.run_times.tasks = {
        (pid, "job", 0): task_times("job", half_s, half_s, 0) for pid in (1, 2)
    }
    session.run_times.tasks[3, "hog", 0] = task_times("hog", 0.3 * half_s, 0.0, 0)
    text = waits_of(session, None).text
    assert text.startswith("2 tasks of job wait for each other and hog[3]")


def test_virtual_machines_of_a_host_are_named_with_their_waits() -> None:
    """The wait of a VM for a host CPU is the steal of its guest."""
    tasks = {
        (pid, f"CPU {cpu}/KVM", cpu): task_times(f"CPU {cpu}/KVM", 0.2, wait_s, cpu)
        for pid, cpu, wait_s in ((1, 0, 0.2), (1, 1, 0.2), (2, 0, 0.1))
    }
    command = "/usr/bin/qemu-system-x86_64 -name guest={},debug-threads=on -machine q35"
    details: dict[str, dict[str, object]] = {
        str(n): {"command": command.format(f"web{n}")} for n in (1, 2)
    }
    result = waits(tasks=tasks, job=None, details=details)
    assert result.text == "2 threads of VM web1 wait behind VM web2[2] on CPUs 0-1"
    assert result.evidence[:2] == ["they waited 0.40 of 0.80 s", "steal for the guest"]


def test_tasks_that_wait_for_each_other_do_not_wait_for_short_lived_children() -> None:
    assert waits(CROWDED, children(9.0)).text == "2 threads of job wait for each other on CPU 0"


def test_children_pinned_elsewhere_are_not_blamed() -> None:
    session: Session = sampled(Machine(cores=2))[0]
    session.run_times.threads, session.run_times.tasks = BLOCKED, children(0.3)
    for affinity, words in (("1", "job waits for CPU 0"), ("0-1", "job waits behind short-lived")):
        session.details = {"8": {"affinity": affinity}}
        result = waits_of(session, "job")
        assert result is not None
        assert result.text.startswith(words)


def test_tasks_of_one_name_with_different_parents_are_separate() -> None:
    tasks = {
        (pid, "python", cpu): task_times("python", 0.4, wait_s, cpu)
        for pid, cpu, wait_s in ((1, 0, 0.4), (2, 0, 0.3), (3, 1, 0.2))
    }
    parents: dict[str, dict[str, object]] = {
        pid: {"parent": name} for pid, name in (("1", "make"), ("2", "make"), ("3", "cron"))
    }
    result = waits(tasks=tasks, job=None, details=parents)
    assert result.text.startswith("2 tasks of python wait ")
    assert result.evidence[0] == "they waited 0.70 of 1.5 s"
    assert waits(tasks=tasks, job=None).text.startswith("3 tasks of python wait ")


PINNED = {
    (pid, pid): task_times(comm, SPAN_S / 2, SPAN_S / 2) for pid, comm in ((1, "a"), (2, "b"))
}
MASKS: dict[str, dict[str, object]] = {"1": {"affinity": "0"}, "2": {"affinity": "0"}}
CPUSETS = {pid: {**mask, "cpuset": "0"} for pid, mask in MASKS.items()}
UNLIMITED = {"1": {"affinity": "0-7"}, "2": {"affinity": "0"}}


@pytest.mark.parametrize(("details", "busy", "pieces", "hint"), [
    (MASKS, 0.33, ["may use 1 of 4 CPUs (mask)", "CPU 1 is 67 % idle"], "taskset -acp 0-3 1"),
    (CPUSETS, 0.33, ["may use 1 of 4 CPUs (cpuset)", "CPU 1 is 67 % idle"],
     "a cpuset of more CPUs than 0: cpuset.cpus, docker --cpuset-cpus"),
    (MASKS, 1.0, ["may use 1 of 4 CPUs (mask)"],
     "a mask of more CPUs, or no more than 1 thread"),
    (UNLIMITED, 1.0, [], "no more than 4 threads at a time, one for each CPU"),
    ({}, 0.33, [], ""),
    ({"1": {"affinity": "x"}, "2": {"affinity": ["0"]}}, 0.33, [], ""),
])  # fmt: skip
def test_a_job_limited_to_few_cpus_gets_its_mask(
    details: dict[str, dict[str, object]], busy: float, pieces: list[str], hint: str
) -> None:
    machine = Machine(cores=2)
    machine.loads = {0: CpuLoad(util=1.0)} | dict.fromkeys((1, 2, 3), CpuLoad(util=busy))
    result = waits(PINNED, details=details, machine=machine)
    assert result.text == "2 threads of job (a, b) wait for each other on CPU 0"
    assert [piece for piece in result.evidence if "CPU" in piece] == pieces
    assert result.hint == hint


def test_a_wait_never_exceeds_the_wanted_time() -> None:
    result = waits({(1, 1): task_times("job", 0.004, 0.012)})
    assert result.evidence[0] == "it waited 0.01 of 0.02 s"


def test_a_wait_on_no_cpu_names_nobody() -> None:
    before = task_times("job", 0.4, 0.4)
    rest = before.with_record(0, 0.0, 4e-17).since(before)
    assert rest.wait_s > 0
    assert not rest.by_cpu
    session: Session = sampled(Machine(cores=2))[0]
    session.track_losses()
    session.run_times.threads = {(1, 1): rest}
    assert waiting_finding(empty_report(session, "job"), NO_FINDING) is None


def test_programs_that_share_a_cpu_are_all_named() -> None:
    tasks = {
        (1, "pytest", 0): task_times("pytest", 0.1, 0.4),
        (2, "pytest", 0): task_times("pytest", 0.1, 0.4),
        (3, "python", 0): task_times("python", 0.2, 0.2),
    }
    result = waits(tasks=tasks, job=None)
    assert result.text == "2 tasks of pytest wait for each other and python[3] on CPU 0"
    assert result.culprit == "pytest"


def test_waits_for_tasks_that_were_not_seen_have_an_unknown_cause() -> None:
    session: Session = sampled(Machine(cores=2))[0]
    session.track_losses()
    session._losses._waited_s = np.array([0.3, 0.0, 0.0, 0.0])
    session.run_times.tasks = {(7, "hog", UNKNOWN_CPU): task_times("hog", 0.2, 0.3)}
    finding = finding_of(report(session), WAIT_CAUSE)
    assert (finding.confidence, finding.evidence) == ("unknown", [UNKNOWN_NEIGHBOUR])


# --- stopped threads


def session_of_job(*threads: TaskTimes) -> Session:
    """Returns a session in which the threads of the job have these times."""
    session: Session = sampled(Machine(cores=2))[0]
    session.track_losses()
    session.run_times.threads = {(1, tid): times for tid, times in enumerate(threads, 1)}
    session.run_times.job_has_waits = True
    return session


@pytest.mark.parametrize(("readings", "confidence"), [("RT", "inferred"), ("RTTT", "measured")])
def test_a_stop_that_one_reading_found_is_inferred(readings: str, confidence: str) -> None:
    job = TaskTimes("job", 0.1, 0.0, {0: 0.1})
    for letter in readings:
        job = job.with_state(letter, 0.1, 0.1 * (letter == "R"))
    session = session_of_job(job)
    result = report(session, ["job"])
    assert finding_of(result, STOPPED_CAUSE).confidence == confidence


@pytest.mark.parametrize(("state", "by", "hint"), [
    ("T", "SIGSTOP", "kill -CONT 1"),
    ("t", "a debugger", "detach the debugger"),
    ("F", "a frozen group", "thaw its control group"),
])  # fmt: skip
def test_a_stopped_job_gets_the_duration_and_the_cause(state: str, by: str, hint: str) -> None:
    session = session_of_job(TaskTimes("job", 0.3, 0.0, {0: 0.3}, 0.5, 0.3, {state: 0.2, "R": 0.3}))
    result = report(session, ["job"])
    (first,) = [finding for finding in result.named_findings if finding.cause == STOPPED_CAUSE]
    assert first.text == f"job was stopped for 0.2 of 0.5 s ({by})"
    assert (first.culprit, first.hint, first.confidence) == (by, hint, "measured")
    assert first.evidence == [
        f"state of job[1]: {'D, its group is frozen' if state == 'F' else state}"
    ]
    assert first.lost_s == pytest.approx(0.2)
    spent = "spent      ran 0.3 s, was stopped 0.2 s (all threads together)"
    assert spent in printed_report(result)
    assert next(check for check in result.checks if check.key == "wait").result.startswith("0.0 s")


@pytest.mark.parametrize(("sleeps", "name", "lost_s"), [
    (30, "job[1]", 0.4), (4, "job[1]", 0.0), (400, "job[1]", 0.0), (30, "job[2]", 0.0),
])  # fmt: skip
def test_the_cost_of_sleeps_after_split_locks_is_inferred(
    sleeps: int, name: str, lost_s: float
) -> None:
    """The kernel log names a thread whose sleeps are as long as those after split locks, however
    often it was preempted."""
    job = TaskTimes("job", 0.1, 0.0, {0: 0.1}, 0.5, 0.1, {"S": 0.5}, switches=1000, sleeps=sleeps)
    session = session_of_job(job)
    session.hints.read_records({"kernel_log": [["split-lock", name, 1]]})
    result = report(session, ["job"])
    found = {finding.cause: finding for finding in result.findings}
    finding = found.get(("stopped", "split-lock"))
    assert (finding.lost_s if finding else 0.0) == pytest.approx(lost_s)
    if finding is not None:
        assert finding.confidence == "inferred"
        assert finding.text == "The kernel, after each split lock, kept job from running"


# --- CPU quotas


def with_quota(throttled_s: float, waited_s: float = 0.0, threads: int = 1) -> Session:
    """Returns a session in which a quota stopped the job for `throttled_s` and CPU 0 waited for
    `waited_s`."""
    session = session_of_job(*[task_times("job", 0.2, 0.3)] * threads)
    session._losses._waited_s = np.array([waited_s, 0.0, 0.0, 0.0])
    for us in (0, round(throttled_s * 1e6)):
        groups = {"/docker/0123456789abcdef": [0.5, us // 100_000, us // 120_000, us]}
        record = {"groups": groups, "pids": {"1": [*groups]}}
        session.quotas.read_records({"quotas": record})
    return session


def test_a_quota_is_named_with_its_owner_and_other_tasks_are_not() -> None:
    session = with_quota(0.3, 0.3)
    result = report(session, ["job"])
    (first,) = [finding for finding in result.named_findings if finding.cause == QUOTA_CAUSE]
    assert first.text == "job may use no more than 0.5 CPUs (quota of container 0123456789ab)"
    assert (first.culprit, first.confidence) == ("its CPU quota of 0.5 CPUs", "measured")
    assert first.lost_s == pytest.approx(0.3)
    assert first.details["group"] == "/docker/0123456789abcdef"
    assert first.evidence == [
        "job was stopped for 0.30 of 0.5 s", "throttled in 66.7 % of periods",
    ]  # fmt: skip
    assert WAIT_CAUSE not in {finding.cause for finding in result.named_findings}


@pytest.mark.parametrize(("name", "owner"), [("web", " of web.service"), ("web.service", "")])
def test_the_task_and_the_group_that_a_quota_stopped_most_are_named(name: str, owner: str) -> None:
    """No job is watched; a quota of one CPU stops two tasks."""
    session: Session = sampled(Machine(cores=2))[0]
    session.track_losses()
    tasks = (name, 0.6), (name, 0.4), ("db", 0.2)
    session.run_times.tasks = {
        (i, comm, i): task_times(comm, 2.0, wait_s, i) for i, (comm, wait_s) in enumerate(tasks)
    }
    session._losses._waited_s = np.array([0.6, 0.4, 0.2, 0.0])
    for us in (0, 900_000):
        groups = {"/web.service": [1.0, 0, 0, us], "/db": [2.5, 0, 0, us // 6]}
        pids = {"0": ["/web.service"], "1": ["/web.service"], "2": ["/db"]}
        session.quotas.read_records({"quotas": {"groups": groups, "pids": pids}})
    finding = finding_of(report(session), QUOTA_CAUSE)
    quota = f" (quota{owner})" if owner else ""
    assert finding.text == f"{name} may use no more than 1 CPU{quota}"
    assert finding.headline == f"{name} loses 18 % of its time to a quota of 1 CPU{owner}"
    assert finding.evidence == [f"{name} was stopped for 0.90 of 5.0 s", "1 more group too"]
    assert (finding.culprit, finding.confidence) == (name, "measured")
    assert (finding.lost_s, finding.victim_share) == pytest.approx((1.05, 0.18))
    assert finding.details == {
        "group": "/web.service", "owner": "web.service", "cpus": 1.0, "periods": 0,
        "throttled_periods": 0, "throttled_s": 0.9,
    }  # fmt: skip


def test_stops_by_a_quota_are_inferred_where_they_are_multiplied_by_tasks_per_cpu() -> None:
    """The kernel counted 0.3 s for a CPU, so that two tasks which share it lost up to 0.6 s."""
    session = with_quota(0.3, 0.6, threads=2)
    finding = finding_of(report(session, ["job"]), QUOTA_CAUSE)
    assert finding.evidence[0] == "job was stopped for 0.60 of 1.0 s"
    assert finding.confidence == "inferred"


def test_a_wait_explained_by_a_quota_is_not_blamed_on_other_tasks() -> None:
    session = with_quota(0.2)
    session.run_times.tasks = hog(0.5)
    assert waits_of(session, "job").evidence[0] == "it waited 0.10 of 0.30 s"


@pytest.mark.parametrize(("watch", "irq", "expected_text", "is_ruled_out"), [
    (None, 0.016, "0.4 % of time", True), (None, 0.16, "4.0 % of time", False),
    ("job", 0.04, "4.0 % of time", False), ("job", 0.004, "0.4 % of time", True),
])  # fmt: skip
def test_interrupts_on_the_cpus_of_a_job_are_not_ruled_out_at_several_percent(
    watch: str | None, irq: float, expected_text: str, is_ruled_out: bool
) -> None:
    """Only one of four CPUs has interrupts, and the job runs on it."""
    machine = Machine(cores=2, changes={"watch": watch})
    machine.loads = {1: CpuLoad(util=0.9, hz=3.2e9, irq=irq)}
    session = Session(machine.hello)
    session.track_losses()
    frames = []
    for seq in range(30):
        threads = {"7": [7, "job", 1, seq * 90_000_000, 0, 0, 0]}
        frames.append(machine.frame(seq, records={"watched": {"threads": threads, "more": 0}}))
    session_of(session, frames)
    result = report(session)
    (check,) = [check for check in result.checks if check.key == "interrupts"]
    assert (check.result, check.is_ruled_out(0.1)) == (expected_text, is_ruled_out)
    whole = session.run_interval()
    # The interrupts are those of the whole run, so they are not in a report on a part of it.
    part = brief_report(session, totals=session.totals(), interval=whole)
    part = with_checks(part)
    assert "interrupts" not in {check.key for check in part.checks}


# --- clues

IN_KERNEL = "% of the time is in the kernel, with"


def session_in_kernel(settings: dict[str, str], *, util: float, kernel: float) -> Session:
    """Returns a session of 3 s of a machine with four CPUs. `kernel`: the share of their busy time
    that they spend in the kernel."""
    machine = Machine(cores=2, changes={"settings": settings})
    machine.loads = dict.fromkeys(range(4), CpuLoad(util=util, hz=3.2e9, kernel=kernel))
    session = Session(machine.hello)
    session.track_losses()
    session_of(session, [machine.frame(seq) for seq in range(30)])
    return session


@pytest.mark.parametrize(("setting", "kernel", "clue_text"), [
    ({"clocksource": "hpet"}, 0.4, f"40 {IN_KERNEL} the clock source hpet"),
    ({"frequency_driver": "pcc-cpufreq"}, 0.2, f"20 {IN_KERNEL} the driver pcc-cpufreq"),
    ({"costly_mitigations": "retbleed: IBRS"}, 0.4, f"40 {IN_KERNEL} mitigations"),
    ({"bandwidth_caps": "batch 10"}, 0.1, "resctrl caps memory bandwidth (batch 10)"),
    ({"clocksource": "hpet"}, 0.1, ""),
    ({"clocksource": "tsc"}, 0.4, ""),
    ({}, 0.4, ""),
])  # fmt: skip
def test_a_slow_setting_is_a_clue_if_kernel_time_is_high(
    setting: dict[str, str], kernel: float, clue_text: str
) -> None:
    session = session_in_kernel(setting, util=0.9, kernel=kernel)
    result = report(session)
    assert [clue.text.startswith(clue_text) for clue in result.clues] == [True] * bool(clue_text)
    first, *rest = printed_report(result)
    assert any(line.startswith("clue       ") for line in rest) == bool(clue_text)
    assert first.startswith(
        "Nothing measured is slowing" if clue_text else "No slowdown of this machine"
    )


@pytest.mark.parametrize(("settings", "clue_text", "share"), [
    ({"clocksource": "hpet", "clock_read": "1.5 µs"}, "a read takes 1.5 µs here", 0.4 * 0.98),
    ({"costly_mitigations": "retbleed: IBRS", "system_call": "0.4 µs"},
     "the shortest takes 0.4 µs here", 0.4 * 0.75),
    ({"frequency_driver": "pcc-cpufreq"}, "in which all CPUs share a lock", 0.4),
])  # fmt: skip
def test_a_slow_setting_costs_no_more_than_its_calls_in_the_kernel(
    settings: dict[str, str], clue_text: str, share: float
) -> None:
    session = session_in_kernel(settings, util=0.9, kernel=0.4)
    result = report(session)
    (clue,) = result.clues
    assert clue.highest_share == pytest.approx(share, rel=0.02)
    assert clue_text in clue.text
    bound = f"up to {100 * clue.highest_share:.0f} %"
    assert clue.text.endswith(f"{bound} of the time")
    assert f"but the clue below may cost {bound}." in answer(result)


@pytest.mark.parametrize(("rows", "settings", "texts", "first"), [
    ([["clock", "read_hpet", 7, "app", 3 * 10**8], ["", "path_init", 8, "ls", 10**8]],
     {"clocksource": "hpet", "clock_read": "1.5 µs"},
     ["30 % of the time is spent reading a slow clock source, by app[7]",
      "10 % of the time is spent in the kernel's function path_init, by ls[8]"],
     "This machine spends 30 % of its time reading a slow clock source."),
    ([["lock", "path_init", 7, "app", 10**8], ["lock", "alloc_fd", 8, "ls", 3 * 10**7]], {},
     [("13 % of the time is spent spinning for a lock of the kernel in path_init, by app[7] and"
      " 1 more")],
     "This machine spends 13 % of its time spinning for a lock of the kernel in path_init."),
    ([["mitigation", "srso_return_thunk", 7, "app", 5 * 10**7]], {},
     ["5 % of the time is spent in mitigations, when the kernel is entered or left, by app[7]"],
     "This machine spends 5 % of its time in mitigations, when the kernel is entered or left."),
    ([["lock", "pcc_cpufreq_target", 7, "kworker", 2 * 10**8]],
     {"frequency_driver": "pcc-cpufreq"},
     [("20 % of the time is spent spinning for a lock of the kernel in pcc_cpufreq_target, by"
      " kworker[7]")],
     ("This machine spends 20 % of its time spinning for a lock of the kernel in"
     " pcc_cpufreq_target.")),
    ([["entry", "do_syscall_64", 7, "app", 10**7], ["clock", "read_hpet", 7, "app", 10**6],
      ["later", "x", 7, "app", 10**9], ["", "path_init", 7, "app", 9 * 10**7], [7]],
     {"clocksource": "hpet"}, [], "No slowdown of this machine was found"),
])  # fmt: skip
def test_a_clue_from_samples_of_the_kernel_has_its_share_and_its_process(
    rows: list[object], settings: dict[str, str], texts: list[str], first: str
) -> None:
    """The rows cover a second, in which each of four CPUs worked for a quarter of the time."""
    session = session_in_kernel(settings, util=0.25, kernel=0.4)
    session.hints.read_records({"kernel": {"span_ns": 10**9, "functions": rows}})
    result = report(session)
    assert [clue.text for clue in result.clues] == texts
    assert answer(result).startswith(first)


def test_a_remedy_of_a_cause_and_of_a_clue_is_printed_once() -> None:
    _, result = session_and_report("throttle")
    for hint, more in ((result.findings[0].hint, 0), ("another remedy", 1)):
        with_clue = replace(result, clues=[Clue("key", "a clue", hint)])
        before, after = (
            sum("try:" in line for line in printed_report(each))
            for each in (replace(result, clues=[]), with_clue)
        )
        assert after - before == more


@pytest.mark.parametrize("record", [
    7, {}, {"span_ns": 0, "functions": []}, {"span_ns": 9}, {"span_ns": 9, "functions": 7},
    {"span_ns": 9, "functions": [["lock", "f", 7, "app", -1], ["lock", 7, 7, "app", 1]]},
])  # fmt: skip
def test_invalid_samples_of_the_kernel_are_ignored(record: object) -> None:
    session: Session = sampled(Machine(cores=1))[0]
    session.hints.read_records({"kernel": record})
    assert session.hints.kernel_s == {}


@pytest.mark.parametrize(("records", "clues", "managers"), [
    ({"kernel_log": [["split-lock", "app[7]", 2], ["split-lock", "app[7]", 1]]}, ["app[7]"], []),
    ({"kernel_log": [["memory-errors", "DIMM#0", 9]]}, ["DIMM#0"], []),
    ({"kernel_log": [["later-kind", "x", 1], ["split-lock", 7, 1], 7]}, [], []),
    ({"managers": {"812": "thermald", "x": "y"}, "kernel_log": 7}, [], ["thermald[812]"]),
    ({"managers": [7]}, [], []),
])  # fmt: skip
def test_entries_of_the_kernel_log_are_clues(
    records: dict[str, object], clues: list[str], managers: list[str]
) -> None:
    machine = Machine(cores=2)
    session = Session(machine.hello)
    session.track_losses()
    session_of(session, [machine.frame(0), machine.frame(1, records=records), machine.frame(2)])
    result = report(session)
    assert [clue.text.split(":")[0] for clue in result.clues] == [
        f"the kernel's log names {name}" for name in clues
    ]
    assert session.hints.power_managers == managers


@pytest.mark.parametrize(("groups", "pids", "clue_text"), [
    ({"/a": [50_000_000, 7, 500_000, None]}, {"1": "/a"},
     ("its group was at its memory limit of 50 MB 14 times and read 4.1 GB back, and it waited 0.4"
      " s for the disk: files may be read again because memory is short")),
    ({"/a": [50_000_000, 7, 500_000, None]}, {"2": "/a"}, ""),
    ({"/a": [50_000_000, 7, 0, None]}, {"1": "/a"}, ""),
    ({"/a": [None, 7, 9, None], 3: 4}, {"1": "/a"}, ""),
    ({"/a": 7}, {"1": ["/a"]}, ""),
    (7, 7, ""),
])  # fmt: skip
def test_a_job_that_waits_for_the_disk_at_its_memory_limit_gets_a_clue(
    groups: object, pids: object, clue_text: str
) -> None:
    """The kernel counts the wait for a file that is read again as one for the disk."""
    session = session_of_job(TaskTimes("job", 0.1, 0.0, {0: 0.1}, 0.5, 0.1, {"D": 0.4, "R": 0.1}))
    for _ in range(2):
        session.hints.read_records(
            {"memory": {"stalled_us": 0, "counts": {}, "groups": groups, "pids": pids}}
        )
    result = report(session, ["job"])
    assert [clue.text for clue in result.clues] == [clue_text] * bool(clue_text)
    first, *rest = printed_report(result)
    assert first == "job waited for the disk 80 % of its time."
    assert not any("perf record" in line for line in rest), "its own code is not the cause"


def test_few_groups_at_their_memory_limit_and_few_processes_are_kept() -> None:
    hints = RecordHints()
    for number in range(3000):
        named = {f"/{number % 100}": [50_000_000, 1, 1, None]}
        hints.read_records({"memory": {"groups": named, "pids": {f"{number}": f"/{number % 2}"}}})
    assert len(hints.groups_at_limit) == MAX_NAMES
    assert max(len(group.pids) for group in hints.groups_at_limit.values()) < MAX_WORKS
    for number in range(3000):
        named = {"/0": [50_000_000, 1, 1, None]}
        hints.read_records({"memory": {"groups": named, "pids": {f"{9000 + number}": "/0"}}})
    assert len(hints.groups_at_limit["/0"].pids) == MAX_WORKS


@pytest.mark.parametrize(("util", "caches_gb", "uncore_ghz", "clue_text"), [
    (0.9, (8.0, 3.0), None, ["62 % of 8.0 GB/s of memory traffic is with another node"]),
    (0.9, (8.0, 7.9), None, []),
    (0.9, (0.5, 0.1), None, []),
    (0.9, None, (1.2, 2.4), ["the uncore of package 0 runs at 1.20 of 2.40 GHz"]),
    (0.9, None, (2.3, 2.4), []),
    (0.9, None, (float("nan"), 2.4), []),
    (0.2, None, (1.2, 2.4), []),
])  # fmt: skip
def test_slow_memory_is_a_clue(
    monkeypatch: pytest.MonkeyPatch, util: float, caches_gb: tuple[float, float] | None,
    uncore_ghz: tuple[float, float] | None, clue_text: list[str],
) -> None:  # fmt: skip
    machine = Machine(cores=2)
    machine.loads = dict.fromkeys(range(4), CpuLoad(util=util))
    session: Session = sampled(machine)[0]
    keys = "memory_bytes_per_s", "local_bytes_per_s"
    caches = {k: np.array([gb * 1e9]) for k, gb in zip(keys, caches_gb or (), strict=False)}
    whole = replace(session.run_interval(), caches=caches)
    result = replace(empty_report(session), interval=whole)
    clocks = dict(zip(("uncore_hz", "uncore_max_hz"), uncore_ghz or (), strict=False))
    monkeypatch.setattr(
        Counters, "rates",
        lambda _, __, key: np.array([clocks[key] * 1e9]) if key in clocks else None,
    )  # fmt: skip
    found = [clue.text.split(",")[0] for clue in _memory_clues(result)]
    assert found == clue_text
    session.hello = replace(session.hello, identity=Identity(vendor="AuthenticAMD"))
    found = [clue.text.split(",")[0] for clue in _memory_clues(result)]
    assert found == [word.replace("uncore", "data fabric") for word in clue_text]


def test_a_lowered_power_limit_hints_at_running_power_managers() -> None:
    session, _ = found_episodes(f"turbo-drop,{SMALL}", SAMPLE_NS, PLAYED_S, None)
    for episode in session.episodes(0, session.now_ns):
        episode.evidence["power_limit_before_w"] = 300.0
    session.hints.read_records({"managers": {"812": "thermald"}})
    hint = report(session).findings[0].hint
    assert hint == "find what lowers it at run time: thermald[812] here or the BMC"


def test_a_clock_that_still_climbs_explains_its_loss() -> None:
    """Cores wake up after 8 s. Half a second passes before their clocks are known to be steady."""
    hello, stream = messages_lasting("sim:demo,cpus=8", 8.3)
    session = Session(hello)
    session.track_losses()
    session_of(session, stream)
    assert not [*session.running, *session.ended]
    ramp = report(session).named_findings[0]
    assert ramp.cause == ("ramp", "-")
    assert ramp.share > 0.01
    session_of(session, messages_lasting("sim:demo,cpus=8", 9.0)[1][len(stream) :])
    assert [e.kind for e in session.ended] == ["ramp"]
    assert report(session).sums.by_cause["ramp", "-"].sum() == pytest.approx(ramp.lost_s, rel=0.05)


@pytest.mark.parametrize(
    ("watch", "why"), [(None, "needs --watch"), ("lmp", "states of threads not known")]
)
def test_own_waits_are_said_to_be_counted_for_a_job_with_known_states(
    watch: str | None, why: str
) -> None:
    unmeasured = session_and_report("steady", 3, watch)[1].unmeasured_losses
    assert unmeasured[0][1] == why
