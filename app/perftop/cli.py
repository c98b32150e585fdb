"""The command line: maps arguments to verbs. Heavy modules are imported when a verb needs them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfprobe import stream_options
from perftop import habits
from perftop.arguments import (
    COMMAND,
    COMPARED,
    COST,
    EXPLAINED,
    PANE,
    RECORDED,
    SCRAPED,
    DefaultConfig,
    PrintCompletion,
    Version,
    alignment,
    attached,
    check_command,
    check_hosts,
    check_replayed,
    check_rest,
    check_verb,
    count,
    following,
    held,
    interval_ns,
    label,
    place,
    repeats,
    size_bytes,
    span_ns,
    split,
    two_sides,
    with_verb,
)
from perftop.base.errors import USAGE, Failed, complain, discard, unwritten
from perftop.base.importing import lean
from perftop.base.text import full_terminal
from perftop.verbs import machine_verbs

if TYPE_CHECKING:
    from perftop.process.command_window import Start
    from perftop.process.identity import Identity
    from perftop.process.job import Job

LIVE_INTERVAL_NS = 500_000_000
STAT_INTERVAL_NS = 1_000_000_000
RECORD_BATCH_NS = 200_000_000
"""What a recording may lack at its end if perftop or the probe is killed."""
SAMPLE_NS = 100_000_000
RING_NS = 600_000_000_000
"""What a black box holds where only --on is given."""
MOST_BYTES = 1_000_000_000
EXPORTER_SAMPLE_NS = 1_000_000_000
"""It runs for ever, and nobody watches it."""
FORMS = ("csv", "jsonl", "parquet", "openmetrics")
ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
           ".parquet": "parquet", ".om": "openmetrics", ".prom": "openmetrics"}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    arguments, command = split(list(sys.argv[1:] if argv is None else argv))
    if sys.stdout is None:
        complain("stdout is closed: there is nowhere to write to")
        return 1
    arguments = with_verb(arguments, command, screen=_terminal())
    try:
        options = _parsed(habits.translated(arguments))
        options.command = command
        check_command(options)
        check_hosts(options)
        status: int = options.verb(options)
        sys.stdout.flush()
    except Failed as failed:
        complain(str(failed))
        return failed.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard(sys.stdout.fileno())  # a closed stdout is a normal end
        return 0
    except OSError as error:
        discard(sys.stdout.fileno())
        complain(str(unwritten("stdout", error)))
        return 1
    return status


def _terminal() -> bool:
    """Whether a screen can be shown, and keys can be read."""
    return sys.stdin is not None and sys.stdin.isatty() and full_terminal(sys.stdout)


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = _parser()
    check_verb(parser.get_default("verbs"), arguments)
    options, left = parser.parse_known_args(arguments)
    check_rest(arguments[0], left, parser.get_default("verbs"))
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="perftop",
        description="Shows whether the CPUs of this machine run as fast as they could, and if not, "
        "what takes the time: power, heat, a neighbour, the hypervisor, a queue.",
        epilog="Without a verb perftop opens the screen. To begin with: perftop demo, perftop why, "
        "perftop doctor. `perftop VERB --help` tells a verb's options, `perftop help` the rest.",
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version")
    parser.add_argument(
        "--default-config", action=DefaultConfig, nargs=0, help="print a config file to begin with"
    )
    parser.add_argument(
        "--print-completion", action=PrintCompletion, choices=("bash", "zsh", "fish"),
        help="print a script that completes perftop's words in this shell",
    )  # fmt: skip
    parser.set_defaults(runs=False)
    verbs = parser.add_subparsers(required=True, metavar="VERB", title="verbs")
    machine = machine_verbs.machine_options()
    watch = _watch_options(machine)
    _add_screens(verbs, watch)
    _add_stat(verbs, watch)
    _add_record(verbs, watch)
    _add_fleet(verbs)
    _add_export(verbs)
    _add_exporter(verbs, machine)
    _add_serve(verbs, watch)
    _add_summary(verbs)
    _add_why(verbs, watch)
    _add_diff(verbs)
    machine_verbs.add(verbs, machine)
    _add_help(verbs)
    parser.set_defaults(verbs=dict(verbs.choices))
    return parser


def _add_screens(verbs: Any, watch: argparse.ArgumentParser) -> None:
    text = "the screen: what each core does, and what takes its time (the default)"
    live = verbs.add_parser("live", parents=[watch], help=text, epilog=COST + PANE)
    live.set_defaults(verb=_live, runs=True)

    replay = _add_replay(verbs)

    text = "the screen on a simulated machine: two minutes in which each view shows something"
    demo = verbs.add_parser("demo", help="the screen on a simulated machine", description=text)
    demo.add_argument(
        "scenario", nargs="?", default="demo", metavar="SCENARIO[,KEY=VALUE…]",
        help="another machine or story: guest | neighbour,cpus=64 | turbo-drop | throttle …",
    )  # fmt: skip
    _add_interval(demo)
    demo.add_argument(
        "--sample", type=span_ns, metavar="TIME", help="how often the machine is read"
    )
    demo.set_defaults(verb=_demo)

    text = "the screen on what `perftop serve` hands out on this machine"
    attach = verbs.add_parser("attach", help=text)
    attach.add_argument("attach", metavar="unix:PATH", help="where serve listens")
    _add_interval(attach)
    attach.set_defaults(verb=_attach)
    for screen in (live, replay, demo, attach):
        screen.add_argument("--no-mouse", action="store_true", help="the terminal keeps the mouse")
        screen.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            help="instead of ~/.config/perftop/config.toml",
        )


def _add_replay(verbs: Any) -> argparse.ArgumentParser:
    replay: argparse.ArgumentParser = verbs.add_parser("replay", help="the screen on a recording")
    replay.add_argument(
        "files", nargs="+", type=Path, metavar="FILE",
        help="a recording; two of them are drawn on one axis",
    )  # fmt: skip
    replay.add_argument(
        "--align", type=alignment, metavar="MOMENT",
        help="where two recordings are laid together: start (default) | command | mark:LABEL",
    )  # fmt: skip
    _add_interval(replay, LIVE_INTERVAL_NS)
    replay.set_defaults(verb=_replay)
    return replay


def _add_stat(verbs: Any, watch: argparse.ArgumentParser) -> None:
    text = "the numbers as text or JSON, without a screen"
    stat = verbs.add_parser("stat", parents=[watch], help=text, epilog=COMMAND)
    stat.add_argument("-n", "--count", type=count, metavar="N", help="stop after N intervals")
    stat.add_argument("--duration", type=span_ns, metavar="TIME", help="stop after this long")
    stat.add_argument(
        "-r",
        "--repeat",
        type=count,
        metavar="N",
        help="run CMD N times, and tell how far the means can be believed",
    )
    stat.add_argument(
        "--warmup",
        type=count,
        default=0,
        metavar="K",
        help="with -r: run CMD K times before that, uncounted",
    )
    shown = stat.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="one JSON object a line")
    shown.add_argument(
        "--brief", action="store_true", help="one line an interval, of the whole machine"
    )
    stat.add_argument("--metrics", metavar="A,B", help="only these: util, busy_hz, smt, power_w …")
    stat.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write to this file; - is stdout"
    )
    stat.add_argument("--force", action="store_true", help="replace a file that is there")
    _add_label(stat)
    _add_attach(stat)
    stat.set_defaults(verb=_stat, runs=True, several=True)


def _add_record(verbs: Any, watch: argparse.ArgumentParser) -> None:
    text = "write what is measured to a file, without a screen"
    record = verbs.add_parser("record", parents=[watch], help=text, epilog=RECORDED)
    record.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write; a directory for several --host",
    )
    record.add_argument(
        "--ring",
        type=span_ns,
        metavar="TIME",
        help="keep only the last TIME, in a directory; USR1 or m keeps it for good",
    )
    record.add_argument(
        "--on",
        metavar="KIND,KIND",
        help="keep 30 s around episodes of these kinds: turbo-drop,neighbour …",
    )
    record.add_argument(
        "--max-size",
        type=size_bytes,
        default=MOST_BYTES,
        metavar="SIZE",
        help="limit for all that --ring or --on keep (default: 1G)",
    )
    record.add_argument(
        "--print-unit", action="store_true", help="print the systemd service of a black box"
    )
    record.add_argument("--force", action="store_true", help="replace a file that is there")
    record.add_argument("--duration", type=span_ns, metavar="TIME", help="stop after this long")
    _add_label(record)
    _add_attach(record)
    record.set_defaults(verb=_record, runs=True, several=True)


def _add_attach(parser: argparse.ArgumentParser) -> None:
    text = "read from `perftop serve`, which listens there, and start no probe"
    parser.add_argument("--attach", metavar="unix:PATH", help=text)


def _add_serve(verbs: Any, watch: argparse.ArgumentParser) -> None:
    text = "one probe for many readers on this machine: perftop attach unix:PATH"
    serve = verbs.add_parser("serve", parents=[watch], help=text, description=text)
    serve.add_argument(
        "--socket", type=Path, metavar="PATH", help="listen there; systemd may hand over a socket"
    )
    serve.add_argument("--group", metavar="NAME", help="let members of this group read, too")
    serve.set_defaults(verb=_serve)


def _add_fleet(verbs: Any) -> None:
    text = "many machines, a row each, the one that loses most first; Enter opens one"
    fleet = verbs.add_parser("fleet", help="many machines, a row each", description=text)
    fleet.add_argument(
        "hosts",
        nargs="*",
        metavar="[USER@]HOST|DIR",
        help="machines to reach by ssh, at most 64; sim:… simulates one; DIR is what "
        "record --host … -o DIR wrote",
    )
    fleet.add_argument(
        "--hosts",
        type=Path,
        dest="hosts_file",
        metavar="FILE",
        help="read names of machines from it, one a line",
    )
    fleet.add_argument("--remote", metavar="PATH", help=machine_verbs.REMOTE)
    fleet.add_argument(
        "--prometheus",
        metavar="URL",
        help="read what this server has scraped from perftop exporter",
    )
    fleet.add_argument(
        "--match", metavar="SELECTOR", help='with --prometheus, only these series: {job="perftop"}'
    )
    _add_interval(fleet)
    fleet.add_argument("--json", action="store_true", help="one JSON object a line, no screen")
    fleet.add_argument(
        "-n", "--count", type=count, metavar="N", help="with --json: stop after N intervals"
    )
    fleet.add_argument("--no-mouse", action="store_true", help="the terminal keeps the mouse")
    fleet.add_argument(
        "--config", type=Path, metavar="FILE", help="instead of ~/.config/perftop/config.toml"
    )
    fleet.set_defaults(verb=_fleet)


def _add_export(verbs: Any) -> None:
    export = verbs.add_parser("export", help="a recording as CSV, JSON lines, Parquet, OpenMetrics")
    export.add_argument("file", metavar="FILE", help="a recording, or - for stdin")
    export.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        default="-",
        help="write to this file; - is stdout (default)",
    )
    export.add_argument("--force", action="store_true", help="replace a file that is there")
    export.add_argument(
        "--format",
        choices=FORMS,
        help="form of the output (default: by the ending of OUT, else csv)",
    )
    export.add_argument(
        "--metrics", metavar="A,B", help="only these: util, busy_hz, smt, power_w …"
    )
    export.add_argument(
        "-c",
        "--cpus",
        metavar="LIST",
        help="only these CPUs: 0-15,32 | pkg0 | core3 | pkg1core3 | type:P",
    )
    export.add_argument(
        "--every", type=span_ns, metavar="TIME",
        help="time that a line covers (default: -i of the recording, else 1s)",
    )  # fmt: skip
    export.set_defaults(verb=_export)


def _add_exporter(verbs: Any, machine: argparse.ArgumentParser) -> None:
    text = "counters of this machine for Prometheus"
    exporter = verbs.add_parser("exporter", parents=[machine], help=text, epilog=SCRAPED)
    stream_options.add(exporter, span_ns, events=False)
    exporter.add_argument(
        "--listen", metavar="HOST:PORT|unix:PATH",
        help="where to listen (default: what systemd hands over, else 127.0.0.1:9917)",
    )  # fmt: skip
    exporter.add_argument(
        "--detail", choices=("package", "core", "cpu"), default="package",
        help="series for each package (default), SMT states for each core, all for each CPU",
    )  # fmt: skip
    exporter.add_argument(
        "--textfile", type=Path, metavar="FILE.prom",
        help="write it for node_exporter; does not listen then, unless --listen says where",
    )  # fmt: skip
    printed = exporter.add_mutually_exclusive_group()
    for name, text in (
        ("unit", "the systemd service"), ("socket", "the systemd socket"),
        ("rules", "recording and alerting rules"), ("dashboard", "the Grafana board"),
    ):  # fmt: skip
        printed.add_argument(
            f"--print-{name}", dest="printed", action="store_const", const=name,
            help=f"print {text}",
        )  # fmt: skip
    exporter.set_defaults(verb=_exporter)


def _add_summary(verbs: Any) -> None:
    summary = verbs.add_parser(
        "summary", help="a recording summed up, as a whole or phase by phase"
    )
    summary.add_argument("file", type=Path, metavar="FILE", help="what record has written")
    summary.add_argument("--by", choices=("mark",), help="a phase from each mark to the next")
    for name, text in (("from", "where it begins"), ("to", "where it ends")):
        summary.add_argument(
            f"--{name}", dest={"from": "since", "to": "until"}[name], type=place,
            metavar="TIME", help=f"{text}: 30s after the start, or 12:03:05",
        )  # fmt: skip
    summary.add_argument("--json", action="store_true", help="one JSON object a phase")
    summary.set_defaults(verb=_summary)


def _add_why(verbs: Any, watch: argparse.ArgumentParser) -> None:
    text = "what costs most time here, with evidence"
    why = verbs.add_parser("why", parents=[watch], help=text, epilog=EXPLAINED)
    why.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="a recording, or - for stdin"
    )
    why.add_argument(
        "--duration", type=span_ns, metavar="TIME", help="how long to look (default: 10s)"
    )
    why.add_argument("--json", action="store_true", help="one JSON object")
    why.set_defaults(verb=_why, runs=True)


def _add_help(verbs: Any) -> None:
    pages = verbs.add_parser("help", help="pages that explain perftop; options of a verb")
    pages.add_argument(
        "topic", nargs="?", metavar="TOPIC", help="a page or a verb (default: list the pages)"
    )

    def show(options: argparse.Namespace) -> int:
        from perftop.verbs import help as help_pages

        return help_pages.run(options.topic, verbs.choices)

    pages.set_defaults(verb=show)


def _add_diff(verbs: Any) -> None:
    text = "two runs, or groups of runs, held against each other"
    diff = verbs.add_parser("diff", help=text, epilog=COMPARED)
    diff.add_argument("files", nargs="*", type=Path, metavar="FILE", help="two files, A and B")
    for side in "ab":
        diff.add_argument(
            f"--{side}", nargs="+", type=Path, default=[], metavar="FILE",
            help=f"the runs of {side.upper()}, where there are several",
        )  # fmt: skip
    diff.add_argument(
        "--by", choices=("mark",), help="compare phases from mark to mark, by their labels"
    )
    diff.add_argument("--metrics", metavar="A,B", help="only these: run_s, busy_hz, ipc …")
    diff.add_argument("--json", action="store_true", help="one JSON object")
    diff.set_defaults(verb=_diff)


def _watch_options(machine: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Options for the source to read, and for how often."""
    options = argparse.ArgumentParser(add_help=False, parents=[machine])
    _add_interval(options)
    stream_options.add(options, span_ns)
    return options


