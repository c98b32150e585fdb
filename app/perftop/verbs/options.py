"""Options that several verbs have, and the probe's command line made from them. `perftop --help`
loads all verbs, so modules that need numpy, asyncio or the wire are imported in functions."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import re
import resource
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from perfprobe import stream_options
from perftop.base import GC_THRESHOLD
from perftop.base.errors import UNAVAILABLE, USAGE, Failed, print_error
from perftop.base.text import MIN_WIDTH
from perftop.process.signals import ExitSignals

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.process.job import Job

STAT_INTERVAL_NS = 1_000_000_000
LIVE_INTERVAL_NS = 500_000_000
WHY_DURATION_NS = 10_000_000_000
"""Default length of a measurement of `why` in ns."""
MAX_DEFAULT_SAMPLE_NS = 100_000_000
"""Maximum default of --sample, in ns."""
MIN_DURATION_NS = 1_000_000
"""Minimum duration in ns; a shorter interval would mostly measure the probe's own wake-ups."""
LARGE_BARE_NUMBER_NS = 60_000_000_000
"""Interval in ns above which a number without a unit causes a warning."""
_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "sec": 10**9, "m": 60 * 10**9,
             "min": 60 * 10**9, "h": 3600 * 10**9}  # fmt: skip
REMOTE_HELP = "path of perfprobe on HOST (default: found in PATH there)"
METRICS_HELP = "print only these numbers: util, busy_hz, smt, power_w … (perftop help numbers)"
DURATION_HELP = "stop after this time (default: run until Ctrl-C); not with CMD"
SAMPLE_DEFAULT_HELP = "100ms, less if -i is not a multiple of it"
SHIPPED_DIRECTORY = Path(__file__).parent.parent / "recording" / "shipped"
"""Directory of the recordings shipped with perftop; the user types `demo:NAME`."""
RunVerb = Callable[[argparse.Namespace], int]


class _HelpFormatter(argparse.HelpFormatter):
    """Shows the value of an option after each of its names; argparse shows it only once from Python
    3.13 on."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return ", ".join(f"{name} {value}" for name in action.option_strings)


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, and shows `-- CMD` in the usage of verbs that can
    run a command. It wraps a long group of options in the usage, as argparse does from 3.13 on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _HelpFormatter} | options)

    def format_help(self) -> str:
        usage, gap, remainder = super().format_help().partition("\n\n")
        lines: list[str] = []
        for line in usage.splitlines():
            indent = " " * (len(line) - len(line.lstrip()))
            wrapper = textwrap.TextWrapper(max(MIN_WIDTH, shutil.get_terminal_size().columns - 2))
            wrapper.break_long_words = wrapper.break_on_hyphens = False
            wrapper.subsequent_indent = indent
            lines += wrapper.wrap(line)
        usage = "\n".join(lines)
        if self.get_default("runs"):
            usage += f"\n{'':{len(f'usage: {self.prog} ')}}[-- CMD [ARG ...]]"
        return f"{usage}{gap}{remainder}"

    def print_help(self, file: Any = None) -> None:
        """Prints the help. Unlike in argparse, a failed write is an error."""
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        raise Failed(stream_options.usage_message(self.prog, message), USAGE)


# --- types of values


def parse_duration_ns(text: str) -> int:
    """Parses a duration such as `100ms`, `1s` or `.5` (seconds). Returns ns."""
    match = re.fullmatch(r"(?=\.?[0-9])([0-9]{0,9}(?:\.[0-9]{0,9})?) ?([a-z]*)", text)
    unit_ns = _UNITS_NS.get(match[2] or "s") if match else None
    length = round(float(match[1]) * unit_ns) if match and unit_ns else 0
    if length < MIN_DURATION_NS:
        hint = "at least 1ms" if unit_ns else "try 100ms, 1s, 5m"
        raise argparse.ArgumentTypeError(f"invalid duration {text!r} ({hint})")
    return length


def parse_interval_ns(text: str) -> int:
    """Parses an interval and returns ns. Warns of a large number without a unit, because perf and
    other tools use milliseconds."""
    length = parse_duration_ns(text)
    if length > LARGE_BARE_NUMBER_NS and text.isdecimal():
        print_error(f"-i {text} is {text} seconds; for milliseconds: -i {text}ms")
    return length


def parse_count(text: str) -> int:
    if not re.fullmatch("0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"invalid count {text!r} (try 10)")
    return int(text)


def parse_label(text: str) -> tuple[str, str]:
    """Parses a label such as `run=17`. Returns its name, which other programs accept, and its
    value."""
    match = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]{0,39})=(.{1,200})", text)
    if match is None or not match[2].isprintable():
        raise argparse.ArgumentTypeError(f"invalid label {text!r} (try run=17)")
    return match[1], match[2]


def parse_file_path(text: str) -> Path:
    """Parses the name of a file. Refuses an empty name: a shell passes one for an unset
    variable."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty (is a shell variable unset?)")
    return Path(text)


