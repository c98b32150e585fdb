"""A session as text for people: the tables of `stat` and its summary."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence

from perftop.base.format import clock, many, percent, plain
from perftop.base.text import ranges, safe
from perftop.base.times import length, when
from perftop.output import sentences
from perftop.output.command_headline import headline
from perftop.output.episode_words import evidence, where
from perftop.output.stat_json import Line, multiplexed
from perftop.samples.episode import Episode
from perftop.samples.machine_totals import MEMORY, OF_BEST
from perftop.samples.metrics import METRICS
from perftop.samples.smt import STATES
from perftop.session.interval import Interval
from perftop.session.missing import missing_text
from perftop.session.session import Session
from perftop.session.summary import Tally

Show = Callable[[float], str]
_SHOW: dict[str, Show] = {"ratio": percent, "Hz": clock, "1": plain}
_UNIT = {"ratio": "%", "Hz": "GHz", "1": ""}
SHOWN = ("util", "busy_hz", "net_hz", "halt", "idle", "poll", "involuntary", "steal", "ipc",
         "kernel_cycles", "kernel_instructions")  # fmt: skip
"""Columns of the tables: the most useful metrics that fit into a line."""
WIDTHS = [max(5, len(METRICS[key].label)) for key in SHOWN]
STATE_WIDTH = 8
"""Characters of the widest range: 100..100."""
SPANS = ("min", "mean", "max", "p5")
MOST_CPUS = 60
"""Most characters of a list of CPUs."""
MOST_SENTENCE = 200
"""Most characters of the sentence on an episode."""
MOST_COMMAND = 100
EACH_WIDTH = 12
MOST_EACH = 8
"""Most CPUs that the summary of a command lists one by one, in four lines each."""


def heading(session: Session) -> list[str]:
    """The machine, and what is missing with the reasons."""
    hello = session.hello
    cores = many(len(session.shown_cores()), "core")
    cpus = many(len(session.shown), "CPU")
    model = hello.identity.name or "unknown CPU"
    lines = [f"# {hello.host} · {model} · {cores} / {cpus} · source {hello.source}"]
    lines += [f"# {text}" for text in missing_text(session)]
    return lines


def table(session: Session, interval: Interval) -> list[str]:
    """One interval: the machine, then a row per CPU; a core's states on its first CPU's row."""
    lines = [
        "",
        f"{when(interval.time)}  {interval.elapsed_s:.3f} s"
        + _suspects(interval)
        + _turns(interval),
        *_packages(session, interval),
        *_titles("cpu", states=STATES),
    ]
    everyone = [interval.values.over(key, session.shown) for key in SHOWN]
    lines.append(_row("all", _cells(everyone), []))
    first = {session.cores[i][0]: i for i in session.shown_cores()}
    for row in session.shown:
        cpu = session.topology[row].cpu
        if not interval.online[row]:
            lines.append(_row(str(cpu), ["off"], []))
            continue
        cells = _cells([float(interval.values[key][row]) for key in SHOWN])
        core = first.get(cpu)
        split = _states(interval, core) if core is not None else []
        mark = "~" if row in interval.suspect else ""
        lines.append(_row(f"{mark}{cpu}", cells, split))
    return lines


def _packages(session: Session, interval: Interval) -> list[str]:
    """A line for each package: its power and its traffic to memory, as far as they are known."""
    lines = []
    for at, cpus in enumerate(session.hello.packages):
        values = {name: float(found[at]) for name, found in interval.packages.items()}
        told = [_power(values), _memory(values)]
        if any(told):
            number = session.topology[session.position[cpus[0]]].package
            lines.append(f"package {number}: {' · '.join(filter(None, told))}")
    return lines


def _power(values: Mapping[str, float]) -> str:
    power, limit = (values.get(name, math.nan) for name in ("power_w", "power_limit_w"))
    if math.isnan(power):
        return ""
    return f"{power:.1f} W" if math.isnan(limit) else f"{power:.1f} of {limit:.0f} W"


def _memory(values: Mapping[str, float]) -> str:
    rates = [values.get(name, math.nan) for name in MEMORY]
    if any(map(math.isnan, rates)):
        return ""
    text = "memory {:.1f} GB/s read, {:.1f} written".format(*(rate / 1e9 for rate in rates))
    share = values.get(OF_BEST, math.nan)
    return text if math.isnan(share) else f"{text}, {percent(share)} % of the best seen"


def _suspects(interval: Interval) -> str:
    n = len(interval.suspect)
    return f"  ~ {n} CPUs with suspect samples, left out" if n else ""


def _turns(interval: Interval) -> str:
    shares = multiplexed(interval)
    if not shares:
        return ""
    least = percent(min(shares.values()))
    return f"  counters shared: counted {least} % of the time at least, and scaled"


def _titles(what: str, width: int = 5, states: Sequence[str] = ()) -> list[str]:
    labels = [METRICS[key].label for key in SHOWN]
    units = [_UNIT[METRICS[key].unit] for key in SHOWN]
    return [_row(what, labels, states, width), _row("", units, ["%"] * len(states), width)]


def _row(name: str, cells: Sequence[str], states: Sequence[str], width: int = 5) -> str:
    parts = [f"{cell:>{room}}" for cell, room in zip(cells, WIDTHS, strict=False)]
    parts += [f"{state:>{STATE_WIDTH}}" for state in states]
    return f"{name:>{width}} {' '.join(parts)}".rstrip()


def _cells(values: list[float]) -> list[str]:
    return [_SHOW[METRICS[key].unit](v) for key, v in zip(SHOWN, values, strict=True)]


def _states(interval: Interval, core: int) -> list[str]:
    split = interval.split
    if split.method[core] != "bounds":
        return [percent(v) for v in split.states[core]]
    return [
        f"{100 * low:.0f}..{100 * high:.0f}" if math.isfinite(low) else percent(low)
        for low, high in zip(split.low[core], split.high[core], strict=True)
    ]


def episode(session: Session, found: Episode) -> str:
    """An episode in one line: the sentence of the screen, when it was, all its CPUs if the sentence
    has not named them, and the evidence."""
    place = where(session.topology, found.cpus, MOST_CPUS)
    told = evidence(found.cause, found.evidence)
    sentence = _sentence(session, found)
    beside = place if found.cpus and "(+" in sentence else ""
    return " · ".join(part for part in (f"! {sentence}", beside, told) if part)


def _sentence(session: Session, found: Episode) -> str:
    over = found.end_ns is not None
    names = () if over else sentences.losers(session, [found], session.tasks)
    parts = sentences.sentence(session.topology, [found], names, over=over, most=MOST_SENTENCE)
    start, lasted_ns = when(session.unix(found.start_ns)), (found.end_ns or 0) - found.start_ns
    if not over:
        return f"{sentences.text(parts)}, since {start}"
    span = f", for {length(lasted_ns)} from {start}" if lasted_ns else f", at {start}"
    return sentences.text(parts) + span


def ending(
    session: Session, tally: Tally, line: Line, argv: Sequence[str] | None = None
) -> list[str]:
    """The lines at the end: the command, if there was one, and the summary."""
    lines = [] if argv is None else ["", *_ran(argv, line)]
    return lines + (["", *_summary(session, tally, line)] if session.frames > 1 else [])


def _summary(session: Session, tally: Tally, line: Line) -> list[str]:
    """The whole run, from its JSON summary: minimum, mean, maximum and fifth percentile of every
    measure, and the episodes."""
    elapsed_s = line["elapsed_s"]
    samples, cpus = many(session.frames - 1, "sample"), many(len(session.shown), "CPU")
    lines = [f"{elapsed_s:.3f} s, {samples} of {cpus}"]
    lines += _measures(line) + _core_lines(line) + _job_lines(session, line) + _energy_lines(line)
    lines += _each(session, line) if line["run"] is not None else []
    lines += [
        f"{kind}: {sum(causes.values())} ({', '.join(f'{c} {n}' for c, n in causes.items())})"
        for kind, causes in tally.counted.items()
    ]
    lines += [f"worst {episode.kind}: {_sentence(session, episode)}" for episode in tally.worst()]
    own = line["probe_cpu_s"]
    cost = "n/a" if own is None else f"{own:.2f} s CPU ({100 * own / elapsed_s:.1f} % of one CPU)"
    lines.append(
        f"own cost {cost} · frames lost {session.lost} · suspect samples {session.suspect_samples}"
    )
    return lines


def _ran(argv: Sequence[str], line: Line) -> list[str]:
    """The command, its result and times, and how much longer the measurement was."""
    run = line["run"]
    lines = [
        headline(argv[0], line),
        f"{safe(shlex.join(argv), MOST_COMMAND)}: status {run['status']}",
        f"{run['wall_s']:.3f} s, {run['user_s']:.3f} s user, {run['sys_s']:.3f} s system",
    ]
    if run["slack_s"] is None:
        lines.append("it is not known when in the measurement the command ran")
    else:
        lines.append(
            f"all of it was measured; the measurement is up to {run['slack_s']:.3f} s longer"
        )
    if run["missed"]:
        lines.append(f"CPUs {ranges(run['missed'])} were off or unreadable at its start or end")
    return lines


_GROUPS = {"job": "job CPUs", "rest": "others"}
"""Titles of means over some CPUs; what a CPU did was not all for the job."""


def _measures(line: Line) -> list[str]:
    """The table of measures, with means over the CPUs that the job ran on and over the others."""
    groups = {title: line[key] for key, title in _GROUPS.items() if line[key] is not None}
    titles = (*SPANS, *groups)
    lines = [f"{'':>24}" + "".join(f"{name:>9}" for name in titles)]
    for key in SHOWN:
        metric, measure = METRICS[key], line["machine"][key]
        show = _SHOW[metric.unit]
        means = [group[key] and group[key]["mean"] for group in groups.values()]
        cells = [_spans(measure, show), *(f"{_cell(mean, show):>9}" for mean in means)]
        lines.append(f"{f'{metric.label} {_UNIT[metric.unit]}'.rstrip():>24}" + "".join(cells))
    return lines


def _each(session: Session, line: Line) -> list[str]:
    """Each CPU and its core; above MOST_EACH CPUs only those that the job ran on."""
    cpus = line["cpus"]
    if len(cpus) > MOST_EACH and line["job"] is not None:
        cpus = [row for row in cpus if row["cpu"] in line["job"]["cpus"]]
    cpus = cpus[:MOST_EACH]
    shows = {key: _SHOW[METRICS[key].unit] for key in SHOWN}
    lines = ["", *_titles("cpu", EACH_WIDTH)]
    for row in cpus:
        for span in SPANS:
            cells = [_at(row[key], span, show) for key, show in shows.items()]
            lines.append(_row(_named(row["cpu"], span), cells, [], EACH_WIDTH))
    if left := len(line["cpus"]) - len(cpus):
        lines.append(f"  … and {many(left, 'CPU')} more: stat --json tells all")
    return [*lines, *_each_core(session, line, {row["cpu"] for row in cpus}), ""]


def _each_core(session: Session, line: Line, cpus: set[int]) -> list[str]:
    """The states of the cores that have one of these CPUs."""
    lines: list[str] = []
    for i, told in zip(session.shown_cores(), line["cores"], strict=True):
        core, smt = session.cores[i], told["smt"]
        if not cpus.isdisjoint(core) and any(smt.values()):
            for span in SPANS:
                shares = [_at(smt[state], span, percent) for state in STATES]
                lines.append(_row(_named(ranges(core), span), [], shares, EACH_WIDTH))
    title = [_row("core of", [], STATES, EACH_WIDTH), _row("", [], ["%"] * 4, EACH_WIDTH)]
    return ["", *title, *lines] if lines else []


def _named(what: object, span: str) -> str:
    """The label of a line; the name is on the first of its lines only."""
    return f"{what if span == SPANS[0] else ''} {span:>4}"


def _job_lines(session: Session, line: Line) -> list[str]:
    job, run = line["job"], line["run"]
    if job is None or run is None:
        return []
    used_s = run["user_s"] + run["sys_s"]
    at = where(session.topology, job["cpus"], MOST_CPUS)
    seen = f"its processes were seen running {job['seen_s']:.2f} s of {used_s:.2f} s"
    return [f"job on {at}: {seen}; processes shorter than a second may be missed"]


def _energy_lines(line: Line) -> list[str]:
    energy_j = line["energy_j"]
    if energy_j is None or not line["elapsed_s"]:
        return ["energy n/a"]
    return [f"energy {energy_j:.1f} J · {energy_j / line['elapsed_s']:.1f} W"]


def _core_lines(line: Line) -> list[str]:
    """The mean of each SMT state over the cores for which it is known."""
    parts = []
    most = 0
    for state in STATES:
        known = [c["smt"][state]["mean"] for c in line["cores"] if c["smt"][state] is not None]
        if known:
            parts.append(f"{state} {percent(sum(known) / len(known))} %")
            most = max(most, len(known))
    return [f"SMT states, mean of {many(most, 'core')}: {' · '.join(parts)}"] if parts else []


def _spans(measure: Line | None, show: Show) -> str:
    return "".join(f"{_at(measure, name, show):>9}" for name in SPANS)


def _at(measure: Line | None, span: str, show: Show) -> str:
    return _cell(measure[span] if measure else None, show)


def _cell(value: float | None, show: Show) -> str:
    return show(float("nan") if value is None else value)
