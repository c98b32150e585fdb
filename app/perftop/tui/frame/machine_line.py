"""The lines on the machine as a whole: its numbers, and a bar of its SMT states that is as wide as
the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from weakref import WeakKeyDictionary

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.base.format import GHZ
from perftop.draw import bars, theme
from perftop.draw.columns import Run, number
from perftop.draw.strips import Piece, fitting, gapped, width
from perftop.model.episode import Episode
from perftop.model.machine_totals import MEMORY, OF_BEST
from perftop.model.numbers import METRICS
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import mean_ceiling, spread
from perftop.tui.shared import episode_style
from perftop.tui.shared.row_episodes import lowered_number

MIN_DECIMAL = 110
"""Minimum columns of the screen for a decimal in the shares beside the bar."""
NEAR_LIMIT = 0.97
"""Share of the power limit from which the limit counts as reached."""
MIN_BAR = 12
"""Minimum cells of a bar that has words beside it; a shorter bar shows too little."""
MIN_CPUS_HIT = 0.5
"""Minimum share of the CPUs on which episodes must run for a number of the machine to be red."""
SHARE_WIDTH = len("100.0")
GAP, NARROW_GAP = 4, 2
"""Cells between numbers: if all numbers fit, and if they do not."""
WAITS = {"cpu": "a CPU", "io": "a disk", "memory": "memory"}
"""Resources for which tasks wait, by the kernel's name of the pressure."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The CPUs that the user asked for, and their cores. The lists change seldom, so they are not
    made at every refresh."""

    source: tuple[object, ...]
    """The session's lists from which this object was made."""
    cores: list[int]
    pairs: Ints
    """Positions of the cores that have siblings."""
    cpus: list[int] | slice
    """Positions of the CPUs, as an argument for `Values.group`."""


_EXTENTS: WeakKeyDictionary[Session, Extent] = WeakKeyDictionary()


def extent(session: Session) -> Extent:
    held, source = _EXTENTS.get(session), (session.cores, session.shown)
    if held is None or held.source[0] is not source[0] or held.source[1] is not source[1]:
        cores = session.shown_cores()
        pairs = np.array([i for i in cores if len(session.cores[i]) > 1], np.intp)
        every = session.shown == list(range(len(session.topology)))
        held = Extent(source, cores, pairs, slice(None) if every else session.shown)
        _EXTENTS[session] = held
    return held


def has_states(session: Session) -> bool:
    """Returns whether any core has siblings, and so SMT states."""
    return bool(len(extent(session).pairs))


# --- the numbers


def numbers(
    session: Session, interval: Interval, running: Iterable[Episode], size: int
) -> list[Run]:
    """Returns the numbers that this source has. A number that running episodes make worse is
    red."""
    chosen, red = session.evaluator.chosen, _lost(session, running)
    counted = interval.values.group(extent(session).cpus).tolist()
    values = dict(zip(chosen, counted, strict=True))
    machine = interval.machine

    def share(key: str, word: str, style: str = "text") -> list[Run]:
        if not chosen[key]:
            return []
        value = values[key]
        near = METRICS[key].stands_out <= value <= 1
        style = "alarm" if key in red else "warn" if near else style
        return [(f"{word} ", "dim"), number(100 * value, METRICS[key].scale(GHZ)[1], 0, style),
                (" %", "dim")]  # fmt: skip

    pieces: list[Piece] = [(0, share("util", "busy", "bright"))]
    if chosen["busy_hz"]:
        sign, ceiling_hz = red.get("busy_hz", ""), _ceiling(session, interval)
        runs: list[Run] = [("clock ", "dim"), (f"{sign} " if sign else "", "alarm")]
        runs.append(number(values["busy_hz"] / 1e9, 2, 0, "alarm" if sign else "bright"))
        if not isnan(ceiling_hz):
            runs.append((f" of {ceiling_hz / 1e9:.2f}", "dim"))
        runs.append((" GHz" if sign else " GHz  ", "dim"))  # keeps the width with and without sign
        pieces.append((1, runs))
    if chosen["net_hz"]:
        net = number(values["net_hz"] / 1e9, 2, 0)
        pieces.append((7, [("net ", "dim"), net, (" GHz", "dim")]))
    if chosen["ipc"]:
        sign = f"{red['ipc']} " if "ipc" in red else ""
        ipc = number(values["ipc"], 2, 0, "alarm" if sign else "bright")
        pieces.append((2, [("IPC ", "dim"), (sign, "alarm"), ipc]))
    idle, involuntary = share("idle", "")[1:], share("involuntary", "")[1:]
    halts: list[Run] = [("halts ", "dim")] if chosen["halt"] and idle else []
    halts += [*idle, (" idle", "dim")] if idle else []
    halts += [("  ", "text"), *involuntary, (" involuntary", "dim")] if involuntary else []
    pieces.append((3, halts))
    if session.hello.virtualisation is not None:
        pieces.append((3, share("steal", "steal")))
    pieces.append((5, share("kernel_cycles", METRICS["kernel_cycles"].label)))
    known = [_power(machine), _temperature(machine, hot="temperature_c" in red), _waits(machine)]
    pieces += [(4 + 2 * i, runs) for i, runs in enumerate(filter(None, known))]
    pieces.append((6, _memory(machine)))  # outranks the net clock, derived from other numbers
    if not isnan(watts := machine.get("power_dram_w", nan)):  # not part of the package power
        pieces.append((8, [("dram ", "dim"), number(watts, 0, 0), (" W", "dim")]))
    return [(" ", "text"), *_spread([(rank, runs) for rank, runs in pieces if runs], size - 2)]


