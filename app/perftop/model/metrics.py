"""The registry of metrics. Columns, sort keys, filters, exports, views and help are all made from
this table; a new metric needs one entry here.

A metric is a ratio of two sums. Both are kept apart, so that the same formula serves a sample, an
interval, a core, a package and the machine: add the numerators, add the denominators, divide once.
So all denominators of a metric are in one unit, seconds where they are time. A metric may have
several variants for different counters; each CPU uses the first variant whose counters it has. This
is decided once, from hello, and does not change during a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Floats
from perftop.base.format import ClockUnit
from perftop.base.text import printable
from perftop.model.counters import Counters
from perftop.model.delta import Delta


class Quantities:
    """The inputs of formulas: how far each counter moved, by key and then by CPU, and elapsed
    time."""

    def __init__(self, counters: Counters, delta: Delta, base_hz: float) -> None:
        self._counters = counters
        self._delta = delta
        self.base_hz = base_hz
        rate = counters.hello.tsc_hz
        self.tsc_hz = rate.hz if rate else float("nan")
        self._moved: dict[str, Floats] = {}
        self._seconds: dict[str, Floats] = {}
        """Elapsed seconds by block."""

    def __getitem__(self, key: str) -> Floats:
        moved = self._moved.get(key)
        if moved is None:
            moved = self._counters.moved(self._delta, key)
            assert moved is not None, key
            self._moved[key] = moved
        return moved

    @cached_property
    def tsc_s(self) -> Floats:
        """Seconds between the two reads of a row, by the TSC."""
        return self._counters.tsc_ticks(self._delta) / self.tsc_hz

    @cached_property
    def ref_s(self) -> Floats:
        """Seconds not halted; reference cycles count at the rate of the TSC."""
        return self["ref"] / self.tsc_hz

    def share(self, key: str) -> Floats:
        """A counter of seconds as a share of its own span."""
        return self[key] / self.seconds(key)

    def seconds(self, key: str) -> Floats:
        """Elapsed seconds of the span in which `key` was counted."""
        block = self._counters.columns[key].block
        elapsed = self._seconds.get(block)
        if elapsed is None:
            elapsed = self._delta.tables[block].ticks / self._counters.stamp_hz
            self._seconds[block] = elapsed
        return elapsed


Formula = Callable[[Quantities], Floats]


@dataclass(frozen=True, slots=True)
class Variant:
    needs: tuple[str, ...]
    origin: str
    numerator: Formula | None = None
    denominator: Formula | None = None
    """None: the metric is made of others."""
    needs_tsc: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A number of a CPU, and how it is shown."""

    key: str
    label: str
    """Short name, used as a heading."""
    unit: str
    """"ratio" (shown in %), "Hz", "1", a rate ("1/s", "Joules/s"), or "" for text."""
    help: str
    _: KW_ONLY
    title: str = ""
    """Longer name, used where there is room."""
    digits: int = 1
    """Decimal digits shown, for ratios those of the percentage. Clocks use the digits of their
    unit."""
    coarse: bool = False
    """The kernel samples it once a tick, so it is shown without decimals where room is scarce."""
    small: bool = False
    """A share for which a few per cent are a lot."""
    stands_out: float = np.inf
    """Value from which on it is highlighted."""
    of_running: bool = False
    """It describes the running time of a CPU, so it says little about a CPU that hardly ran."""
    of_core: bool = False
    """The siblings of a core share one value."""
    added: bool = False
    """Several CPUs have the sum of what each has, not the mean."""

    @property
    def rate(self) -> bool:
        """It has no upper bound, and is shown with a prefix such as k or M."""
        return self.unit.endswith("/s")

    @property
    def words(self) -> str:
        return self.title or self.label

    def scale(self, clock: ClockUnit, *, brief: bool = False) -> tuple[float, int]:
        """Factor and decimal digits with which its values are shown; `brief`: room is scarce."""
        if self.unit == "Hz":
            return clock.per_hz, clock.digits
        digits = 0 if brief and self.coarse else self.digits
        return (100.0 if self.unit == "ratio" else 1.0), digits

    def unit_name(self, clock: ClockUnit) -> str:
        return {"ratio": "%", "Hz": clock.name}.get(self.unit, "")

    def name(self, clock: ClockUnit) -> str:
        """The label with its unit, as a heading."""
        if self.rate:
            return f"{self.label}{self.unit.removeprefix('1')}"
        return f"{self.label} {self.unit_name(clock)}".rstrip()


