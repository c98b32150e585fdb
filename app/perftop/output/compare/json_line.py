"""A comparison as a line of JSON."""

from __future__ import annotations

from collections.abc import Sequence

from perftop.output.compare.answer import answer, not_told
from perftop.output.compare.comparison import Comparison, Row
from perftop.output.stat_json import Line, number


def line(found: Sequence[Comparison], files: tuple[list[str], list[str]]) -> Line:
    """`diff`: `answer`, `state` of what differs in the machines, `same`, and by phase (`label`,
    null of the whole) the numbers in base units: of each side, `difference` B - A with its 95 %
    interval `low` to `high`, `chance` of it without a difference, for so many rows, `verdict`."""
    first = found[0]
    return {
        "type": "diff",
        "answer": answer(found),
        "a": {"files": files[0]},
        "b": {"files": files[1]},
        "state": [
            {"key": one.key, "a": one.a, "b": one.b, "explains": one.explains}
            for one in first.differing
        ],
        "same": first.same,
        "phases": [
            {
                "label": one.label or None,
                "runs_a": len(one.a),
                "runs_b": len(one.b),
                "numbers": {row.number.key: _row(row) for row in one.rows},
                "only_a": one.only[0],
                "only_b": one.only[1],
            }
            for one in found
        ],
        "not_told": list(not_told(found)),
    }


def _row(row: Row) -> Line:
    told = row.difference
    return {
        "a": number(row.a),
        "b": number(row.b),
        "difference": number(row.b - row.a),
        "low": None if told is None else number(told.mean - told.half),
        "high": None if told is None else number(told.mean + told.half),
        "chance": None if told is None else number(row.chance),
        "verdict": row.verdict,
        "cause": None if row.cause is None else row.cause[1],
    }
