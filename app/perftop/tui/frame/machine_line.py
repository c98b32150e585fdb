"""The lines on the machine as a whole: numbers, and a bar as wide as the screen."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan
from weakref import WeakKeyDictionary

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.base.format import GHZ
from perftop.draw import bars, theme
from perftop.draw.strips import Run, number, shed
from perftop.samples.metrics import METRICS
from perftop.session.interval import Interval
from perftop.session.session import Session

ROOMY = 110
"""Columns from which the shares beside the bar have a decimal."""

NEAR = 0.97
"""Share of the power limit from which the package counts as held back by it."""

LEAST = 12
"""Minimum cells of a bar with words beside it; a shorter one shows too little."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The CPUs asked for and their cores. They change so seldom that they are not listed at every
    refresh."""

    of: tuple[object, ...]
    """The session's lists from which this was made."""
    cores: list[int]
    pairs: Ints
    """Positions of the cores with siblings."""
    cpus: list[int] | slice
    """Positions of the CPUs, as `Values.group` takes them."""


_EXTENTS: WeakKeyDictionary[Session, Extent] = WeakKeyDictionary()


def extent(session: Session) -> Extent:
    held, of = _EXTENTS.get(session), (session.cores, session.shown)
    if held is None or any(a is not b for a, b in zip(held.of, of, strict=True)):
        cores = session.shown_cores()
        pairs = np.array([i for i in cores if len(session.cores[i]) > 1], np.intp)
        every = session.shown == list(range(len(session.topology)))
        held = Extent(of, cores, pairs, slice(None) if every else session.shown)
        _EXTENTS[session] = held
    return held


def numbers(session: Session, interval: Interval, width: int) -> list[Run]:
    """Line 2: the metrics that this source has."""
    pieces: list[tuple[int, list[Run]]] = []
    found = interval.values.group(extent(session).cpus).tolist()
    values = dict(zip(session.evaluator.chosen, found, strict=True))

    def add(rank: int, key: str, name: str = "") -> None:
        if not session.evaluator.chosen[key]:
            return
        metric, value = METRICS[key], values[key]
        style = "warn" if metric.stands_out <= value <= 1 else "bright" if rank < 2 else "text"
        scale, digits = metric.scale(GHZ)
        wide = 5 if metric.unit == "ratio" else 4
        runs: list[Run] = [(f"{name or metric.label} ", "dim")]
        runs.append(number(value * scale, digits, wide, style))
        if unit := metric.unit_name(GHZ):
            runs.append((f" {unit}", "dim"))
        pieces.append((rank, runs))

    add(0, "util")
    add(1, "busy_hz")
    _of_ceiling(session, interval, pieces)
    add(6, "net_hz")
    add(2, "idle", "halts idle" if session.evaluator.chosen["halt"] else "")
    add(3, "involuntary", "involuntary" if width >= ROOMY else "")
    if session.hello.virtualisation is not None or not session.evaluator.chosen["busy_hz"]:
        add(3, "steal")
    add(4, "ipc")
    add(5, "kernel_cycles", "kernel")
    pieces += [(6 + i, runs) for i, runs in enumerate(_whole(interval.machine))]
    return [(" ", "text"), *shed(pieces, width - 2, 3)]


def _whole(numbers: dict[str, float]) -> list[list[Run]]:
    """Power, temperature and pressure, each only if known."""
    told: list[list[Run]] = []
    power = numbers.get("power_w", nan)
    if not isnan(power):
        limit = numbers.get("power_limit_w", nan)
        near = power >= NEAR * limit
        runs: list[Run] = [("power ", "dim"), number(power, 0, 3, "warn" if near else "text")]
        runs += [] if isnan(limit) else [(" of ", "dim"), number(limit, 0, 3)]
        told.append([*runs, (" W", "dim")])
    if not isnan(heat := numbers.get("temperature_c", nan)):
        told.append([number(heat, 0, 2), (" °C", "dim")])
    kinds = [(kind, numbers.get(f"pressure_{kind}", nan)) for kind in ("cpu", "io", "memory")]
    if any(not isnan(share) for _, share in kinds):
        runs = [("pressure", "dim")]
        for kind, share in kinds:
            runs += [(f" {kind} ", "dim"), number(100 * share, 1, 4)]
        told.append([*runs, (" %", "dim")])
    return told


