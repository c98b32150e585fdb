"""Sends hostile bytes to everything that reads input: the probe's stdin, the socket of `serve`, and
`export` on a pipe.

The probe reads orders on stdin. It gets malformed orders, which must have no effect: no frame is
missing, and the length of batches and the memory are unchanged. Then a valid order must work, and
the end of stdin must end the probe with 0. Readers of `serve` send orders and noise, which must be
ignored: another reader misses no frame, and the server's memory does not grow. `export -`
gets damaged recordings, and messages made by a grammar, in pieces of any size; it must end with 0
or 4 and a line with the reason. `replay` must refuse, with a line, input that does not support
seeking. Prints a line for each of them.

Run by hand: python tests/bench/hostile_bytes.py [BYTES] [SEED] (1000000 each; quick: 50000)
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("support", "bench")]

import terminal  # noqa: E402
from command import argv  # noqa: E402
from mutate_recordings import SPECS, mutant, random_stream  # noqa: E402
from pieces import record_pieces  # noqa: E402
from read_back import Story, faults  # noqa: E402
from simulated import messages  # noqa: E402

from perfprobe import wire  # noqa: E402

ORDER = re.compile(rb"batch (\d{1,12})")
NEARLY = (b"batch", b"batch ", b"batch 0", b"batch -5", b"batch 1e9", b"batch 5.0", b"batch 0x5",
          b" batch 5", b"batch 5 ", b"batch 5\r", b"BATCH 5", b"batch\t5", b"batch 1234567890123",
          b"batch \xd9\xa5", b"\0batch 5", b"batch 5\0", b"stop", b"quit", b"{}", b"batch batch 5",
          b"batch 5;batch 6", b"echo", b"echo 0", b"echo x", b"\x1b[2J", b"hello",
          b"batch " + b"9" * 100)  # fmt: skip
BATCH, ORDERED = 10, 2
"""Samples per batch: at the start, and as ordered at the end."""
SAMPLE_NS = 20_000_000
MOST_MORE_MB = 4.0
LIMIT_S = 30.0


def line(rng: random.Random) -> bytes:
    """Returns a line that is not an order, without its newline."""
    match rng.randrange(6):
        case 0 | 1 | 2:
            choice = rng.choice(NEARLY)
        case 3:
            choice = rng.randbytes(rng.choice((1, 8, 100))).replace(b"\n", b"")
        case 4:
            choice = b"batch " * rng.choice((2, 50, 5000))
        case _:
            choice = rng.choice(NEARLY) + rng.randbytes(2).replace(b"\n", b"")
    return b"" if ORDER.fullmatch(choice) else choice


# --- orders


class Listener(threading.Thread):
    """Reads a probe's stream."""

    def __init__(self, fd: int) -> None:
        super().__init__(daemon=True)
        self._fd = fd
        self.story: Story | None = None
        self.batches: list[int] = []
        """Lengths so far; only the last frame of a batch has the block of the machine."""
        self.start()

    def run(self) -> None:
        decoder, length = wire.Decoder(), 0
        while data := os.read(self._fd, 1 << 16):
            for message in decoder.feed(data):
                if isinstance(message, wire.Hello):
                    self.story = Story(message)
                elif self.story is not None:
                    self.story.take(message)
                if isinstance(message, wire.Frame):
                    length += 1
                    if "machine" in message.blocks:
                        self.batches.append(length)
                        length = 0


def wait_for_batches(listener: Listener, length: int, least: int = 2) -> bool:
    """Waits for at least `least` batches, the last two of this length. Returns whether they
    arrived."""
    end_s = time.monotonic() + LIMIT_S
    while listener.batches[-2:] != [length] * 2 or len(listener.batches) < least:
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True


def send_lines(process: subprocess.Popen[bytes], count: int, rng: random.Random) -> None:
    assert process.stdin
    sent, text = 0, b""
    while sent < count:
        while len(text) < 4096:
            text += line(rng) + b"\n"
        size = rng.choice((1, 7, 100, 4096))
        process.stdin.write(text[:size])
        process.stdin.flush()
        sent, text = sent + size, text[size:]
        if rng.random() < 0.02:
            time.sleep(0.005)
    process.stdin.write(text + b"\n")


def orders(count: int, rng: random.Random) -> bool:
    sample_s = SAMPLE_NS / 1e9
    times = "--sample", f"{sample_s}", "--batch", f"{BATCH * sample_s}"
    command = argv("stream", "--source", "os", *times, program="perfprobe")
    pipe = subprocess.PIPE
    wrong: list[str] = []
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout
        listener = Listener(process.stdout.fileno())
        wrong += ["no batches"] * (not wait_for_batches(listener, BATCH))
        before_mb = terminal.rss_mb(process.pid)
        send_lines(process, count, rng)
        wrong += ["other batches"] * (not wait_for_batches(listener, BATCH))
        more_mb = terminal.rss_mb(process.pid) - before_mb
        wrong += [f"{more_mb:.1f} MB more"] * (more_mb > MOST_MORE_MB)
        assert process.stdin
        process.stdin.write(b"batch %d\n" % (ORDERED * SAMPLE_NS))
        process.stdin.flush()
        wrong += ["a real order does not count"] * (not wait_for_batches(listener, ORDERED))
        process.stdin.close()
        listener.join(LIMIT_S)
        status = process.wait(LIMIT_S)
        assert process.stderr
        message = process.stderr.read().decode()
    wrong += [f"status {status}: {message}"] * bool(status or message)
    assert listener.story
    wrong += faults(listener.story.faults)
    outcome, frames = "; ".join(wrong) or "no order but the real one", listener.story.seen["frames"]
    print(f"orders: {count} bytes, {frames} frames, {more_mb:+.1f} MB: {outcome}", flush=True)
    return not wrong