def parse_recording(text: str) -> Path:
    source, _, name = text.partition(":")
    if source != "demo":
        return parse_file_path(text)
    path = shipped_recording(name)
    if path is None:
        names = ", ".join(sorted(path.stem for path in SHIPPED_DIRECTORY.glob("*.perftop")))
        raise argparse.ArgumentTypeError(f"unknown recording {text!r} (known: {names})")
    return path


def shipped_recording(name: str) -> Path | None:
    path = SHIPPED_DIRECTORY / f"{name}.perftop"
    return path if path.is_file() and path.parent == SHIPPED_DIRECTORY else None


# --- parsers and options


def add_verb(
    subparsers: Any, name: str, verb: RunVerb, text: str, *, about: str = "",
    epilog: str | None = None, machine: bool = False, stream: bool = False, interval: str = "1s",
) -> Parser:  # fmt: skip
    """Adds a verb. `text`: its line in the list of verbs. `about`: a longer description for its own
    help. `machine`: the verb has the options that select a machine. `stream`: it has those of a
    stream, too. `interval`: default of -i in its help."""
    about = about or text
    description = f"{about[0].upper()}{about[1:]}."
    parents = [stream_options.sysroot_parser()] if machine or stream else []
    parser: Parser = subparsers.add_parser(
        name, help=text, description=description, epilog=epilog, parents=parents
    )
    parser.set_defaults(verb=verb, sysroot=None)
    if machine or stream:
        add_machine_options(parser)
    if stream:
        add_interval_options(parser, interval)
        stream_options.add_options(parser, parse_duration_ns, SAMPLE_DEFAULT_HELP)
    return parser


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    text = (
        "run the probe, and nothing else, as root (with --host: on HOST, where sudo must not ask "
        "for a password)"
    )
    parser.add_argument("--sudo", action="store_true", help=text)
    text = "measure HOST over ssh instead of this machine; stat and record accept several --host"
    parser.add_argument("--host", action="append", metavar="[USER@]HOST", help=text)
    parser.add_argument("--remote", metavar="PATH", help=REMOTE_HELP)


def add_interval_options(parser: argparse.ArgumentParser, default: str) -> None:
    """`default`: text in the help only; the verb applies the default."""
    text = f"interval, such as 100ms or 1s; a bare number is in seconds (default: {default})"
    parser.add_argument("-i", "--interval", type=parse_interval_ns, metavar="TIME", help=text)


def add_json_options(parser: argparse.ArgumentParser, text: str = "print one JSON object") -> None:
    parser.add_argument("--json", action="store_true", help=text)


def add_metrics_options(parser: argparse.ArgumentParser, text: str = METRICS_HELP) -> None:
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--metrics", type=names, metavar="A,B", help=text)


def add_force_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def add_output_options(parser: argparse.ArgumentParser) -> None:
    text = "write to FILE; - is stdout (default: stdout; stderr if a command runs)"
    parser.add_argument("-o", "--output", type=parse_file_path, metavar="FILE", help=text)
    add_force_options(parser)


