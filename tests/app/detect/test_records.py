"""Losses that records of tasks, interrupts, quotas and memory show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import synth
from fakes import CpuLoad, Machine
from rate_streams import sample_with
from sessions import session_of

from perftop.detect.engine import Detector, RunningEpisodes
from perftop.detect.taken_time import InterruptStorms, MemoryStalls, QuotaStops
from perftop.model.kinds import Episode
from perftop.model.sample_reader import SampleReader
from perftop.output.sentences import sentence, text, victims
from perftop.output.why_report import report
from perftop.session.session import Session

NAMES: tuple[list[object], list[object]] = (
    [["36 eth0", 9000]],
    [["RCU", 50_000], ["NET_RX", 40_000]],
)


PER_S = 1_000_000_000 // synth.SAMPLE_NS


class RecordStream:
    """A stream whose records are made by a test, second by second."""

    def __init__(self, **changes: Any) -> None:
        """`changes`: fields of hello."""
        self.machine = Machine(cores=2, changes=changes)
        self.session = Session(self.machine.hello)
        self.seq = 0

    def second(
        self,
        last_records: dict[str, Any],
        make_frame_records: Callable[[], dict[str, Any]] = dict[str, Any],
    ) -> None:
        """Plays one second. `make_frame_records` makes the records of each frame; the last frame
        also has `last_records`."""
        frames = []
        for _ in range(PER_S):
            self.seq += 1
            records = make_frame_records() | (last_records if self.seq % PER_S == 0 else {})
            frames.append(self.machine.frame(self.seq, records=records))
        session_of(self.session, frames)

    def episodes(self, kind: str) -> list[Episode]:
        whole = [*self.session.detector.running, *self.session.ended]
        return [episode for episode in whole if episode.kind == kind]


def recorded(
    kind: Callable[[SampleReader, RunningEpisodes], Detector], *records: dict[str, Any],
    span_s: float = 2.0,
) -> list[Episode]:  # fmt: skip
    """Returns the episodes of a detector on a machine of two CPUs. `records`: those of each record
    of tasks, one every `span_s`."""
    running = RunningEpisodes()
    detector = kind(SampleReader(synth.hello(threads=1, cores=2)), running)
    ended: list[Episode] = []
    for number, record in enumerate(records, 1):
        sample = sample_with({}, records={"tasks": {}} | record, time_ns=int(number * span_s * 1e9))
        ended += detector.process(sample)
    return [*ended, *running.running]


class Flooded(RecordStream):
    """Two CPUs with one record of tasks a second, and a record of interrupts when CPU 0 has any."""

    def flood(self, entry: object = None, tasks: list[object] | None = None) -> None:
        records: dict[str, Any] = {"tasks": {}, "others": {"0": tasks or []}}
        self.second(records | ({} if entry is None else {"interrupts": {"0": entry}}))


def test_softirqs_are_an_episode_with_kind_and_share() -> None:
    cpu = Flooded()
    for entry in (None, [0.6, 0.0, 0.4, [], []], [0.7, 0.0, 0.3, *NAMES], None, None):
        cpu.flood(entry)
    (result,) = cpu.episodes("interrupt")
    assert (result.cause, result.cpus, result.confidence) == ("softirq", [0], "measured")
    assert result.depth == pytest.approx(0.35)
    second_ns = PER_S * synth.SAMPLE_NS
    assert (result.start_ns, result.end_ns) == (second_ns, 3 * second_ns)
    assert result.evidence == {"line": "NET_RX", "came_per_s": 40_000, "raised_by": "36 eth0"}
    words = text(sentence(cpu.session.topology, [result], past_tense=True))
    assert words == "Softirq work (NET_RX) took 35 % of CPU 0"


@pytest.mark.parametrize(("entry", "tasks"), [
    ([0.5, 0.0, 0.4, *NAMES], [[17, "ksoftirqd/0", 0.38]]),  # other tasks wait for the CPU
    ([0.5, float("nan"), -1, [], []], []),
    ([0.5, "x", 0.4, [], []], []),
])  # fmt: skip
def test_time_of_a_kernel_thread_and_invalid_times_are_no_episode(
    entry: object, tasks: list[object]
) -> None:
    cpu = Flooded()
    for _ in range(3):
        cpu.flood(entry, tasks)
    assert cpu.episodes("interrupt") == []


@pytest.mark.parametrize("span_s", [0.5, 2.0])
@pytest.mark.parametrize(("shares", "cause"), [
    ((0.9, 0.05, 0.0), "irq"), ((0.9, 0.049, 0.0), None), ((0.5, 0.2, 0.2), "softirq"),
    ((0.45, 0.05, 0.0), "irq"), ((0.44, 0.05, 0.0), None),  # half of the time
    ((0.1, 0.5, 0.0), "irq"), ((0.099, 0.5, 0.0), None),  # tasks run too little
    ((0.4, 0.5, 0.0), "irq"), ((0.01, 0.9, 0.0), "irq"), ((0.009, 0.9, 0.0), None),  # a full CPU
    ((0.05, 0.85, 0.0), "irq"),
    ((0.05, 0.84, 0.0), None), ((1.5, 0.03, 0.03), "softirq"),
    ((0.1, 0.3, 0.8), "softirq"),  # rounded: together more than the whole time
])  # fmt: skip
def test_interrupts_take_time_from_tasks_on_a_busy_cpu(
    shares: tuple[float, float, float], cause: str | None, span_s: float
) -> None:
    record = {"interrupts": {"1": [*shares, [], []], "9": [0.5, 0.4, 0.0, [], []]}}
    found = recorded(InterruptStorms, {}, record, span_s=span_s)
    assert [(e.cause, e.cpus) for e in found] == [(cause, [1])] * (cause is not None)
    for episode in found:
        assert episode.start_ns == span_s * 1e9
        assert episode.depth == pytest.approx(min(1.0, shares[1] + shares[2]))


@pytest.mark.parametrize(("irq", "lasts"), [(0.03, True), (0.029, False)])
def test_interrupts_continue_above_a_lower_limit(irq: float, *, lasts: bool) -> None:
    first, later = ({"interrupts": {"0": [0.8, share, 0, [], []]}} for share in (0.05, irq))
    (episode,) = recorded(InterruptStorms, first, later)
    assert episode.end_ns == (None if lasts else 2_000_000_000)
    assert episode.depth == pytest.approx((0.05 + irq) / 2 if lasts else 0.05)


@pytest.mark.parametrize(("lines", "kinds", "evidence"), [
    ([["36 eth0", 100]], [["NET_RX", 1000]],
     {"line": "NET_RX", "came_per_s": 500, "raised_by": "36 eth0"}),
    ([["36 eth0", 99]], [["NET_RX", 1000]], {"line": "NET_RX", "came_per_s": 500}),
    ([], [["NET_RX", 1]], {"line": "NET_RX", "came_per_s": 0}),
    ([["36 eth0", 100]], [["NET_RX", 0], ["NET_TX", 1 << 62]], {}),
    ([], [["TIMER", 299], ["NET_TX", 100], ["BLOCK", 100]], {"line": "NET_TX", "came_per_s": 50}),
    ([], [["TIMER", 301], ["NET_TX", 100]], {"line": "TIMER", "came_per_s": 150}),
    ([], [["IRQ_POLL", 100], ["TASKLET", 99], ["TIMER", 199]],
     {"line": "IRQ_POLL", "came_per_s": 50}),
])  # fmt: skip
def test_the_costliest_source_is_reported(
    lines: list[object], kinds: list[object], evidence: dict[str, object]
) -> None:
    (episode,) = recorded(InterruptStorms, {"interrupts": {"0": [0.6, 0, 0.4, lines, kinds]}})
    assert episode.evidence == evidence


@pytest.mark.parametrize(("span_s", "count"), [(5.0, 1), (5.1, 0), (0.0, 0)])
def test_a_record_after_a_gap_in_the_stream_is_not_used(span_s: float, count: int) -> None:
    record = {"interrupts": {"0": [0.6, 0.4, 0, [], []]}}
    assert len(recorded(InterruptStorms, record, span_s=span_s)) == count


def test_only_counts_of_the_first_source_are_added() -> None:
    """The rate refers to the time of the records that list this source."""
    records = [[["NET_RX", 100]], [["BLOCK", 900]], [["NET_RX", 50]]]
    (episode,) = recorded(
        InterruptStorms, *({"interrupts": {"0": [0.6, 0, 0.4, [], kinds]}} for kinds in records)
    )
    assert episode.evidence == {"line": "NET_RX", "came_per_s": round(150 / 4)}


@pytest.mark.parametrize(("line", "remedy"), [
    ("threshold apic interrupts", "replace the memory"), ("tlb shootdowns", "fewer munmap"),
])  # fmt: skip
def test_a_line_without_a_device_has_its_name_and_its_remedy(line: str, remedy: str) -> None:
    """Corrected errors of a failing DIMM cause machine check interrupts without a number."""
    cpu = Flooded()
    cpu.session.run.track_losses()
    cpu.machine.loads = {0: CpuLoad(util=1.0)}
    for _ in range(4):
        cpu.flood([0.8, 0.2, 0.0, [["local timer interrupts", 9000], [line, 4000]], []])
    result = report(cpu.session)
    (first,) = [finding for finding in result.findings if finding.cause == ("interrupt", "irq")]
    assert first.text == f"Interrupt work ({line}) takes 20 % of CPU 0"
    assert first.hint.startswith(remedy)


# --- stops by cpu quotas, from simulated records; no other task is blamed for them


GROUP = "/kubepods/burstable/pod0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9/web"
SAMPLE_NS = synth.SAMPLE_NS
OTHER = [4001, "stream", 0.5]


class Limited(RecordStream):
    """A job with equal threads on its first `cpus`, whose quota is half a CPU. Tasks and quotas
    have a record a second."""

    run_ns = wait_ns = throttled_us = periods = 0
    threads = cpus = 1

    def limit(
        self, *, stopped_share: float, waited_share: float = 0.0, quota: bool = True, cpu: int = 0
    ) -> None:
        """Plays a second. `stopped_share`: share of the time for which the quota stops the job;
        `waited_share`: share for which it waits for another task; `cpu`: the CPU on which it
        runs."""
        wait = stopped_share + waited_share

        def record(throttled: int) -> dict[str, Any]:
            counts = [0.5, self.periods, throttled, self.throttled_us]
            return {"quotas": {"groups": {GROUP: counts}, "pids": {"4000": [GROUP]}}}

        def records() -> dict[str, Any]:
            self.run_ns += round((1 - wait) * SAMPLE_NS)
            self.wait_ns += round(wait * SAMPLE_NS)
            self.throttled_us += round(self.cpus * stopped_share * SAMPLE_NS / 1000)
            self.periods += 1
            times = self.run_ns, self.wait_ns, 0, 0
            numbers = range(self.threads)
            threads = {str(4000 + n): [4000, "web", n % self.cpus, *times] for n in numbers}
            watched = {"watched": {"threads": threads, "more": 0}}
            if self.seq % PER_S == 0:
                task = [4000, "web", 1 - wait]
                watched |= {"tasks": {str(cpu): task}, "others": {str(cpu): [task, OTHER]}}
            is_due = quota and (self.seq == 1 or self.seq % PER_S == 0)
            return watched | (record(0 if self.seq == 1 else self.periods // 2) if is_due else {})

        self.second({}, records)


def test_a_stop_is_an_episode_with_owner_and_share() -> None:
    job = Limited()
    for stopped in (0, 0.5, 0.5, 0, 0):
        job.limit(stopped_share=stopped)
    (result,) = job.episodes("quota")
    assert (result.cause, result.cpus, result.confidence) == ("quota", [0], "measured")
    assert result.depth == pytest.approx(0.5, abs=0.01)
    second_ns = PER_S * SAMPLE_NS
    assert (result.start_ns, result.end_ns) == (second_ns, 3 * second_ns)
    assert result.lost_s(job.session.now_ns) == pytest.approx(1.0, abs=0.02)
    assert result.evidence == {
        "owner": "pod 0a1b2c3d", "group": GROUP, "CPUs_allowed": 0.5, "throttled_periods": 10,
        "periods": 20, "throttled_s": 1.0,
    }  # fmt: skip
    words = text(sentence(job.session.topology, [result], past_tense=True))
    assert words == "pod 0a1b2c3d was stopped by its CPU quota for 50 % of the time"


def test_a_task_that_moves_is_stopped_on_one_cpu_at_a_time() -> None:
    """The verdict and the list once reported 38 % and 18.9 % for the same stop."""
    job = Limited()
    for cpu in (0, 0, 1):
        job.limit(stopped_share=0.5, cpu=cpu)
    (result,) = job.episodes("quota")
    assert result.cpus == [0, 1]
    assert result.depth == pytest.approx(0.5, abs=0.01)


def test_a_record_of_the_moment_of_hello_covers_no_time() -> None:
    job = Limited()
    job.seq = -1
    job.limit(stopped_share=0.5)
    assert job.episodes("quota") == []


def test_an_episode_ends_when_the_quota_is_removed() -> None:
    job = Limited()
    for quota in (True, True, False):
        job.limit(stopped_share=0.5, quota=quota)
    (result,) = job.episodes("quota")
    assert result.end_ns == 2 * PER_S * SAMPLE_NS


def quota_records(
    *stopped_s: float, tasks: Mapping[str, object], periods: int = 20
) -> list[dict[str, Any]]:
    """Returns records of a group that its quota stopped for these times between two records."""
    totals_us = [round(1e6 * sum(stopped_s[:n])) for n in range(len(stopped_s) + 1)]
    return [
        {
            "tasks": tasks,
            "quotas": {"groups": {GROUP: [1.23456, periods * n, n, us]}, "pids": {"4000": [GROUP]}},
        }
        for n, us in enumerate(totals_us)
    ]


@pytest.mark.parametrize("cpus", [1, 2])
@pytest.mark.parametrize(("stopped_s", "end_ns"), [
    ([0.1], None), ([0.099], -1), ([0.1, 0.04], None), ([0.1, 0.039], 4_000_000_000),
])  # fmt: skip
def test_a_stop_is_compared_with_the_time_and_its_depth_with_the_cpus(
    stopped_s: list[float], end_ns: int | None, cpus: int
) -> None:
    tasks = {str(cpu): [4000, "web", 0.5] for cpu in range(cpus)}
    found = recorded(QuotaStops, *quota_records(*stopped_s, tasks=tasks))
    assert [e.end_ns for e in found] == [end_ns] * (end_ns != -1)
    for episode in found:
        counted = stopped_s[: 1 if end_ns else None]
        assert episode.cpus == [*range(cpus)]
        assert episode.depth == pytest.approx(sum(counted) / len(counted) / cpus / 2)
        assert episode.evidence["CPUs_allowed"] == 1.235
        assert (episode.evidence["periods"], episode.evidence["throttled_periods"]) == (
            20 * len(counted), len(counted),
        )  # fmt: skip


def test_of_nested_groups_the_longest_stop_counts() -> None:
    stops = QuotaStops(SampleReader(synth.hello()), RunningEpisodes())
    for second in (1, 2):
        us = second * 100_000
        groups = {group: [1, 0, 0, n * us] for n, group in enumerate(("/a/b", "/a", "/other"), 1)}
        pids = {"7": ["/a/b", "/a"], "8": ["/other"]}
        stops.process_records({"quotas": {"groups": groups, "pids": pids}}, second * 10**9)
    assert [stops.stopped_s(pids) for pids in ([7], [8], [7, 8], [9])] == [0.2, 0.3, 0.3, 0.0]
    assert [stops.has_quota(pids) for pids in ([7], [9], [])] == [True, False, False]


def test_a_stop_continues_on_its_cpus_while_no_task_runs() -> None:
    """A group that is stopped for the whole time runs nowhere. Without an episode, its CPUs are
    unknown."""
    first, second, third = quota_records(1.0, 2.0, tasks={"1": [4000, "web", 0.5]})
    (episode,) = recorded(QuotaStops, first, second, third | {"tasks": {}})
    assert (episode.cpus, episode.end_ns, episode.depth) == ([1], None, 0.75)
    assert recorded(QuotaStops, first, second | {"tasks": {}}) == []


def test_a_job_that_never_waits_is_not_stopped() -> None:
    """The quota stops another task of the group."""
    job = Limited(watch="web")
    for _ in range(3):
        job.limit(stopped_share=0.3, waited_share=-0.3)
    assert job.episodes("neighbour") == []


@pytest.mark.parametrize(("threads", "cpus"), [(1, 1), (2, 1), (2, 2)])
def test_the_reported_wait_excludes_the_time_of_the_quota(threads: int, cpus: int) -> None:
    """The kernel counts the stop of a CPU once, however many threads wait there."""
    job = Limited(watch="web")
    job.threads, job.cpus = threads, cpus
    for _ in range(5):
        job.limit(stopped_share=0.3, waited_share=0.3)
    (result,) = job.episodes("neighbour")
    assert (result.cause, result.cpus) == ("scheduler", [*range(cpus)])
    assert result.depth == pytest.approx(0.3 / 0.7, abs=0.02)
    assert [one.comm for one in result.evidence["who"]] == ["stream"]
    assert len(job.episodes("quota")) == 1


# --- tasks that are stalled for memory, from simulated records


POD = "/kubepods/burstable/pod0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9/web"
AT_LIMIT = {
    "stalled_us": 400_000, "counts": {"workingset_refault_file": 9000},
    "groups": {POD: [63_000_000, 900, 9000, 300_000]}, "pids": {"4000": POD},
}  # fmt: skip
STALLS = {"stalled_us": 400_000, "counts": {"allocstall_normal": 1}}


def episodes(*memory: object) -> tuple[Session, list[Episode]]:
    """Returns the episodes of a stream with this record of memory every second, while process 4000
    runs on CPU 1."""
    stream = RecordStream()
    for record in memory:
        records = {"tasks": {"1": [4000, "web", 0.5]}}
        stream.second(records | ({} if record is None else {"memory": record}))
    return stream.session, stream.episodes("memory-stall")


def test_a_group_at_its_limit_reports_the_stall_time_of_its_tasks() -> None:
    session, (result,) = episodes(None, AT_LIMIT, AT_LIMIT, None, None)
    assert (result.cause, result.cpus, result.confidence) == ("memory-limit", [1], "measured")
    assert result.depth == pytest.approx(0.3)
    assert result.lost_s(session.now_ns) == pytest.approx(0.6)
    assert result.evidence == {
        "owner": "pod 0a1b2c3d", "group": POD, "stalled_s": 0.6, "memory_limit_mb": 63,
        "at_limit": 1800, "pages_read_back": 18_000,
    }  # fmt: skip
    words = text(sentence(session.topology, [result], past_tense=True))
    assert words == "The memory limit of pod 0a1b2c3d stopped its tasks for 30 % of the time"


def test_the_stall_time_of_a_group_does_not_count_for_the_machine_too() -> None:
    _, found = episodes(None, AT_LIMIT | {"counts": {"allocstall_normal": 40}})
    depths = {episode.cause: episode.depth for episode in found}
    assert depths == {"memory-limit": pytest.approx(0.3), "reclaim": pytest.approx(0.1)}


@pytest.mark.parametrize(("cause", "counts", "evidence"), [
    ("reclaim", {"allocstall_dma": 4, "allocstall_normal": 5, "compact_stall": 9},
     {"direct_reclaims": 9}),
    ("reclaim", {"allocstall_normal": 40, "pswpin": 9, "workingset_refault_anon": 190},
     {"direct_reclaims": 40}),
    ("compaction", {"compact_stall": 60, "thp_fault_fallback": 7, "allocstall_normal": 59},
     {"compactions": 60, "huge_pages_failed": 7}),
    ("compaction", {"compact_stall": 60, "thp_fault_fallback": 0},
     {"compactions": 60, "huge_pages_failed": 0}),
    ("read-back", {"pswpin": 4000, "workingset_refault_anon": 3000},
     {"pages_read_back": 3000, "pages_swapped_in": 4000}),
    ("read-back", {"allocstall_normal": 1, "workingset_refault_file": 200},
     {"pages_read_back": 200, "pages_swapped_in": 0}),
    ("numa-balancing", {"numa_hint_faults": 90_000, "numa_pages_migrated": 20_000},
     {"numa_faults": 90_000, "numa_pages_moved": 20_000}),
])  # fmt: skip
def test_counts_of_the_kernel_name_the_cause(
    cause: str, counts: dict[str, int], evidence: dict[str, int]
) -> None:
    stalled_us = 0 if cause == "numa-balancing" else 300_400
    depth = 0.28 if cause == "numa-balancing" else 0.3004
    _, (result,) = episodes(None, {"stalled_us": stalled_us, "counts": counts})
    assert result.cause == cause
    assert result.depth == pytest.approx(depth)
    assert result.confidence == "inferred"
    assert result.evidence == {"stalled_s": round(depth, 3)} | evidence


@pytest.mark.parametrize(("stalled_us", "counts", "cause"), [
    (60_000, {"allocstall_normal": 1}, "reclaim"), (59_999, {"allocstall_normal": 1}, None),
    (60_000, {"compact_stall": 2, "allocstall_dma": 1}, "compaction"),
    (60_000, {"compact_stall": 1, "allocstall_dma": 1}, "reclaim"),
    (60_000, {"pswpin": 1, "workingset_refault_file": 399}, "read-back"),
    (60_000, {"pswpin": 1, "workingset_refault_file": 398}, None),
    (60_000, {"compact_stall": 1, "workingset_refault_file": 400}, "compaction"),
    ((1 << 53) - 1, {"allocstall_normal": 1}, "reclaim"), (1 << 53, {"allocstall_normal": 1}, None),
    (60_000, {"allocstall_normal": 1 << 62}, None), (60_000, {"allocstall_normal": True}, None),
    (0, {"numa_hint_faults": 30_000}, "numa-balancing"),
    (0, {"numa_hint_faults": 29_999}, None),
    (0, {"numa_pages_migrated": 12_000}, "numa-balancing"),
    (0, {"numa_pages_migrated": 11_999}, None),
])  # fmt: skip
def test_a_stall_of_three_per_cent_of_the_time_is_an_episode(
    stalled_us: int, counts: dict[str, int], cause: str | None
) -> None:
    memory = {"memory": {"stalled_us": stalled_us, "counts": counts}}
    found = recorded(MemoryStalls, {}, memory)
    assert [e.cause for e in found] == [cause] * (cause is not None)
    for episode in found:
        assert episode.depth == pytest.approx(1.0 if stalled_us > 1 << 50 else 0.03)
        assert episode.cpus == [0], "no task is known"


@pytest.mark.parametrize(("pids", "cause", "cpus"), [
    ([7, 4000], "memory-limit", [1]), ([7, 8], "memory-limit", [0]),  # no CPU of the group is known
    ([7, 4000], "reclaim", [0]), ([None, 8], "reclaim", [1]),
])  # fmt: skip
def test_a_stall_is_shown_on_a_cpu_that_ran_a_task(
    pids: list[int | None], cause: str, cpus: list[int]
) -> None:
    tasks = {str(cpu): [pid, "x", 0.5] for cpu, pid in enumerate(pids) if pid is not None}
    memory = AT_LIMIT if cause == "memory-limit" else STALLS
    (episode,) = recorded(MemoryStalls, {"tasks": tasks, "memory": memory})
    assert (episode.cause, episode.cpus) == (cause, cpus)


@pytest.mark.parametrize(("stalled_us", "lasts"), [(20_000, True), (19_999, False)])
def test_a_stall_continues_above_a_lower_limit(stalled_us: int, *, lasts: bool) -> None:
    first, later = (
        {"memory": {"stalled_us": us, "counts": {"allocstall_normal": 1}}}
        for us in (100_000, stalled_us)
    )
    (episode,) = recorded(MemoryStalls, first, later)
    assert episode.end_ns == (None if lasts else 2_000_000_000)


@pytest.mark.parametrize(("group", "stalls"), [
    ([0, 900, 9, 300_000], {"reclaim": 0.2}),  # no limit is known
    ([1000, 0, 9, 300_000], {"reclaim": 0.2}),
    ([1000, 1, 9, 300_000], {"memory-limit": 0.15, "reclaim": 0.05}),
    ([1000, 1, 9, None], {"memory-limit": 0.2}),
    ([1000, 1, 9, 9_000_000], {"memory-limit": 1.0}),  # more than the whole span
])  # fmt: skip
def test_a_group_that_reached_its_limit_stalls_first(
    group: list[object], stalls: dict[str, float]
) -> None:
    memory = {"stalled_us": 400_000, "counts": {"allocstall_normal": 1}, "groups": {POD: group}}
    found = recorded(MemoryStalls, {"memory": memory})
    assert {e.cause: e.depth for e in found} == pytest.approx(stalls)


@pytest.mark.parametrize("record", [
    {"stalled_us": 300_000, "counts": {}},  # the reason for the stall is unknown
    {"stalled_us": 300_000, "counts": {"workingset_refault_file": 90_000}},  # the task reads a file
    {"stalled_us": -5, "counts": {"allocstall_normal": 40}},
    {"stalled_us": 300_000, "counts": {"allocstall_normal": "x"}},
    {"stalled_us": 300_000, "counts": {}, "groups": {POD: [None, 900, 1, 1]}, "pids": 7},
    7,
])  # fmt: skip
def test_stalls_for_files_or_unknown_reasons_cause_no_episode(record: object) -> None:
    assert episodes(None, record, record)[1] == []


# --- A watched job whose threads are stopped, from simulated records.


def stopped_episodes(states: str, *active_shares: float) -> tuple[Session, list[Episode]]:
    """The episodes of a job with a thread for each share, on CPUs from 1 on, whose state changes
    once a second as listed; a thread is active for its share of the time while it is running or
    asleep, and a fifth of that it waits for its CPU."""
    stream, active_ns = RecordStream(watch="job"), 0

    def records(state: str) -> dict[str, object]:
        nonlocal active_ns
        active_ns += synth.SAMPLE_NS if state in "RS" else 0
        threads = {str(7 + i): [7, "job", 1 + i, round(0.8 * share * active_ns),
                                round(0.2 * share * active_ns), 0, 0]
                   for i, share in enumerate(active_shares)}  # fmt: skip
        tids = dict.fromkeys(threads, state)
        return {"watched": {"threads": threads, "more": 0, "states": tids}}

    for state in states:
        stream.second({}, partial(records, state))
    return stream.session, stream.episodes("stopped")


@pytest.mark.parametrize(("state", "by", "words"), [
    ("T", "SIGSTOP", "SIGSTOP kept job from running"),
    ("t", "a debugger", "A debugger kept job from running"),
    ("F", "a frozen group", "A frozen group kept job from running"),
])  # fmt: skip
def test_a_stop_lasts_from_record_to_record(state: str, by: str, words: str) -> None:
    session, (result,) = stopped_episodes(f"RR{state}{state}R", 1.0)
    assert (result.cause, result.cpus, result.confidence) == ("stopped", [1], "measured")
    assert result.evidence == {"stopped_by": by, "threads": 1}
    assert result.end_ns is not None
    assert (result.end_ns - result.start_ns) / 1e9 == pytest.approx(2.0, abs=0.01)
    assert result.lost_s(session.now_ns) == pytest.approx(2.0, abs=0.15)
    names = victims(session, [result], {})
    assert text(sentence(session.topology, [result], names, past_tense=True)) == words


@pytest.mark.parametrize(("shares", "cpus", "depth"), [
    ((0.25,), [1], 0.25), ((0.06, 0.75), [1, 2], 0.405), ((0.04, 0.5, 1.0), [2, 3], 0.75),
    ((0.04,), [], 0.0),
])  # fmt: skip
def test_stopped_threads_lose_their_previous_activity(
    shares: tuple[float, ...], cpus: list[int], depth: float
) -> None:
    """A thread that was active for less than 5 % of the time hardly loses anything."""
    _, found = stopped_episodes("SSTT", *shares)
    assert [e.cpus for e in found] == [cpus] * bool(cpus)
    for result in found:
        assert result.depth == pytest.approx(depth, rel=0.06)
        assert result.evidence["threads"] == len(cpus)
    assert stopped_episodes("SSDD", *shares)[1] == []
