"""Options that several verbs have, and what follows from them for the probe."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from perfprobe import stream_options
from perftop.base.errors import USAGE, Failed
from perftop.base.text import full_terminal
from perftop.commands.arguments import interval_ns, label, span_ns
from perftop.verbs import machine_verbs

if TYPE_CHECKING:
    from perftop.process.command_window import CommandStart, Identity
    from perftop.process.job import Job

STAT_INTERVAL_NS = 1_000_000_000
SAMPLE_NS = 100_000_000
METRICS = "only these: util, busy_hz, smt, power_w …"


def at_terminal() -> bool:
    """Whether a screen can be shown, and keys can be read."""
    return sys.stdin is not None and sys.stdin.isatty() and full_terminal(sys.stdout)


def add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def add_attach(parser: argparse.ArgumentParser) -> None:
    text = "read from `perftop serve`, which listens there, and start no probe"
    parser.add_argument("--attach", metavar="unix:PATH", help=text)


def watch_options(machine: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Options for the source to read, and for how often."""
    options = argparse.ArgumentParser(add_help=False, parents=[machine])
    add_interval(options)
    stream_options.add(options, span_ns)
    return options


def add_label(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--label", action="append", type=label, metavar="KEY=VALUE",
        help="what this run is called, in all that is made of it; may be repeated",
    )  # fmt: skip


def identity_of(options: argparse.Namespace) -> Identity:
    from perftop.process.command_window import Identity

    return Identity(dict(options.label or ()), options.command or (), options.interval)


def add_interval(parser: argparse.ArgumentParser, default_ns: int | None = None) -> None:
    parser.add_argument(
        "-i", "--interval", type=interval_ns, metavar="TIME", default=default_ns,
        help="length of time that each number covers: 100ms, 1s, 2",
    )  # fmt: skip


def held(options: argparse.Namespace) -> contextlib.AbstractContextManager[Job | None]:
    """The command, forked and waiting for its start. Called before there are threads or much memory
    to copy."""
    if options.command is None:
        return contextlib.nullcontext()
    from perftop.process.job import Job

    return Job(options.command, apart=str(getattr(options, "output", "")) == "-")


def following(options: argparse.Namespace, job: Job | None) -> list[str]:
    """Options that tell the probe which tasks to watch: those of --watch, else the command with its
    children. A simulation, another sysroot or another machine does not
    show the command."""
    watch = [] if options.watch is None else [f"--watch={options.watch}"]  # it may start with a -
    simulated = options.source.partition(":")[0] == "sim"
    elsewhere = options.sysroot is not None or options.host is not None
    if job is None or simulated or elsewhere:
        return watch
    return [*watch, "--watch-tree", str(job.pid)]


def attached(options: argparse.Namespace, address: str) -> str:
    """The address, if no option asks for what only a probe of our own could do."""
    from perftop.process import launch as socket_probe

    socket_probe.socket_path(address)
    names = ("host", "remote", "sudo", "sysroot", "cpus", "smt_method", "events", "no_multiplex",
             "watch")  # fmt: skip
    named = [name for name in names if getattr(options, name) not in {None, False}]
    named += ["source"] if options.source != "auto" else []
    named += ["sample"] if options.sample is not None else []
    if named:
        option = named[0].replace("_", "-")
        raise Failed(f"--{option} is chosen for all readers, by perftop serve", USAGE)
    return address


def stream_of(
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


def times(options: argparse.Namespace, interval_ns: int) -> tuple[int, int]:
    """Lengths of interval and sample in ns, as asked for or by default. An interval that was not
    asked for has whole samples. Raises Failed."""
    asked = options.sample or 1
    interval: int = options.interval or -(-interval_ns // asked) * asked
    steps = -(-interval // SAMPLE_NS)
    sample: int = options.sample or interval // steps
    if sample > interval:
        raise Failed("--sample is longer than the interval: nothing would be there to show", USAGE)
    if abs(interval / sample - round(interval / sample)) > 1e-6:
        raise Failed("the interval is no multiple of --sample: lines would not cover it", USAGE)
    return interval, sample


def machines(
    options: argparse.Namespace, sample_ns: int, batch_ns: int, job: Job | None
) -> list[tuple[str | None, list[str]]]:
    """Name and probe's arguments of each machine; the name of the only one is None."""
    if len(options.hosts) < 2:
        return [(None, stream_of(options, sample_ns, batch_ns, job))]
    each = ((host, argparse.Namespace(**vars(options) | {"host": host})) for host in options.hosts)
    return [(host, stream_of(one, sample_ns, batch_ns, job)) for host, one in each]


def shared(job: Job | None, each: list[tuple[str | None, list[str]]]) -> CommandStart | None:
    """The start of a command that several machines are measured around."""
    from perftop.process.command_window import CommandStart

    return None if job is None else CommandStart(job, len(each))
