"""The text printed and drawn for simulated machines is unchanged. An intended change is written by
`python tests/golden/golden.py --write` and belongs in the commit that makes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import golden
import pytest
from nightly import cases_by_day
from roots import ROOT

DAILY = ("answers", "colours", "data", "demos", "stream", "help", "wrong", "sentences", "sizes",
         "file-small", "file-guest", "file-hybrid", "file-job", "file-part",
         "live-job")  # fmt: skip
BY_NIGHT = {f"walk-{name}" for name in (
    "fleet-160", "fleet-80", "mixed-120", "played-160", "rows-80", "views-80")}  # fmt: skip
"""Walks whose views other walks draw as well, of another size or machine."""
WALKS = [name for name in golden.GROUPS if name.startswith("walk-") and name not in BY_NIGHT]


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with golden.environment() as path:
        yield path


@pytest.mark.parametrize("group", cases_by_day(golden.GROUPS, [*DAILY, *WALKS]))
def test_outputs_are_as_expected(directory: Path, group: str) -> None:
    outputs = {
        name: golden.without_varying_parts(text()) for name, text in golden.cases(directory, group)
    }
    assert outputs
    differ = golden.differences(group, outputs)
    assert not differ, "\n".join(differ.values())


def test_no_choice_among_equals_follows_the_order_of_a_set() -> None:
    """The order of a set of strings differs between processes, and ties go to the first element."""
    choice = re.compile(r"\b(?:max|min)\((?:set\(|\{\*)[^)}]*[)}], key=")
    assert choice.search("max({*rest}, key=rest.count)")
    for path in (*(ROOT / "app").rglob("*.py"), *(ROOT / "probe").rglob("*.py")):
        assert not choice.search(path.read_text(encoding="utf-8")), path
