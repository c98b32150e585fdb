"""The state of a machine: hardware and settings in which two measurements can differ from the
start. Keys and values are those of the JSON output; the tables in this module translate them into
text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.text import ranges, safe
from perftop.output.stat_json import Line, number
from perftop.session.session import Session

MAX_SHOWN, MAX_VALUE = 60, 200
"""Maximum characters of a value on display, and of a value in the state."""
MAX_SETTINGS = 64
EQUAL = 0.002
"""Relative difference up to which two numbers count as equal, because the mean of a gauge is
rounded."""
STATES = {
    "power_limit_w": "power limit PL1",
    "power_limit2_w": "power limit PL2",
    "turbo": "turbo",
    "governor": "governor",
    "energy_performance_preference": "energy preference",
    "max_perf_pct": "clock limit",
    "max_hz": "highest clock",
    "hwp_epp": "EPP",
    "cpus": "CPUs",
    "selected": "CPUs selected",
    "smt": "SMT",
    "host": "host",
    "model": "model",
    "microcode": "microcode",
    "kernel": "kernel",
    "virtualisation": "hypervisor",
    "boot_id": "boot",
    "base_hz": "base clock",
    "packages": "packages",
    "source": "counters from",
    "sample_s": "sample",
    "command": "command",
}
"""Labels of the states by key, the most important first. A state that is not listed has its key as
its label."""
_SHOWS: dict[str, Callable[[float], str]] = {
    "power_limit_w": "{:g} W".format,
    "power_limit2_w": "{:g} W".format,
    "max_perf_pct": "{:g} %".format,
    "max_hz": lambda hz: f"{hz / 1e9:.2f} GHz",
    "base_hz": lambda hz: f"{hz / 1e9:.2f} GHz",
    "sample_s": "{:g} s".format,
}
"""By key, functions that format a number with its unit; numbers of other keys are printed as they
are."""


def label(key: str) -> str:
    return STATES.get(key) or key.replace("_", " ")


def value_text(key: str, value: object) -> str:
    """A value as text; for a boot, the first part of its ID."""
    if value is None:
        return "n/a"
    if isinstance(value, int | float):
        return _SHOWS.get(key, "{}".format if key in STATES else "{:g}".format)(value)
    text = safe(str(value), MAX_SHOWN)
    return text.partition("-")[0] if key == "boot_id" else text


def is_different(a: object, b: object) -> bool:
    """Whether two values differ; numbers must differ by more than EQUAL."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) > EQUAL * max(abs(a), abs(b))
    return a != b


def state(session: Session) -> Line:
    """Returns the states by key, without unknown ones. Power and clock limits are means over the
    run."""
    hello = session.hello
    online_cpus = [row.cpu for row in session.topology if row.online]
    has_siblings = any(len(set(core) & set(online_cpus)) > 1 for core in session.cores)
    selected = hello.selected
    settings = [*hello.settings.items()][:MAX_SETTINGS]  # untrusted
    states: Line = {
        "host": hello.host, "model": hello.identity.name or None,
        "microcode": hello.identity.microcode, "kernel": hello.kernel,
        "virtualisation": hello.virtualisation or "none", "boot_id": hello.boot_id,
        "cpus": f"{len(online_cpus)} of {len(session.topology)} on",
        "smt": "on" if has_siblings else "off",
        "selected": "all" if selected is None else ranges(selected),
        "packages": len(hello.packages), "source": hello.source,
        "base_hz": None if hello.base_hz is None else number(hello.base_hz.hz),
        "sample_s": hello.sample_ns / 1e9,
        **{safe(key, MAX_SHOWN): safe(value, MAX_VALUE) for key, value in settings},
        **_gauges(session),
    }  # fmt: skip
    return {key: value for key, value in states.items() if value is not None}


def _gauges(session: Session) -> Line:
    """Returns the settings that the frames of the stream report as gauges."""
    states: Line = {}
    for key in ("power_limit_w", "power_limit2_w", "max_perf_pct", "max_hz", "hwp_epp"):
        means = _means(session, key)
        if len(means):
            value = float(means.sum() if key.endswith("_w") else means.max())
            states[key] = number(float(f"{value:.4g}"))
    off_means = [_means(session, key) for key in ("turbo_off", "turbo_disabled")]
    shares = [float(means.max()) for means in off_means if len(means)]
    return states | ({"turbo": "off" if max(shares) > 0.5 else "on"} if shares else {})


def _means(session: Session, key: str) -> Floats:
    """Returns the means of a gauge over the run, without those that could not be read."""
    means = session.counters.rates(session.run.delta, key)
    return np.zeros(0) if means is None else means[np.isfinite(means)]
