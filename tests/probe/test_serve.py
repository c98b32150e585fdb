"""The probe's loop: a slow reader loses old frames but never delays the probe; without a reader the
probe ends."""

from __future__ import annotations

import dataclasses
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from waiting import MAX_WAIT_S, wait_for

from perfprobe import serve, wire
from perfprobe.serve import BATCH_COMMAND, ECHO_COMMAND, CommandParser
from perfprobe.sources.sim import source as sim
from perfprobe.wire import Frame, Hello, Note, outbox

BIG_VALUES = bytes(200_000)


class FakeSource(synth.Source):
    """A source that has `frames` frames, all due at once, and then no more."""

    def __init__(self, frames: int = 10**9, size: int = 1000) -> None:
        self.hello: Hello = synth.hello([synth.REF], threads=1)
        self.sent_frames = self.polls = 0
        self.paces: list[int] = []
        self._frames = frames
        self._pad = bytes(size)

    def due_s(self) -> float | None:
        return time.monotonic() + (3600 if self.sent_frames >= self._frames else 0)

    def poll(self) -> list[Frame | Note]:
        self.polls += 1
        if self.sent_frames >= self._frames:
            return []
        self.sent_frames += 1
        plain = synth.frame(self.hello, self.sent_frames, {"ref": [self.sent_frames]})
        return [dataclasses.replace(plain, records={"pad": self._pad})]

    def set_batch_length(self, batch_ns: int) -> None:
        self.paces.append(batch_ns)


@pytest.fixture(autouse=True)
def _closes_files() -> None:
    """Here, tests leave their own ends of pipes open."""


class Reader(threading.Thread):
    """Runs `serve` in a thread, connected to pipes."""

    def __init__(self, source: FakeSource) -> None:
        super().__init__(daemon=True)
        self.source = source
        self.stdin_r, self.stdin_w = os.pipe()
        self.out_r, self.out_w = os.pipe()
        self.stop_r, self.stop_w = os.pipe()
        self.ended: str | None = None

    def run(self) -> None:
        try:
            serve.serve(self.source, self.stdin_r, self.out_w, self.stop_r)
        except outbox.EndedError as end:
            self.ended = str(end)
        os.close(self.out_w)

    def read_remaining(self) -> bytes:
        data = b""
        while chunk := os.read(self.out_r, 1 << 20):
            data += chunk
        return data


def messages(data: bytes) -> list[wire.Message]:
    return list(wire.Decoder().feed(data))


def test_everything_arrives_in_order() -> None:
    reader = Reader(FakeSource(frames=200))
    reader.start()
    wait_for(lambda: reader.source.sent_frames == 200, "200 frames")
    os.close(reader.stdin_w)
    result = messages(reader.read_remaining())
    assert isinstance(result[0], Hello)
    assert [f.seq for f in result[1:] if isinstance(f, Frame)] == list(range(1, 201))
    assert reader.ended == "stdin closed"


def test_the_hello_is_written_before_anything_that_may_wait_for_it() -> None:
    out_r, out_w = os.pipe()
    stop_r, stop_w = os.pipe()
    os.write(stop_w, b"x")
    seen: list[wire.Message] = []
    source = FakeSource()
    with pytest.raises(outbox.EndedError):
        serve.serve(
            source, out_r, out_w, stop_r,
            on_hello=lambda: seen.extend(messages(os.read(out_r, 1 << 20))),
        )  # fmt: skip
    assert seen == [source.hello]
    for fd in (out_r, out_w, stop_r, stop_w):
        os.close(fd)


def test_a_slow_reader_loses_old_frames_and_gets_their_number() -> None:
    reader = Reader(FakeSource(frames=300, size=200_000))  # 60 MB; the limit of the queue is 8 MB
    reader.start()
    wait_for(lambda: reader.source.sent_frames == 300, "300 frames")
    os.write(reader.stdin_w, b"echo 41\nbatch 200000000\n")
    wait_for(lambda: reader.source.paces, "the orders")
    data = b""
    while BIG_VALUES[:100] not in data[-200:] or messages(data)[-1].seq < 300:  # type: ignore[union-attr]
        data += os.read(reader.out_r, 1 << 20)
    os.close(reader.stdin_w)
    received = messages(data + reader.read_remaining())
    assert not any(isinstance(message, Note) for message in received), "the queue was full"
    frames = [message for message in received if isinstance(message, Frame)]
    seqs = [f.seq for f in frames]
    assert seqs == sorted(set(seqs))
    assert seqs[-1] == 300
    assert 250 < frames[-1].lost < 300
    assert len(frames) + frames[-1].lost == 300
    assert (len(frames) - 8) * 200_000 < outbox.QUEUE_BYTES + outbox.PIPE_BYTES == 9 << 20


