"""Compares the text that perftop prints and draws for simulated machines, byte for byte.

Run it as `PYTHONPATH=screenshots python tests/golden/golden.py`:

golden.py [GROUP…]               lists outputs that differ from expected/
golden.py --write [GROUP…]       replaces expected/ with the present outputs
golden.py --whole DIR [GROUP…]   writes every output, unabridged, to a file in DIR, so that
                                 `diff -r` compares two versions
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import unified_diff
from functools import cache, partial
from pathlib import Path
from typing import Any

import answers
import fleets
import make
import walks
from sentence_cases import sentences
from textual.pilot import Pilot
from waiting import until_quiet

from perfprobe import wire
from perfprobe.sources.sim import scenarios
from perfprobe.sources.sim.counters import EVENTS
from perfprobe.sources.sim.machine import SCENARIOS, SimMachine, parse_spec
from perfprobe.sources.sim.truth import truth
from perftop import cli
from perftop.docs.command_line import names_in_table
from perftop.model.kinds import KINDS
from perftop.session.packing import Recorder
from perftop.verbs.instruments import MIN_WIDE_WIDTH

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
DATA = HERE.parent / "data"
MAX_CHARACTERS = 9_000
"""Limit for an output; a longer one is stored as its beginning and a digest."""
HEAD_CHARACTERS = 1_500
HEADING = "=====> "
MACHINES = {
    "small": "turbo-drop,cpus=2,smt=1",
    "guest": "guest,cpus=4",
    "job": "neighbour,cpus=16",
    "hybrid": "hybrid",
    "mixed": "demo,cpus=64,packages=2",
    "large": "smt-mix,cpus=1024,packages=4",
}
STREAMS: dict[str, tuple[str | None, str | None]] = dict.fromkeys(SCENARIOS, (None, None)) | {
    "smt-mix,cpus=64,smt=4": (None, None),
    "license,cpus=4,slots=1": (None, None),
    "throttle,cpus=12,packages=2,smt=1": (None, None),
    "guest,cpus=5": ("postgres", "context-switches,cpu-migrations,page-faults"),
    "memory,cpus=4": ("lmp", "cycles:u,{instructions:k,cache-misses}"),
    "demo,cpus=4": ("4001", ",".join(event.name for event in EVENTS)),
}
"""Simulated machines, with the watched job and the chosen events of their streams."""
CHOICES = {
    "job": ("lmp", None, None),
    "part": ("lmp", "cycles:u,{instructions:k,cache-misses}", "0,2,4,5,8,10"),
}
"""The watched job, the chosen events and the chosen CPUs of recorded machines."""
IN_EPISODE = "in-episode"
SPECS = MACHINES | walks.SPECS | {IN_EPISODE: "turbo-drop,cpus=8"}
SECONDS = walks.SECONDS | {"large": 3.0, IN_EPISODE: 10.0}
"""Lengths of streams in s; the stream of IN_EPISODE ends during its episode."""
USUAL_SECONDS = 20.0
SIZES = ((80, 24), (160, 50))
THRESHOLD_SIZES = (
    *((width, 40) for width in (45, 46, 49, 50, 59, 60, 61, 87, 88, 99, 100, 109, 110, 111, 112,
                                139, 140, 149, 150, 159, 160)),
    *((120, height) for height in (7, 8, 11, 12, 23, 24, 29, 30, 35, 36)),
    *((width, 40) for width in (63, 64, 199, 200)), (120, 49), (120, 50),
)  # fmt: skip
"""Sizes at which parts of the screen appear, and sizes that are too small for them by one cell."""
VIEWS = "123456"
THRESHOLD_KEYS = {
    ("live", "play"): (*VIEWS, "enter", "question_mark"), ("live", "threads"): ("1", "2"),
    ("fleet", "small"): ("1", "2", "3"), ("pair", "in-episode"): ("n",), ("tour", "steady"): ("2",),
}  # fmt: skip
"""What is shown in all these sizes, and the key before each picture."""
KEYS: dict[str, tuple[str, ...]] = {
    "core": ("enter",),
    "core-time": ("enter", "[", "["),
    "help": ("question_mark",),
    "sorted": ("s", "s", "down"),
    "heat-watts": ("2", "v", "w"),
    "time-back": ("3", "space", "left", "left"),
    "episode": ("5", "down", "enter"),
}
EPISODE_KEYS: dict[str, tuple[str, ...]] = {
    "overview": (), "rows": ("4",), "list": ("5",), "no-colour": (), "light": ("T",),
    "filter-error": ("slash", *"util>"),
}  # fmt: skip
"""Keys pressed for the pictures of a machine during an episode."""
REPLAY_KEYS: dict[str, tuple[str, ...]] = {
    "first": (), "next": ("space", "n", "n"), "time": ("n", "3", "v"),
}  # fmt: skip
FLEET_KEYS: dict[str, tuple[str, ...]] = {"rows": ("down", "down"), "heat": ("2", "n")}
FILE_VERBS: dict[str, tuple[str, ...]] = {
    "why": ("why", "FILE"),
    "why-json": ("why", "FILE", "--json"),
    "summary": ("summary", "FILE"),
    "summary-json": ("summary", "FILE", "--json"),
    "summary-marks": ("summary", "FILE", "--by", "mark"),
    "csv": ("export", "FILE", "--every", "5s"),
    "jsonl": ("export", "FILE", "--format", "jsonl", "--every", "5s"),
    "openmetrics": ("export", "FILE", "--format", "openmetrics", "--every", "10s"),
    "diff": ("diff", "FILE", "OTHER"),
    "diff-marks": ("diff", "FILE", "OTHER", "--by", "mark"),
    "diff-json": ("diff", "FILE", "OTHER", "--json"),
}
STREAM_VERBS: dict[str, tuple[str, ...]] = {
    "stat": ("stat", "-n", "3", "-i", "1s"),
    "stat-json": ("stat", "-n", "2", "-i", "1s", "--json"),
    "stat-brief": ("stat", "-n", "5", "-i", "1s", "--brief"),
    "stat-metrics": ("stat", "-n", "2", "-i", "1s", "--metrics", "util,ipc,smt,power_w,task"),
    "stat-duration": ("stat", "--duration", "2s", "-i", "1s"),
    "watch": ("stat", "-n", "2", "-i", "5s", "--watch", "lmp"),
    "why-live": ("why", "--duration", "10s", "--watch", "lmp"),
}
VERBS = ("live", "replay", "demo", "attach", "stat", "record", "fleet", "export", "exporter",
         "serve", "summary", "why", "diff", "topology", "doctor", "events", "timers", "ramp",
         "wake", "selftest", "help")  # fmt: skip
TOPICS = ("screen", "why", "command", "episodes", "numbers", "sources", "recordings", "compare",
          "remote", "exporter", "instruments", "json", "sim", "events", "glossary")  # fmt: skip
WRONG: dict[str, tuple[str, ...]] = {
    "verb": ("foo",), "near": ("sumary",), "option": ("stat", "-d"), "time": ("stat", "-i", "5x"),
    "metric": ("export", "FILE", "--metrics", "bsy"), "no-recording": ("why", "/etc/passwd"),
    "missing": ("why", "absent.perftop"), "scenario": ("stat", "--source", "sim:foo"),
    "order": ("summary", "FILE", "--from", "5s", "--to", "1s"),
    "cpus": ("export", "FILE", "-c", "900"),
    "on": ("record", "-o", "x", "--on", "trbo"), "rest": ("diff", "FILE"),
    "topic": ("help", "foo"),
}  # fmt: skip
MARKS = {"warm-up": 0.2, "solve": 0.5}
"""Labels and positions of marks in recordings; positions are shares of the length."""
_VARYING = (
    (re.compile(r"perfprobe \d[\w.+-]*|perftop \d[\w.+-]*"), "perftop VERSION"),
    (re.compile(r'"version": ?"[^"]*"'), '"version":"VERSION"'),
    (re.compile(r'"(own_cpu_s|probe_cpu_s)": ?[\d.e-]+'), r'"\1":COST'),
    (re.compile(r"(own cost|probe)( +)[\d.<]+ ?(%|s|ms)( CPU \([\d.]+ % of one CPU\))?"), "COST"),
    # Python 3.13 wraps a long group of options in the usage line, 3.12 does not.
    (re.compile(r"(?<=[]|])\n +(?=\[?--print-)"), " "),
)
"""Parts of outputs that differ between runs, releases or versions of Python."""


@cache
def _messages(machine: str, seed: int = 7) -> list[wire.Message]:
    """The stream of a machine, with marks."""
    seconds = SECONDS.get(machine, USUAL_SECONDS)
    watch, events, cpus = CHOICES.get(machine, (None, None, None))
    found = make.capture(SPECS[machine], seconds, watch, seed, events, cpus)
    hello, *rest = found
    if machine == "part":  # a VM with counters
        assert isinstance(hello, wire.Hello)
        hello = replace(hello, virtualisation="KVM", turbo=[])
    for label, share in MARKS.items():
        at = int(len(rest) * share)
        after = rest[at]
        assert isinstance(after, wire.Frame | wire.Note)
        rest.insert(at, wire.Note("mark", after.time_ns, data={"label": label}))
    return [hello, *rest]


def _recorded(path: Path, machine: str, seed: int = 7) -> str:
    hello, *rest = _messages(machine, seed)
    assert isinstance(hello, wire.Hello)
    with path.open("wb") as file:
        recorder = Recorder(file.write, hello)
        for message in rest:
            assert isinstance(message, wire.Frame | wire.Note)
            recorder.write([message])
        recorder.end()
    return path.name


class _Terminal(io.TextIOWrapper):
    """An output to which verbs write with colours."""

    def isatty(self) -> bool:
        return True


def _run(*words: str, output: type[io.TextIOWrapper] = io.TextIOWrapper) -> str:
    """The output of a verb in this directory, and its exit status."""
    written, err = io.BytesIO(), io.StringIO()
    out = output(written, "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main([*words])
        except SystemExit as ended:
            status = int(ended.code or 0)
        out.flush()
    printed = written.getvalue().decode().replace("\x1b", "␛")
    return f"{printed}--- stderr\n{err.getvalue()}--- status {status}\n"


def _on_file(
    directory: Path, machine: str, words: tuple[str, ...],
    output: type[io.TextIOWrapper] = io.TextIOWrapper,
) -> str:  # fmt: skip
    os.chdir(directory)
    names = {"FILE": "a.perftop", "OTHER": "b.perftop"}
    for seed, name in enumerate(names.values(), 7):
        if not (directory / machine / name).exists():
            (directory / machine).mkdir(exist_ok=True)
            _recorded(directory / machine / name, machine, seed)
    os.chdir(directory / machine)
    return _run(*(names.get(word, word) for word in words), output=output)


def _on_stream(
    machine: str, words: tuple[str, ...], output: type[io.TextIOWrapper] = io.TextIOWrapper
) -> str:
    source = f"sim:{SPECS[machine]},seed=7,speed=max"
    return _run(*words, "--source", source, output=output)


def _script_s(text: str) -> float:
    """The length in s of the script of a simulated machine, and of the first second after it."""
    spec = parse_spec(text)
    script = scenarios.make_script(spec.scenario, SimMachine.from_spec(spec))
    return 1 + sum(stage.seconds for stage in script.stages)


def _stream(spec: str) -> str:
    """The hello of a simulated machine, and a digest of each second of its whole script."""
    watch, events = STREAMS[spec]
    hello, *rest = make.capture(spec, _script_s(spec), watch, events=events)
    assert isinstance(hello, wire.Hello)
    lines = [wire.encode(replace(hello, perftop="VERSION")).hex()]
    for begin in range(0, len(rest), 10):
        packed = b"".join(map(wire.encode, rest[begin : begin + 10]))
        lines.append(hashlib.sha256(packed).hexdigest())
    return "\n".join(lines) + "\n"


def _truth(spec: str) -> str:
    """The true episodes of a simulated machine, and a digest of all its true values."""
    lines = [json.dumps(line) for line in truth(f"sim:{spec}", _script_s(spec))]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return "\n".join([*(line for line in lines if '"episode"' in line), digest]) + "\n"


def _screen(app: Any) -> str:
    return "\n".join(walks.picture(app)) + "\n"


async def _live(machine: str, size: tuple[int, int], keys: tuple[str, ...]) -> str:
    async with make.live(_messages(machine), size, keys) as app:
        return _screen(app)


async def _views(machine: str, size: tuple[int, int]) -> dict[str, str]:
    """The screen in each view, shown one after the other."""
    screens = {}
    async with make.live(_messages(machine), size, ()) as app:
        pilot = Pilot(app)
        for key in VIEWS:
            await pilot.press(key)
            await pilot.pause()
            screens[key] = _screen(app)
    return screens


async def _resized(directory: Path, kind: str, machine: str, key: str) -> str:
    """The screen in each of THRESHOLD_SIZES, after a key."""
    pictures = []
    async with _opened(directory, kind, machine, THRESHOLD_SIZES[0]) as app:
        pilot = Pilot(app)
        await pilot.press(key)
        for size in THRESHOLD_SIZES:
            await pilot.resize_terminal(*size)
            await until_quiet()
            pictures.append(f"{size[0]}x{size[1]}\n{_screen(app)}")
    return "".join(pictures)


async def _replayed(path: Path, size: tuple[int, int], keys: tuple[str, ...]) -> str:
    async with make.replayed(path, size, keys) as app:
        return _screen(app)


@contextlib.contextmanager
def _no_color() -> Iterator[None]:
    os.environ["NO_COLOR"] = "1"
    try:
        yield
    finally:
        del os.environ["NO_COLOR"]


async def _without_colour(machine: str, size: tuple[int, int], keys: tuple[str, ...]) -> str:
    with _no_color():
        return await _live(machine, size, keys)


def _replay(directory: Path, machine: str, size: tuple[int, int], keys: tuple[str, ...]) -> str:
    path = directory / f"{machine}.perftop"
    if not path.exists():
        _recorded(path, machine)
    os.chdir(directory)
    return asyncio.run(_replayed(path, size, keys))


def _opened(
    directory: Path, kind: str, machine: str, size: tuple[int, int]
) -> contextlib.AbstractAsyncContextManager[Any]:
    """The app on a machine, on its recording, on two recordings or on a fleet."""
    paths = [directory / f"{machine}-{file}.perftop" for file in "ab"]
    for seed, path in enumerate(paths, 7):
        if kind in {"played", "pair"} and not path.exists():
            _recorded(path, machine, seed)
    os.chdir(directory)
    match kind:
        case "played":
            return make.replayed(paths[0], size, ())
        case "pair":
            return walks.compared(paths, size)
        case "fleet":
            fleet = fleets.racks(8, 8) if machine == "middle" else getattr(fleets, machine)()
            return make.watched(fleet, "over ssh", ("0.03 %",), size, ())
    return make.live(
        _messages(machine),
        size,
        (),
        ascii_=kind == "ascii",
        tour=kind == "tour",
        theme="perftop-ansi" if kind == "16" else None,
    )


def _walk(directory: Path, name: str) -> dict[str, str]:
    """The pictures of a walk, by step."""
    machine, steps, size = walks.WALKS[name]
    kind = name.partition("-")[0]
    with _no_color() if kind == "plain" else contextlib.nullcontext():
        return asyncio.run(walks.walk(_opened(directory, kind, machine, size), steps))


async def _fleet(name: str, size: tuple[int, int], keys: tuple[str, ...]) -> str:
    fleet = getattr(fleets, name)()
    async with make.watched(fleet, "over ssh", ("0.03 % there",), size, keys) as app:
        return _screen(app)


GROUPS = ("answers", "colours", "data", "demos", "fleet", "help", "looks", "replay", "sentences",
          "sizes", "stream", "wrong",
          *(f"{kind}-{machine}" for machine in MACHINES for kind in ("file", "live", "screen")),
          "file-part",
          *(f"walk-{name}" for name in walks.WALKS),
          )  # fmt: skip
Case = tuple[str, Callable[[], str]]


def cases(directory: Path, group: str) -> Iterator[Case]:
    """The outputs of a group, by name."""
    kind, _, machine = group.partition("-")
    match kind:
        case "answers":
            for name in (*answers.TEXTS, *answers.RAMPS):
                yield f"{name}-80", partial(answers.text, name, 80, unicode=True)
                yield (
                    f"{name}-wide-ascii",
                    partial(answers.text, name, MIN_WIDE_WIDTH, unicode=False),
                )
        case "data":
            os.chdir(DATA)  # so that outputs do not contain this directory
            for name in ("recording-1", "export/recording"):
                for verb in ("why", "summary"):
                    yield f"{name.replace('/', '-')}-{verb}", partial(_run, verb, name, "--json")
            yield "recording-1-export", partial(_run, "export", "recording-1", "--every", "5s")
            for verb in ("topology", "doctor"):
                tree = "guest-epyc-2cpu"
                yield f"guest-epyc-{verb}", partial(_run, verb, "--json", "--sysroot", tree)
        case "colours":
            for name in ("why", "summary", "summary-marks", "diff", "diff-marks"):
                for machine in (IN_EPISODE, "job"):
                    words = FILE_VERBS[name]
                    yield (
                        f"{name}-{machine}",
                        partial(_on_file, directory, machine, words, _Terminal),
                    )
            for name in ("stat", "stat-brief", "why-live"):
                yield name, partial(_on_stream, IN_EPISODE, STREAM_VERBS[name], _Terminal)
            yield "stat-offline", partial(_on_stream, "hotplug", ("stat", "-n", "4", "-i", "5s"))
        case "demos":
            for name in names_in_table("demo", "recording"):
                recording = f"demo:{name}"
                yield f"{name}-why", partial(_run, "why", recording)
                yield f"{name}-why-json", partial(_run, "why", recording, "--json")
                yield f"{name}-summary", partial(_run, "summary", recording)
            yield "runs-diff", partial(_run, "diff", "demo:good-run", "demo:bad-run")
        case "sentences":
            yield from ((kind, partial(sentences, kind)) for kind in KINDS)
        case "sizes":
            for (kind, machine), keys in THRESHOLD_KEYS.items():
                for key in keys:
                    draw = partial(_resized, directory, kind)
                    yield f"{kind}-{machine}-{key}", partial(_run_screen, draw, machine, key)
        case "stream":
            for spec in STREAMS:
                yield spec, partial(_stream, spec)
                yield f"{spec}-truth", partial(_truth, spec)
        case "help":
            yield "all", partial(_run, "--help")
            yield from ((verb, partial(_run, verb, "--help")) for verb in VERBS)
            yield "pages", partial(_run, "help")
            yield from ((f"page-{topic}", partial(_run, "help", topic)) for topic in TOPICS)
        case "wrong":
            for name, words in WRONG.items():
                yield name, partial(_on_file, directory, "small", words)
        case "file":
            for name, words in FILE_VERBS.items():
                yield name, partial(_on_file, directory, machine, words)
        case "live":
            for name, words in STREAM_VERBS.items():
                if name not in {"watch", "why-live"} or machine in {"job", "guest"}:
                    yield name, partial(_on_stream, machine, words)
        case "walk":
            walked = cache(partial(_walk, directory, machine))
            for step in walks.names(walks.WALKS[machine][1]):
                yield step, partial(lambda step: walked()[step], step)
        case "screen" | "looks" | "replay" | "fleet":
            for size in SIZES:
                yield from _pictures(directory, kind, machine, size)


def _pictures(directory: Path, kind: str, machine: str, size: tuple[int, int]) -> Iterator[Case]:
    if kind == "screen":
        views = cache(lambda: asyncio.run(_views(machine, size)))
        for key in VIEWS:
            yield f"view-{key}-{size[0]}", partial(lambda key: views()[key], key)
        for name, keys in KEYS.items() if machine not in {"small", "hybrid"} else ():
            yield f"{name}-{size[0]}", partial(_run_screen, _live, machine, size, keys)
    elif kind == "looks":
        for name, keys in EPISODE_KEYS.items():
            draw = _without_colour if name == "no-colour" else _live
            yield f"{name}-{size[0]}", partial(_run_screen, draw, IN_EPISODE, size, keys)
    elif kind == "replay":
        for name, keys in REPLAY_KEYS.items():
            yield f"{name}-{size[0]}", partial(_replay, directory, "job", size, keys)
    else:
        for fleet in ("small", "many"):
            for name, keys in FLEET_KEYS.items():
                yield f"{fleet}-{name}-{size[0]}", partial(_run_screen, _fleet, fleet, size, keys)


def _run_screen(draw: Any, *arguments: Any) -> str:
    text: str = asyncio.run(draw(*arguments))
    return text


def without_varying_parts(text: str) -> str:
    """The text without parts that differ between runs."""
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return text


def abridged(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[:HEAD_CHARACTERS]}\n… {len(text)} characters, sha256 {digest}\n"


def joined(outputs: dict[str, str]) -> str:
    """The outputs of a group as one file."""
    return "".join(f"{HEADING}{name}\n{abridged(text)}" for name, text in outputs.items())


def differences(group: str, outputs: dict[str, str]) -> dict[str, str]:
    """The differing lines of each output that is not as expected or no longer exists."""
    path = EXPECTED / f"{group}.txt"
    parts = path.read_text(encoding="utf-8").split(HEADING)[1:] if path.exists() else []
    expected = {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}
    actual = {name: abridged(text) for name, text in outputs.items()}
    result = {}
    for name in dict.fromkeys([*expected, *actual]):
        before, now = (texts.get(name, "").splitlines() for texts in (expected, actual))
        if expected.get(name) != actual.get(name):
            lines = unified_diff(before, now, f"expected {group}/{name}", "now", n=0, lineterm="")
            result[f"{group}/{name}"] = "\n".join(lines)
    return result


@contextlib.contextmanager
def environment() -> Iterator[Path]:
    """A working directory, with a fixed terminal size, time zone and no configuration."""
    before, here = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {"TZ": "UTC", "COLORTERM": "truecolor", "COLUMNS": "80", "LINES": "24",
                       "XDG_CONFIG_HOME": directory, "XDG_CACHE_HOME": f"{directory}/cache",
                       "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}  # fmt: skip
        os.environ.pop("NO_COLOR", None)
        time.tzset()
        try:
            yield Path(directory)
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(before)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--whole", type=Path)
    parser.add_argument("groups", nargs="*", metavar="GROUP", default=GROUPS)
    options = parser.parse_args()
    whole = options.whole and options.whole.absolute()
    differ: list[str] = []
    with environment() as directory:
        for group in options.groups:
            outputs = {
                name: without_varying_parts(make_text())
                for name, make_text in cases(directory, group)
            }
            if whole:
                (whole / group).mkdir(parents=True, exist_ok=True)
                for name, text in outputs.items():
                    (whole / group / f"{name}.txt").write_text(text, encoding="utf-8")
                continue
            differ += differences(group, outputs)
            if options.write:
                (EXPECTED / f"{group}.txt").write_text(joined(outputs), encoding="utf-8")
    print(*differ, sep="\n", end="\n" if differ else "")
    return 1 if differ and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
