"""Episodes that run; and those of CPUs that go, and of samples that cannot be believed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from perftop.samples.episode import Episode

CLEAN_NS = 1_000_000_000
"""A suspect episode has ended when this long no sample was suspect: shorter gaps are the same
disturbance seen twice, and a line per sample would bury it."""


class Detector:
    """Holds the episodes that run. An episode that ends is returned by the call that ended it."""

    def __init__(self) -> None:
        self.running: list[Episode] = []
        self._last_suspect: dict[int, int] = {}
        self._reasons: dict[int, Counter[str]] = {}
        """By CPU of a suspect episode, the number of samples with each reason."""

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

    def suspects(self, reasons: dict[int, set[str]], time_ns: int, since_ns: int) -> list[Episode]:
        """The sample from since_ns to time_ns could not be believed on these CPUs. What begins on
        several for the same reason is one episode, as what disturbs a machine disturbs all."""
        known = {cpu for episode in self.of("suspect") for cpu in episode.cpus}
        fresh: dict[str, list[int]] = {}
        for cpu in sorted(reasons.keys() - known):
            fresh.setdefault(min(reasons[cpu]), []).append(cpu)
        for cause, cpus in fresh.items():
            self.running.append(Episode("suspect", cpus, since_ns, cause=cause))
            self._reasons |= {cpu: Counter() for cpu in cpus}
        self._last_suspect |= dict.fromkeys(reasons, time_ns)
        for cpu, texts in reasons.items():
            self._reasons[cpu].update(texts)
        over = [e for episode in self.of("suspect") for e in self._cleared(episode, time_ns)]
        for episode in (*over, *(self.of("suspect") if reasons or over else ())):
            episode.evidence = self._counted(episode.cpus)
        return over

    def _counted(self, cpus: list[int]) -> dict[str, int]:
        """Samples with each reason, on the CPU that had most of them."""
        most: Counter[str] = Counter()
        for cpu in cpus:
            most |= self._reasons[cpu]
        return dict(most)

    def _cleared(self, episode: Episode, time_ns: int) -> list[Episode]:
        """The CPUs of a suspect episode that are clean again, those together that were so at once;
        with the others it goes on."""
        clean: dict[int, list[int]] = {}
        for cpu in episode.cpus:
            if time_ns - (last_ns := self._last_suspect[cpu]) >= CLEAN_NS:
                clean.setdefault(last_ns, []).append(cpu)
        ended = []
        for end_ns, cpus in clean.items():
            if cpus == episode.cpus:
                ended.append(self.end(episode, end_ns))
            else:
                episode.cpus = [cpu for cpu in episode.cpus if cpu not in cpus]
                ended.append(replace(episode, cpus=cpus, end_ns=end_ns))
        return ended

    def end(self, episode: Episode, end_ns: int) -> Episode:
        self.running = [e for e in self.running if e is not episode]
        episode.end_ns, episode.calm = end_ns, False
        return episode
