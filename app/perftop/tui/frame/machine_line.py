"""The lines on the machine as a whole: its numbers, and its SMT states as wide as the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isnan, nan
from weakref import WeakKeyDictionary

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats, Ints
from perftop.base.format import GHZ
from perftop.draw import bars, theme
from perftop.draw.strips import Run, gapped, number, width
from perftop.model.episode import Episode
from perftop.model.machine_totals import MEMORY, OF_BEST
from perftop.model.numbers import METRICS
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import mean_ceiling, spread
from perftop.tui.shared import episode_style
from perftop.tui.shared import row_episodes as trouble

ROOMY = 110
"""Columns from which the shares beside the bar have a decimal."""

NEAR = 0.97
"""Share of the power limit from which the package counts as held back by it."""

LEAST = 12
"""Minimum cells of a bar with words beside it; a shorter one shows too little."""


@frozen
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
    if held is None or held.of[0] is not of[0] or held.of[1] is not of[1]:
        cores = session.shown_cores()
        pairs = np.array([i for i in cores if len(session.cores[i]) > 1], np.intp)
        every = session.shown == list(range(len(session.topology)))
        held = Extent(of, cores, pairs, slice(None) if every else session.shown)
        _EXTENTS[session] = held
    return held


def has_states(session: Session) -> bool:
    """Whether there are cores with siblings."""
    return bool(len(extent(session).pairs))


COVERS = 0.5
"""Minimum share of the CPUs on which an episode runs that reddens a number of the machine."""
_WHOLE = len("100.0")
GAP, NARROW_GAP = 4, 2
"""Cells between numbers: where all fit, and where they do not."""
WAITS = {"cpu": "a CPU", "io": "a disk", "memory": "memory"}
"""What tasks wait for, by the name of the pressure."""


def lost(session: Session, running: Iterable[Episode]) -> dict[str, str]:
    """The signs of the episodes that most CPUs suffer, by the metric that they lose."""
    by_key: dict[str, list[Episode]] = {}
    for episode in running:
        for key in _loses(episode):
            by_key.setdefault(key, []).append(episode)
    found: dict[str, str] = {}
    for key, mine in by_key.items():
        if len({cpu for e in mine for cpu in e.cpus}) >= COVERS * len(session.shown):
            found[key] = episode_style.sign(mine[0])
    return found


def _loses(episode: Episode) -> Iterable[str]:
    """Keys of the numbers that the episode makes red; heat is a number of its own."""
    yield from filter(None, (trouble.number(episode),))
    if episode.kind == "throttle":
        yield "temperature_c"


def numbers(
    session: Session, interval: Interval, running: Iterable[Episode], size: int
) -> list[Run]:
    """The metrics that this source has; one that the running episodes lose is red."""
    chosen, red = session.evaluator.chosen, lost(session, running)
    found = interval.values.group(extent(session).cpus).tolist()
    values = dict(zip(chosen, found, strict=True))
    pieces: list[tuple[int, list[Run]]] = []

    def share(key: str, word: str, style: str = "text") -> list[Run]:
        if not chosen[key]:
            return []
        value = values[key]
        near = METRICS[key].stands_out <= value <= 1
        style = "alarm" if key in red else "warn" if near else style
        return [(f"{word} ", "dim"), number(100 * value, METRICS[key].scale(GHZ)[1], 0, style),
                (" %", "dim")]  # fmt: skip

    pieces.append((0, share("util", "busy", "bright")))
    if chosen["busy_hz"]:
        ceiling_hz = _ceiling(session, interval)
        pieces.append((1, _clock(values["busy_hz"], ceiling_hz, red.get("busy_hz"))))
    if chosen["net_hz"]:
        net = number(values["net_hz"] / 1e9, 2, 0)
        pieces.append((7, [("net ", "dim"), net, (" GHz", "dim")]))
    if chosen["ipc"]:
        sign = f"{red['ipc']} " if "ipc" in red else ""
        ipc = number(values["ipc"], 2, 0, "alarm" if sign else "bright")
        pieces.append((2, [("IPC ", "dim"), (sign, "alarm"), ipc]))
    pieces.append((3, _halts(share, halted=bool(chosen["halt"]))))
    if session.hello.virtualisation is not None:
        pieces.append((3, share("steal", "steal")))
    pieces.append((5, share("kernel_cycles", METRICS["kernel_cycles"].label)))
    hot = "temperature_c" in red
    pieces += [(4 + 2 * i, runs) for i, runs in enumerate(_whole(interval.machine, hot=hot))]
    pieces.append((6, _memory(interval.machine)))  # before the net clock, which follows from others
    pieces.append((8, _dram(interval.machine)))
    return [(" ", "text"), *_spread([(rank, runs) for rank, runs in pieces if runs], size - 2)]


def _spread(pieces: list[tuple[int, list[Run]]], size: int) -> list[Run]:
    """The pieces that fit, the most important ones first, with wider gaps where all do. A piece has
    the room of its longest number, so that those beside it neither move nor come and go."""
    padded = [[*runs, (" " * _spare(runs), "text")] for _, runs in pieces]
    sizes = [*map(width, padded)]
    if sum(sizes) + GAP * (len(sizes) - 1) <= size:
        return gapped(padded, GAP)
    kept, room = set[int](), size
    for at in sorted(range(len(pieces)), key=lambda at: pieces[at][0]):
        if sizes[at] <= room:
            kept.add(at)
            room -= sizes[at] + NARROW_GAP
    return gapped([padded[at] for at in sorted(kept)], NARROW_GAP)


def _spare(runs: list[Run]) -> int:
    """Cells that its shares, the numbers with one decimal, lack to 100.0."""
    return sum([max(0, _WHOLE - len(text)) for text, _ in runs if text[-2:-1] == "."])


def _halts(share: Callable[[str, str], list[Run]], *, halted: bool) -> list[Run]:
    """Idle and involuntary halts, with their names behind them."""
    idle, involuntary = share("idle", ""), share("involuntary", "")
    runs: list[Run] = [("halts ", "dim")] if halted and idle else []
    runs += [*idle[1:], (" idle", "dim")] if idle else []
    return runs + (
        [("  ", "text"), *involuntary[1:], (" involuntary", "dim")] if involuntary else []
    )


def _ceiling(session: Session, interval: Interval) -> float:
    cpus = extent(session).cpus
    return mean_ceiling(spread(session, interval.ceiling_hz)[cpus], interval.values["util"][cpus])


def _clock(hz: float, ceiling_hz: float, sign: str | None) -> list[Run]:
    """The clock and its ceiling; `sign`: of what holds it below."""
    runs: list[Run] = [("clock ", "dim"), (f"{sign} " if sign else "", "alarm")]
    runs.append(number(hz / 1e9, 2, 0, "alarm" if sign else "bright"))
    if not isnan(ceiling_hz):
        runs.append((f" of {ceiling_hz / 1e9:.2f}", "dim"))
    return [*runs, (" GHz" if sign else " GHz  ", "dim")]  # the sign moves nothing behind it


def _whole(numbers: dict[str, float], *, hot: bool) -> list[list[Run]]:
    """Power, temperature and pressure, each only if known."""
    told: list[list[Run]] = []
    power = numbers.get("power_w", nan)
    if not isnan(power):
        limit = numbers.get("power_limit_w", nan)
        near = power >= NEAR * limit
        runs: list[Run] = [("power ", "dim"), number(power, 0, 0, "warn" if near else "text")]
        told.append([*runs, ("" if isnan(limit) else f" of {limit:.0f}", "dim"), (" W", "dim")])
    if not isnan(heat := numbers.get("temperature_c", nan)):
        told.append([number(heat, 0, 0, "alarm" if hot else "text"), (" °C", "dim")])
    kinds = [(kind, numbers.get(f"pressure_{kind}", nan)) for kind in ("cpu", "io", "memory")]
    if any(not isnan(share) for _, share in kinds):
        runs = [("waits for", "dim")]
        for kind, share in kinds:
            runs += [(f" {WAITS[kind]} ", "dim"), number(100 * share, 1, 0)]
        told.append([*runs, (" %", "dim")])
    return told


def _dram(numbers: dict[str, float]) -> list[Run]:
    """Power of the memory, which that of packages does not hold."""
    watts = numbers.get("power_dram_w", nan)
    return [] if isnan(watts) else [("dram ", "dim"), number(watts, 0, 0), (" W", "dim")]


def _memory(numbers: dict[str, float]) -> list[Run]:
    """Traffic from and to memory, and its share of the best seen; empty if it is unknown."""
    rates = [numbers.get(name, nan) / 1e9 for name in MEMORY]
    if isnan(sum(rates)):
        return []
    read, write = (number(rate, 1, 0) for rate in rates)
    share = numbers.get(OF_BEST, nan)
    of = "" if isnan(share) else f" {100 * share:.0f} %"
    return [("mem ", "dim"), read, ("+", "dim"), write, (f" GB/s{of}", "dim")]


def strip(session: Session, interval: Interval, size: int) -> list[Run]:
    """The SMT states of all cores together, in the order of the legend behind them."""
    cores = extent(session).pairs
    known = _mean(interval.split.states[cores])
    if known:
        neither, lp0, lp1, both = known
        words = _legend((both, lp0, lp1, neither), size)
        words, room = _room(words, size)
        return [(" SMT ", "dim"), *bars.smt((neither, lp0, lp1, both), room), *words]
    low = _mean(interval.split.low[cores])
    if not low:
        return _neither(session, interval, cores, size)
    words = [("  ", "text"), ("SMT states not counted here: ", "dim"), (theme.UNKNOWN, "unknown"),
             (" may be any of them ", "dim")]  # fmt: skip
    words, room = _room(words, size)
    return [(" SMT ", "dim"), *bars.possible(low, room), *words]


def _neither(session: Session, interval: Interval, cores: Ints, size: int) -> list[Run]:
    """The bar for cores with more than two threads: whether any is active, and how many are."""
    split, name = interval.split, (" SMT ", "dim")
    share = _mean(split.states[cores][:, :1])
    if share:
        words = _words([("any", 1 - share[0], "unknown"), ("neither", share[0], "dim")], size)
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
    told, room = _room([*words, *mean], size)
    if not told:
        told, room = _room(words, size)
    return [name, *bars.possible([share[0], 0.0, 0.0, 0.0], room), *told]


def _mean(shares: Floats) -> list[float]:
    """Mean shares over the cores whose shares are all known; empty if there is no such core."""
    total = shares.sum(axis=1)
    known = shares[~np.isnan(total)]
    return known.mean(axis=0).tolist() if len(known) else []


def _legend(shares: Sequence[float], size: int) -> list[Run]:
    """The states with their shapes, so that the bar needs no other key."""
    digits = 1 if size >= ROOMY else 0
    runs: list[Run] = []
    for (shape, name), share in zip(theme.STATES, shares, strict=True):
        told = f"{100 * share:{3 + 2 * digits}.{digits}f}"
        runs += [("   ", "text"), (shape, name), (f" {name} ", "dim"), (told, "text")]
    return [*runs, (" % ", "dim")]


def _room(words: list[Run], size: int) -> tuple[list[Run], int]:
    """The words and the cells of the bar; on the narrowest screens the words are left out."""
    room = size - 5 - sum(len(text) for text, _ in words)
    return (words, room) if room >= LEAST else ([], max(0, size - 5))


def _words(shares: list[tuple[str, float, str]], size: int) -> list[Run]:
    digits = 1 if size >= ROOMY else 0
    runs: list[Run] = []
    for name, share, key in shares:
        runs += [(f"  {name} ", key), (f"{100 * share:{3 + 2 * digits}.{digits}f}", "text")]
    return [*runs, (" % ", "dim")]
