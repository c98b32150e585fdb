"""Confidence in the cause of an episode, and the evidence that supports it: its types, its text and
its JSON.

A cause is `measured` if three conditions hold: the counter counts the cause itself, not a side
effect; it was counted during the whole episode and at no other time, without being scaled up; and
its error is smaller than the effect. A cause that fails one of these conditions is `inferred`. A
loss without a cause is `unknown`.

`COUNTED_QUANTITIES` lists the counted quantity for each kind and cause. All detectors and reports
get their confidence from this module, and `perftop help trust` prints the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Literal, NamedTuple

from perftop.base.text import short_duration, whole_percent

Confidence = Literal["measured", "inferred", "unknown"]
_ASCENDING_CONFIDENCE: tuple[Confidence, ...] = ("unknown", "inferred", "measured")


class Quantity(NamedTuple):
    quantity: str
    """The counter or file that shows the cause."""
    is_cause: bool = True
    """Whether the quantity counts the cause itself, not a side effect."""
    inferred_if: str = ""
    """A case in which this cause is only inferred; '' if there is none."""


_LIMIT = "limit reasons, status bits or counters of the package that name it"
_POWER = Quantity(_LIMIT, inferred_if="only the power is at the limit")

COUNTED_QUANTITIES: dict[tuple[str, str], Quantity] = {
    ("turbo-drop", "policy"): Quantity("the limit that was set, with the clock within 2 % of it"),
    ("turbo-drop", "power-pl1"): _POWER,
    ("turbo-drop", "power-pl2"): _POWER,
    ("turbo-drop", "power-ppt"): Quantity(_LIMIT),
    ("turbo-drop", "current"): Quantity(_LIMIT),
    ("turbo-drop", "thermal"): Quantity(_LIMIT),
    ("turbo-drop", "prochot"): Quantity(_LIMIT),
    ("turbo-drop", "vr"): Quantity(_LIMIT),
    ("turbo-drop", "license"): Quantity("cycles in which wide SIMD code lowered the clock"),
    ("turbo-drop", "hwp"): Quantity(
        "a low HWP request, or a power-saving EPP and no limit reason", False
    ),
    ("turbo-drop", "hypervisor"): Quantity("steal, a sign of a busy host", False),
    ("turbo-drop", "governor"): Quantity("limit reasons: none was set", False),
    ("throttle", "thermal"): Quantity("the thermal status of cores, or the kernel's count of it"),
    ("throttle", "prochot"): Quantity("the PROCHOT status of cores"),
    ("throttle", "modulation"): Quantity("the duty cycle that a register requests"),
    ("involuntary-halt", "modulation"): Quantity("the duty cycle that a register requests"),
    ("involuntary-halt", "hdc"): Quantity("MPERF, which keeps counting during these halts", False),
    ("involuntary-halt", "smm"): Quantity("SMIs, while all CPUs were halted together", False),
    ("involuntary-halt", "simd"): Quantity("cycles that one thread waited for SIMD units", False),
    ("involuntary-halt", "clock-change"): Quantity("time of clock changes"),
    ("neighbour", "sibling"): Quantity("the IPC with and without the sibling, three times each"),
    ("neighbour", "scheduler"): Quantity("time in run queues, and who ran there"),
    ("neighbour", "package"): Quantity("active cores, and the ceiling that they allow"),
    ("neighbour", "memory"): Quantity("traffic of the package, of all programs together", False),
    ("neighbour", "cache"): Quantity("misses of the last-level cache", False),
    ("neighbour", "hypervisor"): Quantity("steal"),
    ("quota", "quota"): Quantity(
        "time for which the kernel stopped the group", inferred_if="its tasks waited longer"
    ),
    ("stopped", "stopped"): Quantity("the states of threads"),
    ("stopped", "split-lock"): Quantity("sleeps of 10 ms, counted in the kernel's log", False),
    ("memory-stall", "memory-limit"): Quantity("hits of the group's limit, and its stalled time"),
    ("memory-stall", "read-back"): Quantity("pages read back, and stalls of any cause", False),
    ("memory-stall", "reclaim"): Quantity("direct reclaims, and stalls of any cause", False),
    ("memory-stall", "compaction"): Quantity("compactions, and stalls of any cause", False),
    ("memory-stall", "numa-balancing"): Quantity("faults and moved pages, not their time", False),
    ("steal", "hypervisor"): Quantity("steal"),
    ("interrupt", "irq"): Quantity("the kernel's account of time in interrupts"),
    ("interrupt", "softirq"): Quantity("the kernel's account of time in softirqs"),
    ("license", "level"): Quantity("cycles at a SIMD level"),
    ("smi", "firmware"): Quantity("SMIs"),
    ("ramp", "-"): Quantity("the clock of each sample of the climb"),
    ("mark", "-"): Quantity("the moment at which the mark was set"),
    ("suspect", "*"): Quantity("counters that contradict others"),
    ("offline", "hotplug"): Quantity("the kernel's list of online CPUs"),
    ("online", "hotplug"): Quantity("the kernel's list of online CPUs"),
}
"""The counted quantity, by kind and cause of an episode; "*" matches any cause."""


def confidence(
    kind: str, cause: str, *, counted: bool = True, error: float = 0.0, effect: float = inf
) -> Confidence:
    """Returns the confidence in a cause. `counted`: whether its quantity in `COUNTED_QUANTITIES`
    was counted over the whole span, without scaling. `error`, `effect`: the error of the count and
    the size of the effect, in the same unit."""
    entry = COUNTED_QUANTITIES.get((kind, cause)) or COUNTED_QUANTITIES.get((kind, "*"))
    if entry is None:
        return "unknown"
    return "measured" if entry.is_cause and counted and error < effect else "inferred"


MIN_RELEVANT_SHARE = 0.1
"""Share of a loss that must have a lower confidence to lower the confidence of the whole loss."""


def combined_confidence(parts: Iterable[tuple[Confidence, float]]) -> Confidence:
    """Returns the confidence in a cause of several episodes: the highest one that all of the loss
    has, except for less than MIN_RELEVANT_SHARE. `parts`: confidence and loss of each episode."""
    losses: dict[Confidence, float] = {}
    for level, size in parts:
        losses[level] = losses.get(level, 0.0) + size
    substantial_loss, weaker_loss = MIN_RELEVANT_SHARE * sum(losses.values()), 0.0
    for level in _ASCENDING_CONFIDENCE:
        weaker_loss += losses.get(level, 0.0)
        if level in losses and weaker_loss >= substantial_loss:
            return level
    return "unknown"


# --- The types of evidence that detectors report in addition to plain numbers.

OUTSIDE_CPU = "outside the CPU"
"""Evidence that an external device asserted PROCHOT, so the CPU itself is not too hot."""
BASE_CLOCK = "base"
"""Evidence that no turbo table is known, so the base clock serves as the ceiling."""
KERNEL = "kernel"
"""Evidence that only a counter of the kernel shows the episode, after its end."""


class RegisterBit(NamedTuple):
    """A bit of a register, and the number of polls in which it was set."""

    number: int
    name: str | None
    """Name of the bit; None if the stream has no name for it."""
    times: float


class PolledBits(NamedTuple):
    """The bits that were set when a register was polled."""

    bits: tuple[RegisterBit, ...]
    polls: float
    """Number of reads of the register; 0 if the source has no such register."""


class SimdLevel(NamedTuple):
    """A SIMD level, and the share of the core's cycles spent at that level."""

    number: int
    share: float


