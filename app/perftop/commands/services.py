"""Verbs that run until they are stopped, for others: serve, exporter."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perfprobe import stream_options
from perftop.commands.arguments import SCRAPED, span_ns
from perftop.commands.options import STAT_INTERVAL_NS, stream_of, times

EXPORTER_SAMPLE_NS = 1_000_000_000
"""Length of a sample of the exporter, which runs for ever with nobody watching."""


def add_serve(verbs: Any, watch: argparse.ArgumentParser) -> None:
    text = "one probe for many readers on this machine: perftop attach unix:PATH"
    serve = verbs.add_parser("serve", parents=[watch], help=text)
    serve.add_argument(
        "--socket", type=Path, metavar="PATH", help="listen there; systemd may hand over a socket"
    )
    serve.add_argument("--group", metavar="NAME", help="let members of this group read, too")
    serve.set_defaults(verb=_serve)


def add_exporter(verbs: Any, machine: argparse.ArgumentParser) -> None:
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


def _serve(options: argparse.Namespace) -> int:
    _, sample_ns = times(options, STAT_INTERVAL_NS)
    argv = stream_of(options, sample_ns, sample_ns)
    from perftop.process import sockets as unix_socket
    from perftop.verbs import serve

    group = None if options.group is None else unix_socket.group_id(options.group)
    return serve.run(argv, options.socket, group)


def _exporter(options: argparse.Namespace) -> int:
    from perftop.verbs import exporter

    if options.printed is not None:
        return exporter.show(options.printed)
    sample_ns: int = options.sample or EXPORTER_SAMPLE_NS
    argv = stream_of(options, sample_ns, sample_ns)
    return exporter.run(argv, options.listen, options.detail, options.textfile)
