"""Compares two sides: differences between their machines, numbers that differ by more than the
noise, and the answer in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, median, variance

from perftop.base.text import count_noun, join_words, percent, safe_text
from perftop.model.kinds import CAUSES, KINDS, cause_of, kind_of_cause
from perftop.model.numbers import Number
from perftop.output.compare.readings import (
    ON_REQUEST_KEYS,
    Reading,
    format_like,
    number_of,
    row_keys,
    shared_state,
)
from perftop.output.compare.statistics import (
    CONFIDENCE,
    MAX_RUNS_NEEDED,
    Difference,
    difference,
    estimate,
    has_heavy_tails,
    holm_correction,
    ranked_difference,
    resolution,
    runs_needed,
    smallest_difference,
)
from perftop.output.run_summary import SETTING_NAMES, is_different, setting_label, value_text
from perftop.output.sentences import mid_sentence
from perftop.session.losses import Cause

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
MIN_OTHER_CPUS = 0.1
"""Minimum mean number of CPUs used by other tasks for the advice to use a quieter machine."""
NOISE, ONE_RUN, UNSTEADY, SMALL = "within the noise", "1 run", "unsteady", "same"
"""Verdicts on differences that are not clear. SMALL: above the noise, but below MIN_DIFFERENCE."""
UNEXPLAINING_STATES = frozenset({"boot_id", "host", "command", "source", "sample_s"})
"""States that never explain a difference."""
TIME_KEYS = ("run_s", "length_s")
MAX_NAME_LENGTH = 20


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
    chance: float
    """Probability of a difference this large by chance, corrected for the number of rows (Holm)."""
    is_ranked: bool
    """Whether medians are compared, by ranks."""
    is_clear: bool
    """Whether the difference exceeds the noise and is at least MIN_DIFFERENCE."""
    verdict: str
    cause: Cause | None = None
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
    cause: Cause | None


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
    extra_loss: dict[Cause, float]
    """By cause, the share of time that B lost minus the share that A lost, if at least
    MIN_LOSS_DIFFERENCE. The largest difference is first."""
    keys_of_one_side: tuple[list[str], list[str]]
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
    chances = iter(holm_correction([d.probability for d in differences if d is not None]))
    compared = []
    for (name, a, b), phase in zip(sides, pairs, strict=True):
        losses = {}
        for lost in dict.fromkeys(lost for run in (*a, *b) for lost in run.lost_shares):
            extra_share = lost_share(b, lost) - lost_share(a, lost)
            if lost[1] not in {"other", "unknown"} and abs(extra_share) >= MIN_LOSS_DIFFERENCE:
                losses[lost] = extra_share
        extra_loss = dict(sorted(losses.items(), key=lambda pair: -abs(pair[1])))
        no_chance = 1.0, CONFIDENCE
        rows = [
            _row(pair, extra_loss, *(no_chance if pair.difference is None else next(chances)))
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
        pair = _compare_number(number_of(key), a, b) if is_requested else None
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
    values_a, values_b = (_side_values(side, key, by_file=by_file) for side in (a, b))
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


def _side_values(side: Sequence[Reading], key: str, *, by_file: bool) -> list[float]:
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


def loss_sentences(phase: Comparison) -> Iterator[str]:
    """Yields a sentence about the losses of A and B to each cause in `extra_loss`, largest
    first."""
    for cause in phase.extra_loss:
        a, b = (percent(lost_share(side, cause)) for side in (phase.side_a, phase.side_b))
        yield f"{_loss_text(cause)}: {a} % in A, {b} % in B"


def _loss_text(cause: Cause) -> str:
    text, name = kind_of_cause(*cause).loss_text, cause_of(cause[1]).name
    return text if cause[0] == "neighbour" or name in text else f"{text} ({name})"


def lost_share(side: Sequence[Reading], cause: Cause) -> float:
    return fmean(run.lost_shares.get(cause, 0.0) for run in side)


def _row(pair: _Pair, extra_loss: dict[Cause, float], chance: float, level: float) -> Row:
    b_minus_a, better = pair.side_b - pair.side_a, pair.number.better_sign
    is_share = pair.number.unit == "ratio"
    change = b_minus_a / (1.0 if is_share else abs(pair.side_a))
    interval, ranked = None, False
    if pair.difference is not None:
        change, ranked = pair.difference.value, pair.difference.is_ranked
        interval = pair.difference.interval(level)
    exceeds_noise = interval is not None and chance < 1 - CONFIDENCE and abs(change) >= RESOLUTION
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
    # A cause explains a difference if the side with the worse value lost more to it.
    explaining_losses = {
        cause: abs(share)
        for cause, share in extra_loss.items()
        if pair.number.key in _explained_keys(cause) and share * b_minus_a * better < 0
    }
    costs = explaining_losses if is_clear else {}
    cause = max(costs, key=costs.__getitem__, default=None)
    return Row(
        pair.number, pair.side_a, pair.side_b,
        change, interval, chance, ranked, is_clear, verdict, cause,
    )  # fmt: skip


def _explained_keys(cause: Cause) -> tuple[str, ...]:
    """Returns the keys of the numbers whose differences a cause can explain."""
    return KINDS[cause[0]].explained_keys if cause[0] in KINDS else ()


# --- the sentence that answers the question


def headline(compared: Sequence[Comparison]) -> str:
    return " ".join(answer_sentences(compared))


def answer_sentences(compared: Sequence[Comparison]) -> list[str]:
    """Returns a sentence about the clear difference with the highest `clarity`, and one about the
    run time if that is a different row."""
    rows = [(phase, row) for phase in compared for row in phase.rows if row.is_clear]
    phase, row = max(rows, key=lambda pair: pair[1].clarity, default=(None, None))
    if phase is None or row is None:
        return _sentences_without_difference(compared)
    reason, place = _cause_text(phase, row), safe_text(phase.label, MAX_NAME_LENGTH)
    if phase.within_runs and any(row.interval is not None for row in phase.rows):
        place = f"{place} of these two runs" if place else "these two runs"
    place = f"In {place}, " if place else ""
    sentences = [f"{place}{_difference_text(row)}{reason}."]
    time = next((r for r in phase.rows if r.number.key in TIME_KEYS), None)
    if time is None or time is row or time.interval is None:
        return sentences
    if not time.is_clear:
        return [*sentences, f"{_possible_difference_text(phase, time)}."]
    return [*sentences, f"{_difference_text(time)}{'' if reason else _cause_text(phase, time)}."]


def _difference_text(row: Row) -> str:
    is_more = row.change > 0
    if row.number.key in TIME_KEYS:
        return f"B takes {row.size_text} {'longer' if is_more else 'less time'}"
    name = row.number.plain_name
    if row.number.key == "cpu_s":
        return f"B needs {row.size_text} {'more' if is_more else 'less'} {name}"
    verb = "are" if any(word.endswith("s") for word in name.split()) else "is"
    if row.unit == "points":
        a, b = (format_like(row.number, value) for value in (row.side_a, row.side_b))
        return f"{name} {verb} {b} % in B, {a} % in A"
    return f"B's {name} {verb} {row.size_text} {'higher' if is_more else 'lower'}"


def _possible_difference_text(phase: Comparison, row: Row, place: str = "") -> str:
    low, high = (f"{100 * end:+z.1f}".replace("-", "−") for end in row.interval or ())
    name = row.number.plain_name
    limits = f"{low} to {high}" if low != high else "less than 0.1"
    runs = " in these two runs" if phase.within_runs else ""
    text = f"{place}{name}: no difference found{runs}; {limits} {row.unit} is possible"
    return f"{text[:1].upper()}{text[1:]}"


def _cause_text(phase: Comparison, row: Row) -> str:
    """Returns the explanation of a difference: a changed setting of the machine, or else the cause
    of episodes; '' if neither explains it or several settings could."""
    cause = row.cause
    if cause is None and row.number.key in TIME_KEYS:
        cause = next((r.cause for r in phase.rows if r.cause is not None), None)
    if cause is None:
        return ""
    share_a, share_b = lost_share(phase.side_a, cause), lost_share(phase.side_b, cause)
    if (row.verdict == "better") != (share_b < share_a):
        return ""
    states = [
        state for state in phase.differing_states if state.explained_keys and state.cause == cause
    ]
    if len(states) == 1:
        state = states[0]
        a, b = (value_text(state.key, value) for value in (state.side_a, state.side_b))
        return f": {setting_label(state.key)} is {b} in B, {a} in A"
    name = mid_sentence(cause_of(cause[1]).subject or cause[1])
    return f": {name} takes {'less' if row.verdict == 'better' else 'more'} from it"


def _sentences_without_difference(compared: Sequence[Comparison]) -> list[str]:
    phases = [(phase, row) for phase in compared for row in phase.rows]
    phases.sort(key=lambda pair: pair[1].number.key not in TIME_KEYS)
    with_noise = [pair for pair in phases if pair[1].interval is not None]
    rows = [row for _, row in phases]
    time = next((row for row in rows if row.number.key == "run_s" and row.verdict == ONE_RUN), None)
    if time is not None or not with_noise or any(row.verdict == UNSTEADY for row in rows):
        # the cause whose lost time differs most
        largest = max(compared, key=lambda p: max(map(abs, p.extra_loss.values()), default=0.0))
        loss = ""
        for cause, extra_share in [*largest.extra_loss.items()][:1]:
            place = f" in {safe_text(largest.label, MAX_NAME_LENGTH)}" if largest.label else ""
            loss = f"{percent(abs(extra_share))} points more {_loss_text(cause)}{place}."
            loss = f"{'B' if extra_share > 0 else 'A'} lost {loss}"
        name = "It" if loss.startswith("B") else "B"
        if time is None:
            return [text for text in ("Inconclusive: one run per side.", loss) if text]
        if abs(time.change) < RESOLUTION:
            text = f"{name} took as long as A (one run per side)."
        else:
            longer = "longer" if time.side_b > time.side_a else "less time"
            text = f"{name} took {time.size_text} {longer}, which may be chance: one run per side."
        if with_noise and not loss:
            text = f"{text[:-1]}; no rate differs by more than the noise."
        return [sentence for sentence in (loss, text) if sentence]
    phase, row = with_noise[0]
    place = f"In {safe_text(phase.label, MAX_NAME_LENGTH)}, " if phase.label else ""
    text = f"{_possible_difference_text(phase, row, place)}."
    power = _detection_power(phase, row, len(rows))
    if row.is_same or power is None:
        return [text]
    a, b = len(phase.side_a), len(phase.side_b)
    runs = f"{count_noun(a, 'run')} per side" if a == b else f"{a} and {b} runs"
    limit = f"{100 * power[0]:.0f} {row.unit}"
    return [f"Inconclusive: {runs} cannot show less than {limit}.", text]


def _detection_power(phase: Comparison, row: Row, rows: int) -> tuple[float, int] | None:
    """Returns the smallest difference that this many runs detect in most comparisons of `rows`
    rows, and the runs per side that would detect the observed one; None if there are too few
    runs."""
    by_file = max(phase.files) > 1
    sides = [
        _side_values(side, row.number.key, by_file=by_file) for side in (phase.side_a, phase.side_b)
    ]
    count = min(map(len, sides))
    if count < 2:
        return None
    scale = 1.0 if row.number.unit == "ratio" else abs(row.side_a)
    sd = sqrt(fmean(variance(values) for values in sides)) / scale
    return smallest_difference(sd, count, rows), runs_needed(sd, abs(row.change), rows)


def next_step(compared: Sequence[Comparison]) -> str:
    """Returns advice on how to get a clear result for the run time, or for the first number with
    known noise; '' if the result is clear or nothing would help."""
    pairs = [(phase, row) for phase in compared for row in phase.rows if row.interval is not None]
    pairs.sort(key=lambda pair: pair[1].number.key not in TIME_KEYS)
    if not pairs or pairs[0][1].is_clear or pairs[0][1].is_same:
        return ""
    phase, row = pairs[0]
    power = _detection_power(phase, row, sum(len(phase.rows) for phase in compared))
    if power is None:
        return ""
    steps, runs = [], (*phase.side_a, *phase.side_b)
    other_cpus = [run.numbers["others_cpus"] for run in runs if "others_cpus" in run.numbers]
    if other_cpus and fmean(other_cpus) >= MIN_OTHER_CPUS:
        steps.append(f"a quieter machine (other tasks used {fmean(other_cpus):.1f} CPUs)")
    if power[1] < MAX_RUNS_NEEDED:
        steps.append(
            f"perftop stat -r {power[1]}, because that many runs per side show {row.size_text}"
        )
    return ", or ".join(steps)


def work_sentence(phase: Comparison) -> str:
    """Returns a sentence about the difference in work and speed, by instructions, IPC and clock; ''
    if IPC or instructions are inconclusive."""
    rows = {row.number.key: row for row in phase.rows}
    instructions, ipc, clock = (rows.get(key) for key in ("instructions", "ipc", "busy_hz"))
    if instructions is None or ipc is None or not ipc.is_clear:
        return ""
    if instructions.verdict in {NOISE, SMALL}:
        work = "the same work"
    elif instructions.is_clear:
        adjective = "more" if instructions.side_b > instructions.side_a else "fewer"
        work = f"{instructions.size_text} {adjective} instructions"
    else:
        return ""
    cycles = "fewer" if ipc.side_b > ipc.side_a else "more"
    text = f"B does {work} in {cycles} cycles (IPC)"
    if clock is not None and clock.is_clear:
        per_second = "fewer" if clock.side_b < clock.side_a else "more"
        conjunction = "and" if per_second != cycles else "but"
        text += f", {conjunction} has {clock.size_text} {per_second} of them in each second"
    return text + "."


def open_questions(compared: Sequence[Comparison]) -> Iterator[str]:
    """Yields a sentence for each question that the comparison leaves open."""
    first, rows = compared[0], [row for phase in compared for row in phase.rows]
    is_clear = any(row.is_clear for row in rows)
    linked_labels = [
        setting_label(state.key) for state in first.differing_states if state.explained_keys
    ]
    other_keys = (state.key for state in first.differing_states if not state.explained_keys)
    other_labels = [setting_label(key) for key in other_keys if key not in UNEXPLAINING_STATES]
    if is_clear and other_labels:
        names = join_words(other_labels)
        if linked_labels:
            yield f"whether {names} matters: it changed together with {join_words(linked_labels)}"
        elif len(other_labels) > 1:
            yield f"which of {names} matters: they changed together"
        else:
            yield f"whether {names} is the cause: no episode names it"
    if len(linked_labels) > 1:
        yield f"which of {join_words(linked_labels)} it is: they changed together"
    if first.within_runs and any(row.interval is not None for row in rows):
        yield "how much runs vary: intervals are from blocks of time within one run"
    elif first.files == (1, 1) and is_clear and not first.is_interleaved:
        yield (
            "how much sessions vary: each side is one file; run both in turn (stat -r 5 -A 'CMD' "
            "-B 'CMD'), or measure A B A B and compare: diff --a A1 A2 --b B1 B2"
        )
    unsteady = dict.fromkeys(row.number.plain_name for row in rows if row.verdict == UNSTEADY)
    if unsteady:
        slow = "it changes" if len(unsteady) == 1 else "they change"
        yield f"noise of {join_words([*unsteady])}: {slow} too slowly for runs of this length"
    for side, keys in zip("AB", first.keys_of_one_side, strict=True):
        if keys:  # an event's two numbers share a plain name: list it once
            lacking = dict.fromkeys(number_of(key).plain_name for key in keys)
            yield f"{join_words([*lacking])}: only {side} has it"
