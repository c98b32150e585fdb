"""Compares two sides. The result has the differences between their machines, the numbers that
differ by more than the noise, and the answer in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from perftop.base.text import safe
from perftop.model.kinds import CAUSES, KINDS, cause_of
from perftop.model.numbers import Number
from perftop.output.compare.readings import (
    UNUSUAL,
    Cause,
    Reading,
    number_of,
    row_keys,
    shown_like,
    state_of,
)
from perftop.output.compare.statistics import (
    LEVEL,
    Difference,
    Estimate,
    difference,
    estimate,
    holm,
)
from perftop.output.machine_state import STATES, differs, label, shown
from perftop.output.sentences import inside

MIN_CAUSE = 0.01
"""Minimum difference between the shares that the two sides lost to a cause. With a smaller one, the
cause explains nothing."""
MIN_DIFFERENCE = 0.0005
"""Minimum difference, as a share or relative to A. A smaller one is ignored however significant it
is, because counters are not more accurate."""
NOISE, ALONE, UNSTEADY = "within the noise", "1 run", "unsteady"
UNNAMED = frozenset({"boot_id", "host", "command", "source", "sample_s"})
"""States that do not explain a difference by themselves."""
TIMES = ("run_s", "length_s")
LEADS = (*TIMES, "lost_ratio", "busy_hz", "ipc", "cpu_s", "util", "steal", "involuntary")
"""Candidates for the leading number of the answer, which is the first of them that differs."""
MAX_NAME = 20


@dataclass(frozen=True)
class Row:
    number: Number
    a: float
    b: float
    difference: Difference | None
    """None if the noise is unknown."""
    chance: float
    """Probability of such a difference by chance, corrected for the number of rows (Holm)."""
    sure: bool
    """Whether the difference exceeds the noise and is at least MIN_DIFFERENCE."""
    verdict: str
    cause: Cause | None = None
    """Cause of the episodes that explain the difference."""

    @property
    def unit(self) -> str:
        """The unit of the difference: points for shares, else percent of A."""
        return "points" if self.number.unit == "ratio" else "%"

    def relative(self, value: float) -> float:
        """Returns a difference, converted to `unit`."""
        return 100 * value / (1.0 if self.number.unit == "ratio" else abs(self.a))

    @property
    def size(self) -> str:
        return f"{abs(self.relative(self.b - self.a)):.1f} {self.unit}"


@dataclass(frozen=True)
class Differing:
    """A state in which the machines differ."""

    key: str
    a: object
    b: object
    explains: list[str]
    """Keys of the numbers whose differences this state explains."""
    cause: Cause | None


@dataclass(frozen=True)
class Comparison:
    label: str
    """Name of the phase; '' for the whole."""
    a: list[Reading]
    b: list[Reading]
    differing: list[Differing]
    same: list[str]
    rows: list[Row]
    only: tuple[list[str], list[str]]
    """For each side, the keys of the numbers that only this side has."""

    @property
    def blocks(self) -> bool:
        """Whether confidence intervals come from the variation within a single run."""
        return len(self.a) == len(self.b) == 1


@dataclass(frozen=True)
class _Pair:
    number: Number
    a: Estimate
    b: Estimate
    difference: Difference | None
    course: bool
    """Whether the difference is estimated from the variation within single runs."""


def compare(
    sides: Sequence[tuple[str, list[Reading], list[Reading]]], keys: Sequence[str] | None = None
) -> list[Comparison]:
    """Returns a comparison for each of `sides`, which have a label and the readings of both sides.
    `keys`: the numbers to compare; None: all. The probabilities are corrected for all rows of all
    comparisons."""
    pairs = [_pairs(a, b, keys) for _, a, b in sides]
    chances = iter(holm([
        one.difference.p for each in pairs for one in each if one.difference is not None
    ]))  # fmt: skip
    compared = []
    for (name, a, b), each in zip(sides, pairs, strict=True):
        extra = _lost_more(a, b)
        rows = [_row(one, 1.0 if one.difference is None else next(chances), extra) for one in each]
        explained = {row.number.key for row in rows if row.sure and row.cause is not None}
        state_a, state_b = state_of(a), state_of(b)
        # A state that only one side knows is not compared.
        both = [key for key in STATES if key in state_a and key in state_b]
        both += [key for key in state_a if key in state_b and key not in STATES]
        differing = [
            _differing(key, state_a[key], state_b[key], extra, explained)
            for key in both if differs(state_a[key], state_b[key])
        ]  # fmt: skip
        same = [key for key in both if not differs(state_a[key], state_b[key])]
        compared.append(Comparison(name, a, b, differing, same, rows, (_only(a, b), _only(b, a))))
    return compared


def _pairs(a: list[Reading], b: list[Reading], keys: Sequence[str] | None) -> list[_Pair]:
    pairs = []
    for key in row_keys(one.numbers for one in (*a, *b)):
        number = number_of(key)
        course = len(a) == len(b) == 1 and key in a[0].courses and key in b[0].courses
        of_a, of_b = (_estimate(side, key, course=course) for side in (a, b))
        asked = key not in UNUSUAL if keys is None else key in keys
        if of_a is None or of_b is None or not asked:
            continue
        if keys is None and not (_shows(number, of_a.mean) or _shows(number, of_b.mean)):
            continue  # for example, steal on a machine without a hypervisor
        if number.unit != "ratio" and of_a.mean == 0:
            continue  # no percentage of zero exists
        # If one of two runs is too unsteady, the other run is no evidence.
        unsteady = course and not (of_a.known and of_b.known)
        pairs.append(
            _Pair(number, of_a, of_b, None if unsteady else difference(of_a, of_b), course)
        )
    return pairs


def _shows(number: Number, value: float) -> bool:
    """Whether the value is displayed as anything but 0."""
    return value != 0 if number.rate else float(shown_like(number, value)) != 0


def _estimate(side: Sequence[Reading], key: str, *, course: bool) -> Estimate | None:
    """Returns the estimate over all runs, or over the course of the only run."""
    if course:
        return side[0].courses[key]
    values = [one.numbers[key] for one in side if key in one.numbers]
    return estimate(values) if values else None


def _only(side: Sequence[Reading], other: Sequence[Reading]) -> list[str]:
    theirs, ours = ({key for one in each for key in one.numbers} for each in (other, side))
    return [key for key in row_keys(one.numbers for one in side) if key in ours - theirs]


def _lost_more(a: Sequence[Reading], b: Sequence[Reading]) -> dict[Cause, float]:
    """Returns, by cause, the share that B lost minus the share that A lost, for differences of at
    least MIN_CAUSE."""
    differences = {}
    for cause in dict.fromkeys(cause for one in (*a, *b) for cause in one.lost):
        of_a, of_b = (fmean(one.lost.get(cause, 0.0) for one in side) for side in (a, b))
        if cause[1] not in {"other", "unknown"} and abs(of_b - of_a) >= MIN_CAUSE:
            differences[cause] = of_b - of_a
    return differences


def _row(pair: _Pair, chance: float, extra: dict[Cause, float]) -> Row:
    moved, better = pair.b.mean - pair.a.mean, pair.number.better
    least = MIN_DIFFERENCE * (1.0 if pair.number.unit == "ratio" else abs(pair.a.mean))
    sure = pair.difference is not None and chance < 1 - LEVEL and abs(moved) >= least
    if pair.difference is None:
        verdict = ALONE if not pair.course else UNSTEADY if abs(moved) >= least else NOISE
    elif not sure:
        verdict = NOISE
    elif better:
        verdict = "better" if moved * better > 0 else "worse"
    else:
        verdict = "higher" if moved > 0 else "lower"
    # A cause explains a difference if the side with the worse value lost more to it.
    loses = {
        cause: abs(share) for cause, share in extra.items()
        if pair.number.key in _rows_of(cause) and share * moved * better < 0
    }  # fmt: skip
    cause = max(loses, key=lambda cause: loses[cause], default=None) if sure else None
    return Row(pair.number, pair.a.mean, pair.b.mean, pair.difference, chance, sure, verdict, cause)


def _rows_of(cause: Cause) -> tuple[str, ...]:
    """Returns the keys of the numbers that episodes of this cause explain."""
    return KINDS[cause[0]].rows if cause[0] in KINDS else ()


def _differing(
    key: str, a: object, b: object, extra: dict[Cause, float], explained: set[str]
) -> Differing:
    """Returns a state in which both sides differ. It explains a number only if the cause of an
    episode depends on it."""
    names = [cause.key for cause in CAUSES.values() if key in cause.states]
    cause = next((one for one in extra if one[1] in names), None)
    keys = [] if cause is None else [key for key in _rows_of(cause) if key in explained]
    return Differing(key, a, b, keys, cause if keys else None)


# --- the answer


def answer(compared: Sequence[Comparison]) -> str:
    """Returns a sentence on the phase with the largest significant difference of the leading
    number."""
    rows = [(one, row) for one in compared for row in one.rows if row.sure]
    leading = min((_rank(row) for _, row in rows), default=0)
    leads = [pair for pair in rows if _rank(pair[1]) == leading]
    best = max(leads, key=lambda pair: abs(pair[1].relative(pair[1].b - pair[1].a)), default=None)
    if best is None:
        return _no_difference(compared)
    one, row = best
    place = f"In {safe(one.label, MAX_NAME)}, " if one.label else ""
    more = row.b > row.a
    if row.number.key in TIMES:
        return f"{place}B takes {row.size} {'longer' if more else 'less time'}{_why(one, row)}."
    name = row.number.words
    verb = "are" if any(word.endswith("s") for word in name.split()) else "is"
    return f"{place}B's {name} {verb} {row.size} {'higher' if more else 'lower'}{_why(one, row)}."


def _rank(row: Row) -> int:
    return LEADS.index(row.number.key) if row.number.key in LEADS else len(LEADS)


def _why(one: Comparison, row: Row) -> str:
    """Returns the state that explains a difference, else the cause of the episodes that explain it.
    Returns '' without an explanation, or if several changed states could explain the difference."""
    causes = [each.cause for each in one.rows if each.cause is not None]
    cause = row.cause or next(iter(causes), None)
    if cause is None:
        return ""
    of_a, of_b = (sum(each.lost.get(cause, 0.0) for each in side) / len(side)
                  for side in (one.a, one.b))  # fmt: skip
    if (row.verdict == "better") != (of_b < of_a):
        return ""
    states = [each for each in one.differing if each.explains and each.cause == cause]
    if len(states) == 1:
        state = states[0]
        a, b = (shown(state.key, value) for value in (state.a, state.b))
        return f": {label(state.key)} is {b} in B, {a} in A"
    name = inside(cause_of(cause[1]).subject or cause[1])
    return f": {name} takes {'less' if row.verdict == 'better' else 'more'} from it"


def _no_difference(compared: Sequence[Comparison]) -> str:
    rows = sorted((row for one in compared for row in one.rows), key=_rank)
    with_noise = [row for row in rows if row.difference is not None]
    alone = next((row for row in rows if row.number.key in TIMES and row.verdict == ALONE), None)
    if alone is not None and alone.number.key == "run_s":
        longer = "longer" if alone.b > alone.a else "less time"
        text = f"B took {alone.size} {longer}, which can be chance: one run a side"
        return f"{text}; no rate differs by more than the noise." if with_noise else f"{text}."
    if not with_noise or any(row.verdict == UNSTEADY for row in rows):
        return "Inconclusive: one run a side."
    lead = with_noise[0]
    half = lead.relative(lead.difference.half) if lead.difference is not None else 0.0
    difference = f"{lead.relative(lead.b - lead.a):+z.1f} ± {half:.1f} {lead.unit}"
    return f"A and B do not differ by more than the noise: {lead.number.words} {difference}."


def work(one: Comparison) -> str:
    """Returns a sentence on how the work and its speed differ, by instructions and clock; '' if
    these are no evidence."""
    rows = {row.number.key: row for row in one.rows}
    done, per, clock = (rows.get(key) for key in ("instructions", "ipc", "busy_hz"))
    if done is None or per is None or not per.sure:
        return ""
    if done.verdict == NOISE:
        work = "the same work"
    elif done.sure:
        work = f"{done.size} {'more' if done.b > done.a else 'fewer'} instructions"
    else:
        return ""
    cycles = "fewer" if per.b > per.a else "more"
    text = f"B does {work} in {cycles} cycles (IPC)"
    if clock is not None and clock.sure:
        of_second = "fewer" if clock.b < clock.a else "more"
        joint = "and" if of_second != cycles else "but"
        text += f", {joint} has {clock.size} {of_second} of them in each second"
    return text + "."


def not_known(compared: Sequence[Comparison]) -> Iterator[str]:
    """Yields sentences on questions that remain open."""
    one = compared[0]
    sure = any(row.sure for each in compared for row in each.rows)
    explaining = [label(state.key) for state in one.differing if state.explains]
    unexplained = [label(state.key) for state in one.differing
              if not state.explains and state.key not in UNNAMED]  # fmt: skip
    if sure and unexplained:
        names = _listed(unexplained)
        if explaining:
            yield f"whether {names} matters: it changed together with {_listed(explaining)}"
        elif len(unexplained) > 1:
            yield f"which of {names} matters: they changed together"
        else:
            yield f"whether {names} is the cause: no episode names it"
    if len(explaining) > 1:
        yield f"which of {_listed(explaining)} it is: they changed together"
    if any(each.blocks and row.difference is not None for each in compared for row in each.rows):
        yield "how much runs vary: intervals are from blocks of time within one run"
    unsteady = dict.fromkeys(row.number.words for each in compared for row in each.rows
                             if row.verdict == UNSTEADY)  # fmt: skip
    if unsteady:
        slow = "it changes" if len(unsteady) == 1 else "they change"
        yield f"noise of {_listed([*unsteady])}: {slow} too slowly for runs of this length"
    for side, keys in zip("AB", one.only, strict=True):
        if keys:  # both numbers of an event have the same name
            lacking = dict.fromkeys(number_of(key).words for key in keys)
            yield f"{_listed([*lacking])}: only {side} has it"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
