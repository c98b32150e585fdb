"""Work that every test would do anew, and that the process need do once only.

Imported by conftest.py. Neither changes what a test sees.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest

gc.set_threshold(20_000, 10, 20)
"""Instead of after every 700 objects, of which the collection of tests makes a million."""

_Rules = list[Any]
_parsed: dict[tuple[Any, ...], _Rules] = {}
"""Rules of a style sheet by its text, its place and the values of its variables. Textual only reads
them once they are parsed."""


def share_style_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each app parses the same style sheets of Textual and perftop; the second takes the rules of
    the first."""
    from textual.css.stylesheet import Stylesheet

    parse = Stylesheet._parse_rules

    def parse_once(self: Stylesheet, css: str, *where: Any, **more: Any) -> _Rules:
        key = (css, *where, *more.items(), *self._variables.items())
        if key not in _parsed:
            _parsed[key] = parse(self, css, *where, **more)
        return _parsed[key]

    monkeypatch.setattr(Stylesheet, "_parse_rules", parse_once)


def draw_no_constants_of_modules() -> None:
    """Hypothesis reads all our modules that are loaded for numbers and words in them, and now and
    then makes an example of one. That takes seconds, and another module, or another order of tests,
    would make other examples."""
    from hypothesis.internal.conjecture import providers

    none = providers._local_constants
    providers._get_local_constants = lambda: none


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules live to the end: the collector need not look at them
    again for each app that a test leaves behind."""
    gc.collect()
    gc.freeze()
