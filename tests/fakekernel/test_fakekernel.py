"""The registers of the fake kernel behave like those of the manuals.

That its counters agree with its truth is checked by the tests that compare the probe's numbers with
that truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakekernel.machine import Machine, Spec
from fakekernel.models import MODELS

START = 7_000_000_333_000  # start time in ns, which is not a multiple of the period
EN, OS, USR = 1 << 22, 1 << 17, 1 << 16
SMT_ON = [name for name in MODELS if name not in ("zen3", "knights-landing")]


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

    def lane(self, core: int, name: str, lp: int = 0) -> npt.NDArray[Any]:
        """Returns the modes or the clock in each of the last 130,000 microseconds."""
        plan = self.machine.plans[core]
        index = (np.arange(130_000) + (self.ns // 1000 - 130_000)) % 100_000
        clock = [(piece["us"], piece["hz"]) for piece in plan["clock"]]
        rows = clock if name == "hz" else [row[:2] for row in plan["lps"][lp]]
        lengths, values = zip(*rows, strict=True)
        return np.repeat(values, lengths)[index]

    def active(self, core: int, lp: int, rings: str = "UK") -> npt.NDArray[np.bool_]:
        return np.isin(self.lane(core, "modes", lp=lp), list(rings))


def select(code: int, umask: int, flags: int = EN | OS | USR) -> int:
    return flags | umask << 8 | code


@pytest.mark.parametrize(
    ("flags", "rings"), [(OS | USR, "UK"), (OS, "K"), (USR, "U"), (0, ""), (OS | USR | EN, "")]
)
def test_selects_set_the_rings_and_need_enable(flags: int, rings: str) -> None:
    """The last case clears EN, because EN is among the toggled flags."""
    bench = Bench()
    bench.write(0, 0x186, select(0x3C, 0, flags ^ EN))
    advance = bench.counter_advance(0, 0xC1)
    hz = bench.lane(0, "hz") / 1e6
    cycles = (bench.active(0, 0, rings) * hz).sum() if rings else 0
    assert advance == pytest.approx(cycles, abs=1)


def test_global_enable_stops_and_starts() -> None:
    bench = Bench()
    bench.write(0, 0x186, select(0x3C, 0))
    bench.write(0, 0x38D, 0x330)
    assert bench.counter_advance(0, 0xC1) > 0
    bench.write(0, 0x38F, 0x2_0000_000E)
    assert bench.counter_advance(0, 0xC1) == 0
    assert bench.counter_advance(0, 0x30B) == 0
    assert bench.counter_advance(0, 0x30A) > 0  # bit 33 is still set
    held = bench.read(0, 0xC1)
    bench.write(0, 0x38F, 0xF)
    assert bench.read(0, 0xC1) == held
    assert bench.counter_advance(0, 0xC1) > 0
    assert bench.counter_advance(0, 0x30A) == 0
    assert bench.counter_advance(0, 0x309) == 0  # its rings are 0


@pytest.mark.parametrize(
    ("name", "reg", "bits"), [("skylake-sp", 0xC1, 48), ("knights-landing", 0x30A, 40)]
)
def test_counters_wrap_at_their_width(name: str, reg: int, bits: int) -> None:
    bench = Bench(name)
    bench.machine.cpus[0].poke(reg, (1 << bits) - 1000)
    bench.write(0, 0x186, select(0x3C, 0))
    bench.write(0, 0x38D, 0x333)
    advance = bench.counter_advance(0, reg)
    assert advance < 0
    cycles = (bench.active(0, 0) * bench.lane(0, "hz") / 1e6).sum()
    assert advance + (1 << bits) == pytest.approx(cycles, abs=1)


def test_a_written_counter_continues_from_its_value() -> None:
    bench = Bench()
    bench.write(0, 0x186, select(0x3C, 0))
    bench.write(0, 0xC1, 0x80000000)
    assert bench.read(0, 0xC1) == 0x80000000
    bench.ns += 130_000_000
    assert bench.read(0, 0xC1) > 0x80000000


@pytest.mark.parametrize("name", SMT_ON)
def test_reference_ticks_advance_in_quanta(name: str) -> None:
    bench = Bench(name)
    bench.write(0, 0x38D, 0x333)
    mperf, residues = [], set()
    for us in (137, 1_003, 20_011, 50_007, 77):
        bench.ns += us * 1000 + 13
        residues.add(bench.read(0, 0x30B) % bench.model.ticks)
        mperf.append(bench.read(0, 0xE7) % bench.model.ticks)
    assert len(residues) == 1
    assert len(set(mperf)) > 1


def test_package_idle_and_energy_follow_the_plan() -> None:
    bench = Bench("haswell-ep")
    before = {reg: bench.read(3, reg) for reg in (0x60D, 0x3F9, 0x611)}
    bench.ns += 130_000_000
    advance = {reg: bench.read(3, reg) - value for reg, value in before.items()}
    lps = [(core, lp) for core in (0, 1) for lp in (0, 1)]
    idle = np.all([bench.active(core, lp, "I") for core, lp in lps], axis=0).sum()
    assert idle > 0
    assert advance[0x60D] + advance[0x3F9] == pytest.approx(idle * bench.model.tsc_hz / 1e6, abs=2)
    active = sum(bench.active(core, lp).sum() for core, lp in lps)
    joule = 20 * 0.13 + 10 * active / 1e6
    assert advance[0x611] == pytest.approx(joule * (1 << 14), abs=1)
