"""The list of episodes: what happened where, since when, for how long, and why."""

from __future__ import annotations

from typing import ClassVar

from textual.message import Message

from perftop.base.times import when
from perftop.draw.strips import Run, fit
from perftop.samples.episode import Episode
from perftop.session import episode_navigation
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.episodes import lines
from perftop.tui.shared import canvas, episode_style
from perftop.tui.shared.choice import Choice, Sorting
from perftop.tui.shared.cursor import Cursor


class Episodes(Cursor):
    HINTS: ClassVar[tuple[str, ...]] = ("open", "previous_episode", "order", "reverse")
    ORDERS: ClassVar[tuple[str, ...]] = lines.ORDERS

    class Visited(Message):
        """The user wants to see the moment of an episode."""

        def __init__(self, time_ns: int) -> None:
            super().__init__()
            self.time_ns = time_ns  # raw

    _session: Session | None = None
    _interval: Interval

    def __init__(self, choice: Choice, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(choice, id=id)
        self._sorting = Sorting(self.ORDERS[0])
        self._plan = lines.planned(0)
        self._lines: list[Episode] = []
        self._chosen: Episode | None = None
        """The selected episode, which stays selected when its line moves."""
        self._nothing: list[list[Run]] = []
        """Lines shown if there are no episodes."""
        self._ended: tuple[object, list[Episode]] = None, []
        """Ended episodes in order, after a key that changes when they must be sorted again."""
        self._where: dict[int, tuple[int, str]] = {}
        """Number of CPUs and their text, by id() of the episode."""
        self._refused = False
        """The user asked for the selected episode, but it is older than the history."""

    @property
    def sorting(self) -> Sorting:
        """The list's own order: episodes have other columns to sort by than CPUs."""
        return self._sorting

    # --- what there is to show

    def show(self, session: Session, interval: Interval) -> None:
        changed = self.settle(session) or session is not self._session
        self._session, self._interval = session, interval
        if changed:
            self.lay_out()
            return
        self._read(session)
        self.paint()

    def lay_out(self) -> None:
        session = self._session
        if session is None or not self.size.width:
            return
        self._plan = lines.planned(self.width)
        self._where.clear()
        self._read(session)
        self.redraw()
        self.show_cursor()

    def _read(self, session: Session) -> None:
        before = bool(self._lines)
        self._lines = self._arranged(session)
        if not any(episode is self._chosen for episode in self._lines):
            self._chosen = self._lines[0] if self._lines else None
        if not self._lines:
            filtered = self.choice.mask is not None
            self._nothing = lines.nothing(session, self.width, filtered=filtered)
        self.count = len(self._lines) or len(self._nothing)
        bare = self.bare or not self._lines
        order, reverse = self._sorting.order, self._sorting.reverse
        self.heads = [] if bare else [lines.heading(self._plan, order, reverse=reverse)]
        self._tell(session)
        if before != bool(self._lines):
            self.redraw()

    def _arranged(self, session: Session) -> list[Episode]:
        """Episodes on CPUs of the filter. Ended ones do not change, so they are sorted once."""
        order, reverse, mask = self._sorting.order, self._sorting.reverse, self.choice.mask
        cpus = None if mask is None else {session.topology[row].cpu for row in mask}

        def sorted_(episodes: list[Episode]) -> list[Episode]:
            here = [
                e for e in episodes if cpus is None or not e.cpus or not cpus.isdisjoint(e.cpus)
            ]
            return lines.arranged(session, here, order, reverse=reverse)

        ended = [*session.ended, *session.marks]
        of = (order, reverse, cpus, len(ended), *(id(e) for e in (*ended[:1], *ended[-1:])))
        if of != self._ended[0]:
            self._ended = of, sorted_(ended)
            self._where.clear()  # ids may be reused, and CPUs may have come or gone
        running = sorted_(session.running)
        if not running:
            return self._ended[1]
        return lines.arranged(session, [*running, *self._ended[1]], order, reverse=reverse)

    def line(self, y: int) -> canvas.Line:
        if not self._lines:
            return self._nothing[y], "calm"
        assert self._session is not None
        episode = self._lines[y]
        chosen = episode is self._chosen
        known, place = self._where.get(id(episode), (0, ""))
        if known != len(episode.cpus):
            place = lines.place(self._plan, self._session, episode)
            self._where[id(episode)] = len(episode.cpus), place
        runs = lines.line(
            self._plan,
            self._session,
            episode,
            place,
            chosen=chosen,
            kept=episode_navigation.reaches(self._session, episode),
        )
        return runs, "chosen" if chosen else "calm"

    def _tell(self, session: Session) -> None:
        """Sets the last line."""
        quiet = self.bare or not self._lines
        self.feet = [] if quiet else [(self._told(session), "chosen")]

    def _told(self, session: Session) -> list[Run]:
        """Cause of the selected episode, for which its line may have no room; or why it cannot be
        opened."""
        assert self._chosen is not None
        if self._refused and session.history is not None and session.history.first_ns is not None:
            since = when(session.unix(session.history.first_ns))
            return [(f" that moment is no longer kept: history begins at {since}", "text")]
        why = episode_style.because(self._chosen)
        return [(" ", "text"), (fit(why, min(len(why), max(1, self.width - 2))), "text")]

    # --- the cursor

    def cpu(self, y: int) -> int | None:
        cpus = self._lines[y].cpus if y < len(self._lines) else []
        return cpus[0] if cpus else None

    def _at(self) -> int:
        return next((y for y, e in enumerate(self._lines) if e is self._chosen), 0)

    def choose(self, y: int, towards: int = 1) -> None:  # noqa: ARG002 - no headings to step over
        if self._lines and self._session is not None:
            self._chosen = self._lines[max(0, min(len(self._lines) - 1, y))]
            self._refused = False
            self._tell(self._session)
            self.chosen()

    def action_move(self, by: int) -> None:
        self.choose(self._at() + by)

    def open(self) -> bool:
        """Go to the selected episode's moment and one of its cores, the selected core if it is
        among them. True if a core was found."""
        session, episode = self._session, self._chosen
        if session is None or episode is None:
            return False
        if not episode_navigation.reaches(session, episode):
            self._refused = True
            self._tell(session)
            self.paint()
            return False
        mine = set(episode.cpus)
        hit = [place.cpus for place in self.places.places if not mine.isdisjoint(place.cpus)]
        if hit:
            self.choice.cpu = next((c[0] for c in hit if self.choice.cpu in c), hit[0][0])
        self.post_message(self.Visited(episode_navigation.moment(session, episode, self._interval)))
        return bool(hit)
