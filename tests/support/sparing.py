"""Saves time in all tests: work that each would repeat is done once in a process, and pilots wait
no longer than needed. conftest.py imports it. No test sees a difference."""

from __future__ import annotations

import gc
import sys
from typing import Any

from waiting import quiet

gc.set_threshold(20_000, 10, 20)
"""Objects between collections; the default is 700, and the collection of tests makes a million."""

_Rules = list[Any]
_parsed_rules: dict[tuple[Any, ...], _Rules] = {}
"""Rules of a style sheet by its text, its place and the values of its variables. Textual only reads
parsed rules."""


def speed_up_textual() -> None:
    """Apps share the rules of style sheets that an earlier app parsed, and pilots use our wait."""
    import textual.app
    import textual.pilot
    from textual.css.stylesheet import Stylesheet

    parse = Stylesheet._parse_rules

    def parse_once(self: Stylesheet, css: str, *where: Any, **more: Any) -> _Rules:
        key = (css, *where, *more.items(), *self._variables.items())
        if key not in _parsed_rules:
            _parsed_rules[key] = parse(self, css, *where, **more)
        return _parsed_rules[key]

    Stylesheet._parse_rules = parse_once  # type: ignore[method-assign]
    for module in (textual.app, textual.pilot):
        module.wait_for_idle = quiet  # type: ignore[attr-defined]


def draw_no_constants_of_modules() -> None:
    """Hypothesis searches all our loaded modules for numbers and words, and sometimes uses one as
    an example. That takes seconds, and examples would depend on the modules and the order of
    tests."""
    from hypothesis.internal.conjecture import providers

    none = providers._local_constants
    providers._get_local_constants = lambda: none


def pytest_collection_finish() -> None:
    """All tests are imported now. They live to the end, so the collector can skip them."""
    if "textual" in sys.modules:
        speed_up_textual()
    gc.collect()
    gc.freeze()