def _lost(session: Session, running: Iterable[Episode]) -> dict[str, str]:
    """Returns the markers of episodes that affect at least MIN_CPUS_HIT of the CPUs, by the key of
    the number that the episodes make worse."""
    by_key: dict[str, list[Episode]] = {}
    for episode in running:
        keys = {lowered_number(episode), "temperature_c" if episode.kind == "throttle" else ""}
        for key in keys - {""}:
            by_key.setdefault(key, []).append(episode)
    return {
        key: episode_style.sign(episodes[0])
        for key, episodes in by_key.items()
        if len({cpu for e in episodes for cpu in e.cpus}) >= MIN_CPUS_HIT * len(session.shown)
    }


def _ceiling(session: Session, interval: Interval) -> float:
    cpus = extent(session).cpus
    return mean_ceiling(spread(session, interval.ceiling_hz)[cpus], interval.values["util"][cpus])


def _power(machine: Mapping[str, float]) -> list[Run]:
    watts, limit = machine.get("power_w", nan), machine.get("power_limit_w", nan)
    if isnan(watts):
        return []
    style = "warn" if watts >= NEAR_LIMIT * limit else "text"
    of = "" if isnan(limit) else f" of {limit:.0f}"
    return [("power ", "dim"), number(watts, 0, 0, style), (of, "dim"), (" W", "dim")]


def _temperature(machine: Mapping[str, float], *, hot: bool) -> list[Run]:
    degrees = machine.get("temperature_c", nan)
    if isnan(degrees):
        return []
    return [number(degrees, 0, 0, "alarm" if hot else "text"), (" °C", "dim")]


def _waits(machine: Mapping[str, float]) -> list[Run]:
    """Returns the shares of time for which tasks wait, for each resource."""
    shares = {name: machine.get(f"pressure_{kind}", nan) for kind, name in WAITS.items()}
    if all(map(isnan, shares.values())):
        return []
    runs: list[Run] = [("waits for", "dim")]
    for name, share in shares.items():
        runs += [(f" {name} ", "dim"), number(100 * share, 1, 0)]
    return [*runs, (" %", "dim")]


def _memory(machine: Mapping[str, float]) -> list[Run]:
    """Returns the traffic from and to memory, and its share of the highest traffic measured so far;
    empty if the traffic is unknown."""
    rates = [machine.get(name, nan) / 1e9 for name in MEMORY]
    if isnan(sum(rates)):
        return []
    read, write = (number(rate, 1, 0) for rate in rates)
    share = machine.get(OF_BEST, nan)
    of = "" if isnan(share) else f" {100 * share:.0f} %"
    return [("mem ", "dim"), read, ("+", "dim"), write, (f" GB/s{of}", "dim")]


