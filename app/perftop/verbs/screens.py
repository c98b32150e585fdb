"""Verbs that open a screen: `live` shows a machine, `replay` a recording, `demo` a simulated
machine, `attach` a stream of `perftop serve`, and `fleet` many machines."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perftop.base import END_SIGNALS
from perftop.base.errors import (
    DAMAGED,
    USAGE,
    Failed,
    failure_to,
    print_error,
    require_terminal,
)
from perftop.base.text import did_you_mean, json_number, supports_colour, supports_unicode
from perftop.verbs import options
from perftop.verbs.options import fast_imports

if TYPE_CHECKING:
    from perftop.session.fleet_machine import Machine, MachineEpisode
    from perftop.verbs.fleet_prometheus import PrometheusSource
    from perftop.verbs.fleet_sources import RecordingsSource, SshSource

    AnyFleetSource = SshSource | PrometheusSource | RecordingsSource

LIVE_EPILOG = (
    "The right end of the first line shows the CPU time of perftop itself (both its processes), as "
    "a percentage of one CPU. To reduce it, draw less often (-i 1s), read less often (--sample 1s) "
    "or read fewer CPUs (-c). "
    "-- CMD [ARG …] runs a command, measures it, and shows its output below the numbers. "
    "Ctrl-C goes to the command; q only closes the screen. When the command ends, "
    "a summary is printed on stderr. The exit status is the command's."
)
DEMO_TITLES = {
    "demo": "Recordings of real problems: perftop demo NAME, perftop why demo:NAME",
    "sim": "Simulated machines: perftop demo NAME[,cpus=N]",
}


def add_live(subparsers: Any) -> None:
    text = "show what each core does, and what takes time from it (the default verb)"
    live = options.add_verb(
        subparsers, "live", run_live, text, stream=True, interval="500ms", epilog=LIVE_EPILOG
    )
    live.set_defaults(runs=True)

    replay = options.add_verb(subparsers, "replay", run_replay, "show a recording on the screen")
    text = "a recording; two are drawn on one time axis"
    replay.add_argument("files", nargs="+", type=options.parse_recording, metavar="FILE", help=text)
    text = "moment at which two recordings are aligned: start (default) | command | mark:LABEL"
    replay.add_argument("--align", type=parse_alignment, metavar="MOMENT", help=text)
    options.add_interval_options(replay, "500ms")
    replay.set_defaults(interval=options.LIVE_INTERVAL_NS)

    text = "show a simulated machine, or a recording of real problems, on the screen"
    demo = options.add_verb(subparsers, "demo", run_demo, text)
    text = (
        "list prints all names; NAME is a recording (quota, queue …) or a simulated machine "
        "(guest; neighbour,cpus=64 …); default: demo, a simulated machine on which each view has "
        "something to show within two minutes"
    )
    names = "list|NAME[,KEY=VALUE…]"
    demo.add_argument("scenario", nargs="?", default="demo", metavar=names, help=text)
    options.add_interval_options(demo, "500ms")
    text = f"time between two reads of the counters (default: {options.SAMPLE_DEFAULT_HELP})"
    demo.add_argument("--sample", type=options.parse_duration_ns, metavar="TIME", help=text)
    demo.set_defaults(live=live)

    text = "show the screen, with samples from `perftop serve` on this machine"
    attach = options.add_verb(subparsers, "attach", run_attach, text)
    attach.add_argument("attach", metavar="unix:PATH", help="the socket of perftop serve")
    options.add_interval_options(attach, "500ms")
    attach.set_defaults(live=live)
    for parser in (live, replay, demo, attach):
        options.add_terminal_options(parser)


def parse_alignment(text: str) -> tuple[str, str]:
    """Parses --align: returns the kind of moment at which to align and, for a mark, the label."""
    kind, _, label = text.partition(":")
    if text in {"start", "command"} or (kind == "mark" and label):
        return kind, label
    raise argparse.ArgumentTypeError(f"invalid moment {text!r} (try start, command, mark:LABEL)")


def run_live(args: argparse.Namespace) -> int:
    require_terminal("for pipes and files: perftop stat")
    from perftop.tui import config

    settings, mouse = config.load(args.config), not args.no_mouse
    interval_ns, sample_ns = options.interval_and_sample(args, options.LIVE_INTERVAL_NS)
    from perftop.process import launch

    if args.command is None:
        batch_ns = launch.longest_batch_ns(sample_ns, interval_ns)
        argv = options.stream_command(args, sample_ns, batch_ns)
        # The probe starts while the app is imported, which takes longer.
        with config.show_picture() as picture, launch.running_probe(argv) as probe:
            with fast_imports():
                from perftop.tui import stream
            on_start = picture.hand_over
            return stream.run(probe, interval_ns, settings, mouse=mouse, on_start=on_start)
    from perftop.process.job_terminal import JobTerminal

    columns, lines = os.get_terminal_size()
    with JobTerminal(args.command, columns - 1, lines // 4) as tty:  # approximate final size
        argv = options.stream_command(args, sample_ns, sample_ns, tty.job)
        with launch.running_probe(argv) as probe:
            with fast_imports():
                from perftop.tui import command

            return command.run(probe, tty, interval_ns, settings, mouse=mouse)


def run_demo(args: argparse.Namespace) -> int:
    name: str = args.scenario
    if name == "list":
        return _list_demos()
    is_recording = options.shipped_recording(name) is not None
    first_word = name.partition(",")[0]
    settings_only = "=" in first_word
    names = [word.strip("`") for topic in DEMO_TITLES for word, _ in _demo_table(topic)[1:]]
    if not settings_only and first_word not in names:
        hint = did_you_mean(first_word, names, "all names: perftop demo list")
        raise Failed(f"unknown demo {first_word!r}{hint}", USAGE)
    source = f"sim:demo,{name}" if settings_only else f"sim:{name}"
    verb = f"summary demo:{name}" if is_recording else f"stat --source {source}"
    require_terminal(f"in a pipe: perftop {verb}")
    if is_recording:
        replay = args.verbs["replay"].parse_args([f"demo:{name}"])
        options_given = {key: value for key, value in vars(args).items() if value is not None}
        return run_replay(argparse.Namespace(**(vars(replay) | options_given)))
    live = vars(args.live.parse_args(["--source", source]))
    return run_live(argparse.Namespace(**(live | vars(args))))


def _demo_table(topic: str) -> list[list[str]]:
    """Returns the cells of a help page's first table, by row; the first row has the headings."""
    from perftop.docs import page

    table = next(block for block in page.read_page(topic).blocks if block.kind == "table")
    return [page.split_cells(row) for row in table.lines]


