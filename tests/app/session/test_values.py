"""Values of numbers by key, of CPUs and of the machine."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
import simulated
from played import played

from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import mean_ceiling, of_cpus, of_machine


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


@pytest.fixture(scope="module")
def seen() -> tuple[Session, Interval]:
    """Two packages of two cores with two threads, busy with memory."""
    hello, messages = simulated.messages("sim:memory,cpus=8,packages=2", 60)
    session = played(Session(hello), messages)
    return session, session.take()


def test_numbers_of_cores_and_packages_are_values_of_their_cpus(
    seen: tuple[Session, Interval],
) -> None:
    session, interval = seen
    core, package = (
        session.reader.cores.of_cpu,
        np.array([row.package for row in session.topology], int),
    )
    split = interval.split
    expected = {
        "util": interval.values["util"],
        "ipc": interval.values["ipc"],
        "both": split.states[core, 3],
        "neither": split.states[core, 0],
        "active_threads": split.active_threads[core],
        "turbo_ceiling_hz": interval.ceilings.hz[core],
        "turbo_ceiling_high_hz": interval.ceilings.high_hz[core],
        "package_power_w": interval.packages["power_w"][package],
        "package_memory_of_best": interval.packages["memory_of_best"][package],
        "instructions": interval.counts["instructions"] / interval.elapsed_s,
        "l3_occupancy_bytes": np.full(8, nan),
        "power_w": np.full(8, nan),
        "nonsense": np.full(8, nan),
    }
    assert len(set(core.tolist())) == 4
    assert set(package.tolist()) == {0, 1}
    for key, values in expected.items():
        np.testing.assert_array_equal(of_cpus(session, interval, key), values, key)


def test_a_number_of_the_machine_is_its_own_or_that_of_its_cpus(
    seen: tuple[Session, Interval],
) -> None:
    session, interval = seen
    assert of_machine(session, interval, "power_w") == interval.machine["power_w"] > 0
    assert of_machine(session, interval, "ipc") == interval.values.mean("ipc", slice(None)) > 0
    assert of_machine(session, interval, "both") == pytest.approx(interval.split.mean("both"))
    assert np.isnan(of_machine(session, interval, "package_power_w"))
