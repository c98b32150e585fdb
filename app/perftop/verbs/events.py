"""`perftop events`: lists the events that -e can choose on this machine."""

from __future__ import annotations

import argparse
from itertools import groupby
from typing import Any

from perftop.base.text import wrap_indented
from perftop.verbs import machine, options
from perftop.verbs.machine import Answer, fact_lines

INDENT = 28


def add(verbs: Any) -> None:
    parser = options.add_verb(verbs, "events", run, "what -e can count here", machine=True)
    text = "only names or words with this"
    parser.add_argument("word", nargs="?", metavar="WORD", help=text)
    text = "what this source counts: auto, perf"
    parser.add_argument("--source", default="auto", metavar="NAME", help=text)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    arguments = [] if args.source == "auto" else [f"--source={args.source}"]
    arguments += [] if args.word is None else [f"--word={args.word}"]
    return machine.answer(args, draw, "events", *arguments)


def draw(answer: Answer, width: int = 100, *, unicode: bool = True) -> list[str]:  # noqa: ARG001
    lines: list[str] = []
    pmus = {pmu["pmu"]: pmu for pmu in answer["pmus"]}
    for pmu, rows in groupby(answer["events"], key=lambda row: row["pmu"]):
        lines += [*([""] if lines else []), _heading(pmu, pmus.get(pmu))]
        for row in rows:
            unit = "" if row["unit"] in {"1", "cycles", "instructions"} else f", in {row['unit']}"
            open_text = f" (open: {', '.join(row['open'])})" if row["open"] else ""
            open_text += f" (n/a: {row['refused']})" if row.get("refused") else ""
            name = f"  {row['name']:<{INDENT - 3}} "
            lines += fact_lines(name, f"{row['about']}{unit}{open_text}", width, INDENT)
    if not answer["events"]:
        lines = ["no such event here"]
    for reason in answer["missing"]:
        fix = f"; {reason['fix']}" if reason["fix"] else ""
        lines += [
            "",
            *wrap_indented(f"not here: events of cores - {reason['why']}{fix}", width, 10),
        ]
    return lines


def _heading(pmu: str, facts: Answer | None) -> str:
    if facts is None:
        return "software: of every CPU"
    kind = "" if facts["type"] is None else f"{facts['type']} cores, "
    cpu_text = f"{kind}CPUs {facts['cpus']}" if facts["cpus"] else "every CPU"
    return f"{pmu}: {cpu_text}"