def add_duration_options(parser: argparse.ArgumentParser, text: str = DURATION_HELP) -> None:
    parser.add_argument("--duration", type=parse_duration_ns, metavar="TIME", help=text)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    text = "label this run, in recordings and all output; may be repeated"
    parser.add_argument(
        "--label", action="append", type=parse_label, metavar="KEY=VALUE", help=text
    )
    text = "read from `perftop serve` at this socket; do not start a probe"
    parser.add_argument("--attach", metavar="unix:PATH", help=text)


def add_terminal_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-mouse", action="store_true", help="do not capture the mouse")
    text = "settings file (default: ~/.config/perftop/config.toml)"
    parser.add_argument("--config", type=parse_file_path, metavar="FILE", help=text)


# --- the probe's command line


def interval_and_sample(
    args: argparse.Namespace, default_ns: int = STAT_INTERVAL_NS
) -> tuple[int, int]:
    """Returns the interval and the sample period in ns, as requested or by default. The interval is
    a multiple of the period, and the duration, if limited, has at least one. Raises Failed."""
    duration_ns: int = getattr(args, "duration", None) or sys.maxsize
    requested_sample_ns = args.sample or 1
    interval: int = args.interval or -(-default_ns // requested_sample_ns) * requested_sample_ns
    steps = -(-interval // min(MAX_DEFAULT_SAMPLE_NS, duration_ns))
    sample: int = args.sample or interval // steps
    if sample > interval:
        raise Failed("--sample must not be longer than the interval (-i)", USAGE)
    if sample > duration_ns:
        raise Failed("--sample must not be longer than --duration: nothing would be sampled", USAGE)
    if args.sample and abs(interval / sample - round(interval / sample)) > 1e-6:
        raise Failed("the interval (-i) must be a multiple of --sample", USAGE)
    return interval, sample


def probe_command(args: argparse.Namespace, *arguments: str) -> list[str]:
    """Returns the probe's command line. With --sudo on this machine, first asks for sudo's
    password."""
    from perftop.process import launch

    sysroot_option = [] if args.sysroot is None else ["--sysroot", str(args.sysroot)]
    if args.host is not None:
        remote = args.remote or launch.REMOTE_PROBE
        words = [*arguments, *sysroot_option]
        return launch.ssh_command(args.host, words, sudo=args.sudo, remote=remote)
    if args.remote is not None:
        raise Failed("--remote needs --host: it is the path of perfprobe on that host", USAGE)
    if args.sudo:
        launch.ask_sudo_password()
    return launch.probe_command(*arguments, *sysroot_option, sudo=args.sudo)


def refuse_probe_options(args: argparse.Namespace, reason: str) -> None:
    """Raises Failed if an option for the probe was given. Called if no probe is started."""
    for name in ("host", "remote", "sudo", "sysroot", "cpus", "smt_method", "events",
                 "no_multiplex", "watch", "source", "sample"):  # fmt: skip
        if getattr(args, name) not in {None, False, "auto" if name == "source" else None}:
            raise Failed(f"--{name.replace('_', '-')} {reason}", USAGE)


def stream_command(
    args: argparse.Namespace, sample_ns: int, batch_ns: int, job: Job | None = None
) -> list[str]:
    """Returns the command line of a probe that streams, or the address of a served stream. With a
    command, the probe writes each sample immediately, because samples start the command and end its
    measurement."""
    if (address := getattr(args, "attach", None)) is not None:
        from perftop.process import launch

        launch.socket_path(address)
        refuse_probe_options(args, "is chosen for all readers, by perftop serve")
        return [address]
    sample = ["--sample", f"{sample_ns / 1e9:g}"]
    if job is None and batch_ns > sample_ns:
        sample += ["--batch", f"{batch_ns / 1e9:g}"]
    chosen_options = stream_options.forwarded_options(args)
    if args.watch is not None:
        chosen_options.append(f"--watch={args.watch}")  # the value may start with a -
    is_remote = args.sysroot is not None or args.host is not None
    if job is not None and not is_remote and args.source.partition(":")[0] != "sim":
        chosen_options += ["--watch-tree", str(job.pid)]
    return probe_command(args, "stream", "--source", args.source, *sample, *chosen_options)


def stream_commands(
    args: argparse.Namespace, sample_ns: int, batch_ns: int, job: Job | None
) -> list[tuple[str | None, list[str]]]:
    """Returns the name of each machine, None if there is only one, and its probe's command line."""
    if len(args.hosts) < 2:
        return [(None, stream_command(args, sample_ns, batch_ns, job))]
    by_host = ((host, argparse.Namespace(**vars(args) | {"host": host})) for host in args.hosts)
    return [(host, stream_command(options, sample_ns, batch_ns, job)) for host, options in by_host]


# --- the measured command


def fork_job(args: argparse.Namespace) -> contextlib.AbstractContextManager[Job | None]:
    """Returns the command, forked but not started; None without a command. Must be called before
    threads start and before much memory is used, because of the fork."""
    if args.command is None:
        return contextlib.nullcontext()
    from perftop.process.job import Job

    return Job(args.command, stdout_to_stderr=str(getattr(args, "output", "")) == "-")


def labelled_hello(args: argparse.Namespace, hello: wire.Hello) -> wire.Hello:
    """Returns hello with labels, command and interval from the options, for recordings and
    output."""
    from dataclasses import replace

    from perftop.process.command_window import argv_text

    labels, interval_ns = dict(args.label or ()), args.interval or hello.interval_ns
    command = argv_text(args.command or ()) or hello.command
    return replace(hello, labels=hello.labels | labels, command=command, interval_ns=interval_ns)


# --- imports of large modules

_THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"
_UNUSED_MODULES = ("ssl", "ctypes")
"""Modules that asyncio and numpy import if they exist, but that perftop uses only for HTTPS: 4.3 MB
and 0.4 MB of resident memory."""
MIN_MEMORY = (resource.RLIMIT_AS, 128, "-v"), (resource.RLIMIT_DATA, 80, "-d")
"""Limits of memory, the minimum in MB with which numpy can be loaded, and the option of ulimit that
sets it. With less, OpenBLAS ends the process with a message of its own."""


@contextmanager
def fast_imports(*, for_https: bool = False) -> Iterator[None]:
    """A block for imports of large modules. The garbage collector never scans their objects, which
    would take a tenth of the time; after the block, it runs once in GC_THRESHOLD new objects. numpy
    starts no threads for matrix products; by default it starts one per CPU, and they spin for some
    ms. The environment of later commands is unchanged, and later imports find the unused modules.
    Signals that ask perftop to end are held until the end of the block, because an exception in an
    import of numpy would become an ImportError. `for_https`: whether http.client needs ssl. Raises
    Failed if the memory limit is too low."""
    for kind, least_mb, option in MIN_MEMORY:
        limit = resource.getrlimit(kind)[0]
        if 0 <= limit < least_mb * 1_000_000:
            text = f"the memory limit, {limit / 1e6:.0f} MB, is too low; at least {least_mb} MB"
            raise Failed(f"{text}, better: ulimit {option} unlimited", UNAVAILABLE)
    is_unset = _THREADS_VARIABLE not in os.environ
    if is_unset:
        os.environ[_THREADS_VARIABLE] = "1"
    unused_modules = () if for_https else _UNUSED_MODULES
    hidden_names = [name for name in unused_modules if name not in sys.modules]
    # Python treats None in sys.modules as a failed import.
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(hidden_names))
    gc.disable()
    try:
        # Blocking signals in this thread is not enough: the kernel would deliver them to another.
        is_main = threading.current_thread() is threading.main_thread()
        with ExitSignals() if is_main else contextlib.nullcontext():
            yield
    finally:
        if is_unset:
            del os.environ[_THREADS_VARIABLE]
        for name in hidden_names:
            del modules[name]
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        gc.enable()
