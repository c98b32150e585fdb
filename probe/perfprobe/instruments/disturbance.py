"""What else went on while something was measured on one CPU, and what moves its clock.

Only what was seen: each is named with what it does to a measurement.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfprobe.cpu import files, identity
from perfprobe.kernel import clock_policy
from perfprobe.sources.os import procstat
from perfprobe.sources.os.procstat import TICK_S

INTERRUPTS_LIMIT = 1 << 23
"""Bytes of /proc/interrupts: a line a vector, 11 for each CPU in it."""
NAMED = 3
BUSY = 0.02
"""Of a sibling: less is what the kernel's own timers cost."""


@dataclass(frozen=True, slots=True)
class Seen:
    what: str
    found: str
    matters: str


@dataclass(frozen=True, slots=True)
class Moment:
    switched: int
    """Times that our thread lost its CPU."""
    interrupts: dict[str, int]
    ticks: dict[int, tuple[int, ...]]
    """Of each CPU, as in procstat.FIELDS."""


def now(cpu: int, root: Path = Path("/")) -> Moment:
    """What counts up, of the calling thread and of one CPU."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    text = files.text(f"{root}/proc/interrupts", INTERRUPTS_LIMIT) or ""
    stat = files.text(f"{root}/proc/stat", 1 << 20) or ""
    return Moment(usage.ru_nivcsw, interrupts(text, cpu), procstat.ticks(stat))


def interrupts(text: str, cpu: int) -> dict[str, int]:
    """One CPU's column of /proc/interrupts, by what the line is for."""
    lines = text.splitlines()
    heads = lines[0].split() if lines else []
    if f"CPU{cpu}" not in heads:
        return {}
    column = heads.index(f"CPU{cpu}") + 1
    found: dict[str, int] = {}
    for line in lines[1:]:
        fields = line.split()
        if len(fields) <= len(heads) + 1 or not fields[column].isdecimal():
            continue  # ERR and MIS have one number for all CPUs, and no name
        rest = fields[len(heads) + 1 :]
        name = " ".join(rest) if fields[0][:-1].isalpha() else rest[-1]
        found[name] = found.get(name, 0) + int(fields[column])
    return found


def seen(
    cpu: int, siblings: Sequence[int], before: Moment, after: Moment, root: Path = Path("/")
) -> list[dict[str, Any]]:
    """`siblings`: the other threads of its core."""
    found = [*_clock(cpu, root), *_others(cpu, siblings, before, after), *_guest(root)]
    return [asdict(one) for one in found]


def _clock(cpu: int, root: Path) -> Iterator[Seen]:
    governor = clock_policy.governor(root, cpu)
    if governor and governor != "performance":
        yield Seen(
            "governor", governor, "the core's clock follows the load, or is held low: so do costs"
        )
    if clock_policy.turbo_on(root):
        yield Seen("turbo", "on", "the core's clock depends on what the other cores do")


def _others(cpu: int, siblings: Sequence[int], before: Moment, after: Moment) -> Iterator[Seen]:
    for sibling in siblings:
        asleep = _share(before, after, sibling, procstat.ASLEEP)
        if asleep is not None and 1 - asleep > BUSY:
            what = f"SMT sibling CPU {sibling}"
            yield Seen(what, f"{100 * (1 - asleep):.0f} % busy", "it shares the core's units")
    counts = {
        name: count - before.interrupts.get(name, 0) for name, count in after.interrupts.items()
    }
    most = sorted(((n, name) for name, n in counts.items() if n > 0), reverse=True)
    if most:
        named = ", ".join(f"{n} {name}" for n, name in most[:NAMED])
        text = f"{sum(n for n, _ in most)} on CPU {cpu}: {named}"
        yield Seen(
            "interrupts", text, "a sample with one in it is longer; the mean leaves the longest out"
        )
    if switches := after.switched - before.switched:
        times = "once" if switches == 1 else f"{switches} times"
        yield Seen(
            "scheduler",
            f"another task ran {times}",
            "it leaves cold caches behind",
        )
    if stolen := _share(before, after, cpu, procstat.STOLEN):
        yield Seen("steal", f"{100 * stolen:.0f} % of CPU {cpu}", "the hypervisor ran others on it")


def _share(before: Moment, after: Moment, cpu: int, fields: Sequence[int]) -> float | None:
    """Of the ticks between the two; None: there were none, or nobody says."""
    first, last = before.ticks.get(cpu), after.ticks.get(cpu)
    if first is None or last is None or sum(last) <= sum(first):
        return None
    return sum(last[i] - first[i] for i in fields) / (sum(last) - sum(first))


def _guest(root: Path) -> Iterator[Seen]:
    if (name := identity.virtualisation(root)) is not None:
        found = "there is one" if name == "hypervisor" else name
        yield Seen("hypervisor", found, "CPUID, and most reads of MSRs, leave the guest")


STAT_LIMIT = 1 << 24
"""Thousands of CPUs; /proc/interrupts has a column for each, some hundred times."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Cumulative. None: the kernel does not tell."""

    idle_s: float | None
    """Of the CPU itself."""
    steal_s: float | None
    interrupts: int | None
    siblings_idle_s: float | None
    """Of the other threads of its core together; None also where there are none."""
    switches: int
    """Involuntary, of the calling thread."""


def read(cpu: int, siblings: Sequence[int], root: Path = Path("/")) -> Counts:
    stat = procstat.ticks(files.head(f"{root}/proc/stat", STAT_LIMIT) or "")
    served = interrupts(files.head(f"{root}/proc/interrupts", STAT_LIMIT) or "", cpu)
    own = stat.get(cpu)
    idle = [_idle_s(stat.get(sibling)) for sibling in siblings]
    known = [seconds for seconds in idle if seconds is not None]
    exact = _cpuidle_s(root, cpu)
    return Counts(
        _idle_s(own) if exact is None else exact,
        sum(own[i] for i in procstat.STOLEN) * TICK_S if own else None,
        sum(served.values()) if served else None,
        sum(known) if known and len(known) == len(idle) else None,
        resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw,
    )


def _idle_s(ticks: Sequence[int] | None) -> float | None:
    return None if ticks is None else sum(ticks[i] for i in procstat.ASLEEP) * TICK_S


def _cpuidle_s(root: Path, cpu: int) -> float | None:
    """To the microsecond, unlike /proc/stat. A state's time is added when the CPU leaves it, which
    one that reads its own has done."""
    where = f"{root}/{files.CPUS}/cpu{cpu}/cpuidle"
    texts = [files.text(f"{where}/state{n}/time") for n in files.numbered(where, "state")]
    times = [text.strip() for text in texts if text is not None]
    if not times or not all(re.fullmatch("[0-9]{1,19}", text) for text in times):
        return None
    return sum(map(int, times)) / 1e6
