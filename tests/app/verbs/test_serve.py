"""`perftop serve`: one probe for many readers, which cannot affect it or each other."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import synth
from command import children, lines, python, run_in_process, started_process
from waiting import MAX_WAIT_S, until_true, wait_for

from perfprobe import wire
from perftop import cli
from perftop.base.errors import Failed
from perftop.process import serving, signals
from perftop.process import streams as probe_stream
from perftop.process.launch import probe_command
from perftop.process.serving import MAX_READERS, Readers, listening_socket, may_read
from perftop.recording import file
from perftop.verbs import serve
from perftop.verbs.serve import open_listening_socket

HELLO = synth.hello([synth.REF])
LISTENS = "00010000"  # flags in /proc/net/unix
SOURCE = ("--source", "sim:idle,cpus=4,speed=10", "--sample", "100ms")


def frame(seq: int) -> wire.Frame:
    return synth.frame(HELLO, seq, {"ref": [seq, seq]})


def large_frame(seq: int) -> wire.Frame:
    result = frame(seq)
    return wire.Frame(seq, result.time_ns, result.blocks, records={"x": b"x" * 200_000})


def received_messages(peer: socket.socket) -> list[Any]:
    """All messages currently in the socket."""
    decoder = wire.Decoder()
    results: list[wire.Message] = []
    peer.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while data := peer.recv(1 << 20):
            results += decoder.feed(data)
    return results


@contextlib.contextmanager
def connected_reader(readers: Readers) -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    assert readers.admit(ours)
    with theirs:
        yield theirs


@contextlib.asynccontextmanager
async def open_readers() -> AsyncIterator[Readers]:
    readers = Readers()
    try:
        yield readers
    finally:
        readers.close()


@pytest.mark.parametrize("error", [OSError("it has left"), struct.error("no credentials")])
def test_a_client_that_has_left_does_not_end_the_server(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(serving, "may_read", Mock(side_effect=error))
    with ours, theirs:
        serve._admit(Mock(accept=lambda: (ours, "")), Readers(), None)
    serve._admit(Mock(accept=Mock(side_effect=error)), Readers(), None)


async def test_a_late_reader_first_gets_hello_and_persistent_notes() -> None:
    async with open_readers() as readers:
        taken = wire.Note("taken", 5, data={"cpus": [1], "counters": ["ref"]})
        for message in (HELLO, taken, wire.Note("warning", 6, data={"text": "x"}), frame(3)):
            readers.send(message)
        with connected_reader(readers) as late:
            readers.send(frame(4))
            hello, note, first = received_messages(late)
        past_ns = frame(3).time_ns - HELLO.raw_ns
        assert hello.raw_ns == frame(3).time_ns > 5, "the stream starts there"
        assert hello.wall_ns == HELLO.wall_ns + past_ns
        assert (note.kind, note.time_ns) == ("taken", hello.raw_ns), (
            "the note is valid from the start"
        )
        assert first.seq == 4
        readers.send(HELLO)  # of the next probe
        with connected_reader(readers) as later:
            assert len(received_messages(later)) == 1


async def test_a_late_reader_gets_the_current_cpus_without_past_changes() -> None:
    row = {"core": 7, "package": 0, "l3": 3}
    changes: list[dict[str, Any]] = [
        {"cpu": 0, "online": False}, {"cpu": 1, "online": False}, {"cpu": [], "online": False},
        {"cpu": 0, "online": True, "row": row},
    ]  # fmt: skip
    async with open_readers() as readers:
        readers.send(HELLO)
        for data in changes:
            readers.send(wire.Note("hotplug", 5, data=data))
        readers.send(frame(3))
        with connected_reader(readers) as late:
            (hello,) = received_messages(late)
    assert [(row.cpu, row.online) for row in hello.topology] == [(0, True), (1, False)]
    assert (hello.topology[0].core, hello.topology[0].l3) == (7, 3)


async def test_a_slow_reader_loses_frames_and_delays_no_other() -> None:
    async with open_readers() as readers:
        readers.send(HELLO)
        results: list[wire.Message] = []
        with connected_reader(readers) as slow, connected_reader(readers) as quick:
            decoder = wire.Decoder()
            quick.setblocking(False)
            for seq in range(100):
                readers.send(large_frame(seq))
                for _ in range(20):
                    await asyncio.sleep(0)
                    with contextlib.suppress(BlockingIOError):
                        results += decoder.feed(quick.recv(1 << 20))
            assert len(results) == 101
            assert all(m.lost == 0 for m in results if isinstance(m, wire.Frame))
            (backlog,) = (box._bytes for box in readers._outboxes.values() if box)
            assert backlog < 3 << 20
            slow_messages: list[wire.Message] = []
            slow.setblocking(False)
            slow_decoder = wire.Decoder()

            def last_frame_arrived() -> bool:
                with contextlib.suppress(BlockingIOError):
                    slow_messages.extend(slow_decoder.feed(slow.recv(1 << 20)))
                return isinstance(slow_messages[-1], wire.Frame) and slow_messages[-1].seq == 99

            await until_true(last_frame_arrived, "the last frame")
        frames = [m for m in slow_messages if isinstance(m, wire.Frame)]
        assert frames[-1].lost == 100 - len(frames) > 0


async def test_the_number_of_readers_is_limited() -> None:
    async with open_readers() as readers:
        with contextlib.ExitStack() as stack:
            for _ in range(MAX_READERS):
                stack.enter_context(connected_reader(readers))
            ours, theirs = socket.socketpair()
            with ours, theirs:
                assert not readers.admit(ours)


def listens(path: Path) -> bool:
    """Whether it accepts connections. The path of a socket exists a moment earlier."""
    rows = Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()
    return any(row.endswith(f" {path}") and row.split()[3] == LISTENS for row in rows)


@contextlib.contextmanager
def server(path: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    command = ("serve", "--socket", str(path), *(more or SOURCE))
    with started_process(*command, with_stderr=True) as process:
        wait_for(lambda: listens(path) or process.poll() is not None, "the socket")
        yield process


def test_stat_and_record_can_attach_to_a_server(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with server(path) as process:
        result = run_in_process("stat", "--attach", f"unix:{path}", "--json", "-n", "2")
        assert result.returncode == 0, result.stderr
        (hello,) = lines(result.stdout, "hello")
        assert len(hello["topology"]) == 4
        assert len(lines(result.stdout, "interval")) == 2
        kept = tmp_path / "kept"
        result = run_in_process(
            "record", "--attach", f"unix:{path}", "-o", str(kept), "--duration", "1s"
        )
        assert result.returncode == 0, result.stderr
        with file.Recording(kept) as recording:
            assert len(recording.hello.topology) == 4
        (probe,) = children(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(MAX_WAIT_S) == 0
        assert not path.exists()
        wait_for(lambda: not Path(f"/proc/{probe}").exists(), "the probe ends")


def test_a_probe_that_cannot_start_is_reported_immediately(tmp_path: Path) -> None:
    with server(tmp_path / "s", "--source", "sim:nonsense") as process:
        assert process.wait(MAX_WAIT_S) == 2
        assert process.stderr
        assert b"nonsense" in process.stderr.read()


@contextlib.asynccontextmanager
async def running_server(path: Path) -> AsyncIterator[None]:
    """A server of a simulated machine in this process, which a signal ends."""
    argv = probe_command("stream", "--source", "sim:idle,speed=10", "--sample", "0.1")
    with open_listening_socket(path, None) as listener:
        serving = asyncio.ensure_future(serve.serve(listener, argv, None))
        yield
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(serving, MAX_WAIT_S)


async def assert_one_hello(reader: asyncio.StreamReader) -> None:
    decoder = wire.Decoder()
    results: list[wire.Message] = []
    while len(results) < 3:
        results += decoder.feed(await asyncio.wait_for(reader.read(1 << 16), MAX_WAIT_S))
    assert [isinstance(message, wire.Hello) for message in results[:3]] == [True, False, False]


async def test_the_probe_stops_without_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "IDLE_S", 0.2)
    starts: list[int] = []
    again = probe_stream.open_stream

    def count_start(probe: Any) -> Any:
        starts.append(1)
        return again(probe)

    monkeypatch.setattr(probe_stream, "open_stream", count_start)
    others = {*children(os.getpid())}  # these processes are from other tests

    def has_no_probe() -> bool:
        return bool(starts) and others.issuperset(children(os.getpid()))

    async with running_server(tmp_path / "s"):
        await until_true(has_no_probe, "the probe stops")
        for turn in (2, 3):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
            await assert_one_hello(reader)
            assert len(starts) == turn
            writer.close()
            await until_true(has_no_probe, "the probe stops again")


async def test_a_reader_that_connects_while_the_probe_ends_gets_one_hello(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "IDLE_S", 0.2)
    open_stream, path = probe_stream.open_stream, tmp_path / "s"
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    @contextlib.asynccontextmanager
    async def open_and_connect_at_the_end(probe: Any) -> Any:
        async with open_stream(probe) as stream:
            yield stream
            if not connections:
                connections.append(await asyncio.open_unix_connection(path))
                await asyncio.sleep(0.1)  # the server admits the reader

    monkeypatch.setattr(probe_stream, "open_stream", open_and_connect_at_the_end)
    async with running_server(path):
        await until_true(lambda: connections, "the probe ends")
        ((reader, writer),) = connections
        await assert_one_hello(reader)
        writer.close()


# --- sockets


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_group_may_get_access(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening_socket(path, os.getgid()):
        assert (mode(path), path.stat().st_gid) == (0o660, os.getgid())
    assert serving.group_id("4294967294") == 4294967294
    for name in ("no-such-group-there", "4294967295"):
        with pytest.raises(Failed, match="no such group") as caught:
            serving.group_id(name)
        assert caught.value.status == 2


def test_only_an_unused_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with (
        listening_socket(path),
        pytest.raises(Failed, match="Address already in use; another program"),
        listening_socket(path),
    ):
        pass
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    path.symlink_to("dead")
    with pytest.raises(Failed, match="is not a socket"), listening_socket(path):
        pass
    path.unlink()
    path.write_text("precious", encoding="ascii")
    with pytest.raises(Failed, match="is not a socket"), listening_socket(path):
        pass
    assert path.read_text(encoding="ascii") == "precious"


def test_a_busy_listener_with_a_full_queue_does_not_delay_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(str(path))
        busy.listen(0)
        refused = 0
        while refused != errno.EAGAIN:
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            refused = client.connect_ex(str(path))
        stack.enter_context(pytest.raises(Failed, match="Address already in use"))
        stack.enter_context(listening_socket(path))
    assert path.is_socket()


def test_the_socket_of_another_user_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening_socket(path):
        path.unlink()
        path.write_text("theirs", encoding="ascii")
    assert path.read_text(encoding="ascii") == "theirs"


class Peer:
    """Credentials of the peer as reported by the kernel."""

    def __init__(self, uid: int, gid: int, groups: tuple[int, ...] = ()) -> None:
        self._uid, self._gid, self._discarded_bytes = uid, gid, groups

    def getsockopt(self, _level: int, option: int, _size: int) -> bytes:
        if option == socket.SO_PEERCRED:
            return serving._CREDENTIALS.pack(1, self._uid, self._gid)
        assert option == serving.SO_PEERGROUPS
        return b"".join(group.to_bytes(4, sys.byteorder) for group in self._discarded_bytes)


@pytest.mark.parametrize(("peer", "group", "may"), [
    (Peer(os.geteuid(), 5), None, True),
    (Peer(0, 0), None, True),
    (Peer(12345, 5), None, False),
    (Peer(12345, 5), 5, True),
    (Peer(12345, 6, (7, 5)), 5, True),
    (Peer(12345, 6, (7, 8)), 5, False),
])  # fmt: skip
def test_readers_are_admitted_by_user_and_group(peer: Peer, group: int | None, may: bool) -> None:
    assert may_read(peer, group) is may  # type: ignore[arg-type]


def test_credentials_are_read_from_the_kernel(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert may_read(ours, None)
        assert set(os.getgroups()) <= {os.getgid(), *serving._peer_groups(ours)}


ACTIVATED = """
import os, socket, sys
made = socket.socket({family}, {kind})
made.bind({address!r})
{listen}
os.dup2(made.fileno(), 3)
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid() + {other}), "{count}"
from perftop.base.errors import Failed
from perftop.verbs.serve import open_listening_socket
try:
    with open_listening_socket(None, None) as found:
        print(found.fileno(), found.get_inheritable(), "LISTEN_FDS" in os.environ)
