"""Verbs with a screen: live, demo, attach, replay, fleet."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from perftop.base.errors import USAGE, Failed
from perftop.base.importing import lean
from perftop.commands.arguments import COST, PANE, alignment, check_replayed, count, span_ns
from perftop.commands.options import add_interval, at_terminal, stream_of, times
from perftop.verbs import machine_verbs

LIVE_INTERVAL_NS = 500_000_000


def add_screens(verbs: Any, watch: argparse.ArgumentParser) -> None:
    text = "the screen: what each core does, and what takes its time (the default)"
    live = verbs.add_parser("live", parents=[watch], help=text, epilog=COST + PANE)
    live.set_defaults(verb=_live, runs=True)

    replay = add_replay(verbs)

    text = "the screen on a simulated machine: two minutes in which each view shows something"
    demo = verbs.add_parser("demo", help="the screen on a simulated machine", description=text)
    demo.add_argument(
        "scenario", nargs="?", default="demo", metavar="SCENARIO[,KEY=VALUE…]",
        help="another machine or story: guest | neighbour,cpus=64 | turbo-drop | throttle …",
    )  # fmt: skip
    add_interval(demo)
    demo.add_argument(
        "--sample", type=span_ns, metavar="TIME", help="how often the machine is read"
    )
    demo.set_defaults(live=live, verb=_demo)

    text = "the screen on what `perftop serve` hands out on this machine"
    attach = verbs.add_parser("attach", help=text)
    attach.add_argument("attach", metavar="unix:PATH", help="where serve listens")
    add_interval(attach)
    attach.set_defaults(live=live, verb=_attach)
    for screen in (live, replay, demo, attach):
        _add_terminal(screen)


def _add_terminal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-mouse", action="store_true", help="the terminal keeps the mouse")
    text = "instead of ~/.config/perftop/config.toml"
    parser.add_argument("--config", type=Path, metavar="FILE", help=text)


def add_replay(verbs: Any) -> argparse.ArgumentParser:
    replay: argparse.ArgumentParser = verbs.add_parser("replay", help="the screen on a recording")
    replay.add_argument(
        "files", nargs="+", type=Path, metavar="FILE",
        help="a recording; two of them are drawn on one axis",
    )  # fmt: skip
    replay.add_argument(
        "--align", type=alignment, metavar="MOMENT",
        help="where two recordings are laid together: start (default) | command | mark:LABEL",
    )  # fmt: skip
    add_interval(replay, LIVE_INTERVAL_NS)
    replay.set_defaults(verb=_replay)
    return replay


def add_fleet(verbs: Any) -> None:
    text = "many machines, a row each, the one that loses most first; Enter opens one"
    fleet = verbs.add_parser("fleet", help="many machines, a row each", description=text)
    fleet.add_argument(
        "hosts", nargs="*", metavar="[USER@]HOST|DIR",
        help="machines to reach by ssh, at most 64; sim:… simulates one; DIR is what "
        "record --host … -o DIR wrote",
    )  # fmt: skip
    text = "read names of machines from it, one a line"
    fleet.add_argument("--hosts", type=Path, dest="hosts_file", metavar="FILE", help=text)
    fleet.add_argument("--remote", metavar="PATH", help=machine_verbs.REMOTE)
    text = "read what this server has scraped from perftop exporter"
    fleet.add_argument("--prometheus", metavar="URL", help=text)
    fleet.add_argument(
        "--match", metavar="SELECTOR", help='with --prometheus, only these series: {job="perftop"}'
    )
    add_interval(fleet)
    fleet.add_argument("--json", action="store_true", help="one JSON object a line, no screen")
    fleet.add_argument(
        "-n", "--count", type=count, metavar="N", help="with --json: stop after N intervals"
    )
    _add_terminal(fleet)
    fleet.set_defaults(verb=_fleet)


def _live(options: argparse.Namespace) -> int:
    if not at_terminal():
        raise Failed("the screen needs a terminal; for pipes and files: perftop stat", USAGE)
    from perftop.tui import config, first_picture

    settings, mouse = config.load(options.config), not options.no_mouse
    interval_ns, sample_ns = times(options, LIVE_INTERVAL_NS)
    from perftop.process import batches, launch

    if options.command is None:
        argv = stream_of(options, sample_ns, batches.longest(sample_ns, interval_ns))
        # The app takes longer to import than the probe to start, so both happen side by side.
        with first_picture.shown() as picture, launch.launched(argv) as probe:
            with lean():
                from perftop.tui import app
            picture.hand_over()
            return app.run(probe, interval_ns, settings, mouse=mouse)
    from perftop.process.job_terminal import Console

    columns, lines = os.get_terminal_size()
    with (
        Console(options.command, columns - 1, lines // 4) as console,  # about the final size
        launch.launched(stream_of(options, sample_ns, sample_ns, console.job)) as probe,
    ):
        with lean():
            from perftop.tui import around as command_app

        return command_app.run(probe, console, interval_ns, settings, mouse=mouse)


def _demo(options: argparse.Namespace) -> int:
    source = f"sim:{options.scenario}"
    if not at_terminal():
        raise Failed(
            f"the screen needs a terminal; in a pipe: perftop stat --source {source}", USAGE
        )
    live = vars(options.live.parse_args(["--source", source]))
    return _live(argparse.Namespace(**(live | vars(options))))


def _attach(options: argparse.Namespace) -> int:
    live = vars(options.live.parse_args([]))
    return _live(argparse.Namespace(**(live | vars(options))))


def _replay(options: argparse.Namespace) -> int:
    check_replayed(options)
    if len(options.files) == 2:
        with lean():
            from perftop.tui import config, pair_app
            from perftop.tui.pair.track import Alignment

        files, settings = (options.files[0], options.files[1]), config.load(options.config)
        moment = Alignment(*(options.align or ("start", "")))
        return pair_app.run(files, moment, settings, mouse=not options.no_mouse)
    with lean():
        from perftop.tui import config
        from perftop.tui import replay as replay_app

    settings = config.load(options.config)
    return replay_app.run(options.files[0], options.interval, settings, mouse=not options.no_mouse)


def _fleet(options: argparse.Namespace) -> int:
    from perftop.verbs.fleet import command

    if not (options.json or at_terminal()):
        raise Failed("the screen needs a terminal; for pipes and files: --json", USAGE)
    every_s = None if options.interval is None else options.interval / 1e9
    source = command.source(
        options.hosts, options.hosts_file, every_s, options.remote, options.prometheus,
        options.match,
    )  # fmt: skip
    if options.json:
        return command.lines(source, options.count)
    from perftop.tui import config, fleet_app

    return fleet_app.run(source, config.load(options.config), mouse=not options.no_mouse)
