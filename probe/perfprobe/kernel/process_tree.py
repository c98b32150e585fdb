"""A process and all that descends from it."""

from __future__ import annotations

from collections.abc import Iterable

from perfprobe.kernel.process_stat import Stat


class Family:
    """Whoever was once of it remains, also when the one that started him has ended and the kernel
    names another as his parent. `start`: ticks from boot to its birth, as in Stat."""

    def __init__(self, pid: str, start: int) -> None:
        self._known = {pid: start}

    def among(self, processes: Iterable[tuple[str, Stat]]) -> list[tuple[str, Stat]]:
        """Its members there are now, the first ones first."""
        there = dict(processes)
        children: dict[str, list[str]] = {}
        for pid, process in there.items():
            children.setdefault(str(process.parent), []).append(pid)
        found = {p: s for p, s in self._known.items() if p in there and there[p].start == s}
        todo = list(found)
        for parent in todo:
            for child in children.get(parent, ()):
                # Who is older had another parent with that number.
                if child not in found and there[child].start >= found[parent]:
                    found[child] = there[child].start
                    todo.append(child)
        self._known = found
        return [(pid, there[pid]) for pid in found]