def _add_label(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--label", action="append", type=label, metavar="KEY=VALUE",
        help="what this run is called, in all that is made of it; may be repeated",
    )  # fmt: skip


def _identity(options: argparse.Namespace) -> Identity:
    from perftop.process.identity import Identity

    return Identity(dict(options.label or ()), options.command or (), options.interval)


def _add_interval(parser: argparse.ArgumentParser, default_ns: int | None = None) -> None:
    parser.add_argument(
        "-i", "--interval", type=interval_ns, metavar="TIME", default=default_ns,
        help="length of time that each number covers: 100ms, 1s, 2",
    )  # fmt: skip


def _stream(
    options: argparse.Namespace, sample_ns: int, batch_ns: int, job: Job | None = None
) -> list[str]:
    """Arguments of the probe. Around a command it writes each sample at once: the command starts
    and its numbers end with samples."""
    if (address := getattr(options, "attach", None)) is not None:
        return [attached(options, address)]
    only = [*stream_options.handed_on(options), *following(options, job)]
    sample = ["--sample", f"{sample_ns / 1e9:g}"]
    if job is None and batch_ns > sample_ns:
        sample += ["--batch", f"{batch_ns / 1e9:g}"]
    return machine_verbs.probe_command(
        options, "stream", "--source", options.source, *sample, *only
    )


