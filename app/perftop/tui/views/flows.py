"""Flows of CPU time from the tasks that lose it (victims) to the tasks that take it (culprits). The
lost seconds in the verdict's report are divided among pairs of tasks. Time spent waiting for a CPU
is divided in proportion to the waiting times of the victims and the running times of other tasks
on the CPU; time lost to a sibling, to saturated memory or to the hypervisor, in proportion to the
running times of the CPU's tasks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perftop.base.text import count_noun, long_duration, short_cpu_list, time_of_day, whole_percent
from perftop.draw.strips import safe_cells
from perftop.model.confidence import TaskOnCpu, evidence_texts
from perftop.model.kinds import STEAL_CAUSE, Episode
from perftop.output.report import MIN_SHARE, Finding, Report
from perftop.output.sentences import culprits
from perftop.output.waiting import remedy_against
from perftop.output.why_report import remedy
from perftop.session.losses import WAIT_CAUSE
from perftop.session.session import Session
from perftop.session.task_times import UNKNOWN_CPU, TaskTimes
from perftop.tui.shared.episode_style import is_running_at

MIN_LOST_S = 0.3
"""Minimum loss of a flow, in seconds. Smaller flows are joined, except the largest flow of all."""
MIN_SHOWN_S = 0.05
"""Minimum loss of the joined flows, in seconds; a smaller loss would be shown as 0.0."""
MIN_FLOW_SHARE = 0.02
"""Minimum share of a loss for a victim or culprit to be listed."""
MAX_CPU_LIST_WIDTH = 60
OTHERS_NAME = "others"
UNKNOWN_TASK = 0, ""
"""Placeholder for the tasks of a CPU if none is known."""
_COMMAND_PIDS = re.compile(r"(?:-acp \S+|--pid 0|for p in) ([0-9 ]+)")
_HOUR_NS = 3600 * 10**9

TaskId = tuple[int, str]
"""PID and name of a task. PID 0: none."""
Weights = Mapping[TaskId, float]


@dataclass(slots=True)
class Flow:
    """CPU time that tasks of one name lost to tasks of another name, by one cause."""

    culprit: str
    victim: str
    cause: str
    lost_s: float = 0.0
    pairs: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """Lost seconds by PID of the culprit, PID of the victim, and CPU number."""
    wanted_s: dict[tuple[int, int], float] = field(default_factory=dict)
    """Seconds that the victims ran or waited, by their PID and the number of the CPU."""

    @property
    def key(self) -> tuple[object, ...]:
        """Identity of the flow, which stays the same while the seconds change."""
        pids = {pair[:2] for pair in self.pairs}
        return self.culprit, self.victim, self.cause, *(pids if len(pids) == 1 else ())

    @property
    def share(self) -> float:
        """Share of the wanted time that was lost; at most 1."""
        return min(1.0, self.lost_s / max(1e-9, sum(self.wanted_s.values())))

    @property
    def names(self) -> tuple[str, str]:
        """The names of culprit and victim, each with its PID or the number of tasks of that
        name."""
        culprits, victims = ({pair[i] for pair in self.pairs} - {0} for i in (0, 1))
        if not self.cause:
            counts = [f"{len(pids)} " if pids else "" for pids in (culprits, victims)]
            return counts[0] + OTHERS_NAME, counts[1] + OTHERS_NAME
        return _name_with_pids(self.culprit, culprits), _name_with_pids(self.victim, victims)

    @property
    def cpus(self) -> dict[int, float]:
        """Lost seconds by number of the CPU, the largest loss first."""
        lost_s: dict[int, float] = {}
        for (_, _, cpu), seconds in self.pairs.items():
            lost_s[cpu] = lost_s.get(cpu, 0.0) + seconds
        return dict(sorted(lost_s.items(), key=lambda item: -item[1]))

    def add(self, culprit: int, victim: int, cpu: int, lost_s: float, wanted_s: float) -> None:
        self.lost_s += lost_s
        pair = culprit, victim, cpu
        self.pairs[pair] = self.pairs.get(pair, 0.0) + lost_s
        self.wanted_s[victim, cpu] = wanted_s


def _name_with_pids(comm: str, pids: Collection[int]) -> str:
    if not comm:
        return "unknown"
    count = f"×{len(pids)}" if len(pids) > 1 else "".join(map(str, pids))
    return f"{safe_cells(comm)} {count}".rstrip()


def find_flows(
    session: Session, report: Report, positions: Collection[int], *, folded: bool
) -> list[Flow]:
    """Returns the flows on the CPUs at these positions, the largest first. Flows below MIN_LOST_S
    are joined into a last flow, so that all flows add up to the losses in the report. Returns [] if
    all flows are that small and together cost less than MIN_SHARE of the report's time. `folded`:
    tasks with one name share a flow."""
    tasks = _ReportTasks(session, report)
    by_key: dict[tuple[object, ...], Flow] = {}
    for (kind, cause), lost_s in report.sums.by_cause.items():
        if kind not in {WAIT_CAUSE[0], STEAL_CAUSE[0]}:
            continue
        for position in positions:
            cpu, seconds = session.topology[position].cpu, float(lost_s[position])
            if seconds <= 0:
                continue
            for culprit, victim, part, wanted_s in tasks.loss_parts(cause, cpu):
                names = culprit[1], victim[1], cause
                key = names if folded else (*names, culprit[0], victim[0])
                flow = by_key.setdefault(key, Flow(*names))
                # The kernel does not count stolen time as running time.
                stolen_s = part * seconds if cause == STEAL_CAUSE[1] else 0.0
                flow.add(culprit[0], victim[0], cpu, part * seconds, wanted_s + stolen_s)
    ordered = sorted(by_key.values(), key=lambda flow: -flow.lost_s)
    count = max(1, sum(flow.lost_s >= MIN_LOST_S for flow in ordered))
    total_lost_s = sum(flow.lost_s for flow in ordered)
    are_small = bool(ordered) and ordered[0].lost_s < MIN_LOST_S
    if not ordered or (are_small and total_lost_s < MIN_SHARE * report.sums.whole_s):
        return []
    flows, small_flows = ordered[:count], ordered[count:]
    if sum(flow.lost_s for flow in small_flows) >= MIN_SHOWN_S:
        joined_flow = join_flows(small_flows)
        flows.append(replace(joined_flow, culprit=OTHERS_NAME, victim=OTHERS_NAME, cause=""))
    return flows


def join_flows(parts: Sequence[Flow]) -> Flow:
    """Returns the sum of these flows, with the names and the cause of the first."""
    total = replace(parts[0], lost_s=0.0, pairs={}, wanted_s={})
    for flow in parts:
        for (culprit, victim, cpu), seconds in flow.pairs.items():
            total.add(culprit, victim, cpu, seconds, flow.wanted_s[victim, cpu])
    return total


class _ReportTasks:
    """The tasks of a report, by the CPU on which they ran or waited."""

    def __init__(self, session: Session, report: Report) -> None:
        self._session, self._report, totals = session, report, report.totals
        self._by_cpu: dict[int, dict[TaskId, TaskTimes]] = {}
        for (pid, comm, cpu), times in totals.times.tasks.items():
            self._by_cpu.setdefault(cpu, {})[pid, comm] = times
        self._job_s: dict[int, float] = {}
        """Seconds that the watched job ran or waited, by CPU."""
        self._job_pids = {pid for pid, _ in totals.times.threads} if report.job else set()
        for thread in totals.times.threads.values() if report.job else ():
            for cpu, wanted_s in thread.by_cpu.items():
                self._job_s[cpu] = self._job_s.get(cpu, 0.0) + wanted_s
        self._episodes = session.episodes(totals.start_ns, totals.end_ns)

    def loss_parts(self, cause: str, cpu: int) -> Iterator[tuple[TaskId, TaskId, float, float]]:
        """Yields, for each pair of tasks: the culprit, the victim, the pair's share of the CPU's
        loss, and the seconds that the victim wanted. The shares add up to 1."""
        times = self._by_cpu.get(cpu, {})
        is_wait = cause == WAIT_CAUSE[1]
        victims = _normalize_weights(
            {task: t.wait_s if is_wait else t.run_s for task, t in times.items()}
        )
        if self._report.job is not None:
            victims = {(min(self._job_pids, default=0), self._report.job): 1.0}
            times = {task: TaskTimes("", self._job_s.get(cpu, 0.0)) for task in victims}
        for victim, lost in victims.items():
            run = times.get(victim, TaskTimes(""))
            wanted_s = run.wanted_s if is_wait else run.run_s + run.wait_s
            culprits = self._other_run_times(victim, cpu) if is_wait else self._culprits(cause, cpu)
            for culprit, part in _normalize_weights(culprits).items():
                yield culprit, victim, lost * part, wanted_s

    def _other_run_times(self, victim: TaskId, cpu: int) -> Weights:
        """Returns the run times of the other tasks on the CPU, and that of the victim if its
        threads wanted more time than the CPU has. If there are no tasks, returns the run times of
        short-lived processes whose CPU is unknown."""
        own_pids = self._job_pids or {victim[0]}
        tasks = self._by_cpu.get(cpu, {})
        ran_s = {task: t.run_s for task, t in tasks.items() if task[0] not in own_pids}
        own_times = [t for task, t in tasks.items() if task[0] in own_pids]
        excess_s = sum(t.wanted_s for t in own_times) - self._report.totals.times.covered_s
        if excess_s > 0:
            ran_s[victim] = min(excess_s, sum(t.run_s for t in own_times))
        return ran_s or {task: t.run_s for task, t in self._by_cpu.get(UNKNOWN_CPU, {}).items()}

    def _culprits(self, cause: str, cpu: int) -> Weights:
        """Returns the run times of the tasks that episodes on this CPU name as culprits."""
        if cause == STEAL_CAUSE[1]:
            return {(0, cause): 1.0}
        core = next((core for core in self._session.cores if cpu in core), [])
        episodes = [e for e in self._episodes if e.cause == cause and cpu in e.cpus]
        weights: dict[TaskId, float] = {}
        for task in (task for episode in episodes for task in culprits(episode)):
            if cause != "sibling" or task.cpu in core:
                key = task.pid, task.comm
                times = self._by_cpu.get(task.cpu, {}).get(key)
                weights[key] = 0.1 if times is None else times.run_s
        return weights


def _normalize_weights(weights: Weights) -> dict[TaskId, float]:
    """Returns the weights as shares that add up to 1, without tasks whose share is small."""
    total = sum(weights.values())
    large = {task: w for task, w in weights.items() if w >= max(1e-9, MIN_FLOW_SHARE * total)}
    total = sum(large.values())
    return {task: w / total for task, w in large.items()} or {UNKNOWN_TASK: 1.0}


# --- the details of a flow

CAUSE_EXPLANATIONS = {
    "sibling": "both run on the two threads of one core",
    "scheduler": "one runs while the other waits for the CPU",
    "package": "both share the clock of one package",
    "memory": "both use the memory of one package, which is saturated",
    "cache": "both keep their data in one L3, and it misses more often than before",
    "hypervisor": "the hypervisor runs others, or enforces a cap on this VM",
    "": "losses that are each small",
}


def flow_details(
    session: Session, report: Report, flow: Flow, *, is_largest: bool
) -> list[tuple[str, str]]:
    """Returns the labels and texts of the details of a flow. `is_largest`: whether the flow is the
    largest of its cause, to which the report's sentence about the cause applies."""
    finding = next((f for f in report.findings if f.cause[1] == flow.cause), None)
    cpus, end_ns = flow.cpus, report.interval.time_ns
    recent = session.episodes(end_ns - _HOUR_NS, end_ns)
    alike = [e for e in recent if (e.kind, e.cause) == ("neighbour", flow.cause)]
    episodes = [e for e in alike if not cpus.keys().isdisjoint(e.cpus)]
    running = [e for e in episodes if is_running_at(e, end_ns)]
    newest = max(episodes, key=lambda e: e.start_ns, default=None)
    confidence = finding.confidence if finding is not None else "unknown"
    texts = [("cause", f"{CAUSE_EXPLANATIONS.get(flow.cause, flow.cause)}; {confidence}")]
    evidence = [] if newest is None else evidence_texts(flow.cause, newest.evidence)
    if finding is not None and is_largest and (flow.cause == WAIT_CAUSE[1] or not evidence):
        evidence = finding.evidence
    if evidence := [piece for piece in evidence if not piece.startswith("who:")]:
        texts.append(("evidence", safe_cells(" · ".join(evidence))))
    if running:
        start_ns = min(e.start_ns for e in running)
        start = f"{time_of_day(session.unix_s(start_ns))}, {long_duration(end_ns - start_ns)}"
        count = len({e.start_ns for e in episodes})
        texts.append(("since", start + (f"; {count} times in the last hour" if count > 1 else "")))
    cpu_list = short_cpu_list(cpus, MAX_CPU_LIST_WIDTH)
    pairs = len({pair[:2] for pair in flow.pairs})
    texts.append(("where", f"{count_noun(pairs, 'pair')} on {cpu_list}" if pairs > 1 else cpu_list))
    if command := _remedy(session, flow, finding, is_largest=is_largest):
        texts.append(("try", safe_cells(command)))
        named_pids, culprits = _command_pids(command), {pid for pid, _, _ in flow.pairs} - {0}
        scope = f"for all {len(culprits)}" if 0 < len(named_pids) < len(culprits) else "expected"
        gain = f"gets back up to {flow.lost_s:.1f} s, {whole_percent(flow.share)} of its time"
        counts = {} if newest is None else newest.evidence
        ipc, ipc_alone = (counts.get(key) for key in ("ipc", "ipc_alone"))
        if isinstance(ipc, float) and isinstance(ipc_alone, float):
            gain = f"back to IPC {ipc_alone:.2f}, from {ipc:.2f}"
        texts.append(("", f"{scope}: {flow.names[1]} {gain}"))
    return texts


