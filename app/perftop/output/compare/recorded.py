"""A recording as it is compared: whole, or phase by phase between its marks."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from perfprobe import wire
from perfprobe.frozen import replace
from perftop.model.numbers import METRICS
from perftop.output.compare.course import Course
from perftop.output.compare.numbers import NUMBERS
from perftop.output.compare.reading import MOST_READINGS, Reading, reading
from perftop.output.stat_json import Line
from perftop.output.summary.phase import json_line, phase
from perftop.session import episodes as marks
from perftop.session.session import Session

MOST_SAMPLES = 2000
"""Samples kept of a number, for the picture of its distribution."""


class Recorded:
    """`by_mark`: a reading for each phase; else one of the whole."""

    def __init__(self, hello: wire.Hello, *, by_mark: bool) -> None:
        self._session, self._by_mark = Session(hello), by_mark
        self._session.account()
        self._course = Course(self._session)
        self._label = ""
        self._runs: list[Line] = []
        self._command: str | None = None
        self._readings: list[Reading] = []

    def readings(self, messages: Iterable[wire.Message]) -> list[Reading]:
        """Plays all messages after the hello."""
        for message in self._session.play(messages):
            if isinstance(message, wire.Frame):
                self._course.take()
            elif isinstance(message, wire.Note):
                self._note(message)
        self._cut()
        return self._readings

    def _note(self, note: wire.Note) -> None:
        argv, label = note.data.get("argv"), marks.mark_label(note)
        if note.kind == "run-start" and isinstance(argv, list):
            self._command = shlex.join(map(str, argv))
        elif note.kind == "run-end":
            self._runs.append(note.data)
        if self._by_mark and note.kind in {"mark", "run-start", "run-end"} and label is not None:
            self._cut()
            self._label = label or "no name"
            self._session.reset_sums()
            self._course = Course(self._session)

    def _cut(self) -> None:
        """Ends a phase. What is before the first mark is in none."""
        session = self._session
        named = bool(self._label) == self._by_mark
        if not named or session.frames < 2 or len(self._readings) >= MOST_READINGS:
            return
        line = json_line(phase(session, self._label))
        line["cores"] = line["cores"] or []
        if not self._by_mark:
            line["run"] = self._runs[0] if len(self._runs) == 1 else None
            line["type"] = "summary"
        if self._command is not None:
            line["state"] = line["state"] | {"command": self._command}
        extremes = session.distribution.finish()
        self._readings.append(
            replace(
                reading(line, self._label),
                courses=self._course.estimates(),
                samples={
                    key: extremes.samples(key, MOST_SAMPLES) for key in NUMBERS if key in METRICS
                },
            )
        )