def test_a_full_queue_drops_the_oldest_frames_and_no_notes() -> None:
    """Messages of 100 bytes for a queue of 1000: it has room for ten, and for the newest."""
    out_r, out_w = os.pipe()
    box = outbox.Outbox(out_w, 1000, encode=lambda message: b"%100d" % message.time_ns)  # type: ignore[union-attr]
    for seq in range(20):
        box.put(Note("mark", seq) if seq in {2, 19} else Frame(seq, seq, {}))
    assert box.lost == 8
    assert box.is_full
    box.flush()
    data = os.read(out_r, 10_000)
    numbers = [int(data[first : first + 100]) for first in range(0, len(data), 100)]
    assert numbers == [2, *range(9, 20)]
    assert not box
    os.close(out_r)
    os.close(out_w)


def test_two_messages_are_kept_whatever_their_size() -> None:
    out_r, out_w = os.pipe()
    box = outbox.Outbox(out_w, 1)
    for seq in range(4):
        box.put(Frame(seq, seq, {}))
    box.flush()
    assert box.lost == 2
    assert len(os.read(out_r, 10_000)) > len(wire.encode(Frame(2, 2, {})))
    os.close(out_r)
    os.close(out_w)


@pytest.mark.parametrize("how", ["reader", "stop"])
def test_the_probe_ends_without_reader_or_parent(how: str) -> None:
    reader = Reader(FakeSource(frames=3))
    reader.start()
    wait_for(lambda: reader.source.sent_frames == 3, "3 frames")
    if how == "reader":
        os.close(reader.out_r)
    else:
        os.write(reader.stop_w, b"x")
    reader.join(timeout=MAX_WAIT_S)
    assert reader.ended in {"the reader is gone", "a signal"}


def test_the_probe_ends_when_its_parent_closes_the_socket() -> None:
    ours, theirs = socket.socketpair()
    reader = Reader(FakeSource(frames=3))
    reader.stdin_r = ours.fileno()
    reader.start()
    wait_for(lambda: reader.source.sent_frames == 3, "3 frames")
    theirs.close()
    reader.join(timeout=MAX_WAIT_S)
    assert reader.ended == "stdin closed"
    ours.close()


def test_a_command_ends_by_a_signal_or_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    (stop, signals), (stdin, parent) = os.pipe(), os.pipe()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: stdin))
    assert not serve.asked_to_end(stop)
    os.write(parent, b"batch 1\n")
    assert not serve.asked_to_end(stop)
    os.write(signals, b"x")
    assert serve.asked_to_end(stop)
    os.read(stop, 1)
    os.close(parent)
    assert serve.asked_to_end(stop)
    for fd in (stop, signals, stdin):
        os.close(fd)


def test_an_echo_is_answered_with_the_time_of_this_machine() -> None:
    reader = Reader(FakeSource(frames=3))
    reader.start()
    before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    os.write(reader.stdin_w, b"echo 41\n")
    os.close(reader.stdin_w)
    notes = [
        message for message in messages(reader.read_remaining()) if isinstance(message, wire.Note)
    ]
    answers = [note for note in notes if note.kind == "echo"]
    after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    assert [note.data for note in answers] == [{"number": 41}]
    assert before_ns <= answers[0].time_ns <= after_ns


