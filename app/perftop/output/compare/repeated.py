"""Several runs of one command: their numbers, outliers and the reasons, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, nan
from statistics import median

from perftop.base.text import Line, count_noun, join_words, json_number, safe_text, wrap_text
from perftop.draw.columns import Column
from perftop.output.compare.readings import (
    NUMBERS,
    ON_REQUEST_KEYS,
    Numbers,
    format_like,
    numbers,
    numbers_json,
    row_keys,
)
from perftop.output.compare.statistics import (
    MAX_RUNS_NEEDED,
    estimate,
    outliers,
    runs_needed,
    smallest_difference,
)
from perftop.output.stat_lines import table_line

TIME_KEY = "run_s"
MAX_ROWS = 20
"""Maximum number of runs with a row each. If there are more, only outliers have one."""
MIN_EXPLAINED_SHARE = 0.25
"""Minimum share of an outlier's extra time that a reason must account for."""
AMOUNT_TEXTS = {
    "disk_s": "waited {} more for the disk",
    "waited_s": "waited {} more for a CPU",
    "cpu_s": "worked {} longer",
}
"""Phrases for waits and other amounts that can explain an outlier, by key of the number."""
HEADINGS = {
    TIME_KEY: "time s", "util": "busy %", "busy_hz": "GHz", "ipc": "IPC",
    "below_ceiling": "below %", "lost_ratio": "lost %", "waited_s": "wait s",
    "disk_s": "disk s", "energy_j": "kJ",
}  # fmt: skip
"""Columns of the table, by key of the number."""
NAME_COLUMNS = [Column("", "run", 6, is_left=True, gap=0), Column("", "status", 6)]
CELL_WIDTH, MAX_NAME_LENGTH, WIDTH = 8, 24, 80
DETECTABLE_CHANGES = (0.05, 0.02, 0.01)
"""Relative changes of the run time for which the text says how many runs would detect them."""


@dataclass(frozen=True)
class RepeatedRun:
    """A run and its summary, in the form that `stat --json` prints."""

    line: Line
    is_warmup: bool
    side: str | None = None
    """`A` or `B` if two commands run in turn."""

    @cached_property
    def numbers(self) -> Numbers:
        return numbers(self.line)

    @property
    def status(self) -> int:
        return int(self.line["run"]["status"])


@dataclass(frozen=True)
class Outlier:
    index: int
    """Index among all runs except warm-ups, from 0."""
    excess_s: float
    """Seconds by which the run took longer than the median."""
    why: str


class CommandRuns:
    """The runs of a command, in order. Only successful runs count and can be outliers."""

    def __init__(self, repeats: Sequence[RepeatedRun]) -> None:
        self.warmups = [run for run in repeats if run.is_warmup]
        self.all_runs = [run for run in repeats if not run.is_warmup]
        self.runs = [run for run in self.all_runs if run.status == 0]
        self.failed_runs = [run for run in self.all_runs if run.status != 0]
        counted = [index for index, run in enumerate(self.all_runs) if run.status == 0]
        self.outliers = [self._outlier(counted[i]) for i in outliers(self.values(TIME_KEY))]
        self.outlier_indices = [outlier.index for outlier in self.outliers]

    @property
    def rows(self) -> int:
        """Number of rows that `diff` would have for these runs, which corrects probabilities."""
        keys = row_keys(run.numbers for run in self.runs)
        return sum(key not in ON_REQUEST_KEYS and any(self.values(key)) for key in keys)

    def values(self, key: str, without: Sequence[int] = ()) -> list[float]:
        """Returns the known values of a number. `without`: indices of runs to leave out."""
        runs = (run for i, run in enumerate(self.all_runs) if run.status == 0 and i not in without)
        return [run.numbers[key] for run in runs if key in run.numbers]

    def _outlier(self, index: int) -> Outlier:
        """Returns the outlier with its reason, such as a longer wait than in the other runs; '' if
        none is found. Waits are summed over all tasks of the command."""
        run = self.all_runs[index]
        time_s = run.numbers[TIME_KEY]
        excess_s = time_s - median(self.values(TIME_KEY))
        amounts = [
            (run.numbers[key], self.values(key, [index]), words)
            for key, words in AMOUNT_TEXTS.items()
            if key in run.numbers
        ]
        losses = [_named_losses_s(other) for other in self.runs if other is not run]
        for cause, lost_s in _named_losses_s(run).items():
            words = f"lost {{}} more to {' '.join(cause)}"
            amounts.append((lost_s, [loss.get(cause, 0.0) for loss in losses], words))
        reasons = [(0.0, "")]
        for amount_s, other_s, words in amounts:
            if not other_s:
                continue
            more_s, spread_s = amount_s - median(other_s), max(other_s) - median(other_s)
            # A reason exceeds the other runs' variation, and accounts for a part of the extra time.
            if more_s > 2 * spread_s and more_s >= MIN_EXPLAINED_SHARE * excess_s > 0:
                reasons.append((more_s, words.format(_time_text(more_s, time_s))))
        return Outlier(index, excess_s, max(reasons)[1])


