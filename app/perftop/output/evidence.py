"""The evidence of episodes, as text and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perftop.base.text import short_duration, whole_percent
from perftop.model.confidence import CrowdedCpu, Hypervisor, PolledBits, TaskOnCpu


def evidence_json(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the evidence for JSON. Numbers remain numbers; other types become text."""
    line = {}
    for key, value in evidence.items():
        name, as_text = _EVIDENCE_FORMATS.get(key, (key, None))
        line[name] = value if as_text is None else as_text(value)
    return line


def evidence_text(cause: str, evidence: Mapping[str, Any]) -> str:
    return " · ".join(evidence_pieces(cause, evidence))


def evidence_pieces(cause: str, evidence: Mapping[str, Any]) -> list[str]:
    """Returns the evidence as short texts, most convincing first, except what the cause implies."""
    evidence = evidence_json(evidence)
    limits = {limit for key, limit in _LIMITS.items() if key in evidence}
    first_keys = [key for key in _MOST_CONVINCING if key in evidence]
    keys = [key for key in dict.fromkeys([*first_keys, *evidence])
            if key not in limits and key not in {cause, "label", "loser"}]  # fmt: skip
    texts = []
    for key in keys:
        piece, limit = evidence_piece(key, evidence[key]), _LIMITS.get(key, "")
        if limit in evidence and key == "IPC":
            piece = f"IPC {evidence[key]}, alone {evidence[limit]}"
        elif limit in evidence:  # for example: 150 of 150 W
            number, _, unit = piece.rpartition(" ")
            piece = f"{number} of {evidence_piece(key, evidence[limit]).split(' ')[-2]} {unit}"
        texts.append(piece)
    return texts


def evidence_piece(key: str, value: object) -> str:
    """Returns an item of the evidence as text. The unit of a number is the end of `key`."""
    if key == "changes with it":
        return f"IPC changed at {value} starts and stops"
    if key == "text":
        return str(value)
    name = _LABELS.get(key)
    for suffix, as_text in _UNITS.items():
        if key.endswith(suffix) and isinstance(value, int | float):
            return f"{name or key.removesuffix(suffix).replace('_', ' ')} {as_text(value)}"
    return f"{name or key.replace('_', ' ') + ':'} {value}"


_LIMITS = {"power_w": "power_limit_w", "busy_hz": "ceiling_hz", "IPC": "IPC alone"}
"""Key of the limit or reference that is shown beside an item of evidence, by key of the item."""
_MOST_CONVINCING = "capped by", "SIMD", "power_w", "IPC", "temperature_c"
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