def _list_demos() -> int:
    from perftop.docs import page

    width, colour = shutil.get_terminal_size((80, 24)).columns, supports_colour(sys.stdout)
    for topic, title in DEMO_TITLES.items():
        rows = tuple(f"| {' | '.join(row)} |" for row in _demo_table(topic))
        if not colour:  # the names are shown without emphasis
            rows = tuple(row.replace("`", "") for row in rows)
        table = page.Page(topic, title, (page.Block("table", rows),))
        lines = page.page_lines(table, width, colour=colour, unicode=supports_unicode())
        print("\n".join([*lines, ""]))
    return 0


def run_attach(args: argparse.Namespace) -> int:
    live = vars(args.live.parse_args([]))
    return run_live(argparse.Namespace(**(live | vars(args))))


def run_replay(args: argparse.Namespace) -> int:
    files, mouse = args.files, not args.no_mouse
    if len(files) > 2:
        text = "replay takes one recording, or two to compare; more: perftop fleet DIR"
        raise Failed(text, USAGE)
    if args.align is not None and len(files) < 2:
        raise Failed("--align needs two recordings: perftop replay A B", USAGE)
    if len(files) == 1:
        with fast_imports():
            from perftop.tui import config, replay

        return replay.run(files[0], args.interval, config.load(args.config), mouse=mouse)
    with fast_imports():
        from perftop.tui import config, pair_screen
        from perftop.tui.pair_page import Alignment

    moment = Alignment(*(args.align or ("start", "")))
    return pair_screen.run((files[0], files[1]), moment, config.load(args.config), mouse=mouse)


