"""The parts of a report of `perftop why`: findings on causes; clues to losses without an episode;
and the losses that could be measured, so that they can be ruled out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.text import count_noun, percent, safe_text, short_duration, whole_percent
from perftop.model.confidence import Confidence, TaskOnCpu
from perftop.model.evaluation import MEMORY_COUNTERS, MEMORY_SHARE
from perftop.model.kinds import (
    COSTLY_SETTINGS,
    KERNEL_WORK,
    KINDS,
    LOG_CLUES,
    STEAL_CAUSE,
    WASTED_KERNEL_WORK,
    Episode,
    cause_of,
    kind_of,
    kind_of_cause,
)
from perftop.model.smt import STATES
from perftop.session.interval import Interval
from perftop.session.losses import UNEXPLAINED, WAIT_CAUSE, CauseKey, KernelWork, LossSums
from perftop.session.run_sums import Totals
from perftop.session.session import Session
from perftop.session.task_times import JobTime

MIN_SHARE = 0.01
"""Minimum cost of a named cause, as a share of the time."""
MIN_VICTIM_SHARE = 0.05
"""Minimum share of their own time that tasks must lose to a cause below MIN_SHARE to be named."""
MIN_WANTED_S = 0.1
"""Minimum time in s that a job must have run or waited for a CPU for its losses to be given as
shares. It is the time between two task records, which can miss short-lived tasks."""
MIN_RECORDED_SHARE = 0.9
"""Minimum share of the command's CPU time that task records must cover for its waits to be exact.
Below it, they are lower bounds."""
MAX_CAUSES = 4
"""Maximum number of causes that are named. Further ones are only counted."""


@dataclass(frozen=True)
class Finding:
    cause: CauseKey
    share: float
    lost_s: float
    text: str
    culprit: str
    """The cause in a few words, for use inside a sentence."""
    cpus: list[int]
    active_s: float | None
    """Seconds of the observed time in which the cause was active; None if unknown."""
    is_running: bool
    confidence: Confidence
    evidence: list[str]
    hint: str
    """A remedy; '' if none is known."""
    worst: Episode | None = None
    """The episode of this cause that cost most in the span; None if it has none."""
    details: dict[str, Any] = field(default_factory=dict)
    """The evidence, as in an episode's JSON line."""
    headline: str = ""
    """A sentence with the victim, the loss, the cause and the place, without a full stop. If it is
    '', the answer gives the cause's share of the whole time."""
    victim_share: float = 0.0
    """Share of their own time that the headline's tasks lose; 0 if they needed little CPU time."""
    waiting_tasks: frozenset[tuple[int, str]] = frozenset()
    culprit_tasks: tuple[TaskOnCpu, ...] = ()
    """PIDs and names of the tasks that waited for a CPU, and the tasks that ran instead."""
    awaited: str = ""
    """What these tasks waited for, such as "behind hog[7] and other tasks"; '' if unknown."""
    other_waits: tuple[Finding, ...] = ()
    """Waits of further tasks in the same span, the longest first. `share` counts them all."""

    @property
    def is_named(self) -> bool:
        """Whether the cause costs, or its victims lose, enough to be named."""
        return self.share >= MIN_SHARE or self.victim_share >= MIN_VICTIM_SHARE

    @property
    def unit(self) -> str:
        kind = KINDS.get(self.cause[0])
        return "cycles" if kind is not None and kind.costs_cycles else "time"


class Clue(NamedTuple):
    """A likely reason for lost time whose size is not counted."""

    key: str
    text: str
    hint: str
    highest_share: float = nan
    """Upper bound of the share of the time lost in this way; NaN if unknown."""
    lost_share: float = nan
    """Lost share of the time, according to kernel samples; NaN without samples."""
    activity: str = ""
    """The words after "spends … of its time" in a sentence on the loss."""


@dataclass(frozen=True)
class Check:
    """A kind of loss that was checked for, and the result."""

    key: str
    loss_name: str
    """Name of the loss in the table; '' if it is only in the list of ruled-out losses."""
    result: str
    share: float
    """Share of the time that was lost in this way; NaN if unknown."""
    brief_result: str
    """The result in a few words, for the list of ruled-out losses."""
    kinds: tuple[str, ...] = ()
    """Kinds of the episodes that report the loss."""
    measured_share: float = 0.0
    """Measured share of the time (in interrupts, for example), partly lost; NaN if unknown."""

    def is_ruled_out(self, min_share: float, running_kinds: Collection[str] = ()) -> bool:
        """Returns whether the loss is certainly below `min_share`, no episode of it runs, and the
        measured share is below MIN_SHARE or unknown."""
        is_low = self.share < min_share and not self.measured_share >= MIN_SHARE
        return is_low and not set(self.kinds).intersection(running_kinds)


