"""Which episodes have begun since somebody last looked."""

from __future__ import annotations

from collections.abc import Iterable

from perftop.model.episode import Episode


class Beginnings:
    """One reader's view of the episodes that run."""

    def __init__(self) -> None:
        self._known: dict[int, Episode] = {}
        """Episodes by identity, which holds as long as they are kept here."""

    def of(self, running: Iterable[Episode]) -> list[Episode]:
        """The episodes that were not among the running ones at the last call."""
        now = {id(episode): episode for episode in running}
        news = [episode for key, episode in now.items() if key not in self._known]
        self._known = now
        return news

    def known(self, episode: Episode) -> bool:
        """Whether it was among them at the last call."""
        return id(episode) in self._known
