"""A screen that is a single page of lines: that of a fleet, or of two recordings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult

from perftop.draw.strips import Line
from perftop.tui.frame.bottom import PromptScreen
from perftop.tui.shared.canvas import AbstractWidgetMeta, PageWidget


class PageScreen(PromptScreen, metaclass=AbstractWidgetMeta):
    HELP_ENTRIES: ClassVar[Sequence[tuple[str, str]]] = ()
    """Numbers and signs of this screen with their meanings, for the help."""

    def __init__(self) -> None:
        super().__init__()
        self.page = _Page(id="page")

    def compose(self) -> ComposeResult:
        yield self.page

    @property
    def main_widget(self) -> PageWidget:
        return self.page

    @abstractmethod
    def page_lines(self, width: int, height: int) -> list[Line]:
        """Returns the lines of the page at this size."""

    def action_help(self) -> None:
        from perftop.tui.frame.overlays import HelpEntry, HelpScreen, HelpSection

        bindings = [active.binding for active in self.active_bindings.values()]
        entries = [HelpEntry([(name, "key")], text) for name, text in self.HELP_ENTRIES]
        sections = [HelpSection("numbers and signs", entries)] if entries else []
        self.app.push_screen(HelpScreen(bindings, sections))


class _Page(PageWidget, can_focus=True):
    def page(self, width: int, height: int) -> list[Line]:
        assert isinstance(self.screen, PageScreen)
        return self.screen.page_lines(width, height)
