"""Draws the answer of `perfprobe events`: what can be chosen by -e here."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from perftop.base.text import in_ascii, wrapped

Answer = dict[str, Any]
INDENT = 28


def draw(answer: Answer, width: int = 100, *, unicode: bool = True) -> list[str]:
    lines: list[str] = []
    where = {pmu["pmu"]: pmu for pmu in answer["pmus"]}
    for pmu, rows in groupby(answer["events"], key=lambda row: row["pmu"]):
        lines += [*([""] if lines else []), _heading(pmu, where.get(pmu))]
        for row in rows:
            lines += wrapped(f"  {row['name']:<{INDENT - 3}} {_about(row)}", width, INDENT)
    if not answer["events"]:
        lines = ["no such event here"]
    for missing in answer["missing"]:
        fix = f"; {missing['fix']}" if missing["fix"] else ""
        lines += ["", *wrapped(f"not here: events of cores - {missing['why']}{fix}", width, 10)]
    return lines if unicode else [in_ascii(line) for line in lines]


def _heading(pmu: str, known: Answer | None) -> str:
    if known is None:
        return "software: of every CPU"
    kind = "" if known["type"] is None else f"{known['type']} cores, "
    where = f"{kind}CPUs {known['cpus']}" if known["cpus"] else "every CPU"
    room = ""
    if "left" in known:  # with --source msr
        room = f"; {known['left']} of {known['general']} general counters are left"
    return f"{pmu}: {where}{room}"


def _about(row: Answer) -> str:
    unit = "" if row["unit"] in {"1", "cycles", "instructions"} else f", in {row['unit']}"
    who = f" (open: {', '.join(row['open'])})" if row["open"] else ""
    on = f", only on counter {row['counters']}" if row.get("counters") else ""
    return f"{row['about']}{unit}{on}{who}"
