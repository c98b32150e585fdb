"""Two sides held against each other: what differs in their machines, and which numbers differ by
more than the noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from perfprobe.frozen import frozen
from perftop.base.statistics import LEVEL, Difference, Estimate, difference, estimate, holm
from perftop.base.text import safe
from perftop.output.compare.readings import Cause, Number, Reading, known, number_of, state_of
from perftop.output.machine_state import STATES, differs, label, shown
from perftop.output.sentences import CAUSES, inside

ACTS = 0.01
"""Share that must be lost to a cause, on one side more than on the other, to explain anything."""
LEAST = 0.0005
"""Share, or share of A, below which a difference is none, however sure: counters are no better."""
NOISE, ALONE, UNSTEADY = "within the noise", "1 run", "unsteady"
EXPLAINED: dict[str, tuple[str, ...]] = {
    "power_limit_w": ("power-pl1",), "power_limit2_w": ("power-pl2",),
    "turbo": ("policy",), "max_perf_pct": ("policy",), "max_hz": ("policy",),
    "governor": ("policy", "hwp"), "energy_performance_preference": ("hwp",),
    "hwp_epp": ("hwp",),
}  # fmt: skip
"""Causes of episodes that a state of the machine can be behind."""
ROWS_OF: dict[str, tuple[str, ...]] = {
    "turbo-drop": ("busy_hz", "below_ceiling", "lost_ratio"),
    "license": ("busy_hz", "below_ceiling", "lost_ratio"),
    "throttle": ("involuntary", "lost_ratio"), "involuntary-halt": ("involuntary", "lost_ratio"),
    "steal": ("steal", "lost_ratio"), "neighbour": ("waited_s", "ipc", "lost_ratio"),
}  # fmt: skip
"""Numbers that an episode explains, by its kind."""
ORDER = list(STATES)
UNTOLD = frozenset({"boot_id", "host", "command", "source", "sample_s"})
"""States that are no cause by themselves."""


@frozen
class Row:
    number: Number
    a: float
    b: float
    counts: tuple[int, int]
    """Runs of each side."""
    difference: Difference | None
    """None: nothing is known of the noise."""
    chance: float
    """That of the difference, among as many rows as there are (Holm)."""
    sure: bool
    """Whether the difference is more than the noise, and not too small to be one."""
    verdict: str
    cause: Cause | None = None
    """What an episode explains it by."""

    def relative(self, value: float) -> float:
        """A difference in percent of A, or in points."""
        return value * 100 if self.number.points else 100 * value / abs(self.a)


@frozen
class Differing:
    """A state of the machines that is not the same."""

    key: str
    a: object
    b: object
    explains: list[str]
    """Keys of numbers."""
    cause: Cause | None


@frozen
class Comparison:
    label: str
    """Name of the phase; '': it is the whole."""
    a: list[Reading]
    b: list[Reading]
    differing: list[Differing]
    same: list[str]
    rows: list[Row]
    only: tuple[list[str], list[str]]
    """Keys of numbers that only one side has."""

    @property
    def blocks(self) -> bool:
        """Whether intervals come from the course of a single run."""
        return len(self.a) == len(self.b) == 1


@frozen
class _Pair:
    number: Number
    a: Estimate
    b: Estimate
    difference: Difference | None
    course: bool
    """Whether it is estimated from the course of single runs."""


def compare(
    sides: Sequence[tuple[str, list[Reading], list[Reading]]], keys: Sequence[str] | None = None
) -> list[Comparison]:
    """Label and both sides of each comparison. `keys`: the numbers to compare; None: all. The
    chances allow for all rows of all of them."""
    pairs = [_pairs(a, b, keys) for _, a, b in sides]
    chances = iter(holm([
        one.difference.p for each in pairs for one in each if one.difference is not None
    ]))  # fmt: skip
    found = []
    for (name, a, b), each in zip(sides, pairs, strict=True):
        differing, same = _states(a, b)
        more = _more(a, b)
        rows = []
        for one in each:
            chance = 1.0 if one.difference is None else next(chances)
            rows.append(_row(one, chance, (len(a), len(b)), more))
        sure = {row.number.key for row in rows if row.sure and row.cause is not None}
        told = [_explaining(*one, more, sure) for one in differing]
        only = _only(a, b), _only(b, a)
        found.append(Comparison(name, a, b, told, same, rows, only))
    return found


def _pairs(a: list[Reading], b: list[Reading], keys: Sequence[str] | None) -> list[_Pair]:
    found = []
    for key in known(one.numbers for one in (*a, *b)):
        number = number_of(key)
        mine, other = _estimate(a, b, key), _estimate(b, a, key)
        wanted = number.usual if keys is None else key in keys
        if mine is None or other is None or not wanted:
            continue
        if keys is None and not (number.seen(mine.mean) or number.seen(other.mean)):
            continue  # such as steal where there is no hypervisor
        if not number.points and mine.mean == 0:
            continue  # nothing can be told in percent of it
        course = _of_course(a, b, key)
        # Where one of two runs is too unsteady, the other says nothing about it.
        told = None if course and not (mine.known and other.known) else difference(mine, other)
        found.append(_Pair(number, mine, other, told, course))
    return found


def _estimate(mine: Sequence[Reading], others: Sequence[Reading], key: str) -> Estimate | None:
    """Over the runs; of single runs on both sides, over their course."""
    if _of_course(mine, others, key):
        return mine[0].courses[key]
    values = [one.numbers[key] for one in mine if key in one.numbers]
    return estimate(values) if values else None


def _of_course(mine: Sequence[Reading], others: Sequence[Reading], key: str) -> bool:
    alone = len(mine) == len(others) == 1
    return alone and key in mine[0].courses and key in others[0].courses


def _only(mine: Sequence[Reading], others: Sequence[Reading]) -> list[str]:
    there = {key for one in others for key in one.numbers}
    keys = known(one.numbers for one in mine)
    return [key for key in keys if key not in there and any(key in one.numbers for one in mine)]


def _row(pair: _Pair, chance: float, counts: tuple[int, int], more: dict[Cause, float]) -> Row:
    moved = pair.b.mean - pair.a.mean
    least = LEAST if pair.number.points else LEAST * abs(pair.a.mean)
    sure = pair.difference is not None and chance < 1 - LEVEL and abs(moved) >= least
    verdict = _verdict(pair, moved, sure=sure)
    if verdict == UNSTEADY and abs(moved) < least:
        verdict = NOISE
    return Row(
        pair.number, pair.a.mean, pair.b.mean, counts, pair.difference, chance, sure, verdict,
        _cause(pair.number, moved, more) if sure else None,
    )  # fmt: skip


def _verdict(pair: _Pair, moved: float, *, sure: bool) -> str:
    if pair.difference is None:
        return UNSTEADY if pair.course else ALONE
    if not sure:
        return NOISE
    if pair.number.better:
        return "better" if moved * pair.number.better > 0 else "worse"
    return "higher" if moved > 0 else "lower"


def _more(a: Sequence[Reading], b: Sequence[Reading]) -> dict[Cause, float]:
    """The share that B lost more than A to each cause, where it is ACTS or more."""
    causes = dict.fromkeys(cause for one in (*a, *b) for cause in one.lost)
    found = {}
    for cause in causes:
        of_a, of_b = (fmean(one.lost.get(cause, 0.0) for one in side) for side in (a, b))
        if cause[1] not in {"other", "unknown"} and abs(of_b - of_a) >= ACTS:
            found[cause] = of_b - of_a
    return found


def _cause(number: Number, moved: float, more: dict[Cause, float]) -> Cause | None:
    """What explains this difference: the cause that took most more from the side that lost."""
    loses = {
        cause: share
        for cause, share in more.items()
        if number.key in ROWS_OF.get(cause[0], ()) and share * moved * number.better < 0
    }
    return max(loses, key=lambda cause: abs(loses[cause]), default=None)


def _states(
    a: Sequence[Reading], b: Sequence[Reading]
) -> tuple[list[tuple[str, object, object]], list[str]]:
    """What differs, and the keys of what is the same. What only one side tells is neither."""
    mine, other = state_of(a), state_of(b)
    both = [key for key in mine if key in other]
    both.sort(key=lambda key: ORDER.index(key) if key in ORDER else len(ORDER))
    differing = [(key, mine[key], other[key]) for key in both if differs(mine[key], other[key])]
    return differing, [key for key in both if not differs(mine[key], other[key])]


def _explaining(
    key: str, a: object, b: object, more: dict[Cause, float], sure: set[str]
) -> Differing:
    """A state explains a number only if an episode names it."""
    names = EXPLAINED.get(key, ())
    cause = next((one for one in more if one[1] in names), None)
    keys = [] if cause is None else [k for k in ROWS_OF.get(cause[0], ()) if k in sure]
    return Differing(key, a, b, keys, cause if keys else None)


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
