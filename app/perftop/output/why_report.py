"""What was looked for on every machine, and what was found: the table of one that is well, and what
was ruled out on one that is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from perfprobe.frozen import field, frozen
from perftop.base.format import many, percent, rough
from perftop.base.text import ranges, safe
from perftop.base.times import length
from perftop.model.episode import Episode
from perftop.model.machine_totals import MEMORY, OF_BEST
from perftop.output import sentences as phrases
from perftop.output.evidence import pieces, where_briefly, worded
from perftop.output.sentences import OF_CYCLES
from perftop.session.interval import Interval
from perftop.session.losses import OTHER, STEAL, WAIT, Cause, Sums
from perftop.session.missing import by_reason, lasting
from perftop.session.run_times import Times
from perftop.session.session import Session


@frozen
class Check:
    """`share`: of the time that was lost to it."""

    key: str
    looked_for: str
    """'': its absence is told, no more."""
    found: str
    share: float
    brief: str
    """The same in a few words, for what was ruled out."""


def checks(session: Session, sums: Sums, episodes: Sequence[Episode]) -> list[Check]:
    """What could be seen here, the costliest first."""
    whole, shares = session.whole(), sums.shares()
    chosen = session.evaluator.chosen
    clock = sum(s for (kind, _), s in shares.items() if kind in OF_CYCLES)
    halts = sum(s for (kind, _), s in shares.items() if kind in {"involuntary-halt", "throttle"})
    found: list[Check] = []
    if chosen["busy_hz"] and (told := _clocks(session, whole)):
        found.append(Check("clock", "a clock below its ceiling", told, clock, f"clock ({told})"))
    if session.run_times.waits_told:
        share = shares.get(WAIT, 0.0)
        waited = f"{sums.waited_s.sum():.1f} s of {sums.whole_s:.0f} s"
        found.append(Check("wait", "tasks waiting for a CPU", waited, share,
                           f"waiting for a CPU ({percent(share)} %)"))  # fmt: skip
    if chosen["involuntary"]:
        share = whole.values.over("involuntary", session.shown)
        told = _firmware(whole) or f"{_small(share)} of all time"
        found.append(Check("halts", "involuntary halts", told, halts,
                           f"involuntary halts ({_small(share)})"))  # fmt: skip
    if any(len(core) > 1 for core in session.cores) and chosen["ipc"]:
        share = shares.get(("neighbour", "sibling"), 0.0)
        found.append(Check("sibling", "tasks slowed by a sibling",
                           "none ran slower than it ran alone", share, "siblings"))  # fmt: skip
    if OF_BEST in whole.machine and chosen["ipc"]:
        share = shares.get(("neighbour", "memory"), 0.0)
        moved = sum(whole.machine[name] for name in MEMORY) / 1e9
        told = f"{moved:.1f} GB/s" if isfinite(moved) else "not read"
        found.append(Check("memory", "tasks slowed by the memory", told, share,
                           f"memory bandwidth ({told})"))  # fmt: skip
    if chosen["steal"]:
        stolen = whole.values.over("steal", session.shown)
        told = f"{_small(stolen)} of all time" if session.hello.virtualisation else "no hypervisor"
        found.append(Check("steal", "steal", told, shares.get(STEAL, 0.0),
                           f"steal ({_small(stolen)})"))  # fmt: skip
    heat = whole.machine.get("temperature_c", float("nan"))
    if isfinite(heat) and not any(e.cause == "thermal" for e in episodes):
        found.append(Check("heat", "", f"{heat:.0f} °C", 0.0, f"heat ({heat:.0f} °C)"))
    return sorted(found, key=lambda check: -check.share)


def _small(share: float) -> str:
    return f"{100 * share:.{2 if share < 0.001 else 1}f} %" if isfinite(share) else "unknown"


def _clocks(session: Session, whole: Interval) -> str:
    """Mean clock and ceiling of the cores that worked."""
    values, cores = whole.values, session.sieve.cores
    if len(whole.ceilings.low_hz) != len(cores.lists):
        return ""
    ceiling = cores.by_cpu(whole.ceilings.low_hz)
    busy, util = values["busy_hz"], values["util"]
    rows = [at for at in session.shown
            if util[at] >= 0.1 and np.isfinite(busy[at]) and np.isfinite(ceiling[at])]  # fmt: skip
    if not rows:
        return ""
    weights = util[rows]
    clock, most = (float(np.average(part[rows], weights=weights)) for part in (busy, ceiling))
    active = len({int(cores.of_cpu[at]) for at in rows})
    return f"{clock / 1e9:.2f} of {most / 1e9:.2f} GHz, {many(active, 'core')} active"


def _firmware(whole: Interval) -> str:
    count = whole.counts.get("smi")
    if count is None or not np.isfinite(count).any():
        return ""
    return f"{many(int(np.nanmax(count)), 'SMI')}"


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
    members: Mapping[Any, Times]
    pids: set[int]

    @property
    def waiting(self) -> dict[Any, Times]:
        """The members that waited noticeably; else the one that waited most."""
        found = {k: one for k, one in self.members.items() if one.wait_s > NOTICED * one.wanted_s}
        most = max(self.members, key=lambda key: self.members[key].wait_s, default=None)
        if not found and most is not None and self.members[most].wait_s:
            return {most: self.members[most]}
        return found

    @property
    def whole(self) -> Times:
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


def _ran(crowd: _Crowd, tasks: Mapping[tuple[int, str, int], Times], cpus: Sequence[int]) -> bool:
    """Whether they themselves ran there for longer than all others."""
    return crowd.whole.run_s > sum(beside(tasks, cpus, crowd.pids).values())


def _evidence(
    crowd: _Crowd, waiting: Mapping[Any, Times], tasks: Mapping[Any, Times], job: str | None
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


def _most(tasks: Mapping[tuple[int, str, int], Times]) -> _Crowd:
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


def _sum(name: str, times: Iterable[Times]) -> Times:
    whole = Times(name)
    for one in times:
        whole.run_s += one.run_s
        whole.wait_s += one.wait_s
        for cpu, wanted_s in one.by_cpu.items():
            whole.by_cpu[cpu] = whole.by_cpu.get(cpu, 0.0) + wanted_s
    return whole


def beside(
    tasks: Mapping[tuple[int, str, int], Times], cpus: Sequence[int], own: Collection[int]
) -> dict[tuple[int, str], float]:
    """Seconds that other processes ran on these CPUs, by PID and name."""
    ran: dict[tuple[int, str], float] = {}
    for (pid, comm, cpu), one in tasks.items():
        if cpu in cpus and pid not in own:
            ran[pid, comm] = ran.get((pid, comm), 0.0) + one.run_s
    return ran


def _strangers(
    tasks: Mapping[tuple[int, str, int], Times], cpus: Sequence[int], crowd: _Crowd
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


TOLD = 0.01
"""A cause is told from this share on."""
MOST_TOLD = 4
ALL = 0.97
"""Share of the time looked at from which it is all of it."""
STILL_NS = 1_000_000_000
"""A cause that was seen so short before the end still acts."""
MOST_STOLEN = 3
"""CPUs of which stolen time is told one by one."""


@frozen
class Finding:
    cause: Cause
    share: float
    lost_s: float
    said: str
    by: str
    """The cause in a few words."""
    cpus: list[int]
    for_s: float | None
    """Seconds of the time looked at in which it acted; None: not known."""
    running: bool
    confidence: str
    evidence: list[str]
    hint: str
    """What to do about it; '' where we know nothing better."""
    details: dict[str, Any] = field(default_factory=dict)
    """The evidence as in an episode's line of JSON."""

    @property
    def unit(self) -> str:
        return "cycles" if self.cause[0] in phrases.OF_CYCLES else "time"


