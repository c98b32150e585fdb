"""A short stream of a simulated machine, and the pieces that a recorder writes of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from perfprobe import wire
from perfprobe.sources.sim.source import open_sim
from perftop.recording.codec import BLOCK, Recorder

SAMPLE_NS = 100_000_000


def messages(spec: str, n: int) -> tuple[wire.Hello, list[wire.Frame | wire.Note]]:
    """The first of them, of a machine that is simulated once for all tests in a row."""
    hello, found = _simulated(spec, n)
    return hello, [*found]


@lru_cache(8)
def _simulated(spec: str, n: int) -> tuple[wire.Hello, list[wire.Frame | wire.Note]]:
    source = open_sim(f"{spec},speed=max", SAMPLE_NS)
    found: list[wire.Frame | wire.Note] = []
    while len(found) < n:
        found += [m for m in source.poll() if isinstance(m, wire.Frame | wire.Note)]
    source.close()
    return source.hello, found[:n]


class Pieces:
    """A file, and where each write to it ended."""

    def __init__(self) -> None:
        self.data, self.ends = b"", [0]

    def write(self, data: bytes) -> None:
        self.data += data
        self.ends.append(len(self.data))


def recorded(
    hello: wire.Hello, found: Sequence[wire.Frame | wire.Note], *, end: bool = False
) -> Pieces:
    out = Pieces()
    recorder = Recorder(out.write, hello)
    for message in found:
        recorder.write(message)
    if end:
        recorder.end()
    assert recorder.bytes == len(out.data)
    return out


def plain(message: wire.Message) -> wire.Message:
    """The message after encoding and decoding by the wire."""
    decoder = wire.Decoder()
    decoder.hello = HELLO
    (found,) = decoder.feed(wire.encode(message))
    return found


HELLO, FOUND = messages("sim:hotplug,cpus=8", 3 * BLOCK)
