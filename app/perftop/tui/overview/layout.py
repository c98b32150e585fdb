"""Which columns the overview has and how wide they are. Only what the source knows and the width
decide, so that nothing moves when values change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perftop.base.format import GHZ
from perftop.session.columns import BY_KEY
from perftop.session.session import Session
from perftop.tui.shared.placed_column import Placed
from perftop.tui.shared.places import Places, spans

STRIP = 8
"""Minimum cells of a sibling's history; fewer show no shape."""
MOST_THREADS = 4
"""Maximum utilisations side by side; cores with more threads show one mean."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a session can measure; a column without any source is left out."""

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
    """Unit of the clocks."""


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


# Column, rank (the highest is dropped first, 0 never), percent of the spare width it takes, and its
# maximum width (0: all that is left, -1: fixed).
_Wish = tuple[Placed, int, int, int]


def layout(known: Known, width: int) -> list[Placed]:
    """The columns that fit, in their order; spare width goes to those that can grow."""
    wishes = _core_wishes(known) if known.pairs else _cpu_wishes(known)
    while sum(c.width for c, *_ in wishes) > width and any(rank for _, rank, *_ in wishes):
        lowest = max(rank for _, rank, *_ in wishes)
        wishes = [wish for wish in wishes if wish[1] != lowest]
    spare = width - sum(c.width for c, *_ in wishes)
    return _grown(wishes, max(0, spare))


def _grown(wishes: list[_Wish], spare: int) -> list[Placed]:
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
        (Placed("core", "core", known.core_width), 0, 0, -1),
        (Placed("cpus", "cpus", known.cpus_width + 2, left=True), 0, 0, -1),
        (Placed("bar", "SMT states", 24 + 2, left=True), 0, 0, 0),
    ]
    if known.threads <= MOST_THREADS:
        utils = [(Placed("util", f"lp{i} %", 7, arg=i), 0, 0, -1) for i in range(known.threads)]
    else:
        utils = [(Placed("util", "util %", 8, arg=-1), 0, 0, -1)]
    past = _past(known) if known.threads <= MOST_THREADS else []
    halts = [*_halts(known, 0), *(_number(known, "steal", 0) if known.steal else [])]
    return [*ids, *utils, *past, *_clocks(known), *halts, *_works(known), *_who(known)]


def _cpu_wishes(known: Known) -> list[_Wish]:
    """Columns where no core has siblings: a row is a CPU, and halts are dropped before history."""
    ids = [
        (Placed("core", "cpu", known.core_width), 0, 0, -1),
        (Placed("util", "util %", 8, arg=0), 0, 0, -1),
        (Placed("use", "where time goes", 16 + 2, left=True), 0, 30, 50),
    ]
    account = [
        *_number(known, "user", 2),
        *_number(known, "system", 2, "kernel %"),
        *_number(known, "iowait", 4),
    ] if known.account else []  # fmt: skip
    steal = _number(known, "steal", 0)
    past = [(Placed("history", "history → now", 14 + 2, left=True), 0, 0, 0)]
    halts = _halts(known, 3)
    return [*ids, *_clocks(known), *halts, *steal, *account, *_works(known), *past, *_who(known)]


def _number(known: Known, key: str, rank: int, title: str = "") -> list[_Wish]:
    """Column of a metric; empty if the source does not have it."""
    if key not in known.metrics:
        return []
    column = BY_KEY[key]
    title = title or (column.label if column.unit == "Hz" else column.name(GHZ))
    return [(Placed(key, title, max(4, len(title)) + 2), rank, 0, -1)]


def _past(known: Known) -> list[_Wish]:
    """Column with a strip for each sibling: dropped first, and grows to three times its width."""
    width = (STRIP + 2) * known.threads
    return [(Placed("history", "history → now", width, left=True), 6, 40, 3 * width)]


def _clocks(known: Known) -> list[_Wish]:
    wishes: list[_Wish] = []
    if "busy_hz" in known.metrics:
        wishes.append((Placed("busy_hz", f"{known.clock} ", 7), 0, 0, -1))
        if known.ceiling:
            wishes.append((Placed("clock", "busy clock", 12 + 1, left=True), 2, 12, 24))
            wishes.append((Placed("turbo_ceiling_hz", "ceil", 6), 2, 0, -1))
    return [*wishes, *_number(known, "net_hz", 4)]


def _halts(known: Known, rank: int) -> list[_Wish]:
    return [*_number(known, "idle", rank), *_number(known, "involuntary", rank)]


def _works(known: Known) -> list[_Wish]:
    return [*_number(known, "ipc", 1), *_number(known, "kernel_cycles", 3)]


def _who(known: Known) -> list[_Wish]:
    if not known.who:
        return []
    return [(Placed("who", "who runs here", 16 + 2, left=True), 5, 50, 18 + 18 * known.threads)]


def titles(slots: Iterable[Placed]) -> str:
    """Heading of the grid, each title above its values."""
    return "".join(slot.text(slot.title) for slot in slots)
