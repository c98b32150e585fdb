"""Verbs that look at the machine itself. The probe runs as a child and answers with JSON, which is
drawn here: so only the probe needs rights. The module that draws is imported when needed."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfprobe import stream_options
from perftop.base.errors import USAGE, Failed

Answer = dict[str, Any]
SUDO = "run the probe, and only it, as root; with --host there"
HOST = "run the probe on that machine: ssh HOST perfprobe …"
REMOTE = "where perfprobe is on HOST (default: in the PATH of its shell)"


Draw = Callable[..., list[str]]
"""The lines to print for an answer, its width in columns, and `unicode`: shapes may be drawn."""


def machine_options() -> argparse.ArgumentParser:
    """Options for the machine to look at, and for the rights of the probe."""
    options = stream_options.sysroot()
    options.set_defaults(sysroot=None)
    add_machine(options)
    return options


def add_machine(options: argparse.ArgumentParser) -> None:
    """Adds the options for which machine the probe runs on, and with what rights."""
    options.add_argument("--sudo", action="store_true", help=SUDO)
    options.add_argument("--host", action="append", metavar="[USER@]HOST", help=HOST)
    options.add_argument("--remote", metavar="PATH", help=REMOTE)


def add(verbs: Any, machine: argparse.ArgumentParser) -> None:
    looks: tuple[tuple[str, Callable[[argparse.Namespace], int], str], ...] = (
        ("topology", _topology, "packages, caches, cores, CPUs"),
        ("doctor", _doctor, "what can be read here, what not, why, and how to see more"),
    )
    for name, verb, text in looks:
        look = verbs.add_parser(name, parents=[machine], help=text)
        look.set_defaults(verb=verb)
        look.add_argument("--json", action="store_true", help="as one JSON object")
    _add_events(verbs, machine)
    _add_timers(verbs)
    _add_ramp(verbs)
    _add_selftest(verbs)


def probe_command(options: argparse.Namespace, *arguments: str) -> list[str]:
    """The probe's command line; with --sudo here, sudo has asked for its password by then."""
    from perftop.process import launch, ssh

    below = [] if options.sysroot is None else ["--sysroot", str(options.sysroot)]
    if options.host is not None:
        remote = options.remote or ssh.REMOTE
        return ssh.command(options.host, [*arguments, *below], sudo=options.sudo, remote=remote)
    if options.remote is not None:
        raise Failed("--remote is where perfprobe is on the machine of --host", USAGE)
    if options.sudo:
        launch.authorize()
    return launch.probe_command(*arguments, *below, sudo=options.sudo)


