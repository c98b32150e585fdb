"""Episodes that run, and those of CPUs that go and come."""

from __future__ import annotations

from perftop.model.episode import Episode


class Detector:
    """Holds the episodes that run. An episode that ends is returned by the call that ended it."""

    def __init__(self) -> None:
        self.running: list[Episode] = []

    def of(self, kind: str) -> list[Episode]:
        """The episodes of one kind that run and show now."""
        return [e for e in self.running if e.kind == kind and not e.calm]

    def hotplug(self, cpu: int, time_ns: int, *, online: bool) -> list[Episode]:
        """A CPU went away or came."""
        away = [e for e in self.of("offline") if e.cpus == [cpu]]
        if online:
            back = Episode("online", [cpu], time_ns, time_ns, cause="hotplug")
            return [*(self.end(episode, time_ns) for episode in away), back]
        if not away:
            self.running.append(Episode("offline", [cpu], time_ns, cause="hotplug"))
        return []

    def end(self, episode: Episode, end_ns: int) -> Episode:
        self.running = [e for e in self.running if e is not episode]
        episode.end_ns, episode.calm = end_ns, False
        return episode
