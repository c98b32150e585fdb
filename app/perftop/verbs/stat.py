"""`perftop stat`: prints the numbers as text or JSON lines, without a screen. With `-r N`, runs a
command several times, each with its own probe."""

from __future__ import annotations

import argparse
import io
import json
import shlex
import signal
import sys
from math import inf
from typing import TYPE_CHECKING, Any

from perftop.base.errors import USAGE, Failed, print_error
from perftop.base.text import supports_colour, supports_unicode, terminal_text, with_style
from perftop.verbs import options

if TYPE_CHECKING:
    from perftop.output.compare.repeated import RepeatedRun

COMMAND_HELP = (
    "-- CMD [ARG …] runs a command, measures it from just before it starts to just after it "
    "ends, and prints a summary on stderr; with -i, also a table for each interval. With -o -, "
    "perftop prints on stdout, and the command's own output goes to stderr. The exit status is the "
    "command's."
)


def add_parser(subparsers: Any) -> None:
    text = "print the numbers shown on the screen, as text or JSON"
    parser = options.add_verb(subparsers, "stat", run, text, stream=True, epilog=COMMAND_HELP)
    text = "stop after N intervals (default: run until Ctrl-C); not with CMD"
    parser.add_argument("-n", "--count", type=options.parse_count, metavar="N", help=text)
    options.add_duration_options(parser)
    text = "run CMD N times, and print means with confidence intervals"
    parser.add_argument("-r", "--repeat", type=options.parse_count, metavar="N", help=text)
    text = "with -r: run CMD K times first; these runs are not counted (default: 0)"
    parser.add_argument("--warmup", type=options.parse_count, default=0, metavar="K", help=text)
    text = "with -r: continue after a failed run; failed runs are never counted"
    parser.add_argument("--keep-failed", action="store_true", help=text)
    text = "with -r and -B: run two commands in turn (A B B A …) and compare them"
    parser.add_argument("-A", dest="command_a", metavar="'CMD'", help=text)
    parser.add_argument("-B", dest="command_b", metavar="'CMD'", help="with -A: the second command")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print one JSON object per line")
    text = "print one line per interval, for the whole machine"
    forms.add_argument("--brief", action="store_true", help=text)
    options.add_metrics_options(parser)
    options.add_output_options(parser)
    options.add_run_options(parser)
    parser.set_defaults(runs=True, several=True, commands=None)


def run(args: argparse.Namespace) -> int:
    """Measures one machine, or several at once. Returns the exit status."""
    interval_ns, sample_ns = options.interval_and_sample(args)
    if _is_repeated(args):
        return _run_repeated(args, sample_ns)
    with options.fork_job(args) as job:
        from perftop.process import launch

        batch_ns = launch.longest_batch_ns(sample_ns, interval_ns, args.duration)
        commands = options.stream_commands(args, sample_ns, batch_ns, job)
        with options.fast_imports():
            from perftop.process.command_window import CommandStart
            from perftop.process.signals import run_loop
            from perftop.verbs.headless import open_output
            from perftop.verbs.measuring import Stat
            from perftop.verbs.running import report_failures, run_consumer, run_consumers

            start = None if job is None else CommandStart(job, len(commands))
            stats = [Stat(args, job, start, name) for name, _ in commands]
        max_s = inf if args.duration is None else args.duration / 1e9
        if args.count is not None:
            max_s = args.count * interval_ns / 1e9
        status = 0
        with open_output(args, lambda: stats[0].command_status) as out:
            for stat in stats:
                stat.out = out
            if len(commands) == 1:
                status = run_loop(run_consumer, stats[0], commands[0][1], max_s)
            else:
                consumers = [(stat, argv) for stat, (_, argv) in zip(stats, commands, strict=True)]
                status = report_failures(*run_loop(run_consumers, consumers, max_s))
        return status or stats[0].command_status


# --- repeated runs of a command


def _is_repeated(args: argparse.Namespace) -> bool:
    """Returns whether a command is run several times (-r). Raises Failed if the options
    contradict each other."""
    if args.command_a or args.command_b:
        has_both = args.command_a and args.command_b
        if args.command is not None or not has_both or args.repeat is None:
            text = "two commands in turn: perftop stat -r 5 -A 'CMD' -B 'CMD'"
            raise Failed(text, USAGE)
        try:
            args.commands = {"A": shlex.split(args.command_a), "B": shlex.split(args.command_b)}
        except ValueError as error:
            raise Failed(f"-A or -B: {error}", USAGE) from None
        args.command = args.commands["A"]
    if args.repeat is None:
        if args.keep_failed:
            raise Failed("--keep-failed needs -r N: a single run always counts", USAGE)
        if args.warmup:
            raise Failed("--warmup needs -r N: a single run counts from its start", USAGE)
        return False
    args.commands = args.commands or {None: args.command}
    if args.command is None:
        raise Failed("-r runs a command several times: perftop stat -r 5 -- CMD", USAGE)
    if args.interval is not None or len(args.hosts) > 1:
        option = "-i" if args.interval is not None else "several --host"
        raise Failed(f"-r prints one row per run; {option} is for a single run", USAGE)
    return True


