"""The comparison of two sides in sentences: the answer with a reason, the advice, and the questions
that stay open."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import fmean, variance

from perftop.base.text import count_noun, join_words, percent, safe_text, signed
from perftop.model.kinds import cause_of, kind_of_cause
from perftop.output.compare.comparison import (
    MIN_DIFFERENCE,
    NOISE,
    ONE_RUN,
    RESOLUTION,
    SMALL,
    UNSTEADY,
    Comparison,
    Row,
    lost_share,
    side_values,
)
from perftop.output.compare.readings import find_number, format_like, shared_state
from perftop.output.compare.statistics import MAX_RUNS_NEEDED, runs_needed, smallest_difference
from perftop.output.run_summary import setting_label, value_text
from perftop.output.sentences import mid_sentence
from perftop.session.losses import WAIT_CAUSE, CauseKey

MIN_OTHER_CPUS = 0.1
"""Minimum mean number of CPUs used by other tasks for the advice to use a quieter machine."""
UNEXPLAINING_STATES = frozenset({"boot_id", "host", "command", "source", "sample_s"})
"""States that never explain a difference."""
MAX_NAME_LENGTH, MAX_COMMAND_LENGTH = 20, 60
"""Maximum lengths in characters of a phase's name, and of a command in advice; of a longer command,
only a placeholder is printed."""
TIME_KEYS = ("run_s", "length_s")


def headline(comparisons: Sequence[Comparison]) -> str:
    return " ".join(answer_sentences(comparisons))


def answer_sentences(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns a sentence about the time of the run or of a phase, with a reason, if it clearly
    differs or if there is only one run per side; then one about the clear difference with the
    highest `clarity`. If only the latter is clear, it is first, and the time second."""
    rows = [(phase, row) for phase in comparisons for row in phase.rows if row.is_clear]
    phase, row = max(rows, key=lambda pair: pair[1].clarity, default=(None, None))
    if phase is None or row is None:
        return _sentences_without_difference(comparisons)
    place = safe_text(phase.label, MAX_NAME_LENGTH)
    if phase.within_runs and any(row.interval is not None for row in phase.rows):
        place = f"{place} of these two runs" if place else "these two runs"
    place = f"In {place}, " if place else ""
    time = next((r for r in phase.rows if r.number.key in TIME_KEYS), None)
    reason = _cause_text(phase, row)
    text = f"{_difference_text(row)}{reason}."
    if one_run := _one_run_sentences(comparisons):
        return [*one_run, f"{place}{text}"]
    if time is None or time is row or time.interval is None:
        return [f"{place}{text}"]
    if not time.is_clear:
        return [f"{place}{text}", f"{_possible_difference_text(phase, time)}."]
    time_reason = "" if reason else _cause_text(phase, time)
    return [f"{place}{_difference_text(time)}{time_reason}.", f"{text[:1].upper()}{text[1:]}"]


