"""The factor of an SMT event, determined from frames whose true values are known."""

from __future__ import annotations

import numpy as np
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from sessions import session_of

from perfprobe.wire import Multiplier
from perftop.base.arrays import Floats
from perftop.model.smt import Calibration, calibrations, factor_bounds
from perftop.session.interval import Interval
from perftop.session.session import Session

TICKS = int(synth.TSC_HZ / 10)
Shares = tuple[float, float, float]
"""Shares of a sample: lp0 alone, lp1 alone, both."""


def observe(result: Calibration, low: Floats, high: Floats) -> None:
    """Adds one sample to the calibration, with bounds for each core."""
    assert result.add_evidence(result.evidence_rows(low[None], high[None])[:, None]) == 1


def play(
    counter: str, true_factor: float, factors_by_sample: list[float], samples: list[Shares]
) -> tuple[Session, Interval]:
    """Plays a core whose event counts once in `true_factor` TSC ticks. `factors_by_sample`: the
    candidates in hello."""
    multipliers = [Multiplier(counter, factor, "made") for factor in factors_by_sample]
    greeting = synth.hello([synth.REF, synth.counter(counter)], multipliers=multipliers)
    session = Session(greeting)
    ref, event, frames = [0.0, 0.0], [0.0, 0.0], []
    for seq, (a, b, c) in enumerate([(0.0, 0.0, 0.0), *samples]):
        alone, shared = (a, b), c / 2
        for lp in (0, 1):
            ref[lp] += (alone[lp] + c) * TICKS
            union = {"one_thread": alone[lp], "distributed": alone[lp] + shared}
            event[lp] += union.get(counter, a + b + c) * TICKS / true_factor
        values = {"ref": [int(r) for r in ref], counter: [int(e) for e in event]}
        frames.append(synth.frame(greeting, seq, values))
    session_of(session, frames)
    return session, session.take_interval()


MIXED: list[Shares] = [(0.5, 0.02, 0.1), (0.6, 0.0, 0.05), (0.3, 0.2, 0.3), (0.7, 0.1, 0.1)] * 3


@pytest.mark.parametrize("counter", ["one_thread", "any_thread", "distributed"])
@pytest.mark.parametrize(("true", "believed"), [
    (84.0, [84.0, 1.0]),  # a server whose CPUID reports its crystal of 25 MHz
    (138.0, [132.0, 138.0, 1.0]),  # a workstation's 24 MHz under the server's model number
    (1.0, [88.0, 1.0]),  # Golden Cove: the code of a crystal event counts at the TSC rate
    (88.0, [1.0, 88.0]),
])  # fmt: skip
def test_frames_determine_the_factor(counter: str, true: float, believed: list[float]) -> None:
    session, _ = play(counter, true, believed, MIXED)
    result = session.calibrations[counter]
    assert result.factor == true
    # From here on all samples are valid.
    a, b, c = (float(np.mean(part)) for part in zip(*MIXED, strict=True))
    session, interval = play(counter, true, [true], MIXED)
    assert session.run.span.suspect_count == 0
    assert interval.split.states[0].tolist() == pytest.approx([1 - a - b - c, a, b, c], abs=1e-4)


def test_the_first_candidate_is_used_uncalibrated_without_evidence() -> None:
    idle: list[Shares] = [(0.001, 0.001, 0.0)] * 20
    session, _ = play("one_thread", 84.0, [132.0, 84.0], idle)
    result = session.calibrations["one_thread"]
    assert (result.factor, result.state) == (132.0, "uncalibrated")


def test_a_core_whose_threads_always_run_together_does_not_refute_a_factor() -> None:
    session, _ = play("one_thread", 84.0, [84.0, 1.0], [(0.0, 0.0, 0.99)] * 20)
    assert session.calibrations["one_thread"].state == "uncalibrated"


