"""Compares two sides: differences between their machines, and numbers that differ by more than the
noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, median

from perftop.model.kinds import CAUSES, KINDS
from perftop.model.numbers import Number
from perftop.output.compare.readings import (
    ON_REQUEST_KEYS,
    Reading,
    find_number,
    format_like,
    row_keys,
    shared_state,
)
from perftop.output.compare.statistics import (
    CONFIDENCE,
    Difference,
    difference,
    estimate,
    has_heavy_tails,
    holm_correction,
    ranked_difference,
    resolution,
)
from perftop.output.run_summary import SETTING_NAMES, is_different
from perftop.session.losses import CauseKey

MIN_LOSS_DIFFERENCE = 0.01
"""Minimum difference between the lost shares of A and B for which a cause can explain a number."""
MIN_DIFFERENCE = 0.01
"""Minimum difference that is reported, as a share or relative to A. Smaller ones, even if they
exceed the noise of these runs, may not recur in other runs."""
RESOLUTION = 0.0005
"""Smallest difference that counters resolve, as a share or relative to A."""
EQUIVALENCE_MARGIN = 0.02
"""Maximum distance from 0 of the ends of the confidence interval of a difference that counts as
none, as a share or relative to A."""
NOISE, ONE_RUN, UNSTEADY, SMALL = "within the noise", "1 run", "unsteady", "same"
"""Verdicts on differences that are not clear. SMALL: above the noise, but below MIN_DIFFERENCE."""


@dataclass(frozen=True)
class Row:
    number: Number
    side_a: float
    side_b: float
    """Means of both sides; medians if `is_ranked`."""
    change: float
    """B - A for shares, else B / A - 1."""
    interval: tuple[float, float] | None
    """Confidence interval of `change`, for all rows together; None if the noise is unknown."""
    probability: float
    """Probability of a difference this large by chance, corrected for the number of rows (Holm)."""
    is_ranked: bool
    """Whether medians are compared, by ranks."""
    is_clear: bool
    """Whether the difference exceeds the noise and is at least MIN_DIFFERENCE."""
    verdict: str
    cause: CauseKey | None = None
    """Cause of the episodes that explain the difference."""

    @property
    def unit(self) -> str:
        """The unit of the difference: points for shares, else percent of A."""
        return "points" if self.number.unit == "ratio" else "%"

    @property
    def is_same(self) -> bool:
        """Whether the difference is below MIN_DIFFERENCE or, with noise, certainly below
        EQUIVALENCE_MARGIN."""
        largest = max(map(abs, self.interval or (0.0,)))
        is_noise = self.verdict == NOISE and largest <= EQUIVALENCE_MARGIN
        return is_noise or self.verdict == SMALL

    @property
    def size_text(self) -> str:
        return f"{abs(100 * self.change):.1f} {self.unit}"

    @property
    def clarity(self) -> float:
        """The difference, divided by half the width of its confidence interval."""
        low, high = self.interval or (-inf, inf)
        return abs(self.change) / (high - low) * 2 if high > low else inf


@dataclass(frozen=True)
class DifferingState:
    key: str
    side_a: object
    side_b: object
    explained_keys: list[str]
    """Keys of the numbers whose differences this state explains."""
    cause: CauseKey | None


@dataclass(frozen=True)
class Comparison:
    label: str
    """Name of the phase; '' for the whole run."""
    side_a: list[Reading]
    side_b: list[Reading]
    differing_states: list[DifferingState]
    equal_states: list[str]
    """Keys of the settings and properties that are the same on both sides."""
    rows: list[Row]
    extra_loss: dict[CauseKey, float]
    """By cause, the share of time that B lost minus the share that A lost, if at least
    MIN_LOSS_DIFFERENCE. The largest difference is first."""
    one_sided_keys: tuple[list[str], list[str]]
    """For each side, the keys of the numbers that only it has."""
    is_interleaved: bool
    """Whether runs of A and B alternated, so that both had the same conditions."""

    @property
    def within_runs(self) -> bool:
        """Whether confidence intervals come from the variation within a single run."""
        return len(self.side_a) == len(self.side_b) == 1

    @property
    def files(self) -> tuple[int, int]:
        return _file_count(self.side_a), _file_count(self.side_b)


def _file_count(side: Sequence[Reading]) -> int:
    return len({reading.file for reading in side})


@dataclass(frozen=True)
class _Pair:
    number: Number
    side_a: float
    side_b: float
    difference: Difference | None
    from_single_runs: bool
    """Whether the difference is estimated from the variation within single runs."""


def compare(
    sides: Sequence[tuple[str, list[Reading], list[Reading]]],
    keys: Sequence[str] | None = None,
    *,
    is_interleaved: bool = False,
) -> list[Comparison]:
    """Returns a comparison for each of `sides`: a label, and the readings of A and of B. `keys`:
    the numbers to compare (default: all). Probabilities are corrected for all rows together."""
    pairs = [_compare_numbers(a, b, keys) for _, a, b in sides]
    differences = [pair.difference for phase in pairs for pair in phase]
    probabilities = iter(holm_correction([d.probability for d in differences if d is not None]))
    compared = []
    for (name, a, b), phase in zip(sides, pairs, strict=True):
        losses = {}
        for lost in dict.fromkeys(lost for run in (*a, *b) for lost in run.lost_shares):
            extra_share = lost_share(b, lost) - lost_share(a, lost)
            if lost[1] not in {"other", "unknown"} and abs(extra_share) >= MIN_LOSS_DIFFERENCE:
                losses[lost] = extra_share
        extra_loss = dict(sorted(losses.items(), key=lambda pair: -abs(pair[1])))
        no_result = 1.0, CONFIDENCE
        rows = [
            _row(pair, extra_loss, *(no_result if pair.difference is None else next(probabilities)))
            for pair in phase
        ]
        explained_keys = {row.number.key for row in rows if row.is_clear and row.cause is not None}
        state_a, state_b = shared_state(a), shared_state(b)
        # States known for only one side are not compared.
        common_keys = [key for key in SETTING_NAMES | state_a if key in state_a and key in state_b]
        equal_states, differing_states = [], []
        for key in common_keys:
            if not is_different(state_a[key], state_b[key]):
                equal_states.append(key)
                continue
            # A state explains a number only if the cause of an episode depends on it.
            names = [cause.key for cause in CAUSES.values() if key in cause.states]
            cause = next((cause for cause in extra_loss if cause[1] in names), None)
            keys_of_cause = () if cause is None else _explained_keys(cause)
            explained = [number for number in keys_of_cause if number in explained_keys]
            cause = cause if explained else None
            differing_states.append(
                DifferingState(key, state_a[key], state_b[key], explained, cause)
            )
        states = differing_states, equal_states
        one_sided = _keys_only_on_side(a, b), _keys_only_on_side(b, a)
        compared.append(
            Comparison(name, a, b, *states, rows, extra_loss, one_sided, is_interleaved)
        )
    return compared


def _compare_numbers(a: list[Reading], b: list[Reading], keys: Sequence[str] | None) -> list[_Pair]:
    pairs = []
    for key in row_keys(reading.numbers for reading in (*a, *b)):
        is_requested = key not in ON_REQUEST_KEYS if keys is None else key in keys
        pair = _compare_number(find_number(key), a, b) if is_requested else None
        if pair is None or (pair.number.unit != "ratio" and pair.side_a == 0):
            # A side lacks the number, or it is 0 in A, so the change in B has no percentage.
            continue
        is_shown_as_0 = all(
            value == 0 if pair.number.is_rate else float(format_like(pair.number, value)) == 0
            for value in (pair.side_a, pair.side_b)
        )  # for example, steal on a machine without a hypervisor
        if keys is not None or not is_shown_as_0:
            pairs.append(pair)
    return pairs


def _compare_number(number: Number, a: list[Reading], b: list[Reading]) -> _Pair | None:
    """Returns the values of a number on both sides and their difference; None if one is missing."""
    key, is_share = number.key, number.unit == "ratio"
    if len(a) == len(b) == 1 and key in a[0].series_estimates and key in b[0].series_estimates:
        series_a, series_b = a[0].series_estimates[key], b[0].series_estimates[key]
        # If either run is too unsteady, no interval is computed.
        is_steady = series_a.has_error and series_b.has_error
        estimated = difference(series_a, series_b, is_share=is_share) if is_steady else None
        return _Pair(number, series_a.mean, series_b.mean, estimated, from_single_runs=True)
    by_file = max(_file_count(a), _file_count(b)) > 1
    values_a, values_b = (side_values(side, key, by_file=by_file) for side in (a, b))
    if not values_a or not values_b:
        return None
    if has_heavy_tails(values_a, values_b):
        ranked = ranked_difference(values_a, values_b, is_share=is_share)
        return _Pair(number, median(values_a), median(values_b), ranked, from_single_runs=False)
    step = resolution([*values_a, *values_b])
    mean_a, mean_b = estimate(values_a, step), estimate(values_b, step)
    has_ratio = mean_a.mean != 0 or is_share
    estimated = difference(mean_a, mean_b, is_share=is_share) if has_ratio else None
    return _Pair(number, mean_a.mean, mean_b.mean, estimated, from_single_runs=False)


def side_values(side: Sequence[Reading], key: str, *, by_file: bool) -> list[float]:
    """Returns the number with this key in each run or, with `by_file`, its mean in each file,
    because the runs of a file share the state of the machine at that time."""
    values: dict[int, list[float]] = {}
    for index, reading in enumerate(side):
        if key in reading.numbers:
            values.setdefault(reading.file if by_file else index, []).append(reading.numbers[key])
    return [fmean(values_of_file) for values_of_file in values.values()]


def _keys_only_on_side(side: Sequence[Reading], other_side: Sequence[Reading]) -> list[str]:
    keys, other_keys = ({key for run in runs for key in run.numbers} for runs in (side, other_side))
    return [key for key in row_keys(run.numbers for run in side) if key in keys - other_keys]


def lost_share(side: Sequence[Reading], cause: CauseKey) -> float:
    return fmean(run.lost_shares.get(cause, 0.0) for run in side)


def _row(pair: _Pair, extra_loss: dict[CauseKey, float], probability: float, level: float) -> Row:
    b_minus_a, better = pair.side_b - pair.side_a, pair.number.better_sign
    is_share = pair.number.unit == "ratio"
    change = b_minus_a / (1.0 if is_share else abs(pair.side_a))
    interval, ranked = None, False
    if pair.difference is not None:
        change, ranked = pair.difference.value, pair.difference.is_ranked
        interval = pair.difference.interval(level)
    exceeds_noise = (
        interval is not None and probability < 1 - CONFIDENCE and abs(change) >= RESOLUTION
    )
    is_clear = exceeds_noise and abs(change) >= MIN_DIFFERENCE
    if interval is None:
        unsteady = pair.from_single_runs and abs(change) >= RESOLUTION
        verdict = ONE_RUN if not pair.from_single_runs else UNSTEADY if unsteady else NOISE
    elif not is_clear:
        verdict = SMALL if exceeds_noise else NOISE
    elif better:
        verdict = "better" if b_minus_a * better > 0 else "worse"
    else:
        verdict = "higher" if b_minus_a > 0 else "lower"
    cause = explaining_cause(extra_loss, pair.number, b_minus_a) if is_clear else None
    return Row(
        pair.number, pair.side_a, pair.side_b,
        change, interval, probability, ranked, is_clear, verdict, cause,
    )  # fmt: skip


def explaining_cause(
    extra_loss: Mapping[CauseKey, float], number: Number, b_minus_a: float
) -> CauseKey | None:
    """Returns the cause that best explains a difference: that to which the side with the worse
    value lost most more time than the other side; None if there is none."""
    losses = {
        cause: abs(share)
        for cause, share in extra_loss.items()
        if number.key in _explained_keys(cause) and share * b_minus_a * number.better_sign < 0
    }
    return max(losses, key=losses.__getitem__, default=None)


def _explained_keys(cause: CauseKey) -> tuple[str, ...]:
    """Returns the keys of the numbers whose differences a cause can explain."""
    return KINDS[cause[0]].explained_keys if cause[0] in KINDS else ()
