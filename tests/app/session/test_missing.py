"""Reasons for unknown states of a core."""

from __future__ import annotations

import json

import synth
from sessions import TICKS, play
from synth import counter, frame

from perfprobe import wire
from perftop.output import stat_lines
from perftop.session.session import Session
from perftop.session.values import CPU_OFF_REASON, UNREAD_REASON, state_reasons


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
    assert core_states(came)["why"] == {
        "smt": UNREAD_REASON,
        "active_threads": UNREAD_REASON,
    }
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