def test_bounds_that_fit_two_candidates_settle_nothing() -> None:
    """A base clock of 3 GHz: 125 with a crystal of 24 MHz, 120 with one of 25."""
    result = calibrations([Multiplier("x", factor, "made") for factor in (125.0, 120.0)])["x"]
    observe(result, np.full(20, 119.9), np.full(20, 124.6))
    assert (result.factor, result.state) == (125.0, "uncalibrated")
    observe(result, np.full(20, 119.9), np.full(20, 123.0))
    assert (result.factor, result.state) == (120.0, "settled")


def test_states_are_unknown_if_no_candidate_fits() -> None:
    alone: list[Shares] = [(0.6, 0.0, 0.0), (0.4, 0.0, 0.0)] * 4
    session, interval = play("one_thread", 84.0, [100.0, 1.0], MIXED + alone)
    assert session.calibrations["one_thread"].state == "refused"
    assert interval.split.method == ["bounds"]
    assert np.isnan(interval.split.states).all()
    assert not np.isnan(interval.split.low).any()


@pytest.mark.parametrize(("matching_samples", "contradicting_samples", "state"), [
    (1, 2, "uncalibrated"), (2, 4, "refused"), (20, 4, "settled"), (3, 40, "settled"),
])  # fmt: skip
def test_only_an_unsettled_factor_is_refused(
    matching_samples: int, contradicting_samples: int, state: str
) -> None:
    """Two samples of three are too few to decide. A settled factor stays: later contradictions come
    from another program's event and are suspect."""
    result = calibrations([Multiplier("x", 84.0, "made")])["x"]
    observe(result, np.full(matching_samples, 83.9), np.full(matching_samples, 84.1))
    observe(result, np.full(contradicting_samples, 49.9), np.full(contradicting_samples, 50.1))
    assert result.state == state


@pytest.mark.parametrize("true_factor", [1.0, 21.0, 24.0, 80.0, 84.0, 88.0, 96.0, 120.0, 138.0])
@pytest.mark.parametrize("late_reads", ["first", "last", "spread"])
def test_late_reads_in_5_percent_of_samples_decide_nothing(
    true_factor: float, late_reads: str
) -> None:
    """All wrong candidates are refuted, in any order of late reads. A late read fits any factor; in
    the worst case all of them fit one wrong candidate."""
    items = sorted({1.0, 21.0, 24.0, 80.0, 84.0, 88.0, 96.0, 120.0, 138.0} - {true_factor})
    for wrong in items:
        result = calibrations([Multiplier("x", f, "made") for f in (wrong, *items, true_factor)])[
            "x"
        ]
        samples = np.repeat([wrong, true_factor], [20, 380])
        order = {"first": samples, "last": samples[::-1], "spread": np.roll(samples, 7)}[late_reads]
        for chunk in (
            np.array_split(order, 40) if late_reads != "spread" else order.reshape(20, 20).T
        ):
            observe(result, chunk * 0.999, chunk * 1.001)
        assert (result.factor, result.state) == (true_factor, "settled")


def test_a_factor_recovers_from_a_disturbed_start() -> None:
    """The first sample of 48 cores is wrong; the refused factor still settles."""
    result = calibrations([Multiplier("x", factor, "made") for factor in (84.0, 21.0)])["x"]
    observe(result, np.full(48, 49.9), np.full(48, 50.1))
    assert result.state == "refused"
    for _ in range(2):
        observe(result, np.full(48, 83.9), np.full(48, 84.1))
    assert (result.factor, result.state) == (84.0, "settled")


def test_recent_evidence_outweighs_earlier_evidence() -> None:
    """A candidate that fits the idle machine is replaced when the machine works."""
    result = calibrations([Multiplier("x", factor, "made") for factor in (96.0, 24.0)])["x"]
    for _ in range(100):
        observe(result, np.full(48, 10.0), np.full(48, 200.0))
    assert (result.factor, result.state) == (96.0, "uncalibrated")
    for _ in range(20):
        observe(result, np.full(48, 23.9), np.full(48, 24.1))
    assert (result.factor, result.state) == (24.0, "settled")


