"""The answer of `perftop diff` in one sentence, and what could not be told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perftop.base.text import safe
from perftop.output.compare.comparison import ALONE, NOISE, UNSTEADY, UNTOLD, Comparison, Row
from perftop.output.compare.numbers import number_of
from perftop.output.compare.reading import Cause
from perftop.output.machine_state import label, shown
from perftop.output.sentences import CAUSES, inside

TIMES = frozenset({"run_s", "length_s"})
MOST_NAME = 20
LEADS = (*TIMES, "lost_ratio", "busy_hz", "ipc", "cpu_s", "util", "steal", "involuntary")
"""Numbers that the answer is about if they differ, the first that does."""


def answer(found: Sequence[Comparison]) -> str:
    """The sentence on the phase in which the leading number differs most for certain."""
    rows = [(one, row) for one in found for row in one.rows if row.sure]
    leading = min((_rank(row) for _, row in rows), default=0)
    leads = [pair for pair in rows if _rank(pair[1]) == leading]
    best = max(leads, key=lambda pair: abs(pair[1].relative(pair[1].b - pair[1].a)), default=None)
    if best is None:
        return _alike(found)
    one, row = best
    place = f"In {safe(one.label, MOST_NAME)}, " if one.label else ""
    return f"{place}B{_moved(row)}{_because(one, row)}."


def _rank(row: Row) -> int:
    return LEADS.index(row.number.key) if row.number.key in LEADS else len(LEADS)


def _moved(row: Row) -> str:
    more = row.b > row.a
    if row.number.key in TIMES:
        return f" takes {_much(row)} {'longer' if more else 'less time'}"
    return f"'s {row.number.label} is {_much(row)} {'higher' if more else 'lower'}"


def _much(row: Row) -> str:
    unit = " points" if row.number.points else " %"
    return f"{abs(row.relative(row.b - row.a)):.1f}{unit}"


def _because(one: Comparison, row: Row) -> str:
    """The state that explains something, else the cause of the episodes that do; '' if none does or
    several states changed that could."""
    causes = [each.cause for each in one.rows if each.cause is not None and row.sure]
    cause = row.cause or next(iter(causes), None)
    states = [each for each in one.differing if each.explains and each.cause == cause]
    if cause is None or (row.verdict == "better") != _gains(one, cause):
        return ""
    if len(states) == 1:
        state = states[0]
        a, b = (shown(state.key, value) for value in (state.a, state.b))
        return f": {label(state.key)} is {b} in B, {a} in A"
    name = inside(CAUSES.get(cause[1], cause[1]))
    return f": {name} takes {'less' if row.verdict == 'better' else 'more'} from it"


def _gains(one: Comparison, cause: Cause) -> bool:
    """Whether B loses less to it than A."""
    of_a, of_b = (sum(each.lost.get(cause, 0.0) for each in side) / len(side)
                  for side in (one.a, one.b))  # fmt: skip
    return of_b < of_a


def _alike(found: Sequence[Comparison]) -> str:
    """The answer where no difference is sure."""
    rows = sorted((row for one in found for row in one.rows), key=_rank)
    known = [row for row in rows if row.difference is not None]
    alone = next((row for row in rows if row.number.key in TIMES and row.verdict == ALONE), None)
    if alone is not None and alone.number.key == "run_s":
        longer = "longer" if alone.b > alone.a else "less time"
        said = f"B took {_much(alone)} {longer}, in one run each: that may be chance"
        return f"{said}; no rate differs by more than the noise." if known else f"{said}."
    if (moving := next((row for row in rows if row.verdict == UNSTEADY), None)) is not None:
        return f"Nothing is sure: B{_moved(moving)}, but that is unsteady in one run each."
    if not known:
        return "What differs cannot be told from noise: there is one run of each."
    lead = known[0]
    half = lead.relative(lead.difference.half) if lead.difference is not None else 0.0
    unit = "points" if lead.number.points else "%"
    return (
        "A and B do not differ by more than the noise: "
        f"{lead.number.label} {lead.relative(lead.b - lead.a):+.1f} ± {half:.1f} {unit}."
    )


def work(one: Comparison) -> str:
    """How the work and its speed differ, where instructions and clock tell; '' if they do not."""
    rows = {row.number.key: row for row in one.rows}
    done, per, clock = (rows.get(key) for key in ("instructions", "ipc", "busy_hz"))
    if done is None or per is None or not per.sure:
        return ""
    same = "the same work" if done.verdict == NOISE else (
        f"{_much(done)} {'more' if done.b > done.a else 'fewer'} instructions"
        if done.sure else "")  # fmt: skip
    if not same:
        return ""
    cycles = "fewer" if per.b > per.a else "more"
    said = f"B does {same} in {cycles} cycles (IPC)"
    if clock is not None and clock.sure:
        of_second = "fewer" if clock.b < clock.a else "more"
        joint = "and" if of_second != cycles else "but"
        said += f", {joint} has {_much(clock)} {of_second} of them in each second"
    return said + "."


def not_told(found: Sequence[Comparison]) -> Iterator[str]:
    one = found[0]
    sure = any(row.sure for each in found for row in each.rows)
    explaining = [state for state in one.differing if state.explains]
    others = [state for state in one.differing if not state.explains and state.key not in UNTOLD]
    if sure and others:
        names = _listed([label(state.key) for state in others])
        if explaining:
            what = _listed([label(state.key) for state in explaining])
            yield f"whether {names} matters: it changed together with {what}"
        elif len(others) > 1:
            yield f"which of {names} matters: they changed together"
        else:
            yield f"whether {names} is the cause: no episode names it"
    if len(explaining) > 1:
        names = _listed([label(state.key) for state in explaining])
        yield f"which of {names} it is: they changed together"
    if any(each.blocks and row.difference is not None for each in found for row in each.rows):
        yield "how much runs vary: intervals are from blocks of time of one run each"
    unsteady = dict.fromkeys(row.number.label for each in found for row in each.rows
                             if row.verdict == UNSTEADY)  # fmt: skip
    if unsteady:
        yield f"noise of {_listed([*unsteady])}: it changes too slowly for runs of this length"
    for side, keys in zip("AB", one.only, strict=True):
        if keys:  # an event has two numbers of one name
            lacking = [*dict.fromkeys(number_of(key).label for key in keys)]
            yield f"{_listed(lacking)}: only {side} has it"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
