"""Draws the answer of `perfprobe doctor`: what can be read here, what not, why, and the fix."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from perftop.base.text import in_ascii, machine, mark

Answer = dict[str, Any]
INDENT = 20


def draw(answer: Answer, width: int = 100, *, unicode: bool = True) -> list[str]:
    lines = [" · ".join(machine(answer)), ""]
    for check in answer["checks"]:
        lines += _check(check, mark(check["state"], unicode=unicode), width)
    lines += ["", *_verdict(answer, width)]
    if items := answer.get("readiness"):
        lines += ["", *_readiness(items, width, unicode=unicode)]
    return lines if unicode else [in_ascii(line) for line in lines]


def _check(check: Answer, sign: str, width: int) -> list[str]:
    lines = _wrapped(f"{sign} {check['what']:<{INDENT - 2}}{check['why']}", width)
    if check["lost"]:
        lines += _wrapped(" " * INDENT + f"without it: {check['lost']}", width)
    if check["fix"]:
        lines += _wrapped(" " * INDENT + f"to mend: {check['fix']}", width)
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, 2 * INDENT), subsequent_indent=" " * INDENT, drop_whitespace=True,
        replace_whitespace=False, break_long_words=False,
    )  # fmt: skip


def _verdict(answer: Answer, width: int) -> list[str]:
    """The lines on what perftop uses and what it cannot measure here."""
    rows = [("source", answer["source"]), ("SMT method", answer["smt_method"] or "none")]
    for name in ("tsc_hz", "base_hz"):
        rate = answer[name]
        if rate:
            error = f", within {rate['error'] * 1e6:.1f} ppm" if rate["error"] else ""
            rows.append((name, f"{rate['hz'] / 1e6:.3f} MHz, {rate['origin']}{error}"))
        else:
            rows.append((name, "unknown"))
    rows += [
        (f"{m['counter']} tick", f"x {m['factor']:g} TSC ticks: {m['why']}")
        for m in answer["multipliers"]
    ]
    reasons: dict[str, list[str]] = {}
    for missing in answer["missing"]:
        reasons.setdefault(missing["why"], []).append(missing["what"])
    rows += [("n/a", f"{', '.join(keys)}: {why}") for why, keys in reasons.items()]
    return [line for key, text in rows for line in _wrapped(f"  {key:<{INDENT - 2}}{text}", width)]


def _readiness(items: Sequence[Answer], width: int, *, unicode: bool) -> list[str]:
    """The lines on how suitable the machine is for benchmarks."""
    lines = ["Benchmarks here:"]
    for item in items:
        sign = mark(item["state"], unicode=unicode)
        lines += _wrapped(f"{sign} {item['what']:<{INDENT - 2}}{item['now']}", width)
        if item["effect"]:
            lines += _wrapped(" " * INDENT + item["effect"], width)
        if item["change"]:
            lines += _wrapped(" " * INDENT + f"to change: {item['change']}", width)
    return lines
