"""Values that could not be read in some of many samples."""

from __future__ import annotations

import numpy as np
import pytest
from known_truths import SAMPLES, UNREAD, UnreadCycles, session_in_batches


@pytest.mark.parametrize("at_once", [1, SAMPLES])
def test_an_unread_value_does_not_make_the_run_unknown(at_once: int) -> None:
    session = session_in_batches(UnreadCycles(cores=2), at_once)
    whole = session.run_interval().values
    assert whole["busy_hz"] == pytest.approx([3e9, 2e9, 3e9, 3e9], rel=1e-3)
    assert np.isfinite(whole["ipc"]).all()
    assert whole.mean("busy_hz", session.selected) == pytest.approx(2.75e9, rel=0.02)
    shares = session.run.read_shares()
    assert shares["busy_hz"] == pytest.approx(37 / 39)
    assert "util" not in shares, "this metric needs no cycles"


@pytest.mark.parametrize("at_once", [1, SAMPLES])
@pytest.mark.parametrize(("unread", "is_known"), [(2, True), (3, False)])
def test_a_mean_requires_90_percent_of_the_samples(
    unread: int, is_known: bool, at_once: int
) -> None:
    """An unread value affects two of the 39 differences."""
    machine = UnreadCycles(cores=2)
    machine.unread = range(UNREAD, UNREAD + unread)
    whole = session_in_batches(machine, at_once).run_interval().values
    assert np.isfinite(whole["busy_hz"]).tolist() == [True, is_known, True, True]
    assert np.isfinite(whole["util"]).all(), "this metric needs no cycles"


@pytest.mark.parametrize(("samples", "is_known"), [(5, True), (3, True), (2, False)])
def test_one_of_a_few_samples_may_be_missing(samples: int, is_known: bool) -> None:
    """The last of them is unread. The first frame is only the start of the first sample."""
    machine = UnreadCycles(cores=2)
    machine.unread = range(samples, samples + 1)
    session = session_in_batches(machine, samples + 1, samples + 1)
    assert np.isfinite(session.run_interval().values["busy_hz"][1]) == is_known
