"""What `perftop why` found as text for a terminal of 80 columns."""

from __future__ import annotations

from math import isfinite
from typing import Literal, NamedTuple

from perftop.base.format import length, many, percent, plain, rough, time_of_day
from perftop.base.text import folded, in_ascii, painted, printable
from perftop.output.why.answer import answer
from perftop.output.why.phrases import SIGNS
from perftop.output.why.report import MOST_TOLD, Finding, Report, all_the_time
from perftop.session.session import Session

WIDTH, WIDEST = 78, 80
"""Columns of the table, and of all lines."""
INDENT = 10
"""Columns of sign and number, before what is said."""
LABEL = 11
"""Columns of `not seen` and the like."""
MOST_LINES = 2
"""Lines of evidence of one cause."""
MOST_UNSEEN = 4
Role = Literal["text", "answer", "lost", "dim", "try"]
_ANSI: dict[Role, str] = {"answer": "1", "lost": "31", "dim": "2", "try": "34"}


class Part(NamedTuple):
    text: str
    role: Role = "text"


Line = list[Part]


def lines(session: Session, report: Report, *, colour: bool, unicode: bool) -> list[str]:
    """`colour`: with sequences for a terminal. `unicode`: signs may be drawn."""
    found = [[Part(answer(session, report), "answer")], [], *_body(session, report)]
    return [_drawn(line, colour=colour, unicode=unicode) for line in found]


def _drawn(line: Line, *, colour: bool, unicode: bool) -> str:
    text = ""
    for part in line:
        shown = printable(part.text)
        shown = shown if unicode else in_ascii(shown)
        text += painted(shown, _ANSI.get(part.role, "") if colour and shown else "")
    return text if colour else text.rstrip()


def _body(session: Session, report: Report) -> list[Line]:
    told = report.told
    if not told:
        return [*_healthy(session, report), [], *_ends(session, report)]
    found: list[Line] = [[Part(f"{'lost':>7}{'for':>{WIDTH - 7}}", "dim")]]
    for one in told[:MOST_TOLD]:
        found += _finding(one, report.elapsed_s)
    if more := told[MOST_TOLD:]:
        found.append([Part(f"{'':{INDENT}}+ {len(more)} more", "dim")])
    ruled = [check.brief for check in report.checks if check.share < told[-1].share]
    out = _labelled("ruled out", ", ".join(ruled) or "nothing", dim=True)
    return [*found, [], *out, *_ends(session, report)]


def _finding(one: Finding, elapsed_s: float) -> list[Line]:
    role: Role = "lost" if one.running else "text"
    number = f"{percent(one.share):>4} %"
    end = _for(one, elapsed_s)
    room = WIDTH - INDENT - len(end) - (3 if end else 0)
    first, *rest = folded(one.said, room) or [""]
    head = [Part(f"{SIGNS.get(one.cause[0], ' ')} {number}", role), Part("  " + first)]
    head.append(Part(end.rjust(WIDTH - INDENT - len(first)) if end else "", "dim"))
    found = [head, *([Part(" " * INDENT + line)] for line in rest)]
    found += [[Part(line, "dim")] for line in _evidence(one)]
    if one.hint:
        found.append([Part(f"{'':{INDENT}}{'try:':<10}", "dim"), Part(one.hint, "try")])
    return found


def _for(one: Finding, elapsed_s: float) -> str:
    if one.for_s is None:
        return ""
    told = length(round(one.for_s * 1e9))
    return f"all {length(round(elapsed_s * 1e9))}" if all_the_time(one, elapsed_s) else told


def _evidence(one: Finding) -> list[str]:
    label = f"{'':{INDENT}}{one.confidence + ':':<10}"
    said = ", ".join(one.evidence) or "no counter names a limit"
    return folded(
        said, WIDTH, initial_indent=label, subsequent_indent=" " * len(label), max_lines=MOST_LINES,
        placeholder=" …",
    )  # fmt: skip


def _healthy(session: Session, report: Report) -> list[Line]:
    found: list[Line] = []
    if report.checks:
        found.append([Part(f"{'lost':>7}  {'looked for':<28}found", "dim")])
    for check in report.checks:
        if not check.looked_for:
            continue
        number = f"{percent(check.share):>5} %"
        found.append([Part(f"{number}  {check.looked_for:<28}{check.found}")])
    if works := _works(session, report):
        found += [[], [Part(works)]]
    if isfinite(report.sums.lost_ratio):
        found.append([Part("A program that is slow all the same is slow by itself: "),
                      Part("perf record -g", "try"), Part(".")])  # fmt: skip
    return found


def _works(session: Session, report: Report) -> str:
    """What the machine did; '' if nothing is known of it."""
    whole = session.whole()
    if not isfinite(whole.values.over("util", session.shown)):
        return ""
    parts = []
    for key, words in (
        ("util", "{} busy"),
        ("ipc", "IPC {}"),
        ("kernel_cycles", "{} in the kernel"),
    ):
        value = whole.values.over(key, session.shown)
        if isfinite(value):
            few = rough(value) if value >= 0.095 else f"{percent(value)} %"
            shown = plain(value) if key == "ipc" else few
            parts.append(words.format(shown))
    both = whole.split.mean("both")
    if isfinite(both) and any(len(core) > 1 for core in session.cores):
        parts.append(f"both threads of a core {rough(both)}")
    works = "It works" if isfinite(report.sums.lost_ratio) else "It rests"
    if report.job is not None:
        works = "The machine"  # others may work, too
    told = f"{works}: {', '.join(parts)}."
    return told if len(told) <= WIDTH else told.replace(" of a core", "")


def _ends(session: Session, report: Report) -> list[Line]:
    found: list[Line] = []
    unseen = [f"{what}: {why}" + (f" ({fix})" if fix else "")
              for what, why, fix in report.not_seen[:MOST_UNSEEN]]  # fmt: skip
    for i, text in enumerate(unseen):
        found += _labelled("not seen" if i == 0 else "", text, dim=False)
    if report.hides:
        found += _labelled("", report.hides, dim=False)
    return found + _labelled("seen", _seen(session, report), dim=True)


def _seen(session: Session, report: Report) -> str:
    hello = session.hello
    parts = [printable(hello.host) or "this machine"]
    if hello.virtualisation:
        kind = "" if hello.virtualisation == "hypervisor" else f"{hello.virtualisation} "
        parts.append(f"{kind}guest")
    cores = len(session.shown_cores())
    several = cores < len(session.shown) or not hello.virtualisation
    parts.append(many(cores, "core") if several else many(len(session.shown), "CPU"))
    util = session.whole().values.over("util", session.shown)
    parts += [f"{rough(util)} busy"] if isfinite(util) and not several else []
    end = time_of_day(session.unix(session.now_ns))
    parts.append(f"{length(round(report.elapsed_s * 1e9))} to {end}")
    good = f"{many(report.samples, 'good sample')}"
    bad = f"{many(report.samples, 'sample')}, {report.suspect} suspect"
    parts.append(bad if report.suspect else good)
    return ", ".join(parts)


def _labelled(label: str, text: str, *, dim: bool) -> list[Line]:
    lines = folded(text, WIDEST - LABEL, break_on_hyphens=False)
    return [
        [Part(f"{label if i == 0 else '':<{LABEL}}", "dim"), Part(line, "dim" if dim else "text")]
        for i, line in enumerate(lines or [""])
    ]