def _times(options: argparse.Namespace, interval_ns: int) -> tuple[int, int]:
    """Lengths of interval and sample in ns, as asked for or by default. Raises Failed."""
    interval: int = options.interval or interval_ns
    steps = -(-interval // SAMPLE_NS)
    sample: int = options.sample or interval // steps
    if sample > interval:
        raise Failed("--sample is longer than the interval: nothing would be there to show", USAGE)
    if abs(interval / sample - round(interval / sample)) > 1e-6:
        raise Failed("the interval is no multiple of --sample: lines would not cover it", USAGE)
    return interval, sample


def _live(options: argparse.Namespace) -> int:
    if not _terminal():
        raise Failed("the screen needs a terminal; for pipes and files: perftop stat", USAGE)
    from perftop.tui import config, first_picture

    settings, mouse = config.load(options.config), not options.no_mouse
    interval_ns, sample_ns = _times(options, LIVE_INTERVAL_NS)
    from perftop.process import batches, launch

    if options.command is None:
        argv = _stream(options, sample_ns, batches.longest(sample_ns, interval_ns))
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
        launch.launched(_stream(options, sample_ns, sample_ns, console.job)) as probe,
    ):
        with lean():
            from perftop.tui import command_app

        return command_app.run(probe, console, interval_ns, settings, mouse=mouse)


