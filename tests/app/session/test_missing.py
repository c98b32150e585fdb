"""Unknown values: their reasons, and what they leave known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import synth
from fakes import CpuLoad, Machine
from sessions import TICKS, play, session_of
from synth import counter, frame

from perfprobe import wire
from perftop.model.delta import Doubt
from perftop.output import stat_lines
from perftop.session.session import Session
from perftop.session.values import (
    BOUNDS_REASON,
    CPU_OFF_REASON,
    UNREAD_REASON,
    Reasons,
    doubt_texts,
    state_reasons,
)


def test_unknown_states_have_a_reason() -> None:
    def core_states(session: Session) -> dict[str, object]:
        line = stat_lines.interval_line(session, session.take_interval())
        result: dict[str, object] = json.loads(json.dumps(line))["cores"][0]
        return result

    counters = [synth.REF, counter("any_thread", "1")]
    samples = [{"ref": [seq] * 4, "any_thread": [seq] * 4} for seq in range(3)]
    many = core_states(play(synth.hello(counters, threads=4), *samples))
    assert many["why"] == {
        "smt": "for cores with more than two threads, only the state 'neither' is known"
    }

    two = synth.hello([synth.REF, counter("one_thread", "1")])
    came = Session(two)
    for seq in range(3):
        values = {"ref": [seq, None if seq < 2 else seq], "one_thread": [0, None if seq < 2 else 0]}
        flags = [wire.ROW_SAMPLED, wire.ROW_OFFLINE if seq < 2 else wire.ROW_SAMPLED]
        came.apply(frame(two, seq, values, flags=flags))
    assert core_states(came)["why"] == {"smt": UNREAD_REASON, "active_threads": UNREAD_REASON}
    assert "why" not in core_states(
        play(two, *({"ref": [s, s], "one_thread": [0, 0]} for s in range(3)))
    )


def reason_with_offline_cpu(ref: int) -> dict[str, str]:
    """Reason for the unknown states of a core whose first CPU is off; the second counts `ref`
    reference cycles a sample."""
    greeting = synth.hello([synth.REF])
    session = play(greeting, {"ref": [0, 0]})
    session.apply(wire.Note("hotplug", 1, data={"cpu": 0, "online": False}))
    for seq in (1, 2):
        flags = [wire.ROW_OFFLINE, wire.ROW_SAMPLED]
        session.apply(frame(greeting, seq, {"ref": [None, seq * ref]}, flags=flags))
    return state_reasons(session, session.take_interval(), 0)


def test_the_reason_is_that_of_the_online_cpu() -> None:
    fast = 3 * TICKS
    why = "ref: ran faster than the TSC"
    assert reason_with_offline_cpu(fast) == {"smt": why, "active_threads": why}
    assert reason_with_offline_cpu(TICKS // 2) == {}
    unread = synth.hello([synth.REF])
    session = play(unread, {"ref": [0, None]})
    flags = [wire.ROW_SAMPLED, 0]
    session.apply(frame(unread, 1, {"ref": [fast, None]}, flags=flags))
    session.apply(wire.Note("hotplug", synth.SAMPLE_NS + 1, data={"cpu": 0, "online": False}))
    report = state_reasons(session, session.take_interval(), 0)
    assert report == {"smt": UNREAD_REASON, "active_threads": UNREAD_REASON}


def test_the_reason_of_an_offline_core_is_that_it_is_off() -> None:
    session = play(synth.hello([synth.REF]), {"ref": [0, 0]}, {"ref": [3 * TICKS, 3 * TICKS]})
    for cpu in (0, 1):
        note = wire.Note("hotplug", synth.SAMPLE_NS + 1, data={"cpu": cpu, "online": False})
        session.apply(note)
    why = state_reasons(session, session.take_interval(), 0)
    assert why.keys() == {"smt", "smt_method", "active_threads"}
    assert set(why.values()) == {"ref: ran faster than the TSC"}
    session.apply(frame(session.hello, 2, {"ref": [None, None]}, flags=[wire.ROW_OFFLINE] * 2))
    assert set(state_reasons(session, session.take_interval(), 0).values()) == {CPU_OFF_REASON}


def test_each_missing_value_has_its_own_reason() -> None:
    """CPU 0 has no counter of instructions, CPU 1 did not run, and the core is unknown."""
    no_event = wire.Missing("instructions", "no such event", None, [0])
    greeting = synth.hello([synth.REF, synth.CYCLES], missing=[no_event])
    samples = [{"ref": [seq * TICKS // 2, 0], "cycles": [seq, 0]} for seq in range(3)]
    session = play(greeting, *samples)
    interval, reasons = session.take_interval(), Reasons(session)
    short = [
        ("ipc", 1, True, "no such event"), ("instructions", 0, True, "no such event"),
        ("instructions", 1, True, "SMT states are not counted here"),
        ("both", 1, False, "SMT states are not known"), ("busy_hz", 1, True, "it did not run"),
        ("util", 1, True, "not measured"),
    ]  # fmt: skip
    for key, row, bounds, text in short:
        assert reasons.short_reason(key, row, bounds=bounds) == text
    for key, row, text in (
        ("instructions", 0, "no such event"), ("instructions", 1, UNREAD_REASON),
        ("ipc", 1, "no such event"), ("busy_hz", 1, "the CPU was halted throughout"),
        ("util", 1, UNREAD_REASON),
    ):  # fmt: skip
        assert reasons.cpu_reason(key, interval, row) == text
    assert reasons.machine_reason("ipc") == "no such event"
    assert reasons.machine_reason("util") == UNREAD_REASON
    assert reasons.states_reason(interval, 0) == BOUNDS_REASON
    backwards = replace(interval, doubts=np.full_like(interval.doubts, Doubt.BACKWARDS))
    assert doubt_texts(backwards, 0) == [Doubt.BACKWARDS.text]
    alone = [replace(row, core=None) for row in greeting.topology]
    session = play(replace(greeting, topology=alone, cores=[]), *samples)
    interval = session.take_interval()
    assert Reasons(session).states_reason(interval, 0) == "its core is not known"
    off = replace(interval, online=np.zeros(2, bool))
    assert Reasons(session).cpu_reason("util", off, 0) == CPU_OFF_REASON
    assert Reasons(session).states_reason(off, 0) == CPU_OFF_REASON


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


@pytest.mark.parametrize("at_once", [1, SAMPLES])
def test_an_unread_value_does_not_make_the_run_unknown(at_once: int) -> None:
    session = session_in_batches(UnreadCycles(cores=2), at_once)
    whole = session.run_interval().values
    assert whole["busy_hz"] == pytest.approx([3e9, 2e9, 3e9, 3e9], rel=1e-3)
    assert np.isfinite(whole["ipc"]).all()
    assert whole.mean("busy_hz", session.selected) == pytest.approx(2.75e9, rel=0.02)
    shares = session.run.span.read_shares()
    assert shares["busy_hz"] == pytest.approx(37 / 39)
    assert "util" not in shares, "this metric needs no cycles"


@pytest.mark.parametrize("at_once", [1, SAMPLES])
@pytest.mark.parametrize(("unread", "is_known"), [(2, True), (3, False)])
def test_a_mean_requires_90_percent_of_the_samples(
    unread: int, is_known: bool, at_once: int
) -> None:
    """An unread value affects two of the 39 differences."""
    machine = UnreadCycles(cores=2)
    machine.unread = range(UNREAD, UNREAD + unread)
    whole = session_in_batches(machine, at_once).run_interval().values
    assert np.isfinite(whole["busy_hz"]).tolist() == [True, is_known, True, True]
    assert np.isfinite(whole["util"]).all(), "this metric needs no cycles"


@pytest.mark.parametrize(("samples", "is_known"), [(5, True), (3, True), (2, False)])
def test_one_of_a_few_samples_may_be_missing(samples: int, is_known: bool) -> None:
    """The last of them is unread. The first frame is only the start of the first sample."""
    machine = UnreadCycles(cores=2)
    machine.unread = range(samples, samples + 1)
    session = session_in_batches(machine, samples + 1, samples + 1)
    assert np.isfinite(session.run_interval().values["busy_hz"][1]) == is_known
