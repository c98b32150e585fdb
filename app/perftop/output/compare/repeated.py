"""Several runs of one command: their numbers, which of them is apart and why, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan
from statistics import median

from perfprobe.frozen import frozen
from perftop.base.statistics import apart, estimate, least_difference
from perftop.base.text import safe
from perftop.output.compare.readings import NUMBERS, Numbers, known, numbers, told
from perftop.output.stat_json import Line, number

TIME = "run_s"
MOST_ROWS = 20
"""Runs of which each has a row; of more only those that are apart."""
EXPLAINS = 0.25
"""Share of the time that a run took longer from which something explains it."""
COLUMNS = (
    TIME, "util", "busy_hz", "ipc", "below_ceiling", "lost_ratio", "waited_s", "disk_s", "energy_j",
)  # fmt: skip
HEADS = {
    TIME: "time s", "util": "busy %", "busy_hz": "GHz", "ipc": "IPC", "below_ceiling": "below %",
    "lost_ratio": "lost %", "waited_s": "wait s", "disk_s": "disk s", "energy_j": "kJ",
}  # fmt: skip
LABEL, CELL = 4, 8
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@frozen
class Repeat:
    """A run, from its summary as `stat --json` has it."""

    line: Line
    warmup: bool
    numbers: Numbers

    @property
    def status(self) -> int:
        return int(self.line["run"]["status"])


def repeat(line: Line, *, warmup: bool) -> Repeat:
    return Repeat(line, warmup, numbers(line))


@frozen
class Apart:
    place: int
    """Among the runs that count, from 0."""
    by_s: float
    """How much longer it took than the median."""
    why: str


class Runs:
    """The runs that count, in their order, at least one."""

    def __init__(self, every: Sequence[Repeat]) -> None:
        self.warmups = [one for one in every if one.warmup]
        self.runs = [one for one in every if not one.warmup]
        self.apart = [self._apart(at) for at in apart(self.values(TIME))]

    def values(self, key: str, without: Sequence[int] = ()) -> list[float]:
        """The values of the runs in which the number is known."""
        kept = (one for at, one in enumerate(self.runs) if at not in without)
        return [one.numbers[key] for one in kept if key in one.numbers]

    @property
    def places_apart(self) -> list[int]:
        return [one.place for one in self.apart]

    def _apart(self, place: int) -> Apart:
        by_s = self.runs[place].numbers[TIME] - median(self.values(TIME))
        return Apart(place, by_s, self._why(place, by_s))

    def _why(self, place: int, by_s: float) -> str:
        """What this run had more of than the others, if that explains its time; '' if nothing that
        was measured does. Waits are those of all tasks of the command together."""
        mine, found = self.runs[place].numbers, []
        for key, words in (("disk_s", "waited {} s for the disk"),
                           ("waited_s", "waited {} s for a CPU"),
                           ("cpu_s", "worked {} s longer")):  # fmt: skip
            others = self.values(key, [place])
            if key in mine and others:
                more_s = mine[key] - median(others)
                shown = more_s if key == "cpu_s" else mine[key]
                found.append((more_s, words.format(_time(shown, mine[TIME]))))
        found += self._costs(place)
        most_s, words = max(found, default=(0.0, ""))
        return words if by_s > 0 and most_s >= EXPLAINS * by_s else ""

    def _costs(self, place: int) -> list[tuple[float, str]]:
        """What its episodes cost more than those of the others, in seconds of CPUs."""
        found, time_s = [], self.runs[place].numbers[TIME]
        for cause, lost_s in _costs(self.runs[place]).items():
            others = [_costs(one).get(cause, 0.0) for at, one in enumerate(self.runs)
                      if at != place]  # fmt: skip
            words = f"lost {_time(lost_s, time_s)} s to {' '.join(cause)}"
            found.append((lost_s - median(others), words))
        return found


def _costs(run: Repeat) -> dict[tuple[str, str], float]:
    """What was lost to named causes, but for waits for a CPU, which are a number of their own."""
    causes = run.line.get("causes", ())
    return {
        (one["kind"], one["cause"]): one["lost_s"]
        for one in causes
        if one["cause"] not in {"other", "scheduler"}
    }


def run_json(run: Repeat, at: int, place: Apart | None) -> Line:
    """A run: its numbers by stable keys, and of its summary what is not of single CPUs."""
    of_run = {key: value for key, value in run.line.items() if key not in {"cpus", "cores", "type"}}
    why = None if place is None else {"longer_s": number(place.by_s), "why": place.why or None}
    return {
        "type": "run", "number": at + 1, "warmup": run.warmup, "apart": why,
        "numbers": told(run.numbers), **of_run,
    }  # fmt: skip


def lines_json(runs: Runs, argv: Sequence[str]) -> list[Line]:
    """A line `run` for each run, warm-ups first, and a line `runs` of all that count."""
    places = {one.place: one for one in runs.apart}
    lines = [run_json(one, at, None) for at, one in enumerate(runs.warmups)]
    lines += [run_json(one, at, places.get(at)) for at, one in enumerate(runs.runs)]
    count = len(runs.runs)
    found: Line = {}
    for key in known(one.numbers for one in runs.runs):
        values = runs.values(key)
        if not values:
            found[key] = None
            continue
        made, rest = estimate(values), runs.values(key, runs.places_apart)
        found[key] = {
            "mean": number(made.mean), "half": number(made.half), "sd": number(made.sd),
            "median": number(median(values)), "min": number(min(values)),
            "max": number(max(values)), "count": made.count,
            "mean_without_apart": number(estimate(rest).mean) if rest else None,
        }  # fmt: skip
    time = estimate(runs.values(TIME))
    least_s = number(least_difference(time.sd, count)) if count > 1 else None
    return [*lines, {
        "type": "runs", "command": list(argv), "runs": count, "warmups": len(runs.warmups),
        "apart": [one.place + 1 for one in runs.apart], "level": 0.95, "numbers": found,
        "least_difference_s": least_s, "status": first_failed(runs.warmups + runs.runs),
    }]  # fmt: skip


def first_failed(every: Sequence[Repeat]) -> int:
    """Exit status of the first run that failed; 0: none did."""
    return next((one.status for one in every if one.status), 0)


def lines(runs: Runs, argv: Sequence[str]) -> list[str]:
    columns = [key for key in COLUMNS if runs.values(key)]
    found = [_answer(runs, argv), "", *_warmed(runs), _heads(columns)]
    made = {key: estimate(runs.values(key)) for key in columns}
    means = {key: one.mean for key, one in made.items()}
    for at, one in enumerate(runs.runs):
        there = at in runs.places_apart
        if len(runs.runs) <= MOST_ROWS or there:
            mark = "  apart" if there else ""
            found.append(_row(str(at + 1), str(one.status), one.numbers, means) + mark)
    found.append(_row("mean", "", means, means))
    found.append(_row("± 95 %", "", {key: one.half for key, one in made.items()}, means))
    return [*found, "", *_below(runs)]


def _answer(runs: Runs, argv: Sequence[str]) -> str:
    made, name = estimate(runs.values(TIME)), safe(argv[0], 24)
    said = f"{name} takes {_time(made.mean, made.mean)} s"
    said += f" ± {_time(made.half, made.mean)} s." if isfinite(made.half) else ", in one run."
    failed = sum(one.status != 0 for one in runs.runs)
    if failed:
        said += f" {failed} of {len(runs.runs)} runs failed."
    for one in runs.apart[:1]:
        more = "longer" if one.by_s > 0 else "less"
        which = f" Run {one.place + 1} is apart: it "
        said += which + (one.why or f"took {_time(abs(one.by_s), made.mean)} s {more}")
        said += "."
    if len(runs.apart) > 1:
        rest = ", ".join(str(one.place + 1) for one in runs.apart[1:])
        said += f" So {'is' if len(runs.apart) == 2 else 'are'} {rest}."
    return said


def _time(value_s: float, like_s: float) -> str:
    return NUMBERS[TIME].show(value_s, like_s)


def _warmed(runs: Runs) -> list[str]:
    times = [one.numbers[TIME] for one in runs.warmups]
    if not times:
        return []
    each = ", ".join(f"{_time(time, times[0])} s" for time in times)
    return [f"before them, to warm up and not counted: {each}", ""]


def _heads(columns: Sequence[str]) -> str:
    return f"{'run':<{LABEL}}{'status':>8}" + "".join(f"{HEADS[key]:>{CELL}}" for key in columns)


def _row(name: str, status: str, values: Numbers, means: Numbers) -> str:
    """`means`: with whose digits the values are shown, in the order of the columns."""
    cells = (NUMBERS[key].show(values.get(key, nan), mean) for key, mean in means.items())
    return f"{name:<{LABEL + 8 - len(status)}}{status}" + "".join(f"{c:>{CELL}}" for c in cells)


def _below(runs: Runs) -> list[str]:
    count, found = len(runs.runs), []
    made, rest = estimate(runs.values(TIME)), runs.values(TIME, runs.places_apart)
    if runs.apart and len(rest) > 1:
        without, places = estimate(rest), ", ".join(str(one.place + 1) for one in runs.apart)
        plural = "s" if len(runs.apart) > 1 else ""
        found.append(f"Without run{plural} {places}: {_time(without.mean, made.mean)} s ± "
                     f"{_time(without.half, made.mean)} s.")  # fmt: skip
    if count > 1 and made.mean > 0:
        least_s = least_difference(made.sd, count)
        sets = WORDS[count] if count < len(WORDS) else str(count)
        least = f"{_time(least_s, made.mean)} s ({100 * least_s / made.mean:.1f} %)"
        found.append(f"To be told apart, two such sets of {sets} must differ by {least}.")
    kinds = {kind for one in runs.runs for kind in one.line["episodes"]} - {"ramp"}
    if not kinds:
        found.append("The machine was the same in all runs: no episode.")
        return found
    for kind in sorted(kinds):
        where = [at + 1 for at, one in enumerate(runs.runs) if kind in one.line["episodes"]]
        found.append(f"{kind} in {len(where)} of {count} runs.")
    return found
