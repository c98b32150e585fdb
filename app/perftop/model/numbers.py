"""The table of all numbers that perftop shows. Each number is declared once, here.

Columns, panels, filters, sort orders, exports, rows of `diff`, text tables and help refer to keys
of this table, and use its headings, units, digits and better direction. `evaluation.MetricRegistry`
adds numbers that only some streams have: events that the user chose.

A metric of a CPU has several formulas, one for each set of counters from which it can be computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from math import inf, isfinite
from typing import TYPE_CHECKING, Literal

from perftop.base.text import MISSING, ClockUnit, with_si_prefix

if TYPE_CHECKING:
    from perftop.base.arrays import Floats
    from perftop.model.counters import Quantities

Scope = Literal["cpu", "core", "l3", "package", "machine", "run"]
Formula = Callable[["Quantities"], "Floats"]


@dataclass(frozen=True)
class Number:
    key: str
    label: str
    """Short name, used as a heading."""
    unit: str
    """Unit: "ratio" (shown in %), "Hz", "1", "s", "W", "J", "°C", "B", "B/s", a rate such as "1/s"
    or "Joules/s", "G" for counts shown in thousands of millions, or "" for text."""
    help: str
    _: KW_ONLY
    scope: Scope = "cpu"
    title: str = ""
    """Longer name, for places with more room."""
    digits: int = 1
    """Number of decimals; for a ratio, of its percentage. Clocks use the decimals of their unit."""
    better_sign: int = 0
    """1: more is better; -1: less is better; 0: neither."""
    export: str = ""
    """Column name in exports and, after `perftop_`, in OpenMetrics; '': see `column`."""
    is_coarse: bool = False
    """Whether the kernel samples the number at each tick. Narrow places omit its decimals."""
    is_small: bool = False
    """Whether the number is a share that matters even at a few per cent."""
    min_highlighted: float = inf
    """Minimum value at which the number is highlighted."""
    while_running: bool = False
    """Whether the number describes running time, so it means little if a CPU hardly ran."""
    is_sum: bool = False
    """Whether the numbers of several CPUs are added up; otherwise, their mean is used."""
    counter: str = ""
    """Key of the counter that the number is computed from; empty for metrics of a CPU."""
    is_unbounded: bool = False
    """Whether the number grows with the length of a run, so that it can have any magnitude.
    `digits` is then a number of significant digits.
    """

    @cached_property
    def is_rate(self) -> bool:
        """Whether the number is a rate per second, which is shown with a prefix such as k or M."""
        return self.unit.endswith("/s")

    @property
    def is_per_core(self) -> bool:
        """Whether the siblings of a core share one value."""
        return self.scope == "core"

    @property
    def plain_name(self) -> str:
        return self.title or self.label

    @property
    def column(self) -> str:
        """Name of the number in exports, including its unit."""
        if self.export:
            return self.export
        ratio = self.unit == "ratio" and not self.key.endswith("_ratio")
        return f"{self.key}_ratio" if ratio else self.key

    def scale(self, clock: ClockUnit, *, brief: bool = False) -> tuple[float, int]:
        """Returns the factor and the number of decimals for display. `brief`: space is limited."""
        if self.unit == "Hz":
            return clock.per_hz, clock.digits
        digits = 0 if brief and self.is_coarse else self.digits
        return _SCALES.get(self.unit, 1.0), digits

    def unit_name(self, clock: ClockUnit) -> str:
        """Returns the unit shown after a value; '' for rates, whose heading has the unit."""
        if self.is_rate and self.unit not in _SHOWN_UNITS:
            return ""
        return clock.name if self.unit == "Hz" else _SHOWN_UNITS.get(self.unit, self.unit)

    def name(self, clock: ClockUnit) -> str:
        """Returns the label with its unit, as a heading."""
        if self.is_rate and self.unit not in _SHOWN_UNITS:
            return f"{self.label}{self.unit.removeprefix('1')}"
        return f"{self.label} {self.unit_name(clock)}".rstrip()

    def text(self, value: float, clock: ClockUnit) -> str:
        """Formats a value without its unit; `n/a` where it is unknown."""
        if not isfinite(value):
            return MISSING
        if self.unit == "B" or (self.is_rate and self.unit not in _SHOWN_UNITS):
            return with_si_prefix(value)
        factor, digits = self.scale(clock)
        if not self.is_unbounded:
            return f"{value * factor:.{digits}f}"
        return format_significant(value * factor, digits)


@dataclass(frozen=True)
class Variant:
    """One way to compute a metric: the counters that it needs, and the two sums to divide."""

    needs: tuple[str, ...]
    origin: str
    numerator: Formula | None = None
    denominator: Formula | None = None
    """None if the metric is computed from other metrics."""
    needs_tsc: bool = False


@dataclass(frozen=True)
class Metric(Number):
    """A number of a CPU that is a ratio of two sums.

    Both sums are kept separately, so that one formula serves a sample, an interval, a core, a
    package and the machine: add the numerators, add the denominators, divide once. So all
    denominators of a metric must have the same unit: seconds for times. Each CPU uses the first
    variant whose counters it has. This choice is made once, from hello.
    """

    variants: tuple[Variant, ...]
    source_metrics: tuple[str, ...] = ()
    """Metrics from which `evaluation.lost_time` computes this metric, together with the ceilings.
    Its variants only list the counters that a CPU must have."""
    low: float = 0.0
    high: float = inf
    """Bounds to which values are clipped: read skew can turn a full second into 1.0003 s."""


def _time_share(origin: str, first: str, *other_keys: str) -> Variant:
    """Returns a variant: the sum of counters in seconds, as a share of the elapsed time."""

    def seconds(q: Quantities) -> Floats:
        total = q[first]
        for key in other_keys:
            total = total + q[key]
        return total

    return Variant((first, *other_keys), origin, seconds, lambda q: q.seconds(first))


def _quotient(part: str, whole: str, origin: str = "") -> tuple[Variant]:
    """Returns a tuple with one variant: one counter divided by another."""
    names = f"{part} / {whole}".replace("kernel_", "kernel ")
    return (Variant((part, whole), origin or names, lambda q: q[part], lambda q: q[whole]),)


SMALL_SHARE_ENDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Possible upper ends of the scale of a chart of small shares. They are few, so that the scale
rarely changes, and at least 2 %, so that noise looks small."""
_SCALES = {"ratio": 100.0, "B/s": 1e-9, "J": 1e-3, "G": 1e-9}
_SHOWN_UNITS = {"ratio": "%", "1": "", "B/s": "GB/s", "J": "kJ", "": ""}


