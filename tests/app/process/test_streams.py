"""Streams from a child: complete messages are delivered, then one line reports the outcome.
Machines that hang, break or send invalid data delay no other and are retried."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import msgpack
import pytest
import synth
from waiting import MAX_WAIT_S, until_true

from perfprobe import wire
from perfprobe.serve import BATCH_COMMAND, CommandParser
from perftop.base.errors import Failed
from perftop.process import launch, streams
from perftop.process.streams import Stream

GREETING = synth.hello([synth.REF])
GOOD = wire.encode(GREETING) + b"".join(
    wire.encode(synth.frame(GREETING, seq, {"ref": [seq, seq]})) for seq in range(3)
)


def child(code: str, data: bytes = GOOD) -> list[str]:
    """A program that writes `data` and then runs `code`."""
    start = f"import os, sys, time\nos.write(1, {data!r})\n"
    return [sys.executable, "-S", "-c", start + code, "stream"]


def open_probe(argv: Sequence[str]) -> streams.LinkedStream | streams.ProbeStream:
    return streams.open_stream(launch.start_probe(argv))


async def read(argv: Sequence[str], stop_after: int | None = None) -> list[wire.Message]:
    """Received messages, at most `stop_after`, followed by the failure if there was one."""
    results: list[wire.Message] = []
    async with open_probe(argv) as source:
        try:
            async for messages in source:
                results += messages
                if stop_after is not None and len(results) >= stop_after:
                    break
        except Failed as failed:
            failed.add_note(str(len(results)))
            raise
    return results[:stop_after]


@pytest.mark.parametrize(
    ("code", "data", "whole", "status", "text"),
    [
        ("", GOOD, 4, 1, "ended without an error message"),
        ("", GOOD[:-5], 3, 1, r"without an error message, \d+ bytes into a message"),
        ("os.write(1, b'oops')", GOOD, 4, 1, "unreadable data: not a perftop stream, at byte"),
        ("", b"Last login: yesterday\n" + GOOD, 0, 1, "not a perftop stream, at byte 0"),
        ("print('perfprobe: no such thing', file=sys.stderr); sys.exit(3)", b"", 0, 3,
         "^no such thing"),
        ("print('a warning', file=sys.stderr)", GOOD, 4, 1, "ended without an error message"),
        ("os.kill(os.getpid(), 9)", GOOD, 4, 1, "ended by signal 9"),
        ("", GOOD + wire.encode(wire.Bye("the counters are gone", 1)), 4, 1,
         "^the counters are gone"),
        ("sys.stderr.write('x' * 10**6 + '\\nlast words\\n'); sys.exit(1)", GOOD, 4, 1,
         "^last words"),
    ],
    ids=["silent", "cut", "garbled", "a banner", "status 3", "status 0", "killed", "bye",
         "much on stderr"],
)  # fmt: skip
def test_failures_of_a_probe_are_reported(
    code: str, data: bytes, whole: int, status: int, text: str
) -> None:
    with pytest.raises(Failed, match=text) as caught:
        asyncio.run(read(child(code, data)))
    assert caught.value.status == status
    assert caught.value.__notes__ == [str(whole)]
    assert "\n" not in str(caught.value)


def test_the_write_interval_is_sent_to_the_probe(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    code = f"open({str(heard)!r}, 'wb').write(sys.stdin.buffer.read())"
    with launch.running_probe(child(code)) as probe:
        probe.set_batch_length(500_000_000)
        probe.set_batch_length(1_000_000_000)
    probe.set_batch_length(5)  # writing to an ended probe is ignored
    probe.stdout.close()
    orders = CommandParser()
    lines = heard.read_bytes().splitlines(keepends=True)
    sent = [orders.parse(line)[BATCH_COMMAND] for line in lines]
    assert sent == [500_000_000, 1_000_000_000]


def test_a_probe_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 0.2)
    started = time.monotonic()
    asyncio.run(read(child("time.sleep(1000)"), stop_after=1))
    assert time.monotonic() - started < MAX_WAIT_S


def test_a_probe_that_gives_no_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 0.1)
    monkeypatch.setattr(launch, "MAX_ANSWER_S", 0.1)
    with pytest.raises(Failed, match="the probe did not answer"):
        launch.ask_probe(child("time.sleep(1000)"))


def test_a_probe_that_ignores_signals_has_ended_when_perftop_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 0.1)
    stays = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print(os.getpid(), file=open(sys.argv[1], 'w'), flush=True);"
        "os.kill(os.getppid(), signal.SIGTERM); time.sleep(1000)"
    )
    with pytest.raises(SystemExit):
        launch.ask_probe([sys.executable, "-c", stays, str(tmp_path / "pid")])
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_a_probe_that_measures_once_is_asked_to_end(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys, time;"
        "end = lambda *_: (pathlib.Path(sys.argv[1]).touch(), os._exit(0));"
        "signal.signal(signal.SIGTERM, end); os.kill(os.getppid(), signal.SIGTERM); time.sleep(99)"
    )
    with pytest.raises(SystemExit):
        launch.ask_probe([sys.executable, "-c", code, str(tmp_path / "asked")])
    assert (tmp_path / "asked").exists()


@pytest.mark.parametrize(("code", "grace_s", "status"), [
    ("sys.stdin.read(); time.sleep(0.3)", MAX_WAIT_S, 0),
    ("time.sleep(1000)", 0.1, -signal.SIGKILL),
])  # fmt: skip
def test_the_end_of_a_probe_is_awaited_although_sleep_is_refused(
    code: str, grace_s: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "GRACE_S", grace_s)
    probe = launch.Probe(child(code, b""))
    monkeypatch.setattr(time, "sleep", Mock(side_effect=PermissionError))
    with probe.stdout:
        assert probe.end() is None
    assert probe.process.returncode == status


@pytest.mark.parametrize(("status", "text", "expected_message"), [
    (0, "", KeyboardInterrupt),
    (130, "", KeyboardInterrupt),
    (1, "", KeyboardInterrupt),  # its answer, which nobody read, has a wrong counter
    (1, "counters of CPU 3 stay programmed", Failed),
    (137, "", Failed),  # sudo reports that the probe was killed
])  # fmt: skip
def test_an_interrupted_measurement_reports_only_unrestored_registers(
    status: int, text: str, expected_message: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True);"
        f"sys.stdin.read(); sys.stderr.write({text!r}); sys.exit({status})"
    )
    read_to_end = launch.Probe.read_to_end

    def interrupted_read(probe: launch.Probe) -> bytes:
        probe.stdout.read(1)  # An interrupt while Popen runs would leave its pipes open.
        os.kill(os.getpid(), signal.SIGINT)
        return read_to_end(probe)

    monkeypatch.setattr(launch.Probe, "read_to_end", interrupted_read)
    with pytest.raises(expected_message):
        launch.ask_probe([sys.executable, "-c", code, "msr"])


def test_an_interrupt_while_a_probe_is_started_leaves_no_pipe_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probes: list[launch.Probe] = []

    def interrupted_start(probe: launch.Probe) -> None:
        start(probe)
        probes.append(probe)
        os.kill(os.getpid(), signal.SIGINT)

    start = launch.Probe.start
    monkeypatch.setattr(launch.Probe, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        launch.ask_probe([sys.executable, "-c", "input()"])
    (probe,) = probes
    assert probe.stdout.closed
    assert probe.process.returncode is not None


async def test_a_silent_probe_does_not_delay_the_result_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "MAX_SILENCE_S", 0.2)
    monkeypatch.setattr(launch, "GRACE_S", 0.2)
    over = False
    with pytest.raises(Failed, match=r"sent nothing for .*the measurement is incomplete"):
        async with asyncio.timeout(MAX_WAIT_S), open_probe(child("time.sleep(1000)")) as stream:
            assert isinstance(stream, streams.ProbeStream)
            stream.fails_when_silent = lambda: over
            messages = aiter(stream)
            await anext(messages)
            pending = asyncio.ensure_future(anext(messages))
            await asyncio.wait([pending], timeout=1.0)
            assert not pending.done()  # the time limit does not apply while a command runs
            over = True
            await pending


@contextmanager
def serving_socket(path: Path, pieces: Sequence[bytes], pause_s: float = 0.0) -> Iterator[str]:
    """The address of a socket that sends these pieces to its first reader, and nothing else."""
    over = threading.Event()

    def serve() -> None:
        with suppress(OSError), listening.accept()[0] as peer:
            for piece in pieces:
                peer.sendall(piece)
                over.wait(pause_s)
            over.wait()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"unix:{path}"
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


async def read_without_retries(address: str) -> None:
    """Reads a server's stream until the first broken link."""
    probe = launch.start_probe([address])
    async with asyncio.timeout(MAX_WAIT_S), streams.open_stream(probe) as stream:
        assert probe.link is not None
        probe.link.limit_retries(0.0)
        async for _ in stream:
            pass


