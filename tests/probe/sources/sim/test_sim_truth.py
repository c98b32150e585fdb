"""Compares the schedule's closed forms with plain interval arithmetic, and checks the truth
computed by them."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nightly import INFORMATIVE_SCENARIOS, cases_by_day
from sim_streams import amounts_between

from perfprobe.sources.sim.machine import SCENARIOS, Ints, SimMachine, parse_spec
from perfprobe.sources.sim.schedule import Row, Schedule, ScheduleCells
from perfprobe.sources.sim.script import CELL_NS, Load, Script
from perfprobe.sources.sim.truth import truth

MOMENTS = "work_start", "poll_start", "work_end", "steal_end"
VARIED_LOADS = [
    Load("a", 400, 300, spread=700, ipc=900, kernel=300, iowait=250),
    Load("b", 550, 500, start=200, spread=500, ipc=1700, active=600),
    Load("c", 300, 100, spread=900, kernel=700, steal=250, license=1),
    Load("d", 1000, ipc=2000, license=2),
    Load("e", 30, 60, spread=990),
]


def varied_schedule(smt: int, seed: int = 3, cores: int = 3) -> Schedule:
    """Returns a schedule with cells of every kind: work, steal, polls, short and long halts, SMIs,
    an offline CPU."""
    machine = SimMachine.from_spec(parse_spec(f"steady,cpus={smt * cores},smt={smt}"))
    script = Script(machine)
    for seconds in (0.03, 0.05, 0.02):
        stage = script.add_stage(seconds)
        for cpu in range(machine.cpus):
            stage.run([cpu], VARIED_LOADS[(cpu + len(script.stages)) % len(VARIED_LOADS)])
        stage.halt_period_ns[0], stage.halt_ns[0] = 850_001, 8_500
        stage.halt_period_ns[1], stage.halt_ns[1] = 1_000_000, 125_000
        stage.wobble_mhz[:] = 50
        stage.online[machine.cpus - 1] = len(script.stages) != 2
    script.stages[1].smi_every = 2
    return Schedule(machine, script, seed)


def halts(cells: ScheduleCells, core: int) -> list[tuple[int, int]]:
    """Intervals in which the core is halted."""
    period, phase, length = (
        int(a[0, 0, core]) for a in (cells.halt_period, cells.halt_phase, cells.halt)
    )
    result = [(b + phase, b + phase + length) for b in range(0, CELL_NS, period)] if length else []
    return [(max(0, a), min(CELL_NS, b)) for a, b in result if a < CELL_NS]


def sweep(schedule: Schedule, t0: int, t1: int) -> Ints:
    """Integrals over [t0, t1) computed from the intervals: time is cut at each of their edges, and
    the middle of each piece determines its state."""
    machine = schedule.machine
    out = np.zeros((len(Row), machine.slots), np.int64)
    for cell in range(t0 // CELL_NS, -(-t1 // CELL_NS)):
        cells = schedule.cells(cell, 1)
        begin, end = max(t0 - cell * CELL_NS, 0), min(t1 - cell * CELL_NS, CELL_NS)
        for core in range(machine.cores):
            stops = halts(cells, core)
            cpus = range(core, machine.slots, machine.cores)
            at = [
                {n: int(getattr(cells, n)[0, t, core]) for n in MOMENTS} for t in range(machine.smt)
            ]
            edges = {begin, end, *itertools.chain(*stops), *(v for a in at for v in a.values())}
            cuts = sorted(edge for edge in edges if begin <= edge <= end)
            for p, q in itertools.pairwise(cuts):
                middle = (p + q) / 2
                halted = any(a <= middle < b for a, b in stops)
                runs = [a["work_start"] <= middle < a["work_end"] and not halted for a in at]
                for t, cpu in enumerate(cpus):
                    add_piece(out[:, cpu], cells, (0, t, core), at[t], middle, runs, q - p)
            for t, cpu in enumerate(cpus):
                out[Row.ENTRIES, cpu] += (
                    at[t]["work_start"] < at[t]["steal_end"] < CELL_NS
                    and begin < at[t]["steal_end"] <= end
                )
                smi = int(cells.smi_end[0, 0, core])
                out[Row.SMI, cpu] += begin < smi <= end and int(cells.online[0, t, core])
    return out


def add_piece(
    out: Ints,
    cells: ScheduleCells,
    where: tuple[int, int, int],
    at: dict[str, int],
    middle: float,
    runs: list[bool],
    ns: int,
) -> None:
    """Adds a piece of `ns` with a constant state to the integrals of a CPU."""
    run = runs[where[1]]
    mhz, mips, kernel_mhz, kernel_mips = (
        int(rates[where])
        for rates in (
            cells.mhz,
            cells.instructions_per_us,
            cells.kernel_cycles_per_us,
            cells.kernel_instructions_per_us,
        )
    )
    if run:
        out[Row.RUN] += ns
        out[Row.CYCLES] += ns * mhz
        out[Row.INSTRUCTIONS] += ns * mips
        out[Row.KERNEL_CYCLES] += ns * kernel_mhz
        out[Row.KERNEL_INSTRUCTIONS] += ns * kernel_mips
        out[Row.TRAFFIC] += ns * int(cells.traffic_mbps[where])
        out[Row.MISSES] += ns * int(cells.miss_rate[where])
        if level := int(cells.simd_level[where]):
            out[(Row.LICENSE_1, Row.LICENSE_2)[level - 1]] += ns * mhz
    out[Row.SMT] += ns * (any(runs) if len(runs) > 2 else run and sum(runs) == 1)
    if not cells.online[where]:
        return
    out[Row.ONLINE] += ns
    if at["work_start"] <= middle < at["poll_start"]:
        out[Row.BUSY] += ns
        out[Row.SYSTEM] += ns * int(cells.kernel_permille[where])
    elif at["poll_start"] <= middle < at["work_end"]:
        out[Row.POLL] += ns
    elif at["work_end"] <= middle < at["steal_end"]:
        out[Row.STEAL] += ns
    else:
        out[Row.IDLE] += ns
        out[Row.IOWAIT] += ns * int(cells.iowait_permille[where])


@pytest.mark.parametrize("smt", [1, 2, 4, 8])
def test_closed_forms_equal_interval_arithmetic(smt: int) -> None:
    schedule = varied_schedule(smt)
    for t0, t1 in ((0, 100_000_000), (3_333_333, 3_333_334), (61_234_567, 187_654_321)):
        got, wanted = amounts_between(schedule, t0, t1), sweep(schedule, t0, t1)
        for row in Row:
            assert got[row].tolist() == wanted[row].tolist(), row.name
    everything = amounts_between(schedule, 0, 200_000_000)
    assert (everything.sum(axis=1) > 0).all(), "a row that this machine never moves tests nothing"


# --- output of `truth` ----------------------------------------------------------------------------


def lines(text: str, seconds: float, kind: str) -> list[dict[str, Any]]:
    return [line for line in truth(text, seconds) if line["type"] == kind]


def mean_during(
    rows: list[dict[str, Any]], cpus: list[int], start: float, end: float, key: str
) -> float:
    """The mean of a value of these CPUs over the windows between `start` and `end`."""
    values = [r[key] for r in rows if r["cpu"] in cpus and r["start"] >= start and r["end"] <= end]
    assert values
    return float(np.mean(values))


@pytest.mark.parametrize("scenario", cases_by_day(SCENARIOS, INFORMATIVE_SCENARIOS))
def test_truth_is_consistent(scenario: str) -> None:
    spec = f"sim:{scenario},cpus=16"
    result = list(truth(spec, 34.5))
    assert json.loads(json.dumps(result)) == result
    assert [x["start"] for x in result] == sorted(x["start"] for x in result)
    assert len([x for x in result if x["type"] == "cpu"]) == 35 * 16
    for line in result:
        if line["type"] == "core":
            assert sum(line["smt"].values()) == pytest.approx(1, abs=1e-12)
            assert min(line["smt"].values()) >= 0
        elif line["type"] == "cpu" and line["util"] is not None:
            assert line["util"] + line["halt"] == pytest.approx(1, abs=1e-12)
            halted = line["idle"] + line["involuntary"] + line["steal"]
            assert line["halt"] == pytest.approx(halted, abs=1e-12)
            assert line["involuntary"] >= 0
        elif line["type"] == "episode":
            assert line["cpus"]
            assert line["end"] is None or line["start"] <= line["end"] <= 34.5
    assert result == list(truth(spec, 34.5)), "not the same twice"
    if scenario not in {"idle", "steady"}:
        assert result != list(truth(f"{spec},seed=2", 34.5)), "the seed changes nothing"


def episode(text: str, kind: str, cause: str | None) -> dict[str, Any]:
    return next(e for e in lines(text, 37, "episode") if (e["kind"], e["cause"]) == (kind, cause))


@pytest.mark.parametrize(("scenario", "kind", "cause", "key", "change"), [
    ("turbo-drop", "turbo-drop", "power-pl1", "busy_hz", lambda a, b, d: a - b == d),
    ("license", "turbo-drop", "license", "busy_hz", lambda a, b, d: a - b == d),
    ("throttle", "turbo-drop", "thermal", "busy_hz", lambda a, b, d: a - b == d),
    ("throttle", "throttle", "thermal", "halt", lambda a, b, d: b - a == d),
    ("throttle", "involuntary-halt", "modulation", "involuntary", lambda a, b, d: b - a == d),
    ("neighbour", "neighbour", "sibling", "ipc", lambda a, b, d: 1 - b / a == d),
    ("neighbour", "steal", None, "steal", lambda a, b, d: b - a == d),
    ("memory", "neighbour", "memory", "ipc", lambda a, b, d: 1 - b / a == d),
    ("halts", "involuntary-halt", "smm", "involuntary", lambda a, b, d: b - a == d),
])  # fmt: skip
def test_episodes_have_their_scripted_depth(
    scenario: str,
    kind: str,
    cause: str | None,
    key: str,
    change: Callable[[float, float, Any], bool],
) -> None:
    report = episode(f"sim:{scenario}", kind, cause)
    rows = lines(f"sim:{scenario}", 37, "cpu")
    before = mean_during(rows, report["cpus"], report["start"] - 3, report["start"], key)
    within = mean_during(rows, report["cpus"], report["start"], report["end"], key)
    near = pytest.approx(report["depth"], rel=0.02, abs=1e-4)
    assert change(before, within, near), (before, within, report["depth"])


def test_truth_counts_threads_of_any_number() -> None:
    (core, *_) = lines("sim:steady,smt=4", 1, "core")
    assert core["smt"] == {"neither": 0, "active_threads": 4}
    (core, *_) = lines("sim:steady,smt=1", 1, "core")
    assert core["smt"] == {"neither": 0, "lp0": 1, "lp1": 0, "both": 0}


def test_an_offline_cpu_has_no_true_values() -> None:
    rows = [r for r in lines("sim:hotplug", 18, "cpu") if r["cpu"] == 15]
    assert [r["online"] for r in rows] == [1] * 8 + [0] * 8 + [1] * 2
    assert all((r["util"] is None) == (r["online"] == 0) for r in rows)
    (off, on) = lines("sim:hotplug", 18, "episode")
    assert (off["kind"], off["start"], off["end"]) == ("offline", 8, 16)
    assert (on["kind"], on["start"], on["end"]) == ("online", 16, 16)


def test_truth_refuses_an_invalid_duration() -> None:
    month_s = 31 * 86_400
    for duration in (0, -1, month_s, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="duration"):
            next(truth("sim", duration))
    assert next(truth("sim", month_s - 1))["start"] == 0
