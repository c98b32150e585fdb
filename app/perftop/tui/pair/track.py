"""One of two recordings that are drawn on one axis: its numbers in slices of time, its episodes and
marks, and the moment from which its time is counted."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np

from perfprobe import wire
from perfprobe.frozen import frozen
from perftop.base.arrays import Floats
from perftop.model.episode import Episode
from perftop.output.compare.readings import Course
from perftop.session.session import Session

SUMMARY_BYTES = 1 << 16
"""No percentiles are asked for."""


@frozen
class Alignment:
    """The moment of a recording from which its time is counted."""

    what: str = "start"
    """start, command or mark."""
    label: str = ""
    """Name of the mark; '' without one."""

    @property
    def words(self) -> str:
        names = {"start": "the start", "command": "the start of the command"}
        return names.get(self.what) or f"mark {self.label}"


class Track:
    def __init__(self, name: str, hello: wire.Hello) -> None:
        self.name = name
        self.session = Session(hello, summary_bytes=SUMMARY_BYTES)
        self.course = Course(self.session)
        self.command_ns: int | None = None
        self.read = False
        """Whether all of it was read."""
        self.damage: str | None = None
        self._cut: tuple[int, dict[str, tuple[Floats, Floats, Floats]]] = (-1, {})

    def play(self, messages: Sequence[wire.Message]) -> None:
        for message in self.session.play(messages):
            if isinstance(message, wire.Frame):
                self.course.take()
            elif isinstance(message, wire.Note) and message.kind == "run-start":
                self.command_ns = self.command_ns or message.time_ns

    def origin_ns(self, alignment: Alignment) -> int | None:
        """The moment in raw ns; None: what was read has none such."""
        if alignment.what == "start":
            return self.session.hello.raw_ns
        if alignment.what == "command":
            return self.command_ns
        labels = ((mark.evidence["label"], mark.start_ns) for mark in self.session.marks)
        return next((at_ns for label, at_ns in labels if label == alignment.label), None)

    @property
    def ends_ns(self) -> tuple[int, int]:
        return self.session.hello.raw_ns, self.session.now_ns

    def events(self) -> list[Episode]:
        """Episodes and marks, by their starts."""
        first_ns, last_ns = self.ends_ns
        found = [*self.session.episodes(first_ns, last_ns), *self.session.marks]
        return sorted(found, key=lambda one: one.start_ns)

    def values(self, key: str, edges_ns: Floats) -> Floats:
        """Means of a number between each two edges, raw ns; NaN where it is not known. A span
        shorter than a slice has the value of the slice that it lies in."""
        sums = self._sums()
        if key not in sums:
            return np.full(len(edges_ns) - 1, nan)
        ends_ns, amounts, sizes = sums[key]
        first = np.searchsorted(ends_ns[1:], edges_ns[:-1], "right")
        last = np.maximum(np.searchsorted(ends_ns[1:], edges_ns[1:], "right"), first + 1)
        there = (edges_ns[1:] > ends_ns[0]) & (first < len(ends_ns) - 1)
        first, last = (np.minimum(at, len(ends_ns) - 1) for at in (first, last))
        size = sizes[last] - sizes[first]
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = (amounts[last] - amounts[first]) / size
        return np.where(there & (size > 0), found, nan)

    def _sums(self) -> dict[str, tuple[Floats, Floats, Floats]]:
        """By key: ends of the slices with the start before them, and sums up to each."""
        if self._cut[0] != self.session.frames:
            self._cut = self.session.frames, self.course.sums()
        return self._cut[1]

    @property
    def keys(self) -> set[str]:
        """Numbers that are known and not 0 throughout."""
        sums = self._sums().items()
        return {key for key, (_, amounts, sizes) in sums if sizes[-1] > 0 and amounts.any()}
