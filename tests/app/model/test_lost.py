"""The lost share of the time of a busy CPU, from scripts and by algebra; CPUs at rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_truth import PLAYED_S, SMALL, found_episodes

from perftop.base.arrays import Bools, Floats
from perftop.model.evaluation import Evaluator, Values, distribute_steal, lost_time, resting_cpus
from perftop.model.numbers import INDEX, METRICS

SAMPLE_NS = 100_000_000
HZ = 3e9


class FullEvaluator(Evaluator):
    """An evaluator that has all metrics but those in `missing_metrics`."""

    def __init__(self, *missing_metrics: str) -> None:
        self._lacking = missing_metrics

    def cpus_with(self, key: str) -> Bools:
        return np.array([key not in self._lacking])


def values(span_s: float = 1.0, **shares: float) -> Values:
    """Returns the values of one CPU with these metrics; the clock is in Hz."""
    top, bottom = np.full((2, len(METRICS), 1), np.nan)
    for key, share in shares.items():
        top[INDEX[key]], bottom[INDEX[key]] = share * span_s, span_s
    bottom[INDEX["util"]] = span_s
    return Values(top, bottom)


def wanted_and_lost_s(
    values_of_cpu: Values, *missing_metrics: str, ceiling_hz: float = HZ, **more: Any
) -> tuple[float, list[float]]:
    """Returns the wanted time in s, and the lost time in s, by cause."""
    evaluator = FullEvaluator(*missing_metrics)
    report = lost_time(values_of_cpu, np.array([ceiling_hz]), evaluator, **more)
    return float(report.wanted_s[0]), report.parts_s[:, 0].tolist()


@pytest.mark.parametrize("distribute_steal", [None, np.minimum])
def test_parts_are_taken_in_order_from_the_rest(distribute_steal: Any) -> None:
    case = values(10.0, idle=0.2, steal=0.1, involuntary=0.1, busy_hz=HZ / 2)
    wanted_s, (steal_s, halted_s, clock_s) = wanted_and_lost_s(
        case, distribute_steal=distribute_steal
    )
    assert wanted_s == pytest.approx(8)
    assert (steal_s, halted_s, clock_s) == pytest.approx((1, 1, 3))


def test_losses_of_a_cpu_with_time_to_spare_count() -> None:
    case = values(idle=0.55, steal=0, involuntary=0, busy_hz=HZ / 2)
    wanted_s, parts_s = wanted_and_lost_s(case)
    assert sum(parts_s) / wanted_s == pytest.approx(0.5)


def test_polling_in_idle_is_not_wanted_time() -> None:
    wanted_s, _ = wanted_and_lost_s(values(idle=0.1, poll=0.2, steal=0, involuntary=0, busy_hz=HZ))
    assert wanted_s == pytest.approx(0.7)


def test_a_cpu_with_idle_time_loses_nothing() -> None:
    slow = values(idle=0.91, steal=0.1, involuntary=0.1, busy_hz=HZ / 3)
    assert wanted_and_lost_s(slow) == (0, [0, 0, 0])


@pytest.mark.parametrize(("idle", "has_losses"), [(0.89, True), (0.91, False)])
def test_losses_count_from_a_tenth_of_wanted_time_on(idle: float, *, has_losses: bool) -> None:
    case = values(2.0, idle=idle, steal=0, involuntary=0, busy_hz=HZ / 2)
    wanted_s, parts_s = wanted_and_lost_s(case)
    assert wanted_s == pytest.approx(0.22 if has_losses else 0.0)
    assert sum(parts_s) == pytest.approx(0.11 if has_losses else 0.0)


@pytest.mark.parametrize("missing_metrics", ["steal", "involuntary", "busy_hz"])
def test_parts_that_a_stream_cannot_have_are_left_out(missing_metrics: str) -> None:
    results = {"idle": 0.0, "steal": 0.1, "involuntary": 0.1, "busy_hz": HZ / 2}
    del results[missing_metrics]
    assert np.isfinite(wanted_and_lost_s(values(**results), missing_metrics)[1]).all()


@pytest.mark.parametrize("failed", ["steal", "involuntary", "busy_hz"])
def test_a_sample_without_one_of_its_counters_is_unknown(failed: str) -> None:
    results = {"idle": 0.0, "steal": 0.1, "involuntary": 0.1, "busy_hz": HZ / 2}
    del results[failed]
    assert np.isnan(wanted_and_lost_s(values(**results))[1]).any()


def test_a_clock_without_a_known_ceiling_is_left_out() -> None:
    report = values(idle=0.0, steal=0.1, involuntary=0.0, busy_hz=HZ / 2)
    assert wanted_and_lost_s(report, ceiling_hz=np.nan)[1] == pytest.approx([0.1, 0, 0])


shares = st.floats(0, 1)


@given(shares, shares, shares, st.floats(-0.2, 1), st.floats(0, 2 * HZ))
def test_the_parts_never_exceed_the_wanted_time(
    idle: float, poll: float, steal: float, involuntary: float, hz: float
) -> None:
    case = values(idle=idle, poll=poll, steal=steal, involuntary=involuntary, busy_hz=hz)
    wanted_s, (steal_s, halted_s, clock_s) = wanted_and_lost_s(case)
    assert 0 <= steal_s <= wanted_s + 1e-12
    assert abs(halted_s) <= wanted_s + 1e-12
    assert 0 <= clock_s <= wanted_s + 1e-12
    assert steal_s + max(halted_s, 0.0) + clock_s <= wanted_s + 1e-9


# --- against scripts ------------------------------------------------------------------------------


def by_cpu(scenario: str) -> Floats:
    session, _ = found_episodes(f"{scenario},{SMALL}", SAMPLE_NS, PLAYED_S)
    return session.run_interval().values["lost_ratio"]


def test_an_idle_machine_has_nothing_to_lose() -> None:
    assert np.isnan(by_cpu("idle")).all()


@pytest.mark.parametrize(("scenario", "share"), [
    ("turbo-drop", 620 / 3300 * 2 * 4.1 / 37),
    ("license", 500 / 3300 * 11 / 37),
    ("throttle", (0.125 * 6 + 400 / 3000 * 5) / 37),
    ("halts", ((8_500 / 850_000 + 50 / 3300) * 10 + 0.01 * 6) / 37),
    ("neighbour", 0.2 * 8 / 37),
])  # fmt: skip
def test_losses_match_the_script(scenario: str, share: float) -> None:
    assert by_cpu(scenario)[0] == pytest.approx(share, rel=0.1, abs=0.003)


def test_a_span_is_the_sum_of_its_samples() -> None:
    """The loss of a span is neither a mean of shares nor computed from the ceiling of the whole
    span."""
    session, _ = found_episodes(f"demo,{SMALL}", SAMPLE_NS, PLAYED_S)
    whole = session.run_interval().values
    column = INDEX["lost_ratio"]
    everyone = whole.numerators[column][np.isfinite(whole.numerators[column])].sum()
    wanted = whole.denominators[column][np.isfinite(whole.denominators[column])].sum()
    assert whole.mean("lost_ratio", session.selected) == pytest.approx(everyone / wanted)


# --- CPUs at rest


def test_a_cpu_between_both_thresholds_keeps_its_state() -> None:
    between = np.array([0.015])
    assert resting_cpus(np.array([0.0099])).tolist() == [True]
    assert resting_cpus(between).tolist() == [False]
    assert resting_cpus(between, np.array([True])).tolist() == [True]
    assert resting_cpus(between, np.array([False])).tolist() == [False]
    assert resting_cpus(np.array([0.02]), np.array([True])).tolist() == [False]


def test_a_cpu_without_data_is_not_at_rest() -> None:
    assert resting_cpus(np.array([np.nan]), np.array([True])).tolist() == [False]


# --- ticks of steal in short samples


@given(st.lists(st.tuples(st.floats(0, 0.02), st.floats(0, 0.01)), min_size=1, max_size=40))
def test_carried_ticks_are_neither_lost_nor_counted_twice(
    samples: list[tuple[float, float]],
) -> None:
    stolen, wanted = (np.array(part)[:, None] for part in zip(*samples, strict=True))
    settled, carried = distribute_steal(stolen, wanted, np.zeros(1))
    assert (settled <= wanted + 1e-12).all()
    assert (carried <= 0.02).all()
    assert settled.sum() + carried.sum() <= stolen.sum() + 1e-9
    one_by_one, left = [], np.zeros(1)
    for sample in range(len(stolen)):
        part, left = distribute_steal(
            stolen[sample : sample + 1], wanted[sample : sample + 1], left
        )
        one_by_one.append(part[0])
    np.testing.assert_allclose(settled, np.array(one_by_one))


def test_a_tick_in_a_short_sample_counts_fully() -> None:
    """In 60 samples of 10 ms, the CPU wants 42 of every 60 ms; the hypervisor takes 10 ms of them,
    in one tick."""
    wanted = np.array([[0.007]] * 60)
    stolen = np.array([[0.010 if sample % 6 == 5 else 0.0] for sample in range(60)])
    settled, _ = distribute_steal(stolen, wanted, np.zeros(1))
    assert settled.sum() == pytest.approx(0.1, abs=0.004)