async def test_a_silent_server_is_a_broken_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_SILENCE_S", 0.2)
    with (
        serving_socket(tmp_path / "s", [GOOD]) as address,
        pytest.raises(Failed, match=r"received no sample for .*no time left to try again"),
    ):
        await read_without_retries(address)


async def test_bytes_without_a_complete_sample_count_as_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_SILENCE_S", 0.2)
    note = wire.encode(wire.Note("mark", GREETING.raw_ns, data={"text": "x"}))
    with (
        serving_socket(tmp_path / "s", [GOOD, *[note] * 600], 0.05) as address,
        pytest.raises(Failed, match="received no sample for"),
    ):
        async with asyncio.timeout(20):  # notes arrive for 30 s
            await read_without_retries(address)


async def test_a_probe_stopped_before_its_hello_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_LOCAL_HELLO_WAIT_S", 0.3)
    monkeypatch.setattr(launch, "GRACE_S", 0.2)
    silent = child("os.kill(os.getpid(), 19)", GOOD[:9])
    with pytest.raises(Failed, match=r"^the probe has sent nothing for .*was it stopped"):
        async with asyncio.timeout(MAX_WAIT_S), open_probe(silent) as stream:
            async for _ in stream:
                pass


async def test_a_hello_in_single_bytes_has_one_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_HELLO_WAIT_S", 0.5)
    pieces = [bytes([byte]) for byte in wire.encode(GREETING)]
    with (
        serving_socket(tmp_path / "s", pieces, 0.1) as address,
        pytest.raises(Failed, match="received nothing"),
    ):
        async with (
            asyncio.timeout(MAX_WAIT_S),
            streams.open_stream(launch.start_probe([address])) as stream,
        ):
            async for _ in stream:
                pass


