"""Selects the cases of a test that always run. The other cases run only with `-m nightly`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

INFORMATIVE_SCENARIOS = ("hybrid", "hotplug", "throttle", "halts", "neighbour", "guest", "demo")
"""Scenarios in which numbers are missing, CPUs go offline, or time is lost; the other scenarios
would test little more."""


def cases_by_day(cases: Iterable[Any], daily: Sequence[Any]) -> list[Any]:
    """The cases; those that are not in `daily` have the mark `nightly`."""
    cases = list(cases)
    assert all(case in cases for case in daily), daily
    return [case if case in daily else nightly_case(case) for case in cases]


def nightly_case(case: Any) -> Any:
    """Returns the case, marked as nightly; the arguments of a case may be a tuple."""
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)
