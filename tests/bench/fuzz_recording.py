"""Fuzzes recordings. Mutants that reach new code are mutated further, and every fault is reported:
a crash, a warning, much memory, much time, a value that is not a finite number.

Most mutants have changed content that is packed again, so that lengths and checksums are right;
some have changed bytes.

Run by hand: PYTHONPATH=tests/support python tests/bench/fuzz_recording.py [minutes] [seed]
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgpack
from exports import export_file as converted
from exports import messages
from sim_streams import bin_edges

import perftop
from perfprobe import wire
from perftop import cli
from perftop.base.errors import Failed
from perftop.recording.file import Recording
from perftop.recording.player import AFTER_END_NS, Playback, frame_range
from perftop.session.packing import BLOCK_MESSAGES, Layouts, Packer
from perftop.verbs import recordings

Tree = Any
"""Values of all types that msgpack has."""
Case = list[Tree]
"""The hello's map, then the messages: maps are written as they are, lists are packed first."""
Edges = set[tuple[CodeType, int, int]]

SPECS = ("hotplug,cpus=4", "hybrid,cpus=8", "smt-mix,cpus=8,smt=4", "turbo-drop,cpus=4",
         "throttle,cpus=4", "neighbour,cpus=4", "license,cpus=4", "warmup,cpus=2")  # fmt: skip
SAMPLE_NS = 500_000_000
SAMPLES = 20
MAX_MEMORY_BYTES = 1 << 30
"""Maximum additional memory in bytes."""
MAX_CPU_S = 30
"""Maximum CPU time for one file in s; tracing makes reading several times slower."""
MAX_TRACED_CALLS = 40
"""Number of calls per file after which only some calls of a function are traced."""
ANSWERS = {
    "why": ("why",), "why in JSON": ("why", "--json"), "summary": ("summary", "--by", "mark"),
    "summary in JSON": ("summary", "--json"), "diff": ("diff",), "diff in JSON": ("diff", "--json"),
}  # fmt: skip
STATUSES = {0, 1, 2, 3, 4}
OURS = (str(Path(perftop.__file__).parent), str(Path(wire.__file__).parent))
ODD_VALUES: tuple[Tree, ...] = (
    None, True, -1, 0, 1, 2, 255, 2**31, 2**53 + 1, 2**63 - 1, 2**64 - 1, -(2**63), 0.5, -1e300,
    1e-300, float("nan"), float("inf"), "", "\x1b[2J\n", "x" * 300, "util", b"", b"\xff" * 8, [],
    {}, [[]], {"": None}, {1: 2}, [0] * 40,
)  # fmt: skip


# --- seed recordings


def case(spec: str) -> Case:
    hello, *rest = messages(f"sim:{spec}", SAMPLES * SAMPLE_NS / 1e9, SAMPLE_NS)
    assert isinstance(hello, wire.Hello)
    packer = Packer(Layouts(hello))
    results = [_tree(hello)]
    for i, message in enumerate(rest):
        assert isinstance(message, wire.Frame | wire.Note)
        packed = msgpack.unpackb(packer.pack(message))
        results.append(_tree(message) if i % 10 == 9 else packed)
    return results


def _tree(message: wire.Message) -> Tree:
    return msgpack.unpackb(msgpack.unpackb(wire.encode(message)))


def encoded_case(case: Case) -> bytes:
    out = [msgpack.packb(msgpack.packb(case[0]))]
    since = BLOCK_MESSAGES
    for tree in case[1:]:
        if isinstance(tree, dict):
            out.append(msgpack.packb(msgpack.packb(tree)))
            continue
        if first := since >= BLOCK_MESSAGES:
            deflate, crc, since = zlib.compressobj(1), 0, 0
        since += 1
        plain = msgpack.packb(tree)
        crc = zlib.crc32(plain, crc)
        data = deflate.compress(plain) + deflate.flush(zlib.Z_SYNC_FLUSH)
        out.append(wire.encode(wire.Packed(0, first, crc, data)))
    return b"".join(out)


