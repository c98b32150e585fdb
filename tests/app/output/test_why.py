"""`perftop why` on simulated machines: the scripted cause comes first, healthy machines have none,
and clues are named beside the causes."""

from __future__ import annotations

from dataclasses import replace
from math import isnan, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import CpuLoad, Machine
from fakes import observe as sampled
from nightly import cases_by_day
from sessions import session_of
from sim_streams import messages_lasting
from sim_truth import PLAYED_S, SMALL, found_episodes, play_episodes
from why_reports import (
    NO_FINDING,
    command_report,
    empty_report,
    find_finding,
    printed_report,
    session_of_job,
)

from perfprobe.wire import Identity, Note
from perftop.model.counters import Counters
from perftop.model.kinds import STEAL_CAUSE, Episode
from perftop.output import why_report
from perftop.output.report import (
    MAX_CAUSES,
    MIN_SHARE,
    Check,
    Report,
    _memory_clues,
    seen_share,
)
from perftop.output.why_report import report, unmeasured_losses
from perftop.output.why_text import answer, lines
from perftop.session.losses import (
    MAX_HINT_ENTRIES,
    MAX_NAMES,
    UNEXPLAINED,
    WAIT_CAUSE,
    CauseKey,
    LossSums,
    RecordHints,
)
from perftop.session.session import Session
from perftop.session.task_times import TaskTimes

SAMPLE_NS = 100_000_000
SCRIPTED: list[tuple[str, str | None, float, CauseKey]] = [
    ("turbo-drop", None, PLAYED_S, ("turbo-drop", "power-pl1")),
    ("license", None, PLAYED_S, ("turbo-drop", "license")),
    ("license", "gemm_avx512", PLAYED_S, ("turbo-drop", "license")),
    ("throttle", None, PLAYED_S, ("throttle", "thermal")),
    ("neighbour", None, PLAYED_S, ("neighbour", "sibling")),
    ("neighbour", "lmp", PLAYED_S, ("neighbour", "sibling")),
    ("guest", None, PLAYED_S, WAIT_CAUSE),
    ("guest", "postgres", 60, WAIT_CAUSE),
    ("demo", None, PLAYED_S, ("neighbour", "sibling")),
]
HEALTHY = ["steady", "idle", "jitter", "smt-mix", "hybrid", "hotplug", "warmup"]
HEALTHY_BY_DAY = ("jitter", "hybrid", "hotplug", "warmup")


def session_and_report(
    scenario: str, seconds: float = PLAYED_S, watch: str | None = None
) -> tuple[Session, Report]:
    session, _ = found_episodes(f"{scenario},{SMALL}", SAMPLE_NS, seconds, watch)
    return session, report(session)


def assert_checks_cover_all_losses(result: Report) -> None:
    whole = sum(result.sums.shares().values())
    assert np.nansum([check.share for check in result.checks]) == pytest.approx(whole)


@pytest.mark.parametrize(("scenario", "watch", "seconds", "cause"), SCRIPTED)
def test_the_scripted_cause_is_first(
    scenario: str, watch: str | None, seconds: float, cause: CauseKey
) -> None:
    _, result = session_and_report(scenario, seconds, watch)
    assert result.findings[0].cause == cause
    assert result.findings[0].share >= MIN_SHARE
    assert_checks_cover_all_losses(result)
    first = printed_report(result)[0]
    name = watch or (result.findings[0].culprit if cause[0] == "neighbour" else "This machine")
    assert name in first
    assert result.findings[0].culprit in first
    if cause == ("turbo-drop", "license"):
        assert ("its own wide SIMD code" if watch else "wide SIMD code of gemm_avx512") in first


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


def test_all_cpus_and_all_culprits_of_two_packages_are_named() -> None:
    """There is an episode for each package; the first names half of the culprits."""
    session, _ = found_episodes("neighbour,cpus=64,seed=1", SAMPLE_NS, 12, "lmp")
    result = report(session)
    finding = result.findings[0]
    assert answer(result).endswith(" to stream on CPUs 0,4,8,12,16,20,24,28.")
    assert finding.text.endswith("of lmp's IPC on CPUs 0,4,8,12,16,20,24,28")
    assert any("stream[4032] on CPU 32" in piece and "4 more" in piece
               for piece in finding.evidence)  # fmt: skip
    pids = "4032 4036 4040 4044 4048 4052 4056 4060"
    assert finding.hint.startswith(f"for p in {pids}; do taskset -acp ")
    assert finding.hint.endswith(" $p; done")


