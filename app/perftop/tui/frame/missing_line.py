"""The line above the keys on what this source cannot count, why, and how to get it. It is not there
where nothing is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perftop.draw.strips import BLANK, Line, Run, fit, foreign, width
from perftop.session.missing import NAMES, by_reason, lasting
from perftop.tui.frame.heights import AIRY, SHORT
from perftop.tui.shared.canvas import PageWidget

if TYPE_CHECKING:
    from perftop.session.session import Session

_MISSED = ("busy_hz", "ipc", "halt", "turbo_ceiling_hz")
"""Metrics whose absence is told, the most important first."""
_MOST = 3
"""Metrics named where there is little room."""
_DOCTOR: Run = ("perftop doctor", "key")


class MissingLine(PageWidget):
    _session: Session | None = None
    _runs: Sequence[Run] = ()
    _at = 0
    """Line of the widget in which the text stands; the others are blank."""

    def on_mount(self) -> None:
        self.lay_out()

    def show(self, session: Session | None) -> None:
        """Called with every refresh; only a new session has news."""
        if session is not self._session:
            self._session = session
            self.lay_out()

    def lay_out(self) -> None:
        """Called when the screen has another size."""
        size = self.screen.size
        self._runs = line(self._session, size.width) if self._session is not None else []
        self._at = int(size.height >= AIRY)
        lines = (1 + self._at) * bool(self._runs) + self._at
        self.display = lines > 0 and size.height >= SHORT
        self.styles.height = lines
        self.anew()

    def page(self, width: int, height: int) -> list[Line]:  # noqa: ARG002 - as laid out
        return [*[BLANK] * self._at, ([*self._runs], "calm")]


def line(session: Session, size: int) -> list[Run]:
    """The metrics that no CPU of this source has, why, and the fix; where that does not fit,
    `perftop doctor`, which tells it."""
    names = {key: NAMES[key] for key in _MISSED}
    everywhere = [missing for missing in lasting(session) if missing.cpus is None]
    reasons = by_reason(everywhere, lambda missing: names.get(missing.what))
    if not reasons:
        return []
    (why, fix), lost = max(reasons.items(), key=lambda item: len(item[1]))
    lost.sort(key=list(names.values()).index)
    head = foreign(_reason(why))
    verb = "cannot be counted" if "PMU" in head else "cannot be known"
    long = f" {head}: {_and(lost)} {verb}"
    dot: Run = (" · ", "faint")
    mend: list[Run] = [dot, (foreign(fix), "dim")] if fix else []
    texts: list[list[Run]] = [
        [(long, "dim"), *mend, dot, _DOCTOR, (" tells how" if fix else " tells more", "dim")],
        [(long, "dim"), dot, _DOCTOR, (" tells more", "dim")],
        [(f" {head}: {', '.join(lost[:_MOST])} unknown", "dim"), dot, _DOCTOR],
        [(f" {head}", "dim"), dot, _DOCTOR],
    ]
    text = next((runs for runs in texts if width(runs) <= size), None)
    return text or [(fit(f" {head}", size), "dim")]


def _reason(why: str) -> str:
    """The first part of a reason, as a sentence begins."""
    short = why.partition(": ")[0].replace("no core PMU", "no PMU")
    return short[:1].upper() + short[1:]


def _and(names: list[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
