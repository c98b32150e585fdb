"""The intervals of `stat` as tables for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perftop.base.format import percent, rough, when
from perftop.base.text import safe
from perftop.model.machine_totals import MEMORY, OF_BEST
from perftop.model.smt import STATES
from perftop.output.stat_columns import STATE_WIDTH, columns, has_states
from perftop.output.stat_json import estimates, multiplexed
from perftop.session.columns import Tabular
from perftop.session.interval import Interval
from perftop.session.session import Session

SCREENFUL = 24
"""Lines between two headings where no terminal says how high it is."""
NAME_WIDTH, TIME_WIDTH = 5, 10
MOST_NAME, MOST_TASK = 15, 24
SHARE_WIDTH = len(" (100 %)")
MOST_CACHES = 8
"""L3s that are told, those that move most."""


class StatTable:
    """`asked`: keys of columns; None: the usual ones. `brief`: only the machine, a line an
    interval. `height`: lines between two headings at most."""

    def __init__(
        self, session: Session, asked: Sequence[str] | None = None, *, brief: bool = False,
        height: int = SCREENFUL,
    ) -> None:  # fmt: skip
        self._session, self._brief, self._height = session, brief, height
        self.columns, self._states = columns(session, asked), has_states(asked)
        self._tasks = asked is not None and "task" in asked
        self._told = Tabular(session)
        self._left = 0
        """Lines until a heading is due."""
        self._estimated: set[str] = set()
        """Keys of the events that took turns until now."""

    def lines(self, interval: Interval) -> list[str]:
        self._widen(interval)
        head, rows = ([], [self._alone(interval)]) if self._brief else self._parts(interval)
        titles: list[str] = []
        if self._left < len(head) + len(rows):
            titles = self._titles()
            self._left = self._height - len(titles)
        self._left -= len(head) + len(rows)
        return [*head, *titles, *rows]

    def _widen(self, interval: Interval) -> None:
        """Makes room for shares of time, under a new heading, once an event takes turns."""
        found = {key for row in self._session.shown for key in estimates(interval, row)}
        if not self._brief and found - self._estimated:
            self._estimated |= found
            self._left = 0

    def _parts(self, interval: Interval) -> tuple[list[str], list[str]]:
        """The time with the packages; then the machine and each CPU, with a core's states in the
        row of its first one."""
        session, shown = self._session, self.columns
        length = f"{when(interval.time)}  {interval.elapsed_s:.3f} s"
        head = ["", length + _suspects(interval) + _turns(interval)]
        head += _packages(session, interval) + _caches(session, interval)
        head += _watched(session, interval)
        rows = [self._row("all", self._of_all(interval))]
        first = {session.cores[i][0]: i for i in session.shown_cores()}
        each = [column.of_cpus(session, interval) for column in shown]
        for row in session.shown:
            cpu = session.topology[row].cpu
            if not interval.online[row]:
                rows.append(self._row(str(cpu), ["off"]))
                continue
            shares = estimates(interval, row)
            cells = ["" if column.of_machine
                     else column.text(float(values[row])) + _share(shares.get(column.key))
                     for column, values in zip(shown, each, strict=True)]  # fmt: skip
            core = first.get(cpu) if self._states else None
            split = of_states(interval, core) if core is not None else []
            if self._tasks:
                task = safe(self._told.task(row, interval), MOST_TASK)
                split = [*(split or [""] * (len(STATES) * self._states)), f" {task}"]
            mark = "~" if row in interval.suspect else ""
            rows.append(self._row(f"{mark}{cpu}", cells, split))
        return head, rows

    def _alone(self, interval: Interval) -> str:
        split = interval.split
        cores = [i for i in self._session.shown_cores() if i < len(split.states)]
        shares = [percent(split.mean(state, cores)) for state in STATES if self._states]
        return self._row(when(interval.time), self._of_all(interval), shares)

    def _of_all(self, interval: Interval) -> list[str]:
        session = self._session
        return [column.of_all(session, interval) for column in self.columns]

    def _titles(self) -> list[str]:
        titles = [column.title for column in self.columns]
        states = [*(STATES if self._states else ()), *[" task"] * self._tasks]
        what = "time" if self._brief else "cpu"
        return [
            self._row(what, [label for label, _ in titles], states),
            self._row("", [unit for _, unit in titles], ["%"] * (len(STATES) * self._states)),
        ]

    def _row(self, name: str, cells: Sequence[str], states: Sequence[str] = ()) -> str:
        widths = [c.width + SHARE_WIDTH * (c.key in self._estimated) for c in self.columns]
        return row(name, cells, states, widths, TIME_WIDTH if self._brief else NAME_WIDTH)


def _share(share: float | None) -> str:
    """Behind the number of an event that took turns: for which share of the time it counted."""
    return "" if share is None else f" ({rough(share)})"


def row(
    name: str, cells: Sequence[str], states: Sequence[str], widths: Sequence[int], width: int
) -> str:
    """A line of a table; `width`: of the name."""
    parts = [f"{cell:>{room}}" for cell, room in zip(cells, widths, strict=False)]
    parts += [f"{state:>{STATE_WIDTH}}" for state in states]
    return f"{name:>{width}} {' '.join(parts)}".rstrip()


def of_states(interval: Interval, core: int) -> list[str]:
    split = interval.split
    if split.method[core] != "bounds":
        return [percent(v) for v in split.states[core]]
    return [
        f"{100 * low:.0f}..{100 * high:.0f}" if math.isfinite(low) else percent(low)
        for low, high in zip(split.low[core], split.high[core], strict=True)
    ]


def _watched(session: Session, interval: Interval) -> list[str]:
    moved, name = interval.watched, session.neighbours.watching.name
    if moved is None or name is None:
        return []
    if not session.neighbours.watching.threads:
        return [f"job {safe(name, MOST_NAME)}: no thread of it is seen"]
    waited = "" if math.isnan(moved.wait_s) else f", waited {moved.wait_s:.2f} s for a CPU"
    times = "once" if moved.involuntary == 1 else f"{moved.involuntary} times"
    ran = f"job {safe(name, MOST_NAME)}: ran {moved.run_s:.2f} s{waited}"
    return [f"{ran}, was preempted {times}"]


def _suspects(interval: Interval) -> str:
    n = len(interval.suspect)
    return f"  ~ {n} CPUs with suspect samples, left out" if n else ""


def _turns(interval: Interval) -> str:
    shares = multiplexed(interval)
    if not shares:
        return ""
    least = percent(min(shares.values()))
    return f"  counters shared: counted {least} % of the time at least, and scaled"


# --- lines of packages and of their L3s, above the table


def _packages(session: Session, interval: Interval) -> list[str]:
    """A line for each package: its power and its traffic to memory, as far as they are known."""
    found = []
    for at, cpus in enumerate(session.hello.packages):
        values = {name: float(found[at]) for name, found in interval.packages.items()}
        told = [_power(values), _memory(values)]
        if any(told):
            number = session.topology[session.position[cpus[0]]].package
            found.append(f"package {number}: {' · '.join(filter(None, told))}")
    return found


def _power(values: Mapping[str, float]) -> str:
    power, limit = (values.get(name, math.nan) for name in ("power_w", "power_limit_w"))
    dram = values.get("power_dram_w", math.nan)
    if math.isnan(power):
        return "" if math.isnan(dram) else f"{dram:.1f} W for memory"
    of = "" if math.isnan(limit) else f" of {limit:.0f}"
    more = "" if math.isnan(dram) else f" and {dram:.1f} W for memory"
    return f"{power:.1f}{of} W{more}"


def _memory(values: Mapping[str, float]) -> str:
    rates = [values.get(name, math.nan) for name in MEMORY]
    if any(map(math.isnan, rates)):
        return ""
    text = "memory {:.1f} GB/s read, {:.1f} written".format(*(rate / 1e9 for rate in rates))
    share = values.get(OF_BEST, math.nan)
    return text if math.isnan(share) else f"{text}, {percent(share)} % of the best seen"


def _caches(session: Session, interval: Interval) -> list[str]:
    """The L3s that move most, and how much of each is in use."""
    traffic, held = (
        interval.caches.get(name) for name in ("memory_bytes_per_s", "occupancy_bytes")
    )
    if traffic is None:
        return []
    known = [at for at, rate in enumerate(traffic.tolist()) if math.isfinite(rate)]
    known.sort(key=lambda at: -float(traffic[at]))
    found = []
    for at in sorted(known[:MOST_CACHES]):
        used = "" if held is None or math.isnan(held[at]) else f", {held[at] / 1e6:.1f} MB in use"
        found.append(f"L3 {session.topology[at].l3}: {traffic[at] / 1e9:.1f} GB/s{used}")
    return found