def seen_share(seen_s: float, used_s: float) -> float:
    """Returns the share of a command's CPU time (`used_s`) that records of its threads cover.
    Children that outlive the command are in these records, but not in its CPU time."""
    return min(1.0, seen_s / used_s) if used_s else 1.0


@dataclass(frozen=True)
class Report:
    session: Session
    totals: Totals
    interval: Interval
    """The numbers of the span."""
    episodes: list[Episode]
    job: str | None
    """Name of the watched job; None if the report is about all busy CPUs."""
    is_past: bool
    """Whether the span is over, so that causes are no longer active."""
    past_tense: bool
    """Whether sentences about the span are in the past tense."""
    is_whole_run: bool
    findings: list[Finding] = field(default_factory=list)
    """All causes of losses, the costliest first."""
    seen_share: float = nan
    """Share of the command's CPU time that records of its threads cover; NaN where unknown."""

    @property
    def span_ns(self) -> int:
        return self.totals.end_ns - self.totals.start_ns

    @property
    def sums(self) -> LossSums:
        return self.totals.losses

    @property
    def has_missed_tasks(self) -> bool:
        """Whether shares are only of a part of the command: short-lived tasks were missed."""
        return self.seen_share < MIN_RECORDED_SHARE

    @cached_property
    def shares(self) -> dict[CauseKey, float]:
        """Share of the time that was lost to each cause, the largest first."""
        return self.sums.shares()

    @property
    def is_too_short(self) -> bool:
        """Whether the job's running and waiting time is too short to report shares of it."""
        return self.job is not None and 0 < self.sums.whole_s < MIN_WANTED_S

    @property
    def job_time(self) -> JobTime | None:
        """Times of the job's threads by use; None if no job is watched, or if they are unknown."""
        return self.totals.times.job_time()

    def job_time_share(self, *uses: str) -> float:
        """Returns the share of the time that the job's threads spent on these uses, as fields of
        JobTime; 0 if unknown."""
        times = self.job_time
        used_s = 0.0 if times is None else sum(getattr(times, use) for use in uses)
        return float(used_s / sum(times)) if times is not None and used_s > 0 else 0.0

    @property
    def blocked_share(self) -> float:
        """Share of the time for which the job's threads waited for the disk or were blocked in the
        kernel for an unknown reason; 0 if unknown."""
        return self.job_time_share("disk_s", "blocked_s")

    @property
    def lost_ratio(self) -> float:
        """Share of the wanted time that all causes took; NaN where unknown."""
        return nan if self.is_too_short else self.sums.lost_ratio

    @property
    def named_findings(self) -> list[Finding]:
        """The causes that cost at least MIN_SHARE, or whose victims lose MIN_VICTIM_SHARE; [] if
        the time is too short for shares."""
        return [] if self.is_too_short else [f for f in self.findings if f.is_named]

    @cached_property
    def checks(self) -> list[Check]:
        """The losses that can be measured here, the costliest first."""
        checks = [*_own_time_checks(self), *_shared_hardware_checks(self)]
        return sorted(checks, key=lambda check: -np.nan_to_num(check.share))

    @cached_property
    def clues(self) -> list[Clue]:
        return find_clues(self)

    @cached_property
    def ruled_out_losses(self) -> list[str]:
        """Brief results on the losses that certainly cost less than each named cause or, if none is
        named, than MIN_SHARE; [] if no thread of the job was seen."""
        if self.job and not self.totals.times.threads:
            return []
        min_share = min((finding.share for finding in self.named_findings), default=MIN_SHARE)
        # An episode that has just begun has cost little so far.
        topology, wanted_s = self.session.topology, self.sums.wanted_s + self.sums.waited_s
        cpus = {topology[row].cpu for row in np.flatnonzero(wanted_s > 0)}
        running_kinds = {
            kind_of(e).key
            for e in self.episodes
            if (e.end_ns is None or e.end_ns > self.totals.end_ns)
            and not (e.cpus and cpus.isdisjoint(e.cpus))
        }
        checks = (c for c in self.checks if c.is_ruled_out(min_share, running_kinds))
        return [check.brief_result for check in checks]


