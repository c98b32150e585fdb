"""The numbers that runs are compared by, in the order of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import floor, isfinite, log10, nan

from perfprobe.frozen import frozen
from perftop.base.format import scale
from perftop.base.text import safe
from perftop.model.numbers import EVENT, PER_KI, RARE
from perftop.output.stat_json import Line, number

Numbers = dict[str, float]
"""Values by key; unknown ones are left out."""


@frozen
class Number:
    key: str
    label: str
    unit: str
    """"%" for a share, whose differences are told in points; others are told relative."""
    digits: int
    """After the point; where `grows` is set, significant digits."""
    scale: float = 1.0
    """Factor from base units to `unit`."""
    better: int = 0
    """1: more is better; -1: less is better; 0: neither."""
    grows: bool = False
    """Whether it grows with the length of a run, and so can have any size."""
    prefixed: bool = False
    """Whether it is shown with a prefix such as M."""
    usual: bool = True
    """Whether it is compared unless others are asked for."""
    of: Callable[[Line], float | None] = lambda _: None
    """The value in base units from a summary as `stat --json` has it."""

    @property
    def points(self) -> bool:
        return self.unit == "%"

    def seen(self, value: float) -> bool:
        """Whether it is shown as anything but 0."""
        return value != 0 if self.prefixed else float(self.show(value)) != 0

    def show(self, value: float, like: float | None = None) -> str:
        """`like`: a value with whose digits it is shown; None: its own."""
        if not isfinite(value):
            return "n/a"
        digits, size = self.digits, abs(value if like is None else like) * self.scale
        if self.grows:
            power, sign = scale(size) if self.prefixed else (0, "")
            size /= 10**power
            digits = max(0, digits - 1 - floor(log10(size))) if size > 0 else 1
            return f"{value * self.scale / 10**power:.{min(digits, 4)}f}{sign}"
        return f"{value * self.scale:.{min(digits, 4)}f}"


def _top(key: str) -> Callable[[Line], float | None]:
    return lambda line: line[key]


def _length_s(line: Line) -> float | None:
    """Length of a phase; a run has its run time instead."""
    return line["elapsed_s"] if line["type"] == "phase" else None


def _run(*keys: str) -> Callable[[Line], float | None]:
    """A sum of times of the command."""
    return lambda line: sum(line["run"][key] for key in keys) if line.get("run") else None


def _mean(key: str) -> Callable[[Line], float | None]:
    return lambda line: None if line["machine"][key] is None else line["machine"][key]["mean"]


def _total(key: str) -> Callable[[Line], float | None]:
    return lambda line: line["totals"].get(key)


def _job(key: str) -> Callable[[Line], float | None]:
    return lambda line: None if line["job"] is None else line["job"].get(key)


def _power_w(line: Line) -> float | None:
    energy_j, elapsed_s = line["energy_j"], line["elapsed_s"]
    return energy_j / elapsed_s if energy_j is not None and elapsed_s else None


def _others(line: Line) -> float | None:
    """CPUs that others than the command kept busy."""
    util, used_s = _mean("util")(line), _run("user_s", "sys_s")(line)
    if util is None or used_s is None or not line["elapsed_s"]:
        return None
    return max(0.0, util * len(line["cpus"]) - used_s / float(line["elapsed_s"]))


def _both(line: Line) -> float | None:
    """Mean over the cores for which it is known."""
    known = [core["smt"]["both"]["mean"] for core in line["cores"] if core["smt"]["both"]]
    return sum(known) / len(known) if known else None


NUMBERS: dict[str, Number] = {
    one.key: one
    for one in (
        Number("length_s", "length", "s", 4, grows=True, of=_length_s),
        Number("run_s", "run time", "s", 4, better=-1, grows=True, of=_run("wall_s")),
        Number(
            "cpu_s", "CPU time", "s", 4, 1, -1, grows=True, usual=False, of=_run("user_s", "sys_s")
        ),
        Number("waited_s", "waits for CPU", "s", 3, 1, -1, grows=True, of=_job("waited_s")),
        Number("disk_s", "waits for disk", "s", 3, 1, -1, grows=True, of=_job("disk_s")),
        Number("others_cpus", "others", "CPUs", 2, better=-1, of=_others),
        Number("util", "busy", "%", 1, 100, of=_mean("util")),
        Number("busy_hz", "clock", "GHz", 2, 1e-9, better=1, of=_mean("busy_hz")),
        Number("below_ceiling", "below ceiling", "%", 1, 100, -1, of=_total("below_ceiling")),
        Number("lost_ratio", "lost time", "%", 1, 100, better=-1, of=_mean("lost_ratio")),
        Number("ipc", "IPC", "", 2, better=1, of=_mean("ipc")),
        Number("instructions", "instructions", "G", 4, 1e-9, grows=True, of=_total("instructions")),
        Number(
            "kernel_cycles", "in the kernel", "%", 1, 100, usual=False, of=_mean("kernel_cycles")
        ),
        Number("both", "both threads", "%", 1, 100, of=_both),
        Number("involuntary", "involuntary", "%", 2, 100, better=-1, of=_mean("involuntary")),
        Number("steal", "steal", "%", 1, 100, better=-1, of=_mean("steal")),
        Number("power_w", "power", "W", 1, of=_power_w),
        Number("energy_j", "energy", "kJ", 3, 1e-3, -1, grows=True, of=_top("energy_j")),
    )
}


MOST_EVENTS = 64
"""Events of a summary that are compared; a line from elsewhere may name any number."""
NAME = 12
"""Characters of an event's name."""


def of_event(key: str) -> bool:
    """Whether it is a number of a chosen event, or of issue slots."""
    return key.startswith(EVENT) or key in RARE


def number_of(key: str) -> Number:
    """The number with this key of NUMBERS or of an event."""
    if key in NUMBERS:
        return NUMBERS[key]
    if key in RARE:
        return Number(key, RARE[key].label, "%", 1, 100, of=_mean(key))
    if key.endswith(PER_KI):
        name = safe(key.removeprefix(EVENT).removesuffix(PER_KI), NAME)
        return Number(key, name, PER_KI, 2, of=_mean(key))
    name = safe(key.removeprefix(EVENT), NAME)
    return Number(key, name, "/s", 4, grows=True, prefixed=True, of=_mean(key))


def known(found: Iterable[Numbers]) -> list[str]:
    """The keys of NUMBERS, then those of the events that some have."""
    return list(dict.fromkeys([*NUMBERS, *(key for one in found for key in one)]))


def numbers(line: Line) -> Numbers:
    """The numbers of a summary. Those that grow are of a command or a phase only: how long somebody
    looked says nothing of the machine."""
    ended = bool(line.get("run")) or line["type"] == "phase"
    found: dict[str, object] = {
        key: one.of(line) for key, one in NUMBERS.items() if ended or not one.grows
    }
    events = [key for key in line["machine"] if of_event(key)]
    return finite(found | {key: _mean(key)(line) for key in events[:MOST_EVENTS]})


def finite(found: Mapping[str, object]) -> Numbers:
    return {
        key: float(value)
        for key, value in found.items()
        if isinstance(value, int | float) and isfinite(value)
    }


def told(found: Numbers) -> Line:
    """The numbers for a line of JSON, in base units; null: not known."""
    return {key: number(found.get(key, nan)) for key in known([found])}