def format_significant(value: float, digits: int) -> str:
    """Formats a number with `digits` significant digits, but at most four decimals."""
    whole_digits = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:.{max(0, min(4, digits - whole_digits))}f}"


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
                    ("idle_s", "stat_steal_s"), "1 - cpuidle - steal",  # no POLL idle state
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
            "Clock while not halted, averaged over the running time of the core.",
            (
                Variant(("cycles", "ref"), "cycles / ref * tsc_hz",
                        lambda q: q["cycles"], lambda q: q.ref_s, True),
                Variant(("aperf", "mperf"), "aperf / mperf * base_hz",
                        lambda q: q["aperf"], lambda q: q["mperf"] / q.base_hz),
            ),
            while_running=True, better_sign=1,
        ),
        Metric(
            "net_hz", "net", "Hz",
            "Cycles per elapsed second: clock × share of busy time.",
            (Variant(("cycles",), "cycles / tsc * tsc_hz",
                     lambda q: q["cycles"], lambda q: q.tsc_s, True),),
            title="net clock",
        ),
        Metric(
            "halt", "halt", "ratio",
            "Share of elapsed time in which the CPU was halted, on purpose or not.",
            (Variant(("ref",), "1 - ref / tsc",
                     lambda q: q.tsc_s - q.ref_s, lambda q: q.tsc_s, True),),
            title="halted", high=1.0,
        ),
        Metric(
            "idle", "idle", "ratio",
            "Share of elapsed time that the operating system chose to be idle; polling excluded "
            "where the kernel counts it separately.",
            (
                Variant(("busy_s", "poll_s"), "1 - not idle - cpuidle's polling",
                        lambda q: q.seconds("busy_s") - q["busy_s"] - q["poll_s"],
                        lambda q: q.seconds("busy_s")),
                Variant(("busy_s",), "1 - not idle", lambda q: q.seconds("busy_s") - q["busy_s"],
                        lambda q: q.seconds("busy_s")),
                _time_share("cpuidle", "idle_s"),
                _time_share("/proc/stat idle + iowait", "stat_idle_s", "stat_iowait_s"),
            ),
            high=1.0,
        ),
        Metric(
            "poll", "poll", "ratio",
            "Share of elapsed time spent polling: the system was idle, but the core ran.",
            (_time_share("cpuidle", "poll_s"),), title="polling idle", is_small=True, high=1.0,
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
            title="involuntary halts", digits=2, is_small=True, min_highlighted=0.005,
            high=1.0, better_sign=-1,
        ),
        Metric(
            "steal", "steal", "ratio",
            "Share of elapsed time in which the hypervisor ran something else. Steps of 10 ms.",
            (_time_share("/proc/stat", "stat_steal_s"),),
            is_small=True, min_highlighted=0.01, high=1.0, better_sign=-1,
        ),
        Metric(
            "user", "user", "ratio",
            "Share of elapsed time in user space, niced or not, by the system's account: sampled "
            "once a tick, so good to a few per cent only.",
            (_time_share("/proc/stat user + nice", "stat_user_s", "stat_nice_s"),),
            is_coarse=True, high=1.0,
        ),
        Metric(
            "system", "kernel", "ratio",
            "Share of elapsed time in the kernel, interrupts included, by the system's account.",
            (_time_share("/proc/stat system + irq + softirq",
                         "stat_system_s", "stat_irq_s", "stat_softirq_s"),),
            is_coarse=True, high=1.0,
        ),
        Metric(
            "iowait", "iowait", "ratio",
            "Share of elapsed time idle with a task of this CPU waiting for a disk: part of idle.",
            (_time_share("/proc/stat", "stat_iowait_s"),),
            is_small=True, is_coarse=True, high=1.0,
        ),
        Metric(
            "ipc", "IPC", "1",
            "Instructions retired per cycle while not halted.",
            _quotient("instructions", "cycles"), digits=2, while_running=True, better_sign=1,
        ),
        Metric(
            "kernel_cycles", "krn", "ratio",
            "Share of the cycles that were spent in the kernel.",
            _quotient("kernel_cycles", "cycles"),
            title="kernel cycles", while_running=True, high=1.0,
        ),
        Metric(
            "kernel_instructions", "krn ins", "ratio",
            "Share of the instructions that were retired in the kernel.",
            _quotient("kernel_instructions", "instructions"),
            title="kernel instructions", while_running=True, high=1.0,
        ),
        Metric(
            "lost_ratio", "lost time", "ratio",
            "Share of its time that a working CPU did not get: steal, involuntary halts, and a "
            "clock below the ceiling, as far as they are known. No moment counts twice.",
            tuple(Variant((needed,), "steal, halts, clock below ceiling")
                  for needed in ("busy_s", "idle_s", "stat_idle_s")),
            min_highlighted=0.05, high=1.0,
            better_sign=-1,
            source_metrics=("util", "idle", "poll", "steal", "involuntary", "busy_hz"),
        ),
    )
}  # fmt: skip
INDEX = {key: i for i, key in enumerate(METRICS)}
"""Index of each metric, the same in every stream."""
COUNTS = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions", "smi")
"""Counters that are also exported as raw counts."""


