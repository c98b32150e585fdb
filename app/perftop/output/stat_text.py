"""A session as text for people: its heading, its episodes and the lines at its end, with tables of
minimum, mean, maximum and fifth percentile of every measure."""

from __future__ import annotations

from collections.abc import Sequence

from perftop.base.format import length, many, percent, when
from perftop.base.text import ranges
from perftop.model.episode import Episode
from perftop.model.smt import STATES
from perftop.output import sentences
from perftop.output.command_text import block, headline
from perftop.output.episode_words import evidence, where
from perftop.output.stat_columns import Show, Shown, columns
from perftop.output.stat_json import Line
from perftop.output.stat_table import row
from perftop.session.missing import missing_text
from perftop.session.session import Session
from perftop.session.summary import Tally

MOST_CPUS = 60
"""Most characters of a list of CPUs."""
MOST_SENTENCE = 200
"""Most characters of the sentence on an episode."""
SPANS = ("min", "mean", "max", "p5")
EACH_WIDTH = 12
MOST_EACH = 8
"""Most CPUs that the summary of a command lists one by one, in four lines each."""
_GROUPS = {"job": "job CPUs", "rest": "others"}
"""Titles of means over some CPUs; what a CPU did was not all for the job."""


def heading(session: Session) -> list[str]:
    """The machine, and what is missing with the reasons."""
    hello = session.hello
    cores = many(len(session.shown_cores()), "core")
    cpus = many(len(session.shown), "CPU")
    model = hello.identity.name or "unknown CPU"
    lines = [f"# {hello.host} · {model} · {cores} / {cpus} · source {hello.source}"]
    lines += [f"# {text}" for text in missing_text(session)]
    return lines


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
    session: Session, tally: Tally, line: Line, argv: Sequence[str] | None = None,
    asked: Sequence[str] | None = None, *, brief: bool = False,
) -> list[str]:  # fmt: skip
    """The lines at the end: the command, if there was one, and the summary. `asked`: keys of what
    is summed up, None: the usual. `brief`: without the CPUs, and of a command only its lines."""
    lines = []
    if argv is not None:
        lines = ["", headline(argv[0], line), "", *block(session, argv, line)]
    if session.frames < 2 or (brief and argv is not None):
        return lines
    return [*lines, "", *_summary(session, tally, line, asked, brief=brief)]


def _summary(
    session: Session, tally: Tally, line: Line, asked: Sequence[str] | None, *, brief: bool
) -> list[str]:
    """The whole run, from its JSON summary: minimum, mean, maximum and fifth percentile of every
    measure, and the episodes."""
    elapsed_s = line["elapsed_s"]
    samples, cpus = many(session.frames - 1, "sample"), many(len(session.shown), "CPU")
    lines = [f"{elapsed_s:.3f} s, {samples} of {cpus}"]
    metrics = session.evaluator.metrics
    shown = [column for column in columns(session, asked) if column.key in metrics]
    lines += _machine(line, shown) + _states(line)
    lines += _job_lines(session, line) + _energy_lines(line)
    if line["run"] is not None and not brief:
        lines += _each(session, line, shown)
    lines += [
        f"{kind}: {sum(causes.values())} ({', '.join(f'{c} {n}' for c, n in causes.items())})"
        for kind, causes in tally.counted.items()
    ]
    lines += [f"worst {episode.kind}: {_sentence(session, episode)}" for episode in tally.worst()]
    whole = "own_cpu_s" in line  # else only what the probe has told of itself is known
    name, own = ("own", line["own_cpu_s"]) if whole else ("probe", line["probe_cpu_s"])
    cost = "n/a" if own is None else f"{own:.2f} s CPU ({100 * own / elapsed_s:.1f} % of one CPU)"
    lost, suspect = session.lost, session.suspect_samples
    lines.append(f"{name} cost {cost} · frames lost {lost} · suspect samples {suspect}")
    return lines


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
    dram_j, text = line["energy_dram_j"], f"energy {energy_j:.1f} J"
    dram = f" · memory {dram_j:.1f} J" if dram_j is not None else ""
    return [f"{text} · {energy_j / line['elapsed_s']:.1f} W{dram}"]


# --- tables


def _machine(line: Line, shown: Sequence[Shown]) -> list[str]:
    """The table of measures, with means over the CPUs that the job ran on and over the others."""
    groups = {title: line[key] for key, title in _GROUPS.items() if line[key] is not None}
    titles = (*SPANS, *groups)
    lines = [f"{'':>24}" + "".join(f"{name:>9}" for name in titles)]
    for column in shown:
        key, show = column.key, column.text
        means = [group[key] and group[key]["mean"] for group in groups.values()]
        told = [_at(line["machine"][key], name, show) for name in SPANS]
        cells = [f"{text:>9}" for text in (*told, *(_cell(mean, show) for mean in means))]
        lines.append(f"{' '.join(column.title).rstrip():>24}" + "".join(cells))
    return lines


def _states(line: Line) -> list[str]:
    """The mean of each SMT state over the cores for which it is known."""
    parts = []
    most = 0
    for state in STATES:
        known = [c["smt"][state]["mean"] for c in line["cores"] if c["smt"][state] is not None]
        if known:
            parts.append(f"{state} {percent(sum(known) / len(known))} %")
            most = max(most, len(known))
    return [f"SMT states, mean of {many(most, 'core')}: {' · '.join(parts)}"] if parts else []


def _each(session: Session, line: Line, shown: Sequence[Shown]) -> list[str]:
    """Lines for each CPU and its core; above MOST_EACH CPUs only for those that the job ran on."""
    cpus = line["cpus"]
    if len(cpus) > MOST_EACH and line["job"] is not None:
        cpus = [cpu for cpu in cpus if cpu["cpu"] in line["job"]["cpus"]]
    cpus = cpus[:MOST_EACH]
    widths, titles = [c.width for c in shown], [c.title for c in shown]
    names = ("cpu", [label for label, _ in titles]), ("", [unit for _, unit in titles])
    lines = ["", *(row(name, cells, [], widths, EACH_WIDTH) for name, cells in names)]
    for cpu in cpus:
        for span in SPANS:
            cells = [_at(cpu[column.key], span, column.text) for column in shown]
            lines.append(row(_named(cpu["cpu"], span), cells, [], widths, EACH_WIDTH))
    if left := len(line["cpus"]) - len(cpus):
        lines.append(f"  … and {many(left, 'CPU')} more: stat --json tells all")
    return [*lines, *_each_core(session, line, {cpu["cpu"] for cpu in cpus}), ""]


def _each_core(session: Session, line: Line, cpus: set[int]) -> list[str]:
    """The states of the cores that have one of these CPUs."""
    lines: list[str] = []
    for i, told in zip(session.shown_cores(), line["cores"], strict=True):
        core, smt = session.cores[i], told["smt"]
        if not cpus.isdisjoint(core) and any(smt.values()):
            for span in SPANS:
                shares = [_at(smt[state], span, percent) for state in STATES]
                lines.append(row(_named(ranges(core), span), [], shares, [], EACH_WIDTH))
    heads = ("core of", STATES), ("", ["%"] * len(STATES))
    title = [row(name, [], cells, [], EACH_WIDTH) for name, cells in heads]
    return ["", *title, *lines] if lines else []


def _named(what: object, span: str) -> str:
    """The label of a line; the name is on the first of its lines only."""
    return f"{what if span == SPANS[0] else ''} {span:>4}"


def _at(measure: Line | None, span: str, show: Show) -> str:
    return _cell(measure[span] if measure else None, show)


def _cell(value: float | None, show: Show) -> str:
    return show(float("nan") if value is None else value)
