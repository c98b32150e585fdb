"""A session as text for people: the tables of `stat` and its summary."""

from __future__ import annotations

import math
from collections.abc import Callable

from perftop.detect import Episode
from perftop.export import Line, multiplexed, summary_line
from perftop.format import clock, evidence, percent, plain, ranges, when
from perftop.metrics import METRICS
from perftop.session import Interval, Session
from perftop.smt import STATES

Show = Callable[[float], str]
_SHOW: dict[str, Show] = {"ratio": percent, "Hz": clock, "1": plain}
_UNIT = {"ratio": "%", "Hz": "GHz", "1": ""}
SHOWN = ("util", "busy_hz", "net_hz", "halt", "idle", "poll", "involuntary", "steal", "ipc",
         "kernel_cycles", "kernel_instructions")  # fmt: skip
"""Columns: what fits into a line and is worth it."""
WIDTH = 8


def heading(session: Session) -> list[str]:
    """What is being watched, and what cannot be and why."""
    hello = session.hello
    cores = _count(len(session.shown_cores()), "core")
    cpus = _count(len(session.shown), "CPU")
    model = hello.identity.name or "unknown CPU"
    lines = [f"# {hello.host} · {model} · {cores} / {cpus} · source {hello.source}"]
    lines += [f"# {text}" for text in missing_text(session)]
    return lines


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def missing_text(session: Session) -> list[str]:
    """One line a cause: what is not there, why, and how to get it."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for missing in session.missing():
        metric = METRICS.get(missing.what)
        where = "" if missing.cpus is None else f" on CPUs {ranges(missing.cpus)}"
        label = (metric.label if metric else missing.what) + where
        groups.setdefault((missing.why, missing.fix), []).append(label)
    return [
        f"n/a: {', '.join(dict.fromkeys(labels))} - {why}" + (f" · {fix}" if fix else "")
        for (why, fix), labels in groups.items()
    ]


def table(session: Session, interval: Interval) -> list[str]:
    """One interval: the machine, then a row per CPU; a core's states on its first CPU's row."""
    titles = [METRICS[key].label for key in SHOWN]
    units = [_UNIT[METRICS[key].unit] for key in SHOWN]
    lines = [
        "",
        f"{when(interval.time)}  {interval.elapsed_s:.3f} s"
        + _suspects(interval)
        + _turns(interval),
        _row("cpu", titles, list(STATES)),
        _row("", units, ["%"] * len(STATES)),
    ]
    everyone = [interval.values.over(key, session.shown) for key in SHOWN]
    lines.append(_row("all", _cells(everyone), []))
    first = {session.splitter.cores[i][0]: i for i in session.shown_cores()}
    for row in session.shown:
        cpu = session.topology[row].cpu
        if not interval.online[row]:
            lines.append(f"{cpu:>5} {'off':>{WIDTH}}")
            continue
        cells = _cells([float(interval.values[key][row]) for key in SHOWN])
        core = first.get(cpu)
        split = _states(interval, core) if core is not None else []
        mark = "~" if row in interval.suspect else ""
        lines.append(_row(f"{mark}{cpu}", cells, split))
    return lines


def _suspects(interval: Interval) -> str:
    n = len(interval.suspect)
    return f"  ~ {n} CPUs with suspect samples, left out" if n else ""


def _turns(interval: Interval) -> str:
    shares = multiplexed(interval)
    if not shares:
        return ""
    least = percent(min(shares.values()))
    return f"  counters shared: counted {least} % of the time at least, and scaled"


def _row(name: str, cells: list[str], states: list[str]) -> str:
    row = f"{name:>5} " + " ".join(f"{cell:>{WIDTH}}" for cell in cells)
    return (row + "  " + " ".join(f"{s:>9}" for s in states)).rstrip()


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
    """One line: what, where, since when, for how long, why."""
    cpus = ranges(found.cpus)
    start = when(session.unix(found.start_ns))
    if found.end_ns is None:
        length = "still running"
    else:
        length = f"{(found.end_ns - found.start_ns) / 1e9:.1f} s"
    told = evidence(found.cause, found.evidence)
    return f"! {found.kind}  cpu {cpus}  {start}  {length}  {found.cause}  {told}".rstrip()


def summary(session: Session, counted: dict[str, dict[str, int]], elapsed_s: float) -> list[str]:
    """The whole run: minimum, mean, maximum and fifth percentile of every measure."""
    line = summary_line(session, counted, elapsed_s)
    spans = ("min", "mean", "max", "p5")
    lines = [
        "",
        f"{elapsed_s:.3f} s, {session.frames - 1} samples of {_count(len(session.shown), 'CPU')}",
    ]
    lines.append(f"{'':>24}" + "".join(f"{name:>9}" for name in spans))
    for key in SHOWN:
        metric, measure = METRICS[key], line["machine"][key]
        title = f"{metric.label} {_UNIT[metric.unit]}".rstrip()
        lines.append(f"{title:>24}" + _spans(measure, _SHOW[metric.unit]))
    lines += _core_lines(line)
    lines += [
        f"{kind}: {sum(causes.values())} ({', '.join(f'{c} {n}' for c, n in causes.items())})"
        for kind, causes in counted.items()
    ]
    own = line["probe_cpu_s"]
    cost = "n/a" if own is None else f"{own:.2f} s CPU ({own / elapsed_s:.1%} of one CPU)"
    lines.append(
        f"own cost {cost} · frames lost {session.lost} · suspect samples {session.suspect_samples}"
    )
    return lines


def _core_lines(line: Line) -> list[str]:
    """The mean split: of each state over the cores of which it is known."""
    parts = []
    most = 0
    for state in STATES:
        known = [c["smt"][state]["mean"] for c in line["cores"] if c["smt"][state] is not None]
        if known:
            parts.append(f"{state} {percent(sum(known) / len(known))} %")
            most = max(most, len(known))
    return [f"SMT states, mean of {_count(most, 'core')}: {' · '.join(parts)}"] if parts else []


def _spans(measure: Line | None, show: Show) -> str:
    if measure is None:
        return f"{'n/a':>9}" * 4
    nothing = float("nan")
    values = (measure["min"], measure["mean"], measure["max"], measure["p5"])
    return "".join(f"{show(nothing if v is None else v):>9}" for v in values)
