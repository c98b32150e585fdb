"""A session as text for people: its heading, its episodes and the lines at its end, with tables of
minimum, mean, maximum and fifth percentile of every measure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from perftop.base.format import clock, many, percent, rough, scale
from perftop.base.text import ranges, safe
from perftop.base.times import length, when
from perftop.model.episode import Episode
from perftop.model.smt import STATES
from perftop.output import sentences
from perftop.output.evidence import evidence, where
from perftop.output.stat_json import Line
from perftop.output.stat_table import Show, Shown, columns, row
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


MOST_NAME = 24
ALONE = 1.05
"""Most CPUs that a command kept busy of which it is told where it ran, not how many they were."""
NOTICED = 0.01
"""Minimum share of the elapsed time of waiting that is told."""
LONG = 0.1
"""Minimum share of the elapsed time with one CPU at work that is told."""
UNSEEN = 0.9
"""Share of its running time that must have been seen; if it was less, it waited longer than is
known."""
WIDTH = 13
MOST_COMMAND = 100
_LOW = "turbo-drop", "throttle", "license"


def headline(command: str, line: Line) -> str:
    """`line`: the summary, with a run. Times are of the whole tree of the command."""
    run, job = line["run"], line["job"]
    used_s, wall_s = run["user_s"] + run["sys_s"], run["wall_s"]
    name = safe(Path(command).name or command, MOST_NAME)
    most = "at most " if run.get("late_s") else ""
    busy = used_s / wall_s if wall_s > 0 else 0.0
    if busy > ALONE:
        told = (
            f"{name} took {most}{wall_s:.2f} s and kept {busy:.1f} of {len(line['cpus'])} CPUs busy"
        )
        return f"{told}{_waited(job, used_s, wall_s, '; its tasks waited')}.{_alone(line, wall_s)}"
    place = f" on CPU {ranges(job['cpus'])}" if job is not None else ""
    told = f"{name} took {most}{wall_s:.2f} s: it ran {used_s:.2f} s{place}"
    return f"{told}{_waited(job, used_s, wall_s, ' and waited')}."


def _alone(line: Line, wall_s: float) -> str:
    """How long one CPU of many worked; '' if that was not for long."""
    alone = line.get("busy")
    if alone is None or alone["cpus"] < 3 or alone["one_s"] < LONG * wall_s:
        return ""
    return f" One CPU alone worked for {alone['one_s']:.1f} s."


def _waited(job: Line | None, used_s: float, wall_s: float, how: str) -> str:
    """'' if it hardly waited, or that is not known."""
    waited_s = None if job is None else job["waited_s"]
    if job is None or waited_s is None or waited_s < NOTICED * wall_s:
        return ""
    least = " at least" if job["seen_s"] < UNSEEN * used_s else ""
    told = f"{how}{least} {waited_s:.2f} s for a CPU"
    behind = next((one for one in job["behind"] if one["ran_s"] > waited_s / 4), None)
    if behind is None:
        return told
    return f"{told}, mostly behind {safe(behind['comm'], MOST_NAME)}[{behind['pid']}]"


def block(session: Session, argv: Sequence[str], line: Line) -> list[str]:
    """`line`: the summary, with a run."""
    told: dict[str, str] = {
        "command": safe(shlex.join(argv), MOST_COMMAND) if len(argv) > 1 else "",
        f"exit status {line['run']['status']}": _times(line["run"]),
        "CPUs busy": _busy(line.get("busy")),
        "clock": _clock(session, line),
        "work": ", ".join(_work(line)),
        "used": ", ".join(_used(line)),
        "waits": _waits(line),
        "others": _others(line.get("others")),
        "energy": _energy(line),
    }
    lines = [f"{name:<{WIDTH}}{text}" if len(name) < WIDTH else f"{name}   {text}"
             for name, text in told.items() if text]  # fmt: skip
    if line["run"]["missed"]:
        missed = ranges(line["run"]["missed"])
        lines.append(f"CPUs {missed} were off or unreadable at its start or end")
    return lines


def _times(run: Line) -> str:
    slack_s = run["slack_s"]
    when = ("not known when in the measurement it ran" if slack_s is None
            else f"measured {slack_s:.3f} s longer")  # fmt: skip
    return f"user {run['user_s']:.3f} s   system {run['sys_s']:.3f} s   {when}"


def _busy(busy: Mapping[str, float] | None) -> str:
    if busy is None:
        return ""
    who = f" ({safe(str(busy['alone']), MOST_NAME)})" if busy["alone"] else ""
    parts = {
        f"all {busy['cpus']} for": busy["all_s"], "one for": busy["one_s"],
        "between for": busy["between_s"], "none for": busy["none_s"],
    }  # fmt: skip
    least_s = NOTICED * sum(parts.values())
    return ", ".join(
        f"{name} {span_s:.1f} s" + (who if name.startswith("one") else "")
        for name, span_s in parts.items() if span_s > least_s
    )  # fmt: skip


def _clock(session: Session, line: Line) -> str:
    measure = line["machine"]["busy_hz"]
    if measure is None:
        return ""
    ceilings = session.whole().ceiling_hz[session.shown_cores()]
    known = ceilings[np.isfinite(ceilings)]
    told = f"{clock(measure['mean'])} GHz"
    if len(known):
        told = f"{clock(measure['mean'])} of {clock(float(known.mean()))} GHz"
    below = line["totals"].get("below_ceiling")
    if below is None or below < NOTICED:
        return told
    causes = [one["cause"] for one in line.get("causes", ()) if one["kind"] in _LOW]
    why = sentences.CAUSES.get(causes[0], sentences.UNKNOWN) if causes else ""
    return f"{told}, below it {rough(below)} of the time{f': {why}' if why else ''}"


def _work(line: Line) -> Iterator[str]:
    machine = line["machine"]
    kernel = machine["kernel_cycles"] or machine["system"]
    both = [core["smt"]["both"]["mean"] for core in line["cores"] if core["smt"]["both"]]
    if machine["ipc"] is not None:
        yield f"IPC {machine['ipc']['mean']:.2f}"
    if kernel is not None:
        yield f"{percent(kernel['mean'])} % in the kernel"
    if sum(both) >= NOTICED * len(both) > 0:
        yield f"both threads of a core {rough(sum(both) / len(both))}"


def _used(line: Line) -> Iterator[str]:
    """The machine's cycles; the rest is the command's own."""
    run, totals = line["run"], line["totals"]
    if {"instructions", "cycles"} <= totals.keys():
        counts = f"{_si(totals['instructions'])} instructions in {_si(totals['cycles'])} cycles"
        yield f"{counts} on all CPUs"
    if run["switches"] is not None:
        yield f"{_si(run['switches'])} switches"
    if run["page_faults"] is not None:
        disk = f" ({run['disk_faults']} from disk)" if run["disk_faults"] else ""
        yield f"{_si(run['page_faults'])} page faults{disk}"
    if run["peak_bytes"] is not None:
        yield f"{run['peak_bytes'] / 1e6:.1f} MB in its largest process"


def _si(value: float) -> str:
    power, prefix = scale(value)
    return f"{value / 10**power:.3g} {prefix}" if prefix else f"{value:.0f}"


def _waits(line: Line) -> str:
    job, run = line["job"], line["run"]
    if job is None or (job["waited_s"] is None and job["disk_s"] is None):
        return ""
    parts = {"a CPU": job["waited_s"], "the disk": job["disk_s"]}
    told = [f"{waited_s:.2f} s for {what}" for what, waited_s in parts.items()
            if waited_s is not None]  # fmt: skip
    unseen = job["seen_s"] < UNSEEN * (run["user_s"] + run["sys_s"])
    return f"{'at least ' if unseen else ''}{' and '.join(told)}, all tasks together"


def _others(others: Line | None) -> str:
    if others is None:
        return ""
    told = f"at least {others['cpus']:.1f} CPUs on average"  # what is short-lived is not seen
    most = others["most"]
    if most is None:
        return told
    name, at = f"{safe(most['comm'], MOST_NAME)}[{most['pid']}]", ranges(most["cpus"])
    return f"{told}; most: {name}, {most['ran_s']:.1f} s on CPU {at}"


def _energy(line: Line) -> str:
    energy_j, own_s, elapsed_s = line["energy_j"], line.get("own_cpu_s"), line["elapsed_s"]
    parts = []
    if energy_j is not None and elapsed_s:
        amount = f"{energy_j / 1e3:.2f} kJ" if energy_j >= 1e3 else f"{energy_j:.1f} J"
        dram_j = line.get("energy_dram_j")
        dram = f" (memory {dram_j / elapsed_s:.1f} W)" if dram_j is not None else ""
        parts.append(f"{amount}, {energy_j / elapsed_s:.1f} W{dram}")
    if own_s is not None and elapsed_s:
        parts.append(f"own cost {100 * own_s / elapsed_s:.1f} % of one CPU")
    return "   ".join(parts) if energy_j is not None else ""
