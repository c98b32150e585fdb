"""The phases of a recording as a table of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, nan

from perftop.base.format import clock_ghz as ghz
from perftop.base.format import length, many, percent, plain, prefixed, time_of_day
from perftop.base.text import safe
from perftop.model.registry import PER_KI
from perftop.output.episode_words import depth, where
from perftop.output.summary.phase import SHARES, Phase
from perftop.output.why.phrases import SIGNS
from perftop.session.session import Session

Row = tuple[str, str, str, Callable[[float], str]]
"""Key, label and unit of a row, and how a value is shown."""
ROWS: tuple[Row, ...] = (
    ("util", "busy", "%", percent),
    ("busy_hz", "clock", "GHz", ghz),
    ("lost_ratio", "lost", "%", percent),
    ("ipc", "IPC", "", plain),
    ("kernel_cycles", "in the kernel", "%", percent),
    ("involuntary", "involuntary", "%", percent),
    ("steal", "steal", "%", percent),
)
LABEL, CELL, WIDTH = 19, 7, 80
SIDE_BY_SIDE = 3
"""Most phases that stand side by side; of more each has a row."""
SHORT = {"busy_hz": "GHz", "involuntary": "invol %"}
"""Headings of columns, where label and unit together are too long."""
MOST_NAME, MOST_UNIT = 15, 5


def sentence(phases: Sequence[Phase]) -> str:
    """What each phase loses most to."""
    told = []
    for one in phases:
        first = one.findings[0] if one.findings and one.findings[0].share >= 0.01 else None
        name = safe(one.label, MOST_NAME)
        if first is None:
            told.append(f"{name} loses less than 1 %")
        else:
            told.append(f"{name} loses {percent(first.share)} % of its {first.unit} to {first.by}")
    return "; ".join(told) + "."


def lines(session: Session, phases: Sequence[Phase], whole: Phase) -> list[str]:
    """`phases`: empty where the recording was not divided."""
    found = [sentence(phases) if phases else whole.answer, ""]
    rows = [*ROWS, *_events(session)]
    if not phases:
        found += _alone(whole, rows)
    elif len(phases) <= SIDE_BY_SIDE:
        found += _beside([*phases, whole], rows)
    else:
        found += _below([*phases, whole], rows)
    found += ["", *_causes(session, phases or [whole])]
    samples = f"{many(whole.samples, 'sample')}, {whole.suspect} suspect"
    return [*found, f"{samples}, {session.lost or 'none'} lost."]


def _events(session: Session) -> list[Row]:
    """Rows of the chosen events and of issue slots, which not every stream has."""
    found: list[Row] = []
    for metric in session.evaluator.registry.events.values():
        label = safe(metric.label.removesuffix(PER_KI), LABEL - MOST_UNIT - 1)
        if metric.unit == "ratio":
            found.append((metric.key, label, "%", percent))
        elif metric.key.endswith(PER_KI):
            found.append((metric.key, label, PER_KI, plain))
        else:
            found.append((metric.key, label, metric.unit.removeprefix("1"), prefixed))
    return found


def _heading(*cells: str) -> str:
    return f"{'':{LABEL}}" + "".join(f"{cell:>{CELL}}" for cell in cells)


def _alone(whole: Phase, rows: Sequence[Row]) -> list[str]:
    """One phase: its percentiles."""
    names = ("mean", *SHARES, "min", "max")
    found = [
        f"from {time_of_day(whole.start)} for {length(round(whole.elapsed_s * 1e9))}",
        _heading(*names),
    ]
    for key, label, unit, show in rows:
        measure = whole.line["machine"][key]
        if measure is not None:
            values = {**whole.percentiles[key], **measure}
            cells = "".join(f"{show(_number(values[name])):>{CELL}}" for name in names)
            found.append(f"{label:<{LABEL - len(unit)}}{unit}{cells}")
    return found + _machine([whole], 1)


def _number(value: float | None) -> float:
    return nan if value is None else value


def _beside(phases: Sequence[Phase], rows: Sequence[Row]) -> list[str]:
    wide = 2 * CELL
    found = [
        f"{'':{LABEL}}" + "".join(f"{safe(one.label, MOST_NAME):>{wide}}" for one in phases),
        _heading(*["mean", "p5"] * len(phases)),
        f"{'from':<{LABEL}}" + "".join(f"{time_of_day(one.start):>{wide}}" for one in phases),
    ]
    for key, label, unit, show in rows:
        if any(isfinite(one.mean(key)) for one in phases):
            cells = "".join(
                f"{show(one.mean(key)):>{CELL}}{show(one.percentiles[key]['p5']):>{CELL}}"
                for one in phases
            )
            found.append(f"{label:<{LABEL - len(unit)}}{unit}{cells}")
    return found + _machine(phases, 2)


def _machine(phases: Sequence[Phase], cells: int) -> list[str]:
    """What has no percentiles."""
    rows = (
        ("length", "s", lambda one: one.elapsed_s),
        ("both threads", "%", lambda one: 100 * one.both),
        ("power", "W", _power_w),
        ("energy", "kJ", lambda one: _number(one.line["energy_j"]) / 1e3),
    )
    found = []
    for label, unit, of in rows:
        values = [of(one) for one in phases]
        if any(map(isfinite, values)):
            shown = (f"{value:.{2 if unit == 'kJ' else 1}f}" if isfinite(value) else "n/a"
                     for value in values)  # fmt: skip
            told = "".join(f"{text:>{CELL}}{'':{CELL * (cells - 1)}}" for text in shown)
            found.append(f"{label:<14}{unit:>{LABEL - 14}}{told}".rstrip())
    return found


def _power_w(one: Phase) -> float:
    return _number(one.line["energy_j"]) / one.elapsed_s if one.elapsed_s > 0 else nan


def _below(phases: Sequence[Phase], rows: Sequence[Row]) -> list[str]:
    """A row each, with means."""
    rows = [row for row in rows if any(isfinite(one.mean(row[0])) for one in phases)][:6]
    heads = [SHORT.get(key) or f"{label.split()[-1][:6]} {unit}".strip()
             for key, label, unit, _ in rows]  # fmt: skip
    found = [f"{'phase':<{LABEL - 3}}{'s':>{CELL}}" + "".join(f"{head:>9}" for head in heads)]
    for one in phases:
        cells = "".join(f"{show(one.mean(key)):>9}" for key, _, _, show in rows)
        name = safe(one.label, MOST_NAME)
        found.append(f"{name:<{LABEL - 3}}{one.elapsed_s:>{CELL}.1f}{cells}")
    return found


def _causes(session: Session, phases: Sequence[Phase]) -> list[str]:
    found = []
    for one in phases:
        for i, (cause, worst) in enumerate(one.worst):
            name = safe(one.label, MOST_NAME) if i == 0 and phases[1:] else ""
            parts = [cause.by, f"{percent(cause.share)} %", f"{cause.lost_s:.1f} CPU s"]
            if worst is not None:
                parts.append(f"worst {time_of_day(session.unix(worst.start_ns))}")
                parts += [f"on {where(session.topology, worst.cpus, 12)}"]
                parts += [deep] if (deep := depth(worst.kind, worst.depth)) else []
            sign = SIGNS.get(cause.cause[0], " ")
            head = f"{name:<{MOST_NAME + 1 if phases[1:] else 0}}{sign} "
            while len(told := head + ", ".join(parts)) > WIDTH:
                parts.pop()
            found.append(told)
    return found