def _named_losses_s(run: RepeatedRun) -> dict[tuple[str, str], float]:
    """Returns the CPU seconds lost to each named cause, except waits for a CPU."""
    return {
        (cause["kind"], cause["cause"]): cause["lost_s"]
        for cause in run.line.get("causes", ())
        if cause["cause"] not in {"other", "scheduler"}
    }


def exit_status(runs: Sequence[RepeatedRun]) -> int:
    """Returns the exit status of the first run that failed; 0 if none did."""
    return next((run.status for run in runs if run.status), 0)


# --- repeated runs as JSON


def runs_json(runs: CommandRuns, argv: Sequence[str]) -> list[Line]:
    """Returns a `run` line for each run, warm-ups first, and a `runs` line for those that count."""
    outliers = {outlier.index: outlier for outlier in runs.outliers}
    lines = [run_json(run, index, None) for index, run in enumerate(runs.warmups)]
    lines += [run_json(run, index, outliers.get(index)) for index, run in enumerate(runs.all_runs)]
    estimates: Line = {}
    for key in row_keys(run.numbers for run in runs.runs):
        values, typical = runs.values(key), runs.values(key, runs.outlier_indices)
        if not values:
            estimates[key] = None
            continue
        total = estimate(values)
        estimates[key] = {
            "mean": json_number(total.mean), "half": json_number(total.half_width),
            "sd": json_number(total.sd), "median": json_number(median(values)),
            "min": json_number(min(values)), "max": json_number(max(values)), "count": total.count,
            "mean_without_apart": json_number(estimate(typical).mean) if typical else None,
        }  # fmt: skip
    count = len(runs.runs)
    times_s = runs.values(TIME_KEY)
    time = estimate(times_s) if count > 1 else None
    least_s = None if time is None else json_number(smallest_difference(time.sd, count, runs.rows))
    needed_runs = {} if time is None else {
        f"{change:g}": runs_needed(time.sd, change * time.mean, runs.rows)
        for change in DETECTABLE_CHANGES
    }  # fmt: skip
    return [*lines, {
        "type": "runs", "command": list(argv), "side": runs.all_runs[0].side if count else None,
        "runs": count, "failed": len(runs.failed_runs),
        "warmups": len(runs.warmups),
        "apart": [index + 1 for index in runs.outlier_indices], "level": 0.95, "numbers": estimates,
        "least_difference_s": least_s, "runs_needed": needed_runs,
        "status": exit_status(runs.warmups + runs.all_runs),
    }]  # fmt: skip


def run_json(run: RepeatedRun, index: int, outlier: Outlier | None) -> Line:
    """Returns the line of a run: its numbers under stable keys, and its summary without the lists
    of CPUs and cores."""
    summary = {
        key: value for key, value in run.line.items() if key not in {"cpus", "cores", "type"}
    }
    why = None if outlier is None else {
        "longer_s": json_number(outlier.excess_s), "why": outlier.why or None}  # fmt: skip
    return {
        "type": "run", "number": index + 1, "warmup": run.is_warmup, "side": run.side, "apart": why,
        "numbers": numbers_json(run.numbers), **summary,
    }  # fmt: skip


# --- repeated runs as text


