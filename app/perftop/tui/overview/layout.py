"""Which columns the overview has and how wide they are. Only what the source can measure and the
width decide, so that nothing moves when values change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from perfprobe.frozen import frozen, replace
from perftop.base.format import GHZ, ClockUnit
from perftop.draw import theme
from perftop.draw.strips import Run
from perftop.session.columns import BY_KEY
from perftop.session.session import Session
from perftop.tui.shared.placed_column import Placed
from perftop.tui.shared.places import Line, Places, spans
from perftop.tui.shared.sheet import LEAD

BEFORE = 2
"""Cells before the columns: the mark of the selected row, and the sign of an episode."""
ROOMY = 140
"""Width from which numbers stand further apart."""
MOST_THREADS = 4
"""Maximum CPUs of a core whose numbers stand side by side; else only the busiest CPU has some."""
MUST = 3
"""Columns up to this rank are there at 80 columns, where they stand close together."""
SLOTS = ("topdown_retiring_ratio", "topdown_frontend_ratio", "topdown_bad_speculation_ratio")
"""Parts of the bar of issue slots; the back end has the rest."""
SORTED = {"core": "topology", "cpus": "CPU number", "lost": "worst first", "who": "task"}
"""The order of rows that a column stands for, where it is not its own key."""


@frozen
class Known:
    """What a session can measure; a column without any source is left out."""

    metrics: frozenset[str]
    ceiling: bool
    account: bool
    steal: bool
    who: bool
    pairs: bool
    caches: bool
    """Whether some package has several L3s."""
    threads: int
    core_width: int
    cpus_width: int
    clock: ClockUnit = GHZ
    slots: bool = False
    """Where issue slots go is counted."""


def known(session: Session, places: Places, clock: ClockUnit = GHZ) -> Known:
    columns = session.counters.columns
    by_metric = frozenset(key for key, chosen in session.evaluator.chosen.items() if chosen)
    names = [places.name(row, "CPU number") for row in range(len(places.places))]
    return Known(
        metrics=by_metric,
        ceiling=bool(session.sieve.turbo.cpus.any()),
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


@frozen
class _Wish:
    column: Placed
    rank: int = 0
    """The highest is dropped first, 0 never."""
    most: int = 0
    """Maximum width if there is room; 0: it does not grow."""
    weight: int = 1
    """Its part of the room that is left."""


def layout(known: Known, width: int) -> list[Placed]:
    """The columns that fit, in their order; spare width goes to those that can grow."""
    make = _core_wishes if known.pairs else _cpu_wishes
    wishes = make(known, roomy=width >= ROOMY)
    while sum(w.column.width for w in wishes) > width and any(w.rank for w in wishes):
        highest = max(w.rank for w in wishes)
        wishes = [w for w in wishes if w.rank != highest]
    columns = _grown(wishes, max(0, width - sum(w.column.width for w in wishes)))
    return [_scaled(column, known.clock) for column in columns]


def _scaled(placed: Placed, clock: ClockUnit) -> Placed:
    """The column with the number that it shows, if it shows one."""
    column = BY_KEY.get(placed.key)
    if column is None:
        return placed
    scale, digits = column.scale(clock, brief=True)
    return replace(placed, column=column, scale=scale, digits=digits)


def _grown(wishes: Sequence[_Wish], spare: int) -> list[Placed]:
    columns = [w.column for w in wishes]
    while spare > 0:
        left = [i for i, w in enumerate(wishes) if columns[i].width < w.most]
        if not left:
            break
        whole, given = sum(wishes[i].weight for i in left), 0
        for i in left:
            more = min(max(1, spare * wishes[i].weight // whole), spare - given)
            more = min(more, wishes[i].most - columns[i].width)
            columns[i] = replace(columns[i], width=columns[i].width + more)
            given += more
        spare -= given
    return columns


def _core_wishes(known: Known, *, roomy: bool) -> list[_Wish]:
    air = 1 if roomy else 0
    some = known.threads <= MOST_THREADS
    caches = [_Wish(Placed("l3", "L3", 4), 9)] if known.caches else []
    return [
        _Wish(Placed("core", "core", known.core_width)),
        _Wish(Placed("cpus", "CPUs", max(5, known.cpus_width) + 2, left=True)),
        *caches,
        _Wish(Placed("bar", "SMT states", (20 if roomy else 10) + 2, left=True), 0, 24, 2),
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


def _slots(known: Known, *, roomy: bool) -> list[_Wish]:
    """The second bar: where the issue slots of the busiest CPU go."""
    if not (known.slots and roomy):
        return []
    return [_Wish(Placed("slots", "issue slots", 12 + 2, left=True), 7, 24, 1)]


def _work(*, roomy: bool) -> list[_Wish]:
    """The past of both siblings; the title is short where the column is."""
    title, width, gap = ("busy, lp0 over lp1", 24, 3) if roomy else ("busy", 10, 2)
    return [_Wish(Placed("work", title, width + gap, left=True, gap=gap), 5, 60, 3)]


def _lost(known: Known, air: int) -> list[_Wish]:
    """IPC, what was lost of anything, and the past of the IPC."""
    ipc = "ipc" in known.metrics
    past = Placed("past ipc", "IPC of lp0", 10 + 2 + 3 * air, left=True, gap=2 + air)
    can = ipc or known.ceiling or known.steal or "involuntary" in known.metrics
    return [
        *_each(known, "ipc", "lp{}", 5 + 2 * air, 1, first="IPC lp0", least=8 + air),
        *([_Wish(Placed("lost", "lost", 6 + 2 * air))] if can else []),
        *([_Wish(past, 6, 30, 1)] if ipc and known.threads == 2 else []),
    ]


def _each(
    known: Known, key: str, title: str, width: int, rank: int, first: str = "", least: int = 0
) -> list[_Wish]:
    """Columns of a metric, one for each thread, or that of the busiest CPU."""
    if key not in known.metrics:
        return []
    if known.threads > MOST_THREADS:
        name = BY_KEY[key].name(GHZ) + " max" * (key == "util")
        return [_Wish(Placed(key, name, max(width, len(name) + 2), arg=LEAD), rank)]
    gap = 2 if rank > MUST else 1
    names = [title.format(thread) for thread in range(known.threads)]
    names[0] = first or names[0]
    wide = [max(least if not i else 0, width, len(name) + gap) for i, name in enumerate(names)]
    return [_Wish(Placed(key, name, wide[i], arg=i), rank) for i, name in enumerate(names)]


def _cpu_wishes(known: Known, *, roomy: bool) -> list[_Wish]:
    """Columns where no core has siblings: a row is a CPU."""
    air = 1 if roomy else 0
    account = [
        *_number(known, "user", 2), *_number(known, "system", 2),
        *_number(known, "iowait", 4),
    ] if known.account else []  # fmt: skip
    can = known.ceiling or "involuntary" in known.metrics
    return [
        _Wish(Placed("core", "CPU", known.core_width)),
        *([_Wish(Placed("l3", "L3", 4), 9)] if known.caches else []),
        _Wish(Placed("util", "busy %", 8, arg=0)),
        _Wish(Placed("use", "where time goes", 16 + 2, left=True), 0, 52, 2),
        _Wish(Placed("work", "busy", 12 + 2 + air, left=True, gap=2 + air), 5, 90, 4),
        *_slots(known, roomy=roomy),
        *_number(known, "steal", 0),
        *_number(known, "ipc", 1),
        *([_Wish(Placed("lost", "lost", 7 + air))] if can else []),
        *_clock(known, air),
        *_number(known, "involuntary", 3),
        *_number(known, "idle", 6),
        *account,
        *_number(known, "kernel_cycles", 7),
        *_number(known, "net_hz", 8),
        *_who(known, roomy=roomy),
    ]


def _number(known: Known, key: str, rank: int) -> list[_Wish]:
    """Column of a metric, that of the busiest CPU or the worst one; none if it is not known."""
    if key not in known.metrics:
        return []
    column = BY_KEY[key]
    title = column.label if column.unit == "Hz" else column.name(GHZ)
    return [_Wish(Placed(key, title, max(4, len(title)) + 2, arg=LEAD), rank)]


def _clock(known: Known, air: int) -> list[_Wish]:
    if "busy_hz" not in known.metrics:
        return []
    title = known.clock.name
    ceiling = Placed("turbo_ceiling_hz", "ceiling", 9)
    return [
        _Wish(Placed("busy_hz", title, max(5, len(title)) + 1 + air, arg=LEAD)),
        *([_Wish(ceiling, 8)] if known.ceiling and air else []),
    ]


def _who(known: Known, *, roomy: bool) -> list[_Wish]:
    if not known.who:
        return []
    width, gap = (22, 4) if roomy else (12, 2)
    return [_Wish(Placed("who", "who runs", width + gap, left=True, gap=gap), 2, 48, 2)]


def titles(columns: Iterable[Placed], order: str = "topology", *, reverse: bool = False
           ) -> list[Run]:  # fmt: skip
    """Heading of the grid, each title above its values; an arrow marks the sorted column."""
    columns = [*columns]
    keys = [SORTED.get(column.key, column.key) for column in columns]
    at = keys.index(order) if order in keys and (order != "topology" or reverse) else None
    rises = (order in {"topology", "CPU number", "task"}) != reverse
    arrow = theme.RISING if rises else theme.FALLING
    runs: list[Run] = []
    for i, column in enumerate(columns):
        title, key = (arrow + column.title, "bright") if i == at else (column.title, "dim")
        told = replace(column, gap=column.gap - 1) if i == at else column
        text = told.text(title).ljust(column.width)
        runs.append((text if i else text.rjust(BEFORE + column.width), key))
    return runs


def column_at(columns: Iterable[Placed], x: int) -> Placed | None:
    """The column at cell `x` of a line; None if there is none."""
    end = BEFORE
    for column in columns:
        if end <= x < end + column.width:
            return column
        end += column.width
    return None


# --- Which lines the overview has: those that scroll, and the packages' lines that stay in sight.

Fold = Literal["needed", "never", "always"]
FOLDS: tuple[Fold, ...] = ("needed", "never", "always")
MOST = 3
"""At most one line in this many may be a package's that stays."""


