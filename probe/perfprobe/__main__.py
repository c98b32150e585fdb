"""The perfprobe command: describe this machine, or stream its counters."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from perfprobe import __version__, opening, stream_options
from perfprobe.errors import (
    MsrsNotRestored,
    OutputError,
    Unavailable,
    UsageError,
    error_sentence,
    with_remedy,
)
from perfprobe.stream_options import HelpFormatter, parse_cpu, parse_number

EXIT_FAILED, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_INTERRUPTED = 1, 2, 3, 130


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # otherwise the next opened file would become stdin
    try:
        if arguments[:1] == ["stream"]:
            from perfprobe.native import tsc_rate

            tsc_rate.start_span()  # the TSC's rate is measured from here until hello is sent
        options = _parser().parse_args(arguments)
        result: int | dict[str, Any] = options.verb(options)
        if isinstance(result, int):
            return result
        _print_json(result)
    except UsageError as error:
        return _report_failure(str(error), EXIT_USAGE)
    except Unavailable as error:
        return _report_failure(str(error), EXIT_UNAVAILABLE)
    except MsrsNotRestored as error:
        return _report_failure(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
    except OutputError as error:
        _discard_stdout()
        return _report_failure(str(error), EXIT_FAILED)
    except OSError as error:
        return _report_failure(error_sentence(error), EXIT_FAILED)
    except MemoryError:
        no_memory = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return _report_failure(error_sentence(no_memory), EXIT_FAILED)
    except ImportError as error:  # numpy cannot be loaded if there is too little memory for it
        reason = f"a module cannot be loaded: {error.__cause__ or error}"
        remedy = "check the installation, and the limit on memory (ulimit -v)"
        return _report_failure(with_remedy(reason, remedy), EXIT_FAILED)
    return 0


def _report_failure(text: str, status: int) -> int:
    line = " ".join(text.splitlines())  # perftop reads one line of stderr as the message
    print(f"perfprobe: {line}", file=sys.stderr)
    return status


def _discard_stdout() -> None:
    """Redirects stdout to /dev/null, so that the interpreter's last flush cannot fail."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class _Parser(argparse.ArgumentParser):
    """A parser that reports each error in one line, even a failed write of its help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": HelpFormatter} | options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(stream_options.usage_message(self.prog, message))

    def _print_message(self, message: str, file: object = None) -> None:  # noqa: ARG002
        _print(message.removesuffix("\n"))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="perfprobe", description="Raw counters of this machine; perftop draws them."
    )
    parser.add_argument("--version", action="version", version=f"perfprobe {__version__}")
    verbs: Any = parser.add_subparsers(required=True, metavar="VERB")
    root, json_option = stream_options.sysroot_parser(), _Parser(add_help=False)
    json_option.add_argument("--json", action="store_true", help="the default and only format")

    stream = verbs.add_parser("stream", parents=[root], help="write frames to stdout (msgpack)")
    stream_options.add_options(stream, parse_number, "0.1")
    stream.add_argument("--watch-tree", metavar="PID", help="a process and all its descendants")
    text = "seconds between writes, at most 1 (default: write each sample immediately)"
    stream.add_argument("--batch", type=parse_number, metavar="SECONDS", help=text)
    stream.set_defaults(verb=_stream, sample=0.1)

    on_files = [root, json_option]
    text = "list CPUs, cores, caches, nodes"
    verbs.add_parser("topology", parents=on_files, help=text).set_defaults(verb=_topology)

    text = "show what can be read here, what cannot, and why"
    verbs.add_parser("doctor", parents=on_files, help=text).set_defaults(verb=_doctor)

    text = "list the events that stream --events can count here"
    events = verbs.add_parser("events", parents=on_files, help=text)
    text = "only events whose name or description contains it"
    events.add_argument("--word", metavar="WORD", help=text)
    events.add_argument("--source", default="auto", metavar="NAME", help="auto or perf")
    events.set_defaults(verb=_events)

    text = "cost and resolution of reading the time"
    timers = verbs.add_parser("timers", parents=[json_option], help=text)
    text = "CPU to measure (default: the current one)"
    timers.add_argument("--cpu", type=parse_cpu, metavar="N", help=text)
    timers.set_defaults(verb=_timers)

    text = "measure the clock of one CPU from idle until steady, as raw points"
    ramp = verbs.add_parser("ramp", parents=[json_option], help=text)
    cpu_text = "CPU to measure (default: the last one allowed)"
    ramp.add_argument("--cpu", type=parse_cpu, metavar="N", help=cpu_text)
    ramp.add_argument("--isa", default="scalar", metavar="scalar|avx2|avx512")
    text = "all runs together"
    ramp.add_argument("--seconds", type=parse_number, default=5.0, metavar="S", help=text)
    ramp.set_defaults(verb=_ramp)

    text = "measure the cost of a wake-up, by idle state and waker"
    wake = verbs.add_parser("wake", parents=[json_option], help=text)
    wake.add_argument("--cpu", type=parse_cpu, metavar="N", help=cpu_text)
    wake.set_defaults(verb=_wake)

    selftest = verbs.add_parser("selftest", parents=on_files, help="check all counters")
    selftest.add_argument("--source", default="auto", metavar="NAME")
    text = "add a verdict on every source and instrument"
    selftest.add_argument("--all", action="store_true", help=text)
    selftest.set_defaults(verb=_selftest)

    text = "print true values of a simulated machine, as JSON lines"
    truth = verbs.add_parser("truth", help=text)
    truth.add_argument("spec", metavar="sim:SCENARIO[,…]")
    truth.add_argument("--duration", type=parse_number, default=10.0, metavar="SECONDS")
    truth.set_defaults(verb=_truth)
    return parser


def _stream(options: argparse.Namespace) -> int:
    simulated = options.source.startswith("sim")
    from perfprobe import serve
    from perfprobe.kernel import access
    from perfprobe.wire.outbox import EndedError

    if sys.stdout is None:
        raise OutputError("stdout is closed, so nothing can be written")
    if not 0.001 <= options.sample <= 3600:
        raise UsageError(f"--sample {options.sample}: must be from 0.001 to 3600 seconds")
    batch = options.batch
    if batch is not None and not 0.001 <= batch <= 3600:
        raise UsageError(f"--batch {batch}: must be from 0.001 to 3600 seconds")
    if simulated:
        # before numpy starts threads, which would keep the capabilities
        access.drop_capabilities(options.sysroot, options.source)
    with (
        serve.stop_signals() as stop,
        contextlib.closing(opening.open_source(options)) as source,
        contextlib.suppress(EndedError),  # the reader of stdout has exited: not an error
    ):
        if batch is not None:
            source.set_batch_length(round(batch * 1e9))
        hello, method = source.hello, options.smt_method
        if method is not None and hello.smt_methods != ["single"]:
            if method not in hello.smt_methods:
                reason = f"is not available here (available: {', '.join(hello.smt_methods)})"
                raise Unavailable(f"--smt-method {method} {reason}")
            hello = replace(hello, smt_methods=[method])
        watches_job = not simulated and (options.watch or options.watch_tree) is not None
        drop = partial(
            access.drop_capabilities, options.sysroot, options.source, watches_job=watches_job
        )
        try:
            serve.serve(source, serve.STDIN, serve.STDOUT, stop, hello, on_hello=drop)
        finally:
            os.set_blocking(serve.STDOUT, True)  # the parent process may write to the same file
    return 0


def _print_json(value: Any) -> None:
    import json  # imported here, because `stream` does not need it

    _print(json.dumps(value))


def _print(text: str) -> None:
    if sys.stdout is None:
        raise OutputError("stdout is closed, so nothing can be written")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write stdout: {error.strerror}") from None


def _topology(options: argparse.Namespace) -> dict[str, Any]:
    from perfprobe.cpu import identity, topology

    return {
        "cpus": [asdict(row) for row in topology.require_cpus(options.sysroot)],
        "host": identity.hostname(options.sysroot),
        "model": identity.read_identity(options.sysroot).name or None,
    }


def _doctor(options: argparse.Namespace) -> dict[str, Any]:
    from perfprobe.cpu import identity
    from perfprobe.instruments import disturbance, doctor

    root = options.sysroot
    answer: dict[str, Any] = {**identity.machine_names(root), "checks": []}
    checks = doctor.checks(root)
    default_options = _parser().parse_args(["stream", "--sysroot", str(root)])
    # Keys that are copied from the hello message of a stream.
    keys = ("source", "smt_methods", "multipliers", "tsc_hz", "base_hz", "missing")
    try:
        with contextlib.closing(opening.open_source(default_options)) as source:
            hello = source.hello
        counters = {counter.key for block in hello.blocks for counter in block.counters}
        checks = [doctor.perf_check_of_stream(check, counters, hello.missing) for check in checks]
        answer |= {key: asdict(hello)[key] for key in keys}
    except (UsageError, Unavailable, OSError) as error:
        reason = error_sentence(error) if isinstance(error, OSError) else str(error)
        failed_check = {"what": "everything", "why": reason, "fix": None, "cpus": None}
        answer |= dict.fromkeys(keys) | {"multipliers": [], "missing": [failed_check]}
    answer["checks"] = [asdict(check) for check in checks]
    states = disturbance.condition_states(root)
    answer["readiness"] = [{"what": name} | asdict(state) for name, state in states.items()]
    methods = answer["smt_methods"] or []
    answer["smt_method"] = methods[0] if methods else None
    return answer


def _events(options: argparse.Namespace) -> dict[str, Any]:
    from perfprobe.perf import event_catalogue
    from perfprobe.perf.event_catalogue import Catalogue
    from perfprobe.perf.perf_events import Kernel

    root, source = options.sysroot, options.source
    if source not in {"auto", "perf"}:
        raise UsageError(f"events --source {source}: perf counts events: --source auto or perf")
    catalogue = Catalogue(root, installed=root == Path("/"))
    kernel = Kernel() if root == Path("/") else None
    return event_catalogue.list_events(root, options.word, catalogue, kernel)


def _timers(options: argparse.Namespace) -> dict[str, Any]:
    from perfprobe.instruments import timers

    return timers.measure(options.cpu)


def _ramp(options: argparse.Namespace) -> dict[str, Any]:
    from perfprobe.instruments import ramp

    return ramp.measure(options.cpu, options.isa, options.seconds)


def _wake(options: argparse.Namespace) -> dict[str, Any]:
    from perfprobe.instruments import wake

    return wake.measure(options.cpu)


def _selftest(options: argparse.Namespace) -> int:
    from perfprobe import serve
    from perfprobe.instruments.selftest import run
    from perfprobe.instruments.selftest.run import StopRequested

    if options.source.partition(":")[0] == "sim":
        raise UsageError("selftest --source sim: a simulated machine cannot run code")
    if options.sysroot != Path("/"):
        raise UsageError("selftest --sysroot: code runs on this machine only")
    sample = str(run.SAMPLE_S)
    stream = _parser().parse_args(["stream", "--source", options.source, "--sample", sample])
    with (
        serve.stop_signals() as stop,
        contextlib.closing(opening.open_source(stream)) as source,
    ):
        try:
            source_name = options.source if options.all else None
            answer = run.run(source, lambda: serve.asked_to_end(stop), source_name=source_name)
        except StopRequested:
            return EXIT_INTERRUPTED
    _print_json(answer)
    return EXIT_FAILED if answer["wrong"] else 0


def _truth(options: argparse.Namespace) -> int:
    from perfprobe.sources.sim.truth import truth

    if not options.spec.startswith("sim"):
        raise UsageError(
            f"{options.spec}: only a simulated machine knows its true values: sim[:SCENARIO]"
        )
    for line in truth(options.spec, options.duration):
        _print_json(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