# --- mutating recordings


def mutated_case(case: Case, others: list[Case], rng: random.Random) -> Case:
    result = copy.deepcopy(case)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = 0 if rng.random() < 0.2 else rng.randrange(len(result))
        way = rng.random()
        if way < 0.85 or at == 0:
            result[at] = _changed(result[at], rng)
        elif way < 0.95:
            result.insert(at, copy.deepcopy(rng.choice(rng.choice(others)[1:] or [{}])))
        else:
            del result[at]
    return result


def _changed(tree: Tree, rng: random.Random) -> Tree:
    """Returns the tree with one value replaced."""
    inside = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree or ())) if (
        isinstance(tree, list)) else []  # fmt: skip
    if not inside or rng.random() < 0.05:
        return _odd(tree, rng)
    key, value = rng.choice(inside)
    way = rng.random()
    if way < 0.04:
        del tree[key]
    elif way < 0.08 and isinstance(tree, list):
        tree.insert(key, copy.deepcopy(rng.choice(tree)))
    else:
        tree[key] = _changed(value, rng)
    return tree


def _odd(value: Tree, rng: random.Random) -> Tree:
    if rng.random() < 0.15:
        return copy.deepcopy(rng.choice(ODD_VALUES))
    if isinstance(value, bytes) and value:
        return _bytes(bytearray(value), rng)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return copy.deepcopy(rng.choice(ODD_VALUES))
    near = (value + 1, value - 1, value * 2, -value, value + SAMPLE_NS, value // 2)
    choice = rng.choice(near)
    return choice if isinstance(choice, float) else max(-(2**63), min(2**64 - 1, choice))


def _bytes(data: bytearray, rng: random.Random) -> bytes:
    offset = rng.randrange(len(data))
    way = rng.random()
    if way < 0.6:  # a whole word, because most values are words
        word = rng.choice((0, 1, 2, 8, 16, 31, 2**32, 2**48, 2**63, 2**64 - 1, rng.getrandbits(64)))
        data[offset & ~7 : (offset & ~7) + 8] = word.to_bytes(8, "little")[
            : len(data) - (offset & ~7)
        ]
    elif way < 0.9:
        data[offset] ^= 1 << rng.randrange(8)
    else:
        del data[offset : offset + rng.choice((1, 8, 40))]
    return bytes(data)


# --- reading recordings


def check_export(path: Path, form: str) -> None:
    out = path.with_name("out")
    converted(path, out, form, "--force")
    if form != "parquet":
        text = out.read_bytes().lower()
        assert b"nan" not in text.replace(b"name", b""), f"NaN in {form}"
        assert not any(word in text for word in (b"infinity", b",inf,", b" inf\n")), "infinite"


def check_replay(path: Path, share: float) -> None:
    with Recording(path) as recording:
        first_ns, last_ns = frame_range(recording)
        passage = Playback(recording, int(first_ns + share * (last_ns - first_ns)))
        session = passage.session
        for i, message in enumerate(passage.messages_until(AFTER_END_NS)):
            session.apply(message)
            if i % 5 == 0:
                session.take_interval()
        session.run_interval()
        history = session.history
        if passage.ends_ns is not None and history is not None:
            session.interval_at(passage.ends_ns[1], SAMPLE_NS * 3)
            history.metric("util", session.selected, bin_edges(passage.ends_ns[1], SAMPLE_NS, 20))


def check_answer(path: Path, *words: str) -> None:
    """Runs a verb that answers with text or JSON, without infinite numbers or control characters
    of the recording."""
    verb, *options = words
    paths = [str(path), str(path.with_name("whole"))] if verb == "diff" else [str(path)]
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out):
        status = cli.main([verb, *paths, *options])
        out.flush()
        text = out.detach().getvalue().decode()
    assert status in STATUSES, f"status {status}"
    if "--json" in options:
        for line in text.splitlines():
            json.loads(line, parse_constant=_refuse)
    else:
        assert not any(word in text.split() for word in ("nan", "inf", "-inf")), text
        assert "\x1b" not in text, text


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in JSON")


