"""How many CPUs worked together."""

from __future__ import annotations

import numpy as np
import pytest

from perftop.model.tasks import TaskSnapshot
from perftop.session.task_times import BusyCpus

LD = TaskSnapshot({"2": [7, "ld", 1.0], "0": [8, "idler", 0.1]})


def test_a_build_that_ends_in_one_linker() -> None:
    """All four for 4 s, two for 1 s, the linker alone for 3 s, nobody for 2 s."""
    busy = BusyCpus()
    for util, count in (
        ([0.95] * 4, 40),
        ([1, 1, 0, 0], 10),
        ([0, 0, 1, 0.02], 30),
        ([0.1] * 4, 20),
    ):
        for _ in range(count):
            busy.add(np.array(util, float), 0.1, LD)
    assert [busy.all_s, busy.between_s, busy.one_s, busy.none_s] == pytest.approx([4, 1, 3, 2])
    assert busy.alone == "ld"


def test_cpus_that_are_off_are_none_of_all() -> None:
    busy = BusyCpus()
    busy.add(np.array([1.0, np.nan, 1.0]), 1.0, TaskSnapshot())
    busy.add(np.array([np.nan, np.nan]), 1.0, TaskSnapshot())
    assert (busy.all_s, busy.none_s) == (1.0, 0.0)


def test_who_ran_alone_for_a_short_time_is_not_named() -> None:
    busy = BusyCpus()
    for look in (LD, TaskSnapshot(), TaskSnapshot()):
        busy.add(np.array([1.0, 0.0]), 1.0, look)
    assert busy.alone == ""
