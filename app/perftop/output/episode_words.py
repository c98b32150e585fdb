"""Episodes in words: place, depth, cause and evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perftop.base.format import percent, rough, short_duration
from perftop.base.text import ranges
from perftop.model.episode import LOW_CLOCK
from perftop.model.evidence import Bit, Crowd, Host, Polled, Ran, Took

if TYPE_CHECKING:
    from perfprobe.wire import Cpu

CUT = "…"
LEAST_HZ = 5e6
"""Losses of clock below this are none."""
_CAUSES = {
    "power-pl1": "power limit PL1", "power-pl2": "power limit PL2", "current": "current limit",
    "prochot": "PROCHOT", "vr": "voltage regulator", "hwp": "HWP", "license": "SIMD license",
    "simd": "SIMD", "smm": "SMM", "hdc": "HDC", "clock-change": "clock changes", "-": "",
    "unknown": "cause unknown", "modulation": "clock modulation", "level": "SIMD level",
}  # fmt: skip
_CAUSELESS = frozenset({"ramp", "smi", "online", "offline"})
"""Kinds whose name already says the cause."""
_OF = {"power_w": "power_limit_w", "busy_hz": "ceiling_hz", "IPC": "IPC alone"}
"""Evidence shown together with what it is compared with, by key."""
_FIRST = "capped by", "SIMD", "power_w", "IPC", "temperature_c"
"""Keys of the most convincing evidence."""
_MOST_NAMES = 4
"""Tasks named in one piece of evidence; the others are only counted."""


def depth(kind: str, value: float | None) -> str:
    """The depth in the unit of the kind; '' if it was not measured."""
    if value is None or not math.isfinite(value):
        return ""
    if kind in LOW_CLOCK:
        return f"−{value / 1e9:.2f} GHz" if value >= LEAST_HZ else ""
    if kind == "ramp":
        return f"+{value / 1e9:.2f} GHz"
    return f"{value:.0f}×" if kind == "smi" else f"{percent(value)} %"


def cause(kind: str, name: str) -> str:
    """The cause in words."""
    return "" if kind in _CAUSELESS and name == "unknown" else _CAUSES.get(name, name)


def where(topology: Sequence[Cpu], cpus: Iterable[int], most: int = 24) -> str:
    """Names of packages or cores if the CPUs are all their online CPUs, else CPU numbers. A list of
    more than `most` characters is cut."""
    mine = set(cpus)
    if len(mine) == 1:
        return f"CPU {min(mine)}"
    online = [row for row in topology if row.online]
    what, names = _whole(online, [row for row in online if row.cpu in mine], len(mine)) or (
        "CPU", ranges(mine))  # fmt: skip
    if not set(",-").intersection(names):
        return f"{what} {names}"
    if len(names) <= most:
        return f"{what}s {names}"
    return f"{len(mine)} CPUs {ranges(mine)[:most].rpartition(',')[0]},{CUT}"


def where_briefly(
    topology: Sequence[Cpu], cpus: Iterable[int], first: int | None, most: int = 9
) -> str:
    """The same in a few words, for a sentence: of CPUs whose list is longer than `most` characters,
    `first` and how many more."""
    mine = set(cpus)
    name = where(topology, mine, most)
    if name.startswith("packages ") and len(mine) == sum(row.online for row in topology):
        return "both packages" if len({row.package for row in topology}) == 2 else "all packages"
    if not name.endswith(CUT):
        return name
    return f"CPU {min(mine) if first is None else first} (+{len(mine) - 1})"


def _whole(online: Sequence[Cpu], mine: Sequence[Cpu], count: int) -> tuple[str, str] | None:
    """The kind and the numbers of the packages or cores that the CPUs fill; None if they fill none.
    `mine`: those of the `count` CPUs that are online."""
    cores, packages = {(row.package, row.core) for row in mine}, {row.package for row in mine}
    known = [package for package in packages if package is not None]
    if len(known) < len(packages) or len(mine) != count:
        return None
    of_cores = sum((row.package, row.core) in cores for row in online) == count > len(cores)
    of_packages = sum(row.package in packages for row in online) == count > len(packages)
    if len(cores) > 1 and of_packages:
        return "package", ranges(known)
    if of_cores and len(known) == 1 and (known[0], None) not in cores:
        several = any(row.package != known[0] for row in online)
        names = ranges(core for _, core in cores if core is not None)
        return "core", f"{known[0]}:{names}" if several else names
    return None


def worded(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence as in JSON: codes of detectors become text, numbers stay."""
    found = {}
    for key, value in evidence.items():
        name, said = _WORDED.get(key, (key, None))
        found[name] = value if said is None else said(value)
    return found


