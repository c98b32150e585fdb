"""The answer of `perftop why` in one sentence."""

from __future__ import annotations

from math import isfinite

from perftop.base.format import percent
from perftop.output.why.report import Finding, Report
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
        named = not (session.neighbours.watched_job.name or "").isdecimal()
        what = f"No process named {who} was seen" if named else f"{who} ended before it was seen"
        return _fitting([f"{what}, so nothing is known of it."])
    if not isfinite(whole) and not isfinite(session.whole().values.over("util", session.shown)):
        return f"It is not known whether {who} had work: how busy CPUs were cannot be read."
    if not isfinite(whole):
        idle = f"{who} wanted no CPU time" if report.job else f"{machine} had no work"
        return _fitting([f"{_first(idle)}, so nothing could be lost.{unseen}"])
    if not report.told:
        if not session.run_times.has_waits:
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
