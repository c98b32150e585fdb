"""A machine that was suspended, as Linux has it: time stands still, some counters go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from exported import messages
from simulated import SAMPLE_NS

from perfprobe import wire
from perftop.session.history import History
from perftop.session.session import Session

SLEPT_NS = 3600 * 10**9
AT = 40
"""The first frame after it."""


def suspended(found: list[wire.Message], tsc_hz: float, split: int) -> Iterator[wire.Message]:
    """The TSC went on; of the first frame so many rows were read before."""
    for message in found:
        if not isinstance(message, wire.Frame) or message.seq < AT:
            yield message
            continue
        blocks = dict(message.blocks)
        for name, rows in blocks.items():
            head = np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD).copy()
            late = slice(split if message.seq == AT else 0, None)
            head[late, :2] += np.uint64(SLEPT_NS / 1e9 * tsc_hz)
            blocks[name] = dataclasses.replace(rows, head=head.tobytes())
        records = message.records | {"asleep_ns": SLEPT_NS}
        yield dataclasses.replace(message, blocks=blocks, records=records)


@pytest.mark.parametrize("split", [0, 3])
def test_a_suspend_is_marked_and_spoils_no_number(split: int) -> None:
    found = messages("sim:steady,cpus=8", 8)
    hello = found[0]
    assert isinstance(hello, wire.Hello)
    assert hello.tsc_hz is not None
    session = Session(hello, History(hello))
    utils, times = [], []
    for _ in session.play([*suspended(found[1:], hello.tsc_hz.hz, split)]):
        if session.span_ns >= 1_000_000_000:
            interval = session.take()
            utils.append(interval.values["util"].tolist())
            times.append(interval.time)
    assert np.ptp(np.array(utils), axis=0).max() < 0.02, "the load is steady"
    assert not np.isnan(utils).any()
    gaps = np.diff(times)
    assert gaps.max() == pytest.approx(3601, abs=0.2)
    assert np.sort(gaps)[:-1] == pytest.approx(np.ones(len(gaps) - 1), abs=0.2)
    assert [e for e in (*session.ended, *session.detector.running) if e.kind != "ramp"] == []
    assert [m.evidence["label"] for m in session.marks] == ["was suspended for 1 h 00 min"]
    before_ns = hello.raw_ns + (AT - 5) * SAMPLE_NS
    assert session.unix(before_ns) == pytest.approx(
        (hello.wall_ns + before_ns - hello.raw_ns) / 1e9
    )
    past = session.interval_at(hello.raw_ns + (AT + 6) * SAMPLE_NS, 500_000_000)
    assert past is not None
    assert past.values["util"] == pytest.approx(utils[-1], abs=0.02)


def test_a_recording_entered_after_a_suspend_has_no_mark_of_it() -> None:
    """Its first frame has slept already: when, nobody knows. What it sleeps later is told."""
    found = messages("sim:steady,cpus=4", 1)
    hello, *frames = (m for m in found if isinstance(m, wire.Hello | wire.Frame))
    assert isinstance(hello, wire.Hello)
    session = Session(hello)
    for frame, asleep_ns in zip(frames, (7, 7, 7 + 90 * 10**9), strict=False):
        assert isinstance(frame, wire.Frame)
        session.apply(dataclasses.replace(frame, records={"asleep_ns": asleep_ns}))
    assert [m.evidence["label"] for m in session.marks] == ["was suspended for 1 min 30 s"]


@pytest.mark.parametrize("lie", ["x", -1, 1.5, True, None, 1 << 63])
def test_malformed_times_of_sleep_are_ignored(lie: object) -> None:
    found = messages("sim:steady,cpus=4", 1)
    hello = found[0]
    assert isinstance(hello, wire.Hello)
    session = Session(hello)
    for message in found[1:]:
        if isinstance(message, wire.Frame):
            session.apply(dataclasses.replace(message, records={"asleep_ns": lie}))
    assert session.marks == []