@frozen
class Report:
    job: str | None
    """Name of the watched job; None: all working CPUs."""
    sums: Sums
    findings: list[Finding]
    """All causes, the costliest first."""
    checks: list[Check]
    not_seen: list[tuple[str, str, str | None]]
    """What, why, and what helps."""
    hides: str
    """What would look like something else for that; '' if nothing would."""
    elapsed_s: float
    samples: int
    suspect: int

    @property
    def told(self) -> list[Finding]:
        return [one for one in self.findings if one.share >= TOLD]


def report(
    session: Session, first_ns: int, name: str | None = None, *, past: bool = False
) -> Report:
    """`first_ns`: raw time of the first frame. `name`: of a command that we ran. `past`: it is a
    recording."""
    sums = session.lost_time()
    job = name or _job(session)
    episodes = session.episodes(first_ns, session.now_ns)
    span_ns = session.now_ns - first_ns
    found = [
        _finding(
            session, sums, cause, _of(cause, episodes, session.now_ns), job, span_ns, past=past
        )
        for cause, share in sums.shares().items()
        if share > 0
    ]
    reasons = by_reason(lasting(session), lambda missing: _NAMES.get(missing.what))
    unseen = [(", ".join(what), why, fix) for (why, fix), what in reasons.items()]
    if not session.run_times.waits_told:
        unseen.append(("waiting for a CPU", "known after 3 s, if this kernel tells it", None))
    return Report(
        job, sums, found, checks(session, sums, episodes),
        unseen or [OWN_WAITS], _hides(session), span_ns / 1e9, max(0, session.frames - 1),
        session.suspect_samples,
    )  # fmt: skip


_NAMES = {
    "busy_hz": "clock", "ipc": "IPC", "involuntary": "halts", "turbo_ceiling_hz": "turbo ceiling",
    "steal": "steal", "tasks": "who runs", "smt": "SMT states", OF_BEST: "memory bandwidth",
}  # fmt: skip
"""What a cause could hide behind if it is missing, by key."""


