"""`perftop live`: shows the screen for a machine, a recording (replay), a simulated machine (demo)
or a stream of `perftop serve` (attach)."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Any

from perftop.base.errors import USAGE, Failed
from perftop.base.text import colours, utf8
from perftop.verbs import options
from perftop.verbs.options import fast_imports

LIVE_INTERVAL_NS = 500_000_000
COST_TEXT = (
    "The first line shows at its right what perftop itself costs, both processes with the kernel's "
    "work for them, in percent of one CPU. A longer -i draws less often, a longer --sample reads "
    "less often (-i 1s --sample 1s), and -c reads fewer CPUs. "
)
PANE_TEXT = (
    "-- CMD [ARG …] runs a command, measures it, and shows what it prints below the numbers. "
    "Ctrl-C is for the command, q leaves the screen and lets it run on; a summary on stderr at its "
    "end; the exit status is the command's."
)


def add(verbs: Any) -> None:
    text = "the screen: what each core does, and what takes its time (the default)"
    live = options.add_verb(verbs, "live", run, text, stream=True, epilog=COST_TEXT + PANE_TEXT)
    live.set_defaults(runs=True)

    replay = options.add_verb(verbs, "replay", run_replay, "the screen on a recording")
    replay.add_argument(
        "files", nargs="+", type=options.recording, metavar="FILE",
        help="a recording; two of them are drawn on one axis",
    )  # fmt: skip
    replay.add_argument(
        "--align", type=alignment, metavar="MOMENT",
        help="where two recordings are aligned: start (default) | command | mark:LABEL",
    )  # fmt: skip
    options.add_interval(replay, LIVE_INTERVAL_NS)

    text = "the screen on a recording of real trouble, or on a simulated machine"
    about = (
        "the screen on a simulated machine: two minutes in which each view shows something; or on "
        "a recording of real trouble"
    )
    demo = options.add_verb(verbs, "demo", run_demo, text, about=about)
    demo.add_argument(
        "scenario", nargs="?", default="demo", metavar="list|NAME[,KEY=VALUE…]",
        help="list: all names; a recording: quota | queue …; a simulated machine: cpus=64 | "
        "guest | neighbour,cpus=64 …",
    )  # fmt: skip
    options.add_interval(demo)
    text = "how often the machine is read"
    demo.add_argument("--sample", type=options.span_ns, metavar="TIME", help=text)
    demo.set_defaults(live=live)

    text = "the screen on a stream of `perftop serve` on this machine"
    attach = options.add_verb(verbs, "attach", run_attach, text)
    attach.add_argument("attach", metavar="unix:PATH", help="where serve listens")
    options.add_interval(attach)
    attach.set_defaults(live=live)
    for parser in (live, replay, demo, attach):
        options.add_terminal(parser)


def alignment(text: str) -> tuple[str, str]:
    """Parses the moment at which two recordings are aligned. Returns its kind and, for a mark, the
    label."""
    kind, _, label = text.partition(":")
    if text in {"start", "command"} or (kind == "mark" and label):
        return kind, label
    raise argparse.ArgumentTypeError(f"invalid moment {text!r} (try start, command, mark:LABEL)")


def run(args: argparse.Namespace) -> int:
    if not options.is_at_terminal():
        raise Failed("the screen needs a terminal; for pipes and files: perftop stat", USAGE)
    from perftop.tui import config, first_picture

    settings, mouse = config.load(args.config), not args.no_mouse
    interval_ns, sample_ns = options.interval_and_sample(args, LIVE_INTERVAL_NS)
    from perftop.process import launch

    if args.command is None:
        argv = options.stream_command(
            args, sample_ns, launch.longest_batch_ns(sample_ns, interval_ns)
        )
        # The app takes longer to import than the probe to start, so both run in parallel.
        with first_picture.show_picture() as picture, launch.running_probe(argv) as probe:
            with fast_imports():
                from perftop.tui import stream
            on_start = picture.hand_over
            return stream.run(probe, interval_ns, settings, mouse=mouse, on_start=on_start)
    from perftop.process.job_terminal import JobTerminal

    columns, lines = os.get_terminal_size()
    with (
        JobTerminal(args.command, columns - 1, lines // 4) as console,  # approximate final size
        launch.running_probe(
            options.stream_command(args, sample_ns, sample_ns, console.job)
        ) as probe,
    ):
        with fast_imports():
            from perftop.tui import around

        return around.run(probe, console, interval_ns, settings, mouse=mouse)


def run_demo(args: argparse.Namespace) -> int:
    name: str = args.scenario
    if name == "list":
        return _list_demos()
    is_recording = options.shipped_recording(name) is not None
    settings_only = "=" in name.partition(",")[0]
    source = f"sim:demo,{name}" if settings_only else f"sim:{name}"
    if not options.is_at_terminal():
        verb = f"summary demo:{name}" if is_recording else f"stat --source {source}"
        raise Failed(f"the screen needs a terminal; in a pipe: perftop {verb}", USAGE)
    if is_recording:
        replay = args.verbs["replay"].parse_args([f"demo:{name}"])
        given = {key: value for key, value in vars(args).items() if value is not None}
        return run_replay(argparse.Namespace(**(vars(replay) | given)))
    live = vars(args.live.parse_args(["--source", source]))
    return run(argparse.Namespace(**(live | vars(args))))


def _list_demos() -> int:
    """Prints the tables of recordings and scenarios from their pages."""
    from perftop.docs import page

    width = shutil.get_terminal_size((80, 24)).columns
    for topic, title in (
        ("demo", "Recordings of real trouble: perftop demo NAME, perftop why demo:NAME"),
        ("sim", "Simulated machines: perftop demo NAME[,cpus=N]"),
    ):
        tables = tuple(block for block in page.read_page(topic).blocks if block.kind == "table")
        table = page.Page(topic, title, tables[:1])
        lines = page.lines(table, width, colour=colours(sys.stdout), unicode=utf8())
        print("\n".join([*lines, ""]))
    return 0


def run_attach(args: argparse.Namespace) -> int:
    live = vars(args.live.parse_args([]))
    return run(argparse.Namespace(**(live | vars(args))))


def run_replay(args: argparse.Namespace) -> int:
    files, mouse = args.files, not args.no_mouse
    if len(files) > 2:
        raise Failed(
            "replay takes one recording, or two to compare; more: perftop fleet DIR", USAGE
        )
    if args.align is not None and len(files) < 2:
        raise Failed("--align needs two recordings: perftop replay A B", USAGE)
    if len(files) == 1:
        with fast_imports():
            from perftop.tui import config, replay

        return replay.run(files[0], args.interval, config.load(args.config), mouse=mouse)
    with fast_imports():
        from perftop.tui import config, pair_screen
        from perftop.tui.pair_screen import Alignment

    moment = Alignment(*(args.align or ("start", "")))
    return pair_screen.run((files[0], files[1]), moment, config.load(args.config), mouse=mouse)
