"""Counters of CPUs and packages of a simulated machine, compared with its schedule."""

import pytest
from nightly import cases_by_day
from sim_streams import amounts_between, column, deltas, head, make_schedule, run

from perfprobe.sources.sim.schedule import Row


@pytest.mark.parametrize(
    "scenario",
    cases_by_day(["smt-mix", "halts", "throttle", "neighbour", "license"], ["halts", "license"]),
)
def test_counters_follow_the_schedule(scenario: str) -> None:
    """Compares differences of two reads with the integrals of the schedule between their stamps.
    Both stamps have the same constant offset of that CPU's TSC: at most 400 ticks are unknown."""
    hello, frames, _ = run(scenario, 30)
    schedule = make_schedule(scenario)
    rates = {"ref": (Row.RUN, 2.1), "cycles": (Row.CYCLES, 1e-3), "aperf": (Row.CYCLES, 1e-3)}
    rates |= {"instructions": (Row.INSTRUCTIONS, 1e-3), "mperf": (Row.RUN, 2.1)}
    rates |= {"kernel_cycles": (Row.KERNEL_CYCLES, 1e-3), "one_thread": (Row.SMT, 1 / 40)}
    rates |= {"idle_s": (Row.IDLE, 1e-3), "poll_s": (Row.POLL, 1e-3), "smi": (Row.SMI, 1)}
    rates |= {"idle_entries": (Row.ENTRIES, 1), "stat_steal_s": (Row.STEAL, 1e-7)}
    if scenario == "license":
        rates |= {"license_2": (Row.LICENSE_2, 1e-3), "license_1": (Row.LICENSE_1, 1e-3)}
    for first, last in ((3, 4), (0, 300), (78, 83), (255, 262)):
        two = [frames[first], frames[last]]
        moments = [(head(f)[:, 0] + head(f)[:, 1]) / 2 / 2.1 - hello.raw_ns for f in two]
        results = {key: deltas(hello, two, key)[-1] for key in rates}
        for cpu in (0, 2, 4, 6, 8, 12, 15):
            truth = amounts_between(schedule, *(round(m[cpu]) for m in moments))[:, cpu]
            for key, (row, factor) in rates.items():
                # 250 ns of uncertainty at either end at 3.7 GHz and IPC 2.6, and a tick.
                slack = 500 * 3.7 * 2.6 + 84
                slack = {"one_thread": 14, "smi": 0, "stat_steal_s": 1, "idle_entries": 1}.get(
                    key, 2 if key.endswith("_s") else slack
                )
                assert abs(results[key][cpu] - truth[row] * factor) <= slack, (key, cpu, first)


def test_memory_counters_follow_the_traffic_of_cpus() -> None:
    """Three of four lines are reads. Counters wrap, and are read within 1 ms of those of CPUs."""
    hello, frames, _ = run("smt-mix,cpus=32,packages=2", 20)
    schedule = make_schedule("smt-mix,cpus=32,packages=2")
    moved = amounts_between(schedule, 0, frames[-1].time_ns - hello.raw_ns)[Row.TRAFFIC] / 1000
    for package, cpus in enumerate(hello.packages):
        read, written = (
            deltas(hello, frames, f"memory_{what}_bytes")[-1][package] * 64
            for what in ("read", "write")
        )
        assert read + written == pytest.approx(moved[cpus].sum(), rel=1e-3)
        assert read == pytest.approx(3 * written, rel=1e-6)
        joules = deltas(hello, frames, "energy_ram_j")[-1][package] / 2**14
        seconds = (frames[-1].time_ns - frames[0].time_ns) / 1e9
        assert joules == pytest.approx(3 * seconds + (read + written) / 2e9, rel=1e-3)
    raw = column(hello, frames, "memory_read_bytes")
    assert (raw[1:] < raw[:-1]).sum(axis=0).tolist() == [1, 1]