def _polled(seen: Polled, name: Callable[[Bit], str]) -> str:
    bits = (f"{name(bit)} in {bit.times:.0f} of {seen.polls:.0f} polls" for bit in seen.bits)
    return ", ".join(bits)


def _numbered(bit: Bit) -> str:
    plain = f"bit {bit.number}"
    return plain if bit.part in {None, plain} else f"{plain} ({bit.part})"


def _reasons(seen: Polled) -> str:
    if not seen.polls:
        return "not told by this source"
    return _polled(seen, _numbered) or f"none in {seen.polls:.0f} polls"


def _status(seen: Polled) -> str:
    return _polled(seen, lambda bit: f"bit {bit.number}" if bit.part is None else bit.part)


def _came_on(seen: Polled) -> str:
    return ", ".join(bit.part or f"bit {bit.number}" for bit in seen.bits)


def _names(found: Host | Sequence[Ran | Crowd]) -> str:
    if isinstance(found, Host):
        return f"another guest of {found.name or 'the hypervisor'}, or a cap on this one"
    more = len(found) - _MOST_NAMES
    names = ", ".join(_one(who) for who in found[:_MOST_NAMES])
    return f"{names} and {more} more" if more > 0 else names


def _one(who: Ran | Crowd) -> str:
    if isinstance(who, Crowd):
        return f"{who.threads} threads of the job on CPU {who.cpu}"
    return f"{who.comm} ({who.pid}) on CPU {who.cpu}"


def _always(text: str) -> Callable[[Any], str]:
    return lambda _: text


def _share(of: str, before: str = "") -> Callable[[float], str]:
    return lambda share: f"{before}{rough(share)} of {of}"


_PCU = _share("the power control unit's cycles", "in ")


def _groups(took: Iterable[Took]) -> str:
    """Groups of resctrl and what each moved: batch 45.1 GB/s."""
    return ", ".join(f"{one.group} {one.bytes_per_s / 1e9:.1f} GB/s" for one in took)


_COUNTED = _always("counted by the kernel")
_WORDED: dict[str, tuple[str, Callable[[Any], Any] | None]] = {
    "cap": ("capped by", lambda cap: f"{cap.by}, {cap.hz / 1e9:.2f} GHz"),
    "simd": ("SIMD", lambda simd: f"level {simd.number} in {rough(simd.share)} of cycles"),
    "limit_reasons": ("limit reason", _reasons),
    "package_thermal": ("package status", _status),
    "core_thermal": ("core status", _status),
    "hsmp_limits": ("HSMP limit", _status),
    "pstate_limit": ("P-state limit", None),
    "plr_reasons": ("came on (PLR)", _came_on),
    "pcu_power": ("power limit", _PCU),
    "pcu_current": ("current limit", _PCU),
    "pcu_thermal": ("thermal limit", _PCU),
    "pcu_prochot_internal": ("PROCHOT, internal", _PCU),
    "pcu_prochot_external": ("PROCHOT, external", _PCU),
    "pcu_vr": ("VR hot", _PCU),
    "pcu_os": ("limit by the OS", _PCU),
    "pcu_avx256": ("AVX-256 clip", _PCU),
    "pcu_avx512": ("AVX-512 clip", _PCU),
    "package_throttles": ("package throttles", _COUNTED),
    "package_power_limits": ("package power limits", _COUNTED),
    "core_throttles": ("core throttles", _COUNTED),
    "core_power_limits": ("core power limits", _COUNTED),
    "hwp_max": ("HWP maximum", lambda level: f"level {level.number:.0f} of {level.highest:.0f}"),
    "hwp_epp": ("energy preference", None),
    "ceiling": ("ceiling", _always("the base clock, for no turbo table is known")),
    "told_by": ("told by", _always("the kernel, at its end")),
    "explained_by_modulation": ("duty set in register 19AH", _share("the loss")),
    "explained_by_thermal": ("thermal or PROCHOT status", _share("the time")),
    "explained_by_hdc": ("MPERF ran on", _share("the loss")),
    "explained_by_smi": ("stopped with all other CPUs", _share("the loss")),
    "explained_by_simd": ("throttled before a SIMD level", _share("the loss")),
    "explained_by_pcu": ("clock changes by the PCU's count", _share("the loss")),
    "explained_by_between": ("clock between two steps", _share("the time")),
    "slots_to_sibling": ("slots that went to the sibling", _share("all")),
    "ipc": ("IPC", None),
    "ipc_alone": ("IPC alone", None),
    "turbo_drop": ("turbo drop", None),
    "l3_groups": ("L3 groups", _groups),
    "who": ("who", _names),
    "self": ("self", _names),
    "rests_on": ("rests on", _always("steal of /proc/stat, in ticks of 10 ms")),
}
"""The key in JSON and the words for the value, by the key of detectors; None: the value stays."""


