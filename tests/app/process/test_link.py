"""A broken link: received samples are kept, the gap is marked, and the stream continues."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from math import isnan
from pathlib import Path

import fake_ssh
import numpy as np
import pytest
import synth
import waiting
from fake_ssh import RemoteFeed
from nightly import cases_by_day

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.model.differences import UNUSABLE_ROW
from perftop.process import link, streams
from perftop.process.launch import Probe, ssh_command
from perftop.process.link import StreamJoiner
from perftop.process.streams import open_stream
from perftop.session.session import Session

OS = ("stream", "--source", "os", "--sample", "0.05")
HELLO = dataclasses.replace(synth.hello([synth.REF]), boot_id="b", raw_ns=10**9)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake_ssh.Hosts:
    monkeypatch.setattr(link, "RETRY_WAITS_S", (0.01, 0.05))
    monkeypatch.setattr(streams, "PING_PERIOD_S", 0.05)
    hosts = fake_ssh.install(tmp_path, monkeypatch)
    hosts.set("n7", "real")
    return hosts


def read(
    is_finished: Callable[[list[wire.Message], Probe], bool], *, restarts: bool = False
) -> list[wire.Message]:
    """Returns the messages from n7 until `is_finished` is true."""
    results: list[wire.Message] = []

    async def take() -> None:
        async with open_stream(Probe(ssh_command("n7", OS)), restarts=restarts) as stream:
            async for messages in stream:
                results.extend(messages)
                if is_finished(results, PROBES[-1]):
                    return

    asyncio.run(asyncio.wait_for(take(), waiting.MAX_WAIT_S))
    return results


PROBES: list[Probe] = []


@pytest.fixture(autouse=True)
def _probes(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Probe.start

    def start_and_remember(self: Probe) -> None:
        PROBES.append(self)
        start(self)

    monkeypatch.setattr(Probe, "start", start_and_remember)


def notes(messages: list[wire.Message], kind: str) -> list[wire.Note]:
    return [m for m in messages if isinstance(m, wire.Note) and m.kind == kind]


def row_flags(frames: list[wire.Frame]) -> np.ndarray:
    """Flags of the rows of CPUs, (frames, CPUs)."""
    heads = [np.frombuffer(m.blocks["cpu"].head, "<u8").reshape(-1, wire.HEAD) for m in frames]
    return np.array(np.broadcast_arrays(*[head[:, 4] for head in heads]))


def test_a_broken_link_leaves_a_gap(hosts: fake_ssh.Hosts) -> None:
    """The gap is reported, and no interval covers it."""
    cut: list[int] = []

    def is_finished(received: list[wire.Message], _: Probe) -> bool:
        frames = [m for m in received if isinstance(m, wire.Frame)]
        if len(frames) >= 5 and not cut:
            hosts.disconnect("n7")
            cut.append(len(received))
        gaps = notes(received, "gap")
        later = [frame for frame in frames if gaps and frame.time_ns > gaps[0].time_ns]
        if not later:
            return False
        # A busy machine misses some reads, and some take too long for a difference.
        is_usable = row_flags(later) & (wire.ROW_SAMPLED | UNUSABLE_ROW) == wire.ROW_SAMPLED
        return bool((is_usable.sum(axis=0) > 1).all())

    received = read(is_finished)
    hello, *rest = received
    assert isinstance(hello, wire.Hello)
    assert not any(isinstance(m, wire.Hello) for m in rest)
    (gap,) = notes(received, "gap")
    index = received.index(gap)
    frames = [m for m in received if isinstance(m, wire.Frame)]
    assert [m.seq for m in frames] == sorted({m.seq for m in frames})
    last, first = received[index - 1], received[index + 1]
    assert isinstance(last, wire.Frame)
    assert isinstance(first, wire.Frame)
    assert gap.data["since_ns"] == last.time_ns < gap.time_ns < first.time_ns
    flags = row_flags(frames)
    rebased, read_ = flags & wire.ROW_REBASED != 0, flags & wire.ROW_SAMPLED != 0
    begun = frames.index(first)
    assert not rebased[:begun].any()
    for row in range(flags.shape[1]):  # a busy CPU is read later than the first frame
        assert np.flatnonzero(read_[:, row] & rebased[:, row]).tolist() == [
            begun + int(read_[begun:, row].argmax())
        ]
    session = Session(hello)
    for message in rest:
        session.apply(message)
    (mark,) = session.marks
    assert str(mark.evidence["label"]).startswith("no link for ")
    assert session.warnings
    assert session.run.span.suspect_count == 0
    util = session.take_interval().values["util"]
    assert np.all((util >= 0) & (util <= 1))


def test_round_trips_are_measured(hosts: fake_ssh.Hosts) -> None:
    def is_finished(_: list[wire.Message], probe: Probe) -> bool:
        return probe.link is not None and probe.link.last_echo is not None

    content = read(is_finished)
    assert not notes(content, "echo"), "they are for the link only"
    state = PROBES[-1].link
    assert state is not None
    assert 0 < state.rtt_s < waiting.MAX_WAIT_S
    assert state.receive_rate.total > 0


def test_retries_continue_while_the_machine_is_unreachable(hosts: fake_ssh.Hosts) -> None:
    def is_finished(received: list[wire.Message], _: Probe) -> bool:
        if len(received) >= 3 and len(hosts.pids("n7")) == 1:
            hosts.set("n7", "refused")
            hosts.disconnect("n7")
        return bool(notes(received, "gap"))

    async def repair() -> None:
        await waiting.until_true(lambda: len(hosts.pids("n7")) >= 4, "three tries")
        hosts.set("n7", "real")

    async def both() -> None:
        repairing = asyncio.create_task(repair())
        async with open_stream(Probe(ssh_command("n7", OS))) as stream:
            received: list[wire.Message] = []
            async for messages in stream:
                received += messages
                if is_finished(received, PROBES[-1]):
                    break
        await repairing
        (gap,) = notes(received, "gap")
        assert "Connection refused" in gap.data["why"]

    asyncio.run(asyncio.wait_for(both(), waiting.MAX_WAIT_S))


@pytest.mark.parametrize("restarts", cases_by_day([False, True], [True]))
def test_another_machine_does_not_continue_the_stream(
    hosts: fake_ssh.Hosts, restarts: bool
) -> None:
    hosts.set("n7", "run sim:idle,cpus=2")

    def is_finished(received: list[wire.Message], _: Probe) -> bool:
        if len(received) >= 5 and len(hosts.pids("n7")) == 1:
            hosts.set("n7", "run sim:idle,cpus=4")
            hosts.disconnect("n7")
        return len([m for m in received if isinstance(m, wire.Hello)]) > 1

    if restarts:
        assert not notes(read(is_finished, restarts=True), "gap")
        return
    with pytest.raises(Failed, match=r"n7: its CPUs or counters.*kept"):
        read(is_finished)


def test_a_probe_without_echoes_gets_a_limited_number_of_requests() -> None:
    remote, now = RemoteFeed(), [0.0]
    state = link.Link("n7", remote, lambda: now[0])
    for _ in range(100):
        state.ping()
    assert len(remote.requested_echoes) == link.MAX_UNANSWERED_ECHOES
    assert isnan(state.rtt_s)
    state.on_echo(wire.Note("echo", 5, data={"number": remote.requested_echoes[1]}))
    assert state.last_echo is not None
    state.on_echo(wire.Note("echo", 6, data={"number": "x"}))
    assert state.last_echo.remote_ns == 5
    for _ in range(100):
        state.ping()
    assert len(remote.requested_echoes) == link.MAX_UNANSWERED_ECHOES + 2, "the first one is lost"


def test_registers_of_the_remote_machine_are_queried(hosts: fake_ssh.Hosts) -> None:
    hosts.set("n7", "refused")
    probe = Probe(ssh_command("n7", ["stream", "--source", "msr"]))
    probe.process.wait(waiting.MAX_WAIT_S)
    probe._reader.join(waiting.MAX_WAIT_S)
    assert "perftop doctor --host n7" in str(probe.end_failure())
    probe.end()
    probe.stdout.close()


def test_retry_delays_grow_and_restart() -> None:
    state = link.Link("n7", RemoteFeed(), lambda: 0.0)
    assert [state.wait_s() for _ in range(7)] == [1, 2, 4, 8, 15, 30, 30]
    state.set_broken("x")
    state.set_connected()
    assert state.wait_s() == 1


def test_retries_end_after_their_time() -> None:
    now_s = 10.0
    state = link.Link("n7", RemoteFeed(), lambda: now_s)
    state.limit_retries(3.0)
    waits_s = [state.wait_s() for _ in range(3)]
    now_s = 12.5
    waits_s.append(state.wait_s())
    now_s = 14.0
    assert [*waits_s, state.wait_s()] == [1, 2, 3, 0.5, 0]


@pytest.mark.parametrize(("later_ns", "is_lost"), [(30 * 10**9 - 1, False), (30 * 10**9, True)])
def test_an_echo_is_lost_after_half_a_minute(
    monkeypatch: pytest.MonkeyPatch, later_ns: int, *, is_lost: bool
) -> None:
    state, times_ns = link.Link("n7", RemoteFeed()), iter([1, 2, 2, 2 + later_ns])
    monkeypatch.setattr(link, "raw_ns", lambda: next(times_ns))
    state.ping()
    state.on_echo(wire.Note("echo", 2, data={"number": 1}))
    state.ping()
    state.ping()
    assert len(state._sent_ns) == (1 if is_lost else 2)


def test_the_rate_of_bytes_is_a_mean_over_the_last_seconds() -> None:
    now_s = 10.0
    rate = link.ByteRate(3.0, lambda: now_s)
    assert isnan(rate.per_s())
    rates = []
    for now_s, received in ((11.0, 100), (11.5, 50), (12.0, 0), (13.0, 300), (14.0, 0)):  # noqa: B007
        rate.count(received)
        rates.append(rate.per_s())
    assert rates == pytest.approx([100, 100, 75, 150, 350 / 3])
    assert rate.total == 450


def test_a_broken_link_shows_since_when_and_until_when_it_waits() -> None:
    now_s = 100.0
    broken_link = link.Link("n7", RemoteFeed(), lambda: now_s)
    broken_link.set_broken("x")
    broken_link.wait_s()
    spans_s = []
    for now_s in (100.25, 100.75, 103.0):  # noqa: B007 - read by the clock
        state = broken_link.state()
        spans_s.append((state.broken_s, state.next_attempt_s))
    assert spans_s == [(0.25, 0.75), (0.75, 0.25), (3.0, 0.0)]


@pytest.mark.parametrize(("kind", "changes", "is_reported"), [
    ("hotplug", [], True), ("hotplug", [False], False), ("hotplug", [False, True], True),
    ("hotplug", [False, True, False], False), ("mark", [False], True),
])  # fmt: skip
def test_only_cpus_that_went_offline_during_the_gap_are_reported(
    kind: str, changes: list[bool], is_reported: bool
) -> None:
    """CPU 0 is offline after the gap; notes before it may already have reported that."""
    joined = StreamJoiner(HELLO)
    for online in changes:
        note = wire.Note(kind, HELLO.raw_ns + 1, data={"cpu": 0, "online": online})
        assert list(joined.joined_messages([note])) == [note]
    topology = [dataclasses.replace(HELLO.topology[0], online=False), *HELLO.topology[1:]]
    later = dataclasses.replace(HELLO, raw_ns=HELLO.raw_ns + 10**9, topology=topology)
    assert joined.mismatch_text(later) == ""
    notes = [note for note in joined.gap_notes(later, "why") if isinstance(note, wire.Note)]
    assert [note.kind for note in notes] == ["gap", *["hotplug"] * is_reported]
    found = [(note.data["cpu"], note.data["online"]) for note in notes[1:]]
    assert found == [(0, False)] * is_reported


@pytest.mark.parametrize(("ahead_ns", "asleep_ns"), [
    (60 * 10**9, 60 * 10**9), (10**9 + 1, 10**9 + 1), (10**9, 0),
])  # fmt: skip
def test_a_suspend_during_the_gap_moves_the_wall_time(ahead_ns: int, asleep_ns: int) -> None:
    """A step of up to a second may be one of the clock."""
    joined = StreamJoiner(HELLO)
    late = dataclasses.replace(
        HELLO, raw_ns=HELLO.raw_ns + 10**9, wall_ns=HELLO.wall_ns + 10**9 + ahead_ns
    )
    joined.gap_notes(late, "why")
    frame = dataclasses.replace(synth.frame(HELLO, 1, {"ref": [1, 1]}), time_ns=late.raw_ns + 1)
    (report,) = joined.joined_messages([frame])
    assert isinstance(report, wire.Frame)
    assert (report.records.get("asleep_ns", 0), report.seq) == (asleep_ns, 2)


def test_integers_from_outside_fit_into_a_message() -> None:
    joined = StreamJoiner(HELLO)
    wild = wire.Note("hotplug", 5, data={"cpu": [1], "online": False})
    strange = wire.Note("hotplug", 5, data={"cpu": 10**12, "online": False})
    most = 2**64 - 1
    frame = dataclasses.replace(synth.frame(HELLO, 1, {"ref": [1, 1]}), seq=most, lost=most)
    assert len(list(joined.joined_messages([wild, strange, frame]))) == 3
    later = dataclasses.replace(HELLO, raw_ns=frame.time_ns + 10**9)
    joined.gap_notes(later, "why")
    frame = dataclasses.replace(frame, records={"asleep_ns": most})
    (report,) = joined.joined_messages([frame])
    assert wire.encode(report)
    assert len(joined._offline) == 0


@pytest.mark.parametrize("change", [
    {"boot_id": "c"}, {"host": "other"}, {"cores": []}, {"stamp": "raw"},
    {"raw_ns": HELLO.raw_ns - 1},
])  # fmt: skip
def test_a_stream_of_another_machine_is_refused(change: dict[str, object]) -> None:
    joined = StreamJoiner(HELLO)
    assert joined.mismatch_text(HELLO) == ""
    later = {"raw_ns": HELLO.raw_ns + 10**9} | change
    assert joined.mismatch_text(dataclasses.replace(HELLO, **later))  # type: ignore[arg-type]