@dataclass(frozen=True, slots=True)
class Metric(Column):
    variants: tuple[Variant, ...]
    made_of: tuple[str, ...] = ()
    """Metrics from which, with the ceilings, `samples.lost` makes this one; its variants only say
    which CPUs have it."""
    low: float = 0.0
    high: float = np.inf
    """Values are clipped to `low` and `high`: read skew can make 1.0003 of a full second."""


METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric(
            "util", "busy", "ratio",
            "Share of elapsed time in which the CPU was not halted. Without a reference counter: "
            "not idle by the operating system's account, and not taken by the hypervisor.",
            (
                Variant(("ref",), "ref / tsc", lambda q: q.ref_s, lambda q: q.tsc_s, True),
                Variant(
                    ("busy_s", "stat_steal_s"), "not idle - steal",
                    lambda q: q["busy_s"] - q.share("stat_steal_s") * q.seconds("busy_s"),
                    lambda q: q.seconds("busy_s"),
                ),
                Variant(
                    ("idle_s", "poll_s", "stat_steal_s"), "1 - cpuidle - steal",
                    lambda q: q.seconds("idle_s")
                    * (1 - q.share("stat_steal_s")) - q["idle_s"] - q["poll_s"],
                    lambda q: q.seconds("idle_s"),
                ),
                Variant(
                    ("idle_s", "stat_steal_s"), "1 - cpuidle - steal",  # no state that polls
                    lambda q: q.seconds("idle_s")
                    * (1 - q.share("stat_steal_s")) - q["idle_s"],
                    lambda q: q.seconds("idle_s"),
                ),
                Variant(
                    ("stat_idle_s", "stat_iowait_s", "stat_steal_s"), "1 - /proc/stat idle - steal",
                    lambda q: q.seconds("stat_idle_s") - q["stat_idle_s"] - q["stat_iowait_s"]
                    - q["stat_steal_s"],
                    lambda q: q.seconds("stat_idle_s"),
                ),
            ),
            title="busy time", high=1.0,
        ),
        Metric(
            "busy_hz", "clock", "Hz",
            "Clock while not halted: what the core really ran at, averaged over its running time.",
            (
                Variant(("cycles", "ref"), "cycles / ref * tsc_hz",
                        lambda q: q["cycles"], lambda q: q.ref_s, True),
                Variant(("aperf", "mperf"), "aperf / mperf * base_hz",
                        lambda q: q["aperf"], lambda q: q["mperf"] / q.base_hz),
            ),
            of_running=True,
        ),
        Metric(
            "net_hz", "net", "Hz",
            "Cycles per elapsed second: clock times busy time.",
            (Variant(("cycles",), "cycles / tsc * tsc_hz",
                     lambda q: q["cycles"], lambda q: q.tsc_s, True),),
            title="net clock",
        ),
        Metric(
            "halt", "halt", "ratio",
            "Share of elapsed time in which the CPU was halted, wanted or not.",
            (Variant(("ref",), "1 - ref / tsc",
                     lambda q: q.tsc_s - q.ref_s, lambda q: q.tsc_s, True),),
            title="halted", high=1.0,
        ),
        Metric(
            "idle", "idle", "ratio",
            "Share of elapsed time that the operating system chose to be idle; polling excluded "
            "where the kernel tells it apart.",
            (
                Variant(("busy_s", "poll_s"), "1 - not idle - cpuidle's polling",
                        lambda q: q.seconds("busy_s") - q["busy_s"] - q["poll_s"],
                        lambda q: q.seconds("busy_s")),
                Variant(("busy_s",), "1 - not idle", lambda q: q.seconds("busy_s") - q["busy_s"],
                        lambda q: q.seconds("busy_s")),
                Variant(("idle_s",), "cpuidle", lambda q: q["idle_s"],
                        lambda q: q.seconds("idle_s")),
                Variant(("stat_idle_s", "stat_iowait_s"), "/proc/stat idle + iowait",
                        lambda q: q["stat_idle_s"] + q["stat_iowait_s"],
                        lambda q: q.seconds("stat_idle_s")),
            ),
            high=1.0,
        ),
        Metric(
            "poll", "poll", "ratio",
            "Share of elapsed time idle but polling: idle to the system, running to the core.",
            (Variant(("poll_s",), "cpuidle", lambda q: q["poll_s"],
                     lambda q: q.seconds("poll_s")),),
            title="polling idle", small=True, high=1.0,
        ),
        Metric(
            "involuntary", "invol", "ratio",
            "Halted although the operating system had work: clock changes, SIMD power-up, SMM, "
            "clock modulation. Halt less idle less steal; the error is that of idle.",
            (
                Variant(("ref", "busy_s", "stat_steal_s"), "not idle - ref / tsc - steal",
                        lambda q: (q.share("busy_s") - q.share("stat_steal_s")) * q.tsc_s
                        - q.ref_s,
                        lambda q: q.tsc_s, True),
                Variant(("ref", "idle_s", "stat_steal_s"), "1 - ref / tsc - cpuidle - steal",
                        lambda q: (1 - q.share("idle_s") - q.share("stat_steal_s")) * q.tsc_s
                        - q.ref_s,
                        lambda q: q.tsc_s, True),
            ),
            title="involuntary halts", digits=2, small=True, stands_out=0.005,
            high=1.0,
        ),
        Metric(
            "steal", "steal", "ratio",
            "Share of elapsed time in which the hypervisor ran something else. Steps of 10 ms.",
            (Variant(("stat_steal_s",), "/proc/stat", lambda q: q["stat_steal_s"],
                     lambda q: q.seconds("stat_steal_s")),),
            small=True, stands_out=0.01, high=1.0,
        ),
        Metric(
            "user", "user", "ratio",
            "Share of elapsed time in user space, niced or not, by the system's account: it looks "
            "once a tick, good for a bar and not for a decimal.",
            (Variant(("stat_user_s", "stat_nice_s"), "/proc/stat user + nice",
                     lambda q: q["stat_user_s"] + q["stat_nice_s"],
                     lambda q: q.seconds("stat_user_s")),),
            coarse=True, high=1.0,
        ),
        Metric(
            "system", "kernel", "ratio",
            "Share of elapsed time in the kernel, interrupts included, by the system's account.",
            (Variant(("stat_system_s", "stat_irq_s", "stat_softirq_s"),
                     "/proc/stat system + irq + softirq",
                     lambda q: q["stat_system_s"] + q["stat_irq_s"] + q["stat_softirq_s"],
                     lambda q: q.seconds("stat_system_s")),),
            coarse=True, high=1.0,
        ),
        Metric(
            "iowait", "iowait", "ratio",
            "Share of elapsed time idle with a task of this CPU waiting for a disk: part of idle.",
            (Variant(("stat_iowait_s",), "/proc/stat", lambda q: q["stat_iowait_s"],
                     lambda q: q.seconds("stat_iowait_s")),),
            small=True, coarse=True, high=1.0,
        ),
        Metric(
            "ipc", "IPC", "1",
            "Instructions retired per cycle while not halted.",
            (Variant(("instructions", "cycles"), "instructions / cycles",
                     lambda q: q["instructions"], lambda q: q["cycles"]),),
            digits=2, of_running=True,
        ),
        Metric(
            "kernel_cycles", "krn", "ratio",
            "Share of the cycles that were spent in the kernel.",
            (Variant(("kernel_cycles", "cycles"), "kernel cycles / cycles",
                     lambda q: q["kernel_cycles"], lambda q: q["cycles"]),),
            title="kernel cycles", of_running=True, high=1.0,
        ),
        Metric(
            "kernel_instructions", "krn ins", "ratio",
            "Share of the instructions that were retired in the kernel.",
            (Variant(("kernel_instructions", "instructions"), "kernel instructions / instructions",
                     lambda q: q["kernel_instructions"], lambda q: q["instructions"]),),
            title="kernel instructions", of_running=True, high=1.0,
        ),
        Metric(
            "lost_ratio", "lost time", "ratio",
            "Share of its time that a working CPU did not get: steal, involuntary halts, and a "
            "clock below the ceiling, as far as they are known. No moment counts twice.",
            tuple(Variant((needed,), "steal, halts, clock below ceiling")
                  for needed in ("busy_s", "idle_s", "stat_idle_s")),
            stands_out=0.05, high=1.0,
            made_of=("util", "idle", "poll", "steal", "involuntary", "busy_hz"),
        ),
    )
}  # fmt: skip

