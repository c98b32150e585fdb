"""A CPU comes to rest and awakes again at two different shares."""

from __future__ import annotations

import numpy as np

from perftop.model.evaluation import MAX_RESTING_SHARE, MIN_AWAKE_SHARE, resting


def test_a_cpu_between_both_shares_stays_what_it_was() -> None:
    between = np.array([(MAX_RESTING_SHARE + MIN_AWAKE_SHARE) / 2])
    assert resting(np.array([MAX_RESTING_SHARE * 0.9])).tolist() == [True]
    assert resting(between).tolist() == [False]
    assert resting(between, np.array([True])).tolist() == [True]
    assert resting(between, np.array([False])).tolist() == [False]
    assert resting(np.array([MIN_AWAKE_SHARE]), np.array([True])).tolist() == [False]


def test_a_cpu_of_which_nothing_is_known_is_not_at_rest() -> None:
    assert resting(np.array([np.nan]), np.array([True])).tolist() == [False]