def evidence(cause: str, evidence: Mapping[str, Any]) -> str:
    """The evidence in one line, without what the cause already says."""
    return " · ".join(pieces(cause, evidence))


def pieces(cause: str, evidence: Mapping[str, Any]) -> list[str]:
    """The same piece by piece, the most convincing ones first."""
    evidence = worded(evidence)
    limits = {limit for key, limit in _OF.items() if key in evidence}
    told = [key for key in evidence if key not in limits and key != cause]
    told.sort(key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST))
    return [_beside(key, evidence[key], evidence.get(_OF.get(key, ""))) for key in told]


def _beside(key: str, value: object, limit: object) -> str:
    """A piece of evidence, with its limit if it has one: 150 of 150 W."""
    if limit is None:
        return told(key, value)
    if key == "IPC":
        return f"IPC {value}, alone {limit}"
    number, _, unit = told(key, value).rpartition(" ")
    return f"{number} of {told(key, limit).split(' ')[-2]} {unit}"


def _seconds(value_s: float) -> str:
    return f"{1e6 * value_s:.0f} us" if value_s < 1e-3 else short_duration(value_s)


_NAMES = {
    "busy_hz": "clock", "sibling_active_share": "both busy", "rests on": "from",
    "first_hz": "from at most", "steady_hz": "to", "drops": "drops on the way:",
    "t90_s": "90 % within", "t99_s": "99 % within", "steady_s": "steady within",
    "slowest_s": "the slowest within", "slowest_cpu": "that is CPU",
    "as_if_clock_changes_of_8.5_us_per_s": "as if by clock changes of 8.5 us,",
    "error_share": "error up to", "error_of_idle_share": "of idle",
    "memory_bytes_per_s": "traffic", "memory_of_best_share": "memory used, of the best seen:",
    "error_of_reading_share": "of reading", "error_of_steal_share": "of steal",
}  # fmt: skip
"""Words for keys that are not clear by themselves."""
_UNITS: dict[str, Callable[[float], str]] = {
    "_bytes_per_s": lambda value: f"{1e-9 * value:.1f} GB/s",
    "_hz": lambda value: f"{1e-9 * value:.2f} GHz",
    "_w": lambda value: f"{value:.0f} W",
    "_c": lambda value: f"{value:.0f} °C",
    "_share": lambda value: f"{100 * value:.{0 if value >= 0.1 else 2}f} %",
    "_per_s": lambda value: f"{value:.3g}/s" if value < 100 else f"{value:.0f}/s",
    "_s": _seconds,
}
"""Values as text, by the end of the key; the first end that fits is used."""


def told(key: str, value: object) -> str:
    """A piece of evidence as text; the end of its key names the unit of a number."""
    name = _NAMES.get(key)
    for end, shown in _UNITS.items():
        if key.endswith(end) and isinstance(value, int | float):
            return f"{name or key.removesuffix(end).replace('_', ' ')} {shown(value)}"
    return f"{name or key.replace('_', ' ') + ':'} {value}"
