"""A machine with a clock that the test sets, and its plan as arrays for comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fakekernel.machine import Machine, Spec

START = 7_000_000_333_000  # start time in ns, which is not a multiple of the period
ANY, EN, OS, USR = 1 << 21, 1 << 22, 1 << 17, 1 << 16


class Bench:
    """A machine whose clock the test advances, and its plan as arrays of microseconds."""

    def __init__(self, model: str = "skylake-sp", **spec: Any) -> None:
        self.ns = START
        self.machine = Machine(Spec(model=model, **spec), lambda: self.ns)
        self.model = self.machine.model

    def read(self, cpu: int, reg: int) -> int:
        return self.machine.cpus[cpu].read(reg)

    def write(self, cpu: int, reg: int, value: int) -> None:
        self.machine.cpus[cpu].write(reg, value)

    def counter_advance(self, cpu: int, reg: int, us: int = 130_000) -> int:
        before = self.read(cpu, reg)
        self.ns += us * 1000
        return self.read(cpu, reg) - before

    def lane(self, core: int, name: str, us: int = 130_000, lp: int = 0) -> npt.NDArray[Any]:
        """Returns the modes, the IPC or the clock in each of the last `us` microseconds."""
        plan = self.machine.plans[core]
        index = (np.arange(us) + (self.ns // 1000 - us)) % 100_000
        if name == "hz":
            lengths, values = zip(*[(e["us"], e["hz"]) for e in plan["clock"]], strict=True)
        else:
            column = {"modes": 1, "ipc": 2}[name]
            rows = plan["lps"][lp]
            lengths, values = zip(*[(row[0], row[column]) for row in rows], strict=True)
        return np.repeat(values, lengths)[index]

    def active(self, core: int, lp: int, rings: str = "UK") -> npt.NDArray[np.bool_]:
        return np.isin(self.lane(core, "modes", lp=lp), list(rings))


def select(code: int, umask: int, flags: int = EN | OS | USR) -> int:
    return flags | umask << 8 | code


def ticks(bench: Bench, us: float) -> float:
    return us * bench.model.tick_hz / 1e6
