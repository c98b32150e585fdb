"""Compares the schedule's closed forms with plain interval arithmetic, and checks the truth
computed by them."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import INFORMATIVE_SCENARIOS, cases_by_day
from sim_streams import amounts_between

from perfprobe.sources.sim import scenarios as scripts
from perfprobe.sources.sim.machine import SCENARIOS, Ints, SimMachine, parse_spec
from perfprobe.sources.sim.schedule import Row, Schedule, ScheduleCells, ScheduleCursor, integrals
from perfprobe.sources.sim.script import CELL_NS, STREAM, Load, Script
from perfprobe.sources.sim.truth import truth

MOMENTS = "work_start", "poll_start", "work_end", "steal_end"
VARIED_LOADS = [
    Load("a", 400, 300, wander=700, ipc=900, kernel=300, iowait=250),
    Load("b", 550, 500, start=200, wander=500, ipc=1700, active=600),
    Load("c", 300, 100, wander=900, kernel=700, steal=250, license=1),
    Load("d", 1000, ipc=2000, license=2),
    Load("e", 30, 60, wander=990),
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


moments = st.integers(0, 250_000_000)


@pytest.mark.parametrize("smt", [1, 2, 4, 8])
def test_closed_forms_equal_interval_arithmetic(smt: int) -> None:
    schedule = varied_schedule(smt)
    for t0, t1 in ((0, 100_000_000), (3_333_333, 3_333_334), (61_234_567, 187_654_321)):
        got, wanted = amounts_between(schedule, t0, t1), sweep(schedule, t0, t1)
        for row in Row:
            assert got[row].tolist() == wanted[row].tolist(), row.name
    everything = amounts_between(schedule, 0, 200_000_000)
    assert (everything.sum(axis=1) > 0).all(), "a row that this machine never moves tests nothing"


@settings(max_examples=25)
@given(moments, moments, st.integers(0, 1000))
def test_closed_forms_at_any_two_moments(a: int, b: int, seed: int) -> None:
    schedule = varied_schedule(2, seed, cores=2)
    t0, t1 = min(a, b), min(min(a, b) + 35_000_000, max(a, b))
    assert (amounts_between(schedule, t0, t1) == sweep(schedule, t0, t1)).all()


@given(moments, moments, st.integers(0, 1000))
def test_algebra_of_the_four_states(a: int, b: int, seed: int) -> None:
    """Applied to the truth, no formula of the SMT states gives a negative value, and all formulas
    agree."""
    schedule = varied_schedule(2, seed, cores=4)
    t0, t1 = min(a, b), max(a, b)
    total = amounts_between(schedule, t0, t1).reshape(len(Row), 2, -1)
    (r0, r1), (one0, one1) = total[Row.RUN], total[Row.SMT]
    both = r0 - one0
    assert (both == r1 - one1).all()
    anyone = one0 + one1 + both
    neither = (t1 - t0) - anyone
    for state in (neither, one0, one1, both):
        assert (state >= 0).all()
    assert (anyone - r1 == one0).all()
    assert (anyone - r0 == one1).all()
    assert (r0 + r1 - anyone == both).all()
    assert (np.maximum(r0, r1) <= anyone).all()
    assert (anyone <= np.minimum(t1 - t0, r0 + r1)).all()


@settings(max_examples=25)
@given(moments, moments, moments)
def test_integrals_add_up(a: int, b: int, c: int) -> None:
    schedule = varied_schedule(4)
    t0, t1, t2 = sorted((a, b, c))
    parts = amounts_between(schedule, t0, t1) + amounts_between(schedule, t1, t2)
    assert (parts == amounts_between(schedule, t0, t2)).all()


def test_cells_do_not_depend_on_the_order_of_requests() -> None:
    schedule = varied_schedule(2)
    many = integrals(schedule.cells(0, 60), CELL_NS)
    for cell in range(60):
        assert (integrals(schedule.cells(cell, 1), CELL_NS)[:, 0] == many[:, cell]).all()


@pytest.mark.parametrize(
    "step_ns", cases_by_day([7_000_000, 100_000_000, 1_234_567_890], [7_000_000])
)
def test_cursor_equals_integrals_from_the_start(step_ns: int) -> None:
    """Each CPU is read up to a different time, across chunks and cells."""
    schedule = varied_schedule(2)
    schedule.chunk = 16
    cursor = ScheduleCursor(schedule)
    late = np.array([0, 5_000, 60_000, 300_000, 12_000_000, 31_000_000])
    so_far, last = np.zeros((len(Row), 6), np.int64), 0
    for now in range(0, 12 * step_ns if step_ns < 10**9 else 4 * step_ns, step_ns):
        so_far, last = so_far + sweep(schedule, last, now), now
        got = cursor.at_times(now, now + late)
        for cpu in range(6):
            wanted = so_far + sweep(schedule, now, now + int(late[cpu]))
            assert (got[:, cpu] == wanted[:, cpu]).all(), (now, cpu)


def test_work_has_the_length_of_its_load() -> None:
    schedule = varied_schedule(2)
    for name in ("idle", "smt-mix"):
        machine = SimMachine.from_spec(parse_spec(name))
        schedule = Schedule(machine, scripts.make_script(name, machine), 1)
        cells = schedule.cells(0, 1000)
        assert (cells.work_start >= 0).all()
        assert (cells.work_start <= cells.poll_start).all()
        assert (cells.poll_start <= cells.work_end).all()
        assert (cells.work_end <= cells.steal_end).all()
        assert (cells.steal_end <= CELL_NS).all()
    work_ns = cells.work_end - cells.work_start
    length = work_ns[:, 0, 4] / CELL_NS  # share of postgres: 0.42 +- 0.08
    assert length.min() == pytest.approx(0.34, abs=0.005)
    assert length.max() == pytest.approx(0.50, abs=0.005)
    assert length.mean() == pytest.approx(0.42, abs=0.01)


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


def test_memory_traffic_has_a_limit() -> None:
    """Sixteen copies of stream demand 192 GB/s from a memory of 10 GB/s per core."""
    machine = SimMachine.from_spec(parse_spec("steady,cpus=16"))
    script = Script(machine)
    script.add_stage(1).run(range(16), STREAM)
    schedule = Schedule(machine, script, 1)
    moved = amounts_between(schedule, 0, 1_000_000_000)[Row.TRAFFIC]
    assert moved.sum() / 1000 == pytest.approx(80e9, rel=1e-3)
    assert len(np.unique(moved)) == 1


def test_the_depth_of_a_climb_is_its_rise_in_hertz() -> None:
    script = Script(SimMachine.from_spec(parse_spec("steady,cpus=4")))
    goal = script.add_stage(1)
    goal.run(range(4), STREAM)
    script.add_climb(goal, [0])
    first, *_, last = (stage.clocks()[0] for stage in script.stages[1:])
    assert first < last < goal.clocks()[0]
    assert script.episodes[-1].depth == (goal.clocks()[0] - first) * 1e6


def test_truth_has_the_traffic_of_packages_but_not_in_a_guest() -> None:
    assert not [*lines("sim:guest", 3, "package")]
    report = [*lines("sim:steady,cpus=32", 3, "package")]
    assert len(report) == 3 * 2
    for line in report:  # 900 MB/s of each of 16 CPUs
        assert line["memory_read_bytes_per_s"] == pytest.approx(10.8e9, rel=0.01)
        assert line["memory_write_bytes_per_s"] == pytest.approx(3.6e9, rel=0.01)


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


def test_halts_at_clock_changes_have_the_known_length() -> None:
    rows = lines("sim:halts", 30, "cpu")
    for report in lines("sim:halts", 30, "episode")[:2]:
        share = mean_during(rows, report["cpus"], report["start"], report["end"], "involuntary")
        assert share == pytest.approx(report["depth"], rel=0.05)
    others = mean_during(rows, [1], 5, 15, "involuntary")
    assert others == 0


def test_all_four_states_are_seen_in_smt_mix() -> None:
    cores = lines("sim:smt-mix", 30, "core")
    for state in ("neither", "lp0", "lp1", "both"):
        assert max(core["smt"][state] for core in cores) > 0.9, state
    mixed = [c for c in cores if all(share > 0.1 for share in c["smt"].values())]
    assert len({c["core"] for c in mixed}) >= 2


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


def test_episodes_repeat_and_may_still_run_at_the_end() -> None:
    result = lines("sim:turbo-drop", 50, "episode")
    assert [(e["start"], e["end"]) for e in result] == [(8, 12.1), (28, 32.1), (48, None)]
    assert lines("sim:turbo-drop,packages=2", 9, "episode")[0]["cpus"] == [0, 1, 2, 3]


def test_truth_refuses_an_invalid_duration() -> None:
    for duration in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="duration"):
            list(truth("sim", duration))
