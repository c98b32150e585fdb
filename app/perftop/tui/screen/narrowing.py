"""The filter in force: the CPUs that match it now, and the filter before while one is typed."""

from __future__ import annotations

from perfprobe.wire import Cpu
from perftop.draw.strips import fit, foreign
from perftop.session.filter import Filter, parse
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.choice import Choice

SHOWN = 24
"""Most characters of a filter shown in the last line of the screen."""


class Narrowing:
    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._before: tuple[Filter | None, int | None] = None, None
        """Filter and selected core when typing began."""
        self._of: tuple[Filter, Session, list[Cpu]] | None = None
        """Filter, session and topology from which the mask was made."""

    def begin(self, text: str = "") -> str:
        """Called when typing begins. Returns the text to begin with: this one, else that of the
        filter in force."""
        chosen = self._choice.filter
        self._before = chosen, self._choice.cpu
        return text or (chosen.text if chosen else "")

    def to(self, text: str) -> None:
        """Sets the filter to this text. Raises FilterError, and changes nothing, if the text is no
        valid filter."""
        self._choice.filter = parse(text)
        self._choice.cpu = self._before[1]  # a former text may have hidden this core
        self._choice.mask = self._of = None  # views check the selected core again

    def undo(self) -> None:
        self._choice.filter, self._choice.cpu = self._before

    def sift(self, session: Session | None, interval: Interval | None) -> None:
        """Computes the mask if it may have changed. It stays the same object while equal, because
        views compare it by identity."""
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
        """How many CPUs match, in a text of constant width unless none matches."""
        mask = self._choice.mask
        if session is None or mask is None:
            return ""
        count, of = len(mask.intersection(session.shown)), len(session.shown)
        return f"{count:>{len(str(of))}} of {of} CPUs" if count else "no CPU matches"

    def told(self, session: Session | None) -> str:
        """The filter's text, cut to SHOWN characters, and how many CPUs match."""
        text = foreign(self._choice.filter.text) if self._choice.filter else ""
        return f"{fit(text, min(len(text), SHOWN))} · {self.matches(session)}"
