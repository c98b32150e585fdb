"""The page of a core of a simulated machine, without an app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import made
from fakes import CpuLoad, Machine

from perftop.draw import strips
from perftop.draw.columns import Run
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.core_page import core_page, numbers
from perftop.tui.core_page.charts import Charts, CoreHistory
from perftop.tui.shared import time_axis
from perftop.tui.shared.choice import Units
from perftop.tui.shared.places import Places

SECOND = 10**9
Script = Callable[[Machine, int], None]
KEYS = {"back": "esc", "window": "[ ]"}


def played_core(
    machine: Machine, script: Script = lambda _, __: None, samples: int = 50, **more: Any
) -> tuple[Session, Interval]:
    """A session with its history after `samples` samples, and its last half second as interval."""
    session = Session(machine.hello, History(machine.hello))
    frames = []
    for seq in range(samples + 1):
        script(machine, seq)
        frames.append(machine.frame(seq, **more))
    for seq, _ in enumerate(session.play(frames)):
        if seq == samples - 5:
            session.take_interval()
    return session, session.take_interval()


def charts(
    session: Session, interval: Interval, *, cpu: int = 0, size: tuple[int, int] = (120, 25),
    window_s: float = 5.0, units: Units = "GHz", ascii_: bool = False, exact: bool = True,
) -> Charts:  # fmt: skip
    place = next(place for place in Places(session).places if cpu in place.cpus)
    known = numbers.capabilities(session, place, tasks=bool(interval.tasks))
    page = numbers.page_layout(known, *size)
    axis = axis_of_samples if exact else time_axis.fit_axis
    time = axis(interval.time_ns, window_s, page.columns)
    time = replace(time, first_ns=session.past.first_ns)
    moment = numbers.core_moment(session, interval, place, page, units, time.start_ns)
    history = CoreHistory(session, place)
    history.move_to(time)
    return Charts(moment, history, "ascii" if ascii_ else "shapes")


def axis_of_samples(now_ns: int, window_s: float, room: int) -> time_axis.Axis:
    """An axis with one sample per bin, or several samples where there is no room, so that a chart
    shows exact counts."""
    samples = round(window_s * 1e9 / made.SAMPLE_NS)
    bin_ns = -(-samples // min(room, samples)) * made.SAMPLE_NS
    return time_axis.Axis(-(-now_ns // bin_ns) * bin_ns, bin_ns, min(room, samples), now_ns)


def runs(session: Session, interval: Interval, **more: Any) -> list[list[Run]]:
    width = more.get("size", (120, 25))[0]
    return core_page.lines(charts(session, interval, **more), "5 s", KEYS, width)


def text(session: Session, interval: Interval, **more: Any) -> list[str]:
    return [strips.text(line) for line in runs(session, interval, **more)]


def page(machine: Machine, script: Script = lambda _, __: None, **more: Any) -> list[str]:
    session, interval = played_core(machine, script, records=more.pop("records", {}))
    return text(session, interval, **more)


def line(result: Sequence[str], label: str) -> str:
    """The line that has this label at its left or beside its chart."""
    return next(text for text in result if label in text)


def panel_lines(of: Charts, key: str) -> list[str]:
    """The cells of a panel."""
    first, lines = 0, [strips.text(line) for line in of.panels()]
    start = numbers.LABEL_WIDTH
    for each in of.moment.page.panels:
        first += each.gap
        if each.key == key:
            end = start + of.history.axis.cells
            return [text[start:end] for text in lines[first : first + each.lines]]
        first += each.lines
    raise AssertionError(f"no {key}")


def number_column(of: Charts, key: str) -> str:
    """The newest column of a panel, from the top."""
    return "".join(line[-1] for line in panel_lines(of, key))


METRICS = frozenset({"util", "busy_hz", "net_hz", "ipc", "involuntary", "kernel_cycles", "idle"})
KNOWN = numbers.Capabilities(
    2, METRICS | {"user", "system", "steal"}, states=True, virtual=False, tasks=False
)


def busy(machine: Machine, *shares: float) -> Machine:
    """The machine with the first threads of all cores busy for the first share of the time, and the
    second threads for the second share."""
    for thread, share in enumerate(shares):
        for i in range(machine.cores):
            machine.does[i + thread * machine.cores] = CpuLoad(share)
    return machine
