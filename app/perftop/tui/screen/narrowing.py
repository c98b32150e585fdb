"""The filter in force: which CPUs it means at the moment, and the one before while it is typed."""

from __future__ import annotations

from perfprobe.wire import Cpu
from perftop.draw.strips import fit, foreign
from perftop.session.filter import Filter, parse
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.choice import Choice

SHOWN = 24
"""Characters of a filter that are shown beside other things."""


class Narrowing:
    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._before: tuple[Filter | None, int | None] = None, None
        """Filter and selected core when typing began."""
        self._of: tuple[Filter, Session, list[Cpu]] | None = None
        """What the mask was made of, but for numbers."""

    def begin(self, text: str = "") -> str:
        """Somebody begins to type, from this text on, or from that of the filter there is."""
        chosen = self._choice.filter
        self._before = chosen, self._choice.cpu
        return text or (chosen.text if chosen else "")

    def to(self, text: str) -> None:
        """As it reads by now. FilterError: it does not, and nothing changes."""
        self._choice.filter = parse(text)
        self._choice.cpu = self._before[1]  # for want of it another one may have been selected
        self._choice.mask = self._of = None  # so that views look whether it is there

    def undo(self) -> None:
        self._choice.filter, self._choice.cpu = self._before

    def sift(self, session: Session | None, interval: Interval | None) -> None:
        """The mask anew where it may be another one; views compare it by identity."""
        choice, chosen = self._choice, self._choice.filter
        if session is None or chosen is None:
            choice.mask = self._of = None
            return
        of = chosen, session, list(session.topology)
        if chosen.steady and of == self._of:
            return
        self._of = of
        mask = frozenset(chosen.cpus(session, interval).nonzero()[0].tolist())
        if mask != choice.mask:
            choice.mask = mask

    def matches(self, session: Session | None) -> str:
        """How many CPUs it lets through; few take as much room as many."""
        mask = self._choice.mask
        if session is None or mask is None:
            return ""
        count, of = len(mask.intersection(session.shown)), len(session.shown)
        return f"{count:>{len(str(of))}} of {of} CPUs" if count else "no CPU matches"

    def told(self, session: Session | None) -> str:
        """In short."""
        text = foreign(self._choice.filter.text) if self._choice.filter else ""
        return f"{fit(text, min(len(text), SHOWN))} · {self.matches(session)}"