async def test_a_probe_killed_while_perftop_ends_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The probe programs registers, so its death must be reported."""
    argv = [*child("os.close(1); sys.stdin.read(); os.kill(os.getpid(), 9)"), "msr"]
    waits: list[int] = []
    end_failure = launch.Probe.end_failure

    def noted(probe: launch.Probe, cut_bytes: int) -> Failed:
        waits.append(probe.process.pid)
        return end_failure(probe, cut_bytes)

    monkeypatch.setattr(launch.Probe, "end_failure", noted)
    monkeypatch.setattr(launch, "GRACE_S", MAX_WAIT_S)

    async def consume(source: Stream) -> None:
        async for _ in source:
            pass

    with pytest.raises(Failed, match=r"signal 9.*stay programmed.*perftop stat --source msr"):
        async with open_probe(argv) as source:
            task = asyncio.ensure_future(consume(source))
            await until_true(lambda: waits, "the reader waits for the probe's end")
            task.cancel()
            await asyncio.wait([task])


def test_a_missing_program_is_reported() -> None:
    with pytest.raises(Failed, match="cannot run the probe: no-such-program: No such file"):
        asyncio.run(read(["no-such-program"]))


def test_a_perfprobe_in_the_working_directory_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "perfprobe").mkdir()
    (tmp_path / "perfprobe/__init__.py").write_text("print('trap')\n", encoding="ascii")
    (tmp_path / "perfprobe/__main__.py").write_text("raise SystemExit(5)\n", encoding="ascii")
    monkeypatch.chdir(tmp_path)
    argv = launch.probe_command("stream", "--source", "sim:idle,speed=max")
    assert isinstance(asyncio.run(read(argv, stop_after=2))[1], wire.Frame)


SLOW = """
for at in range(3, 43):
    os.write(1, frames[at])
    time.sleep(0.01)
"""
FRAMES = [wire.encode(synth.frame(GREETING, seq, {"ref": [seq, seq]})) for seq in range(3 + 40)]


async def test_a_pausing_reader_reads_rarely_and_loses_nothing() -> None:
    """The reader is woken before its pause is over."""
    argv = child(f"frames = {FRAMES!r}\n{SLOW}")
    counts: list[int] = []
    async with open_probe(argv) as stream:
        assert isinstance(stream, streams.ProbeStream)
        loop = asyncio.get_running_loop()
        try:
            async for messages in stream:
                counts.append(len(messages))
                if len(counts) == 1:
                    stream.set_read_pause(1000.0)
                    loop.call_later(0.5, stream.set_read_pause, 0.0)
        except Failed as failed:
            assert "ended without an error message" in str(failed)
    assert sum(counts) == 4 + 40
    assert counts[1] > 1, "messages that arrived meanwhile"


def test_a_newer_probe_is_not_mistaken_for_the_output_of_a_start_file() -> None:
    hello = msgpack.packb(msgpack.packb({"type": "hello", "wire": 2}))
    failed = streams._decode(wire.Decoder(), hello, [], "n007")
    assert str(failed).endswith("(1): use the same version of perftop for both")
    failed = streams._decode(wire.Decoder(), b"Welcome to n007\n", [], "n007")
    assert str(failed).endswith("; its shell's startup files must print nothing: ssh n007 true")


def test_a_probe_has_a_process_group_of_its_own() -> None:
    code = f"sys.exit(7 if os.getpgid(0) != {os.getpgid(0)} else 8)"
    with pytest.raises(Failed) as caught:
        asyncio.run(read(child(code)))
    assert caught.value.status == 7