# --- Clues to losses whose size is not counted: the kernel's log, settings, and slow memory.

MAX_OWNER_LENGTH = 40
MAX_SPARE_UTIL = 0.5
"""Utilisation below which a governor may choose a low clock because of low demand."""
MIN_KERNEL_SHARE = 0.15
"""Minimum share of the busy time in the kernel for which a setting that slows only the kernel is a
clue. File and network servers spend this much there."""


def find_clues(report: Report) -> list[Clue]:
    """Returns clues from kernel messages, kernel samples, settings that slow programs down, and
    memory counters. A setting that slows only the kernel must cost busy kernel time."""
    session, values, result = report.session, report.interval.values, _kernel_clues(report)
    for kind, name in session.hints.messages:
        if kind in LOG_CLUES:
            text, remedy = LOG_CLUES[kind]
            result.append(Clue(kind, f"the kernel's log names {name}: {text}", remedy))
    kernel = job_mean(report, values["kernel_cycles"])
    if not isfinite(kernel):
        system, util = (job_mean(report, values[key]) for key in ("system", "util"))
        kernel = system / util if util > 0 else nan
    for setting in COSTLY_SETTINGS:
        value = safe_text(session.hello.settings.get(setting.key, ""), MAX_OWNER_LENGTH)
        is_slow = kernel >= MIN_KERNEL_SHARE or not setting.kernel_only
        if setting.work[0] in {"clock", "lock"} and session.hints.kernel_span_s:
            continue  # kernel samples show the cost of this setting
        if value and (not setting.values or value in setting.values) and is_slow:
            text, share = setting.text.format(value), nan
            price = safe_text(session.hello.settings.get(setting.price_key, ""), MAX_OWNER_LENGTH)
            if setting.kernel_only and isfinite(kernel):
                # A call takes at least the measured price, which limits the calls that fit into
                # kernel time.
                price_us = float(number[0]) if (number := re.match(r"[0-9.]+", price)) else inf
                share = kernel * max(0.0, 1 - setting.baseline_price_us / price_us)
                text = f"{whole_percent(kernel)} of the time is in the kernel, with {text}"
            text += setting.price_text.format(price) if price else ""
            text += f": up to {whole_percent(share)} of the time" if isfinite(share) else ""
            result.append(Clue(setting.key, text, setting.remedy, share))
    return [*_memory_limit_clue(report), *result, *_memory_clues(report)]


def _memory_limit_clue(report: Report) -> Iterator[Clue]:
    """Yields a clue if the watched job waited for the disk while its control group was at its
    memory limit. The kernel counts a wait for a file that is read again as one for the disk."""
    job_time, job_pids = report.job_time, {pid for pid, _ in report.totals.times.threads}
    groups = report.session.hints.groups_at_limit.values()
    group = next((group for group in groups if not group.pids.isdisjoint(job_pids)), None)
    if group is None or job_time is None or job_time.disk_s < MIN_WORK_SHARE * sum(job_time):
        return
    yield Clue(
        "memory-limit-reads",
        f"its group was at its memory limit of {group.limit_bytes / 1e6:.0f} MB {group.hits} times"
        f" and read {4096 * group.pages_read_back / 1e9:.1f} GB back, and it waited"
        f" {job_time.disk_s:.1f} s for the disk: files may be read again because memory is short",
        cause_of("memory-limit").remedy,
    )


MIN_LOST_SHARE, MIN_WORK_SHARE = 0.02, 0.1
"""Minimum shares of kernel samples that are a clue: wasted work, and other work in one function."""


