"""stat: its tables, summary lines, and report on a command with its time use."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from examples import output
from fakes import Machine, observe, with_suspect_counter
from hypothesis import given
from hypothesis import strategies as st
from sessions import session_of
from sim_streams import messages
from why_reports import end_command

from perfprobe import wire
from perftop.model.confidence import TaskOnCpu
from perftop.model.kinds import Episode
from perftop.model.numbers import COUNTER_BY_NAME
from perftop.model.tasks import TaskSnapshot
from perftop.output import stat_text
from perftop.output.run_summary import (
    WIDTH,
    _other_tasks,
    machine_state,
    summary_line,
    time_use_lines,
)
from perftop.output.stat_lines import StatTable, is_known_number
from perftop.output.stat_text import command_lines, headline, measured_line
from perftop.output.why_report import report
from perftop.process.command_window import BOOT_ID
from perftop.process.measurement import Measurement
from perftop.recording.file import Recording
from perftop.session.episodes import EpisodeTally
from perftop.session.interval import Span
from perftop.session.losses import WAIT_CAUSE, LossSums
from perftop.session.run_phases import JobMoment, JobMoments, RunPhase, phases
from perftop.session.session import Session
from perftop.session.task_times import RunTimes, TaskTimes
from perftop.verbs.options import SHIPPED_DIRECTORY

S, MS = 1_000_000_000, 1_000_000
ROOT = 100


# --- tables


def test_each_screenful_has_a_heading() -> None:
    session, interval = observe(Machine(cores=2))
    for brief, rows in ((True, 1), (False, 7)):
        table = StatTable(session, brief=brief, height=20)
        printed = [line for _ in range(20) for line in table.lines(interval)]
        headings = [at for at, line in enumerate(printed) if "busy" in line]
        assert len(headings) == -(-20 * rows // (18 // rows * rows)), printed
        assert all(b - a <= 20 for a, b in pairwise(headings))


def test_all_metrics_of_the_machine_have_a_column() -> None:
    assert [name for name in COUNTER_BY_NAME if not is_known_number(name)] == []


# --- episodes and the summary


def drop(start_s: float, end_s: float | None, depth_hz: float, cause: str) -> Episode:
    end_ns = None if end_s is None else round(end_s * S)
    results = {"why": "so", "busy_hz": 3.5e9 - depth_hz, "ceiling_hz": 3.5e9}
    return Episode("turbo-drop", [0], round(start_s * S), end_ns, depth_hz, cause, results)


def test_the_summary_counts_causes_and_names_the_most_costly() -> None:
    session, _ = observe(Machine())
    tally = EpisodeTally()
    for episode in (
        drop(1, 2, 3e8, "thermal"),
        drop(3, 4, 7e8, "power-pl1"),
        drop(4, 4.1, 9e8, "thermal"),  # this episode is deeper, but so short that it costs less
        drop(5.5, None, 5e8, "thermal"),
        Episode("offline", [1], S, 2 * S, cause="hotplug"),
        Episode("steal", [1], S, 2 * S, 0.5, "hypervisor"),
    ):
        tally.add(episode, 6 * S)
    counted = {
        "turbo-drop": {"thermal": 3, "power-pl1": 1},
        "offline": {"hotplug": 1},
        "steal": {"hypervisor": 1},
    }
    assert tally.counts_by_cause == counted
    lines = stat_text.ending_lines(session, tally, summary_line(session, tally.counts_by_cause))
    assert "turbo-drop: 4 (thermal 3, power-pl1 1)" in lines
    # no count is printed for a single episode
    (worst,) = [line for line in lines if line.startswith("worst")]
    assert worst.startswith("worst turbo-drop: Power limit PL1 kept CPU 0 at 2.80 of 3.50 GHz")


@pytest.mark.parametrize(("off_share", "turbo"), [(0.5, "on"), (0.51, "off"), (np.nan, None)])
def test_turbo_is_off_if_it_was_off_for_most_of_the_time(
    off_share: float, turbo: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = observe(Machine())
    means = {"turbo_off": np.array([off_share, 0.0]), "power_limit_w": np.array([100.04, 60.0])}
    monkeypatch.setattr(session.counters, "rates", lambda _, key: means.get(key))
    means["turbo_off"] = means["turbo_off"][:1] if np.isnan(off_share) else means["turbo_off"]
    state = machine_state(session)
    assert state.get("turbo") == turbo
    assert state["power_limit_w"] == 160.0, "of all packages, to four digits"


# --- the first sentence about a command


def command_record(used_s: float, wall_s: float, **job: Any) -> dict[str, Any]:
    report = {"cpus": [1], "seen_s": used_s, "waited_s": None} | job
    return {
        "run": {"user_s": used_s, "sys_s": 0.0, "wall_s": wall_s},
        "job": report if job else None,
        "cpus": [{}] * 16,
    }


@pytest.mark.parametrize(("command", "line", "sentence"), [
    ("job", command_record(3.0, 8.65, waited_s=5.65),
     "job took 8.65 s: it ran 3.00 s on CPU 1 and waited 5.65 s for a CPU."),
    # The kernel's waiting time includes that for a quota, for which no task is to blame.
    ("job", command_record(3.0, 8.65, waited_s=5.65, quota_s=4.6),
     ("job took 8.65 s: it ran 3.00 s on CPU 1 and waited 4.60 s for its CPU quota and 1.05 s for "
      "a CPU.")),
    ("job", command_record(3.0, 8.65, waited_s=5.65, quota_s=5.6),
     "job took 8.65 s: it ran 3.00 s on CPU 1 and waited 5.60 s for its CPU quota."),
    ("make", command_record(816.6, 84.21, cpus=[0, 1]),
     "make took 84.21 s and kept 9.7 of 16 CPUs busy."),
    ("make", command_record(816.6, 84.21, waited_s=13.2),
     "make took 84.21 s and kept 9.7 of 16 CPUs busy; its tasks waited 13.20 s for a CPU."),
    ("job", command_record(3.0, 8.65), "job took 8.65 s: it ran 3.00 s."),
    # Each limit at its exact value, then just beyond it.
    ("job", command_record(0.09, 0.1), "job took 0.10 s: it ran 90 ms."),
    ("job", command_record(3.0, 10.0, waited_s=0.1),
     "job took 10.00 s: it ran 3.00 s on CPU 1 and waited 0.10 s for a CPU."),
    ("job", command_record(3.0, 10.0, waited_s=0.099),
     "job took 10.00 s: it ran 3.00 s on CPU 1."),
    ("job", command_record(3.0, 10.0, waited_s=0.1, quota_s=0.1),
     "job took 10.00 s: it ran 3.00 s on CPU 1 and waited 0.10 s for its CPU quota."),
    ("job", command_record(3.0, 10.0, waited_s=0.099, quota_s=0.099),
     "job took 10.00 s: it ran 3.00 s on CPU 1."),
    ("job", command_record(2.0, 8.0, waited_s=1.0, seen_s=1.8),
     "job took 8.00 s: it ran 2.00 s on CPU 1 and waited 1.00 s for a CPU."),
    ("job", command_record(2.0, 8.0, waited_s=1.0, seen_s=1.79),
     "job took 8.00 s: it ran 2.00 s on CPU 1 and waited at least 1.00 s for a CPU."),
    ("job", command_record(10.5, 10.0), "job took 10.00 s: it ran 10.50 s."),
    ("job", command_record(10.6, 10.0), "job took 10.00 s and kept 1.1 of 16 CPUs busy."),
    ("job", command_record(40.0, 10.0) | {"busy": {"cpus": 3, "one_s": 1.0}},
     "job took 10.00 s and kept 4.0 of 16 CPUs busy. For 1.0 s, only one CPU was busy."),
    ("job", command_record(40.0, 10.0) | {"busy": {"cpus": 3, "one_s": 0.99}},
     "job took 10.00 s and kept 4.0 of 16 CPUs busy."),
    ("job", command_record(40.0, 10.0) | {"busy": {"cpus": 2, "one_s": 1.0}},
     "job took 10.00 s and kept 4.0 of 16 CPUs busy."),
    ("\x1b[2Jx", command_record(1.0, 1.0), "?[2Jx took 1.00 s: it ran 1.00 s."),
    ("true", command_record(0.002, 0.003), "true took 3 ms."),
])  # fmt: skip
def test_the_first_sentence_names_the_largest_loss(
    command: str, line: dict[str, Any], sentence: str
) -> None:
    assert headline(command, line) == sentence


def test_a_late_end_makes_the_time_an_upper_bound() -> None:
    """perftop was stopped when the command ended."""
    stopped = command_record(1.0, 7.5)
    stopped["run"]["late_s"] = 4.5
    assert headline("sleep", stopped).startswith("sleep took at most 7.50 s: it ran")


# --- lines about a command

RUN = {
    "pid": 1, "status": 0, "wall_s": 84.21, "user_s": 771.4, "sys_s": 45.2, "slack_s": 0.004,
    "missed": [], "switches": 120_000, "page_faults": 4_100_000, "disk_faults": 12,
    "peak_bytes": 612_000_000,
}  # fmt: skip
JOB = {"cpus": [0, 1], "seen_s": 810.0, "waited_s": 13.2, "disk_s": 2.1}
BUSY = {"cpus": 16, "all_s": 42.0, "one_s": 21.8, "between_s": 20.4, "none_s": 0.01, "alone": "ld"}
OTHER_TASKS = {"cpus": 0.3, "most": {"pid": 812, "comm": "chrome", "ran_s": 21.0, "cpus": [3]}}
TOTALS = {"instructions": 3.12e12, "cycles": 2.78e12, "below_ceiling": 0.12}


def example(**more: Any) -> tuple[Session, dict[str, Any]]:
    session, _ = observe(Machine(cores=2))
    session.command_run.start = wire.Note("run-start", 0, data={"pid": 1, "argv": ["make", "-j16"]})
    line = summary_line(session, {}) | {"run": RUN, "job": JOB, "busy": BUSY, "elapsed_s": 84.2}
    line |= {"others": OTHER_TASKS, "totals": TOTALS, "energy_j": 6400.0, "own_cpu_s": 0.34}
    line["causes"] = [{"kind": "turbo-drop", "cause": "power-pl2"}]
    return session, line | more


def report_line(name: str, **more: Any) -> str:
    session, line = example(**more)
    matching_texts = [text for text in command_lines(session, line) if text.startswith(name)]
    return matching_texts[0].removeprefix(name).strip() if matching_texts else ""


NO_DISK, NO_COUNTS = {"disk_s": None}, dict.fromkeys(
    ("switches", "page_faults", "disk_faults", "peak_bytes"))  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "text"), [
    ("command", {}, "make -j16"),
    ("exit status 0", {}, "user 771.400 s   system 45.200 s   measured for 0.004 s longer"),
    ("CPUs busy", {}, "all 16 for 42.0 s, only 1 for 21.8 s (ld), 2 to 15 for 20.4 s"),
    ("CPUs busy", {"busy": BUSY | {"cpus": 3, "one_s": 0.0}}, "all 3 for 42.0 s, 2 for 20.4 s"),
    ("CPUs busy", {"busy": BUSY | {"cpus": 4, "one_s": 0.64}},
     "all 4 for 42.0 s, only 1 for 0.6 s (ld), 2 to 3 for 20.4 s"),
    ("CPUs busy", {"busy": BUSY | {"one_s": 0.63, "alone": None}},
     "all 16 for 42.0 s, 2 to 15 for 20.4 s"),
    ("CPUs", {"busy": None}, ""),
    ("clock", {}, "3.00 of 3.20 GHz, below its ceiling 12 % of the time (power limit PL2)"),
    ("clock", {"totals": {"below_ceiling": 0.01}, "causes": []},
     "3.00 of 3.20 GHz, below its ceiling 1 % of the time"),
    ("clock", {"totals": {"below_ceiling": 0.0099}}, "3.00 of 3.20 GHz"),
    ("clock", {"causes": [{"kind": "neighbour", "cause": "sibling"},
                          {"kind": "throttle", "cause": "thermal"}]},
     "3.00 of 3.20 GHz, below its ceiling 12 % of the time (thermal)"),
    ("work", {}, "IPC 1.25, 10.0 % in the kernel, both threads of a core 50 %"),
    ("work", {"cores": [{"smt": {"both": {"mean": 0.01}}}]},
     "IPC 1.25, 10.0 % in the kernel, both threads of a core 1 %"),
    ("work", {"cores": [{"smt": {"both": {"mean": 0.0099}}}]}, "IPC 1.25, 10.0 % in the kernel"),
    ("waits", {}, "13.20 s for a CPU and 2.10 s for the disk, all tasks together"),
    ("waits", {"job": None}, ""),
    ("waits", {"job": JOB | NO_DISK}, "13.20 s for a CPU, all tasks together"),
    ("waits", {"job": JOB | NO_DISK | {"longest_wait_s": 1.09}},
     "13.20 s for a CPU (once 1.09 s or longer), all tasks together"),
    ("waits", {"job": JOB | NO_DISK | {"stopped_s": 3.0, "slept_s": 0.01}},
     "13.20 s for a CPU, stopped 3.00 s, all tasks together"),
    ("waits", {"job": JOB | NO_DISK | {"waited_s": None, "slept_s": 2.0}},
     "slept 2.00 s, all tasks together"),
    ("waits", {"job": JOB | NO_DISK | {"waited_s": None, "slept_s": 0.1}},
     "slept 0.10 s, all tasks together"),
    ("waits", {"job": JOB | NO_DISK | {"waited_s": None, "slept_s": 0.099}}, ""),
    ("waits", {"job": JOB | NO_DISK | {"quota_s": 0.1, "longest_wait_s": 0.1}},
     ("0.10 s for its CPU quota and 13.10 s for a CPU (once 0.10 s or longer), all tasks "
      "together")),
    ("waits", {"job": JOB | NO_DISK | {"quota_s": 0.09, "longest_wait_s": 0.09}},
     "13.11 s for a CPU, all tasks together"),
    ("waits", {"job": JOB | NO_DISK | {"seen_s": 734.9}},
     "at least 13.20 s for a CPU, all tasks together"),
    ("waits", {"job": JOB | NO_DISK | {"seen_s": 735.0}},
     "13.20 s for a CPU, all tasks together"),
    ("CPUs 1-3", {"run": RUN | {"missed": [1, 2, 3]}},
     "were off or unreadable at its start or end"),
    ("others", {}, "at least 0.3 CPUs on average; most: chrome[812], 21.0 s on CPU 3"),
    ("others", {"others": None}, ""),
    ("energy", {}, "6.40 kJ, 76.0 W   own cost 0.4 % of one CPU"),
    ("energy", {"energy_j": 1000.0, "energy_dram_j": 421.0, "own_cpu_s": None},
     "1.00 kJ, 11.9 W (memory 5.0 W)"),
    ("energy", {"energy_j": 999.9, "own_cpu_s": None}, "999.9 J, 11.9 W"),
    ("energy", {"energy_j": None}, ""),
    ("used", {}, ("3.12 T instructions in 2.78 T cycles on all CPUs, 120 k switches, "
     "4.1 M page faults (12 from disk), 612.0 MB in its largest process")),
    ("used", {"run": RUN | NO_COUNTS, "totals": {}}, ""),
    ("used", {"run": RUN | NO_COUNTS | {"switches": 1}, "totals": {}}, "1 switch"),
])  # fmt: skip
def test_the_report_on_a_build_has_all_known_values(
    name: str, changes: dict[str, Any], text: str
) -> None:
    assert report_line(name, **changes) == text


def test_after_the_lines_on_a_command_a_brief_summary_ends() -> None:
    session, line = example()
    line["job"] = JOB | line["machine"]
    brief, whole = (
        stat_text.ending_lines(session, EpisodeTally(), line, brief=brief)
        for brief in (True, False)
    )
    assert brief[-1] == command_lines(session, line)[-1]
    assert whole[: len(brief)] == brief
    covered = "job on CPUs 0-1: task records cover 810.00 of its 816.60 s; "
    assert [text for text in whole if text.startswith(covered)] != []


def test_a_list_of_a_jobs_cpus_has_at_most_sixty_characters() -> None:
    session, line = example()
    line["job"] = JOB | line["machine"] | {"cpus": [*range(0, 60, 2)]}
    lines = stat_text.ending_lines(session, EpisodeTally(), line)
    (text,) = [text for text in lines if text.startswith("job on 30 CPUs 0,2,4,")]
    assert ",38,40,…: task records" in text


def test_what_held_a_command_back_is_between_its_phases_and_its_numbers() -> None:
    session, line = example()
    line["job"] = JOB | line["machine"]
    end_command(session, "make")
    session.run.track_losses()
    session.run.times.threads = {(1, 1): TaskTimes("make", run_s=3.0, wait_s=3.0)}
    session.run.times.job_has_waits = True
    waited_s = np.array([3.0, 0.0, 0.0, 0.0])
    losses = LossSums(waited_s, waited_s, {WAIT_CAUSE: waited_s})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.run, "lost_time", lambda: losses)
        lines = stat_text.ending_lines(session, EpisodeTally(), line)
        session.neighbours.watched_job.name = "other"
        other_lines = stat_text.ending_lines(session, EpisodeTally(), line)
    heading = next(i for i, text in enumerate(lines) if "what held it back" in text)
    assert lines[heading + 1].startswith("◐ 50.0 %  make waited for CPU 0")
    command = next(i for i, text in enumerate(lines) if text.startswith("exit status"))
    assert heading < command
    assert other_lines[1] == lines[1], "of the command"
    assert other_lines[3:] == lines[command:], "nothing that is only known of another watched job"


def test_all_outputs_name_the_same_task_for_which_a_command_waited() -> None:
    """`hog` ran where the command waited, `big` longer on its other CPU, and `cron` in an episode
    of a part of the run."""
    session, _ = observe(Machine(cores=2), 40)
    end_command(session, "job", wall_s=3.5, user_s=3.5, sys_s=0.0)
    session.run.track_losses()
    session.run.times.threads = {
        (ROOT, ROOT): TaskTimes("job", 3.0, 0.1, {0: 3.1}, elapsed_s=3.5, active_s=3.1),
        (ROOT, 101): TaskTimes("job", 0.5, 3.0, {1: 3.5}, elapsed_s=3.5, active_s=3.5),
    }
    session.run.times.job_has_waits = True
    session.run.times.tasks = {
        (pid, comm, cpu): TaskTimes(comm, run_s)
        for pid, comm, cpu, run_s in ((7, "hog", 1, 3.0), (8, "big", 0, 5.0))
    }
    who = {"who": [TaskOnCpu(9, "cron", 1)]}
    episode = Episode("neighbour", [1], 0, session.now_ns, 0.9, "scheduler", who)
    session.log.add_ended([episode])
    footprint = session.run.times.job
    footprint.seconds, footprint.waited_s, footprint.pids = {0: 3.0, 1: 0.5}, 3.1, {ROOT}
    waited_s = np.array([0.1, 3.0, 0.0, 0.0])
    losses = LossSums(waited_s, waited_s, {WAIT_CAUSE: waited_s})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.run, "lost_time", lambda: losses)
        line = summary_line(session, {})
        lines = stat_text.ending_lines(session, EpisodeTally(), line)
        (finding,) = report(session).findings
    assert lines[1].endswith(" waited 3.10 s for a CPU, mostly behind hog[7].")
    assert any("waited behind hog[7] on CPU 1" in text for text in lines[2:])
    assert line["job"]["behind"] == [{"pid": 7, "comm": "hog", "ran_s": 3.0}]
    assert finding.details["who"] == "hog[7] on CPU 1"
    assert not any(name in text for text in lines for name in ("big", "cron"))


@pytest.mark.parametrize(("changes", "text"), [
    ({"packages": {"power_dram_w": [7.26]}}, "package 0: 7.3 W for memory"),
    ({"packages": {"power_w": [50.0], "power_limit_w": [65.0], "power_dram_w": [7.26]}},
     "package 0: 50.0 of 65 W and 7.3 W for memory"),
])  # fmt: skip
def test_lines_above_a_table_show_known_numbers(changes: dict[str, Any], text: str) -> None:
    session, interval = observe(Machine(cores=2))
    for name, value in changes.items():
        vars(interval)[name] = value
    assert text in StatTable(session).lines(interval)


def test_the_line_with_the_time_counts_cpus_with_suspect_samples() -> None:
    session, interval = observe(Machine(cores=2))
    for cpu in (0, 3):
        interval = with_suspect_counter(interval, cpu, "cycles")
    assert (
        StatTable(session).lines(interval)[1].endswith("  ~ 2 CPUs with suspect samples, left out")
    )


def test_a_job_without_threads_is_not_said_to_have_run() -> None:
    session, interval = observe(Machine(cores=2))
    session.neighbours.watched_job.name = "lmp"
    activity = cast("Any", SimpleNamespace(run_s=1.0, wait_s=0.1, involuntary_switches=1))
    vars(interval)["watched"] = activity
    assert "job lmp: no running thread found" in StatTable(session).lines(interval)


def test_the_page_shows_these_lines() -> None:
    few = RUN | {"disk_faults": 0, "peak_bytes": None}
    session, line = example(cpus=[{}] * 16, run=few)
    first, gap, *rest = output("command", "make took")
    assert (first, gap) == (headline("make", line), "")
    numbers = re.compile("[0-9.]+")  # clock and work are of another machine
    lines = command_lines(session, line)
    assert [numbers.sub("0", text) for text in rest] == [numbers.sub("0", text) for text in lines]


# --- CPUs and cost of a measured command


def test_only_the_command_counts_if_another_job_is_watched() -> None:
    """With --watch OTHER -- CMD, the CPUs of the job are those of the command, not what OTHER
    did. The command's process exists before its start."""
    machine = Machine(cores=2, changes={"watch": "other"})
    session = Session(machine.hello)
    session.apply(wire.Note("run-start", session.now_ns, data={"pid": ROOT}))
    for seq, (cpu, ms) in enumerate([(0, 1), (1, 501), (1, 1001)], 1):
        other = {"threads": {"7": [7, "other", 3, seq * 500 * MS, 0, 0, 0]}}
        own = {"threads": {str(ROOT): [ROOT, "job", cpu, ms * MS, 0, 0, 0]}}
        session.apply(machine.frame(seq, records={"watched": other, "command": own}))
    assert session.command_footprint is not None
    assert session.command_footprint.seconds == {1: pytest.approx(1.0)}
    session.apply(wire.Note("run-start", session.now_ns, data={"pid": 8}))
    assert session.command_footprint is None