INDEX = {key: i for i, key in enumerate(METRICS)}

RAW_KEYS = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions", "smi")
"""Counters that are also exported as raw counts."""

EVENT = "e."
"""Start of the keys of chosen events."""
PER_KI = "/ki"
"""End of the keys of events per thousand instructions."""
COUNT_UNITS = frozenset({"1", "events", "cycles", "instructions"})
"""Units of what is counted without a measure."""


def _slots(key: str, label: str, text: str) -> Metric:
    return Metric(
        f"{key}_ratio", label, "ratio", text,
        (Variant((key, "slots"), f"{key} / slots", lambda q: q[key], lambda q: q["slots"]),),
        of_running=True, high=1.0,
    )  # fmt: skip


RARE: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        _slots("topdown_retiring", "retiring",
               "Share of issue slots whose work was of use. Fields of 8 bits: right to 0.4 %."),
        _slots("topdown_bad_speculation", "bad spec",
               "Share of issue slots lost to work that was thrown away."),
        _slots("topdown_frontend", "front end",
               "Share of issue slots for which no instruction was there."),
        _slots("topdown_backend", "back end",
               "Share of issue slots lost because memory or units were not ready."),
        _slots("topdown_heavy_operations", "heavy ops",
               "Share of issue slots that retired parts of long instructions."),
        _slots("topdown_branch_mispredicts", "mispredict",
               "Share of issue slots lost to branches that were predicted wrongly."),
        _slots("topdown_fetch_latency", "fetch lat",
               "Share of issue slots that waited for a fetch of instructions."),
        _slots("topdown_memory_bound", "mem bound",
               "Share of issue slots that waited for memory."),
        Metric(
            "smt_contention_ratio", "to sibling", "ratio",
            "Share of dispatch slots that went to the sibling while this thread had work for them.",
            (Variant(("smt_contention", "cycles"), "slots given to the sibling / slots of cycles",
                     lambda q: q["smt_contention"], lambda q: q["cycles"]),),
            title="slots to sibling", of_running=True, high=1.0,
        ),
    )
}  # fmt: skip
"""Metrics that few CPUs can tell; a stream without their counters does not have them."""


