"""The columns of the overview, and its lines: rows and packages, folded or not. Both depend only on
the source and the size, so that nothing moves when values change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from perftop.base.format import GHZ, ClockUnit
from perftop.draw.columns import Column, Run, fitted, headings
from perftop.session.session import Session
from perftop.session.values import BY_KEY
from perftop.tui.shared.places import PlaceLine, Places, spans
from perftop.tui.shared.sheet import LEAD

BEFORE = 2
"""Number of cells before the columns, for the mark of the selected row and an episode sign."""
MIN_ROOMY_WIDTH = 140
"""Minimum width, in cells, at which numbers have wider gaps."""
MAX_THREADS = 4
"""Maximum number of CPUs of a core that each have their own columns; if there are more, columns
show only the busiest CPU."""
MAX_RANK_AT_80 = 3
"""Maximum rank of columns that fit a screen of 80 cells; these have narrow gaps."""
SLOTS = ("topdown_retiring_ratio", "topdown_frontend_ratio", "topdown_bad_speculation_ratio")
"""Metrics shown as parts of the bar of issue slots; the remainder is the share of the back end."""
SORTED = {"core": "topology", "cpus": "CPU number", "lost": "worst first", "who": "task"}
"""Names of the orders of rows by a column, where they differ from the column's key."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a session can show; a column without a source is left out."""

    metrics: frozenset[str]
    ceiling: bool
    account: bool
    steal: bool
    who: bool
    pairs: bool
    caches: bool
    """Whether any package has several L3 caches."""
    threads: int
    core_width: int
    cpus_width: int
    clock: ClockUnit = GHZ
    slots: bool = False
    """Whether the uses of issue slots are counted."""


