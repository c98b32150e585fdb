"""Apps fed by a simulated machine, and the numbers of a JSON line, which tests compare with the
screen."""

from __future__ import annotations

from typing import Any

from terminal_apps import ScriptedApp, messages
from textual import events
from waiting import until_true

from perfprobe import wire

Line = dict[str, Any]
QUIET = {"·", "n/a", "off", "–", "-"}
_WEIGHTS = {"busy_hz": "util", "ipc": "net_hz", "kernel_cycles": "net_hz"}
"""Weights of means over CPUs, by metric."""
SAMPLES = 110
"""Samples in 11 s: in most scenarios an episode runs at this time."""


def agrees(text: str, value: float | None, factor: float, slack: float = 0.501) -> bool:
    """Returns whether a drawn number equals `value` to the last digit that is drawn."""
    text = text.lstrip("≁").rstrip("▼◐")
    if text in QUIET:
        return True
    if value is None or not text:
        return False
    digits = len(text.partition(".")[2])
    return abs(float(text) - value * factor) <= slack / float(10**digits)


def sum_of_rows(rows: list[Line], key: str) -> float | None:
    """Returns a metric over all these CPUs together; None if no CPU has it."""
    weight = _WEIGHTS.get(key)
    known = [row for row in rows if row[key] is not None and (not weight or row[weight])]
    weights = [row[weight] if weight else 1.0 for row in known]
    if not known:
        return None
    pairs = zip(known, weights, strict=True)
    return float(sum(row[key] * each for row, each in pairs) / sum(weights))


def simulated_messages(scenario: str, cpus: int | None = None) -> list[wire.Message]:
    cpus = cpus or (24 if scenario == "hybrid" else 64)
    return messages(cpus, SAMPLES, scenario)


async def press_until_shown(app: ScriptedApp, key: str, title: str) -> list[str]:
    app.post_message(events.Key(key, None))
    await until_true(lambda: any(title in line for line in app.terminal.lines()), title)
    return app.terminal.lines()