class ClockCap(NamedTuple):
    """A clock limit in Hz that a user or program set; `name` is a key of `kinds.CLOCK_CAPS`."""

    name: str
    hz: float


class ValueWithMax(NamedTuple):
    """A number and its maximum."""

    number: float
    highest: float


class TaskOnCpu(NamedTuple):
    pid: int
    comm: str
    cpu: int


class CrowdedCpu(NamedTuple):
    threads: int
    cpu: int


class Hypervisor(NamedTuple):
    """The hypervisor of this guest."""

    name: str | None


class GroupTraffic(NamedTuple):
    group: str
    bytes_per_s: float


# --- Evidence as text and JSON.


def evidence_json(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the evidence for JSON. Numbers remain numbers; other types become text."""
    line = {}
    for key, value in evidence.items():
        name, as_text = _EVIDENCE_FORMATS.get(key, (key, None))
        line[name] = value if as_text is None else as_text(value)
    return line


def evidence_text(cause: str, evidence: Mapping[str, Any]) -> str:
    return " · ".join(evidence_texts(cause, evidence))


def evidence_texts(cause: str, evidence: Mapping[str, Any]) -> list[str]:
    """Returns the evidence as short texts, most convincing first, except what the cause implies."""
    evidence = evidence_json(evidence)
    limits = {limit for key, limit in _LIMITS.items() if key in evidence}
    first_keys = [key for key in _MOST_CONVINCING_KEYS if key in evidence]
    keys = [key for key in dict.fromkeys([*first_keys, *evidence])
            if key not in limits and key not in {cause, "label", "loser"}]  # fmt: skip
    texts = []
    for key in keys:
        piece, limit = format_evidence(key, evidence[key]), _LIMITS.get(key, "")
        if limit in evidence and key == "IPC":
            piece = f"IPC {evidence[key]}, alone {evidence[limit]}"
        elif limit in evidence:  # for example: 150 of 150 W
            number, _, unit = piece.rpartition(" ")
            piece = f"{number} of {format_evidence(key, evidence[limit]).split(' ')[-2]} {unit}"
        texts.append(piece)
    return texts


def format_evidence(key: str, value: object) -> str:
    """Returns an item of the evidence as text. The unit of a number is the end of `key`."""
    if key == "changes with it":
        return f"IPC changed when it started or stopped ({value})"
    if key == "text":
        return str(value)
    name = _LABELS.get(key)
    for suffix, as_text in _UNITS.items():
        if key.endswith(suffix) and isinstance(value, int | float):
            return f"{name or key.removesuffix(suffix).replace('_', ' ')} {as_text(value)}"
    return f"{name or key.replace('_', ' ') + ':'} {value}"


_LIMITS = {"power_w": "power_limit_w", "busy_hz": "ceiling_hz", "IPC": "IPC alone"}
"""Key of the limit or reference that is shown beside an item of evidence, by key of the item."""
_MOST_CONVINCING_KEYS = "capped by", "SIMD", "power_w", "IPC", "temperature_c"
"""JSON keys of the most convincing evidence, which is listed first."""
MAX_NAMES = 4
"""Maximum number of tasks named in one item of evidence. Further ones are only counted."""


def _status_text(polled: PolledBits, *, with_numbers: bool = False) -> str:
    texts = []
    for bit in polled.bits:
        number = f"bit {bit.number}"
        name = bit.name or number
        name = f"{number} ({name})" if with_numbers and name != number else name
        texts.append(f"{name} in {bit.times:.0f} of {polled.polls:.0f} polls")
    return ", ".join(texts)


def _reasons_text(polled: PolledBits) -> str:
    if not polled.polls:
        return "not available from this source"
    return _status_text(polled, with_numbers=True) or f"none in {polled.polls:.0f} polls"


def _task_names(tasks: Hypervisor | Sequence[TaskOnCpu | CrowdedCpu]) -> str:
    if isinstance(tasks, Hypervisor):
        return "another VM on this host, or a CPU cap on this VM"
    names = [
        f"{task.threads} threads of the job on CPU {task.cpu}" if isinstance(task, CrowdedCpu)
        else f"{task.comm}[{task.pid}] on CPU {task.cpu}"
        for task in tasks[:MAX_NAMES]
    ]  # fmt: skip
    suffix = f" and {len(tasks) - MAX_NAMES} more" if len(tasks) > MAX_NAMES else ""
    return ", ".join(names) + suffix


def _text_formatter(text: str) -> Callable[[Any], str]:
    return lambda _: text


def _share_formatter(suffix: str, prefix: str = "") -> Callable[[float], str]:
    return lambda share: f"{prefix}{whole_percent(share)} of {suffix}"


_PCU = _share_formatter("the power control unit's cycles", "in ")
_COUNTED_BY_KERNEL = _text_formatter("counted by the kernel")
_EVIDENCE_FORMATS: dict[str, tuple[str, Callable[[Any], Any] | None]] = {
    "cap": ("capped by", lambda cap: f"{cap.name}, {cap.hz / 1e9:.2f} GHz"),
    "simd": ("SIMD", lambda simd: f"level {simd.number} in {whole_percent(simd.share)} of cycles"),
    "limit_reasons": ("limit reason", _reasons_text),
    "package_thermal": ("package status", _status_text),
    "core_thermal": ("core status", _status_text),
    "hsmp_limits": ("HSMP limit", _status_text),
    "hsmp_limit_times": ("firmware's limit", _status_text),
    "pstate_limit": ("P-state limit", None),
    "plr_reasons": ("came on (PLR)", lambda polled: ", ".join(
        bit.name or f"bit {bit.number}" for bit in polled.bits)),
    "pcu_power": ("power limit", _PCU),
    "pcu_current": ("current limit", _PCU),
    "pcu_thermal": ("thermal limit", _PCU),
    "pcu_prochot_internal": ("PROCHOT, internal", _PCU),
    "pcu_prochot_external": ("PROCHOT, external", _PCU),
    "pcu_vr": ("VR hot", _PCU),
    "pcu_os": ("limit by the OS", _PCU),
    "pcu_avx256": ("AVX-256 clip", _PCU),
    "pcu_avx512": ("AVX-512 clip", _PCU),
    "package_throttles": ("package throttles", _COUNTED_BY_KERNEL),
    "package_power_limits": ("package power limits", _COUNTED_BY_KERNEL),
    "core_throttles": ("core throttles", _COUNTED_BY_KERNEL),
    "core_power_limits": ("core power limits", _COUNTED_BY_KERNEL),
    "hwp_max": ("HWP maximum", lambda level: f"level {level.number:.0f} of {level.highest:.0f}"),
    "hwp_epp": ("energy preference", None),
    "ceiling": ("ceiling", _text_formatter("the base clock: no turbo table is known")),
    "told_by": ("told by", _text_formatter("the kernel, at its end")),
    "explained_by_modulation": ("duty set in register 19AH", _share_formatter("the loss")),
    "explained_by_thermal": ("thermal or PROCHOT status", _share_formatter("the time")),
    "explained_by_hdc": ("MPERF ran on", _share_formatter("the loss")),
    "explained_by_smi": ("stopped with all other CPUs", _share_formatter("the loss")),
    "explained_by_simd": ("throttled before a SIMD level", _share_formatter("the loss")),
    "explained_by_pcu": ("clock changes by the PCU's count", _share_formatter("the loss")),
    "explained_by_between": ("clock between two steps", _share_formatter("the time")),
    "slots_to_sibling": ("slots that went to the sibling", _share_formatter("all")),
    "changes_with_sibling": (
        "changes with it", lambda value: f"{value.number:.0f} of {value.highest:.0f}"
    ),
    "ipc": ("IPC", None),
    "ipc_alone": ("IPC alone", None),
    "turbo_drop": ("turbo drop", None),
    "l3_groups": ("L3 groups", lambda groups: ", ".join(
        f"{group.group} {group.bytes_per_s / 1e9:.1f} GB/s" for group in groups)),
    "who": ("who", _task_names),
    "self": ("self", _task_names),
    "rests_on": ("rests on", _text_formatter("steal of /proc/stat, in ticks of 10 ms")),
}  # fmt: skip
"""By key in `detect`: the JSON key, and a function that formats the value (None: unchanged)."""
_LABELS = {
    "misses_per_ki": "misses per 1000 instructions:", "misses_per_ki_before": "before:",
    "came_per_s": "rate", "memory_limit_mb": "limit", "at_limit": "times at the limit:",
    "busy_hz": "clock", "sibling_active_share": "both busy",
    "rests on": "from", "told by": "reported by",
    "first_hz": "from at most", "steady_hz": "to", "drops": "drops on the way:",
    "t90_s": "90 % within", "t99_s": "99 % within", "steady_s": "steady within",
    "slowest_s": "the slowest within", "slowest_cpu": "that is CPU",
    "as_if_clock_changes_of_8.5_us_per_s": "as if by clock changes of 8.5 us,",
    "error_share": "error up to", "error_of_idle_share": "of idle",
    "memory_bytes_per_s": "traffic", "memory_of_best_share": "memory used, of the best seen:",
    "error_of_reading_share": "of reading", "error_of_steal_share": "of steal",
}  # fmt: skip
"""Texts for JSON keys that readers would not understand."""
_UNITS: dict[str, Callable[[float], str]] = {
    "_bytes_per_s": lambda value: f"{1e-9 * value:.1f} GB/s",
    "_hz": lambda value: f"{1e-9 * value:.2f} GHz",
    "_w": lambda value: f"{value:.0f} W",
    "_mb": lambda value: f"{value:.0f} MB",
    "_c": lambda value: f"{value:.0f} °C",
    "_share": lambda value: f"{100 * value:.{0 if value >= 0.1 else 2}f} %",
    "_per_s": lambda value: f"{value:.3g}/s" if value < 100 else f"{value:.0f}/s",
    "_s": lambda value: f"{1e6 * value:.0f} µs" if value < 1e-3 else short_duration(value),
}
"""Functions that format a value, by suffix of its key. The first matching suffix counts."""
