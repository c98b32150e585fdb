"""Numbers of several CPUs together."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest

from perftop.session.values import mean_ceiling


@pytest.mark.parametrize(("hz", "util", "told"), [
    ([3.5, 3.5, 2.9, 2.9], [1.0, 1.0, 1.0, 1.0], 3.2),
    ([3.5, 2.9], [0.75, 0.25], 3.35),  # as long as each runs
    ([3.5, 2.9], [0.0, 0.5], 2.9),
    ([3.5, 2.9], [0.0, 0.0], 3.5),
    ([nan, 2.9, 3.5], [1.0, 0.5, nan], 2.9),
])  # fmt: skip
def test_a_ceiling_of_unlike_cpus_counts_them_as_their_clock_does(
    hz: list[float], util: list[float], told: float
) -> None:
    """Else cores of two types at their ceilings would be told to run below it."""
    assert mean_ceiling(np.array(hz), np.array(util)) == pytest.approx(told)


def test_no_ceiling_is_known() -> None:
    assert np.isnan(mean_ceiling(np.array([nan, nan]), np.array([1.0, 0.5])))
    assert np.isnan(mean_ceiling(np.array([]), np.array([])))