except Failed as failed:
    print(failed)
"""


@pytest.mark.parametrize(("changes", "message"), [
    ({}, "3 False False"),
    ({"other": 1}, "no socket to listen on; name one: --socket PATH"),
    ({"count": 2}, "is not a socket"),
    ({"listen": ""}, "is not a listening stream socket"),
    ({"kind": "socket.SOCK_DGRAM", "listen": ""}, "is not a listening stream socket"),
    ({"family": "socket.AF_INET", "address": ("127.0.0.1", 0)},
     "something other than one unix socket"),
])  # fmt: skip
def test_systemd_may_pass_the_socket(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    usual: dict[str, object] = {
        "family": "socket.AF_UNIX", "kind": "socket.SOCK_STREAM", "address": str(tmp_path / "s"),
        "listen": "made.listen(5)", "other": 0, "count": 1,
    }  # fmt: skip
    code = ACTIVATED.format(**(usual | changes))
    result = python(code)
    assert message in result.stdout
    if not changes:
        assert (tmp_path / "s").exists(), "systemd owns it"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_user_at_a_terminal_is_told_how_to_read(
    is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    monkeypatch.setattr(signals, "run_loop", lambda *_: None)
    path = tmp_path / "s"
    assert cli.main(["serve", "--socket", str(path)]) == 0
    hint = f"perftop: to read it: perftop attach unix:{path}\n"
    assert capsys.readouterr().err == (hint if is_terminal else "")