def _demo(options: argparse.Namespace) -> int:
    source = f"sim:{options.scenario}"
    if not _terminal():
        raise Failed(
            f"the screen needs a terminal; in a pipe: perftop stat --source {source}", USAGE
        )
    live = vars(_parsed(["live", "--source", source]))
    return _live(argparse.Namespace(**(live | vars(options))))


def _attach(options: argparse.Namespace) -> int:
    live = vars(_parsed(["live"]))
    return _live(argparse.Namespace(**(live | vars(options))))


def _serve(options: argparse.Namespace) -> int:
    _, sample_ns = _times(options, STAT_INTERVAL_NS)
    argv = _stream(options, sample_ns, sample_ns)
    from perftop.process import unix_socket
    from perftop.verbs import serve

    group = None if options.group is None else unix_socket.group_id(options.group)
    return serve.run(serve.Options(argv, options.socket, group))


def _replay(options: argparse.Namespace) -> int:
    check_replayed(options)
    if len(options.files) == 2:
        from perftop.tui import config, pair_app
        from perftop.tui.pair.track import Alignment

        files, settings = (options.files[0], options.files[1]), config.load(options.config)
        moment = Alignment(*(options.align or ("start", "")))
        return pair_app.run(files, moment, settings, mouse=not options.no_mouse)
    from perftop.tui import config, replay_app

    settings = config.load(options.config)
    return replay_app.run(options.files[0], options.interval, settings, mouse=not options.no_mouse)