def _kernel_clues(report: Report) -> list[Clue]:
    """Returns clues from kernel samples of the watched job or else all tasks: one of each kind."""
    session, totals, wanted_s = report.session, report.totals, report.sums.whole_s
    hints = session.hints
    pids = {pid for pid, _ in totals.times.threads}
    if not hints.kernel_span_s or not wanted_s > 0:
        return []
    by_kind: dict[str, dict[KernelWork, float]] = {}
    share_per_s = totals.elapsed_s / wanted_s / hints.kernel_span_s
    for work, seconds in hints.kernel_s.items():
        if work.pid in pids or session.neighbours.watched_job.name is None:
            kind = work.kind or f" {work.function}"  # work without a kind is summed by function
            by_kind.setdefault(kind, {})[work] = seconds * share_per_s
    clues: dict[str, Clue] = {}
    for shares in sorted(by_kind.values(), key=lambda shares: -sum(shares.values())):
        share, main = min(1.0, sum(shares.values())), max(shares, key=lambda work: shares[work])
        kind = main.kind
        is_lost = kind in WASTED_KERNEL_WORK
        min_share = MIN_LOST_SHARE if is_lost else MIN_WORK_SHARE
        if kind in clues or kind not in KERNEL_WORK or share < min_share:
            continue
        text, remedy = KERNEL_WORK[kind]
        for setting in COSTLY_SETTINGS:
            if setting.work[0] == kind != "" and main.function.startswith(setting.work[1]):
                remedy = setting.remedy
        activity = text.format(main.function)
        other_count = len({work.pid for work in shares}) - 1
        others_text = f" and {other_count} more" if other_count else ""
        text = f"{whole_percent(share)} of the time is spent {activity},"
        text += f" by {main.comm}[{main.pid}]{others_text}"
        lost_share, activity = (share, activity) if is_lost else (nan, "")
        clues[kind] = Clue(f"kernel-{kind or 'function'}", text, remedy, nan, lost_share, activity)
    return [*clues.values()]


MIN_REMOTE_SHARE, MIN_REMOTE_BYTES_PER_S = 0.1, 1e9
"""Minimum share of memory traffic that other nodes serve, and minimum traffic, for a clue."""
MAX_UNCORE_SHARE = 0.9
"""Maximum uncore clock that counts as low, as a share of its highest clock. CPUs must be busy for
at least half of the time, because an idle package lowers its uncore clock."""

UNCORE = (
    "the uncore",
    "L3 and memory",
    "min_freq_khz in /sys/devices/system/cpu/intel_uncore_frequency/*; the firmware's energy mode",
)
AMD_FABRIC = "the data fabric", "memory", "APBDIS and a fixed DF P-state in the firmware's setup"
"""Name of the clock domain, the parts that its clock slows down, and the remedy."""


def _memory_clues(report: Report) -> Iterator[Clue]:
    """Yields reasons for slow memory: another node serves it, or the uncore clock was low."""
    session, interval = report.session, report.interval
    keys = "memory_bytes_per_s", "local_bytes_per_s"
    bytes_per_s, local = (
        float(np.nansum(interval.caches[key])) if key in interval.caches else nan for key in keys
    )
    remote = 1 - local / bytes_per_s if bytes_per_s >= MIN_REMOTE_BYTES_PER_S else nan
    if remote >= MIN_REMOTE_SHARE:
        yield Clue(
            "remote-memory",
            f"{whole_percent(remote)} of {bytes_per_s / 1e9:.1f} GB/s of memory traffic is with "
            "another node, which takes longer",
            "numactl --cpunodebind=N --membind=N; numastat -p PID shows where its memory is",
        )
    delta, keys = session.run.span.delta, ("uncore_hz", "uncore_max_hz")
    clock, highest = (session.counters.rates(delta, key) for key in keys)
    is_busy = job_mean(report, interval.values["util"]) >= MAX_SPARE_UTIL
    is_amd = session.hello.identity.vendor == "AuthenticAMD"
    name, parts, remedy = AMD_FABRIC if is_amd else UNCORE
    if is_busy and clock is not None and highest is not None:
        for package, (hz, max_hz) in enumerate(zip(clock, highest, strict=True)):
            if hz <= MAX_UNCORE_SHARE * max_hz:
                yield Clue(
                    "uncore",
                    f"{name} of package {package} runs at {hz / 1e9:.2f} of"
                    f" {max_hz / 1e9:.2f} GHz, and with it {parts}",
                    remedy,
                )


def job_mean(report: Report, by_cpu: Floats) -> float:
    """Returns the mean over the watched job's CPUs, weighted by its time on each; without a job,
    over all selected CPUs. NaN where unknown."""
    session, sums, weights = report.session, report.sums, np.zeros(len(by_cpu))
    weights[[*session.selected]] = 1.0
    if session.neighbours.watched_job.name is not None and sums.wanted_s.any():
        weights = np.maximum(sums.wanted_s, 0.0)
    is_known = np.isfinite(by_cpu) & (weights > 0)
    return float(np.average(by_cpu[is_known], weights=weights[is_known])) if is_known.any() else nan


