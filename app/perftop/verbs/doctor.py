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
        more = ("without it: ", check["lost"]), ("fix: ", check["fix"])
        lines += _told(check, check["why"], more, width, unicode=unicode)
    lines += ["", *_verdict(answer, width)]
    if items := answer.get("readiness"):
        lines += ["", "Benchmarks here:"]
        for item in items:
            more = ("", item["effect"]), ("to change: ", item["change"])
            lines += _told(item, item["now"], more, width, unicode=unicode)
    lines.append("")
    for sentence in next_step.sentences(answer, asked):
        lines += wrapped(sentence, width, 0)
    return lines if unicode else [in_ascii(line) for line in lines]


def _told(
    item: Answer, now: str, more: Sequence[tuple[str, str | None]], width: int, *, unicode: bool
) -> list[str]:
    """A check: its sign, what it is and how it stands; below that what else is known of it."""
    sign = mark(item["state"], unicode=unicode)
    lines = wrapped(f"{sign} {item['what']:<{INDENT - 2}}{now}", width, INDENT)
    for label, text in more:
        lines += wrapped(f"{'':{INDENT}}{label}{text}", width, INDENT) if text else []
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