@pytest.mark.parametrize(("depth", "is_capped"), [(0.69, False), (0.7, True)])
def test_a_loss_too_large_for_a_sibling_is_explained_by_a_cap_on_bandwidth(
    depth: float, is_capped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = session_and_report("neighbour")
    monkeypatch.setitem(session.hello.settings, "bandwidth_caps", "batch 10")
    for episode in (*session.detector.running, *session.ended):
        monkeypatch.setattr(episode, "depth", depth)
    finding = report(session).findings[0]
    assert ("(batch 10)" in " ".join(finding.evidence)) is is_capped
    assert (finding.victim_share, finding.headline) == (depth, finding.text)
    assert finding.hint.startswith("MB in /sys/fs/resctrl") is is_capped


@pytest.mark.parametrize(("cpus", "text"), [
    ([1, 3, 5], "2.00 s on CPU 1 and 4.00 s on CPU 3 and 6.00 s on CPU 5"),
    ([1, 2, 3, 5], "21.00 s on 4 CPUs"),
])  # fmt: skip
def test_stolen_time_is_listed_for_up_to_three_cpus(cpus: list[int], text: str) -> None:
    losses = SimpleNamespace(by_cause={STEAL_CAUSE: np.arange(1.0, 7.0)})
    of_six: Any = SimpleNamespace(
        totals=SimpleNamespace(losses=losses), session=SimpleNamespace(position=range(6)),
        span_ns=10**10,
    )  # fmt: skip
    assert why_report._stolen_text(of_six, cpus) == f"steal {text}, in 10.0 s"


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
        return find_finding(report(session), cause).confidence

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
        assert find_finding(result, ("turbo-drop", UNEXPLAINED)).evidence == [
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
    suspect = replace(totals.span, sample_count=2, suspect_count=2)
    unsampled = replace(unread, totals=replace(totals, span=suspect))
    assert "no good sample" in answer(unsampled)
    assert "steal" not in {check.key for check in unread.checks}


def test_a_job_without_a_sample_is_not_reported_as_healthy() -> None:
    """The name of a job may be mistyped; a PID that existed at the start has ended."""
    session, result = session_and_report("steady", 3, "lmpp")
    first, *rest = printed_report(result)
    assert first.startswith("No process named lmpp was found")
    assert "try:      --watch PID, or the name that ps -o comm shows" in rest
    assert not any(line.startswith("Working") for line in rest), "only the machine works"
    assert result.ruled_out_losses == [], "nothing is known, so nothing is ruled out"
    session.neighbours.watched_job.name = "web.service"
    result = replace(result, job="web.service")
    assert answer(result).startswith("No process in web.service was found")
    assert not any(line.startswith("try:") for line in printed_report(result))
    session.neighbours.watched_job.name = "4711"
    assert answer(replace(result, job="process 4711")).startswith("Process 4711 ended")


@pytest.mark.parametrize(("scenario", "selected", "first", "kind", "share"), [
    ("guest", "0", "2 tasks of cc1plus wait 53 % of their time for a CPU", WAIT_CAUSE, 0.39),
    ("guest", "1", "1 of 2 tasks of postgres waits 2 % of its time", WAIT_CAUSE, 0.015),
    ("neighbour", "0,1", "stream on the sibling takes 31 % of lmp's IPC", ("neighbour", "sibling"),
     0.1),
    ("neighbour", "1", "This machine was idle", None, 0.0),
])  # fmt: skip
def test_only_selected_cpus_count(
    scenario: str, selected: str, first: str, kind: CauseKey | None, share: float
) -> None:
    session, _ = play_episodes(f"{scenario},{SMALL}", SAMPLE_NS, 12, selected=selected)
    result = report(session)
    assert answer(result).startswith(first)
    shares = result.sums.shares()
    assert (shares[kind] if kind else sum(shares.values())) == pytest.approx(share, abs=0.01)
    assert "memory" not in {check.key for check in result.checks}
    unread = [
        why for what, why, _ in unmeasured_losses(result) if what.startswith("losses to others")
    ]
    assert unread == (["not all of its CPUs are read"] if scenario == "neighbour" else [])


def test_unreported_waits_are_unknown_instead_of_zero() -> None:
    """Waits are unknown in a short measurement, so the report must not say that all is well."""
    session, result = session_and_report("steady")
    snapshots, session.run.times.wait_snapshots = session.run.times.wait_snapshots, 1
    first, *rest = printed_report(result)
    assert first.endswith("was found; how long tasks waited is not known.")
    assert not any("its own code" in line for line in rest)
    session.run.times.wait_snapshots = snapshots
    assert answer(result).startswith("Nothing is slowing this machine down")


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


# --- clues

IN_KERNEL = "% of the time is in the kernel, with"


def session_in_kernel(settings: dict[str, str], *, util: float, kernel: float) -> Session:
    """Returns a session of 3 s of a machine with four CPUs. `kernel`: the share of their busy time
    that they spend in the kernel."""
    machine = Machine(cores=2, changes={"settings": settings})
    machine.loads = dict.fromkeys(range(4), CpuLoad(util=util, hz=3.2e9, kernel=kernel))
    session = Session(machine.hello)
    session.run.track_losses()
    session_of(session, [machine.frame(seq) for seq in range(30)])
    return session


@pytest.mark.parametrize(("setting", "kernel", "clue_text"), [
    ({"clocksource": "hpet"}, 0.4, f"40 {IN_KERNEL} the clock source hpet"),
    ({"frequency_driver": "pcc-cpufreq"}, 0.2, f"20 {IN_KERNEL} the driver pcc-cpufreq"),
    ({"costly_mitigations": "retbleed: IBRS"}, 0.4, f"40 {IN_KERNEL} mitigations"),
    ({"bandwidth_caps": "batch 10"}, 0.1, "resctrl caps memory bandwidth (batch 10)"),
    ({"clocksource": "hpet", "frequency_driver": "pcc-cpufreq",
      "costly_mitigations": "retbleed: IBRS"}, 0.1, ""),
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
    ([["mitigation", "srso_return_thunk", 7, "app", 5 * 10**7],
      ["clock", "read_hpet", 8, "db", 2 * 10**8]], {},
     ["20 % of the time is spent reading a slow clock source, by db[8]",
      "5 % of the time is spent in mitigations, when the kernel is entered or left, by app[7]"],
     "This machine spends 20 % of its time reading a slow clock source."),
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
    session.run.track_losses()
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
    session.run.times.io_stall_s = 0.4
    for _ in range(2):
        session.hints.read_records(
            {"memory": {"stalled_us": 0, "counts": {}, "groups": groups, "pids": pids}}
        )
    result = command_report(session)
    assert [clue.text for clue in result.clues] == [clue_text] * bool(clue_text)
    result.interval.machine["pressure_io"] = 0.001  # the machine's many CPUs hardly wait
    assert "disk" not in {check.key for check in replace(result).checks}
    first, *rest = printed_report(result)
    assert first == "job waited for the disk 80 % of its time."
    assert not any("perf record" in line for line in rest), "its own code is not the cause"


@pytest.mark.parametrize(("is_split", "loads", "ipc_alone", "result_text"), [
    (True, (0.97, 0.97), nan, "unknown for 97 % of the time"),
    (False, (0.97, 0.97), nan, "unknown for 97 % of the time"),
    (True, (0.97, 0.97), 2.0, "no task ran slower than when alone"),
    (True, (0.97, 0.0), nan, "no task ran slower than when alone"),
])  # fmt: skip
def test_siblings_are_ruled_out_only_if_the_ipc_alone_is_known(
    is_split: bool, loads: tuple[float, float], ipc_alone: float, result_text: str
) -> None:
    machine = Machine(cores=1, split=is_split)
    machine.loads = {cpu: CpuLoad(util) for cpu, util in enumerate(loads)}
    session = sampled(machine)[0]
    session.run.track_losses()
    session.neighbours.siblings.ipc_alone = lambda: np.full(2, ipc_alone)  # type: ignore[method-assign]
    result = empty_report(session)
    (check,) = [check for check in result.checks if check.key == "sibling"]
    assert check.result == result_text
    assert np.isnan(check.share) == ("unknown" in result_text)
    lost = LossSums(np.ones(2), np.zeros(2), {("neighbour", "sibling"): np.array([0.5, 0.0])})
    slowed = replace(result, totals=replace(result.totals, losses=lost))
    (check,) = [check for check in slowed.checks if check.key == "sibling"]
    assert check.result == "tasks ran slower than when alone"
    assert ("siblings" in result.ruled_out_losses) == ("unknown" not in result_text)


@pytest.mark.parametrize(("cause", "is_ruled_out"), [
    ("power-pl1", True), ("thermal", False), ("unknown", False), (UNEXPLAINED, False),
])  # fmt: skip
def test_heat_is_not_ruled_out_while_a_cause_is_unknown(cause: str, is_ruled_out: bool) -> None:
    result = empty_report(sampled(Machine(cores=2))[0])
    result.interval.machine["temperature_c"] = 98.0
    finding = replace(NO_FINDING, cause=("turbo-drop", cause), share=0.2)
    named = replace(result, findings=[finding])
    assert ("heat (mean 98 °C)" in named.ruled_out_losses) == is_ruled_out


@pytest.mark.parametrize(("scenario", "start_s", "loss"), [
    ("turbo-drop", 8, "clock"), ("license", 6, "clock"), ("throttle", 20, "clock"),
    ("throttle", 8, "involuntary halts"), ("halts", 5, "involuntary halts"),
    ("neighbour", 26, "steal"), ("guest", 27.2, "steal"),
])  # fmt: skip
def test_a_loss_is_not_ruled_out_while_an_episode_of_it_has_just_begun(
    scenario: str, start_s: float, loss: str
) -> None:
    for seconds, is_ruled_out in [(start_s - 1, True), (start_s + 0.3, False)]:
        _, result = session_and_report(scenario, seconds)
        check = next(c for c in result.checks if c.brief_result.startswith(loss))
        assert check.share < MIN_SHARE
        assert (check.brief_result in result.ruled_out_losses) is is_ruled_out
    elsewhere = replace(result, episodes=[replace(e, cpus=[99]) for e in result.episodes])
    assert check.brief_result in elsewhere.ruled_out_losses, "no task runs on its CPU"


@pytest.mark.parametrize(("pressure", "is_ruled_out"), [(0.0001, True), (0.003, False)])
def test_little_memory_pressure_of_many_cpus_does_not_rule_out_memory_for_a_job(
    pressure: float, is_ruled_out: bool
) -> None:
    """The kernel's number is a mean over busy CPUs; all of it can be one thread's."""
    result = empty_report(sampled(Machine(cores=16))[0])
    result.interval.machine["pressure_memory"] = pressure
    result.totals.times.threads[1, 1] = TaskTimes("job")
    for job, expected in [(None, True), ("job", is_ruled_out)]:
        ruled_out = " ".join(replace(result, job=job).ruled_out_losses)
        assert ("waiting for memory" in ruled_out) == expected


def test_a_job_that_is_blocked_without_io_pressure_waits_for_no_disk() -> None:
    session = session_of_job(TaskTimes("job", 0.1, 0.0, {0: 0.1}, 0.5, 0.1, {"D": 0.4, "R": 0.1}))
    first, *rest = printed_report(command_report(session))
    assert first == "job was blocked in the kernel (cause unknown) 80 % of its time."
    assert not any("disk" in line or "perf record" in line for line in rest)


def test_few_groups_at_their_memory_limit_and_few_processes_are_kept() -> None:
    hints = RecordHints()
    for number in range(3000):
        named = {f"/{number % 100}": [50_000_000, 1, 1, None]}
        hints.read_records({"memory": {"groups": named, "pids": {f"{number}": f"/{number % 2}"}}})
    assert len(hints.groups_at_limit) == MAX_NAMES
    assert max(len(group.pids) for group in hints.groups_at_limit.values()) < MAX_HINT_ENTRIES
    for number in range(3000):
        named = {"/0": [50_000_000, 1, 1, None]}
        hints.read_records({"memory": {"groups": named, "pids": {f"{9000 + number}": "/0"}}})
    assert len(hints.groups_at_limit["/0"].pids) == MAX_HINT_ENTRIES


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
    session.run.track_losses()
    session_of(session, stream)
    assert not [*session.running, *session.ended]
    ramp = report(session).named_findings[0]
    assert ramp.cause == ("ramp", "-")
    assert ramp.share > 0.01
    session_of(session, messages_lasting("sim:demo,cpus=8", 9.0)[1][len(stream) :])
    assert [e.kind for e in session.ended] == ["ramp"]
    assert report(session).sums.by_cause["ramp", "-"].sum() == pytest.approx(ramp.lost_s, rel=0.05)


@pytest.mark.parametrize(
    ("watch", "why"), [(None, "needs --watch"), ("lmp", "thread states unknown")]
)
def test_own_waits_are_said_to_be_counted_for_a_job_with_known_states(
    watch: str | None, why: str
) -> None:
    unmeasured = unmeasured_losses(session_and_report("steady", 3, watch)[1])
    assert unmeasured[0][1] == why


@pytest.mark.parametrize(("seen_s", "used_s", "share"), [
    (0.5, 2.0, 0.25), (0.0, 2.0, 0.0), (0.0, 0.0, 1.0),
    (3.0, 0.01, 1.0),  # a child in the background outlives the command
])  # fmt: skip
def test_no_more_than_all_of_a_command_is_seen(seen_s: float, used_s: float, share: float) -> None:
    assert seen_share(seen_s, used_s) == share


@pytest.mark.parametrize(("end", "share"), [
    ({"pid": 1, "user_s": 9.0, "sys_s": 1.0}, 0.3), ({"pid": 2, "user_s": 9.0, "sys_s": 1.0}, nan),
    ({"pid": 1, "user_s": "9", "sys_s": 1.0}, nan), ({"pid": 1, "user_s": nan, "sys_s": 1.0}, nan),
    ({"pid": 1, "user_s": -9.0, "sys_s": 1.0}, nan), (None, nan),
])  # fmt: skip
def test_a_report_on_a_recorded_command_has_the_share_of_it_that_was_seen(
    end: dict[str, object] | None, share: float
) -> None:
    """The recording has the command's CPU time in a note, which is untrusted."""
    session = session_of_job(TaskTimes("make", run_s=3.0))
    session.neighbours.watched_job.name = "1"
    session.apply(Note("run-start", session.now_ns, data={"pid": 1, "argv": ["make"]}))
    if end is not None:
        session.apply(Note("run-end", session.now_ns, data=end))
    result = report(session, is_past=True)
    assert result.seen_share == pytest.approx(share, nan_ok=True)
    assert result.has_missed_tasks is (share == 0.3)
    assert isnan(report(session, totals=session.run.totals()).seen_share), (
        "of a part, it is unknown"
    )


def test_shares_that_equal_a_limit_count() -> None:
    finding = NO_FINDING
    assert [replace(finding, share=s).is_named for s in (0.0099, 0.01)] == [False, True]
    assert [replace(finding, victim_share=s).is_named for s in (0.049, 0.05)] == [False, True]
    result = empty_report(sampled(Machine())[0], "job")
    assert [replace(result, seen_share=s).has_missed_tasks for s in (0.89, 0.9)] == [True, False]
    sums = [LossSums(np.array([s]), np.zeros(1), {}) for s in (0.0, 0.09, 0.1)]
    results = [replace(result, totals=replace(result.totals, losses=s)) for s in sums]
    assert [r.is_too_short for r in results] == [False, True, False]
    check = Check("k", "loss", "", 0.0099, "")
    assert [replace(check, share=s).is_ruled_out(0.01, ()) for s in (0.0099, 0.01)] == [True, False]
    measured = [replace(check, measured_share=s) for s in (0.0099, 0.01, nan)]
    assert [c.is_ruled_out(0.01, ()) for c in measured] == [True, False, True]


@pytest.mark.parametrize(("blocked_s", "first"), [
    (0.5, "job was blocked in the kernel (cause unknown) 50 % of its time."),
    (0.49, "job used no CPU time, so nothing could be lost."),
])  # fmt: skip
def test_blocked_for_half_of_the_time_is_the_answer(blocked_s: float, first: str) -> None:
    states = {"D": blocked_s, "R": 1.0 - blocked_s}
    run_s = 1.0 - blocked_s
    times = TaskTimes("job", run_s, 0.0, {0: run_s}, 1.0, run_s, states)
    text = printed_report(command_report(session_of_job(times)))
    assert text[0] == first


@pytest.mark.parametrize(("is_past", "text"), [
    (False, "Some task waits for a CPU 40 % of the time; which one is not known yet."),
    (True, "Some task waited for a CPU 40 % of the time; which one is unknown."),
])  # fmt: skip
def test_waits_in_too_short_a_time_to_name_a_task_are_the_answer(is_past: bool, text: str) -> None:
    result = empty_report(sampled(Machine())[0])
    interval = replace(result.interval, machine={"pressure_cpu": 0.4})
    totals = replace(result.totals, losses=LossSums(np.ones(1), np.zeros(1), {}))
    result = replace(result, totals=totals, interval=interval, past_tense=is_past)
    assert answer(result).startswith(text)


@pytest.mark.parametrize(("ready_s", "first"), [
    (0.5, "job used no CPU time, so nothing could be lost."),
    (0.51, "job was ready to run, but did not run. How long it waited is unknown."),
])  # fmt: skip
def test_a_job_that_was_ready_but_did_not_run_may_have_lost_time(
    ready_s: float, first: str
) -> None:
    """The kernel counts a wait only when it ends."""
    times = TaskTimes("job", elapsed_s=1.0, by_state={"R": ready_s, "S": 1.0 - ready_s})
    assert printed_report(command_report(session_of_job(times)))[0] == first


@pytest.mark.parametrize(("kind", "util", "is_explained"), [
    ("turbo-drop", 0.4, True), ("turbo-drop", 0.6, False), ("throttle", 0.4, False),
])  # fmt: skip
def test_a_low_clock_of_idle_cpus_may_be_the_governors_choice(
    kind: str, util: float, *, is_explained: bool
) -> None:
    result = empty_report(session_in_kernel({}, util=util, kernel=0.0))
    finding = replace(NO_FINDING, cause=(kind, UNEXPLAINED), cpus=[0])
    evidence = " ".join(why_report._add_details(result, finding).evidence)
    assert ("the governor may have chosen" in evidence) is is_explained


@pytest.mark.parametrize(("threads", "least"), [(1, 7.0), (4, 3.0)])
def test_then_bounds_what_the_first_remedy_can_gain(threads: int, least: float) -> None:
    """Each thread ran and waited for 3 of 10 s, on four CPUs. One thread may end 3 s earlier; four
    threads waited for more than the run took, but they also need 12 CPU seconds."""
    session = session_of_job(*[TaskTimes("make", run_s=3.0, wait_s=3.0)] * threads)
    waited_s = np.array([3.0 * threads, 0.0])
    losses = LossSums(waited_s, waited_s, {WAIT_CAUSE: waited_s})
    empty = empty_report(session, "make")
    end_ns = empty.totals.start_ns + 10 * 10**9
    totals = replace(empty.totals, losses=losses, end_ns=end_ns)
    wait = replace(NO_FINDING, share=0.5, lost_s=3.0 * threads)
    result = replace(empty, totals=totals, findings=[wait], past_tense=True)
    text = " ".join(" ".join(printed_report(result)).split())
    assert f"then without the first cause, the same work takes at least {least} s of 10.0 s" in text
    assert "seen only" not in text
    part = "seen only  80 % of its CPU time; the shares are of this part"
    assert part in printed_report(replace(result, seen_share=0.8))
    lost_nothing = replace(result, findings=[], seen_share=0.8)
    known = "Nothing was seen to slow make down, but only 80 % of its CPU time was seen."
    assert answer(lost_nothing).startswith(known)
    for other in (
        replace(result, past_tense=False), replace(result, seen_share=0.8),
        replace(result, job=None),
    ):  # fmt: skip
        assert not any(line.startswith("then ") for line in printed_report(other))