def _of_ceiling(session: Session, interval: Interval, pieces: list[tuple[int, list[Run]]]) -> None:
    ceiling_hz = float(np.fmax.reduce(interval.ceiling_hz, initial=nan))
    if not isnan(ceiling_hz) and session.evaluator.chosen["busy_hz"]:
        rank, runs = pieces[-1]
        top = f"{ceiling_hz / 1e9:.2f}"
        pieces[-1] = rank, [*runs[:-1], (" of ", "dim"), (top, "text"), (" GHz", "dim")]


def bar(session: Session, interval: Interval, width: int) -> list[Run]:
    """Line 3: the SMT states of all cores together; without siblings, the busy and idle shares."""
    cores = extent(session).pairs
    if not len(cores):
        return _busy(session, interval, width)
    known = _mean(interval.split.states[cores])
    if known:
        neither, lp0, lp1, both = known
        words = _words([("both", both, "both"), ("lp0", lp0, "lp0"), ("lp1", lp1, "lp1"),
                        ("neither", neither, "dim")], width)  # fmt: skip
        words, room = _room(words, width)
        return [(" SMT  ", "dim"), *bars.smt((neither, lp0, lp1, both), room), *words]
    low = _mean(interval.split.low[cores])
    if not low:
        return _neither(session, interval, cores, width)
    words = [("  ", "text"), ("SMT states not counted here: ", "dim"), (theme.UNKNOWN, "unknown"),
             (" may be any of them ", "dim")]  # fmt: skip
    words, room = _room(words, width)
    return [(" SMT  ", "dim"), *bars.possible(low, room), *words]


def _neither(session: Session, interval: Interval, cores: Ints, width: int) -> list[Run]:
    """The bar for cores with more than two threads: whether any is active, and how many are."""
    split, name = interval.split, (" SMT  ", "dim")
    share = _mean(split.states[cores][:, :1])
    if share:
        words = _words([("any", 1 - share[0], "unknown"), ("neither", share[0], "dim")], width)
    elif share := _mean(split.low[cores][:, :1]):
        (high,) = _mean(split.high[cores][:, :1])
        between = f"{100 * share[0]:3.0f}–{100 * high:<3.0f}"
        words = [(f"  {theme.UNKNOWN}", "unknown"), (" may be either  ", "dim"),
                 ("neither ", "dim"), (between, "text"), (" % ", "dim")]  # fmt: skip
    else:
        return [name, ("n/a", "faint")]
    (active,) = _mean(split.active_threads[cores][:, None])
    threads = max(len(session.cores[i]) for i in cores)
    mean: list[Run] = [(f"  {active:4.2f}", "text"), (f" of {threads} threads active ", "dim")]
    told, room = _room([*words, *mean], width)
    if not told:
        told, room = _room(words, width)
    return [name, *bars.possible([share[0], 0.0, 0.0, 0.0], room), *told]


def _mean(shares: Floats) -> list[float]:
    """Mean shares over the cores whose shares are all known; empty if there is no such core."""
    total = shares.sum(axis=1)
    known = shares[~np.isnan(total)]
    found: list[float] = known.mean(axis=0).tolist() if len(known) else []
    return found


def _busy(session: Session, interval: Interval, width: int) -> list[Run]:
    every = extent(session).cpus
    busy, steal = (interval.values.over(key, every) for key in ("util", "steal"))
    if isnan(busy):
        return []
    stolen = 0.0 if isnan(steal) else steal
    shares = [("busy", busy, "lp0"), ("idle", max(0.0, 1 - busy - stolen), "dim")]
    if not isnan(steal):
        shares.insert(
            1, ("steal", steal, "warn" if steal >= METRICS["steal"].stands_out else "dim")
        )
    words, room = _room(_words(shares, width), width)
    return [(" all  ", "dim"), *bars.account(busy, 0.0, stolen, room), *words]


def _room(words: list[Run], width: int) -> tuple[list[Run], int]:
    """The words and the cells of the bar; on the narrowest screens the words are left out."""
    room = width - 6 - sum(len(text) for text, _ in words)
    return (words, room) if room >= LEAST else ([], max(0, width - 6))


def _words(shares: list[tuple[str, float, str]], width: int) -> list[Run]:
    digits = 1 if width >= ROOMY else 0
    runs: list[Run] = []
    for name, share, key in shares:
        runs += [(f"  {name} ", key), (f"{100 * share:{3 + 2 * digits}.{digits}f}", "text")]
    return [*runs, (" % ", "dim")]
