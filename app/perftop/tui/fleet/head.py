"""The lines at the top of the fleet: what is watched, its numbers together, and what goes wrong,
worst first."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from perftop.base.format import time_of_day
from perftop.draw.strips import Line, Run, fit, foreign, shed, spread, width
from perftop.session.fleet.fleet import Happening, racks
from perftop.session.fleet.machine import Machine
from perftop.tui.fleet import look as words
from perftop.tui.fleet.look import Look, amount

_TOTALS = (("lost", "lost", 0), ("busy", "busy", 1), ("clock_hz", "clock", 2),
           ("below", "below ceiling", 3), ("both", "both", 5), ("involuntary", "involuntary", 6),
           ("steal", "steal", 4), ("power_w", "power", 7))  # fmt: skip
"""Numbers of all machines together: key, name, and rank where not all fit."""


def header(look: Look) -> Line:
    """Where the numbers come from, how many machines answer, and what that costs."""
    fleet = look.fleet
    every = len(fleet.machines)
    connecting = sum(m.why == "connecting" for m in fleet.silent)
    gone = len(fleet.silent) - connecting
    left: list[Run] = [(" perftop ", "badge"), (" fleet", "bright"), ("  ", "text"),
                       (f"{every} machine{'s' * (every != 1)} ", "text"), (look.what, "dim"),
                       (f"  {len(fleet.answering)} answer", "text")]  # fmt: skip
    left += [(f"  {connecting} connecting", "dim")] if connecting else []
    left += [(f"  {gone} {'does' if gone == 1 else 'do'} not", "alarm")] if gone else []
    if look.paused:
        left += [("  ", "text"), (f" {look.paused} ", "paused")]
    if width(left) > look.width:
        left = [run for run in left if run != (look.what, "dim")]
    pieces: list[tuple[int, list[Run]]] = [
        (i + 1, [(fact, "dim")]) for i, fact in enumerate(look.facts)
    ]
    time: list[Run] = [(time_of_day(look.now), "text")]
    room = look.width - width(left) - 3
    return spread(left, [*shed([*pieces, (0, time)], room, 3), (" ", "text")], look.width), "calm"


def totals(look: Look) -> Line:
    found = look.fleet.totals()
    pieces: list[tuple[int, list[Run]]] = []
    for key, name, rank in _TOTALS:
        if not isfinite(value := found[key]):
            continue
        text, behind = amount(key, value), words.behind(key, found)
        if key == "power_w" and value >= 1e4:
            text, limit = f"{value / 1e3:.1f}", found["power_limit_w"]
            behind = f" of {limit / 1e3:.1f} kW" if isfinite(limit) else " kW"
        style = "bright" if key in {"lost", "busy", "clock_hz"} else "text"
        pieces.append((rank, [(f"{name} ", "dim"), (text, style), (behind, "dim")]))
    gap = 3 if look.width >= 120 else 2
    return [(" ", "text"), *shed(pieces, look.width - 2, gap)], "calm"


def alerts(look: Look, most: int) -> list[Line]:
    """What goes wrong, the worst first, each as a sentence; the rest by their signs."""
    told: list[list[Run]] = []
    if look.problem:
        told.append([(f"{words.SILENT} ", "alarm"), (look.problem, "alarm")])
    gone = [m for m in look.fleet.silent if m.why != "connecting"]
    causes = [_cause(look, each) for each in look.running if each.kind != "suspect"]
    shared = [i for i, each in enumerate(look.running[: len(causes)]) if len(each.machines) > 1]
    first = causes[:1] if shared or not gone else []
    told += first
    told += [_silent(look, gone)] if gone else []
    told += causes[len(first) :]
    if not told:
        quiet = "No machine is losing time to a known cause." if look.fleet.answering else ""
        return [([(" ", "text"), (quiet, "dim")], "calm")]
    if len(told) > most:
        kept = told[: max(1, most - 1)]
        rest = look.running[max(0, len(kept) - bool(gone) - bool(look.problem)) :]
        more = _more(rest, len(told) - len(kept), look)
        if most == 1:  # no line of its own
            room = look.width - width(kept[0]) - 3
            kept[0] += [("  ", "text"), (f"+ {len(told) - 1} more", "dim")] if room > 10 else []
            told = kept
        else:
            told = [*kept, more]
    return [([(" ", "text"), *runs], "calm") for runs in told]


def _cause(look: Look, happening: Happening) -> list[Run]:
    names, every = happening.machines, len(look.fleet.machines)
    cause = words.told(happening.kind, happening.cause)
    place = words.where(happening, every)
    runs: list[Run] = [
        (f"{words.sign(happening.kind)} ", "alarm"),
        (f"{cause} on {place} since {words.since(happening.start, look.now)}", "alarm"),
    ]
    return _with(runs, (words.deepest(happening), _place(look, names)), look.width)


def _with(runs: list[Run], parts: Sequence[str], room: int) -> list[Run]:
    """The sentence, and the parts of its evidence that fit as a whole."""
    gap = "  "
    for part in parts:
        if part and width(runs) + len(gap) + len(part) <= room - 2:
            runs = [*runs, (gap, "dim"), (part, "dim")]
            gap = " · "
    return runs


def _place(look: Look, names: Sequence[str]) -> str:
    """The racks that the machines fill or lie in, or the first of their names."""
    if len(names) == 1:
        machine = look.fleet.machines.get(names[0])
        return "" if machine is None else foreign(machine.tasks)
    every = racks(list(look.fleet.machines.values()))
    mine = [rack for rack, there in every.items() if any(m.name in names for m in there)]
    numbered = all(rack[-1:].isdigit() for rack in mine)
    if numbered and len(mine) <= min(4, len(every) // 2):
        return f"only {' and '.join(mine)}" if len(mine) < 3 else f"only {', '.join(mine)}"
    return foreign(", ".join(names[:6]) + (" …" if len(names) > 6 else ""))


def _silent(look: Look, gone: Sequence[Machine]) -> list[Run]:
    """Who does not answer, since when, and why."""
    one = min(gone, key=lambda m: m.silent_since)
    since = f"since {time_of_day(one.silent_since)}"
    if len(gone) == 1:
        runs: list[Run] = [(f"{foreign(one.name)} does not answer {since}", "alarm")]
        return _with([(f"{words.SILENT} ", "alarm"), *runs],
                     words.why(one, look.now).split(" · "), look.width)  # fmt: skip
    names = foreign(", ".join(m.name for m in gone[:4]) + (" …" if len(gone) > 4 else ""))
    text = f"{len(gone)} of {len(look.fleet.machines)} do not answer {since}"
    why = foreign(one.why.removeprefix(f"{one.name}: "))
    return _with([(f"{words.SILENT} ", "alarm"), (text, "alarm")], (names, why), look.width)


def _more(rest: Sequence[Happening], count: int, look: Look) -> list[Run]:
    """The causes not told above, each with the machines."""
    runs: list[Run] = [(f"+ {count} more", "dim")]
    by_cause: dict[tuple[str, str], list[str]] = {}
    for each in rest:
        place = words.where(each, len(look.fleet.machines))
        by_cause.setdefault((each.kind, each.cause), []).append(place)
    for (kind, cause), places in by_cause.items():
        names = ", ".join(places[:3]) + (f" +{len(places) - 3}" if len(places) > 3 else "")
        piece: list[Run] = [
            ("   ", "text"), (f"{words.sign(kind)} ", "alarm"),
            (f"{words.told(kind, cause)} ", "text"), (names, "dim"),
        ]  # fmt: skip
        if width(runs) + width(piece) > look.width - 2:
            break
        runs += piece
    return runs


def typing(look: Look) -> Line:
    """The prompt of the filter."""
    hint = "words of names, causes or states: k07  pl1  silent"
    text = look.typing or ""
    runs: list[Run] = [
        (" filter ", "badge"),
        (" ", "text"),
        (foreign(text), "bright"),
        ("▏", "key"),
    ]
    count = f"{len(look.rows)} of {len(look.fleet.machines)}"
    return spread([*runs, ("  ", "text"), (fit(hint, 52) if not text else "", "faint")],
                  [(f"{count}  ", "dim"), ("enter", "key"), (" keep  ", "dim"), ("esc", "key"),
                   (" all ", "dim")], look.width), "calm"  # fmt: skip