# --- Losses that were checked for.

MIN_LONG_WAIT_S = 1e-3
"""Minimum length in s of the job's longest wait that is reported beside the sum. A short wait on
each CPU costs much if thousands of threads wait for the slowest."""
INTERRUPT_COUNTERS = "stat_irq_s", "stat_softirq_s"


def _lost_share(
    report: Report, kinds: Collection[str], measured_share: float = 0.0, default: float = 0.0
) -> float:
    """Returns the share of the time that was lost to these kinds; `default` if no episode of them
    was found. If a measured share of the time is not small, it is then unknown how much of it was
    lost."""
    shares = report.shares.items()
    found_share = sum(share for cause, share in shares if kind_of_cause(*cause).key in kinds)
    return found_share or (nan if measured_share >= MIN_SHARE else default)


def _loss_check(
    report: Report, key: str, name: str, result: str, brief: str, *kinds: str,
    measured_share: float = 0.0,
) -> Check:  # fmt: skip
    """Returns a check whose measured number is not a share of the time. `kinds`: as in Check."""
    lost_share = _lost_share(report, kinds, measured_share)
    return Check(key, name, result, lost_share, brief, kinds)


def _share_check(
    report: Report, key: str, name: str, share: float, *kinds: str, default: float = 0.0
) -> Check:
    """Returns a check whose measured number is a share of the time. `kinds`: as in Check."""
    text = f"{100 * share:.{2 if share < 0.001 else 1}f} %"
    lost_share = _lost_share(report, kinds, share, default)
    return Check(key, name, f"{text} of time", lost_share, f"{name} ({text})", kinds, share)


def _own_time_checks(report: Report) -> Iterator[Check]:
    """Yields the checks for low clocks, waits, interrupts, stalls and halts."""
    session, interval, sums, shares = report.session, report.interval, report.sums, report.shares
    variants, times = session.evaluator.variants, report.totals.times
    if variants["busy_hz"] and (clocks := _mean_clocks(report)):
        kinds = tuple(kind.key for kind in KINDS.values() if kind.costs_cycles)
        name, brief = "a clock below its ceiling", f"clock ({clocks})"
        yield _loss_check(report, "clock", name, clocks, brief, *kinds)
    if times.has_waits:
        waited_s = sums.by_cause[WAIT_CAUSE].sum() if WAIT_CAUSE in sums.by_cause else 0.0
        brief = f"waiting for a CPU ({percent(shares.get(WAIT_CAUSE, 0.0))} %)"
        wait_text = f"{waited_s:.1f} s of {sums.whole_s:.0f} s"
        if sums.whole_s < 1:
            wait_text = f"{short_duration(waited_s)} of {short_duration(sums.whole_s)}"
        if times.longest_wait_s >= MIN_LONG_WAIT_S:
            wait_text += f", once {short_duration(times.longest_wait_s)} or longer"
        name = "tasks waiting for a CPU"
        yield _loss_check(report, "wait", name, wait_text, brief, "scheduler")
    hard, soft = (session.counters.rates(session.run.span.delta, key) for key in INTERRUPT_COUNTERS)
    if report.is_whole_run and hard is not None and soft is not None:
        interrupt_share = job_mean(report, hard + soft)
        if isfinite(interrupt_share):
            yield _share_check(report, "interrupts", "interrupts", interrupt_share, "interrupt")
    for key, kind, source, number in (
        ("memory-stalls", "memory-stall", "memory", "pressure_memory"),
        ("disk", "disk", "a disk", "pressure_io"),
    ):
        pressure = interval.machine.get(number, nan)
        is_blocked = key == "disk" and report.blocked_share >= MIN_SHARE
        # Pressure is a mean over busy CPUs: a job can wait all the time although a large machine
        # hardly does. The states of its threads show waits for a disk.
        is_shown = report.job is None or (key == "disk" and report.job_time is not None)
        is_rare = is_shown or pressure * len(session.topology) < MIN_SHARE
        if isfinite(pressure) and not is_blocked:
            name, default = f"waiting for {source}", 0.0 if is_rare else nan
            check = _share_check(report, key, name, pressure, kind, default=default)
            yield replace(check, loss_name=f"tasks {name}")
    halts = interval.values.mean("involuntary", session.selected)
    if variants["involuntary"] and np.isfinite(halts):
        kinds = "involuntary-halt", "throttle"
        check = _share_check(report, "halts", "involuntary halts", halts, *kinds)
        smi = interval.counts.get("smi")
        if smi is not None and np.isfinite(smi).any():
            check = replace(check, result=count_noun(int(np.nanmax(smi)), "SMI"))
        yield check


