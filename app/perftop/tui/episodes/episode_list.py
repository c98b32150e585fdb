"""The list of episodes: what happened where, since when, for how long, and why."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.message import Message

from perftop.base.format import when
from perftop.draw import strips, theme
from perftop.draw.strips import Run, fit
from perftop.model.episode import Episode
from perftop.output.sentences import Part, losers, unique_losses
from perftop.session import navigation as episode_navigation
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.episodes import lines
from perftop.tui.panels.below import Paneled
from perftop.tui.shared import episode_style
from perftop.tui.shared.choice import Choice, Sorting
from perftop.tui.shared.cursor import Cursor

_LOW = 12
"""Minimum height for a heading above the titles, and for lines about the chosen episode."""
_LEAST_DETAILS, _MOST_DETAILS = 5, 10
"""Lines about the chosen episode."""


class Episodes(Paneled, Cursor):
    HINTS: ClassVar[tuple[str, ...]] = ("open", "previous_episode", "order", "reverse")
    ORDERS: ClassVar[tuple[str, ...]] = lines.ORDERS

    @dataclass(eq=False)
    class Visited(Message):
        """The user wants to see an episode at the moment `time_ns` (raw)."""

        time_ns: int

    TELLS = "happened"

    def __init__(self, choice: Choice, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(choice, id=id)
        self._sorting = Sorting(self.ORDERS[0])
        self._plan = lines.planned(0)
        self._lines: list[Episode] = []
        self._starts: list[int] = [0]
        """First line of each of the episodes at the top that have their evidence below them, and of
        the one behind them."""
        self._chosen: Episode | None = None
        """The selected episode, which stays selected when its line moves."""
        self._nothing: list[list[Run]] = []
        """Lines shown if there are no episodes."""
        self._ended: tuple[object, list[Episode]] = None, []
        """Ended episodes in order, after a key that changes when they must be sorted again."""
        self._said: dict[int, list[Part]] = {}
        self._reasons: dict[int, list[str]] = {}
        """Sentence and evidence of ended episodes, which do not change, by id() of the episode."""
        self._led = False
        """Whether a click on another view has selected the episode; a second click opens it."""
        self._refused = False
        """Whether the selected episode was asked for, but is older than the history."""

    @property
    def sorting(self) -> Sorting:
        """The list's own order: episodes have other columns to sort by than CPUs."""
        return self._sorting

    # --- what there is to show

    def show(self, session: Session, interval: Interval) -> None:
        if self.settle(session, interval):
            self.lay_out()
            return
        self._read(session)
        self.paint()

    def build(self) -> None:
        self._plan = lines.planned(self.width)
        self._forget()
        self._read(self.session)
        self.redraw()
        self.show_cursor()

    def _forget(self) -> None:
        self._said.clear()
        self._reasons.clear()

    def _read(self, session: Session) -> None:
        before = bool(self._lines)
        self._lines = self._arranged(session)
        if not any(episode is self._chosen for episode in self._lines):
            self._chosen = self._lines[0] if self._lines else None
        if not self._lines:
            filtered = self.choice.mask is not None
            self._nothing = lines.nothing(session, self.width, filtered=filtered)
        self.heads = self._headings(session)
        self._tell(session)
        self.count = self._starts[-1] + len(self._lines) - len(self._starts) + 1
        if not self._lines:
            self.count = len(self._nothing)
        if not self.feet and not self.bare:
            room = self.size.height - len(self.heads) - self.count
            self.feet = self.panels(room)
        if before != bool(self._lines):
            self.redraw()

    def _headings(self, session: Session) -> list[list[Run]]:
        if self.bare or not self._lines:
            return []
        order, reverse = self._sorting.order, self._sorting.reverse
        titles = lines.heading(self._plan, order, reverse=reverse)
        if self.size.height < _LOW:
            return [titles]
        return [lines.summary(session, self._lines, self.width), titles]

    def _tell(self, session: Session) -> None:
        """Makes the lines at the bottom, with the chosen episode where not all have their evidence
        below them, and finds out which have."""
        room = self.size.height - len(self.heads)
        whole, refused = self._spread(room - 1), self._refusal(session)
        if self._chosen is None or self.bare:
            self.feet = []
        elif whole or self.size.height < _LOW:
            brief: list[list[Run]] = [] if whole else [self._brief()]
            self.feet = [(runs, "chosen") for runs in ([refused] if refused else brief)]
        else:
            height = min(_MOST_DETAILS, max(_LEAST_DETAILS, room // 4))
            self._spread(room - height)
            names = self._names(self._chosen)
            found = lines.details(self._plan, session, self._chosen, height, names)
            found[-1] = refused or found[-1]
            self.feet = [(runs, "calm") for runs in found]

    def _spread(self, room: int) -> bool:
        """Gives episodes from the top their evidence below them as far as `room` lines are enough
        for all; returns whether all have it."""
        self._starts = [0]
        spare = room - len(self._lines)
        for episode in self._lines:
            more = len(self._why(episode)) - bool(self._plan.why) if spare >= 0 else 1
            if more > spare:
                return False
            spare -= max(0, more)
            self._starts.append(self._starts[-1] + 1 + max(0, more))
        return True

    def _arranged(self, session: Session) -> list[Episode]:
        """Episodes on CPUs of the filter. Ended ones do not change, so they are sorted once."""
        order, reverse, mask = self._sorting.order, self._sorting.reverse, self.choice.mask
        cpus = None if mask is None else {session.topology[row].cpu for row in mask}

        def sorted_(episodes: list[Episode]) -> list[Episode]:
            here = [
                e
                for e in unique_losses(episodes)
                if cpus is None or not e.cpus or not cpus.isdisjoint(e.cpus)
            ]
            return lines.arranged(session, here, order, reverse=reverse)

        ended = [*session.ended, *session.marks]
        of = (order, reverse, cpus, len(ended), *(id(e) for e in (*ended[:1], *ended[-1:])))
        if of != self._ended[0]:
            self._ended = of, sorted_(ended)
            self._forget()  # ids may be reused, and CPUs may have come or gone
        running = sorted_(session.running)
        if not running:
            return self._ended[1]
        return lines.arranged(session, [*running, *self._ended[1]], order, reverse=reverse)

    # --- lines

    def _index(self, y: int) -> tuple[int, int]:
        """Which episode line `y` belongs to, and which of its lines it is."""
        spread = len(self._starts) - 1
        if y >= self._starts[-1]:
            return spread + y - self._starts[-1], 0
        at = bisect_right(self._starts, y) - 1
        return at, y - self._starts[at]

    def _first(self, at: int) -> int:
        """The first line of the episode at this index."""
        spread = len(self._starts) - 1
        return self._starts[at] if at < spread else self._starts[-1] + at - spread

    def line(self, y: int) -> strips.Line:
        if not self._lines:
            return self._nothing[y], "calm"
        at, part = self._index(y)
        episode = self._lines[at]
        chosen = episode is self._chosen
        why = self._why(episode) if self._plan.why or part else []
        mood: theme.Mood = "chosen" if chosen else "calm"
        if part:
            return lines.below(self._plan, why[part - (not self._plan.why)]), mood
        beside = why[0] if why and self._plan.why else ""
        if len(why) > 1 and self._plan.why and at >= len(self._starts) - 1:
            beside = f"{beside} ·{theme.CUT}"
        runs = lines.line(
            self._plan, self.session, episode, self._sentence(episode), beside,
            chosen=chosen, kept=episode_navigation.is_reachable(self.session, episode),
        )  # fmt: skip
        return runs, mood

    def _sentence(self, episode: Episode) -> list[Part]:
        found = self._said.get(id(episode))
        if found is None:
            names = self._names(episode)
            found = lines.said(self.session, episode, self._plan.what - 1, names)
            if episode.end_ns is not None:
                self._said[id(episode)] = found
        return found

    def _why(self, episode: Episode) -> list[str]:
        found = self._reasons.get(id(episode))
        if found is None:
            found = lines.reasons(self._plan, episode)
            if episode.end_ns is not None:
                self._reasons[id(episode)] = found
        return found

    def _names(self, episode: Episode) -> list[str]:
        """Tasks that lose by an episode that runs."""
        if episode.end_ns is not None:
            return []
        return losers(self.session, [episode], self.interval.tasks)

    def _refusal(self, session: Session) -> list[Run]:
        """Why the selected episode cannot be shown; empty if it was not asked for."""
        if not self._refused or (first_ns := session.past.first_ns) is None:
            return []
        since = when(session.unix(first_ns))
        return [(f" that moment is no longer kept: history begins at {since}", "text")]

    def _brief(self) -> list[Run]:
        """Cause and evidence of the selected episode in one line."""
        assert self._chosen is not None
        why = episode_style.because(self._chosen)
        return [(" ", "text"), (fit(why, min(len(why), max(1, self.width - 2))), "text")]

    # --- the cursor

    def select(self, episode: Episode) -> None:
        """Selects this episode, if it is in the list, after a click on what tells of it."""
        self._chosen, self._refused, self._led = episode, False, True
        self.lay_out()

    def cpu(self, y: int) -> int | None:
        at = self._index(y)[0] if y < self.count else len(self._lines)
        cpus = self._lines[at].cpus if at < len(self._lines) else []
        return cpus[0] if cpus else None

    def _place(self) -> int:
        """Index of the selected episode."""
        return next((i for i, e in enumerate(self._lines) if e is self._chosen), 0)

    def _at(self) -> int:
        return self._first(self._place())

    def choose(self, y: int, towards: int = 1) -> None:  # noqa: ARG002 - no headings to step over
        self._choose(self._index(max(0, y))[0])

    def _choose(self, at: int) -> None:
        if self._lines:
            self._chosen = self._lines[max(0, min(len(self._lines) - 1, at))]
            self._refused = False
            self._tell(self.session)
            self.chosen()

    def show_cursor(self) -> None:
        at = self._place()
        self.reveal(self._first(at), self._first(at + 1) - 1)

    def action_move(self, by: int) -> None:
        self._choose(self._place() + by)

    def on_click(self, event: events.Click) -> None:
        if event.chain == 2 and self._led:  # the first click was on another view
            self.post_message(self.Opened())
            return
        self._led = False
        y = self.at(event.y)
        if y is not None and self._lines:
            self.choose(y)
            if event.chain == 2:
                self.post_message(self.Opened())

    def open(self) -> bool:
        """Go to the selected episode's moment and one of its cores, the selected core if it is
        among them. True if a core was found."""
        session, episode = self.session, self._chosen
        if episode is None:
            return False
        if not episode_navigation.is_reachable(session, episode):
            self._refused = True
            self._tell(session)
            self.paint()
            return False
        mine = set(episode.cpus)
        hit = [place.cpus for place in self.places.places if not mine.isdisjoint(place.cpus)]
        if hit:
            self.choice.cpu = next((c[0] for c in hit if self.choice.cpu in c), hit[0][0])
        self.post_message(
            self.Visited(episode_navigation.moment_of(session, episode, self.interval))
        )
        return bool(hit)
