"""A value that could not be read in one of many samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import CpuLoad, Machine
from played import session_of

from perftop.session.session import Session

SAMPLES, UNREAD = 40, 17


class Unread(Machine):
    """A machine on which the cycles of CPU 1 cannot be read in one sample."""

    def _advance(self, cpu: int, samples: int) -> dict[str, Any]:
        cells: dict[str, Any] = super()._advance(cpu, samples)
        if cpu == 1 and self._seq == UNREAD:
            cells["cycles"] = None
        return cells


@pytest.mark.parametrize("at_once", [1, SAMPLES])
def test_one_unread_value_does_not_make_a_run_unknown(at_once: int) -> None:
    machine = Unread(cores=2)
    machine.does = {cpu: CpuLoad(1.0, hz=(2.0 if cpu == 1 else 3.0) * 1e9) for cpu in range(4)}
    session = Session(machine.hello)
    frames = [machine.frame(seq) for seq in range(SAMPLES)]
    for first in range(0, SAMPLES, at_once):
        session_of(session, frames[first : first + at_once])
    whole = session.run_interval().values
    assert whole["busy_hz"] == pytest.approx([3e9, 2e9, 3e9, 3e9], rel=1e-3)
    assert np.isfinite(whole["ipc"]).all()
    assert whole.mean("busy_hz", session.shown) == pytest.approx(2.75e9, rel=0.02)
