"""A process and all its descendants."""

from __future__ import annotations

from collections.abc import Iterable

from perfprobe.kernel.process_stat import Stat


class Family:
    """A process that was once a member remains one, even if its parent has ended and the kernel
    names another one. `start` is the birth of `pid`, as in Stat."""

    def __init__(self, pid: str, start: int) -> None:
        self._known = {pid: start}

    def among(self, processes: Iterable[tuple[str, Stat]]) -> list[tuple[str, Stat]]:
        """The members among these processes, ancestors first."""
        there = dict(processes)
        children: dict[str, list[str]] = {}
        for pid, process in there.items():
            children.setdefault(str(process.parent), []).append(pid)
        found = {p: s for p, s in self._known.items() if p in there and there[p].start == s}
        todo = list(found)
        for parent in todo:
            for child in children.get(parent, ()):
                # An older process had an earlier parent with the same number.
                if child not in found and there[child].start >= found[parent]:
                    found[child] = there[child].start
                    todo.append(child)
        self._known = found
        return [(pid, there[pid]) for pid in found]