def _run_repeated(args: argparse.Namespace, sample_ns: int) -> int:
    """Runs one or two commands several times and prints the results. Returns the exit status of the
    first failed run, including warm-ups. Raises Failed if a command cannot be run."""
    with options.fast_imports():
        from perftop.output import stat_lines
        from perftop.output.compare import repeated, text
        from perftop.output.compare.comparison import compare
        from perftop.output.compare.readings import parse_reading
        from perftop.verbs.headless import open_output

    status = 0
    with open_output(args, lambda: status) as out:
        repeats, hello, was_stopped = _measured_runs(args, sample_ns)
        status = repeated.exit_status(repeats) or was_stopped
        sides = [
            (repeated.CommandRuns([run for run in repeats if run.side == side]), argv)
            for side, argv in args.commands.items()
        ]
        if not repeats:
            return status
        unicode = supports_unicode() or out not in {sys.stdout, sys.stderr}
        compared = []
        if len(sides) == 2:
            a, b = ([parse_reading(run.line) for run in runs.runs] for runs, _ in sides)
            compared = compare([("", a, b)], is_interleaved=True) if a and b else []
        if args.json:
            objects = [line for runs, argv in sides for line in repeated.runs_json(runs, argv)]
            objects += [text.diff_json(compared, ([], []))] if compared else []
            printed_lines = [hello, *map(stat_lines.line_text, objects)]
        else:
            printed_lines = [
                line for runs, argv in sides for line in (*repeated.lines(runs, argv), "")
            ][:-1]
            if compared:
                names = shlex.join(args.commands["A"]), shlex.join(args.commands["B"])
                printed_lines += ["", *text.lines(compared, names, unicode=unicode)]
        unicode = unicode or args.json
        printed_lines = [terminal_text(line, unicode=unicode) for line in printed_lines]
        style = "1" if supports_colour(out) and not args.json else ""
        printed_lines[0] = with_style(printed_lines[0], style)
        out.write("".join(f"{line}\n" for line in printed_lines))
        out.flush()
    return status


def _measured_runs(args: argparse.Namespace, sample_ns: int) -> tuple[list[RepeatedRun], str, int]:
    """Returns the runs, the hello of the first run as a JSON line, and an exit status: 128 + the
    signal that ended the series early, else 0."""
    with options.fast_imports():
        from perftop.output.compare.repeated import RepeatedRun
        from perftop.process.command_window import HANDLED_SIGNALS
        from perftop.process.job import Job
        from perftop.process.signals import hold_signals, ignore, run_loop
        from perftop.verbs.headless import STDOUT
        from perftop.verbs.measuring import Stat
        from perftop.verbs.running import run_consumer

    order = [
        (turn, side)
        for turn in range(args.warmup + args.repeat)
        for side in (args.commands if turn % 2 == 0 else reversed(args.commands))
    ]  # A B B A: a steady drift of the machine affects both equally
    common = vars(args) | {"json": True, "metrics": None, "brief": False}
    ignored = [n for n in HANDLED_SIGNALS if signal.getsignal(n) is signal.SIG_IGN]
    hold_signals()
    hello = ""
    repeats: list[RepeatedRun] = []
    for index, (turn, side) in enumerate(order):
        single_args = argparse.Namespace(**common | {"command": args.commands[side]})
        ignore(ignored)  # as in the first run: the command inherits it
        with Job(single_args.command, stdout_to_stderr=args.output == STDOUT) as job:
            argv = options.stream_command(single_args, sample_ns, sample_ns, job)
            stat, out = Stat(single_args, job), io.StringIO()
            stat.out = out
            status = run_loop(run_consumer, stat, argv, holds_signals=True)
        printed_lines, window = out.getvalue().splitlines(), stat.measurement.command_window
        if window is None or window.run is None:
            return repeats, hello, status
        if window.signal is not None:  # the command may have handled it and exited normally
            status = 128 + window.signal
        was_ended = status - 128 in HANDLED_SIGNALS
        if was_ended and repeats:
            text = f"signal {status - 128} ended the series: run {index + 1} is not counted"
            print_error(text)
            return repeats, hello, status
        hello = hello or printed_lines[0]
        line, warmup = json.loads(printed_lines[-1]), turn < args.warmup
        repeats.append(RepeatedRun(line, is_warmup=warmup, side=side))
        if was_ended:
            return repeats, hello, status
        if repeats[-1].status and not args.keep_failed:
            failed = f"run {index + 1} failed (exit status {repeats[-1].status})"
            print_error(f"{failed}: no more runs; --keep-failed continues")
            return repeats, hello, 0
    return repeats, hello, 0