def ways(rng: random.Random) -> Callable[[Path], None]:
    share = rng.random()
    form = rng.choice((*recordings.FORMATS, "replay", "replay", *ANSWERS, *ANSWERS))
    if form in ANSWERS:
        return lambda path: check_answer(path, *ANSWERS[form])
    return lambda path: check_replay(path, share) if form == "replay" else check_export(path, form)


# --- tracing


@contextlib.contextmanager
def traced_edges(found: Edges) -> Iterator[None]:
    """Records pairs of consecutive lines of perftop's code, but only some calls of functions that
    are called frequently."""
    calls: Counter[CodeType] = Counter()

    def call(frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        calls[code] += 1
        if (calls[code] > MAX_TRACED_CALLS and calls[code] % 8) or not code.co_filename.startswith(
            OURS
        ):
            return None
        last = 0

        def line(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal last
            found.add((code, last, frame.f_lineno if event == "line" else -frame.f_lineno))
            last = frame.f_lineno
            return line

        return line

    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(None)


def limit_resources() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MAX_MEMORY_BYTES, size + MAX_MEMORY_BYTES))

    def raise_timeout(*_: object) -> None:
        raise TimeoutError(f"more than {MAX_CPU_S} s")

    signal.signal(signal.SIGVTALRM, raise_timeout)
    warnings.simplefilter("error")


def fault_of(path: Path, read: Callable[[Path], None], result: Edges) -> str | None:
    """Returns the fault; None if the file was read, or refused with a message."""
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S)
    try:
        with traced_edges(result), contextlib.redirect_stderr(io.StringIO()):
            read(path)
    except (Failed, wire.WireError):
        return None
    except Exception:  # noqa: BLE001 - any error is a fault
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


def fuzz(seconds: float, seed: int, into: Path) -> int:
    """Returns the number of different faults; keeps the files that caused them in `into`."""
    rng, reached, faults = random.Random(seed), Edges(), dict[str, Path]()
    cases = [case(spec) for spec in SPECS]
    (into / "whole").write_bytes(encoded_case(cases[0]))
    for spec in (c for c in cases for _ in range(2)):
        (path := into / "case").write_bytes(encoded_case(spec))
        for form in recordings.FORMATS:
            fault_of(path, lambda path, form=form: check_export(path, form), reached)  # type: ignore[misc]
    limit_resources()
    end_s, told_s, n = time.monotonic() + seconds, 0.0, 0
    while time.monotonic() < end_s:
        mutant = mutated_case(rng.choice(cases), cases, rng)
        data = encoded_case(mutant)
        path.write_bytes(_bytes(bytearray(data), rng) if rng.random() < 0.1 else data)
        before, n = len(reached), n + 1
        fault = fault_of(path, ways(rng), reached)
        if fault is not None and (where := fault[fault.rindex("  File") :]) not in faults:
            faults[where] = into / f"fault-{len(faults)}"
            faults[where].write_bytes(path.read_bytes())
            print(f"{faults[where]}\n{fault}", flush=True)
        elif len(reached) > before:
            cases.append(mutant)
        if time.monotonic() > told_s + 10:
            told_s = time.monotonic()
            print(f"{n} files, {len(cases)} kept, {len(reached)} edges, {len(faults)} faults",
                  flush=True)  # fmt: skip
    return len(faults)


if __name__ == "__main__":
    minutes, seed = [float(text) for text in sys.argv[1:]] + [5.0, 1.0][len(sys.argv) - 1 :]
    found = fuzz(minutes * 60, int(seed), Path(tempfile.mkdtemp(prefix="fuzz-")))
    sys.exit(1 if found else 0)
