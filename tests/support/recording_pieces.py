"""A short stream of a simulated machine, and the pieces in which a recorder writes it."""

from __future__ import annotations

from collections.abc import Sequence

from sim_streams import messages

from perfprobe import wire
from perftop.session.packing import BLOCK_MESSAGES, Recorder


class RecordedWrites:
    """A file, and the offset of the end of each write to it."""

    def __init__(self) -> None:
        self.data, self.ends = b"", [0]

    def write(self, data: bytes) -> None:
        self.data += data
        self.ends.append(len(self.data))


def record_writes(
    hello: wire.Hello, result: Sequence[wire.Frame | wire.Note], *, end: bool = False
) -> RecordedWrites:
    out = RecordedWrites()
    recorder = Recorder(out.write, hello)
    for message in result:
        recorder.write([message])
    if end:
        recorder.end()
    assert recorder.byte_count == len(out.data)
    return out


def unpacked_message(message: wire.Message) -> wire.Message:
    """The message after encoding and decoding by the wire."""
    decoder = wire.Decoder()
    decoder.hello = HELLO
    (result,) = decoder.feed(wire.encode(message))
    return result


HELLO, FOUND = messages("sim:hotplug,cpus=8", 3 * BLOCK_MESSAGES)