def _fleet(options: argparse.Namespace) -> int:
    from perftop.verbs.fleet import command

    if not (options.json or _terminal()):
        raise Failed("the screen needs a terminal; for pipes and files: --json", USAGE)
    source = command.source(
        command.Options(
            options.hosts,
            options.hosts_file,
            None if options.interval is None else options.interval / 1e9,
            options.remote,
            options.prometheus,
            options.match,
        )
    )
    if options.json:
        return command.lines(source, options.count)
    from perftop.tui import config, fleet_app

    return fleet_app.run(source, config.load(options.config), mouse=not options.no_mouse)


def _stat(options: argparse.Namespace) -> int:
    interval_ns, sample_ns = _times(options, STAT_INTERVAL_NS)
    if repeats(options):
        return _repeat(options, interval_ns, sample_ns)
    with held(options) as job:
        from perftop.process import batches

        batch_ns = batches.longest(sample_ns, interval_ns, options.duration)
        each = _machines(options, sample_ns, batch_ns, job)
        with lean():
            from perftop.verbs import stat

        start, identity = _shared(job, each), _identity(options)
        return stat.run(
            [
                stat.Options(
                    argv,
                    interval_ns,
                    sample_ns,
                    options.count,
                    options.duration,
                    options.json,
                    options.output,
                    options.force,
                    job,
                    intervals=job is None or options.interval is not None,
                    start=start,
                    name=name,
                    metrics=options.metrics and options.metrics.split(","),
                    brief=options.brief,
                    identity=identity,
                )
                for name, argv in each
            ]
        )


