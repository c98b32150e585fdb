"""Two sides held against each other: what differs in their machines, and which numbers differ by
more than the noise."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from perfprobe.frozen import frozen
from perftop.base.statistics import LEVEL, Difference, Estimate, difference, estimate, holm
from perftop.output.compare.numbers import Number, known, number_of
from perftop.output.compare.reading import Cause, Reading, state_of
from perftop.output.machine_state import STATES, differs

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
    for (label, a, b), each in zip(sides, pairs, strict=True):
        differing, same = _states(a, b)
        more = _more(a, b)
        rows = []
        for one in each:
            chance = 1.0 if one.difference is None else next(chances)
            rows.append(_row(one, chance, (len(a), len(b)), more))
        sure = {row.number.key for row in rows if row.sure and row.cause is not None}
        told = [_explaining(*one, more, sure) for one in differing]
        only = _only(a, b), _only(b, a)
        found.append(Comparison(label, a, b, told, same, rows, only))
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
