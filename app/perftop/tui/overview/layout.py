"""Which columns there are and how wide: decided by what the source knows and the width alone, so
that nothing moves when values change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perftop.session.session import Session
from perftop.tui.shared.places import Places, spans

STRIP = 8
"""Cells of a sibling's history at the least: fewer are no picture."""
MOST_THREADS = 4
"""Utilisations side by side; more threads than this are told as one mean."""


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    title: str
    width: int
    """With the gap to its left."""
    left: bool = False
    arg: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """What a session can tell at all; a column that nobody can fill is not there."""

    metrics: frozenset[str]
    ceiling: bool
    account: bool
    who: bool
    steal: bool
    pairs: bool
    threads: int
    core_width: int
    cpus_width: int
    clock: str = "GHz"
    """What clocks are told in."""


def known(session: Session, places: Places, *, who: bool, steal: bool) -> Known:
    columns = session.counters.columns
    by_metric = frozenset(key for key, chosen in session.evaluator.chosen.items() if chosen)
    names = [places.name(row, "CPU number") for row in range(len(places.places))]
    return Known(
        metrics=by_metric,
        ceiling=bool(session.sieve.turbo.cpus.any()),
        account="stat_user_s" in columns,
        who=who,
        steal=steal and "steal" in by_metric,
        pairs=places.pairs,
        threads=places.threads,
        core_width=spans(names, 4),
        cpus_width=places.cpus_width,
    )


# Column, how important (least important goes first), how much of spare width it takes, and at most.
_Wish = tuple[Column, int, int, int]


def layout(known: Known, width: int) -> list[Column]:
    """The columns that fit, in their order; what is left over goes to those that can use it."""
    wishes = _core_wishes(known) if known.pairs else _cpu_wishes(known)
    while sum(c.width for c, *_ in wishes) > width and any(rank for _, rank, *_ in wishes):
        lowest = max(rank for _, rank, *_ in wishes)
        wishes = [wish for wish in wishes if wish[1] != lowest]
    spare = width - sum(c.width for c, *_ in wishes)
    return _grown(wishes, max(0, spare))


def _grown(wishes: list[_Wish], spare: int) -> list[Column]:
    columns = [column for column, *_ in wishes]
    for i, (column, _, share, most) in enumerate(wishes):
        if share and most:
            more = min(spare * share // 100, most - column.width)
            columns[i] = replace(column, width=column.width + max(0, more))
    used = sum(c.width for c in columns) - sum(c.width for c, *_ in wishes)
    for i, (*_, most) in enumerate(wishes):
        if most == 0 and columns[i].key in {"bar", "history"}:  # takes the rest
            columns[i] = replace(columns[i], width=columns[i].width + spare - used)
            break
    return columns


def _core_wishes(known: Known) -> list[_Wish]:
    ids = [
        (Column("core", "core", known.core_width), 0, 0, -1),
        (Column("cpus", "cpus", known.cpus_width + 2, left=True), 0, 0, -1),
        (Column("bar", "SMT states", 24 + 2, left=True), 0, 0, 0),
    ]
    if known.threads <= MOST_THREADS:
        utils = [(Column("util", f"lp{i} %", 7, arg=i), 0, 0, -1) for i in range(known.threads)]
    else:
        utils = [(Column("util", "util %", 8, arg=-1), 0, 0, -1)]
    past = _past(known) if known.threads <= MOST_THREADS else []
    return [*ids, *utils, *past, *_clocks(known), *_halts(known), *_works(known), *_who(known)]


def _cpu_wishes(known: Known) -> list[_Wish]:
    """No siblings anywhere: a row is a CPU, and its past is worth more than its halts."""
    ids = [
        (Column("core", "cpu", known.core_width), 0, 0, -1),
        (Column("util", "util %", 8, arg=0), 0, 0, -1),
        (Column("use", "where time goes", 16 + 2, left=True), 0, 30, 50),
    ]
    account = [
        (Column("user", "user %", 8), 2, 0, -1),
        (Column("system", "kernel %", 10), 2, 0, -1),
        (Column("iowait", "iowait %", 10), 4, 0, -1),
    ] if known.account else []  # fmt: skip
    steal = [(Column("steal", "steal %", 9), 0, 0, -1)] if "steal" in known.metrics else []
    halts = [(c, 3, share, most) for c, _, share, most in _halts(replace(known, steal=False))]
    past = [(Column("history", "history → now", 14 + 2, left=True), 0, 0, 0)]
    return [*ids, *_clocks(known), *halts, *steal, *account, *_works(known), *past, *_who(known)]


def _past(known: Known) -> list[_Wish]:
    """A strip for each sibling. The first to go where there is no room, the first to grow."""
    width = (STRIP + 2) * known.threads
    return [(Column("history", "history → now", width, left=True), 6, 40, 3 * width)]


def _clocks(known: Known) -> list[_Wish]:
    wishes: list[_Wish] = []
    if "busy_hz" in known.metrics:
        wishes.append((Column("busy", f"{known.clock} ", 7), 0, 0, -1))
        if known.ceiling:
            wishes.append((Column("clock", "busy clock", 12 + 1, left=True), 2, 12, 24))
            wishes.append((Column("ceiling", "ceil", 6), 2, 0, -1))
    if "net_hz" in known.metrics:
        wishes.append((Column("net", "net", 6), 4, 0, -1))
    return wishes


def _halts(known: Known) -> list[_Wish]:
    wishes: list[_Wish] = []
    if "idle" in known.metrics:
        wishes.append((Column("idle", "idle %", 8), 0, 0, -1))
    if "involuntary" in known.metrics:
        wishes.append((Column("involuntary", "invol %", 9), 0, 0, -1))
    if known.steal:
        wishes.append((Column("steal", "steal %", 9), 0, 0, -1))
    return wishes


def _works(known: Known) -> list[_Wish]:
    wishes: list[_Wish] = []
    if "ipc" in known.metrics:
        wishes.append((Column("ipc", "IPC", 6), 1, 0, -1))
    if "kernel_cycles" in known.metrics:
        wishes.append((Column("kernel", "krn %", 7), 3, 0, -1))
    return wishes


def _who(known: Known) -> list[_Wish]:
    if not known.who:
        return []
    return [(Column("who", "who runs here", 16 + 2, left=True), 5, 50, 18 + 18 * known.threads)]


def titles(columns: Iterable[Column]) -> str:
    """The heading of the grid; every title stands over its values."""
    return "".join(
        f"{'  ' + c.title:<{c.width}}"[: c.width] if c.left else f"{c.title:>{c.width}}"
        for c in columns
    )
