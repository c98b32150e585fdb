"""Involuntary halts and their causes, from simulated counters."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import synth
from rate_streams import BUSY, IDLE, STEAL, RateStream, S

from perfprobe import wire
from perfprobe.wire import Counter, Identity, Rate
from perftop.detect import standstill
from perftop.detect.engine import ShareEpisode
from perftop.model.kinds import Episode
from perftop.output import why_report

KIND = "involuntary-halt"
TSC = synth.TSC_HZ
PAUSE = 400_000_000 // S
BASE = [synth.REF, synth.CYCLES, IDLE, STEAL]
INTEL: dict[str, Any] = {
    "identity": Identity("GenuineIntel", 6, 85, 4, "Xeon", "0x1"),
    "base_hz": Rate(2.1e9, "made"),
}


def busy_stream(*more: Counter, **changes: Any) -> RateStream:
    """Returns four CPUs that are always busy, at 3 GHz."""
    machine = RateStream(KIND, [*BASE, *more], **changes)
    return machine.advance(3, ref=TSC, cycles=3e9)


def halt_first_cpu(
    machine: RateStream, share: float = 0.02, samples: int = 5, **rates: Any
) -> RateStream:
    """Halts the first CPU for this share of the time; its clock stays the same."""
    ref = [TSC * (1 - share), TSC, TSC, TSC]
    return machine.advance(samples, **{"ref": ref, "cycles": [1.5 * r for r in ref], **rates})


def test_length_and_depth_follow_the_lost_time() -> None:
    machine = halt_first_cpu(busy_stream()).advance(PAUSE, ref=TSC)
    assert machine.spans() == [(3, 8)]
    (episode,) = machine.ended
    assert episode.cpus == [0]
    assert episode.depth == pytest.approx(0.02, rel=1e-4)
    assert (episode.cause, episode.confidence) == ("unknown", "unknown")
    assert episode.evidence["as_if_clock_changes_of_8.5_us_per_s"] == 2353


@pytest.mark.parametrize(("threshold_multiple", "spans"), [(1.02, [(3, None)]), (0.98, [])])
def test_losses_within_the_error_do_not_begin_an_episode(
    threshold_multiple: float, spans: list[tuple[float, float | None]]
) -> None:
    reading = 20e-6 / 0.1
    assert halt_first_cpu(busy_stream(), threshold_multiple * 0.003 + reading).spans() == spans


@pytest.mark.parametrize(("error_s", "confidence"), [(0.01, "measured"), (0.03, "inferred")])
def test_a_loss_within_its_error_is_inferred(error_s: float, confidence: str) -> None:
    key = next(key for key, sign in standstill.MARKERS.items()
               if sign.cause == "modulation" and sign.is_counted)  # fmt: skip
    sums = np.zeros(standstill.EXPLAINED + len(standstill.MARKERS))
    sums[[1, standstill.LOST_S, standstill.ERRORS]] = 1.0, 0.02, error_s
    sums[standstill.EXPLAINED + [*standstill.MARKERS].index(key)] = 0.02
    halt = SimpleNamespace(sums=sums, episode=Episode(KIND, [0], 0))
    standstill._describe_halt(cast("ShareEpisode", halt))
    assert halt.episode.confidence == confidence


def test_inexact_idle_time_hides_small_losses_only() -> None:
    half: dict[str, Any] = {"ref": 0.4 * TSC, "idle_s": 0.5}
    assert busy_stream().advance(5, **half).spans() == []
    little = busy_stream().advance(5, ref=0.93 * TSC, idle_s=0.04321)
    assert little.spans() == [(3, None)]
    assert little.running[0].evidence.items() >= {
        "error_share": 0.00452, "error_of_idle_share": 0.00432, "error_of_reading_share": 0.0002,
        "error_of_steal_share": 0.0,
    }.items()  # fmt: skip


def test_a_stolen_tick_makes_another_one_likely_for_a_minute() -> None:
    """One stolen tick is 10 % of a sample."""
    machine = busy_stream().advance(65, ns=10 * S)
    machine.advance(1, stat_steal_s=0.1, ref=0.9 * TSC).advance(1, stat_steal_s=0, ref=TSC)
    assert halt_first_cpu(machine).spans() == []
    assert halt_first_cpu(machine.advance(65, ns=10 * S, ref=TSC)).spans() == [
        (3 + 650 + 2 + 5 + 650, None)
    ]


def test_exact_idle_time_hides_no_loss() -> None:
    traced = RateStream(KIND, [synth.REF, synth.CYCLES, BUSY, STEAL])
    traced.advance(3, ref=0.5 * TSC, cycles=1e9, busy_s=0.5).advance(5, ref=0.45 * TSC)
    assert traced.spans() == [(3, None)]
    assert traced.running[0].depth == pytest.approx(0.05, rel=1e-4)
    entries = synth.counter("idle_entries", "1")
    counted = (
        busy_stream(entries)
        .advance(3, ref=0.5 * TSC, idle_s=0.5, idle_entries=3300)
        .advance(5, ref=0.49 * TSC)
    )
    assert counted.spans() == [(6, None)]
    often = busy_stream(entries).advance(5, ref=0.49 * TSC, idle_s=0.5, idle_entries=3500)
    assert often.spans() == []


@pytest.mark.parametrize("virtual", ["kvm", None])
def test_a_hypervisor_may_have_taken_most_of_a_tick(virtual: str | None) -> None:
    machine = busy_stream(virtualisation=virtual)
    if virtual is None:
        machine.advance(1, stat_steal_s=0.1, ref=0.9 * TSC).advance(1, stat_steal_s=0, ref=TSC)
    assert halt_first_cpu(machine, 0.09).spans() == []
    assert len(halt_first_cpu(machine, 0.12).spans()) == 1


AMD = Identity("AuthenticAMD", 25, 1)
MODULATION = synth.counter("modulation", "1", kind="gauge")
MPERF = synth.counter("mperf")
SMI = synth.counter("smi", "1", bits=32)
THROTTLE = synth.counter("license_throttle")
REASONS = synth.flags("limit_reasons", "PROCHOT", "thermal", "PL1")
PCU = [synth.counter("pcu_ticks", "1"), synth.counter("pcu_transition", "1")]
ALL = [0.98 * TSC] * 4


@pytest.mark.parametrize(("cause", "explained", "confidence", "counters", "rates"), [
    ("modulation", "modulation 1.00", "measured", {"cpu": [MODULATION]},
     {"modulation": [0b11100, 0, 0, 0]}),
    ("modulation", "thermal 1.00", "inferred", {"package": [REASONS]},
     {"limit_reasons": [0, 1, 0]}),
    ("hdc", "hdc 1.00", "inferred", {"cpu": [MPERF]}, {"mperf": TSC}),
    ("smm", "smi 1.00", "inferred", {"cpu": [SMI]}, {"smi": 100, "ref": ALL}),
    ("simd", "simd 0.60", "inferred", {"cpu": [THROTTLE]},
     {"license_throttle": [3e9 * 0.012, 0, 0, 0]}),
    ("clock-change", "pcu 0.52", "measured", {"package": PCU},
     {"pcu_ticks": 1e9, "pcu_transition": 1.04e7}),
    ("clock-change", "between 1.00", "inferred", {"changes": INTEL}, {"cycles": 3.05e9 * 0.98}),
    ("unknown", "", "unknown", {"cpu": [MODULATION]}, {"modulation": [0b01110, 0, 0, 0]}),
    ("modulation", "modulation 0.50", "measured", {"cpu": [MODULATION]},
     {"modulation": [0b11111, 0, 0, 0], "ref": [0.876 * TSC, TSC, TSC, TSC]}),
    ("unknown", "", "unknown", {"cpu": [MODULATION]},
     {"modulation": [0b11111, 0, 0, 0], "ref": [0.874 * TSC, TSC, TSC, TSC]}),
    ("unknown", "", "unknown", {"package": [REASONS]}, {"limit_reasons": [0, 0.3, 1]}),
    ("unknown", "", "unknown", {"cpu": [MPERF]}, {"mperf": [TSC * 0.995, TSC, TSC, TSC]}),
    # an SMI would have stopped the other CPUs, too
    ("unknown", "", "unknown", {"cpu": [SMI]}, {"smi": 100}),
    ("unknown", "", "unknown", {"cpu": [SMI]}, {"smi": 0.2, "ref": ALL}),
    ("unknown", "", "unknown", {"cpu": [SMI]}, {"smi": 10, "ref": [0.8 * TSC] * 4}),  # 20 ms each
    ("unknown", "", "unknown", {"package": PCU}, {"pcu_ticks": 1e9, "pcu_transition": 9.6e6}),
    ("unknown", "", "unknown", {"package": PCU[:1]}, {"pcu_ticks": 1e9}),
    ("unknown", "", "unknown", {"package": PCU[1:]}, {"pcu_transition": 1.04e7}),
    ("clock-change", "between 1.00", "inferred",
     {"changes": INTEL | {"base_hz": Rate(2.109e9, "made")}}, {"cycles": 3.05e9 * 0.98}),
    # only CPUs that hardly rest show what an SMI cost
    ("smm", "smi 1.00", "inferred", {"cpu": [SMI]},
     {"smi": 100, "ref": [*ALL[:3], 0.94 * TSC], "idle_s": [0, 0, 0, 0.06]}),
    ("unknown", "", "unknown", {"cpu": [SMI]},
     {"smi": 100, "ref": [*ALL[:3], 0.96 * TSC], "idle_s": [0, 0, 0, 0.04]}),
    ("unknown", "", "unknown", {}, {"cycles": 3.05e9 * 0.98}),  # its steps are unknown
    ("unknown", "", "unknown", {"changes": INTEL}, {"cycles": 3.0e9 * 0.98}),
    ("unknown", "", "unknown", {"changes": INTEL}, {"cycles": 3.009e9 * 0.98}),
    ("clock-change", "between 1.00", "inferred", {"changes": INTEL}, {"cycles": 3.011e9 * 0.98}),
    # steps of 100 MHz are known of Intel, unless even the base clock is between two
    ("unknown", "", "unknown", {"changes": INTEL | {"identity": AMD}}, {"cycles": 3.05e9 * 0.98}),
    ("unknown", "", "unknown", {"changes": INTEL | {"base_hz": Rate(2.111e9, "made")}},
     {"cycles": 3.05e9 * 0.98}),
    ("hdc", "hdc 1.00", "inferred", {"cpu": [MPERF]}, {"mperf": TSC * 0.9999}),
    ("unknown", "", "unknown", {"cpu": [MPERF]}, {"mperf": TSC * 0.999}),
])  # fmt: skip
def test_the_cause_is_the_sign_that_explains_most_of_the_loss(
    cause: str, explained: str, confidence: str, counters: dict[str, Any], rates: dict[str, Any]
) -> None:
    machine = busy_stream(*counters.get("cpu", []), package=counters.get("package", []),
                 **counters.get("changes", {}))  # fmt: skip
    halt_first_cpu(machine, 0.02, 6, **rates)
    (episode,) = machine.running
    assert (episode.cause, episode.confidence) == (cause, confidence)
    assert {type(value) for value in episode.evidence.values()} <= {int, float, str}
    signs = [key for key in episode.evidence if key.startswith("explained_by_")]
    shares = [f"{key.removeprefix('explained_by_')} {episode.evidence[key]:.2f}" for key in signs]
    assert shares == [explained] * (cause != "unknown")
    assert ("as_if_clock_changes_of_8.5_us_per_s" in episode.evidence) == (
        cause in {"clock-change", "unknown"}
    )
    smis_per_s = rates.get("smi", 0)
    assert episode.evidence.get("SMIs_per_s", 0) == pytest.approx(smis_per_s, abs=3)
    each_smi_s = episode.evidence.get("each_SMI_s")
    assert each_smi_s == (pytest.approx(2e-4, rel=0.05) if cause == "smm" else None)


@pytest.mark.parametrize(("lost_share", "smis", "cause"), [
    (0.02, 1900, "smm"), (0.02, 2100, "unknown"),  # shorter than entering SMM
    (0.098, 10, "smm"), (0.102, 10, "unknown"),  # so long that ticks would be lost
])  # fmt: skip
def test_each_smi_costs_a_possible_time(lost_share: float, smis: float, cause: str) -> None:
    machine = busy_stream(SMI).advance(5, ref=(1 - lost_share) * TSC, smi=smis)
    assert {episode.cause for episode in machine.running} == {cause}


@pytest.mark.parametrize(("share", "lasts"), [(0.0018, True), (0.0016, False)])
def test_a_halt_continues_above_a_lower_limit(share: float, *, lasts: bool) -> None:
    """Both are less the error of reading, 0.0002."""
    machine = halt_first_cpu(halt_first_cpu(busy_stream()), share)
    assert machine.spans() == [(3, None) if lasts else (3, 8)]


@pytest.mark.parametrize(("ns", "samples", "count"), [
    (80_000_000, 1, 0), (80_000_000, 2, 1), (79_000_000, 3, 0), (79_000_000, 4, 1),
])  # fmt: skip
def test_short_samples_are_joined(ns: int, samples: int, count: int) -> None:
    machine = busy_stream()
    machine.advance(samples, ns=ns, ref=[0.98 * TSC, TSC, TSC, TSC])
    assert len(machine.spans()) == count


def test_a_clock_that_does_not_advance_ends_a_halt() -> None:
    machine = halt_first_cpu(busy_stream()).advance(1, ns=0)
    assert machine.spans() == [(3, 8)]


@pytest.mark.parametrize(("idle", "count"), [(0.049, 1), (0.051, 0)])
def test_idle_time_hides_a_loss_unless_it_is_short(idle: float, count: int) -> None:
    assert len(busy_stream().advance(5, ref=(0.97 - idle) * TSC, idle_s=idle).spans()) == count


def test_a_stolen_tick_of_another_cpu_hides_nothing() -> None:
    machine = busy_stream().advance(1, stat_steal_s=[0, 0.1, 0, 0], ref=[TSC, 0.9 * TSC, TSC, TSC])
    assert halt_first_cpu(machine, stat_steal_s=0).spans() == [(4, None)]


@pytest.mark.parametrize(("samples", "start"), [(49, 0), (48, 1)])
def test_a_minute_after_a_stolen_tick_no_other_is_likely(samples: int, start: int) -> None:
    """The first sample with a halt ends a minute after the tick, or just before."""
    machine = busy_stream().advance(1, stat_steal_s=0.1, ref=0.9 * TSC)
    machine.advance(11, ns=50 * S, stat_steal_s=0, ref=TSC).advance(samples)
    halt_first_cpu(machine)
    assert machine.spans() == [(4 + 550 + samples + start, None)]


def test_an_episode_ends_when_its_cpu_was_last_read() -> None:
    machine = halt_first_cpu(busy_stream())
    note = wire.Note("hotplug", machine.ns, data={"cpu": 0, "online": False})
    machine.session.apply(note)
    machine.offline_cpus = {0}
    halt_first_cpu(machine, samples=5_000_000_000 // S + 1)
    assert machine.spans() == [(3, 8)]


MULTIPLEXING = [
    Counter(key, key, "s", "perf", scale=1e-9) for key in ("perf_enabled_s", "perf_running_s")
]


@pytest.mark.parametrize(("running", "spans"), [(0.1, []), (1.0, [(3, None)])])
def test_scaled_counts_prove_no_halt(
    running: float, spans: list[tuple[float, float | None]]
) -> None:
    """The busy time is exact; reference cycles were counted for a tenth of it."""
    perf = [replace(counter, origin="perf") for counter in (synth.REF, synth.CYCLES)]
    machine = RateStream(KIND, [*MULTIPLEXING, *perf, BUSY, STEAL])
    machine.session.run.track_losses()
    counted: dict[str, Any] = {"perf_enabled_s": 1.0, "busy_s": 1.0}
    machine.advance(3, perf_running_s=1.0, ref=TSC, cycles=3e9, **counted)
    machine.advance(5, perf_running_s=running, ref=running * 0.9 * TSC, cycles=running * 2.7e9)
    assert machine.spans() == spans
    interval = machine.session.take_interval()
    assert interval.values["util"] == pytest.approx(0.9375)
    assert np.isfinite(interval.values["lost_ratio"]).all()  # without halts
    answer = why_report.report(machine.session)
    assert np.isnan(interval.values["involuntary"]).all() == (running < 1)
    assert ("halts" in {what for what, *_ in why_report.unmeasured_losses(answer)}) == (running < 1)
    assert ("halts" in {check.key for check in answer.checks}) == (running == 1)


@pytest.mark.parametrize(("events", "users", "is_halt"), [
    ("all", None, True), ("host only", None, False), ("host only", 3, False),
    ("host only", 0, True),
])  # fmt: skip
def test_time_of_guests_is_not_a_halt(events: str, users: int | None, is_halt: bool) -> None:
    """The host's own counters stop while a guest runs. `users`: open files of KVM."""
    perf = [replace(counter, origin="perf") for counter in (synth.REF, synth.CYCLES)]
    guests = [wire.Missing("guests", "only the host's own time is counted")]
    rates: dict[str, Any] = {"perf_enabled_s": 1.0, "perf_running_s": 1.0, "busy_s": 1.0}
    gauges = [] if users is None else [Counter("kvm_users", "kvm", "1", "made", "gauge")]
    missing = guests if events == "host only" else []
    machine = RateStream(KIND, [*MULTIPLEXING, *perf, BUSY, STEAL], package=gauges, missing=missing)
    machine.advance(3, ref=TSC, cycles=3e9, kvm_users=users or 0, **rates)
    assert halt_first_cpu(machine, 0.5).spans() == [(3, None)] * is_halt
    machine.advance(2, ref=0, cycles=0)
    suspect = machine.session.take_interval().suspect_counters
    assert bool(suspect) is is_halt


def test_no_halt_is_negative() -> None:
    """A sample between two losses counts more reference cycles than its busy time explains."""
    machine = RateStream(KIND, [synth.REF, synth.CYCLES, BUSY, STEAL])
    machine.advance(3, ref=TSC, cycles=3e9, busy_s=1.0)
    halt_first_cpu(machine, 0.02, 3).advance(1, ref=0.99 * TSC, busy_s=0.5)
    halt_first_cpu(machine, 0.02, 1, busy_s=1.0)
    (episode,) = machine.running
    assert episode.depth == 0
    assert episode.evidence["as_if_clock_changes_of_8.5_us_per_s"] == 0