def _shared_hardware_checks(report: Report) -> Iterator[Check]:
    """Yields the checks for losses to other users of a core, a package or the machine, and heat."""
    session, interval = report.session, report.interval
    variants, is_read = session.evaluator.variants, not has_unread_cpu(report)
    unjudged = _unjudged_sibling_share(report)
    if session.has_smt and variants["ipc"] and isfinite(unjudged):
        result = "no task ran slower than when alone"
        if report.shares.get(("neighbour", "sibling")):
            result = "tasks ran slower than when alone"
        elif unjudged >= MIN_SHARE:
            result = f"unknown for {whole_percent(unjudged)} of the time"
        yield _loss_check(
            report, "sibling", "tasks slowed by a sibling", result, "siblings", "sibling",
            measured_share=unjudged,
        )  # fmt: skip
    if MEMORY_SHARE in interval.machine and variants["ipc"] and is_read:
        gb_per_s = sum(interval.machine[name] for name in MEMORY_COUNTERS) / 1e9
        if isfinite(gb_per_s):
            result = f"{gb_per_s:.1f} GB/s"
            name, brief = "saturated memory bandwidth", f"memory bandwidth ({result})"
            yield _loss_check(report, "memory", name, result, brief, "memory")
    if session.neighbours.cache.is_available and is_read:
        name, brief = "data displaced from the L3", "the share of the L3"
        check = _loss_check(report, "cache", name, "no more misses", brief, "cache")
        yield replace(check, result="more misses") if check.share else check
    steal = interval.values.mean("steal", session.selected)
    if variants["steal"] and isfinite(steal):
        check = _share_check(report, "steal", "steal", steal, STEAL_CAUSE[0])
        yield check if session.hello.virtualisation else replace(check, result="no hypervisor")
    heat = interval.machine.get("temperature_c", nan)
    causes = {e.cause for e in report.episodes} | {f.cause[1] for f in report.named_findings}
    if isfinite(heat) and causes.isdisjoint({"thermal", "unknown", UNEXPLAINED}):
        yield Check("heat", "", f"{heat:.0f} °C", 0.0, f"heat (mean {heat:.0f} °C)")


def _unjudged_sibling_share(report: Report) -> float:
    """Returns the share of the time in which both threads of a core ran, or may have, although the
    IPC of the program alone is unknown."""
    interval, siblings = report.interval, report.session.neighbours.siblings
    both = interval.cores.by_cpu(interval.split.states[:, STATES.index("both")])
    both = np.where(np.isfinite(both), both, interval.values["util"])
    is_judged = interval.cores.is_only_thread | np.isfinite(siblings.ipc_alone())
    return job_mean(report, np.where(is_judged, 0.0, both))


def has_unread_cpu(report: Report) -> bool:
    """Returns whether some CPU of the selected packages was not read, for example because of
    `--cpus`. Losses to tasks on it would go unnoticed."""
    session, util = report.session, report.interval.values["util"]
    packages = {session.topology[row].package for row in session.selected}
    return any(
        cpu.online and cpu.package in packages and not isfinite(util[row])
        for row, cpu in enumerate(session.topology)
    )


def _mean_clocks(report: Report) -> str:
    """Returns the mean clock and ceiling of the busy cores; '' if no core was busy."""
    session, interval, cores = report.session, report.interval, report.interval.cores
    ceiling = cores.by_cpu(interval.ceilings.low_hz)
    busy, util = interval.values["busy_hz"], interval.values["util"]
    is_known = np.isfinite(busy) & np.isfinite(ceiling)
    rows = [row for row in session.selected if util[row] >= 0.1 and is_known[row]]
    if not rows:
        return ""
    clock, limit = (float(np.average(part[rows], weights=util[rows])) for part in (busy, ceiling))
    active = len({int(cores.core_by_cpu[row]) for row in rows})
    return f"{clock / 1e9:.2f} of {limit / 1e9:.2f} GHz, {count_noun(active, 'core')} active"