def _slots(key: str, label: str, text: str) -> Metric:
    variants = _quotient(key, "slots")
    return Metric(f"{key}_ratio", label, "ratio", text, variants, while_running=True, high=1.0)


RARE_METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        _slots("topdown_retiring", "retiring",
               "Share of issue slots whose work was useful, in steps of 0.4 %."),
        _slots("topdown_bad_speculation", "bad spec",
               "Share of issue slots lost to work that was thrown away."),
        _slots("topdown_frontend", "front end",
               "Share of issue slots for which no instruction was available."),
        _slots("topdown_backend", "back end",
               "Share of issue slots lost because memory or execution units were not ready."),
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
            _quotient("smt_contention", "cycles", "slots given to the sibling / slots of cycles"),
            title="slots to sibling", while_running=True, high=1.0,
        ),
    )
}  # fmt: skip
"""Metrics that few CPUs support. Only streams with their counters have them."""


def _by_key(scope: Scope, *numbers: Number) -> dict[str, Number]:
    return {number.key: replace(number, scope=scope) for number in numbers}


_TIME = "Share of the time in which"
CORE = _by_key(
    "core",
    Number("both", "both", "ratio", f"{_TIME} both threads of its core were active.",
           title="both active", export="smt_both_ratio"),
    Number("lp0", "lp0 only", "ratio", f"{_TIME} only the first thread of its core was active.",
           export="smt_lp0_ratio"),
    Number("lp1", "lp1 only", "ratio", f"{_TIME} only the second thread of its core was active.",
           export="smt_lp1_ratio"),
    Number("neither", "neither", "ratio", f"{_TIME} no thread of its core was active.",
           export="smt_neither_ratio"),
    Number("active_threads", "threads", "1",
           "Mean number of threads of its core that were not halted.", digits=2),
    Number("turbo_ceiling_hz", "ceil", "Hz", "Clock that turbo allows with as many active cores.",
           title="turbo ceiling"),
    Number("turbo_ceiling_low_hz", "ceil min", "Hz",
           "Lowest clock at which its core is allowed to run."),
    Number("turbo_ceiling_high_hz", "ceil max", "Hz",
           "Highest clock at which its core is allowed to run."),
    Number("core_power_w", "core power", "W", "Power of its core, where the CPU reports it.",
           counter="energy_core_j"),
)  # fmt: skip
"""Numbers that the siblings of a core share."""
CPU = _by_key(
    "cpu",
    Number("smi", "SMI", "1/s", "System management interrupts per second."),
    Number("task", "task", "", "Which task used the CPU most."),
    Number("runs", "runs", "ratio", "Share of the time in which that task ran."),
    Number("ipc_alone", "IPC alone", "1",
           "IPC of its task while the sibling was idle, learnt from this run.", digits=2),
)  # fmt: skip
"""Numbers of a CPU that are not metrics."""
_POWER = (
    Number("power_w", "power", "W", "Power of all packages.", counter="energy_j"),
    Number("power_limit_w", "limit", "W", "Limit of the power of all packages.",
           title="power limit", counter="power_limit_w"),
    Number("power_dram_w", "dram", "W", "Power of the memory of all packages.",
           title="memory power", counter="energy_ram_j"),
    Number("memory_read_bytes_per_s", "mem rd", "B/s", "Memory reads of all packages.",
           title="memory reads", digits=2, counter="memory_read_bytes"),
    Number("memory_write_bytes_per_s", "mem wr", "B/s", "Memory writes of all packages.",
           title="memory writes", digits=2, counter="memory_write_bytes"),
    Number("memory_of_best", "mem", "ratio",
           "Memory traffic as a share of the highest traffic in any second of this run.",
           title="memory traffic", export="memory_of_best_ratio", counter="memory_read_bytes"),
    Number("temperature_c", "temp", "°C", "Temperature of the hottest package.",
           title="temperature", digits=0, counter="temperature_c"),
)  # fmt: skip
_PRESSURE = "Share of the time in which some task had to wait"
MACHINE = _by_key(
    "machine",
    *_POWER,
    Number("pressure_cpu", "p cpu", "ratio", f"{_PRESSURE} for a CPU.", title="waits for a CPU",
           counter="pressure_cpu_s"),
    Number("pressure_memory", "p mem", "ratio", f"{_PRESSURE} for memory.",
           title="waits for memory", counter="pressure_memory_s"),
    Number("pressure_io", "p io", "ratio", f"{_PRESSURE} for a disk.", title="waits for a disk",
           counter="pressure_io_s"),
    Number("interrupts_hz", "intr", "1/s", "Interrupts of all CPUs, per second.",
           title="interrupts", counter="interrupts"),
    Number("context_switches_hz", "ctxt", "1/s", "Context switches of all CPUs, per second.",
           title="switches", counter="context_switches"),
    Number("load_1", "load 1", "1", "Load average of 1 minute, from the kernel.", title="load",
           digits=2, counter="load_1"),
    Number("load_5", "load 5", "1", "Load average of 5 minutes.", digits=2,
           counter="load_5"),
    Number("load_15", "load 15", "1", "Load average of 15 minutes.", digits=2,
           counter="load_15"),
)  # fmt: skip
"""Machine-wide numbers, with the keys of the object `machine` in JSON lines."""


