"""Verbs that look at the machine itself: the probe does it as a child and answers with JSON, which
is drawn here. So rights are the probe's, and what draws an answer is imported only then."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Protocol

Answer = dict[str, Any]


class Draw(Protocol):
    def __call__(self, answer: Answer, width: int, *, unicode: bool) -> list[str]:
        """The lines of an answer."""


def machine_options() -> argparse.ArgumentParser:
    """Which machine, and with which rights."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument(
        "--sysroot", metavar="DIR", help="read /proc, /sys and /dev below DIR and nothing else"
    )
    options.add_argument("--sudo", action="store_true", help="run the probe, and only it, as root")
    return options


def add(verbs: Any, machine: argparse.ArgumentParser) -> None:
    """Among the verbs of a parser."""
    looks: tuple[tuple[str, Callable[[argparse.Namespace], int], str], ...] = (
        ("topology", _topology, "packages, caches, cores, CPUs"),
        ("doctor", _doctor, "what can be read here, and why not"),
    )
    for name, verb, text in looks:
        look = verbs.add_parser(name, parents=[machine], help=text)
        look.set_defaults(verb=verb)
        look.add_argument("--json", action="store_true", help="as one JSON object")


def probe_command(options: argparse.Namespace, *arguments: str) -> list[str]:
    """The probe's command line, once it may be run."""
    from perftop import launch

    if options.sudo:
        launch.authorize()
    below = [] if options.sysroot is None else ["--sysroot", options.sysroot]
    return launch.probe_command(*arguments, *below, sudo=options.sudo)


def _topology(options: argparse.Namespace) -> int:
    from perftop import tree

    def draw(answer: Answer, width: int, *, unicode: bool) -> list[str]:  # noqa: ARG001
        return tree.draw(answer["cpus"], unicode=unicode)

    return _drawn(options, "topology", draw)


def _doctor(options: argparse.Namespace) -> int:
    from perftop import doctor

    return _drawn(options, "doctor", doctor.draw)


def _drawn(options: argparse.Namespace, verb: str, draw: Draw, *more: str) -> int:
    show(_ask(options, verb, *more), draw, as_json=options.json)
    return 0


def show(answer: Answer, draw: Draw, *, as_json: bool) -> None:
    """On stdout, as wide as the terminal is."""
    import json
    import shutil

    from perftop.format import utf8

    width = shutil.get_terminal_size((100, 24)).columns
    print(json.dumps(answer) if as_json else "\n".join(draw(answer, width, unicode=utf8())))


def _ask(options: argparse.Namespace, verb: str, *more: str) -> Answer:
    """What the probe says of the machine."""
    from perftop import launch

    return launch.ask(probe_command(options, verb, "--json", *more))
