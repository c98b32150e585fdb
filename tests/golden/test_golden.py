"""What is printed and drawn for simulated machines is as it was. A wanted change is written by
`python tests/golden/golden.py --write` and belongs into the commit that makes it."""

from __future__ import annotations

import golden
import pytest

DAILY = ("data", "help", "wrong", "file-job", "live-guest", "screen-guest")
NIGHTLY = [group for group in golden.GROUPS if group not in DAILY]


@pytest.mark.parametrize(
    "group", [*DAILY, *(pytest.param(name, marks=pytest.mark.nightly) for name in NIGHTLY)]
)
def test_outputs_are_as_expected(group: str) -> None:
    with golden.environment() as directory:
        outputs = {name: golden.steady(text()) for name, text in golden.cases(directory, group)}
    assert outputs
    assert golden.differences(group, outputs) == []