# --- `perftop fleet`: shows many machines, on a screen or as JSON lines

MAX_FILE_BYTES = 1 << 20
MAX_FIRST_WAIT_S = 10.0


def add_fleet(subparsers: Any) -> None:
    text = "show many machines, one per row"
    about = f"{text}, the worst first; Enter opens the selected machine"
    parser = options.add_verb(subparsers, "fleet", run_fleet, text, about=about)
    text = (
        "machines to measure over ssh, at most 64; sim:… is a simulated one; or one DIR, written "
        "by record --host … -o DIR"
    )
    parser.add_argument("hosts", nargs="*", metavar="[USER@]HOST|DIR", help=text)
    text = "read the names of machines from FILE, one per line"
    parser.add_argument(
        "--hosts", type=options.parse_file_path, dest="hosts_file", metavar="FILE", help=text
    )
    parser.add_argument("--remote", metavar="PATH", help=options.REMOTE_HELP)
    text = "read what this Prometheus server has scraped from `perftop exporter`"
    parser.add_argument("--prometheus", metavar="URL", help=text)
    text = "with --prometheus: read only matching series, such as '{job=\"perftop\"}'"
    parser.add_argument("--match", metavar="SELECTOR", help=text)
    options.add_interval_options(parser, "1s; 15s with --prometheus")
    options.add_json_options(parser, "print one JSON object per line, without a screen")
    text = "with --json: stop after N intervals (default: run until Ctrl-C)"
    parser.add_argument("-n", "--count", type=options.parse_count, metavar="N", help=text)
    options.add_terminal_options(parser)


def run_fleet(args: argparse.Namespace) -> int:
    if not args.json:
        require_terminal("for pipes and files: --json")
    source = _fleet_source(args)
    if args.json:
        from perftop.process.signals import run_loop

        return run_loop(_print_lines, source, args.count)
    from perftop.tui import app, config, fleet_screen

    screen = fleet_screen.FleetSource(source)
    return app.run_app(screen, config.load(args.config), mouse=not args.no_mouse)


def _fleet_source(args: argparse.Namespace) -> AnyFleetSource:
    """Returns the source that the options select. Raises Failed if they contradict each other."""
    hosts, file, remote = args.hosts, args.hosts_file, args.remote
    if "" in hosts:
        raise Failed("a name is empty (is a shell variable unset?)", USAGE)
    update_s = None if args.interval is None else args.interval / 1e9
    if args.prometheus is not None:
        if hosts or file is not None or remote is not None:
            raise Failed("--prometheus names the machines: leave out hosts and --remote", USAGE)
        with fast_imports(for_https=True):
            from perftop.verbs.fleet_prometheus import SCRAPE_S, PrometheusSource
        return PrometheusSource(args.prometheus, args.match or "", update_s or SCRAPE_S)
    with fast_imports():
        from perftop.verbs.fleet_sources import RecordingsSource, SshSource
    if args.match is not None:
        raise Failed("--match needs --prometheus", USAGE)
    if len(hosts) == 1 and Path(hosts[0]).is_dir() and file is None:
        if update_s is not None or remote is not None:
            option = "-i" if remote is None else "--remote"
            raise Failed(f"{option} is for live machines: {hosts[0]} has recordings", USAGE)
        return RecordingsSource(Path(hosts[0]), playing=not args.json)
    if path := next((host for host in hosts if "/" in host and "://" not in host), None):
        raise Failed(f"no machine or directory {path}; fleet reads only one directory", USAGE)
    return SshSource(host_names(hosts, file), update_s or 1.0, remote=remote)