OWN_WAITS = ("a program's own waits", "locks, disks, network are not counted", None)
"""What no counter shows; told where all else was seen."""


def _hides(session: Session) -> str:
    chosen = session.evaluator.chosen
    if not chosen["busy_hz"]:
        guest = session.hello.virtualisation is not None
        beside = " or a busy sibling outside" if guest else ""
        return f"A low clock{beside} would look like slow code here."
    if not session.sieve.turbo.cpus.any():
        return "No turbo table is known: clocks are held against the base clock."
    return ""


def _job(session: Session) -> str | None:
    """Name of the watched job; of one that is watched by its PID, that of most of its threads."""
    name = session.neighbours.watching.name
    if name is None or not name.isdecimal():
        return None if name is None else safe(name, 16)
    names = [one.comm for one in session.run_times.threads.values()]
    return safe(max(set(names), key=names.count), 16) if names else f"process {name}"


def _of(cause: Cause, episodes: Sequence[Episode], now_ns: int) -> list[Episode]:
    """The episodes of that cause, the one that cost most first."""
    alike = [cause]
    if cause == STEAL:
        alike.append(("neighbour", "hypervisor"))
    found = [e for e in episodes if (e.kind, e.cause) in alike]
    return sorted(found, key=lambda e: -e.lost_s(now_ns))


def _finding(
    session: Session, sums: Sums, cause: Cause, episodes: list[Episode], job: str | None,
    span_ns: int, *, past: bool,
) -> Finding:  # fmt: skip
    lost_s = sums.by_cause[cause]
    cpus = [row.cpu for row, s in zip(session.topology, lost_s.tolist(), strict=True)
            if s > 0.05 * float(lost_s.max())]  # fmt: skip
    now_ns = session.now_ns
    running = not past and (
        any(e.end_ns is None or e.end_ns > now_ns - STILL_NS for e in episodes) or not episodes
    )
    worst = episodes[0] if episodes else None
    known: dict[str, Any] = {
        "cause": cause, "share": sums.share(cause), "lost_s": float(lost_s.sum()), "cpus": cpus,
        "for_s": _length_s(episodes, now_ns, span_ns), "running": running,
        "said": phrases.said(session, cause, cpus, episodes, job or "", over=not running),
        "by": phrases.subject(cause, worst), "hint": phrases.hint(cause, worst),
        "confidence": "measured" if worst is None else worst.confidence,
        "evidence": [] if worst is None else _pieces(worst),
        "details": {} if worst is None else worded(worst.evidence),
    }  # fmt: skip
    if cause[1] == OTHER:
        known |= {"confidence": "unknown", "evidence": ["no limit was seen to act"]}
    if cause == STEAL:
        known["evidence"] = [_stolen(session, lost_s, cpus, span_ns)]
        known["confidence"] = "measured"
    if cause == WAIT and (waits := queue(session, job)) is not None:
        if job is None:
            known["for_s"] = min(session.run_times.waiting_s, span_ns / 1e9)
        known |= {
            "said": waits.said, "by": waits.by, "evidence": waits.evidence, "hint": waits.hint,
            "cpus": waits.cpus, "confidence": "measured" if waits.known else "unknown",
        }  # fmt: skip
    return Finding(**known)


def _pieces(worst: Episode) -> list[str]:
    """The evidence without the clocks, which stand in the line above."""
    drop = {"busy_hz", "ceiling_hz"} if worst.kind in phrases.OF_CYCLES else set()
    evidence = {key: value for key, value in worst.evidence.items() if key not in drop}
    return pieces(worst.cause, evidence)


def _stolen(session: Session, lost_s: np.ndarray, cpus: Sequence[int], span_ns: int) -> str:
    if len(cpus) <= MOST_STOLEN:
        each = [f"{lost_s[session.position[cpu]]:.2f} s on CPU {cpu}" for cpu in cpus]
        return f"steal {' and '.join(each)}, in {length(span_ns)}"
    return f"steal {lost_s.sum():.2f} s on {many(len(cpus), 'CPU')}, in {length(span_ns)}"


def _length_s(episodes: Sequence[Episode], now_ns: int, span_ns: int) -> float | None:
    """Seconds of the last `span_ns` in which at least one of them ran; None: there are none."""
    if not episodes:
        return None
    whole, until_ns = 0, now_ns - span_ns
    for episode in sorted(episodes, key=lambda e: e.start_ns):
        end_ns = now_ns if episode.end_ns is None else min(episode.end_ns, now_ns)
        whole += max(0, end_ns - max(episode.start_ns, until_ns))
        until_ns = max(until_ns, end_ns)
    return whole / 1e9


def all_the_time(finding: Finding, elapsed_s: float) -> bool:
    return finding.for_s is not None and finding.for_s >= ALL * elapsed_s
