"""The last line: the views, and keys of the visible one. The help (`?`) lists those that do not
fit."""

from __future__ import annotations

from collections.abc import Mapping

from textual.strip import Strip
from textual.widget import Widget

from perftop.draw.ansi_strip import ink, line
from perftop.draw.strips import Run, shed
from perftop.tui.shared.keys import KEYS, TURN

_LABELS = {key.id: key.label for key in KEYS}
_FIRST, _LAST = ("quit", "help"), ("pause", "filter", "longer", "theme")
_REPLAY = (("pause",), ("slower", "faster"), ("step_back", "step_on"),
           ("previous_episode", "next_episode"), ("jump",), ("begin", "finish"))  # fmt: skip
"""Groups of keys for a recording; they replace `_LAST` there."""
_PAIRS = {"faster": "speed", "step_on": "step", "next_episode": "episode", "finish": "ends"}
"""Labels of pairs of keys, by the second key of the pair."""


class Told(Widget):
    """A line that shows the runs last given to `tell`."""

    def __init__(self, *, ascii_: bool, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._ascii = ascii_
        self._runs: list[Run] = []
        self._strip: Strip | None = None

    def tell(self, runs: list[Run]) -> None:
        if runs != self._runs:
            self._runs, self._strip = runs, None
            self.refresh()

    def render_line(self, y: int) -> Strip:
        if y:  # blank, but styled: without colours Textual reads the style
            return line([], ink(self.app), self.size.width, ascii_=self._ascii)
        if self._strip is None:
            self._strip = line(self._runs, ink(self.app), self.size.width, ascii_=self._ascii)
        return self._strip

    def on_resize(self) -> None:
        self._strip = None

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strip = None


class KeyLine(Told):
    def __init__(self, captions: Mapping[str, str], *, ascii_: bool, id: str) -> None:  # noqa: A002
        super().__init__(ascii_=ascii_, id=id)
        self._captions = captions

    def show(
        self, view: str, hints: tuple[str, ...], labels: Mapping[str, str], *, replay: bool = False
    ) -> None:
        """`labels`: words for the keys whose effect changes, by id."""
        named = _LABELS | dict(labels)
        width = self.size.width
        self.tell(keyline(view, hints, self._captions, named, width, replay=replay))


def keyline(
    view: str, hints: tuple[str, ...], captions: Mapping[str, str], labels: Mapping[str, str],
    width: int, *, replay: bool = False,
) -> list[Run]:  # fmt: skip
    """The views, then the keys of this view, then the keys of all views. If they do not all fit,
    the views share one entry."""
    last = _REPLAY if replay else tuple((key,) for key in _LAST)
    views: list[tuple[int, list[Run]]] = []
    for name in TURN:
        here = "bright" if name == view else "dim"
        views.append((50, [(captions[name], "key"), (f" {labels[name]}", here)]))
    pieces: list[tuple[int, list[Run]]] = []
    ranked: list[tuple[int, tuple[str, ...]]] = [
        *((1, (key,)) for key in _FIRST),
        *((10 + i, (key,)) for i, key in enumerate(hints)),
        *((30 - 28 * replay + i, group) for i, group in enumerate(last)),
    ]
    for rank, group in ranked:
        label = _PAIRS[group[-1]] if len(group) > 1 else labels[group[0]]
        pressed = " ".join(captions[key] for key in group)
        pieces.append((rank, [(pressed, "key"), (f" {label}", "dim")]))
    room = width - 1
    if sum(sum(len(text) for text, _ in runs) + 2 for _, runs in [*views, *pieces]) > room + 2:
        ends = captions[TURN[0]], captions[TURN[-1]]
        views = [(3, [("-".join(ends), "key"), (" views", "dim")])]
    return [(" ", "text"), *shed([*views, *pieces], room, 2)]
