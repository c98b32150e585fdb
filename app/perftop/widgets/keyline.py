"""The last line: the views, and keys of the one that is looked at. What does not fit is under
`?`."""

from __future__ import annotations

from collections.abc import Mapping

from textual.strip import Strip
from textual.widget import Widget

from perftop.keys import KEYS
from perftop.widgets.ready import ink, line
from perftop.widgets.strips import Run, shed

_LABELS = {key.id: key.label for key in KEYS}
_VIEWS = ("overview", "heat", "time", "table")
_FIRST, _LAST = ("quit", "help"), ("pause", "filter", "longer", "theme")


class KeyLine(Widget):
    def __init__(self, captions: Mapping[str, str], *, ascii_: bool, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._captions = captions
        self._ascii = ascii_
        self._runs: list[Run] = []
        self._strip: Strip | None = None

    def show(self, view: str, hints: tuple[str, ...], labels: Mapping[str, str]) -> None:
        """`labels`: what some keys do now, where it is not always the same."""
        runs = keyline(view, hints, self._captions, _LABELS | dict(labels), self.size.width)
        if runs != self._runs:
            self._runs, self._strip = runs, None
            self.refresh()

    def render_line(self, y: int) -> Strip:  # noqa: ARG002 - there is only one
        if self._strip is None:
            self._strip = line(self._runs, ink(self.app), self.size.width, ascii_=self._ascii)
        return self._strip

    def on_resize(self) -> None:
        self._strip = None

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strip = None


def keyline(
    view: str, hints: tuple[str, ...], captions: Mapping[str, str], labels: Mapping[str, str],
    width: int,
) -> list[Run]:  # fmt: skip
    """Views at the left, then what is peculiar to this one, then what is the same in all. Where
    there is no room for all, the views are named together."""
    views: list[tuple[int, list[Run]]] = []
    for name in _VIEWS:
        here = "bright" if name == view else "dim"
        views.append((50, [(captions[name], "key"), (f" {labels[name]}", here)]))
    pieces: list[tuple[int, list[Run]]] = []
    ranked = [*((1, key) for key in _FIRST), *((10 + i, key) for i, key in enumerate(hints)),
              *((30 + i, key) for i, key in enumerate(_LAST))]  # fmt: skip
    for rank, key in ranked:
        pieces.append((rank, [(captions[key], "key"), (f" {labels[key]}", "dim")]))
    room = width - 1
    if sum(sum(len(text) for text, _ in runs) + 2 for _, runs in [*views, *pieces]) > room + 2:
        first, *_, last = (captions[name] for name in _VIEWS)
        views = [(3, [(f"{first}-{last}", "key"), (" views", "dim")])]
    return [(" ", "text"), *shed([*views, *pieces], room, 2)]