def known(session: Session, places: Places, clock: ClockUnit = GHZ) -> Known:
    columns = session.counters.columns
    by_metric = frozenset(key for key, chosen in session.evaluator.chosen.items() if chosen)
    names = [places.name(row, "CPU number") for row in range(len(places.places))]
    return Known(
        metrics=by_metric,
        ceiling=bool(session.reader.turbo.cpus.any()),
        account="stat_user_s" in columns,
        steal="steal" in by_metric and session.hello.virtualisation is not None,
        who=all(missing.what != "tasks" for missing in session.hello.missing),
        pairs=places.pairs,
        caches=len(places.groups) > places.packages,
        threads=places.threads,
        core_width=spans(names, 4),
        cpus_width=places.cpus_width,
        clock=clock,
        slots=SLOTS[0] in by_metric,
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """Which values a column shows."""

    thread: int
    """Index of the CPU within its core; LEAD for the busiest CPU."""
    number: Any = None
    """The entry of `BY_KEY` that the column shows; None if it shows no number."""


def layout(known: Known, width: int) -> list[Column]:
    """Returns the columns that fit, in display order; spare width goes to columns that can grow."""
    make = _core_columns if known.pairs else _cpu_columns
    found = fitted(make(known, roomy=width >= MIN_ROOMY_WIDTH), width)
    return [_scaled(column, known.clock) for column in found]


def _scaled(column: Column, clock: ClockUnit) -> Column:
    """Returns the column with its `shows`, and with the scale and digits of its number, if any."""
    number, thread = BY_KEY.get(column.key), column.shows or 0
    scale, digits = (1.0, 0) if number is None else number.scale(clock, brief=True)
    return replace(column, shows=Shown(thread, number), scale=scale, digits=digits)


def _core_columns(known: Known, *, roomy: bool) -> list[Column]:
    air = 1 if roomy else 0
    some = known.threads <= MAX_THREADS
    caches = [Column("l3", "L3", 4, rank=9)] if known.caches else []
    return [
        Column("core", "core", known.core_width),
        Column("cpus", "CPUs", max(5, known.cpus_width) + 2, left=True),
        *caches,
        Column("bar", "SMT states", (20 if roomy else 10) + 2, left=True, most=24, weight=2),
        *_each(known, "util", "lp{} %", 6 + air, 0),
        *(_work(roomy=roomy) if known.threads == 2 else []),
        *_slots(known, roomy=roomy),
        *_lost(known, air),
        *_clock(known, air),
        *(_number(known, "steal", 1) if known.steal else []),
        *_number(known, "involuntary", 4),
        *(_each(known, "idle", "idle lp{}", 6 + air, 8) if some and roomy else []),
        *(_each(known, "kernel_cycles", "krn lp{}", 6 + air, 7) if some and roomy else []),
        *(_each(known, "net_hz", "net lp{}", 6 + air, 10) if some and roomy else []),
        *_who(known, roomy=roomy),
    ]  # fmt: skip


def _slots(known: Known, *, roomy: bool) -> list[Column]:
    """Returns the column of the second bar: how the issue slots of the busiest CPU are used."""
    if not (known.slots and roomy):
        return []
    return [Column("slots", "issue slots", 12 + 2, left=True, rank=7, most=24, weight=1)]


def _work(*, roomy: bool) -> list[Column]:
    """Returns the column with the utilisation history of both siblings. A narrow column has a short
    title."""
    title, width, gap = ("busy, lp0 over lp1", 24, 3) if roomy else ("busy", 10, 2)
    return [Column("work", title, width + gap, left=True, gap=gap, rank=5, most=60, weight=3)]


def _lost(known: Known, air: int) -> list[Column]:
    """Returns the columns of IPC, losses of any kind, and the IPC history."""
    ipc = "ipc" in known.metrics
    past = Column("past ipc", "IPC of lp0", 12 + 3 * air, left=True, gap=2 + air, rank=6, most=30)
    can = ipc or known.ceiling or known.steal or "involuntary" in known.metrics
    return [
        *_each(known, "ipc", "lp{}", 5 + 2 * air, 1, first="IPC lp0", least=8 + air),
        *([Column("lost", "lost", 6 + 2 * air)] if can else []),
        *([past] if ipc and known.threads == 2 else []),
    ]


def _each(
    known: Known, key: str, title: str, width: int, rank: int, first: str = "", least: int = 0
) -> list[Column]:
    """Returns the columns of a metric: one for each thread, or a single column for the busiest CPU
    if cores have many threads."""
    if key not in known.metrics:
        return []
    if known.threads > MAX_THREADS:
        name = BY_KEY[key].name(GHZ) + " max" * (key == "util")
        return [Column(key, name, max(width, len(name) + 2), shows=LEAD, rank=rank)]
    gap = 2 if rank > MAX_RANK_AT_80 else 1
    names = [title.format(thread) for thread in range(known.threads)]
    names[0] = first or names[0]
    wide = [max(least if not i else 0, width, len(name) + gap) for i, name in enumerate(names)]
    return [Column(key, name, wide[i], shows=i, rank=rank) for i, name in enumerate(names)]


def _cpu_columns(known: Known, *, roomy: bool) -> list[Column]:
    """Returns the columns for machines without siblings, where each row is a CPU."""
    air = 1 if roomy else 0
    account = [
        *_number(known, "user", 2), *_number(known, "system", 2),
        *_number(known, "iowait", 4),
    ] if known.account else []  # fmt: skip
    can = known.ceiling or "involuntary" in known.metrics
    return [
        Column("core", "CPU", known.core_width),
        *([Column("l3", "L3", 4, rank=9)] if known.caches else []),
        Column("util", "busy %", 8, shows=0),
        Column("use", "where time goes", 16 + 2, left=True, most=52, weight=2),
        Column("work", "busy", 12 + 2 + air, left=True, gap=2 + air, rank=5, most=90, weight=4),
        *_slots(known, roomy=roomy),
        *_number(known, "steal", 0),
        *_number(known, "ipc", 1),
        *([Column("lost", "lost", 7 + air)] if can else []),
        *_clock(known, air),
        *_number(known, "involuntary", 3),
        *_number(known, "idle", 6),
        *account,
        *_number(known, "kernel_cycles", 7),
        *_number(known, "net_hz", 8),
        *_who(known, roomy=roomy),
    ]


def _number(known: Known, key: str, rank: int) -> list[Column]:
    """Returns the column of a metric, which shows the value of the busiest or the worst CPU; an
    empty list if the metric is not available."""
    if key not in known.metrics:
        return []
    column = BY_KEY[key]
    title = column.label if column.unit == "Hz" else column.name(GHZ)
    return [Column(key, title, max(4, len(title)) + 2, shows=LEAD, rank=rank)]


def _clock(known: Known, air: int) -> list[Column]:
    if "busy_hz" not in known.metrics:
        return []
    title = known.clock.name
    ceiling = Column("turbo_ceiling_hz", "ceiling", 9, rank=8)
    return [
        Column("busy_hz", title, max(5, len(title)) + 1 + air, shows=LEAD),
        *([ceiling] if known.ceiling and air else []),
    ]


def _who(known: Known, *, roomy: bool) -> list[Column]:
    if not known.who:
        return []
    width, gap = (22, 4) if roomy else (12, 2)
    return [Column("who", "who runs", width + gap, left=True, gap=gap, rank=2, most=48, weight=2)]


def titles(columns: Sequence[Column], order: str = "topology", *, reverse: bool = False
           ) -> list[Run]:  # fmt: skip
    """Returns the heading of the grid; an arrow marks the column by which rows are sorted."""
    keys = [SORTED.get(column.key, column.key) for column in columns]
    shown = order in keys and (order != "topology" or reverse)
    at = keys.index(order) if shown else -1
    rising = (order in {"topology", "CPU number", "task"}) != reverse
    if not columns:  # the view has no size yet
        return []
    placed = [replace(columns[0], width=BEFORE + columns[0].width), *columns[1:]]
    marked = headings(placed[: at + 1], columns[at].key, rising=rising)
    return marked + headings(placed[at + 1 :])  # other columns may have the same key


# --- the lines of the overview: lines that scroll, and lines of packages that stay in sight

Fold = Literal["needed", "never", "always"]
FOLDS: tuple[Fold, ...] = ("needed", "never", "always")
LINES_PER_PACKAGE = 3
"""Minimum number of lines on the screen for each package line that stays in sight."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The lines of the overview, and which of them scroll."""

    above: Sequence[PlaceLine]
    """Package lines that stay in sight above the lines that scroll; `below`: those below them."""
    lines: Sequence[PlaceLine]
    below: Sequence[PlaceLine]
    order: Sequence[int]
    """All rows in display order, including rows of folded packages."""
    grouped: bool = True
    """Whether rows are below a line that names their package."""


def arrangement(
    places: Places, room: int, fold: Fold, cpu: int | None, order: Sequence[int] | None,
    *, bare: bool,
) -> Arrangement:  # fmt: skip
    """Returns the arrangement of lines. `order`: the order of rows; None for the topology's order.
    If `fold` is "needed" and there are more than `room` lines, packages that do not contain `cpu`
    are folded, except packages that still fit unfolded. `bare`: rows only."""
    packages = list(dict.fromkeys(place.package for place in places.places))
    every = _lines(places, ())
    rows = [line.row for line in every if line.kind == "row"] if order is None else [*order]
    plain = [PlaceLine("row", row) for row in rows]
    named = [line for line in _lines(places, packages) if line.kind == "folded"]
    if bare or not any(line.kind == "package" for line in every):
        off = [line for line in every if line.kind == "off" and not bare]
        return Arrangement([], [*plain, *off], [], rows)
    if order is not None:
        above = named if len(named) * LINES_PER_PACKAGE <= room else []
        return Arrangement(above, plain, [], rows, grouped=False)
    if fold != "always" and len(every) <= room:
        return Arrangement([], every, [], rows)
    if fold == "never" and len(named) * LINES_PER_PACKAGE <= room:
        return Arrangement(named, plain, [], rows, grouped=False)
    if fold == "never":
        return Arrangement([], every, [], rows)
    return _folded(places, packages, room, fold, cpu, rows)


def _folded(
    places: Places, packages: Sequence[int | None], room: int, fold: Fold, cpu: int | None,
    rows: list[int],
) -> Arrangement:  # fmt: skip
    open_package = next(
        (place.package for place in places.places if cpu in place.cpus), packages[0]
    )
    shut = [package for package in packages if package != open_package or fold == "always"]
    for package in tuple(shut) if fold == "needed" else ():  # unfold what fits
        fewer = [other for other in shut if other != package]
        if len(_lines(places, fewer)) <= room:
            shut = fewer
    lines = _lines(places, shut)
    if len(lines) <= room or fold == "always" or len(packages) * LINES_PER_PACKAGE > room:
        return Arrangement([], lines, [], rows)
    inside = [i for i, line in enumerate(lines) if line.kind == "row"]
    first, last = inside[0], inside[-1] + 1
    return Arrangement(lines[:first], lines[first:last], lines[last:], rows)


def _lines(places: Places, fold: Sequence[int | None]) -> list[PlaceLine]:
    return [line for line in places.lines(1, fold) if line.kind != "l3"]
