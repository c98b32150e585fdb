"""`perftop selftest`: checks every counter with code whose counts are known."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from perftop.base import files
from perftop.base.errors import cannot_write, print_error
from perftop.base.text import ranges, round_number, state_mark, wrap_indented
from perftop.verbs import machine, options
from perftop.verbs.machine import Answer, add_instrument, fact_lines

VERDICTS = ("trusted", "close", "disturbed", "unusable")
VERDICT_MEANINGS = {
    "close": "off by more than the test's own error, not by much",
    "disturbed": "others were at work, or CPU time was limited: try again on a quieter machine",
    "unusable": "wrong: do not believe numbers that need it",
}
NAME_WIDTH, VERDICT_WIDTH = 22, 11
"""Widths in cells of the columns of names and verdicts."""
MAX_VALUES = 4
"""Maximum number of values shown of a counter: those of all cores would fill the screen."""
INDENT = 2 + NAME_WIDTH


def add(verbs: Any) -> None:
    text = "check every counter against code whose counts are known"
    parser = add_instrument(verbs, "selftest", run, text)
    text = "source of the counters: auto, perf, msr, os"
    parser.add_argument("--source", default="auto", metavar="NAME", help=text)
    text = "a verdict on every source and instrument, also on those that are not there"
    parser.add_argument("--all", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    from perftop.process import launch

    arguments = ["--source", args.source, *(["--all"] if args.all else [])]
    answer = launch.ask_probe(options.probe_command(args, "selftest", *arguments))
    try:
        if args.host is None:  # the file describes this machine, for the screen on it
            files.save_findings(answer)
    except OSError as error:
        name = str(error.filename or files.findings_file())  # an error of a write has no name
        error_text = cannot_write(name, error)
        print_error(f"the result was not saved, so the screen will not warn: {error_text}")
    with machine.understood_answer(args):
        machine.show(answer, draw, as_json=args.json)
        return 1 if answer["wrong"] else 0


def draw(answer: Answer, width: int = 100, *, unicode: bool = True) -> list[str]:
    lines = [f"{answer['host']}: counters of source {answer['source']} against known counts", ""]
    done_checks = [check for check in answer["checks"] if check["verdict"] != "not there"]
    for check in done_checks:
        lines += _check_lines(check, state_mark(check["verdict"], unicode=unicode), width)
    reasons: dict[tuple[str, str | None], list[str]] = {}
    for check in answer["checks"]:
        if check["verdict"] == "not there":
            reasons.setdefault((check["why"], check["fix"]), []).append(check["counter"])
    for (reason, fix), names in reasons.items():
        text = f"{', '.join(names)}: {reason}{f'; fix: {fix}' if fix else ''}"
        lines += fact_lines("  not there", text, width, INDENT)
    if answer["unchecked"]:
        text = f"nothing moves by a known amount: {', '.join(answer['unchecked'])}"
        lines += fact_lines("  not tested", text, width, INDENT)
    if "instruments" in answer:
        lines += ["", "Every source and instrument:"]
        for row in answer["instruments"]:
            parts = [_number_text(number) for number in row["measured"]]
            parts += [row["why"]] if row["why"] else []
            parts += [f"fix: {row['fix']}"] if row["fix"] else []
            sign, verdict = state_mark(row["verdict"], unicode=unicode), row["verdict"]
            name = f"{sign} {row['instrument']:<{NAME_WIDTH}}{verdict:<{VERDICT_WIDTH}}"
            lines += fact_lines(name, "; ".join(parts), width, INDENT + VERDICT_WIDTH)
    counts = [(verdict, sum(c["verdict"] == verdict for c in done_checks)) for verdict in VERDICTS]
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
    wrong_text = f"; wrong: {', '.join(answer['wrong'])}" if answer["wrong"] else ""
    text = f"{len(done_checks)} tests in {answer['elapsed_s']:.1f} s: {text}{wrong_text}"
    return [*lines, "", *wrap_indented(text, width, 0)]


def _check_lines(check: Answer, sign: str, width: int) -> list[str]:
    verdict, unit, scale = check["verdict"], check["unit"], check["scale"]
    relative = "" if scale in {None, check["expected"]} else f" of {_amount_text(scale, unit)}"
    """Text with the reference value of relative errors; '' if it is the expected value."""
    parts = []
    if check["measured"] is None:
        parts.append("no sample could be used")
    else:
        if verdict in VERDICT_MEANINGS:
            parts.append(VERDICT_MEANINGS[verdict])
        measured, expected_amount = (
            _amount_text(check[key], unit) for key in ("measured", "expected")
        )
        error = f"off by {100 * abs(check['error']):.2f} %{relative}" if check["error"] else "exact"
        parts.append(f"{measured} for {expected_amount}, {error}")
    parts.append(f"{100 * check['tolerance']:.3g} %{relative} allowed: {check['why']}")
    parts.append(f"from {check['origin']}")
    if verdict != "trusted" and check["cpus"]:
        parts.append(_cpus_text("on", check["cpus"]))
    if check["disturbed"] and verdict != "disturbed":
        parts.append(_cpus_text("disturbed on", check["disturbed"]))
    name = f"{sign} {check['counter']}"
    first_line = fact_lines(name, f"{verdict:<{VERDICT_WIDTH}}{check['what']}", width, INDENT)
    return [*first_line, *fact_lines("", "; ".join(parts), width, INDENT)]


def _number_text(number: Answer) -> str:
    """Returns the text of a counter, with its values in the first MAX_VALUES rows."""
    values, unit = number["values"], number["unit"]
    if unit == "polls":
        bits = ", ".join(number["bits"]) or "no bit set"
        return f"{number['counter']} {min(values):.0f} polls, {bits}"
    texts = [round_number(v) if abs(v) >= 1e4 else f"{v:.3g}" for v in values[:MAX_VALUES]]
    shown_values = ", ".join(texts)
    more = f" and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
    expected_text = f" ({number['nearest']:g} expected)" if "nearest" in number else ""
    return f"{number['counter']} {shown_values}{more} {unit}{expected_text}"


def _cpus_text(text: str, cpus: Sequence[int]) -> str:
    return f"{text} CPU{'s' if len(cpus) > 1 else ''} {ranges(cpus)}"


def _amount_text(value: float, unit: str) -> str:
    if unit == "s":
        return f"{1e6 * value:.1f} µs" if abs(value) < 1e-4 else f"{value:.4f} s"
    if unit == "Hz":
        return f"{value / 1e6:.4f} MHz"
    return f"{value:,.0f} {unit}"
