"""The order of rows, which all views with rows share."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan, nan

from perftop.base.format import clock_unit
from perftop.model.numbers import EVENT
from perftop.model.tasks import task
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import BY_KEY, CpuColumns, by_key
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.places import ORDERS, Places
from perftop.tui.shared.sheet import NUMBERS, Reader


def arranged(places: Places, choice: Choice, session: Session, interval: Interval) -> list[int]:
    """Returns the rows of `places` in the chosen order. Numbers are sorted from the highest, tasks
    by name; rows without a value come last. Numbers are rounded as for display before they are
    compared, so that invisible changes move no row."""
    rows = [row for group in places.groups.values() for row in group]
    if choice.order == "CPU number":
        rows.sort(key=lambda row: places.places[row].cpus[0])
    elif choice.order == "worst first":
        rows.sort(key=Reader(session, places).read(interval).scores().__getitem__)
    elif choice.order == "task":
        names = [_name(place.cpus, interval) for place in places.places]
        named = sorted((row for row in rows if names[row]), key=names.__getitem__)
        unnamed = [row for row in rows if not names[row]]
        return [*(named[::-1] if choice.reverse else named), *unnamed]
    elif choice.order != "topology":
        values = _values(places, choice.order, session, interval)
        unknown = inf if choice.reverse else -inf  # sorted last in both directions
        rows.sort(key=lambda row: unknown if isnan(values[row]) else values[row], reverse=True)
    return rows[::-1] if choice.reverse else rows


def called(order: str) -> str:
    """Returns the displayed name of the order, as in headings."""
    if order in ORDERS:
        return order
    label = BY_KEY[order].label if order in BY_KEY else order
    return label.removeprefix(EVENT)


def _values(places: Places, key: str, session: Session, interval: Interval) -> list[float]:
    """Returns, by row, the number that the row shows; for a column that rows do not show, the
    highest value of the row's CPUs."""
    column = by_key(session).get(key)
    if column is None:
        return [nan] * len(places.places)
    scale, digits = column.scale(clock_unit("GHz", nan))
    by_cpu = (CpuColumns(session).values(key, interval) * scale).round(digits)
    if key in NUMBERS:
        found: list[float] = Reader(session, places).of_rows(key, by_cpu, interval).tolist()
        return found
    values = by_cpu.tolist()
    return [
        max((values[row] for row in place.rows if not isnan(values[row])), default=nan)
        for place in places.places
    ]


def _name(cpus: Sequence[int], interval: Interval) -> str:
    """Returns the name of the first known task on these CPUs, in lower case; '' if there is
    none."""
    found = (task(interval.tasks.get(str(cpu))) for cpu in cpus)
    return next((it.comm.casefold() for it in found if it), "")