def _package_number(number: Number) -> Number:
    """Converts a number of the machine to the number of one package."""
    text = number.help.replace("of all packages", "of its package")
    text = text.replace("all packages", "its package").replace("the hottest package", "its package")
    key, label = f"package_{number.key}", f"p {number.label}"
    export = f"package_{number.export}" if number.export else ""
    return replace(number, key=key, label=label, help=text, export=export, title=number.plain_name)


PACKAGE = _by_key("package", *map(_package_number, _POWER))
L3 = _by_key(
    "l3",
    Number("l3_memory_bytes_per_s", "L3 mem", "B/s",
           "Traffic between its L3 and memory, where resctrl is mounted.", digits=2,
           counter="l3_memory_bytes"),
    Number("l3_local_bytes_per_s", "L3 local", "B/s",
           "The part of that traffic with its own node.", digits=2, counter="l3_local_bytes"),
    Number("l3_occupancy_bytes", "L3 used", "B", "How much of its L3 was in use.",
           counter="l3_occupancy_bytes"),
)  # fmt: skip
COUNTER_BY_NAME = {key: number.counter for key, number in MACHINE.items()}
"""The counter of each number of the machine."""
PACKAGE_NAMES = tuple(key.removeprefix("package_") for key in PACKAGE)
"""Names of the numbers that both the machine and each package have."""
L3_COUNTERS = {key.removeprefix("l3_"): number.counter for key, number in L3.items()}
"""The counter of each number of an L3, by the number's name in JSON output."""
RUN = _by_key(
    "run",
    Number("length_s", "length", "s", "How long the phase lasted.", digits=4, is_unbounded=True),
    Number("run_s", "run time", "s", "How long the command ran.", digits=4, better_sign=-1,
           is_unbounded=True),
    Number("cpu_s", "CPU time", "s", "User and system time of the command.", digits=4,
           better_sign=-1, is_unbounded=True),
    Number("waited_s", "waits for CPU", "s", "How long its tasks waited for a CPU.", digits=3,
           better_sign=-1, is_unbounded=True),
    Number("disk_s", "waits for disk", "s", "How long its tasks waited for a disk.", digits=3,
           better_sign=-1, is_unbounded=True),
    Number("others_cpus", "others", "CPUs", "CPUs that other tasks kept busy, at least.", digits=2,
           better_sign=-1),
    Number("below_ceiling", "below ceiling", "ratio",
           "Share of the working time with a clock below its ceiling.", better_sign=-1),
    Number("instructions", "instructions", "G", "Instructions retired.", digits=4,
           is_unbounded=True),
    Number("energy_j", "energy", "J", "Energy of all packages.", digits=3, better_sign=-1,
           is_unbounded=True),
)  # fmt: skip
"""Numbers of a whole run or phase."""
NUMBERS: dict[str, Number] = METRICS | RARE_METRICS | CORE | CPU | MACHINE | PACKAGE | L3 | RUN
"""All numbers by key."""
EVENT_PREFIX = "e."
"""Prefix of the keys of chosen events."""
PER_KI = "/ki"
"""Suffix of the keys of events per thousand instructions."""


def is_event_key(key: str) -> bool:
    """Returns whether the metric depends on events, so that only some streams have it."""
    return key.startswith(EVENT_PREFIX) or key in RARE_METRICS