def lines(runs: CommandRuns, argv: Sequence[str]) -> list[str]:
    estimates = {key: estimate(runs.values(key)) for key in HEADINGS if runs.values(key)}
    columns = NAME_COLUMNS + [Column(key, HEADINGS[key], CELL_WIDTH) for key in estimates]

    def row(name: str, status: str, values: Numbers) -> str:
        """Formats a row, whose values have as many digits as the mean."""
        cells = [
            format_like(NUMBERS[key], values.get(key, nan), stats.mean)
            for key, stats in estimates.items()
        ]
        return table_line(columns, [name, status, *cells])

    if not runs.runs:
        statuses = ", ".join(map(str, dict.fromkeys(run.status for run in runs.failed_runs)))
        count = "its only run" if len(runs.all_runs) == 1 else f"all {len(runs.all_runs)} runs"
        failed = f"{_command_name(runs, argv)} failed in {count} (exit status {statuses})"
        return [f"{failed}: no run counts."]
    time = estimate(runs.values(TIME_KEY))
    text = f"{_command_name(runs, argv)} takes {_time_text(time.mean, time.mean)}"
    margin = f" ± {_time_text(time.half_width, time.mean)} (95 %)."
    text += margin if isfinite(time.half_width) else ", in one run."
    if runs.failed_runs:
        text += f" {len(runs.failed_runs)} of {len(runs.all_runs)} runs failed and are not counted."
    for outlier in runs.outliers[:1]:
        adverb = "longer" if outlier.excess_s > 0 else "less"
        reason = outlier.why or f"took {_time_text(abs(outlier.excess_s), time.mean)} {adverb}"
        text += f" Run {outlier.index + 1} is an outlier: it {reason}."
    if further := [str(index + 1) for index in runs.outlier_indices[1:]]:
        text += f" So {'is run' if len(further) == 1 else 'are runs'} {', '.join(further)}."
    text_lines = [text, ""]
    if times := [run.numbers[TIME_KEY] for run in runs.warmups]:
        times_text = ", ".join(_time_text(time_s, times[0]) for time_s in times)
        text_lines += [f"warm-up runs, not counted: {times_text}", ""]
    text_lines.append(table_line(columns, [column.heading for column in columns]))
    for index, run in enumerate(runs.all_runs):
        remark = "  outlier" if index in runs.outlier_indices else ""
        remark = "  not counted" if run.status else remark
        if len(runs.all_runs) <= MAX_ROWS or remark:
            text_lines.append(row(str(index + 1), str(run.status), run.numbers) + remark)
    text_lines.append(row("mean", "", {key: mean.mean for key, mean in estimates.items()}))
    half_widths = {key: mean.half_width for key, mean in estimates.items()}
    text_lines.append(row("± 95 %", "", half_widths))
    closing_lines = [line for text in _closing_lines(runs) for line in wrap_text(text, WIDTH)]
    return [*text_lines, "", *closing_lines]


def _command_name(runs: CommandRuns, argv: Sequence[str]) -> str:
    side = runs.all_runs[0].side
    return (
        f"{side}: {safe_text(argv[0], MAX_NAME_LENGTH)}"
        if side
        else safe_text(argv[0], MAX_NAME_LENGTH)
    )


def _time_text(value_s: float, reference_s: float) -> str:
    return f"{format_like(NUMBERS[TIME_KEY], value_s, reference_s)} s"


def _closing_lines(runs: CommandRuns) -> list[str]:
    count, sentences = len(runs.runs), []
    time, rows = estimate(runs.values(TIME_KEY)), runs.rows
    if count > 1 and time.mean > 0 and time.sd > 0:
        share = smallest_difference(time.sd, count, rows) / time.mean
        plural = "s" if rows > 1 else ""
        sentences.append(
            f"With {count_noun(count, 'run')} per side, diff finds a change of {100 * share:.1f} %"
            f" in 8 of 10 comparisons of {rows} row{plural}, if runs are independent."
        )
        needed = [runs_needed(time.sd, change * time.mean, rows) for change in DETECTABLE_CHANGES]
        percent_texts = [f"{100 * change:.0f}" for change in DETECTABLE_CHANGES]
        counts = [f"{n:d}" if n < MAX_RUNS_NEEDED else f"over {MAX_RUNS_NEEDED}" for n in needed]
        sentences.append(
            f"To find {join_words(percent_texts)} %, it needs {join_words(counts)} runs per side."
        )
    if runs.outlier_indices == [0] and runs.outliers[0].excess_s > 0 and not runs.warmups:
        sentences.append("Only the first run is slow: to leave out such runs, add --warmup 1.")
    kinds = {kind for run in runs.runs for kind in run.line["episodes"]} - {"ramp"}
    if not kinds:
        sentences.append("No episode was seen in any run.")
    for kind in sorted(kinds):
        runs_with_kind = [run for run in runs.runs if kind in run.line["episodes"]]
        sentences.append(f"{kind} in {len(runs_with_kind)} of {count} runs.")
    return sentences
