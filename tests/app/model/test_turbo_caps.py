"""What holds the clock of a CPU down because it was set so."""

from __future__ import annotations

import dataclasses
from typing import Any

import counted
import made
import numpy as np
import pytest
from counted import BASE, cpufreq, ghz, table

from perfprobe import wire
from perfprobe.wire import Block
from perftop.model.kinds import CAPS
from perftop.model.sample_reader import SampleReader


def capped(*more: wire.Turbo, **moved: Any) -> list[tuple[float, str]]:
    keys = "max_hz", "turbo_disabled", "tdp_base_hz", "turbo_off", "max_perf_pct"
    gauges = {key: made.gauge(key) for key in keys if key in moved}
    hello = made.hello(
        [made.REF, *(gauges[k] for k in keys[:1] if k in gauges)], cores=2, threads=2,
        turbo=[table([(1, 40), (2, 30)]), *more], base_hz=BASE,
    )  # fmt: skip
    for name, places in (("package", keys[1:3]), ("machine", keys[3:])):
        there = [gauges[key] for key in places if key in gauges]
        if there:
            hello.blocks.append(Block(name, name, there))  # type: ignore[arg-type]
    of = SampleReader(hello).turbo
    found = of.caps(counted.delta(of._counters, moved))
    names = [[*CAPS][by] if hz < np.inf else "" for hz, by in zip(found.hz, found.by, strict=True)]
    return list(zip(ghz(found.hz), names, strict=True))


def test_caps_each_with_what_sets_it() -> None:
    none = [(float("inf"), "")] * 2
    assert capped() == capped(turbo_off=0, turbo_disabled=0, max_perf_pct=100) == none
    assert capped(max_hz=float("nan"), turbo_off=float("nan")) == none
    assert capped(max_hz=[2e9, 3e9, 1e9, 1e9]) == [
        (2.0, "scaling_max_freq"), (3.0, "scaling_max_freq"),
    ]  # fmt: skip
    assert capped(turbo_off=1) == capped(turbo_disabled=1) == [(2.1, "turbo off")] * 2
    assert capped(turbo_disabled=0, tdp_base_hz=1.6e9) == none, "turbo goes beyond any base clock"
    assert capped(turbo_disabled=1, tdp_base_hz=1.6e9) == [(1.6, "turbo off, config-TDP")] * 2
    assert capped(max_perf_pct=50) == [(2.0, "max_perf_pct")] * 2
    favoured, slow = cpufreq(46, cpus=[0, 2]), cpufreq(30, cpus=[1, 3])
    percent = "max_perf_pct"
    assert capped(favoured, slow, max_perf_pct=50) == [(2.3, percent), (2.0, percent)]
    assert capped(max_perf_pct=60, max_hz=2.2e9, turbo_off=1) == [(2.1, "turbo off")] * 2


@pytest.mark.parametrize("scope", ["cpu", "core", "package", "machine"])
def test_counters_of_a_scope_that_makes_no_sense_say_nothing(scope: wire.Scope) -> None:
    keys = "ceiling_hz", "max_hz", "turbo_disabled", "turbo_off", "max_perf_pct", "base_hz"
    hello = made.hello(
        cores=2, threads=2, packages=[[0, 2], [1, 3]], turbo=[table([(1, 40)])], base_hz=BASE
    )
    block = Block("odd", scope, [*map(made.gauge, keys), made.counter("core_c6")])
    reader = SampleReader(dataclasses.replace(hello, blocks=[*hello.blocks, block]))
    known = reader.counters.columns.keys() & {*keys, "core_c6"}
    delta = counted.delta(reader.counters, dict.fromkeys(known, 1.0))
    reader.turbo.ceilings(delta, np.ones(4), np.ones(4, bool))
    caps = reader.turbo.caps(delta)
    named = {[*CAPS][by] for hz, by in zip(caps.hz, caps.by, strict=True) if hz < np.inf}
    assert named == {
        "cpu": {"scaling_max_freq"}, "core": set(), "package": {"turbo off"},
        "machine": {"max_perf_pct"},
    }[scope]  # fmt: skip
