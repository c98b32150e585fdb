"""Draws the answer of `perfprobe doctor`: what can be read here, what not, why, and the fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perftop.base.text import in_ascii, machine, mark, wrapped
from perftop.verbs import next_step
from perftop.verbs.next_step import Asked

Answer = dict[str, Any]
INDENT = 20
HERE = Asked()


def draw(
    answer: Answer, width: int = 100, *, unicode: bool = True, asked: Asked = HERE
) -> list[str]:
    lines = [" · ".join(machine(answer)), ""]
    for check in answer["checks"]:
        lines += _check(check, mark(check["state"], unicode=unicode), width)
    lines += ["", *_verdict(answer, width)]
    if items := answer.get("readiness"):
        lines += ["", *_readiness(items, width, unicode=unicode)]
    lines.append("")
    for sentence in next_step.sentences(answer, asked):
        lines += wrapped(sentence, width, 0)
    return lines if unicode else [in_ascii(line) for line in lines]


def _check(check: Answer, sign: str, width: int) -> list[str]:
    lines = wrapped(f"{sign} {check['what']:<{INDENT - 2}}{check['why']}", width, INDENT)
    if check["lost"]:
        lines += wrapped(" " * INDENT + f"without it: {check['lost']}", width, INDENT)
    if check["fix"]:
        lines += wrapped(" " * INDENT + f"fix: {check['fix']}", width, INDENT)
    return lines


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
    return [
        line
        for key, text in rows
        for line in wrapped(f"  {key:<{INDENT - 2}}{text}", width, INDENT)
    ]


def _readiness(items: Sequence[Answer], width: int, *, unicode: bool) -> list[str]:
    """The lines on how suitable the machine is for benchmarks."""
    lines = ["Benchmarks here:"]
    for item in items:
        sign = mark(item["state"], unicode=unicode)
        lines += wrapped(f"{sign} {item['what']:<{INDENT - 2}}{item['now']}", width, INDENT)
        if item["effect"]:
            lines += wrapped(" " * INDENT + item["effect"], width, INDENT)
        if item["change"]:
            lines += wrapped(" " * INDENT + f"to change: {item['change']}", width, INDENT)
    return lines
