"""The simulated guest: what can be known without counters is what its script says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from played import played
from simulated import SAMPLE_NS, lasting
from truths import SECOND

from perfprobe.sources.sim.truth import truth
from perftop.session.session import Session


def messages(spec: str, seconds: float, watch: str | None = None) -> list[Any]:
    hello, found = lasting(spec, seconds, watch=watch)
    return [hello, *found]


def test_a_guest_reports_virtualisation_and_missing_numbers() -> None:
    hello = messages("sim:guest", 0)[0]
    assert (len(hello.topology), hello.cores, hello.smt_methods) == (2, [[0], [1]], ["single"])
    assert hello.virtualisation == "KVM"
    keys = {counter.key for block in hello.blocks for counter in block.counters}
    missing = {each.what for each in hello.missing}
    assert missing.isdisjoint(keys)
    assert {"cycles", "instructions", "ref", "kernel_cycles"} <= missing
    assert {"busy_s", "stat_user_s", "stat_steal_s", "pressure_cpu_s", "pressure_io_s"} <= keys
    assert not keys & {"aperf", "mperf", "smi", "energy_j", "temperature_c", "ceiling_hz"}


@pytest.mark.parametrize("cpus", [1, 2, 6])
def test_shares_are_those_of_the_schedule(cpus: int) -> None:
    spec, seconds = f"sim:guest,cpus={cpus},seed=5", 40
    hello, *frames = messages(spec, seconds)
    session = Session(hello)
    for _ in session.play(frames):
        if session.now_ns - hello.raw_ns == seconds * SECOND:
            break
    values = session.whole().values
    true = [line for line in truth(spec, seconds) if line["type"] == "cpu"]
    for cpu in range(cpus):
        for key in ("util", "steal", "idle"):
            mean = sum(line[key] for line in true if line["cpu"] == cpu) / seconds
            assert values[key][cpu] == pytest.approx(mean, abs=1e-3), (cpu, key)
        told = values["user"][cpu] + values["system"][cpu]
        assert told == pytest.approx(values["util"][cpu], abs=2e-3)
    assert values["system"][0] > 0.1
    assert all(values["steal"][cpu] > 0.01 for cpu in range(0, cpus, 2))


def test_tasks_wait_for_a_cpu_as_scripted() -> None:
    """39 % of the time while the build runs, 56 % when the hypervisor takes its share of it."""
    hello, *frames = messages("sim:guest", 34)
    session, found = Session(hello), {}
    for _ in session.play(frames):
        if (session.now_ns - hello.raw_ns) % SECOND == 0:
            found[(session.now_ns - hello.raw_ns) // SECOND] = session.take().machine
    told = [(found[s]["pressure_cpu"], found[s]["pressure_io"]) for s in (6, 26, 33)]
    assert np.allclose(told, [(0.02, 0.03), (0.39, 0.03), (0.56, 0.03)], atol=1e-3)


def test_a_backup_makes_the_database_wait_where_somebody_watches() -> None:
    hello, *frames = messages("sim:guest", 66, watch="postgres")
    session = played(Session(hello), frames)
    waits = [e for e in session.ended if (e.kind, e.cause) == ("neighbour", "scheduler")]
    (true,) = [e for e in truth("sim:guest", 66, "postgres") if e.get("cause") == "scheduler"]
    assert (true["start"], true["end"]) == (51, 63)
    (told,) = waits
    assert told.cpus == true["cpus"] == [1]
    assert told.depth == pytest.approx(true["depth"], rel=0.02)
    assert abs(told.start_ns - hello.raw_ns - true["start"] * SECOND) <= 1.01 * SAMPLE_NS
    assert told.end_ns is not None
    assert abs(told.end_ns - hello.raw_ns - true["end"] * SECOND) <= 1.01 * SAMPLE_NS
    assert [ran.comm for ran in told.evidence["who"]] == ["restic"]
    assert not [e for e in truth("sim:guest", 66) if e.get("cause") == "scheduler"]