# --- the socket of serve


def written(path: Path, count: int, rng: random.Random) -> int:
    """Returns the number of bytes that hostile readers could write."""
    sent = tried = 0
    while tried < count:
        text = b"".join(line(rng) + b"\n" for _ in range(20)) + b"batch 1000000\necho 5\n"
        tried += len(text)
        with socket.socket(socket.AF_UNIX) as hostile, contextlib.suppress(BrokenPipeError):
            hostile.connect(str(path))
            sent += hostile.send(text)
    return sent


def served(count: int, rng: random.Random) -> bool:
    path = Path(tempfile.mkdtemp(prefix="hostile-")) / "s"
    command = argv("serve", "--socket", str(path), "--source", "os", "--sample", "20ms")
    wrong: list[str] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE) as server:
        end_s = time.monotonic() + LIMIT_S
        while not path.exists() and time.monotonic() < end_s:
            time.sleep(0.05)
        with socket.socket(socket.AF_UNIX) as good:
            good.connect(str(path))
            listener = Listener(good.fileno())
            wrong += ["no frames"] * (not wait_for_batches(listener, 1))
            before_mb = terminal.rss_mb(server.pid)
            sent = written(path, count, rng)
            wrong += ["other batches"] * (
                not wait_for_batches(listener, 1, len(listener.batches) + 50)
            )
            more_mb = terminal.rss_mb(server.pid) - before_mb
            wrong += [f"{more_mb:.1f} MB more"] * (more_mb > MOST_MORE_MB)
            server.terminate()
            status = server.wait(LIMIT_S)
            listener.join(LIMIT_S)
        assert server.stderr
        message = server.stderr.read().decode()
    wrong += [f"status {status}: {message}"] * bool(status or message)
    assert listener.story
    story = listener.story
    wrong += [f"{story.seen['notes']} notes"] * bool(story.seen["notes"])
    wrong += faults(story.faults)
    outcome = "; ".join(wrong) or "they go nowhere"
    frames = story.seen["frames"]
    print(f"serve: {count} bytes, {sent} taken by the kernel, {frames} frames, {more_mb:+.1f} MB: "
          f"{outcome}", flush=True)  # fmt: skip
    return not wrong


# --- recordings


def exported(count: int, rng: random.Random) -> bool:
    streams = [messages(f"sim:{spec}", 24) for spec in SPECS]
    begun = [(record_pieces(*stream, end=True).data, stream[0]) for stream in streams]
    outcomes, result, bad = Counter[str](), 0, 0
    while result < count:
        data, hello = rng.choice(begun)
        end = len(wire.encode(hello))
        data = mutant(data, end, rng) if rng.random() < 0.5 else random_stream(hello, rng)
        form = rng.choice(("csv", "jsonl", "openmetrics"))
        status, message = into_export(data, form, rng)
        result += len(data)
        good = (status == 0 and not message) or (status == 4 and message.count("\n") == 1)
        outcomes[f"status {status}" if good else "FAULT"] += 1
        bad += not good
        if not good:
            print(f"export -: status {status}, {message!r}")
    print(f"export -: {result} bytes in {sum(outcomes.values())} streams, {dict(outcomes)}")
    return not bad


def into_export(data: bytes, form: str, rng: random.Random) -> tuple[int, str]:
    pipe = subprocess.PIPE
    command = argv("export", "-", "--format", form)
    with subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe) as process:
        assert process.stdin
        try:
            while data:
                size = rng.choice((1, 100, 5000, 100_000))
                process.stdin.write(data[:size])
                process.stdin.flush()
                data = data[size:]
        except BrokenPipeError:  # export has ended early
            pass
        message = process.communicate(timeout=LIMIT_S)[1].decode()
    return process.returncode, message


def refused() -> bool:
    """Tests that replay refuses input that does not support seeking."""
    fifo = Path(tempfile.mkdtemp(prefix="hostile-")) / "fifo"
    os.mkfifo(fifo)
    good = True
    for name in (str(fifo), "-", "/dev/zero", "/dev/null", str(fifo.parent)):
        result = subprocess.run(argv("replay", name), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=LIMIT_S, check=False)  # fmt: skip
        fine = result.returncode in {1, 2, 4} and result.stderr.count("\n") == 1
        good &= fine
        print(f"replay {name}: status {result.returncode}, {result.stderr.strip()!r}"
              f"{'' if fine else ': FAULT'}")  # fmt: skip
    return good


def main(count: int, seed: int) -> int:
    rng = random.Random(seed)
    good = [orders(count, rng), served(count, rng), exported(count, rng), refused()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(*[int(text) for text in sys.argv[1:]] + [10**6, 1][len(sys.argv) - 1 :]))
