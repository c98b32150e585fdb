"""Help: keys from the bindings, shapes from the theme, numbers from the registry of metrics."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from perftop.base.text import plain
from perftop.draw import theme
from perftop.draw.ansi_strip import ink
from perftop.draw.strips import Run, foreign
from perftop.samples.metrics import METRICS
from perftop.session.filter import HELP
from perftop.session.missing import missing_text
from perftop.session.session import Session
from perftop.tui.shared import keys

_SHAPES: tuple[tuple[str, str, str], ...] = (
    (theme.BOTH, "both", "both siblings of the core are active"),
    (theme.LP0, "lp0", "only the first sibling (lp0): the upper half of the core"),
    (theme.LP1, "lp1", "only the second sibling (lp1): the lower half"),
    (theme.NEITHER, "neither", "neither"),
    (theme.UNKNOWN, "unknown", "not counted here: may be any of the states that surround it"),
    (theme.CLOCK, "clock", "busy clock, from 0"),
    (theme.CEILING, "dim", "what turbo allows with as many cores active"),
    (theme.DROPPED, "text", "busy clock clearly below that; red: below the package's others too"),
    (theme.SUSPECT, "dim", "a sample could not be true and was left out"),
    (theme.KERNEL, "cyan", "in the kernel, by the system's account (bar of a CPU)"),
    (theme.STEAL, "warn", "stolen: the hypervisor ran something else"),
    *((sign, "text", f"episode: {kind}") for kind, sign in theme.EPISODES.items()),
    (theme.STEP, "dim", "what turbo allows has changed (page of a core)"),
)  # fmt: skip


NARROWEST = 20
"""Minimum columns for the hanging text; with fewer, long lines are not wrapped here."""


class Help(Screen[None]):
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("help")]

    def __init__(
        self, session: Session | None, bindings: list[Binding], *, ascii_: bool = False
    ) -> None:
        super().__init__()
        self._session = session
        self._shown = bindings
        self._ascii = ascii_

    def compose(self) -> ComposeResult:
        with VerticalScroll() as scroll:
            if self._ascii:
                scroll.styles.scrollbar_size_vertical = 0
            yield Static()

    def on_resize(self, event: events.Resize) -> None:
        colors = ink(self.app).styles
        text = Text()
        for part, key in hung(page(self._session, self._shown), event.size.width - 1):
            text.append(plain(part) if self._ascii else part, colors[key])
        self.query_one(Static).update(text)


def hung(runs: list[Run], width: int) -> list[Run]:
    """Wraps lines longer than `width`; they continue in the column where their last run began."""
    made: list[Run] = []
    column = 0
    for text, key in runs:
        whole, ends = text.removesuffix("\n"), text.endswith("\n")
        if ends and column and column + cell_len(whole) > width > column + NARROWEST:
            whole = ("\n" + " " * column).join(textwrap.wrap(whole, width - column))
        made.append((whole + "\n" * ends, key))
        column = 0 if ends else column + cell_len(text)
    return made


def page(session: Session | None, bindings: list[Binding]) -> list[Run]:
    runs: list[Run] = [(" perftop ", "badge"), ("  Esc back\n\n", "dim"), (" Keys\n", "bright")]
    actions: dict[str, list[Binding]] = {}
    for binding in bindings:
        if binding.tooltip:
            actions.setdefault(binding.action, []).append(binding)
    for group in actions.values():
        names = " ".join(dict.fromkeys(keys.caption(b.key) for b in group))
        runs += [(f"   {names:<22}", "key"), (f"{group[0].tooltip}\n", "text")]
    runs.append(("\n Shapes\n", "bright"))
    for shape, key, what in _SHAPES:
        runs += [(f"   {shape * 3:<22}", key), (f"{what}\n", "text")]
    runs += _filters()
    return runs if session is None else [*runs, *_metrics(session), *_missing(session)]


def _filters() -> list[Run]:
    runs: list[Run] = [("\n Filters\n", "bright")]
    for example, what in HELP:
        runs += [(f"   {example:<22}", "key"), (f"{what}\n", "text")]
    return runs


def _metrics(session: Session) -> list[Run]:
    runs: list[Run] = [
        ("\n Numbers", "bright"),
        ("  of a core: its CPUs; halts: the worse one\n", "dim"),
    ]
    for key, metric in METRICS.items():
        origin = session.evaluator.origin(key)
        if origin is not None:
            runs += [(f"   {metric.label:<14}", "key"), (f"{metric.help}\n", "text"),
                     (f"{'':17}", "dim"), (f"{foreign(origin)}\n", "dim")]  # fmt: skip
    return runs


def _missing(session: Session) -> list[Run]:
    lines = missing_text(session)
    runs: list[Run] = [("\n Not known here\n", "bright")] if lines else []
    for line in lines:
        runs += [("   ", "text"), (f"{foreign(line.removeprefix('n/a: '))}\n", "text")]
    return runs