def host_names(hosts: Sequence[str], file: Path | None) -> list[str]:
    """Returns the hosts among arguments and in a file (one a line, # comments). Raises Failed."""
    names = list(hosts)
    if file is not None:
        try:
            with file.open("rb") as lines:
                content = lines.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise Failed(str(failure_to(f"read {file}", error)), USAGE) from None
        if len(content) > MAX_FILE_BYTES:
            text = f"{file} is not a hosts file: it is larger than {MAX_FILE_BYTES >> 20} MB"
            raise Failed(text, USAGE)
        for line in content.decode("utf-8", "replace").splitlines():
            names += filter(None, [line.partition("#")[0].strip()])
    if not names:
        raise Failed("no machine was named: perftop fleet HOST… | --hosts FILE", USAGE)
    return names


# --- JSON lines


async def _print_lines(source: AnyFleetSource, count: int | None) -> int:
    """Prints a line for each machine, and one for each episode that has ended, in each of `count`
    intervals (None: until a signal). Returns the exit status."""
    import asyncio

    from perftop.output.stat_lines import line_text
    from perftop.process.signals import on_signal
    from perftop.session.fleet import TableSelection
    from perftop.verbs.fleet_sources import RecordingsSource

    caught_signals: list[int] = []
    feeding = asyncio.create_task(source.run())

    def handle_signal(number: int) -> None:
        caught_signals.append(number)
        feeding.cancel()

    on_signal(END_SIGNALS, handle_signal)
    last_ends: dict[str, float] = {}
    """End of the newest printed episode, by machine."""
    answering_names, silence_reasons = set[str](), dict[str, str]()
    # Wait until each machine has answered or failed. The machines of a server are known only when
    # it has answered; its source limits that time.
    deadline_s = asyncio.get_running_loop().time() + MAX_FIRST_WAIT_S
    try:
        while not feeding.done():
            is_connecting = any(m.why == "connecting" for m in source.fleet.silent_machines)
            is_late = asyncio.get_running_loop().time() >= deadline_s
            if source.fleet.machines and (is_late or not is_connecting):
                break
            await asyncio.wait([feeding], timeout=0.1)
        while not feeding.done() and count != 0:
            for machine in source.fleet.rows(TableSelection(), source.shown_time_s):
                print(line_text(machine_json(machine, source.shown_time_s)))
                if machine.is_answering:
                    answering_names.add(machine.name)
                else:
                    silence_reasons[machine.name] = machine.why
                last_end = last_ends.get(machine.name, 0.0)
                for episode in machine.ended:
                    if episode.end is not None and episode.end > last_end:
                        print(line_text(episode_json(episode)))
                        last_ends[machine.name] = max(episode.end, last_ends.get(machine.name, 0.0))
            sys.stdout.flush()
            count = 0 if source.is_over else None if count is None else count - 1
            if count != 0 and isinstance(source, RecordingsSource):
                await source.read_interval()
            elif count != 0:
                await asyncio.wait([feeding], timeout=source.update_s)
    finally:
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding  # raises the failure of the source, if any
    failures, status = source.damages, DAMAGED
    if failures is None:
        status = 1
        failures = [
            f"{name} never answered: {why.removeprefix(f'{name}: ')}"
            for name, why in silence_reasons.items()
            if name not in answering_names
        ]
    print_error(*failures)
    return 128 + caught_signals[0] if caught_signals else status if failures else 0


def machine_json(machine: Machine, now: float) -> dict[str, Any]:
    from perftop.session.fleet_machine import FIELDS

    kind, cause = machine.cause
    line: dict[str, Any] = {
        "type": "machine", "machine": machine.name, "time": now, "answers": machine.is_answering,
        "why": machine.why or None, "age_s": json_number(now - machine.updated_at),
        "model": machine.model or None, "cpus": machine.cpu_count or None,
    }  # fmt: skip
    line |= {key: json_number(machine.numbers[key]) for key in FIELDS}
    line |= {"kind": kind or None, "cause": cause or None, "suspects": machine.suspect_count}
    return line | {"episodes": [episode_json(episode) for episode in machine.running]}


def episode_json(episode: MachineEpisode) -> dict[str, Any]:
    return {
        "type": "episode", "machine": episode.machine, "kind": episode.kind, "cause": episode.cause,
        "start": episode.start, "end": episode.end, "depth": episode.depth, "share": episode.share,
    }  # fmt: skip
