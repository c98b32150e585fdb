"""Tasks that slow down others, on simulated CPUs."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from typing import Any, cast

import numpy as np
import pytest
import synth
from fakes import CpuLoad, Machine
from nightly import cases_by_day
from phases import Phases, episodes
from rate_streams import spans as spans_of
from sessions import session_of

from perfprobe import wire
from perftop.detect.siblings import (
    LOSS_START,
    MAX_ALONE_OVERLAP,
    MIN_TOGETHER_OVERLAP,
    SiblingHistory,
    UndisturbedPrograms,
    _SiblingWork,
)
from perftop.detect.watched_job import _do_threads_compete
from perftop.model.confidence import CrowdedCpu, Hypervisor, TaskOnCpu, ValueWithMax
from perftop.model.kinds import Episode
from perftop.model.tasks import RunningTasks, ThreadActivity
from perftop.session.session import Session

LMP, STREAM = [4000, "lmp", 0.95], [4001, "stream", 0.95]
SAMPLE_NS = synth.SAMPLE_NS
NAN = float("nan")
REST = CpuLoad(util=0.01, hz=3.0e9, system=0.0)


class Play:
    """A session of a machine of 2 cores: CPUs 0 and 2 are siblings, and so are 1 and 3. The ceiling
    is the usual clock, because a lower clock would be an episode, which takes time in each test."""

    def __init__(self, cores: int = 2, ceiling_hz: float = REST.hz, **more: Any) -> None:
        self.machine = Machine(cores=cores, ceiling_hz=ceiling_hz, **more)
        self.machine.loads = dict.fromkeys(range(2 * cores), REST)
        self.session = Session(self.machine.hello)
        self.seq = 0

    def loads(self, **cpus: CpuLoad) -> None:
        self.machine.loads |= {int(cpu[1:]): does for cpu, does in cpus.items()}

    def run(self, samples: int, *, frames_per_record: int = 10, **records: Any) -> None:
        """Plays samples. Every tenth frame has records, as from a probe."""
        seqs = range(self.seq, self.seq + samples)
        records_of = {seq: {} if seq % frames_per_record else records for seq in seqs}
        session_of(self.session, [self.machine.frame(s, records=r) for s, r in records_of.items()])
        self.seq += samples

    @property
    def running(self) -> list[Episode]:
        return [e for e in self.session.detector.running if e.kind == "neighbour"]

    @property
    def ended(self) -> list[Episode]:
        return [e for e in self.session.ended if e.kind == "neighbour"]


def loss_spans(play: Play) -> list[tuple[float, float | None]]:
    """Returns the start and the end of each loss, in samples."""
    return spans_of([*play.ended, *play.running])


ALONE = {"c0": CpuLoad(1.0, ipc=2.0), "c2": REST}
TOGETHER = {"c0": CpuLoad(1.0, ipc=1.5), "c2": CpuLoad(1.0, ipc=0.4)}


def repeat_sibling_phases(play: Play, times: int, task: list[object] = LMP) -> None:
    """Repeats phases in which the sibling starts and stops."""
    for _ in range(times):
        for does, more in ((ALONE, {}), (TOGETHER, {"2": STREAM}), (ALONE, {})):
            play.loads(**does)
            play.run(20, tasks={"0": task} | more)


def play_with_sibling(
    samples: int = 30,
    *,
    samples_alone: int = 41,
    later_task: list[object] = LMP,
    **play_options: Any,
) -> Play:
    """CPU 0 runs lmp alone for `samples_alone`, then `later_task` for `samples` while stream runs
    on its sibling."""
    play = Play(**play_options)
    play.loads(**ALONE)
    play.run(samples_alone, tasks={"0": LMP})
    play.loads(**TOGETHER)
    play.run(samples, tasks={"0": later_task, "2": STREAM})
    return play


def test_a_sibling_that_takes_a_quarter_is_named() -> None:
    play = play_with_sibling()
    (result,) = play.running
    assert (result.cause, result.cpus, result.confidence) == ("sibling", [0], "inferred")
    assert result.start_ns == 40 * SAMPLE_NS
    assert result.depth == pytest.approx(0.25, abs=0.01)
    assert result.evidence["ipc_alone"] == pytest.approx(2.0, abs=0.01)
    assert result.evidence["ipc"] == pytest.approx(1.5, abs=0.01)
    assert result.evidence["who"] == [TaskOnCpu(4001, "stream", 2)]
    play.loads(**ALONE)
    play.run(10, tasks={"0": LMP})
    assert play.running == []
    assert play.ended[0].end_ns == 70 * SAMPLE_NS


@pytest.mark.parametrize(("ipc", "lasts"), [(1.88, True), (1.92, False)])
def test_a_loss_to_a_sibling_continues_above_a_lower_limit(ipc: float, *, lasts: bool) -> None:
    play = play_with_sibling()
    play.loads(c0=CpuLoad(1.0, ipc=ipc))
    play.run(20, tasks={"0": LMP, "2": STREAM})
    assert bool(play.running) == lasts


@pytest.mark.parametrize("next_task", [None, [4000, "other", 0.95], [4002, "lmp", 0.95]])
def test_the_ipc_alone_of_a_task_is_not_used_for_the_next_one(next_task: list[object]) -> None:
    """The task ends, executes another program, or its CPU runs another process."""
    play = Play()
    play.loads(**ALONE)
    play.run(21, tasks={"0": LMP})
    siblings = play.session.neighbours.siblings
    assert siblings.ipc_alone()[0] == pytest.approx(2.0, abs=0.01)
    play.loads(c0=CpuLoad(1.0, ipc=1.0) if next_task else REST)
    play.run(1, frames_per_record=1, tasks={"0": next_task} if next_task else {})
    assert isnan(siblings.ipc_alone()[0])
    play.run(19, tasks={"0": next_task} if next_task else {})
    alone = siblings.ipc_alone()[0]
    assert alone == pytest.approx(1.0, abs=0.01) if next_task else isnan(alone)


def test_a_loss_to_a_sibling_is_measured_after_three_starts_and_stops() -> None:
    play = Play()
    repeat_sibling_phases(play, 4)
    repeat_sibling_phases(play, 1, [4002, "other", 0.95])
    results = [(e.confidence, e.evidence["changes_with_sibling"]) for e in play.ended]
    assert results == [
        ("inferred", ValueWithMax(2, 2)), ("inferred", ValueWithMax(4, 4)),
        ("measured", ValueWithMax(6, 6)), ("measured", ValueWithMax(8, 8)),
        ("inferred", ValueWithMax(2, 2)),
    ]  # fmt: skip


class SlotMachine(Machine):
    """Counts the slots of CPU 0 that its sibling gets, as the share `given` of its cycles."""

    given = 0.0

    def _hello(self, counters: list[wire.Counter]) -> wire.Hello:
        return super()._hello([*counters, synth.counter("smt_contention")])

    def _counters(self, cpu: int) -> dict[str, int | None]:
        given = round(self.given * self._sums[2]["cycles"]) if cpu == 0 else 0
        return {**super()._counters(cpu), "smt_contention": given}


@pytest.mark.parametrize(("given", "confidence"), [(0.13, "measured"), (0.12, "inferred")])
def test_a_loss_is_measured_if_slots_given_to_the_sibling_explain_half_of_it(
    given: float, confidence: str
) -> None:
    play = Play()
    play.machine = SlotMachine(cores=2, ceiling_hz=REST.hz, loads=play.machine.loads)
    play.machine.given = given
    play.session = Session(play.machine.hello)
    play.loads(**ALONE)
    play.run(41, tasks={"0": LMP})
    play.loads(**TOGETHER)
    play.run(30, tasks={"0": LMP, "2": STREAM})
    (result,) = play.running
    assert result.depth == pytest.approx(0.25, abs=0.01)
    assert result.confidence == confidence
    slots = result.evidence["slots_to_sibling"]
    assert slots == round(slots, 3) == pytest.approx(given, abs=0.002)


def test_the_task_on_the_first_cpu_is_named_for_its_sibling() -> None:
    play = Play()
    play.loads(c2=CpuLoad(1.0, ipc=2.0))
    play.run(41, tasks={"2": LMP})
    play.loads(c2=CpuLoad(1.0, ipc=1.5), c0=CpuLoad(1.0, ipc=0.4))
    play.run(30, tasks={"2": LMP, "0": STREAM})
    (result,) = play.running
    assert (result.cpus, result.evidence["who"]) == ([2], [TaskOnCpu(4001, "stream", 0)])


def test_the_cpu_with_the_shortest_history_decides_for_all_cpus_of_a_loss() -> None:
    play, tasks = Play(), {"0": LMP, "1": LMP}
    play.loads(c1=CpuLoad(1.0, ipc=2.0), c3=REST)
    for _ in range(3):
        for does, more in ((ALONE, {}), (TOGETHER, {"2": STREAM}), (ALONE, {})):
            play.loads(**does)
            play.run(20, tasks=tasks | more)
    play.loads(**TOGETHER, c1=CpuLoad(1.0, ipc=1.5), c3=CpuLoad(1.0, ipc=0.4))
    play.run(20, tasks=tasks | {"2": STREAM, "3": STREAM})
    (result,) = play.running
    assert (result.cpus, result.confidence) == ([0, 1], "inferred")
    assert result.evidence["changes_with_sibling"] == ValueWithMax(1, 1)


def test_a_core_of_one_thread_has_no_sibling() -> None:
    play = Play(threads=1)
    play.loads(c0=CpuLoad(1.0, ipc=2.0))
    play.run(21, tasks={"0": LMP})
    assert np.isnan(play.session.neighbours.siblings.ipc_alone()).all()


def test_a_sibling_that_starts_within_two_samples_is_blamed() -> None:
    """The start changes the IPC in two steps of more than a tenth."""
    play = Play()
    play.loads(**ALONE)
    play.run(41, tasks={"0": LMP})
    play.loads(c0=CpuLoad(1.0, ipc=1.7), c2=CpuLoad(0.3, ipc=0.4))
    play.run(2)
    play.loads(**TOGETHER)
    play.run(30, tasks={"0": LMP, "2": STREAM})
    (result,) = play.running
    assert (result.cause, result.cpus) == ("sibling", [0])
    assert result.evidence["changes_with_sibling"] == ValueWithMax(1, 1)


def test_a_sibling_is_blamed_after_a_phase_change_only_if_it_returns() -> None:
    play = Play()
    for ipc, samples in ((1.0, 50), (2.0, 400)):
        play.loads(c0=CpuLoad(1.0, ipc=ipc), c2=REST)
        play.run(samples, tasks={"0": LMP})
    play.loads(**TOGETHER)
    play.run(30, tasks={"0": LMP, "2": STREAM})
    assert play.running == []
    repeat_sibling_phases(play, 1)
    (result,) = play.ended
    assert (result.cause, result.confidence) == ("sibling", "inferred")


@pytest.mark.parametrize(("share", "count"), [(0.45, 0), (0.95, 1)])
def test_a_task_that_may_have_run_before_the_loss_is_not_a_victim(share: float, count: int) -> None:
    """The loss begins in the middle of the interval that the record covers."""
    assert (
        len(play_with_sibling(14, samples_alone=46, later_task=[4000, "lmp", share]).running)
        == count
    )


def test_each_cpu_has_its_own_share_of_a_running_episode() -> None:
    play = Play()
    play.loads(**ALONE, c1=CpuLoad(1.0, ipc=2.0), c3=REST)
    play.run(41, tasks={"0": LMP, "1": LMP})
    play.loads(**TOGETHER)
    play.run(20, tasks={"0": LMP, "1": LMP, "2": STREAM})
    (first,) = play.running
    share = play.session.neighbours.share
    assert share(first, 0) == pytest.approx(0.25, abs=0.01)
    assert [share(first, cpu) for cpu in (1, 3, 99)] == [None] * 3
    play.loads(c1=CpuLoad(1.0, ipc=1.0), c3=CpuLoad(1.0, ipc=0.4))
    play.run(20, tasks={"0": LMP, "1": LMP, "2": STREAM, "3": STREAM})
    first, second = play.running
    assert (first.cpus, second.cpus) == ([0], [1])
    assert share(first, 0) == pytest.approx(0.25, abs=0.01)
    assert share(second, 1) == pytest.approx(0.5, abs=0.01)


def test_without_tasks_a_loss_needs_a_long_baseline_and_is_inferred() -> None:
    for calm, count in ((50, 0), (120, 1)):
        play = Play()
        play.loads(**ALONE)
        play.run(calm)
        play.loads(**TOGETHER)
        play.run(30)
        assert len(play.running) == count
        assert all(e.confidence == "inferred" and "who" not in e.evidence for e in play.running)


def test_a_loss_is_inferred_if_its_baseline_is_a_minute_old() -> None:
    play, message = Play(), []
    repeat_sibling_phases(play, 4)
    play.loads(**TOGETHER)
    for samples in (600, 1):
        play.run(samples, tasks={"0": LMP, "2": STREAM})
        message.append((play.running[0].confidence, play.running[0].evidence.get("since_alone_s")))
    assert message == [("measured", None), ("inferred", 60)]


@pytest.mark.parametrize(("watch", "util", "steal", "count"), [
    (None, 0.7, 0.051, 1), (None, 0.7, 0.049, 0), (None, 0.44, 0.07, 1), (None, 0.42, 0.07, 0),
    ("lmp", 0.05, 0.06, 1), ("lmp", 0.03, 0.06, 0),  # a tenth of the time is enough for a job
])  # fmt: skip
def test_steal_is_a_loss_of_cpus_with_enough_work(
    watch: str | None, util: float, steal: float, count: int
) -> None:
    play = Play(changes={"watch": watch})
    play.loads(c0=CpuLoad(util, steal=steal, system=0.0))
    play_watched_job(play, 20, util, 0.0)
    assert [e.cpus for e in play.running] == [[0]] * count


@pytest.mark.parametrize(("steal", "lasts"), [(0.021, True), (0.019, False)])
def test_steal_continues_above_a_lower_limit(steal: float, *, lasts: bool) -> None:
    play = Play()
    for share in (0.1, steal):
        play.loads(c0=CpuLoad(0.7, steal=share))
        play.run(20)
    assert loss_spans(play) == [(0, None if lasts else 19)]


@pytest.mark.parametrize(("samples", "count"), [(4, 1), (3, 0)])
def test_steal_of_three_ticks_is_reported(samples: int, count: int) -> None:
    """A sample has 9 ms."""
    play = Play()
    play.loads(c0=CpuLoad(0.7, steal=0.09))
    play.run(samples + 1)
    assert len(play.running) == count


def test_a_guest_names_its_hypervisor_and_counts_doubted_values() -> None:
    play = Play(changes={"virtualisation": "kvm"})
    play.loads(c0=CpuLoad(0.7, steal=0.3), c1=CpuLoad(0.05, steal=0.3, system=0.0))
    play.run(20)
    (result,) = play.running
    assert (result.cause, result.cpus) == ("hypervisor", [0])
    assert result.depth == pytest.approx(0.3, abs=0.01)
    assert result.evidence["who"] == Hypervisor("kvm")
    play.machine.broken = {0}
    play.run(3)
    assert result.evidence["instructions doubted"] == 3


# --- a watched job


def thread_records(
    seq: int, share: float, wait: float | None, cpus: tuple[int, ...]
) -> dict[str, list[object]]:
    """Returns a record of the job, whose threads have run and waited for these shares of the
    time."""
    ns = seq * SAMPLE_NS
    waited = None if wait is None else int(wait * ns)
    return {str(4000 + cpu): [4000, "lmp", cpu, int(share * ns), waited, 5, seq] for cpu in cpus}


def play_watched_job(
    play: Play, samples: int, share: float, wait: float | None, *,
    cpus: tuple[int, ...] = (0,), **records: Any,
) -> None:  # fmt: skip
    frames = []
    for seq in range(play.seq, play.seq + samples):
        job = {"watched": {"threads": thread_records(seq, share, wait, cpus), "more": 0}}
        frames.append(play.machine.frame(seq, records=job | ({} if seq % 10 else records)))
    session_of(play.session, frames)
    play.seq += samples


NOISY: dict[str, Any] = {
    "tasks": {"0": STREAM},
    "others": {"0": [[4001, "stream", 0.5], [4000, "lmp", 0.5]]},
}


def test_a_job_that_waits_for_others_is_named_with_them() -> None:
    play = Play(changes={"watch": "lmp"})
    play.loads(c0=CpuLoad(1.0))
    play_watched_job(play, 21, 0.5, 0.5, **NOISY)
    (result,) = play.running
    assert (result.cause, result.cpus, result.confidence) == ("scheduler", [0], "measured")
    assert result.depth == pytest.approx(0.5, abs=0.01)
    assert result.evidence["who"] == [TaskOnCpu(4001, "stream", 0)]
    assert "self" not in result.evidence
    assert result.evidence["involuntary_switches_per_s"] == 10


def play_waits(*waits: float, **records: Any) -> Play:
    """Plays a job of one thread that waits for this share of each sample, and runs in the rest."""
    play = Play(changes={"watch": "lmp"})
    play.loads(c0=CpuLoad(1.0))
    run_ns = wait_ns = 0
    for wait in waits:
        run_ns += round((1 - wait) * SAMPLE_NS)
        wait_ns += round(wait * SAMPLE_NS)
        results = {"4000": [4000, "lmp", 0, run_ns, wait_ns, 0, 0]}
        play.run(1, frames_per_record=1, watched={"threads": results, "more": 0}, **records)
    return play


@pytest.mark.parametrize(("waits", "spans"), [
    ([0.06] * 4, [(4, None)]), ([0.06] * 3, []), ([0.049] * 9, []),
    ([0.1] * 4 + [0.02] * 5, [(4, None)]), ([0.1] * 4 + [0.019] * 5, [(4, 8)]),
])  # fmt: skip
def test_waits_are_a_loss_from_a_twentieth_of_the_wanted_time_on(
    waits: list[float], spans: list[tuple[int, int | None]]
) -> None:
    """They are reported after 20 ms, for which three samples of 6 ms are too few."""
    assert loss_spans(play_waits(*[0.0] * 5, *waits)) == spans


def test_each_record_names_the_tasks_for_which_a_job_waits() -> None:
    play = play_waits(*[0.5] * 5, tasks={"0": STREAM})
    threads = {"4000": [4000, "lmp", 0, 50 * SAMPLE_NS, 50 * SAMPLE_NS, 0, 0]}
    play.run(
        1, frames_per_record=1, watched={"threads": threads, "more": 0},
        tasks={"0": [4009, "cc1", 0.5]},
    )  # fmt: skip
    (result,) = play.running
    assert result.evidence["who"] == [TaskOnCpu(4009, "cc1", 0)]


def test_a_cpu_that_the_job_left_loses_nothing() -> None:
    play = play_waits(*[0.5] * 5)
    for seq in range(5):
        run_ns, wait_ns = (3 + seq) * SAMPLE_NS, 3 * SAMPLE_NS
        threads = {"4000": [4000, "lmp", 1, run_ns, wait_ns, 0, 0]}
        play.run(1, frames_per_record=1, watched={"threads": threads, "more": 0})
    assert [episode.cpus for episode in play.ended] == [[0]]
    assert play.ended[0].end_ns == 4 * SAMPLE_NS


@pytest.mark.parametrize(("share", "names"), [(0.02, ["stream"]), (0.019, [])])
def test_a_task_that_hardly_ran_is_not_blamed_for_waits(share: float, names: list[str]) -> None:
    task = [4001, "stream", share]
    play = play_waits(*[0.5] * 5, tasks={"0": task}, others={"0": [task, LMP]})
    (result,) = play.running
    assert [task.comm for task in result.evidence.get("who", [])] == names
    assert result.confidence == ("measured" if names else "inferred")


@pytest.mark.parametrize(("threads", "for_each_other"), [
    ([(1, 0.5, 0.5)] * 2, True), ([(1, 0.5, 0.5)], False),
    ([(2, 0.04, 1.9), (2, 1.9, 0.04)], True),  # the second one also runs
    ([(2, 0.038, 1.9), (2, 1.9, 0.04)], False),
    ([(1, 0.25, 1.0)] * 2, True), ([(1, 0.25, 1.0), (1, 0.24, 1.0)], False),
    ([(1, 0.25, 0.5)] * 2, True), ([(1, 0.2, 0.5)] * 2, False),
])  # fmt: skip
def test_threads_wait_for_each_other_if_they_run_for_half_of_the_waits(
    threads: list[tuple[float, float, float]], *, for_each_other: bool
) -> None:
    """Threads have the seconds for which they were observed, ran and waited."""
    assert _do_threads_compete([ThreadActivity(*times) for times in threads]) == for_each_other


def test_waits_begin_and_end_in_the_right_sample() -> None:
    play = play_waits(*(0.0,) * 20, *(0.5,) * 20, *(0.0,) * 10)
    (result,) = play.ended
    assert (result.start_ns, result.end_ns) == (19 * SAMPLE_NS, 39 * SAMPLE_NS)
    assert result.depth == pytest.approx(0.5)
    assert result.confidence == "inferred"


def test_a_job_with_more_threads_than_cpus_waits_for_itself() -> None:
    play = Play(changes={"watch": "lmp"})
    play.loads(c0=CpuLoad(1.0))
    for _ in range(12):
        ns = play.seq * SAMPLE_NS
        two = {str(4000 + i): [4000, "lmp", 0, ns // 2, ns // 2, 0, 0] for i in range(2)}
        two["4009"] = [4000, "lmp", 0, 5, 5, 0, 0]  # sleeps
        play.run(1, frames_per_record=1, watched={"threads": two, "more": 0}, tasks={"0": LMP})
    (result,) = play.running
    assert result.evidence["self"] == [CrowdedCpu(2, 0)]
    assert "who" not in result.evidence


def test_threads_of_one_process_wait_for_each_other() -> None:
    play = Play(changes={"watch": "lmp"})
    play.loads(c0=CpuLoad(1.0), c1=CpuLoad(1.0))
    for _ in range(21):
        ns = play.seq * SAMPLE_NS
        results = {str(4001 + i): [4000, "lmp", 0, ns // 2, ns // 2, 0, 0] for i in range(2)}
        results["4000"] = [4000, "lmp", 1, ns, 0, 0, 0]
        tasks = {"0": [4009, "stream", 0.05], "1": [4000, "lmp", 2.0]}
        others = {cpu: [task] for cpu, task in tasks.items()}
        job = {"threads": results, "more": 0}
        play.run(1, frames_per_record=1, watched=job, tasks=tasks, others=others)
    (result,) = play.running
    assert result.cpus == [0]
    assert result.evidence["self"] == [CrowdedCpu(2, 0)]
    assert result.evidence["who"] == [TaskOnCpu(4009, "stream", 0)]


def test_unreported_waits_are_not_a_loss() -> None:
    play = Play(changes={"watch": "lmp"})
    play.loads(c0=CpuLoad(1.0))
    play_watched_job(play, 21, 0.5, None, **NOISY)
    assert play.running == []


def test_only_the_watched_job_is_checked() -> None:
    assert play_with_sibling(60, changes={"watch": "other"}).running == []


@pytest.mark.parametrize(("job_cpu", "cpus"), [(1, []), (0, [[0]])])
def test_other_cpus_than_those_of_the_job_are_not_checked(
    job_cpu: int, cpus: list[list[int]]
) -> None:
    """The sibling of CPU 0 slows it down."""
    play = Play(changes={"watch": "job"})
    for does, samples in ((ALONE, 120), (TOGETHER, 30)):
        play.loads(**does, c1=CpuLoad(1.0, ipc=2.0))
        play_watched_job(play, samples, 1.0, 0.0, cpus=(job_cpu,))
    assert [e.cpus for e in play.running if e.cause == "sibling"] == cpus


def play_job_at_full_clock(cores: int = 2) -> Play:
    """Plays a job that runs beside another task, and then alone at its ceiling of 3.4 GHz."""
    play = Play(cores=cores, changes={"watch": "lmp"}, ceiling_hz=3.0e9)
    play.loads(c0=CpuLoad(1.0, hz=3.0e9), c1=CpuLoad(0.2, hz=3.0e9))
    play_watched_job(play, 10, 1.0, 0.0, tasks={"0": LMP})
    play.machine.ceiling_hz = 3.4e9
    play.loads(c0=CpuLoad(1.0, hz=3.4e9), c1=REST)
    play_watched_job(play, 41, 1.0, 0.0, tasks={"0": LMP})
    return play


def test_tasks_that_wake_up_take_turbo_from_the_job() -> None:
    play = play_job_at_full_clock()
    play.loads(c0=CpuLoad(1.0, hz=3.06e9), c1=CpuLoad(1.0, hz=3.06e9))
    play.machine.ceiling_hz = 3.06e9
    play_watched_job(play, 30, 1.0, 0.0, tasks={"0": LMP, "1": [4009, "xhpl", 1.0]})
    (result,) = play.running
    assert (result.cause, result.cpus, result.confidence) == ("package", [0], "measured")
    assert result.start_ns == 50 * SAMPLE_NS
    assert result.depth == pytest.approx(0.1, abs=0.005)
    assert result.evidence == {
        "active_cores_before": 1, "active_cores": 2, "who": [TaskOnCpu(4009, "xhpl", 1)],
        **{f"{key}_hz": pytest.approx(hz, rel=0.01) for key, hz in
           (("busy", 3.06e9), ("before", 3.4e9), ("ceiling", 3.06e9), ("ceiling_before", 3.4e9))},
    }  # fmt: skip


def test_tasks_that_take_turbo_are_named_once() -> None:
    """Later tasks did not lower the clock."""
    play = play_job_at_full_clock()
    play.loads(c0=CpuLoad(1.0, hz=3.06e9), c1=CpuLoad(1.0, hz=3.06e9))
    play.machine.ceiling_hz = 3.06e9
    for pid, name in ((4009, "xhpl"), (4010, "cc1")):
        play_watched_job(play, 15, 1.0, 0.0, tasks={"0": LMP, "1": [pid, name, 1.0]})
    (result,) = play.running
    assert result.evidence["who"] == [TaskOnCpu(4009, "xhpl", 1)]


@pytest.mark.parametrize(("ghz", "ceiling_ghz", "other_util", "count"), [
    (3.33, 3.332, 1.0, 1), (3.33, 3.34, 1.0, 0), (3.34, 3.332, 1.0, 0),
    (3.06, 3.06, 0.11, 1), (3.06, 3.06, 0.09, 0),
])  # fmt: skip
def test_clock_and_ceiling_fall_by_2_percent_when_a_core_starts_to_work(
    ghz: float, ceiling_ghz: float, other_util: float, count: int
) -> None:
    play = play_job_at_full_clock()
    lower = CpuLoad(1.0, hz=ghz * 1e9)
    play.loads(c0=lower, c1=replace(lower, util=other_util, system=0.0))
    play.machine.ceiling_hz = ceiling_ghz * 1e9
    play_watched_job(play, 10, 1.0, 0.0, tasks={"0": LMP})
    assert len(play.running) == count


def test_the_earlier_clock_is_a_mean_of_about_ten_samples() -> None:
    play = play_job_at_full_clock()
    play.loads(c0=CpuLoad(1.0, hz=3.3e9))
    play_watched_job(play, 7, 1.0, 0.0, tasks={"0": LMP})
    play.loads(c0=CpuLoad(1.0, hz=3.0e9), c1=CpuLoad(1.0, hz=3.0e9))
    play.machine.ceiling_hz = 3.0e9
    play_watched_job(play, 10, 1.0, 0.0, tasks={"0": LMP})
    (result,) = play.running
    assert result.evidence["before_hz"] == pytest.approx(3.3e9 + 0.1e9 * 0.9**7, rel=2e-3)


def test_a_job_that_grows_lowers_its_own_clock() -> None:
    play = play_job_at_full_clock(3)
    play.loads(c1=CpuLoad(1.0, hz=3.4e9))
    play_watched_job(play, 20, 1.0, 0.0, tasks={"0": LMP, "1": STREAM})
    play.loads(**{f"c{cpu}": CpuLoad(1.0, hz=3.06e9) for cpu in range(3)})
    play.machine.ceiling_hz = 3.06e9
    play_watched_job(play, 30, 1.0, 0.0, cpus=(0, 2), tasks={"0": LMP, "1": STREAM, "2": LMP})
    assert play.running == []


@pytest.mark.parametrize("another_task_started", [True, False])
def test_a_power_limit_is_blamed_on_others_only_if_one_started(another_task_started: bool) -> None:
    play = play_job_at_full_clock()
    play.loads(
        c0=CpuLoad(1.0, hz=3.1e9), c1=CpuLoad(1.0, hz=3.1e9) if another_task_started else REST
    )
    drop = Episode("turbo-drop", [0], play.session.now_ns, cause="power-pl1")
    play.session.detector.running.append(drop)
    play_watched_job(play, 10, 1.0, 0.0, tasks={"0": LMP})
    assert len(play.running) == another_task_started
    for result in play.running:
        assert (result.cause, result.confidence) == ("package", "inferred")
        assert result.evidence["turbo_drop"] == "power-pl1"


def test_an_unknown_earlier_ceiling_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(changes={"watch": "lmp"}, ceiling_hz=3.4e9)
    frame = play.machine.frame

    def unread(seq: int, **more: Any) -> wire.Frame:
        result = frame(seq, **more)
        rows = result.blocks["package"]
        blocks = result.blocks | {"package": replace(rows, head=bytes(len(rows.head)))}
        return replace(result, blocks=blocks)

    play.loads(c0=CpuLoad(1.0, hz=3.4e9))
    with monkeypatch.context() as patched:
        patched.setattr(play.machine, "frame", unread)
        play_watched_job(play, 41, 1.0, 0.0, tasks={"0": LMP})
    play.loads(c0=CpuLoad(1.0, hz=3.1e9), c1=CpuLoad(1.0, hz=3.1e9))
    drop = Episode("turbo-drop", [0], play.session.now_ns, cause="power-pl1")
    play.session.detector.running.append(drop)
    play_watched_job(play, 10, 1.0, 0.0, tasks={"0": LMP})
    (result,) = play.running
    assert result.evidence["before_hz"] == pytest.approx(3.4e9, rel=0.01)
    assert not result.evidence.keys() & {"ceiling_hz", "ceiling_before_hz"}


# --- the history of a program and its sibling


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize(("samples", "counts"), [
    ([(0, 2.0), (1, 1.8)], (1, 1, 0, 0)), ([(0, 2.0), (1, 1.81)], (1, 0, 0, 0)),
    ([(1, 1.8), (0, 2.0)], (1, 1, 0, 0)), ([(1, 1.5), (0, 1.0)], (1, 0, 0, 0)),
    ([(0, 2.0), (0.3, 1.5), (0.3, 1.5), (1, 1.0)], (1, 1, 0, 0)),
    ([(0, 2.0), (0.3, 1.5), (0.3, 1.5), (0.3, 1.5), (1, 1.0)], (0, 0, 0, 0)),
    ([(0, 2.0), (0, 2.0)], (0, 0, 1, 0)), ([(0, 2.0), (0, 1.8)], (0, 0, 1, 1)),
    ([(0, 1.8), (0, 2.0)], (0, 0, 1, 1)), ([(0, 1.81), (0, 2.0)], (0, 0, 1, 0)),
    ([(0.5, 1.0), (0.6, 1.0)], (0, 0, 1, 0)), ([(0.5, 1.0), (0.61, 1.0)], (0, 0, 0, 0)),
    ([(0.099, 1.0), (0.5, 0.8)], (1, 1, 0, 0)), ([(0.1, 1.0), (0.5, 0.8)], (0, 0, 0, 0)),
    ([(0.099, 1.0), (0.499, 0.8)], (0, 0, 0, 0)), ([(0, 2.0), (0.3, 2.0), (0, 1.0)], (0, 0, 0, 0)),
    ([(0, 2.0), (0, 0.0), (1, 1.0)], (1, 1, 0, 0)),
    ([(0, 2.0), (1, NAN), (1, 1.0)], (1, 1, 0, 0)), ([(0, 0.0), (1, 1.0)], (0, 0, 0, 0)),
])  # fmt: skip
def test_starts_and_stops_of_the_sibling_are_counted_with_the_ipc(
    samples: list[tuple[float, float]], counts: tuple[int, ...], *, one_by_one: bool
) -> None:
    """Samples are the share of the time in which the sibling ran, and the IPC. Counted are starts
    and stops of the sibling, those with the expected IPC, pairs of samples with an equal sibling,
    and those with another IPC."""
    history = SiblingHistory(1, LOSS_START)
    for some in [[sample] for sample in samples] if one_by_one else [samples]:
        overlap, ipc = np.array(some).T[..., None]
        alone, together = overlap < MAX_ALONE_OVERLAP, overlap >= MIN_TOGETHER_OVERLAP
        history.add(_SiblingWork(overlap, alone, together, ipc, ipc, overlap, overlap))
    assert history.counts[:, 0].tolist() == list(counts)


@pytest.mark.parametrize(("counts", "follows"), [
    ((1, 1, 20, 0), True), ((1, 1, 18, 0), False),  # once in 20 comparisons by chance
    ((2, 2, 63, 1), True), ((2, 2, 61, 1), False),  # once in a thousand
    ((4, 3, 99, 0), True), ((4, 3, 13, 0), False), ((6, 5, 13, 0), True),
    ((4, 0, 9, 9), False), ((4, 4, 9, 9), False), ((0, 0, 99, 0), False),
])  # fmt: skip
def test_an_ipc_follows_the_sibling_if_chance_does_not_explain_it(
    counts: tuple[int, ...], *, follows: bool
) -> None:
    history = SiblingHistory(1, LOSS_START)
    history.counts[:, 0] = counts
    assert history.ipc_follows_sibling().tolist() == [follows]


@pytest.mark.parametrize("run_s", [0.1, 2.0])
def test_an_earlier_ipc_has_less_weight_after_ten_seconds(run_s: float) -> None:
    programs = UndisturbedPrograms(
        cast("Any", None), [[0]], RunningTasks([0]), learned_rows=3, loss_rows=1
    )
    samples = round(10 / run_s)
    for ipc in (2.0, 1.0):
        parts = np.array([[[ipc], [1.0], [ipc**2]]] * samples)
        times, quiet = np.full((samples, 1), run_s), np.ones((samples, 1), bool)
        programs.learned_sums = programs.learned_by_sample(quiet, times, parts)[-1]
    undisturbed, loss, spread = programs.compare_ipc(programs.learned_sums, np.array([0.5]))
    mean, weight = 1 + 1 / (1 + np.e), 1 / (1 + np.e)
    assert undisturbed == pytest.approx(mean)
    assert loss == pytest.approx(1 - 0.5 / mean)
    assert spread == pytest.approx(np.sqrt(weight * (1 - weight)) / mean)


# --- how often a sibling is blamed for a program's own phases, and how often a real loss is


SECONDS = 240


@pytest.mark.parametrize(
    ("depth", "phase_s"), cases_by_day([(0.1, 3.0), (0.3, 10.0), (0.5, 30.0)], [(0.3, 10.0)])
)
def test_a_sibling_is_not_blamed_for_phases(depth: float, phase_s: float) -> None:
    assert episodes(Phases(1, depth, phase_s), SECONDS) == []
