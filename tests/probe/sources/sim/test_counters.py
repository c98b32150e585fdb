"""Counters of CPUs and packages of a simulated machine, compared with its schedule."""

import numpy as np
import pytest
from frame_rows import find_counter
from nightly import cases_by_day
from sim_streams import amounts_between, column, deltas, head, run, schedule_of

from perfprobe.sources.sim.schedule import Row
from perfprobe.wire import ROW_WIDE


@pytest.mark.parametrize(
    "scenario",
    cases_by_day(["smt-mix", "halts", "throttle", "neighbour", "license"], ["halts", "license"]),
)
def test_counters_follow_the_schedule(scenario: str) -> None:
    """Compares differences of two reads with the integrals of the schedule between their stamps.
    Both stamps have the same constant offset of that CPU's TSC: at most 400 ticks are unknown."""
    hello, frames, _ = run(scenario, 30)
    schedule = schedule_of(scenario)
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


def test_reference_clocks_tick_with_the_crystal() -> None:
    hello, frames, _ = run("smt-mix", 20)
    ref = deltas(hello, frames, "ref")
    assert (ref % 84 == 0).all()
    residues = column(hello, frames[:9], "ref") % np.uint64(84)
    assert len(np.unique(residues)) == 1, "of all CPUs, as on a real 8160 (until they wrap)"
    mperf = deltas(hello, frames, "mperf")
    assert (mperf % 84 != 0).any(), "MPERF moves in finer steps"
    assert (np.abs(ref - mperf) <= 84).all()


def test_counters_wrap_at_their_width_soon_after_the_start() -> None:
    hello, frames, _ = run("steady", 6)
    for key, hz in (("ref", 2.1e9), ("cycles", 3.4e9), ("instructions", 2.6 * 3.4e9)):
        raw = column(hello, frames, key)
        assert int(raw.max()) < 2**48
        wraps = (raw[1:] < raw[:-1]).sum(axis=0)
        assert (wraps == 1).all(), key
        assert deltas(hello, frames, key)[-1] == pytest.approx(6 * hz, rel=2e-3)


def test_one_thread_counts_of_siblings_agree() -> None:
    """R0 - one0 = R1 - one1, except for the time between the two reads."""
    hello, frames, _ = run("smt-mix", 14)
    both = deltas(hello, frames, "ref") - 84 * deltas(hello, frames, "one_thread")
    skew_ns = 350_000  # late reads are rare
    assert np.abs(both[:, :8] - both[:, 8:]).max() <= 2.1 * skew_ns * 2
    assert both[-1, 4] > 0.1 * 14 * 2.1e9
    assert (both >= -84).all()


def test_tscs_of_cpus_differ_by_constants() -> None:
    hello, frames, _ = run("steady", 60)
    heads = np.stack([head(f) for f in frames])
    due = np.array([f.time_ns for f in frames])[:, None]
    offset = heads[:, :, 0] - (due + heads[:, :, 2]) * 21 // 10
    assert (offset == offset[0]).all(), "the TSCs of a machine differ by constants"
    assert (offset[0, :8] != offset[0, 8:]).all(), "siblings' too"
    width = heads[:, :, 1] - heads[:, :, 0]
    wide = (heads[:, :, 4] & ROW_WIDE) > 0
    assert 0 < wide.mean() < 0.01
    assert width[~wide].max() < 4 * 2100 <= 60 * 2100 <= width[wide].min() + 1
    lateness = heads[:, :, 2]
    assert 50_000 < np.median(lateness) < 80_000
    assert lateness.max() > 200_000
    jitter = np.stack([head(f)[:, 2] for f in run("jitter", 20)[1]])
    assert jitter.max() > 2_000_000
    assert hello.tsc == hello.raw_ns * 21 // 10


