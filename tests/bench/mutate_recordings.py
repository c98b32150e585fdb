"""Feeds damaged recordings, and messages made by a grammar, to the reader. Every input must be read
or refused with the documented error, in bounded memory and time.

Prints a line for each kind of input, with the largest memory beyond that at the start and the
longest time of one input; inputs that cause faults are kept as files.

Run by hand: python tests/bench/mutate_recordings.py [bytes] [seed]
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import msgpack
from pieces import record_pieces
from simulated import messages

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.recording.file import Recording
from perftop.session.packing import Reader

MOST_BYTES, MOST_S = 200 << 20, 2.0
SPECS = ("hotplug,cpus=2", "smt-mix,cpus=4,smt=2", "hybrid,cpus=8", "throttle,cpus=16")
MOST_PLAIN = 1 << 25
"""Maximum size of a packed message in bytes, so that this script needs little memory itself."""
KEYS = ("type", "time_ns", "first", "crc", "data", "kind", "author", "seq", "blocks", "records",
        "lost", "late", "reason", "status", "wire", "topology", "cores", "check", "blocks", "at",
        "tasks", "details", "head", "valid", "values", "cpu")  # fmt: skip
TYPES = ("hello", "frame", "note", "packed", "bye", "novel")


# --- damaged recordings


def mutant(data: bytes, end: int, rng: random.Random) -> bytes:
    """Damages a recording, mostly after the hello, which ends at `end`: a recording with a damaged
    hello is not read."""
    begin = 0 if rng.random() < 0.1 else end
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 40))):
        offset = rng.randrange(min(begin, len(result) - 1), len(result))
        length = rng.choice((1, 2, 4, 40, 4000))
        match rng.randrange(6):
            case 0:
                result[offset] ^= 1 << rng.randrange(8)
            case 1:
                result[offset : offset + length] = rng.randbytes(length)
            case 2:
                del result[offset : offset + length]
            case 3:
                result[offset:offset] = result[offset - length : offset]
            case 4:
                result[offset : offset + 1] = rng.choice(
                    (b"\xdd\xff\xff\xff\xff", b"\xc6\0\xff\xff\xff")
                )
            case 5:
                del result[max(1, offset) :]
        result = result or bytearray(b"\xc4")
    return bytes(result)


# --- messages by grammar


def value(rng: random.Random, depth: int) -> bytes:
    """A msgpack value, possibly with a length that is too large."""
    match rng.randrange(12 if depth < 40 else 9):
        case 0 | 1:
            return bytes([rng.randrange(128)])
        case 2:
            return b"\xcf" + rng.randbytes(8)
        case 3:
            return b"\xcb" + rng.randbytes(8)
        case 4 | 5:
            return bytes(msgpack.packb(rng.choice((*KEYS, *TYPES, "x" * rng.choice((4, 40, 400))))))
        case 6 | 7:
            return bytes(msgpack.packb(rng.randbytes(rng.choice((0, 8, 40, 400, 2000)))))
        case 8:
            return rng.choice((b"\xc0", b"\xc2", b"\xc3", b"\xc1", b"\xd4\1\2", b"\xa2\xff\xff"))
        case 9:
            many, inner = rng.choice((1, 2, 30, rare(rng, 300), rare(rng, 30_000))), value(rng, 40)
            inner = inner if len(inner) < 50 else b"\x80"
            return b"\xdc" + many.to_bytes(2, "big") + inner * many
        case 10:
            claimed = rng.choice((None, 32767, 1 << 31))
            head = b"\x93" if claimed is None else b"\xdd" + claimed.to_bytes(4, "big")
            return head + b"".join(value(rng, depth + 1) for _ in range(3))
        case _:
            return mapped(rng, depth + 1)


def rare(rng: random.Random, many: int) -> int:
    return many if rng.random() < 0.02 else 1


def mapped(rng: random.Random, depth: int) -> bytes:
    pairs = [bytes(msgpack.packb(rng.choice(KEYS))) if rng.random() < 0.95 else value(rng, 40)
             for _ in range(rng.randrange(8))]  # fmt: skip
    return bytes([0x80 | len(pairs)]) + b"".join(key + value(rng, depth + 1) for key in pairs)


def random_stream(hello: wire.Hello, rng: random.Random) -> bytes:
    """Returns a hello and messages after it: complete messages and packed messages, with arbitrary
    content."""
    out = [wire.encode(hello)]
    for _ in range(rng.randrange(1, 12)):
        if rng.random() < 0.5:
            kind = bytes(msgpack.packb("type")) + bytes(msgpack.packb(rng.choice(TYPES)))
            inner = mapped(rng, 1)
            body = bytes([inner[0] + 2]) + kind + inner[1:] + b"\xa5check\xce"
            out.append(bytes(msgpack.packb(body + zlib.crc32(body).to_bytes(4, "big"))))
        else:
            parts = [value(rng, 1) for _ in range(rng.choice((4, 7)))]
            if rng.random() < 0.5:
                parts[1] = bytes(msgpack.packb(hello.raw_ns))
            plain = bytes([0x90 | len(parts)]) + b"".join(parts)
            many = min(rng.choice((1, 1, 1, 200)), 1 + MOST_PLAIN // len(plain))
            data = zlib.compress(plain * many)
            crc = zlib.crc32(plain * many)
            out.append(wire.encode(wire.Packed(1 << 61, first=True, crc=crc, data=data)))
    return b"".join(out)


# --- reading


def read(path: Path, data: bytes) -> str:
    """Reads the data. Returns the outcome in a word."""
    words = []
    try:
        for _ in Reader().feed(data):
            pass
    except wire.WireError:
        words.append("refused")
    path.write_bytes(data)
    try:
        with Recording(path) as recording:
            for _ in recording.messages():
                pass
            words.append("damaged" if recording.damage else "read")
    except Failed:
        words.append("no recording")
    return words[-1]


def sent(name: str, make: Callable[[], bytes], count: int, into: Path) -> int:
    """Sends `count` bytes. Returns the number of faults."""
    outcomes, result, longest_s = Counter[str](), 0, 0.0
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    faults = 0
    while result < count:
        data = make()
        result += len(data)
        start_s = time.thread_time()
        try:
            outcomes[read(into / "input", data)] += 1
        except Exception:  # noqa: BLE001 - that is what is looked for
            outcomes["FAULT"] += 1
            traceback.print_exc()
        used_s = time.thread_time() - start_s
        longest_s = max(longest_s, used_s)
        if used_s > MOST_S or outcomes["FAULT"] > faults:
            faults += 1
            (into / f"fault-{name}-{faults}").write_bytes(data)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
    print(f"{name}: {result} bytes in {sum(outcomes.values())} inputs, {dict(outcomes)}, "
          f"{grown >> 20} MB more at most, {longest_s:.2f} s at most", flush=True)  # fmt: skip
    return faults + (grown > MOST_BYTES)


def main(count: int, seed: int) -> int:
    rng, into = random.Random(seed), Path(tempfile.mkdtemp(prefix="mutated-"))
    streams = [messages(f"sim:{spec}", 24) for spec in SPECS]
    hellos = [hello for hello, _ in streams]
    whole = [record_pieces(*stream, end=True).data for stream in streams]
    whole += [wire.encode(hello) + b"".join(map(wire.encode, report)) for hello, report in streams]
    begun = [(data, len(wire.encode(hello))) for data, hello in zip(whole, 2 * hellos, strict=True)]
    faults = sent("mutation", lambda: mutant(*rng.choice(begun), rng), count // 2, into)
    faults += sent("grammar", lambda: random_stream(rng.choice(hellos), rng), count // 2, into)
    print(f"{faults} faults, in {into}" if faults else "no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*[int(text) for text in sys.argv[1:]] + [10**8, 1][len(sys.argv) - 1 :]))
