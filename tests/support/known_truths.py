"""Streams whose true values are known, and the values that perftop reports for them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
from fakes import CpuLoad, Machine
from rate_streams import S
from recording_files import write_recording
from sessions import session_of
from sim_streams import messages

from perfprobe import wire
from perftop import cli
from perftop.base.arrays import Bools
from perftop.detect.engine import RunningEpisodes
from perftop.detect.taken_time import Steals
from perftop.model.evaluation import Evaluator, Values, distribute_steal, lost_time
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX, METRICS
from perftop.model.sample_reader import SampleReader
from perftop.model.tasks import TaskSnapshot
from perftop.session.session import Session
from perftop.session.task_times import RunTimes

HZ = 3e9

# --- losses of a CPU


class FullEvaluator(Evaluator):
    """An evaluator that has all metrics but those in `missing_metrics`."""

    def __init__(self, *missing_metrics: str) -> None:
        self._lacking = missing_metrics

    def cpus_with(self, key: str) -> Bools:
        return np.array([key not in self._lacking])


def values(span_s: float = 1.0, **shares: float) -> Values:
    """Returns the values of one CPU with these metrics; the clock is in Hz."""
    top, bottom = np.full((2, len(METRICS), 1), np.nan)
    for key, share in shares.items():
        top[INDEX[key]], bottom[INDEX[key]] = share * span_s, span_s
    bottom[INDEX["util"]] = span_s
    return Values(top, bottom)


def wanted_and_lost_s(
    values_of_cpu: Values, ceiling_hz: float = HZ, *missing_metrics: str
) -> tuple[float, list[float]]:
    """Returns the wanted time in s, and the lost time in s, by cause."""
    report = lost_time(values_of_cpu, np.array([ceiling_hz]), FullEvaluator(*missing_metrics))
    return float(report.wanted_s[0]), report.parts_s[:, 0].tolist()


def lost_share_at_half_the_clock(util: float) -> float:
    """Returns the reported loss of a CPU that is busy for `util` of the time at half of its ceiling
    clock. The truth is 0.5."""
    case = values(idle=1 - util, steal=0, involuntary=0, busy_hz=HZ / 2)
    wanted_s, parts_s = wanted_and_lost_s(case)
    return sum(parts_s) / wanted_s if wanted_s else 0.0


def steal_from_ticks_in_short_samples() -> float:
    """Returns the reported steal in s of 60 samples of 10 ms. The CPU wants 42 of each 60 ms; the
    hypervisor takes 10 ms of them, in one tick. The truth is 0.1 s."""
    wanted = np.array([[0.007]] * 60)
    stolen = np.array([[0.010 if sample % 6 == 5 else 0.0] for sample in range(60)])
    settled, _ = distribute_steal(stolen, wanted, np.zeros(1))
    return float(settled.sum())


def bursts_of_steal(usual_share: float, bursts: int) -> tuple[int, int, list[Episode]]:
    """Returns two counts, and all episodes, of a host that takes `usual_share` in random ticks, and
    25 % in the last 3 s of each minute: the detected bursts, and the episodes without a burst. With
    a share of 3 %, ticks are close together by chance a thousand times an hour."""
    rng, detector = np.random.default_rng(1), RunningEpisodes()
    steals = Steals(SampleReader(Machine(cores=1, threads=1).hello), detector)
    episodes = list[Episode]()
    for sample in range(600 * bursts):
        share = 0.25 if sample % 600 >= 570 else usual_share
        stolen_s = np.array([0.01 * rng.poisson(10 * share)])
        episodes += steals.step(stolen_s, sample * S, (sample + 1) * S)
    episodes += detector.running
    starts = [episode.start_ns // S for episode in episodes]
    detected = {start // 600 for start in starts if start % 600 >= 560}
    return len(detected), sum(start % 600 < 560 for start in starts), episodes


# --- unread values

SAMPLES, UNREAD = 40, 17


class UnreadCycles(Machine):
    """A machine on which the cycles of CPU 1 cannot be read in some samples."""

    unread = range(UNREAD, UNREAD + 1)

    def _counters(self, cpu: int) -> Mapping[str, int | None]:
        is_unread = cpu == 1 and self._seq in self.unread
        return {**super()._counters(cpu), **({"cycles": None} if is_unread else {})}


def session_in_batches(machine: Machine, at_once: int, samples: int = SAMPLES) -> Session:
    machine.loads = {cpu: CpuLoad(1.0, hz=(2.0 if cpu == 1 else 3.0) * 1e9) for cpu in range(4)}
    session = Session(machine.hello)
    frames = [machine.frame(seq) for seq in range(samples)]
    for first in range(0, samples, at_once):
        session_of(session, frames[first : first + at_once])
    return session


# --- waits of tasks


def times_of_two_tasks_on_a_cpu(seconds: int) -> RunTimes:
    """Returns the times of two tasks that share a CPU, so that each waits for half of its time. The
    first of the records, one a second, has no waits, because the probe takes differences."""
    times, ran = RunTimes([0]), [[1, "a", 0.5], [2, "b", 0.5]]
    for second in range(1, seconds + 1):
        records: dict[str, object] = {"tasks": {"0": ran[0]}, "others": {"0": ran}}
        if second > 1:
            records["waits"] = {"0": [[0.5, 10.0], [0.5, 10.0]]}
        snapshot = TaskSnapshot.from_records(records)
        assert snapshot is not None
        times.add_snapshot(snapshot, 0, second * 1_000_000_000)
    return times


# --- a suspend


def seconds_after_a_suspend(path: Path, *starts: str) -> list[float]:
    """Returns how many seconds `summary` finds in spans of a recording of 20 s, whose machine is
    suspended for an hour after 5 s; the raw clock stops meanwhile. The spans are: from a time
    during the suspend, to that time, from 5 s after the suspend, and from each of `starts`. The
    truths are 15, 5 and 10 s."""
    hello, played = messages("turbo-drop,cpus=8,packages=1,seed=1", 200)
    wakes_ns = hello.raw_ns + 5 * 10**9
    slept = [
        replace(m, records=m.records | {"asleep_ns": 3600 * 10**9})
        if isinstance(m, wire.Frame) and m.time_ns > wakes_ns else m
        for m in played
    ]  # fmt: skip
    file = write_recording(path, hello, slept)

    def clock(second: int) -> str:
        return time.strftime("%H:%M:%S", time.localtime(hello.wall_ns // 10**9 + second))

    spans = [("--from", clock(60)), ("--to", clock(60)), ("--from", clock(3610))]
    results = []
    for span in [*spans, *(("--from", start) for start in starts)]:
        options = cli._parse_arguments(["summary", str(file), "--json", *span])
        with redirect_stdout(StringIO()) as printed:
            assert options.verb(options) == 0
        lines = {line["label"]: line for line in map(json.loads, printed.getvalue().splitlines())}
        results.append(float(lines["whole"]["elapsed_s"]))
    return results