def test_no_read_reaches_the_next_sample() -> None:
    """At 1 kHz, no read is later than a quarter of a sample."""
    sample_ns = 1_000_000
    _, frames, _ = run("jitter", 1, sample_ns)
    heads = np.stack([head(frame) for frame in frames])
    assert len(frames) == 1001
    assert heads[:, :, 2].max() <= sample_ns / 4
    assert (heads[1:, :, 0] > heads[:-1, :, 1]).all()


def test_halts_are_not_idle() -> None:
    """During an involuntary halt the TSC advances, ref does not, and the OS does not idle."""
    hello, frames, _ = run("throttle", 14)
    hot = [frames[81], frames[139]]
    elapsed = (head(hot[1]) - head(hot[0]))[:, 0]
    util = deltas(hello, hot, "ref")[-1] / elapsed
    idle = deltas(hello, hot, "idle_s")[-1]
    assert util == pytest.approx(0.875, abs=1e-3)
    assert (idle == 0).all()
    user = deltas(hello, hot, "stat_user_s")[-1]
    assert user == pytest.approx(579, abs=4), "to the OS it is busy all the time"


def test_proc_stat_accounts_for_all_time() -> None:
    hello, frames, _ = run("smt-mix", 20)
    keys = [c.key for c in hello.blocks[1].counters]
    assert len(keys) == 8
    total = sum(deltas(hello, frames, key)[-1] for key in keys)
    assert np.abs(total - 2000).max() <= len(keys)
    assert deltas(hello, frames, "stat_iowait_s")[-1][4] > 100


def test_a_turbo_drop_shows_its_cause() -> None:
    hello, frames, _ = run("turbo-drop,cpus=32", 14)
    drop, calm = [frames[81], frames[121]], [frames[20], frames[60]]
    power = [deltas(hello, pair, "energy_j")[-1] / 2**14 / 4 for pair in (drop, calm)]
    assert power[0][0] == pytest.approx(150, rel=1e-3)
    assert power[1][0] < 148.1
    assert (column(hello, drop, "power_limit_w") == 150_000).all()
    flags = [np.frombuffer(f.blocks["package"].values, np.uint64).reshape(2, -1) for f in drop]
    polls, seen = (flags[1] - flags[0])[:, 2], (flags[1] - flags[0])[:, 3:19]
    assert polls.tolist() == [400, 400]
    assert seen[0].tolist() == [0] * 10 + [360] + [0] * 5
    assert seen[1].tolist() == [0] * 12 + [400] + [0] * 3
    ceiling = column(hello, drop, "ceiling_hz")[0] / 1e9
    busy = deltas(hello, drop, "cycles")[-1] / deltas(hello, drop, "ref")[-1] * 2.1
    assert ceiling[0] - busy[0] == pytest.approx(0.62, abs=0.01)
    assert ceiling[1] - busy[8] == pytest.approx(0, abs=0.01)


def test_energy_wraps_and_temperature_lags() -> None:
    hello, frames, _ = run("throttle", 40)
    raw = column(hello, frames, "energy_j")[:, 0]
    assert (raw[1:] < raw[:-1]).sum() == 1
    assert int(raw.max()) < 2 ** find_counter(hello, "energy_j")[2].bits == 2**32
    heat = column(hello, frames, "temperature_c")[:, 0].astype(int)
    assert heat[80] < 75
    assert heat[139] >= 97
    assert np.abs(np.diff(heat)).max() <= 4


def test_energy_is_the_sum_of_its_parts() -> None:
    """Compares samples of 50 ms with samples of 1 s, across the end of the script."""
    hello, fine, _ = run("turbo-drop", 47, 50_000_000)
    _, coarse, _ = run("turbo-drop", 47, 1_000_000_000)
    ends = [deltas(hello, frames, "energy_j")[-1] for frames in (fine, coarse)]
    assert ends[0] == ends[1]


def test_memory_counters_follow_the_traffic_of_cpus() -> None:
    """Three of four lines are reads. Counters wrap, and are read within 1 ms of those of CPUs."""
    hello, frames, _ = run("smt-mix,cpus=32,packages=2", 20)
    schedule = schedule_of("smt-mix,cpus=32,packages=2")
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