def _repeat(options: argparse.Namespace, interval_ns: int, sample_ns: int) -> int:
    from perftop.verbs import repeat, stat

    def one(job: Job) -> stat.Options:
        argv = _stream(options, sample_ns, sample_ns, job)
        return stat.Options(
            argv, interval_ns, sample_ns, json=True, job=job, intervals=False,
            identity=_identity(options),
        )  # fmt: skip

    return repeat.run(
        repeat.Plan(
            options.command, options.repeat, options.warmup, one, options.json,
            options.output, options.force,
        )
    )  # fmt: skip


def _summary(options: argparse.Namespace) -> int:
    from perftop.verbs import summary

    by_mark = options.by is not None
    return summary.run(
        summary.Options(options.file, by_mark, options.since, options.until, options.json)
    )


def _why(options: argparse.Namespace) -> int:
    from perftop.verbs import why

    if options.file is not None:
        if options.command is not None:
            raise Failed("a recording or a command, not both", USAGE)
        return why.run(why.Options([], json=options.json, file=options.file))
    _, sample_ns = _times(options, STAT_INTERVAL_NS)
    with held(options) as job:
        from perftop.process import batches

        duration_ns = options.duration or why.LONGEST_NS
        batch_ns = batches.longest(sample_ns, STAT_INTERVAL_NS, duration_ns)
        argv = _stream(options, sample_ns, batch_ns, job)
        return why.run(why.Options(argv, duration_ns, options.json, job))


def _diff(options: argparse.Namespace) -> int:
    from perftop.verbs import diff

    a, b = two_sides(options)
    metrics = None if options.metrics is None else options.metrics.split(",")
    return diff.run(diff.Options(a, b, options.by is not None, metrics, options.json))


def _machines(
    options: argparse.Namespace, sample_ns: int, batch_ns: int, job: Job | None
) -> list[tuple[str | None, list[str]]]:
    """Name and probe's arguments of each machine; the name of the only one is None."""
    if len(options.hosts) < 2:
        return [(None, _stream(options, sample_ns, batch_ns, job))]
    each = ((host, argparse.Namespace(**vars(options) | {"host": host})) for host in options.hosts)
    return [(host, _stream(one, sample_ns, batch_ns, job)) for host, one in each]


def _shared(job: Job | None, each: list[tuple[str | None, list[str]]]) -> Start | None:
    """The start of a command that several machines are measured around."""
    from perftop.process.command_window import Start

    return None if job is None else Start(job, len(each))


def _record(options: argparse.Namespace) -> int:
    if options.print_unit:
        from perftop.verbs import exporter

        return exporter.show("recorder")
    if options.output is None:
        raise Failed("-o FILE is needed: where to record to", USAGE)
    _, sample_ns = _times(options, STAT_INTERVAL_NS)
    with held(options) as job:
        each = _machines(options, sample_ns, RECORD_BATCH_NS, job)
        with lean():
            from perftop.verbs import record, several

        box = None
        if options.ring is not None or options.on is not None:
            kinds = record.kinds(options.on)
            box = record.Box(options.ring or RING_NS, kinds, options.max_size)

        start = _shared(job, each)
        one = len(each) == 1
        paths = [options.output] if one else several.paths(options.output, options.hosts)
        wanted = [
            record.Options(
                argv,
                path,
                sample_ns,
                options.duration,
                options.force,
                job,
                start,
                name,
                box,
                _identity(options),
            )
            for (name, argv), path in zip(each, paths, strict=True)
        ]
        return record.run(wanted[0]) if one else record.run_all(wanted)


def _export(options: argparse.Namespace) -> int:
    from perftop.verbs import export

    output = None if options.output == "-" else Path(options.output)
    ending = "" if output is None else output.suffix.lower()
    names = None if options.metrics is None else options.metrics.split(",")
    return export.run(
        export.Options(
            None if options.file == "-" else Path(options.file),
            output,
            options.format or ENDINGS.get(ending, "csv"),
            names,
            options.cpus,
            options.every,
            options.force,
        )
    )


def _exporter(options: argparse.Namespace) -> int:
    from perftop.verbs import exporter

    if options.printed is not None:
        return exporter.show(options.printed)
    sample_ns: int = options.sample or EXPORTER_SAMPLE_NS
    argv = _stream(options, sample_ns, sample_ns)
    return exporter.run(exporter.Options(argv, options.listen, options.detail, options.textfile))