@given(
    st.lists(
        st.tuples(*[st.floats(min_value=0, max_value=0.33)] * 3), min_size=4, max_size=20
    ),
    st.sampled_from(["one_thread", "any_thread", "distributed"]),
)  # fmt: skip
def test_the_true_factor_is_never_refuted(samples: list[Shares], counter: str) -> None:
    session, _ = play(counter, 84.0, [84.0, 1.0], samples)
    assert session.calibrations[counter].factor == 84.0


# --- what one sample shows


@pytest.mark.parametrize(("low", "high", "evidence"), [
    (100.49, 101.0, [1, 1, 1, 0]), (100.51, 101.0, [0, 0, 0, 1]),  # half a per cent above
    (99.0, 99.51, [1, 1, 1, 0]), (99.0, 99.49, [0, 0, 0, 1]), (90.0, 110.0, [1, 0, 1, 0]),
    (97.1, 100.0, [1, 1, 1, 0]), (97.0, 100.0, [1, 0, 1, 0]),  # too wide for one candidate
    (100.0, 100.0, [1, 1, 1, 0]), (101.0, 100.0, [0, 0, 0, 0]), (np.nan, 100.0, [0, 0, 0, 0]),
    (60.0, 90.0, [0, 0, 0, 0]),  # no candidate fits, but bounds this wide prove nothing
])  # fmt: skip
def test_bounds_support_a_candidate_within_its_tolerance(
    low: float, high: float, evidence: list[int]
) -> None:
    result = calibrations([Multiplier("x", 100.0, "made")])["x"]
    rows = result.evidence_rows(np.array([[low]]), np.array([[high]]))
    assert rows.tolist() == [evidence]


@pytest.mark.parametrize(("matching", "contradicting", "state"), [
    (0, 2, "uncalibrated"), (0, 3, "refused"), (2, 3, "refused"), (2, 2, "uncalibrated"),
    (3, 0, "settled"), (2, 0, "uncalibrated"),
])  # fmt: skip
def test_three_samples_decide(matching: int, contradicting: int, state: str) -> None:
    result = calibrations([Multiplier("x", 84.0, "made")])["x"]
    observe(result, np.full(matching, 83.9), np.full(matching, 84.1))
    observe(result, np.full(contradicting, 49.9), np.full(contradicting, 50.1))
    assert result.state == state


@pytest.mark.parametrize(("span_s", "slack"), [(1.0, 3e-4), (0.1, 3e-3)])
@pytest.mark.parametrize(("event", "shares", "bounds"), [
    ("one_thread", (0.5, 0.2), (0.3, 0.5)), ("one_thread", (0.2, 0.5), (0.0, 0.2)),
    ("any_thread", (0.5, 0.2), (0.5, 0.7)), ("any_thread", (0.8, 0.7), (0.8, 1.0)),
    ("distributed", (0.5, 0.2), (0.5, 0.7)), ("distributed", (0.8, 0.7), (0.8, 1.5)),
    ("one_thread", (0.021, 0.0), (0.021, 0.021)), ("one_thread", (0.019, 0.5), (np.nan, np.nan)),
    ("any_thread", (0.0, 0.021), (0.021, 0.021)), ("any_thread", (0.019,) * 2, (np.nan, np.nan)),
])  # fmt: skip
def test_counts_bound_the_factor_up_to_the_delay_between_reads(
    event: str, shares: tuple[float, float], bounds: tuple[float, float], span_s: float,
    slack: float,
) -> None:  # fmt: skip
    """The event counts a hundredth of the ticks."""
    own, other, counted, span = (np.array([part]) for part in (*shares, 0.01, span_s))
    found = [float(bound[0]) for bound in factor_bounds(event, own, counted, other, span)]
    low, high = max(bounds[0] - slack, 0), bounds[1] + slack
    assert found == pytest.approx([100 * low, 100 * high], nan_ok=True)
    assert np.isnan(factor_bounds(event, own, 0 * counted, other, span)).all()