class Clock:
    """The clock of a loop that never waits: poll advances it. Counts polls and writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = time.monotonic_ns()
        self.polls = self.writes = 0
        self.until_ns = 0
        writev = os.writev

        def written(fd: int, parts: list[bytes]) -> int:
            self.writes += 1
            return writev(fd, parts)

        monkeypatch.setattr(serve, "time", self)
        monkeypatch.setattr(sim, "time", self)
        monkeypatch.setattr(select, "poll", lambda: self)
        monkeypatch.setattr(os, "writev", written)

    def monotonic_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def process_time_ns(self) -> int:
        return 0

    def register(self, *_: int) -> None:
        pass

    modify = register

    def poll(self, wait_ms: float) -> list[tuple[int, int]]:
        """Replaces poll() of select.poll()."""
        self.now_ns += math.ceil(wait_ms) * 1_000_000
        if self.now_ns > self.until_ns:
            raise outbox.EndedError
        self.polls += 1
        return []


@pytest.mark.parametrize("cpus", [2, 256])
@pytest.mark.parametrize("rounds", [1, 5])
def test_the_loop_wakes_and_writes_once_a_batch(
    rounds: int, cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_ns = 100_000_000
    source = sim.SimSource(f"sim:smt-mix,cpus={cpus}", sample_ns)
    source.set_batch_length(rounds * sample_ns)
    clock = Clock(monkeypatch)
    clock.now_ns = source._start_ns  # opening 256 CPUs takes long on a busy machine
    clock.until_ns = clock.now_ns + 21 * sample_ns // 2  # the first round and ten more
    polls: list[int] = []
    poll = source.poll

    def watched() -> list[Frame | Note]:
        polls.append(1)
        return poll()

    monkeypatch.setattr(source, "poll", watched)
    readable, writable = os.pipe()
    with pytest.raises(outbox.EndedError):
        serve.serve(source, readable, writable, readable)
    batches = {1: 11, 5: 4}[rounds]  # 0, 1, 5, 10: the second one is early
    assert clock.polls == len(polls) == batches
    assert clock.writes == batches + 1  # the hello is one more write
    os.close(writable)
    data = Reader.read_remaining(SimpleNamespace(out_r=readable))  # type: ignore[arg-type]
    frames = [m for m in messages(data) if isinstance(m, Frame)]
    assert [frame.seq for frame in frames] == list(range(11))
    whole = [frame.seq for frame in frames if "machine" in frame.blocks]
    assert whole == (list(range(11)) if rounds == 1 else [0, 1, 5, 10])


def test_a_simulation_at_full_speed_waits_only_for_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = sim.SimSource("sim:smt-mix,cpus=256,speed=max", 100_000_000)
    clock = Clock(monkeypatch)
    clock.until_ns = clock.now_ns  # any wait ends the loop
    readable, writable = os.pipe()
    with pytest.raises(outbox.EndedError):
        serve.serve(source, readable, writable, readable)
    assert clock.polls
    assert not select.select([], [writable], [], 0)[1], "the pipe is full"
    os.close(readable)
    os.close(writable)


def test_signals_become_readable_and_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with serve.stop_signals() as fd:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)  # this signal is for the terminal, so it is ignored
        wait_for(lambda: os.read(fd, 10) == bytes([signal.SIGTERM]), "SIGTERM on the descriptor")
        ours = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(ours)
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.set_wakeup_fd(-1) == -1 != ours


# --- orders on stdin: they may arrive in pieces, and all other input is ignored -------------------


@given(cuts=st.lists(st.integers(0, 40), max_size=5))
def test_an_order_may_arrive_in_pieces(cuts: list[int]) -> None:
    text = b"noise\nbatch 500000000\necho 3\nbatch 7\nbat"
    reader, result, at = CommandParser(), [], 0
    for cut in [*sorted(cuts), len(text)]:
        result.append(reader.parse(text[at:cut]))
        at = max(at, cut)
    assert [each[BATCH_COMMAND] for each in result if BATCH_COMMAND in each][-1] == 7
    assert [each[ECHO_COMMAND] for each in result if ECHO_COMMAND in each] == [3]
    assert reader.parse(b"ch 9\n") == {BATCH_COMMAND: 9}


@pytest.mark.parametrize("line", [
    *(b"batch", b"batch ", b"batch 0", b"batch -5", b"batch +5", b"batch 5 ", b"batch  5"),
    *(b" batch 5", b"batch 5\r", b"batch 5.0", b"batch 1e9", b"batch 0x5", b"batch \xd9\xa5"),
    *(b"Batch 5", b"batch\t5", b"batch 1234567890123", b"batch 5" + b"0" * 5000),
    *(b"x" * 5000 + b"batch 5", b"\0batch 5"),
    *(b"echo", b"echo ", b"echo 0", b"echo -1", b"echo x", b"echo 1234567890123"),
])  # fmt: skip
def test_malformed_orders_are_ignored(line: bytes) -> None:
    assert CommandParser().parse(line + b"\n") == {}
    reader = CommandParser()
    assert [reader.parse(bytes([byte])) for byte in line + b"\n"] == [{}] * (len(line) + 1)
    # The next lines count.
    assert reader.parse(b"batch 5\necho 6\n") == {BATCH_COMMAND: 5, ECHO_COMMAND: 6}


@given(noise=st.lists(st.binary(max_size=100), max_size=20))
def test_hostile_bytes_change_nothing(noise: list[bytes]) -> None:
    reader = CommandParser()
    for piece in noise:
        content = reader.parse(piece)
        assert not content or b"batch " in b"".join(noise) or b"echo " in b"".join(noise)
        assert len(reader._line) <= serve.MAX_COMMAND_BYTES + 1
    assert reader.parse(b"\nbatch 12\n") == {BATCH_COMMAND: 12}