def _spread(pieces: list[Piece], size: int) -> list[Run]:
    """Returns the pieces that fit, chosen by importance; the gaps are wider if all pieces fit. Each
    piece has room for its longest number, so that the next pieces do not move."""
    padded = []
    for rank, runs in pieces:
        shares = [text for text, _ in runs if text[-2:-1] == "."]  # shares have one decimal
        spare = sum(max(0, SHARE_WIDTH - len(text)) for text in shares)
        padded.append((rank, [*runs, (" " * spare, "text")]))
    gap = GAP
    if len(kept := fitting(padded, size + gap, gap)) < len(padded):
        gap = NARROW_GAP
        kept = fitting(padded, size + gap, gap)
    return gapped([runs for _, runs in kept], gap)


# --- the SMT states


def strip(session: Session, interval: Interval, size: int) -> list[Run]:
    """Returns a bar of the SMT states of all cores together, followed by a legend in the same
    order. On the narrowest screens the legend is left out."""
    cores, split = extent(session).pairs, interval.split
    bar: Callable[[Sequence[float], int], list[Run]] = bars.possible
    words: list[list[Run]]
    """Alternatives for the words beside the bar; the first that leaves room for the bar is
    used."""
    if known := _mean(split.states[cores]):
        neither, lp0, lp1, both = known
        words = [_legend((both, lp0, lp1, neither), size)]
        bar = bars.smt
    elif known := _mean(split.low[cores]):
        words = [[("  ", "text"), ("SMT states not counted here: ", "dim"),
                  (theme.UNKNOWN, "unknown"), (" may be any of them ", "dim")]]  # fmt: skip
    else:  # more than two threads a core: shows whether any is active, and how many are
        known, either = _neither(split.states[cores], split.low[cores], split.high[cores], size)
        if not known:
            return [(" SMT ", "dim"), ("n/a", "faint")]
        (active,) = _mean(split.active_threads[cores][:, None])
        threads = max(len(session.cores[i]) for i in cores)
        mean: list[Run] = [(f"  {active:4.2f}", "text"), (f" of {threads} threads active ", "dim")]
        words = [[*either, *mean], either]
    shown = next((runs for runs in words if size - 5 - width(runs) >= MIN_BAR), [])
    return [(" SMT ", "dim"), *bar(known, max(0, size - 5 - width(shown))), *shown]


def _neither(states: Floats, low: Floats, high: Floats, size: int) -> tuple[list[float], list[Run]]:
    """Returns the shares for the bar, of which only that of "neither" is known, and the words
    beside the bar; both are empty if that share is unknown."""
    if share := _mean(states[:, :1]):
        any_, neither = (_percent(value, size) for value in (1 - share[0], share[0]))
        words: list[Run] = [("  any ", "unknown"), (any_, "text"), ("  neither ", "dim"),
                            (neither, "text")]  # fmt: skip
    elif share := _mean(low[:, :1]):
        between = f"{100 * share[0]:3.0f}–{100 * _mean(high[:, :1])[0]:<3.0f}"
        words = [(f"  {theme.UNKNOWN}", "unknown"), (" may be either  ", "dim"),
                 ("neither ", "dim"), (between, "text")]  # fmt: skip
    else:
        return [], []
    return [share[0], 0.0, 0.0, 0.0], [*words, (" % ", "dim")]


def _mean(shares: Floats) -> list[float]:
    """Returns the mean shares of the cores whose shares are all known; empty if there is no such
    core."""
    known = shares[~np.isnan(shares.sum(axis=1))]
    return known.mean(axis=0).tolist() if len(known) else []


def _legend(shares: Sequence[float], size: int) -> list[Run]:
    """Returns the SMT states with their shapes and shares."""
    runs: list[Run] = []
    for (shape, name), share in zip(theme.STATES, shares, strict=True):
        runs += [("   ", "text"), (shape, name), (f" {name} ", "dim")]
        runs.append((_percent(share, size), "text"))
    return [*runs, (" % ", "dim")]


def _percent(share: float, size: int) -> str:
    digits = 1 if size >= MIN_DECIMAL else 0
    return f"{100 * share:{3 + 2 * digits}.{digits}f}"