@pytest.mark.parametrize(("watch", "are_known"), [("7", True), ("8", False), ("lmp", False)])
def test_cpus_of_a_watched_command_are_known(watch: str, are_known: bool) -> None:
    machine = Machine(changes={"watch": watch})
    session = Session(machine.hello)
    assert session.command_footprint is None
    session.apply(wire.Note("run-start", 1, data={"pid": 7}))
    for seq in range(1, 4):
        record = {"threads": {"7": [7, "job", 2, seq * 500 * MS, 0, 0, 0]}}
        session.apply(machine.frame(seq, records={"watched": record}))
    footprint = session.command_footprint
    assert (footprint.seconds if footprint else None) == ({2: 0.5} if are_known else None)


@pytest.mark.parametrize("boot", [BOOT_ID.read_text(encoding="ascii").strip(), "another"])
def test_own_cost_includes_perftop_and_a_local_probe(
    boot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = iter([5.0, 5.25])
    monkeypatch.setattr(time, "process_time", lambda: next(spent))
    hello, frames = messages("smt-mix,cpus=2", 20)
    hello = dataclasses.replace(hello, boot_id=boot, source="os")
    session, measurement = Session(hello), Measurement()
    for message in (hello, *frames):
        assert measurement.admit(message)
        session.apply(message)
    line = measured_line(session, measurement, EpisodeTally())
    probe_s = line["probe_cpu_s"]
    assert probe_s > 0
    whole = None if boot == "another" else pytest.approx(probe_s + 0.25)
    assert line.get("own_cpu_s") == whole
    (report,) = [
        text for text in stat_text.ending_lines(session, EpisodeTally(), line) if " cost " in text
    ]
    assert report.startswith("probe" if boot == "another" else "own")


def test_means_that_leave_samples_out_have_the_share_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hello, frames = messages("smt-mix,cpus=2", 20)
    session, measurement = Session(hello), Measurement()
    for message in (hello, *frames):
        assert measurement.admit(message)
        session.apply(message)
    line = measured_line(session, measurement, EpisodeTally())

    def notes() -> list[str]:
        return [text for text in stat_text.ending_lines(session, EpisodeTally(), line)
                if text.startswith("means cover")]  # fmt: skip

    assert notes() == []
    shares = {"busy_hz": 0.949, "ipc": 0.975, "license": 0.5}
    monkeypatch.setattr(Span, "read_shares", lambda _: shares)
    assert notes() == ["means cover at least 95 % of the samples of each CPU: clock, IPC"]


def test_other_tasks_are_averaged_over_the_time_of_their_records() -> None:
    """Tasks are sampled once a second: records may cover only the first 0.7 s of a run of 1.2 s."""
    times = RunTimes([0, 1])
    footprint = SimpleNamespace(pids={5})
    session: Any = SimpleNamespace(run=SimpleNamespace(times=times), command_footprint=footprint)
    assert _other_tasks(session) is None
    look = TaskSnapshot.from_records({"tasks": {"0": [7, "hog", 1.0], "1": [5, "job", 1.0]}})
    assert look is not None
    times.add_snapshot(look, 0, 700 * MS)
    result = _other_tasks(session)
    assert result is not None
    assert result["cpus"] == pytest.approx(1.0)
    assert result["most"]["ran_s"] == pytest.approx(0.7)


# --- the time use of a command: phases, the bar and the table


def times(**run_s: float) -> RunTimes:
    """Times of one thread of each program, each observed for 100 s."""
    result = RunTimes([0, 1])
    result.threads = {
        (at, at): TaskTimes(name, s, elapsed_s=100.0, active_s=s)
        for at, (name, s) in enumerate(run_s.items(), 1)
    }
    return result


def moments_at(*seconds_and_times: tuple[int, RunTimes]) -> JobMoments:
    result = JobMoments()
    for second, at in seconds_and_times:
        result.add_moment(second * S, at)
    return result


def found_phases(result: JobMoments, end: JobMoment) -> list[tuple[str, float, float]]:
    spans = phases(result, JobMoment(0, None, times()), end)
    return [(span.label, span.start_ns / S, span.end_ns / S) for span in spans]


def test_phases_begin_when_another_program_runs_most() -> None:
    result = moments_at((0, times()), (1, times(cc1=0.9)), (2, times(cc1=1.8)), (3, times(cc1=1.8)),
                   (4, times(cc1=1.8, ld=0.7)), (5, times(cc1=1.9, ld=1.5)))  # fmt: skip
    end = JobMoment(6 * S, None, times(cc1=1.9, ld=2.4))
    assert found_phases(result, end) == [("cc1", 0, 3), ("ld", 3, 6)]


def test_marks_divide_a_run_regardless_of_its_programs() -> None:
    result = moments_at((1, times(cc1=0.9)), (3, times(cc1=1.0, ld=1.5)))
    result.add_mark(-S // 2, "before the run", times())
    result.add_mark(0, "run: make", times())
    result.add_mark(2 * S, "link", times(cc1=1.0, ld=0.5, perftop=2.0))
    result.add_mark(4 * S, "run ended: status 0", times(cc1=1.0, ld=2.5, perftop=2.0))
    spans = phases(
        result, JobMoment(-S, None, times()), JobMoment(9 * S, None, times(cc1=8.0, ld=9.0))
    )
    assert [(span.label, span.elapsed_s, span.largest_program()) for span in spans] == [
        ("before", 2.0, ("cc1", 1.0)), ("link", 2.0, ("ld", 2.0)),
    ]  # fmt: skip


@pytest.mark.parametrize(("seconds", "joined"), [
    ((1, 4, 4, 4, 4, 4, 4), (5, 4, 4, 4, 4, 4)), ((4, 4, 4, 4, 4, 4, 1), (4, 4, 4, 4, 4, 5)),
    ((4, 4, 1, 3, 4, 4, 4), (4, 4, 4, 4, 4, 4)), ((4, 3, 1, 4, 4, 4, 4), (4, 4, 4, 4, 4, 4)),
    ((5, 5, 1, 5, 4, 4, 4), (5, 6, 5, 4, 4, 4)), ((9, 8, 1, 2, 7, 6, 9, 9), (9, 8, 10, 6, 9, 9)),
])  # fmt: skip
def test_the_shortest_phase_is_joined_with_its_shorter_neighbour(
    seconds: tuple[int, ...], joined: tuple[int, ...]
) -> None:
    result, run_s = JobMoments(), dict.fromkeys("abcdefgh"[: len(seconds)], 0.0)
    for name, length in zip(run_s, seconds, strict=True):
        run_s[name] += length
        result.add_moment(round(sum(run_s.values())) * S, times(**run_s))
    spans = found_phases(result, result.periodic[-1])
    assert tuple(end - start for _, start, end in spans) == joined


@pytest.mark.parametrize(("mark_ns", "labels"), [
    (S // 5, ["before", "link"]), (S // 5 - 1, ["link"]),
])  # fmt: skip
def test_a_first_mark_just_after_the_start_names_the_first_phase(
    mark_ns: int, labels: list[str]
) -> None:
    result = JobMoments()
    result.add_mark(mark_ns, "link", times())
    assert [label for label, *_ in found_phases(result, JobMoment(S, None, times()))] == labels


def test_moments_of_a_long_run_are_few_and_evenly_spread() -> None:
    result = JobMoments()
    for second in range(5000):
        result.add_moment(second * S, times())
        assert second != 128 or len(result.periodic) == 65
    seconds = [moment.time_ns // S for moment in result.periodic]
    assert len(seconds) == 84
    gaps = {then - one for one, then in itertools.pairwise(seconds)}
    assert max(gaps) <= 1.2 * min(gaps)


def test_of_many_marks_the_first_64_begin_phases() -> None:
    result = JobMoments()
    for second in range(100):
        result.add_mark(second * S, f"mark {second}", times())
    assert [mark.label for mark in result.marks] == [f"mark {n}" for n in range(64)]


def phase(label: str, seconds: float, **parts: float) -> RunPhase:
    result = RunTimes([0])
    run_s, wait_s = parts.get("run", 0.0), parts.get("wait", 0.0)
    by_state = {"S": parts.get("sleep", 0.0), "T": parts.get("stop", 0.0)}
    elapsed_s = run_s + wait_s + sum(by_state.values())
    result.threads = {
        (1, 1): TaskTimes(label, run_s, wait_s, {0: run_s}, elapsed_s, run_s + wait_s, by_state)
    }
    return RunPhase(0, round(seconds * S), result, label)


def test_each_phase_is_drawn_to_scale_and_split() -> None:
    text = time_use_lines(
        [phase("build", 3.0, run=2.0, wait=1.0), phase("test", 1.0, run=0.25, sleep=0.75)],
        unicode=True,
    )
    assert text[0].startswith("│ build 3.0 s  ")
    assert text[0][58:] == "│ test 1.0 s"
    short = [phase("before", 0.5, run=0.5), phase("solve", 9.5, run=9.5)]
    assert time_use_lines(short, unicode=True)[0].startswith("│bef│ solve 9.5 s")
    name = "solve the coarse system"
    lines = time_use_lines([phase("a", 1.0, run=1.0), phase(name, 1.0, run=1.0)], unicode=True)
    assert f"│ {name} 1.0 s" in lines[0]
    assert any(line.startswith(f"{name}  ") for line in lines[3:])
    assert max(map(len, lines)) <= 78
    assert any(line.endswith("most CPU time") for line in lines)
    assert text[1] == "█" * 39 + "▓" * 19 + "█" * 5 + "·" * 15
    assert text[2] == "shares:   ██ ran   ▓▓ waited for a CPU   ·· all slept"
    rows = [line.split() for line in text[4:]]
    assert rows[0][:5] == ["phase", "length", "ran", "waited", "CPUs"]
    assert rows[1] == ["build", "3.0", "s", "2.0", "s", "1.0", "s", "0.7", "build", "2.0", "s"]
    assert rows[3] == ["all", "4.0", "s", "2.2", "s", "1.0", "s", "0.6"]


def test_the_sleep_of_a_parent_is_not_drawn_while_its_child_runs() -> None:
    """A CPU works for the whole 3 s while a shell waits; then two CPUs work, and both sleep."""
    busy, both = phase("one", 3.0, run=3.0, sleep=3.0), phase("two", 3.0, run=6.0, sleep=3.0)
    idle = phase("calm", 3.0, run=0.6, sleep=5.4)
    text = time_use_lines([busy, both, idle], unicode=True)
    assert text[1] == "█" * 57 + "·" * 21
    assert [line.split()[5] for line in text[5:7]] == ["1.0", "2.0"]


def test_the_parts_of_a_phase_add_up_to_its_task_seconds() -> None:
    """All threads of this job live as long as the job."""
    with Recording(SHIPPED_DIRECTORY / "bad-run.perftop") as recording:
        session = Session(recording.hello)
        session.run.track_losses()
        session_of(session, [*recording.messages()])
    (whole,) = session.run.phases()
    parts = whole.times.job_time()
    assert parts is not None
    task_s = len(whole.times.threads) * whole.elapsed_s
    assert 0.95 * task_s < sum(parts) <= task_s
    assert parts.waited_s > 5.0


def test_all_cells_have_the_same_meaning_in_ascii() -> None:
    lines = time_use_lines([phase("job", 2.0, run=1.0, wait=0.5, stop=0.5)], unicode=False)
    assert lines[1] == "#" * 39 + "w" * 19 + "x" * 20
    assert all(line.isascii() for line in lines)


def test_the_legend_names_exactly_the_signs_in_the_bar() -> None:
    _, bar, legend = time_use_lines([phase("job", 0.5, run=0.45, wait=0.02)], unicode=True)
    assert (bar, legend) == ("█" * 75 + "▓" * 3, "shares:   ██ ran   ▓▓ waited for a CPU")
    _, bar, legend = time_use_lines([phase("job", 50.0, run=50.0, wait=0.06)], unicode=True)
    assert (bar, legend) == ("█" * 78, "shares:   ██ ran")


@pytest.mark.parametrize(("used_s", "words"), [
    (math.nan, "all slept"), (1.11, "all slept"), (1.12, "slept or not seen"),
])  # fmt: skip
def test_children_that_were_not_seen_did_not_sleep(used_s: float, words: str) -> None:
    _, bar, legend = time_use_lines(
        [phase("sh", 2.0, run=1.0, sleep=1.0)], unicode=True, used_s=used_s
    )
    assert (bar, legend) == ("█" * 39 + "·" * 39, f"shares:   ██ ran   ·· {words}")


@pytest.mark.parametrize("parts", [{}, {"sleep": 9.0}])
def test_a_command_that_only_slept_has_no_bar(parts: dict[str, float]) -> None:
    assert time_use_lines([phase("sleep", 9.0, **parts)], unicode=True) == []
    marked = time_use_lines([phase("a", 9.0, **parts), phase("b", 9.0, **parts)], unicode=True)
    assert bool(marked) == ("sleep" in parts), "the user asked for the lengths of these phases"


def test_a_phase_without_times_is_as_long_as_any_other() -> None:
    _, bar, *_ = time_use_lines([phase("a", 9.0), phase("b", 9.0, run=9.0)], unicode=True)
    assert bar == "·" * 39 + "█" * 39


share = st.floats(0.0, 1e4, allow_nan=False)


@given(st.lists(st.tuples(st.floats(0.01, 1e5), share, share, share), min_size=1, max_size=40))
def test_a_bar_always_has_its_full_width(spans: list[tuple[float, float, float, float]]) -> None:
    text = time_use_lines(
        [phase(str(at), s, run=run, wait=wait, sleep=sleep)
         for at, (s, run, wait, sleep) in enumerate(spans)],
        unicode=True,
    )  # fmt: skip
    assert not text or len(text[1]) == WIDTH >= len(text[0])