class Registry:
    """Metrics by key and by position, and the ends that their values are clipped to."""

    def __init__(
        self, counters: tuple[wire.Counter, ...] = (), keys: frozenset[str] = frozenset()
    ) -> None:
        """`counters`: the chosen events of a stream; `keys`: of all its counters."""
        self.events = {metric.key: metric for c in counters for metric in _of_event(c)}
        self.events |= {
            metric.key: metric for metric in RARE.values() if keys >= {*metric.variants[0].needs}
        }
        """Metrics that not every stream has."""
        self.counters = tuple(counter.key for counter in counters)
        """Keys of the chosen events."""
        self.metrics: dict[str, Metric] = METRICS | self.events
        self.index = {key: i for i, key in enumerate(self.metrics)}
        self.low = np.array([metric.low for metric in self.metrics.values()])
        self.high = np.array([metric.high for metric in self.metrics.values()])
        self.added = np.array([metric.added for metric in self.metrics.values()])


STATIC = Registry()


def of_hello(hello: wire.Hello) -> Registry:
    blocks = [block for block in hello.blocks if block.scope == "cpu"]
    every = {counter.key: counter for block in blocks for counter in block.counters}
    counters = [c for key, c in every.items() if key.startswith(EVENT) and c.kind == "counter"]
    if counters or any(key in every for key in ("slots", "smt_contention")):
        return Registry(tuple(counters), frozenset(every))
    return STATIC


def _of_event(counter: wire.Counter) -> Iterator[Metric]:
    key = counter.key
    label = printable(key.removeprefix(EVENT))
    about = printable(counter.name) or label
    yield Metric(
        key, label, "1/s" if counter.unit in COUNT_UNITS else f"{printable(counter.unit)}/s",
        f"{about[:1].upper()}{about[1:]}, per second.",
        (Variant((key,), "count / time", lambda q: q[key], lambda q: q.seconds(key)),),
        added=True,
    )  # fmt: skip
    yield Metric(
        key + PER_KI, label + PER_KI, "1",
        f"{about[:1].upper()}{about[1:]}, per thousand instructions.",
        (Variant((key, "instructions"), "1000 count / instructions",
                 lambda q: 1000.0 * q[key], lambda q: q["instructions"]),),
        digits=2, of_running=True,
    )  # fmt: skip