@frozen
class Arrangement:
    above: Sequence[Line]
    """Packages' lines that stay above the rows, and `below` them."""
    lines: Sequence[Line]
    below: Sequence[Line]
    order: Sequence[int]
    """All rows in their order, folded or not."""
    grouped: bool = True
    """Whether a line names the package of the rows below it."""


def arrangement(
    places: Places, room: int, fold: Fold, cpu: int | None, order: Sequence[int] | None,
    *, bare: bool,
) -> Arrangement:  # fmt: skip
    """`order`: of the rows; None for the topology's. If `fold` is "needed" and the lines exceed
    `room`, packages without `cpu` are folded, except those that still fit. `bare`: rows only."""
    packages = list(dict.fromkeys(place.package for place in places.places))
    every = _lines(places, ())
    rows = [line.row for line in every if line.kind == "row"] if order is None else [*order]
    plain = [Line("row", row) for row in rows]
    named = [line for line in _lines(places, packages) if line.kind == "folded"]
    if bare or not any(line.kind == "package" for line in every):
        off = [line for line in every if line.kind == "off" and not bare]
        return Arrangement([], [*plain, *off], [], rows)
    if order is not None:
        above = named if len(named) * MOST <= room else []
        return Arrangement(above, plain, [], rows, grouped=False)
    if fold != "always" and len(every) <= room:
        return Arrangement([], every, [], rows)
    if fold == "never" and len(named) * MOST <= room:
        return Arrangement(named, plain, [], rows, grouped=False)
    if fold == "never":
        return Arrangement([], every, [], rows)
    return _folded(places, packages, room, fold, cpu, rows)


def _folded(
    places: Places, packages: Sequence[int | None], room: int, fold: Fold, cpu: int | None,
    rows: list[int],
) -> Arrangement:  # fmt: skip
    here = next((place.package for place in places.places if cpu in place.cpus), packages[0])
    shut = [package for package in packages if package != here or fold == "always"]
    for package in tuple(shut) if fold == "needed" else ():  # unfold what still fits
        fewer = [other for other in shut if other != package]
        if len(_lines(places, fewer)) <= room:
            shut = fewer
    lines = _lines(places, shut)
    if len(lines) <= room or fold == "always" or len(packages) * MOST > room:
        return Arrangement([], lines, [], rows)
    inside = [i for i, line in enumerate(lines) if line.kind == "row"]
    first, last = inside[0], inside[-1] + 1
    return Arrangement(lines[:first], lines[first:last], lines[last:], rows)


def _lines(places: Places, fold: Sequence[int | None]) -> list[Line]:
    return [line for line in places.lines(1, fold) if line.kind != "l3"]
