"""The answer of `perftop why` in one sentence."""

from __future__ import annotations

from math import isfinite
from typing import Literal, NamedTuple

from perftop.base.format import many, percent, plain, rough
from perftop.base.text import folded, in_ascii, painted, printable
from perftop.base.times import clock, length
from perftop.output.sentences import SIGNS
from perftop.output.stat_json import Line, number
from perftop.output.why_report import MOST_TOLD, Finding, Report, all_the_time
from perftop.session.losses import STEAL, WAIT
from perftop.session.session import Session

MOST = 78
UNTOLD = "Waits for a CPU were not told."


def answer(session: Session, report: Report) -> str:
    whole = report.sums.lost_ratio
    guest = session.hello.virtualisation is not None
    machine = "this guest" if guest else "this machine"
    who = report.job or machine
    blind = not session.evaluator.chosen["busy_hz"]
    unseen = " Its clock cannot be seen." if blind else ""
    if report.job and not session.run_times.threads:
        named = not (session.neighbours.watching.name or "").isdecimal()
        what = f"No process named {who} was seen" if named else f"{who} ended before it was seen"
        return _fitting([f"{what}, so nothing is known of it."])
    if not isfinite(whole) and not isfinite(session.whole().values.over("util", session.shown)):
        return f"It is not known whether {who} had work: how busy CPUs were cannot be read."
    if not isfinite(whole):
        idle = f"{who} wanted no CPU time" if report.job else f"{machine} had no work"
        return _fitting([f"{_first(idle)}, so nothing could be lost.{unseen}"])
    if not report.told:
        if not session.run_times.waits_told:
            return _fitting([f"Nothing that was seen holds {who} back. {UNTOLD}"])
        text = f"Nothing holds {who} back: all causes together cost {percent(whole)} % of its time."
        return _fitting([text + unseen, text])
    first, share, second = report.told[0], 0.0, None
    for one in report.told:
        if one.by == first.by:
            share += one.share
        elif second is None:
            second = one
    if first.cause == STEAL and report.job is None:
        alone = f"The hypervisor takes {_much(share)} of {machine}'s time."
        return _fitting([alone + unseen, alone])
    if first.cause == WAIT and report.job is None:
        alone = f"{_first(machine)}'s tasks wait for a CPU {_much(share)} of their time"
        most = f"{alone}, most of all {first.by}."
        return _fitting([most + unseen, most, alone + "."])
    alone = f"{_first(who)} loses {_much(share)} of its {first.unit} to {first.by}"
    tries = [f"{alone}.{unseen}", f"{alone}."]
    if second is not None:
        what = "" if second.unit == first.unit else f" of its {second.unit}"
        tries = [f"{alone} and {_much(second.share)}{what} to {second.by}.", *tries]
    return _fitting(tries)


def brief(finding: Finding) -> str:
    """How the costliest cause is named where there is room for a few words."""
    return f"{finding.by} {_much(finding.share)}"


def _much(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0195 else f"{percent(share)} %"


def _first(text: str) -> str:
    """A sentence begins with a capital letter; the name of a program stays as it is."""
    return text[0].upper() + text[1:] if text.startswith("this ") else text


def _fitting(tries: list[str]) -> str:
    """The first that fits into a line; else the last."""
    return next((text for text in tries if len(text) <= MOST), tries[-1])


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


TextLine = list[Part]


def lines(session: Session, report: Report, *, colour: bool, unicode: bool) -> list[str]:
    """`colour`: with sequences for a terminal. `unicode`: signs may be drawn."""
    found = [[Part(answer(session, report), "answer")], [], *_body(session, report)]
    return [_drawn(line, colour=colour, unicode=unicode) for line in found]


def _drawn(line: TextLine, *, colour: bool, unicode: bool) -> str:
    text = ""
    for part in line:
        shown = printable(part.text)
        shown = shown if unicode else in_ascii(shown)
        text += painted(shown, _ANSI.get(part.role, "") if colour and shown else "")
    return text if colour else text.rstrip()


def _body(session: Session, report: Report) -> list[TextLine]:
    told = report.told
    if not told:
        return [*_healthy(session, report), [], *_ends(session, report)]
    found: list[TextLine] = [[Part(f"{'lost':>7}{'for':>{WIDTH - 7}}", "dim")]]
    for one in told[:MOST_TOLD]:
        found += _finding(one, report.elapsed_s)
    if more := told[MOST_TOLD:]:
        found.append([Part(f"{'':{INDENT}}+ {len(more)} more", "dim")])
    ruled = [check.brief for check in report.checks if check.share < told[-1].share]
    out = _labelled("ruled out", ", ".join(ruled) or "nothing", dim=True)
    return [*found, [], *out, *_ends(session, report)]


def _finding(one: Finding, elapsed_s: float) -> list[TextLine]:
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


def _healthy(session: Session, report: Report) -> list[TextLine]:
    found: list[TextLine] = []
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


def _ends(session: Session, report: Report) -> list[TextLine]:
    found: list[TextLine] = []
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
    end = clock(session.unix(session.now_ns))
    parts.append(f"{length(round(report.elapsed_s * 1e9))} to {end}")
    good = f"{many(report.samples, 'good sample')}"
    bad = f"{many(report.samples, 'sample')}, {report.suspect} suspect"
    parts.append(bad if report.suspect else good)
    return ", ".join(parts)


def _labelled(label: str, text: str, *, dim: bool) -> list[TextLine]:
    lines = folded(text, WIDEST - LABEL, break_on_hyphens=False)
    return [
        [Part(f"{label if i == 0 else '':<{LABEL}}", "dim"), Part(line, "dim" if dim else "text")]
        for i, line in enumerate(lines or [""])
    ]


def line(session: Session, report: Report, run: Line | None) -> Line:
    """`run`: of the command, as in the summary of `stat`."""
    return {
        "type": "why",
        "answer": answer(session, report),
        "job": report.job,
        "lost_ratio": number(report.sums.lost_ratio),
        "wanted_s": number(report.sums.whole_s),
        "causes": [_cause(one) for one in report.findings],
        "looked_for": [
            {"key": check.key, "lost_ratio": number(check.share), "text": check.looked_for,
             "found": check.found}
            for check in report.checks
        ],
        "not_seen": [
            {"what": what, "why": why, "fix": fix} for what, why, fix in report.not_seen
        ],
        "seen": _seen_json_line(session, report),
        "run": run,
    }  # fmt: skip


def _cause(one: Finding) -> Line:
    return {
        "kind": one.cause[0],
        "cause": one.cause[1],
        "lost_ratio": number(one.share),
        "lost_s": number(one.lost_s),
        "for_s": None if one.for_s is None else number(one.for_s),
        "running": one.running,
        "cpus": one.cpus,
        "text": one.said,
        "confidence": one.confidence,
        "evidence": one.evidence,
        "details": one.details,
        "try": one.hint or None,
    }


def _seen_json_line(session: Session, report: Report) -> Line:
    hello = session.hello
    end = session.unix(session.now_ns)
    return {
        "host": hello.host,
        "source": hello.source,
        "virtualisation": hello.virtualisation,
        "cpus": [session.topology[row].cpu for row in session.shown],
        "start": end - report.elapsed_s,
        "end": end,
        "elapsed_s": number(report.elapsed_s),
        "samples": report.samples,
        "suspect": report.suspect,
        "lost": session.lost,
    }
