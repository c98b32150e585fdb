"""The command line: arguments to verbs. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from perftop.failed import Failed
from perftop.format import utf8

USAGE = 2
LIVE_INTERVAL_NS = 500_000_000
STAT_INTERVAL_NS = 1_000_000_000
SAMPLE_NS = 100_000_000
SHORTEST_NS = 1_000_000
"""Of an interval: below 1 ms the wake-ups themselves are what is measured."""
_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000}


def main(argv: list[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    general = {"-h", "--help", "--version", "--default-config"}
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in general):
        arguments.insert(0, "live")
    if sys.stdout is None:
        print("perftop: stdout is closed: there is nowhere to write to", file=sys.stderr)
        return 1
    try:
        options = _parser().parse_args(arguments)
        status: int = options.verb(options)
        sys.stdout.flush()
    except Failed as failed:
        for line in str(failed).splitlines():
            print(f"perftop: {line}", file=sys.stderr)
        return failed.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # stdout is gone, which is a normal end: nothing that is flushed later may complain.
        _discard()
        return 0
    except OSError as error:
        _discard()
        print(f"perftop: cannot write stdout: {error.strerror or error}", file=sys.stderr)
        return 1
    return status


def _discard() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def span_ns(text: str) -> int:
    """`100ms`, `1s`, `2`: a length of time, bare numbers in seconds."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ns|us|ms|s|m)?", text)
    length = round(float(match[1]) * _UNITS_NS[match[2] or "s"]) if match else 0
    if length < SHORTEST_NS:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time such as 100ms, 1s or 2")
    return length


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:12]) < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


class _Version(argparse.Action):
    """Read the version only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"perftop {version('perftop')}", flush=True)
        parser.exit()


class _DefaultConfig(argparse.Action):
    """A config file to begin with."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from perftop import config

        print(config.default(), end="", flush=True)
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="perftop",
        description="Live counters of this machine: utilisation, true clock, halts, SMT states.",
        epilog="Without a verb: live. `perftop VERB --help` tells a verb's options.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument(
        "--default-config", action=_DefaultConfig, nargs=0, help="print a config file to begin with"
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB", title="verbs")
    machine = _machine_options()
    watch = _watch_options(machine)

    live = verbs.add_parser("live", parents=[watch], help="the terminal app (default)")
    live.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    live.add_argument(
        "--config", type=Path, metavar="FILE", help="not ~/.config/perftop/config.toml"
    )
    live.set_defaults(verb=_live)

    stat = verbs.add_parser("stat", parents=[watch], help="the same numbers as text or JSON")
    stat.add_argument("-n", "--count", type=_count, metavar="N", help="stop after N intervals")
    stat.add_argument("--duration", type=span_ns, metavar="TIME", help="stop after this long")
    stat.add_argument("--json", action="store_true", help="one JSON object a line")
    stat.add_argument("-o", "--output", type=Path, metavar="FILE", help="write there, not stdout")
    stat.set_defaults(verb=_stat)

    for name, verb, text in (
        ("topology", _topology, "packages, caches, cores, CPUs"),
        ("doctor", _doctor, "what can be read here, and why not"),
    ):
        look = verbs.add_parser(name, parents=[machine], help=text)
        look.add_argument("--json", action="store_true", help="as one JSON object")
        look.set_defaults(verb=verb)
    return parser


def _machine_options() -> argparse.ArgumentParser:
    """Which machine, and with which rights."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument(
        "--sysroot", metavar="DIR", help="read /proc, /sys and /dev below DIR and nothing else"
    )
    options.add_argument("--sudo", action="store_true", help="run the probe, and only it, as root")
    return options


def _watch_options(machine: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """What to read, and how often."""
    options = argparse.ArgumentParser(add_help=False, parents=[machine])
    for names, kind, metavar, text in (
        (["--source"], str, "NAME",
         "auto, perf, msr, os, or sim[:SCENARIO[,cpus=N,packages=N,smt=N,seed=N,speed=N|max]]"),
        (["-i", "--interval"], span_ns, "TIME", "what the numbers cover: 100ms, 1s, 2"),
        (["--sample"], span_ns, "TIME", "how often the probe reads (default: 100ms at most)"),
        (["-c", "--cpus"], str, "LIST", "0-15,32 | pkg0 | core3 | pkg1core3 | type:P"),
        (["--smt-method"], str, "NAME",
         "only this one: one-thread, any-thread, distributed, traced, bounds"),
    ):  # fmt: skip
        options.add_argument(*names, type=kind, metavar=metavar, help=text)
    options.set_defaults(source="auto")
    return options


def _probe(options: argparse.Namespace, *arguments: str) -> list[str]:
    """The probe's command line, once it may be run."""
    from perftop import launch

    if options.sudo:
        launch.authorize()
    below = [] if options.sysroot is None else ["--sysroot", options.sysroot]
    return launch.probe_command(*arguments, *below, sudo=options.sudo)


def _stream(options: argparse.Namespace, sample_ns: int) -> list[str]:
    only = [] if options.cpus is None else ["--cpus", options.cpus]
    only += [] if options.smt_method is None else ["--smt-method", options.smt_method]
    sample = ["--sample", f"{sample_ns / 1e9:g}"]
    return _probe(options, "stream", "--source", options.source, *sample, *only)


def _times(options: argparse.Namespace, interval_ns: int) -> tuple[int, int]:
    """Interval and sample, as asked or by default."""
    interval: int = options.interval or interval_ns
    steps = -(-interval // SAMPLE_NS)
    sample: int = options.sample or interval // steps
    if sample > interval:
        raise Failed("--sample is longer than the interval: nothing would be there to show", USAGE)
    if abs(interval / sample - round(interval / sample)) > 1e-6:
        raise Failed("the interval is no multiple of --sample: lines would not cover it", USAGE)
    return interval, sample


def _live(options: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failed("the screen needs a terminal; for pipes and files: perftop stat", USAGE)
    from perftop import config

    settings = config.load(options.config)
    interval_ns, sample_ns = _times(options, LIVE_INTERVAL_NS)
    from perftop import launch

    process = launch.launch(_stream(options, sample_ns))
    from perftop import app  # takes longer to import than a probe to start: side by side

    return app.run(process, interval_ns, settings, mouse=not options.no_mouse)


def _stat(options: argparse.Namespace) -> int:
    from perftop import stat

    interval_ns, sample_ns = _times(options, STAT_INTERVAL_NS)
    return stat.run(
        stat.Options(
            _stream(options, sample_ns),
            interval_ns,
            sample_ns,
            options.count,
            options.duration,
            options.json,
            options.output,
        )
    )


def _topology(options: argparse.Namespace) -> int:
    answer = _ask("topology", options)
    if options.json:
        print(json.dumps(answer))
        return 0
    from perftop import tree

    print("\n".join(tree.draw(answer["cpus"], unicode=utf8())))
    return 0


def _doctor(options: argparse.Namespace) -> int:
    answer = _ask("doctor", options)
    if options.json:
        print(json.dumps(answer))
        return 0
    import shutil

    from perftop import doctor

    width = shutil.get_terminal_size((100, 24)).columns
    print("\n".join(doctor.draw(answer, width, unicode=utf8())))
    return 0


def _ask(verb: str, options: argparse.Namespace) -> dict[str, Any]:
    """What the probe says of the machine."""
    done = subprocess.run(_probe(options, verb, "--json"), capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"perfprobe ended with status {done.returncode}"
        raise Failed(why.removeprefix("perfprobe: "), max(1, done.returncode))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