def _command_pids(command: str) -> set[int]:
    return {int(pid) for pids in _COMMAND_PIDS.findall(command) for pid in pids.split()}


def _remedy(session: Session, flow: Flow, finding: Finding | None, *, is_largest: bool) -> str:
    """Returns a command (never against a process that has ended) or advice; '' if none is known."""
    culprits: dict[TaskId, float] = {}
    for (pid, _, _), seconds in flow.pairs.items():
        culprits[pid, flow.culprit] = culprits.get((pid, flow.culprit), 0.0) + seconds
    remedies = []
    if finding is not None and is_largest:  # the cause may also have culprits outside this flow
        named_pids = _command_pids(finding.hint)
        remedies = [finding.hint] if named_pids <= {pid for pid, _ in culprits} else []
    for pid, comm in sorted(culprits, key=lambda task: -culprits[task]) if flow.cause else ():
        if flow.cause == WAIT_CAUSE[1] and pid and comm != flow.victim:
            remedies.append(remedy_against(session, pid, comm))
        elif flow.cause != WAIT_CAUSE[1]:
            evidence = {"who": [TaskOnCpu(pid, comm, -1)]} if pid else {}
            episode = Episode("neighbour", [], 0, cause=flow.cause, evidence=evidence)
            remedies.append(remedy(session, ("neighbour", flow.cause), episode, [*flow.cpus]))
    by_cpu = [session.snapshot.activity_on(str(row.cpu)) for row in session.topology]
    running = {activity.task.pid for activities in by_cpu for activity in activities}
    remedies = [text for text in remedies if running.issuperset(_command_pids(text))]
    return next(filter(None, remedies), "")
