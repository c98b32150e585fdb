"""`perftop selftest`: draws the probe's verdicts on its counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perftop.base.format import round_number
from perftop.base.text import in_ascii, mark, ranges, wrapped

Answer = dict[str, Any]
VERDICTS = ("trusted", "close", "disturbed", "unusable")
MEANS = {
    "close": "off by more than the test's own error, not by much",
    "disturbed": "others were at work, or CPU time was limited: try again on a quieter machine",
    "unusable": "wrong: do not believe numbers that need it",
}
NAME, VERDICT = 22, 11
ROWS = 4
"""Values of a counter that are shown: those of cores would fill the screen."""
INDENT = 2 + NAME


def draw(answer: Answer, width: int = 100, *, unicode: bool = True) -> list[str]:
    lines = [f"{answer['host']}: counters of source {answer['source']} against known counts", ""]
    there = [check for check in answer["checks"] if check["verdict"] != "not there"]
    for check in there:
        lines += _check(check, mark(check["verdict"], unicode=unicode), width)
    lines += _not_there(answer["checks"], width)
    if answer["unchecked"]:
        names = ", ".join(answer["unchecked"])
        text = f"  {'not tested':<{NAME}}nothing moves by a known amount: {names}"
        lines += wrapped(text, width, INDENT)
    if "instruments" in answer:
        lines += ["", "Every source and instrument:"]
        for row in answer["instruments"]:
            lines += _instrument(row, mark(row["verdict"], unicode=unicode), width)
    lines += ["", *wrapped(_sum(answer, there), width, 0)]
    return lines if unicode else [in_ascii(line) for line in lines]


def _check(check: Answer, sign: str, width: int) -> list[str]:
    verdict = check["verdict"]
    head = f"{sign} {check['counter']:<{NAME}}{verdict:<{VERDICT}}{check['what']}"
    details, of = [], _of(check)
    if check["measured"] is not None:
        measured, expected = (
            _amount(check[key], check["unit"]) for key in ("measured", "expected")
        )
        off = f"off by {100 * abs(check['error']):.2f} %{of}" if check["error"] else "exact"
        details.append(f"{measured} for {expected}, {off}")
    allowed = f"{100 * check['tolerance']:.3g} %{of} allowed: {check['why']}"
    details += [allowed, f"from {check['origin']}"]
    if verdict != "trusted" and check["cpus"]:
        details.append(_cpus("on", check["cpus"]))
    if check["disturbed"] and verdict != "disturbed":
        details.append(_cpus("disturbed on", check["disturbed"]))
    means = f"{MEANS[verdict]}; " if verdict in MEANS else ""
    if check["measured"] is None:
        means = "no sample could be used; "
    rest = " " * INDENT + means + "; ".join(details)
    return [*wrapped(head, width, INDENT), *wrapped(rest, width, INDENT)]


def _instrument(row: Answer, sign: str, width: int) -> list[str]:
    """A source or an instrument: its verdict, what it measured, and why it is no better."""
    told = [_number(number) for number in row["measured"]]
    told += [row["why"]] if row["why"] else []
    told += [f"fix: {row['fix']}"] if row["fix"] else []
    text = f"{sign} {row['instrument']:<{NAME}}{row['verdict']:<{VERDICT}}{'; '.join(told)}"
    return wrapped(text, width, INDENT + VERDICT)


def _number(number: Answer) -> str:
    """A counter with its value of each row, the first ROWS of them."""
    values, unit = number["values"], number["unit"]
    if unit == "polls":
        bits = ", ".join(number["bits"]) or "no bit set"
        return f"{number['counter']} {min(values):.0f} polls, {bits}"
    shown = ", ".join(_short(value) for value in values[:ROWS])
    more = f" and {len(values) - ROWS} more" if len(values) > ROWS else ""
    expected = f" ({number['nearest']:g} expected)" if "nearest" in number else ""
    return f"{number['counter']} {shown}{more} {unit}{expected}"


def _short(value: float) -> str:
    """Three digits or more, with a prefix such as M or G where it is large."""
    return round_number(value) if abs(value) >= 1e4 else f"{value:.3g}"


def _of(check: Answer) -> str:
    """The value that errors are shares of, as text; '' if it is the expected value."""
    scale = check["scale"]
    return "" if scale in {None, check["expected"]} else f" of {_amount(scale, check['unit'])}"


def _cpus(what: str, cpus: Sequence[int]) -> str:
    return f"{what} CPU{'s' if len(cpus) > 1 else ''} {ranges(cpus)}"


def _amount(value: float, unit: str) -> str:
    if unit == "s":
        if abs(value) < 1e-4:
            return f"{1e6 * value:.1f} µs"
        return f"{value:.4f} s"
    if unit == "Hz":
        return f"{value / 1e6:.4f} MHz"
    return f"{value:,.0f} {unit}"


def _not_there(checks: Sequence[Answer], width: int) -> list[str]:
    reasons: dict[tuple[str, str | None], list[str]] = {}
    for check in checks:
        if check["verdict"] == "not there":
            reasons.setdefault((check["why"], check["fix"]), []).append(check["counter"])
    lines = []
    for (why, fix), names in reasons.items():
        mend = f"; fix: {fix}" if fix else ""
        text = f"  {'not there':<{NAME}}{', '.join(names)}: {why}{mend}"
        lines += wrapped(text, width, INDENT)
    return lines


def _sum(answer: Answer, there: Sequence[Answer]) -> str:
    counts = [(verdict, sum(c["verdict"] == verdict for c in there)) for verdict in VERDICTS]
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
    wrong = f"; wrong: {', '.join(answer['wrong'])}" if answer["wrong"] else ""
    return f"{len(there)} tests in {answer['elapsed_s']:.1f} s: {text}{wrong}"
