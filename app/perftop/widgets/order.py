"""In which order rows stand: the same in every view that has rows."""

from __future__ import annotations

from math import inf, isnan, nan
from typing import TYPE_CHECKING

from perftop.widgets.choice import Choice
from perftop.widgets.places import Places

if TYPE_CHECKING:
    from perftop.session import Interval, Session


def arranged(places: Places, choice: Choice, session: Session, interval: Interval) -> list[int]:
    """Rows of `places`. By value the highest comes first, and what is not known last."""
    rows = [row for group in places.groups.values() for row in group]
    if choice.order == "CPU number":
        rows.sort(key=lambda row: places.places[row].cpus[0])
    elif choice.order == "worst first":
        from perftop.widgets.reader import Reader

        rows.sort(key=Reader(session, places).read(interval).score)
    elif choice.order != "topology":
        values = _values(places, choice.order, session, interval)
        unknown = inf if choice.reverse else -inf  # last, whichever way the others stand
        rows.sort(key=lambda row: unknown if isnan(values[row]) else values[row], reverse=True)
    return rows[::-1] if choice.reverse else rows


def _values(places: Places, key: str, session: Session, interval: Interval) -> list[float]:
    """Of each row the highest of its CPUs."""
    from perftop.widgets.fields import fields

    field = next((f for f in fields(session) if f.key == key), None)
    if field is None:
        return [nan] * len(places.places)
    by_cpu = field.now(session, interval).tolist()
    return [
        max((by_cpu[cpu] for cpu in place.rows if not isnan(by_cpu[cpu])), default=nan)
        for place in places.places
    ]