def _instrument(verbs: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Adds a verb that runs code, which needs the machine itself: it has no --sysroot."""
    instrument: argparse.ArgumentParser = verbs.add_parser(name, help=text)
    instrument.add_argument("--json", action="store_true", help="as one JSON object")
    add_machine(instrument)
    instrument.set_defaults(sysroot=None)
    return instrument


def _add_events(verbs: Any, machine: argparse.ArgumentParser) -> None:
    events = verbs.add_parser("events", parents=[machine], help="what -e can count here")
    events.add_argument("word", nargs="?", metavar="WORD", help="only names or words with this")
    events.add_argument(
        "--source", default="auto", metavar="NAME", help="what this source counts: auto, perf, msr"
    )
    events.add_argument("--json", action="store_true", help="as one JSON object")
    events.set_defaults(verb=_events)


def _add_timers(verbs: Any) -> None:
    timers = _instrument(verbs, "timers", "what it costs to ask for the time, and how fine it is")
    timers.add_argument("--cpu", type=int, metavar="N", help="measure on this CPU (default: any)")
    timers.set_defaults(verb=_timers)


def _add_ramp(verbs: Any) -> None:
    ramp = _instrument(verbs, "ramp", "from idle to a steady clock: how long to warm up")
    ramp.add_argument(
        "--cpu", metavar="N|all", help="CPU to wake (default: the last that perftop may use)"
    )
    ramp.add_argument(
        "--isa", choices=("scalar", "avx2", "avx512"), default="scalar",
        help="code that runs beside the clock's chain; wide code may lower the clock",
    )  # fmt: skip
    text = "time for all runs on a CPU: 1 to 60 (default: 5)"
    ramp.add_argument("--seconds", type=float, default=5.0, metavar="S", help=text)
    text = "draw a picture into this file as well"
    ramp.add_argument("-o", "--output", type=Path, metavar="FILE.svg", help=text)
    ramp.add_argument("--force", action="store_true", help="replace a file that is there")
    ramp.set_defaults(verb=_ramp)


def _add_selftest(verbs: Any) -> None:
    selftest = _instrument(
        verbs, "selftest", "hold every counter against code whose counts are known"
    )
    text = "source of the counters: auto, perf, msr, os"
    selftest.add_argument("--source", default="auto", metavar="NAME", help=text)
    every = "a verdict on every source and instrument, also on those that are not there"
    selftest.add_argument("--all", action="store_true", help=every)
    selftest.set_defaults(verb=_selftest)


def _topology(options: argparse.Namespace) -> int:
    from perftop.verbs import topology

    def draw(answer: Answer, _: int, *, unicode: bool) -> list[str]:
        return topology.draw(answer["cpus"], unicode=unicode)

    return _drawn(options, "topology", draw)


def _doctor(options: argparse.Namespace) -> int:
    from perftop.verbs import doctor

    host, program = options.host, None
    below = None if options.sysroot is None else str(options.sysroot)
    root = host.startswith("root@") if host else os.geteuid() == 0
    if not host and not root and shutil.which("sudo") is None:
        program = str(Path(sys.executable).with_name("perftop"))
    asked = doctor.Asked(host, options.remote, below, root, options.sudo, program)
    return _drawn(options, "doctor", functools.partial(doctor.draw, asked=asked))


def _events(options: argparse.Namespace) -> int:
    from perftop.verbs import events

    word = () if options.word is None else (f"--word={options.word}",)
    source = () if options.source == "auto" else (f"--source={options.source}",)
    return _drawn(options, "events", events.draw, *source, *word)


def _timers(options: argparse.Namespace) -> int:
    from perftop.verbs import timers

    where = () if options.cpu is None else (f"--cpu={options.cpu}",)
    return _drawn(options, "timers", timers.draw, *where)


def _ramp(options: argparse.Namespace) -> int:
    from perftop.verbs.ramp import command

    asked = command.Options(
        options.cpu, options.isa, options.seconds, options.json, options.output, options.force
    )
    return command.run(asked, lambda verb, *more: _ask(options, verb, *more))


def _selftest(options: argparse.Namespace) -> int:
    from perftop.base import findings
    from perftop.base.errors import cannot_write, complain
    from perftop.process import launch
    from perftop.verbs import selftest

    every = ("--all",) if options.all else ()
    answer = launch.ask(probe_command(options, "selftest", "--source", options.source, *every))
    try:
        if options.host is None:  # the file is of one machine, and the screen here asks about this
            findings.keep(answer)
    except OSError as error:
        why = cannot_write(str(error.filename or findings.file()), error)  # a write has no name
        complain(f"the result was not saved, so the screen will not warn: {why}")
    show(answer, selftest.draw, as_json=options.json)
    return 1 if answer["wrong"] else 0


def _drawn(options: argparse.Namespace, verb: str, draw: Draw, *more: str) -> int:
    show(_ask(options, verb, *more), draw, as_json=options.json)
    return 0


def show(answer: Answer, draw: Draw, *, as_json: bool) -> None:
    """Prints an answer on stdout, as wide as the terminal, or as JSON."""
    import json

    from perftop.base.text import printable, utf8

    width = shutil.get_terminal_size((80, 24)).columns
    if as_json:
        print(json.dumps(answer))
    else:
        print("\n".join(map(printable, draw(answer, width, unicode=utf8()))))


def _ask(options: argparse.Namespace, verb: str, *more: str) -> Answer:
    from perftop.process import launch

    return launch.ask(probe_command(options, verb, "--json", *more))
