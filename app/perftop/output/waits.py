"""Who waited for a CPU, behind whom, and what can be done about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from perfprobe.frozen import frozen
from perftop.base.format import many, rough
from perftop.base.text import ranges, safe
from perftop.output.episode_words import where_briefly
from perftop.session.session import Session
from perftop.session.task_times import TaskTimes

MOST_NAME = 15
NOTICED = 0.05
"""Minimum share of waiting of a task that is counted as one that waits."""
BEHIND = 0.1
"""Minimum of what a stranger ran on the CPUs where others waited, as a share of their waiting."""
CROWD = 1.05
"""How much more than all of a CPU's time several want that are in each other's way for certain."""
NOBODY = "who ran there is not known"
SPARE = 0.5
"""A CPU that wanted less than this share of the time had room for one more task."""


@frozen
class Queue:
    """The tasks that waited most, together, and what they waited for."""

    said: str
    by: str
    evidence: list[str]
    hint: str
    cpus: list[int]
    known: bool
    """Whether it is known whom they waited for."""


@frozen
class _Crowd:
    """The threads of the job, or the processes of one name."""

    name: str
    what: str
    """What each of them is: thread or task."""
    members: Mapping[Any, TaskTimes]
    pids: set[int]

    @property
    def waiting(self) -> dict[Any, TaskTimes]:
        """The members that waited noticeably; else the one that waited most."""
        found = {k: one for k, one in self.members.items() if one.wait_s > NOTICED * one.wanted_s}
        most = max(self.members, key=lambda key: self.members[key].wait_s, default=None)
        if not found and most is not None and self.members[most].wait_s:
            return {most: self.members[most]}
        return found

    @property
    def whole(self) -> TaskTimes:
        return _sum(self.name, self.members.values())


def queue(session: Session, job: str | None) -> Queue | None:
    """`job`: name of the watched job; None: of all tasks those of one name that waited most. None:
    nobody waited."""
    times = session.run_times
    if job is not None:
        crowd = _Crowd(job, "thread", times.threads, {pid for pid, _ in times.threads})
    else:
        crowd = _most(times.tasks)
    waiting = crowd.waiting
    if not waiting:
        return None
    cpus = sorted({max(one.by_cpu, key=lambda cpu: one.by_cpu[cpu]) for one in waiting.values()})
    strangers = _strangers(times.tasks, cpus, crowd)
    mutual = _mutual(crowd, cpus, (session.now_ns - session.run.start_ns) / 1e9)
    named = [f"{safe(comm, MOST_NAME)}[{pid}]" for pid, comm in strangers[:1]]
    more = f" and {len(strangers) - 1} more" if strangers[1:] else ""
    verb = "waits" if len(waiting) == 1 else "wait"
    for_whom = [*(["each other"] if mutual else []), *(name + more for name in named)]
    behind = f"{verb} {'for' if mutual else 'behind'} {' and '.join(for_whom)}"
    place = where_briefly(session.topology, cpus, cpus[0])
    by = "its own threads" if mutual else "waiting for a CPU"
    if len(crowd.members) == 1:
        by = "others on its CPU"
    if strangers and not (mutual and _ran(crowd, times.tasks, cpus)):
        by = safe(strangers[0][1], MOST_NAME)
    return Queue(
        f"{_crowd(crowd, len(waiting))} {f'{behind} on' if for_whom else f'{verb} for'} {place}",
        by if job is not None else crowd.name,
        [*_evidence(crowd, waiting, times.tasks, job), *([] if for_whom else [NOBODY])],
        _hint(session, crowd.pids, strangers, cpus, mutual=mutual),
        cpus,
        known=bool(for_whom),
    )


def _mutual(crowd: _Crowd, cpus: Iterable[int], span_s: float) -> bool:
    """Whether some of them were in each other's way for certain: together they wanted a CPU for
    longer than there was time. Else one may have come after the other."""
    wanted_s = crowd.whole.by_cpu
    return len(crowd.members) > 1 and any(wanted_s[cpu] > CROWD * span_s for cpu in cpus)


def _ran(
    crowd: _Crowd, tasks: Mapping[tuple[int, str, int], TaskTimes], cpus: Sequence[int]
) -> bool:
    """Whether they themselves ran there for longer than all others."""
    return crowd.whole.run_s > sum(beside(tasks, cpus, crowd.pids).values())


def _evidence(
    crowd: _Crowd, waiting: Mapping[Any, TaskTimes], tasks: Mapping[Any, TaskTimes], job: str | None
) -> list[str]:
    whole = crowd.whole
    they = "they" if len(waiting) > 1 else "it"
    wanted = f"{whole.wanted_s:.{1 if whole.wanted_s >= 1 else 2}f} s"
    found = [f"{they} waited {whole.wait_s:.2f} of {wanted}"]
    if len(waiting) > 1:
        slowest = max(one.wait_s / one.wanted_s for one in waiting.values() if one.wanted_s > 0)
        found.append(f"the slowest {rough(slowest)} of its time")
    everyone = _sum("", tasks.values())
    if job is None and everyone.wait_s > 1.1 * whole.wait_s:
        found.append(f"all tasks {everyone.wait_s:.2f} of {everyone.wanted_s:.1f} s")
    return found


def _most(tasks: Mapping[tuple[int, str, int], TaskTimes]) -> _Crowd:
    """The processes of the name that waited most."""
    waits: dict[str, float] = {}
    for (_, comm, _), one in tasks.items():
        waits[comm] = waits.get(comm, 0.0) + one.wait_s
    name = max(waits, key=lambda comm: waits[comm], default="")
    pids = {pid for pid, comm, _ in tasks if comm == name}
    members = {
        pid: _sum(name, (one for key, one in tasks.items() if key[:2] == (pid, name)))
        for pid in pids
    }
    return _Crowd(safe(name, MOST_NAME), "task", members, pids)


def _sum(name: str, times: Iterable[TaskTimes]) -> TaskTimes:
    whole = TaskTimes(name)
    for one in times:
        whole.run_s += one.run_s
        whole.wait_s += one.wait_s
        for cpu, wanted_s in one.by_cpu.items():
            whole.by_cpu[cpu] = whole.by_cpu.get(cpu, 0.0) + wanted_s
    return whole


def beside(
    tasks: Mapping[tuple[int, str, int], TaskTimes], cpus: Sequence[int], own: Collection[int]
) -> dict[tuple[int, str], float]:
    """Seconds that other processes ran on these CPUs, by PID and name."""
    ran: dict[tuple[int, str], float] = {}
    for (pid, comm, cpu), one in tasks.items():
        if cpu in cpus and pid not in own:
            ran[pid, comm] = ran.get((pid, comm), 0.0) + one.run_s
    return ran


def _strangers(
    tasks: Mapping[tuple[int, str, int], TaskTimes], cpus: Sequence[int], crowd: _Crowd
) -> list[tuple[int, str]]:
    """Processes that ran where others waited, the one that ran longest first."""
    ran, waited_s = beside(tasks, cpus, crowd.pids), crowd.whole.wait_s
    found = sorted(ran, key=lambda who: -ran[who])
    return [who for who in found if ran[who] >= BEHIND * waited_s]


def _crowd(crowd: _Crowd, waiting: int) -> str:
    all_ = len(crowd.members)
    if all_ == 1:
        return crowd.name
    of = many(all_, crowd.what)
    return f"{waiting} of {of} of {crowd.name}" if waiting < all_ else f"{of} of {crowd.name}"


def _hint(
    session: Session, pids: set[int], strangers: list[tuple[int, str]], cpus: list[int], *,
    mutual: bool,
) -> str:  # fmt: skip
    """One command or sentence; '' where we know nothing better."""
    spare = _spare(session)
    held = _held(session, pids, spare)
    if held is not None:
        pid, affinity = held
        return f"taskset -acp {ranges([*cpus, *spare])} {pid}   (it may only use CPU {affinity})"
    if strangers:
        return f"chrt --idle --all-tasks --pid 0 {strangers[0][0]}"
    if mutual and not spare:
        return f"no more than {many(len(session.shown), 'thread')} at a time, one for each CPU"
    return ""


def _spare(session: Session) -> list[int]:
    """CPUs that had room."""
    util = session.whole().values["util"]
    return [session.topology[at].cpu for at in session.shown
            if session.online[at] and util[at] < SPARE]  # fmt: skip


def _held(session: Session, pids: set[int], spare: list[int]) -> tuple[int, str] | None:
    """A process that is kept off all CPUs that had room, and the CPUs that it may use."""
    for pid in sorted(pids):
        affinity = session.details.get(str(pid), {}).get("affinity")
        if isinstance(affinity, str) and spare and _apart(affinity, spare):
            return pid, safe(affinity, MOST_NAME)
    return None


def _apart(affinity: str, cpus: list[int]) -> bool:
    """Whether a list as 0-3,8 has none of these CPUs; False if it is none."""
    allowed: set[int] = set()
    for part in affinity.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or len(part) > 12:
            return False
        allowed |= {cpu for cpu in cpus if int(first) <= cpu <= int(last or first)}
    return not allowed
