"""Compares the fake kernel with its own plan, expanded here microsecond by microsecond."""

from __future__ import annotations

import numpy as np
import pytest

from fakekernel.models import MODELS
from fakekernel.oracle import EN, OS, USR, Bench, select, ticks

SMT_ON = [name for name in MODELS if name not in ("zen3", "knights-landing")]


def expected(bench: Bench, core: int) -> dict[str, float]:
    """Expected counts of the first LP of a core over the last 130 ms, by kind of event."""
    active, sibling = bench.active(core, 0), bench.active(core, 1)
    hz, ipc = bench.lane(core, "hz") / 1e6, bench.lane(core, "ipc") / 1000
    assert 0 < (active & sibling).sum() < active.sum() < 130_000
    return {
        "cycles": (active * hz).sum(),
        "instructions": (active * hz * ipc).sum(),
        "tick": ticks(bench, active.sum()),
        "ref": ticks(bench, active.sum()) * bench.model.ticks,
        "one": ticks(bench, (active & ~sibling).sum()),
    }


@pytest.mark.parametrize("name", SMT_ON)
@pytest.mark.parametrize("core", [0, 1])
def test_every_event_is_the_integral_of_the_plan(name: str, core: int) -> None:
    bench = Bench(name)
    gp, cpu = bench.model.gp, core  # first threads come first
    events = list(bench.model.events.items())
    bench.write(cpu, 0x38D, 0x333)
    for some in (events[i : i + gp] for i in range(0, len(events), gp)):
        for i, ((code, umask), _) in enumerate(some):
            bench.write(cpu, 0x186 + i, select(code, umask))
        kinds = [kind for _, kind in some] + ["instructions", "cycles", "ref"]
        registers = [0xC1 + i for i in range(len(some))] + [0x309, 0x30A, 0x30B]
        before = [bench.read(cpu, reg) for reg in registers]
        bench.ns += 130_000_000
        want = expected(bench, core)
        for kind, reg, start in zip(kinds, registers, before, strict=True):
            error = bench.model.ticks if kind == "ref" else 1
            assert bench.read(cpu, reg) - start == pytest.approx(want[kind], abs=error), kind


@pytest.mark.parametrize("name", list(MODELS))
def test_clocks_run_while_unhalted(name: str) -> None:
    bench = Bench(name)
    shift = bench.model.mperf_shift
    regs = [(0xE7, 0xE8)] + ([(0xC00000E7, 0xC00000E8)] if bench.model.amd else [])
    for mperf, aperf in regs:
        m = bench.counter_advance(0, mperf)
        assert m << shift == pytest.approx(
            bench.active(0, 0).sum() * bench.model.tsc_hz / 1e6, abs=1 << shift
        )
        a = bench.counter_advance(0, aperf)
        cycles = (bench.active(0, 0) * bench.lane(0, "hz") / 1e6).sum()
        assert a << shift == pytest.approx(cycles, abs=1 << shift)
    assert bench.counter_advance(0, 0x10, 1_000_000) == bench.model.tsc_hz


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


def test_limits_and_sticky_bits_follow_the_plan() -> None:
    lps = [[[70_000, "U", 1000], [30_000, "K", 500]], [[100_000, "I"]]]
    clock = [
        {"us": 60_000, "hz": 3_700_000_000},
        {"us": 40_000, "hz": 2_000_000_000, "limit": 0x400, "therm": 1, "smi": 3},
    ]
    plan = {"lps": lps, "clock": clock}
    bench = Bench(plans=[plan, plan])
    bench.ns = 100_000_000_000
    assert bench.read(0, 0x64F) == 0x400 << 16
    assert bench.read(0, 0x19C) & 3 == 2
    smi, throttled = bench.read(0, 0x34), bench.read(0, 0x613)
    bench.ns += 80_000_000
    assert bench.read(0, 0x64F) == 0x400 << 16 | 0x400
    assert bench.read(0, 0x19C) & 3 == 3
    assert bench.read(0, 0x34) - smi == 3
    assert bench.read(0, 0x613) - throttled == pytest.approx(0.02 * 1024, abs=1)


@pytest.mark.parametrize("name", list(MODELS))
def test_truth_is_the_plan(name: str) -> None:
    bench = Bench(name)
    t0 = bench.ns
    bench.ns += 130_000_000
    truth = bench.machine.truth(t0, bench.ns)["cores"][1]
    lanes = [bench.active(1, lp) for lp in range(bench.machine.threads)]
    masks = sum(lane.astype(int) << lp for lp, lane in enumerate(lanes))
    shares = np.bincount(masks, minlength=1 << len(lanes)) / 130_000
    assert truth["masks"] == pytest.approx(list(shares))
    if len(lanes) == 2:
        assert list(truth["smt"]) == ["neither", "lp0", "lp1", "both"]
        assert min(truth["smt"].values()) > 0.05
    hz, lp = bench.lane(1, "hz"), truth["lps"][1]
    kernel, ipc = bench.active(1, 1, "K"), bench.lane(1, "ipc", lp=1) / 1000
    cycles, work = (lanes[1] * hz).sum(), (lanes[1] * hz * ipc).sum()
    assert lp["cpu"] == 3
    assert lp["util"] == pytest.approx(lanes[1].mean())
    assert lp["busy_hz"] == pytest.approx(cycles / lanes[1].sum())
    assert lp["net_hz"] == pytest.approx(cycles / 130_000)
    assert lp["ipc"] == pytest.approx(work / cycles)
    assert lp["kernel_cycles"] == pytest.approx((kernel * hz).sum() / cycles)
    assert lp["kernel_instructions"] == pytest.approx((kernel * hz * ipc).sum() / work)
    assert lp["idle"] == pytest.approx(bench.active(1, 1, "I").mean())
    assert lp["involuntary"] == pytest.approx(bench.active(1, 1, "H").mean())