def _one_run_sentences(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns the difference between the times of two runs, or of the phase whose time differs
    most, with a reason for it, and a caveat; [] if there are several runs or no times."""
    times = [(phase, row) for phase in comparisons for row in phase.rows
             if row.number.key in TIME_KEYS and row.verdict == ONE_RUN]  # fmt: skip
    if not times:
        return []
    phase, time = max(times, key=lambda pair: abs(pair[1].side_b - pair[1].side_a))
    if abs(time.change) < RESOLUTION:
        return ["B took as long as A (one run per side)."]
    longer = "longer" if time.change > 0 else "less time"
    place = f" in {safe_text(phase.label, MAX_NAME_LENGTH)}" if phase.label else ""
    text = f"B took {time.size_text} {longer}{place}{_reason_text(phase, time)}."
    return [text, "This may be chance: one run per side."]


def _reason_text(phase: Comparison, time: Row) -> str:
    """Returns the largest difference that acts in the same direction as that of the run time: CPU
    time, or the time lost to a cause; '' if there is none."""
    is_slower, reasons = time.change > 0, []
    slower_side, more = ("it", "more") if is_slower else ("A", "less")
    rows = {row.number.key: row for row in phase.rows}
    for cause, extra_share in phase.extra_loss.items():
        if (extra_share > 0) == is_slower:
            text = f"{slower_side} lost {_extra_loss_text(phase, cause)}"
            reasons.append((abs(extra_share), text))
    cpu = rows.get("cpu_s")
    if cpu is not None and (cpu.change > 0) == is_slower and abs(cpu.change) >= MIN_DIFFERENCE:
        # The one of these three numbers that explains most of the CPU time.
        parts = [
            (abs(row.change), f", with {row.size_text} {word} {row.number.plain_name}")
            for key, sign, word in (
                ("instructions", 1, more if is_slower else "fewer"),
                ("ipc", -1, "lower" if is_slower else "higher"),
                ("busy_hz", -1, "lower" if is_slower else "higher"),
            )
            if (row := rows.get(key)) is not None
            and row.change * sign * cpu.change > 0 and abs(row.change) >= MIN_DIFFERENCE
        ]  # fmt: skip
        code = " (more work or slower code)" if is_slower else " (less work or faster code)"
        _, detail = max(parts, default=(0.0, "" if "ipc" in rows else code))
        reasons.append((abs(cpu.change), f"it used {cpu.size_text} {more} CPU time{detail}"))
    _, reason = max(reasons, default=(0.0, ""))
    return f": {reason}" if reason else ""


def _extra_loss_text(phase: Comparison, cause: CauseKey) -> str:
    points = percent(abs(phase.extra_loss[cause]))
    return f"{points} points more {_loss_text(cause)}{_culprit_text(phase, cause)}"


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
    low, high = (signed(100 * end, 1) for end in row.interval or ())
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


def _sentences_without_difference(comparisons: Sequence[Comparison]) -> list[str]:
    phases = [(phase, row) for phase in comparisons for row in phase.rows]
    phases.sort(key=lambda pair: pair[1].number.key not in TIME_KEYS)
    with_noise = [pair for pair in phases if pair[1].interval is not None]
    rows = [row for _, row in phases]
    if sentences := _one_run_sentences(comparisons):
        if with_noise and not any(phase.extra_loss for phase in comparisons):
            sentences.append("No rate differs by more than the noise.")
        return sentences
    if not with_noise or any(row.verdict == UNSTEADY for row in rows):
        # the cause whose lost time differs most
        largest = max(comparisons, key=lambda p: max(map(abs, p.extra_loss.values()), default=0.0))
        sentences = ["Inconclusive: one run per side."]
        for cause, extra_share in [*largest.extra_loss.items()][:1]:
            place = f" in {safe_text(largest.label, MAX_NAME_LENGTH)}" if largest.label else ""
            side = "B" if extra_share > 0 else "A"
            sentences.append(f"{side} lost {_extra_loss_text(largest, cause)}{place}.")
        return sentences
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
        side_values(side, row.number.key, by_file=by_file) for side in (phase.side_a, phase.side_b)
    ]
    count = min(map(len, sides))
    if count < 2:
        return None
    scale = 1.0 if row.number.unit == "ratio" else abs(row.side_a)
    sd = sqrt(fmean(variance(values) for values in sides)) / scale
    return smallest_difference(sd, count, rows), runs_needed(sd, abs(row.change), rows)


def next_step(comparisons: Sequence[Comparison]) -> str:
    """Returns advice on how to get a clear result for the run time, or for the first number with
    known noise; '' if the result is clear or nothing would help. With one run per side, the advice
    is to repeat the run."""
    rows = [row for phase in comparisons for row in phase.rows if row.number.key == "run_s"]
    if any(row.verdict == ONE_RUN and abs(row.change) >= RESOLUTION for row in rows):
        return _repeat_command(comparisons[0])
    pairs = [
        (phase, row) for phase in comparisons for row in phase.rows if row.interval is not None
    ]
    pairs.sort(key=lambda pair: pair[1].number.key not in TIME_KEYS)
    if not pairs or pairs[0][1].is_clear or pairs[0][1].is_same:
        return ""
    phase, row = pairs[0]
    power = _detection_power(phase, row, sum(len(phase.rows) for phase in comparisons))
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


def _repeat_command(phase: Comparison) -> str:
    """Returns the commands that measure both sides in several runs."""
    a, b = (
        safe_text(str(shared_state(side).get("command", "")), MAX_COMMAND_LENGTH + 1)
        for side in (phase.side_a, phase.side_b)
    )
    if not a or not b or max(len(a), len(b)) > MAX_COMMAND_LENGTH:
        a = b = "CMD"
    if a != b:
        return f"perftop stat -r 5 -A {shlex.quote(a)} -B {shlex.quote(b)}"
    return (
        f"perftop stat -r 5 --json -o a.json -- {a} for A, the same with b.json for B, then "
        "perftop diff a.json b.json"
    )


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


def open_questions(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yields a sentence for each question that the comparison leaves open."""
    first, rows = comparisons[0], [row for phase in comparisons for row in phase.rows]
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
    for side, keys in zip("AB", first.one_sided_keys, strict=True):
        if keys:  # an event's two numbers share a plain name: list it once
            lacking = dict.fromkeys(find_number(key).plain_name for key in keys)
            yield f"{join_words([*lacking])}: only {side} has it"


# --- losses


def loss_sentences(phase: Comparison) -> Iterator[str]:
    """Yields a sentence about the losses of A and B to each cause in `extra_loss`, largest
    first."""
    for cause in phase.extra_loss:
        a, b = (percent(lost_share(side, cause)) for side in (phase.side_a, phase.side_b))
        culprit = _culprit_text(phase, cause)
        yield f"{_loss_text(cause)}: {a} % in A, {b} % in B{culprit and f' ({culprit[2:]})'}"


def _culprit_text(phase: Comparison, cause: CauseKey) -> str:
    """Returns the task because of which one side lost more, for the end of a clause, and its CPU if
    known; '' unless all runs of that side that name a culprit name the same one."""
    side = phase.side_b if phase.extra_loss[cause] > 0 else phase.side_a
    culprits = {run.culprits[cause] for run in side if cause in run.culprits}
    names, places = {name for name, _ in culprits}, {place for _, place in culprits}
    if len(names) != 1:
        return ""
    place = f" on {next(iter(places))}" if len(places) == 1 and "" not in places else ""
    return f", {'waiting for' if cause == WAIT_CAUSE else 'because of'} {next(iter(names))}{place}"


def _loss_text(cause: CauseKey) -> str:
    text, name = kind_of_cause(*cause).loss_text, cause_of(cause[1]).name
    return text if cause[0] == "neighbour" or name in text else f"{text} ({name})"
