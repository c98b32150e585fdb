"""Displayed values of all views equal those of `stat --json` for the same interval.

Values are read from the drawn text by the titles of their columns.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from nightly import cases_by_day
from screen_numbers import Line, agrees, fed_messages, press_until_shown
from terminal_apps import shown_app

from perfprobe.sources.sim.machine import SCENARIOS
from perftop.base.text import GHZ
from perftop.model.numbers import METRICS
from perftop.output.stat_lines import episode_line, interval_line

SIZE = (240, 70)
BY_DAY = ("hotplug", "guest")
"""Scenarios that are compared by day; the other scenarios have the same columns."""
_TITLE = re.compile(r"\S+(?: \S+)*")
_PER_CPU = {"lp{} %": ("util", 100), "idle lp{}": ("idle", 100), "krn lp{}": ("kernel_cycles", 100),
            "net lp{}": ("net_hz", 1e-9)}  # fmt: skip
"""Titles of values of each CPU of a core, with the JSON key and the factor."""
_BUSIEST_CPU = {"GHz": ("busy_hz", 1e-9), "busy %": ("util", 100), "IPC": ("ipc", 1),
                "user %": ("user", 100), "kernel %": ("system", 100), "iowait %": ("iowait", 100),
                "idle %": ("idle", 100), "krn %": ("kernel_cycles", 100),
                "net": ("net_hz", 1e-9)}  # fmt: skip
"""Titles of values of the busiest CPU."""
_MAXIMUM = {"invol %": ("involuntary", 100), "steal %": ("steal", 100)}


class DrawnTable:
    """Lines of a view, and the columns named in its title line."""

    def __init__(self, lines: list[str], title: str) -> None:
        at = next(i for i, line in enumerate(lines) if title in line)
        titles = re.sub("[▲▼]", " ", lines[at])
        self.titles = [(m.group(), m.start(), m.end()) for m in _TITLE.finditer(titles)]
        below = lines[at + 1 :]
        rules = (i for i, line in enumerate(below) if "──" in line and "package" not in line)
        end = next(rules, len(below))  # panels start with a rule
        self.lines = [line for line in below[:end] if "package" not in line]

    def cell(self, line: str, title: str) -> str:
        """The word below this title, aligned with its end or its start."""
        _, start, end = next(result for result in self.titles if result[0] == title)
        for word in re.finditer(r"\S+", line):
            if word.end() == end or word.start() == start:
                return word.group().lstrip("≁")
        return ""

    def has(self, title: str) -> bool:
        return any(result[0] == title for result in self.titles)


def overview_errors(lines: list[str], message: Line) -> Iterator[str]:
    cpus = {row["cpu"]: row for row in message["cpus"]}
    pairs = any("SMT states" in line for line in lines)
    drawn = DrawnTable(lines, "SMT states" if pairs else "where time goes")
    for line in drawn.lines:
        names = drawn.cell(line, "CPUs" if pairs else "CPU")
        if not re.fullmatch(r"\d+(,\d+)*", names):
            continue
        mine = [cpus[int(name)] for name in names.split(",")]
        for title, value, factor in expected_values(drawn, mine):
            text = drawn.cell(line, title)
            if not any(agrees(text, one, factor) for one in value):
                yield f"CPUs {names}, {title}: {text} is drawn, {value} is in JSON"


def expected_values(
    table: DrawnTable, values_by_title: list[Line]
) -> Iterator[tuple[str, list[float | None], float]]:
    """Titles of a row, with the values that are right there."""
    for thread, row in enumerate(values_by_title):
        for title, (key, factor) in _PER_CPU.items():
            if table.has(title.format(thread)):
                yield title.format(thread), [row[key]], factor
        ipc = f"lp{thread}" if thread else "IPC lp0"
        if table.has(ipc):
            yield ipc, [row["ipc"]], 1
    busy = [-1.0 if row["util"] is None else round(row["util"], 2) for row in values_by_title]
    lead = [row for row, share in zip(values_by_title, busy, strict=True) if share == max(busy)]
    for title, (key, factor) in _BUSIEST_CPU.items():
        if table.has(title):
            yield title, [row[key] for row in lead], factor
    for title, (key, factor) in _MAXIMUM.items():
        known = [row[key] for row in values_by_title if row[key] is not None]
        if table.has(title) and known:
            yield title, [max(known)], factor


def package_errors(
    lines: list[str], message: Line, packages: dict[int, list[int]]
) -> Iterator[str]:
    """The lines of packages: utilisation, and the clock while CPUs run."""
    cpus = {row["cpu"]: row for row in message["cpus"]}
    for line in lines:
        match = re.search(r"package (\d+) .*busy +([\d.]+) %(?:.*clock ([\d.]+) )?", line)
        if match is None or "lose to" in line.partition("busy")[0]:
            continue
        mine = [cpus[cpu] for cpu in packages[int(match[1])] if cpus[cpu]["util"] is not None]
        util = sum(row["util"] for row in mine)
        if abs(float(match[2]) - 100 * util / len(mine)) > 0.1:
            mean = 100 * util / len(mine)
            yield f"package {match[1]}: busy {match[2]} is drawn, {mean} is in JSON"
        ran = [row for row in mine if row["busy_hz"] is not None]
        work = sum(row["util"] for row in ran)
        if match[3] and work:
            hz = sum(row["util"] * row["busy_hz"] for row in ran) / work
            if abs(float(match[3]) - hz / 1e9) > 0.011:
                yield f"package {match[1]}: clock {match[3]} is drawn, {hz} is in JSON"


def table_errors(lines: list[str], message: Line) -> Iterator[str]:
    cpus = {row["cpu"]: row for row in message["cpus"]}
    drawn = DrawnTable(lines, "▲core")
    names = {metric.name(GHZ): (key, metric.scale(GHZ)[0]) for key, metric in METRICS.items()}
    for line in drawn.lines:
        cpu = drawn.cell(line, "cpu")
        for title, (key, factor) in names.items() if cpu.isdecimal() else ():
            text = drawn.cell(line, title) if drawn.has(title) else "n/a"
            if text and not agrees(text, cpus[int(cpu)][key], factor):
                yield f"CPU {cpu}, {title}: {text} is drawn, {cpus[int(cpu)][key]} is in JSON"


def heat_map_errors(lines: list[str], message: Line) -> Iterator[str]:
    """The values of the selected core, below the map."""
    line = next(line for line in reversed(lines) if line.startswith("▸"))
    match = re.search(r"cpus ([\d,]+)|CPU (\d+)", line)
    assert match is not None
    cpus = {row["cpu"]: row for row in message["cpus"]}
    mine = [cpus[int(name)] for name in (match[1] or match[2]).split(",")]
    for thread, row in enumerate(mine):
        text = re.search(rf"lp{thread} +([\d.]+)", line)
        if text and not agrees(text[1], row["util"], 100):
            yield f"heat, lp{thread}: {text[1]} is drawn, {row['util']} is in JSON"
    text = re.search(r"clock ([\d.]+)", line)
    if text and not any(agrees(text[1], row["busy_hz"], 1e-9) for row in mine):
        yield f"heat, clock: {text[1]} is drawn"
    text = re.search(r"IPC +(\S+) +(\S+)", line)
    if text and len(mine) == 2:
        for drawn, row in zip(text.groups(), mine, strict=True):
            if not agrees(drawn, row["ipc"], 1):
                yield f"heat, IPC: {drawn} is drawn, {row['ipc']} is in JSON"


def loss_errors(lines: list[str], episodes: list[Line]) -> Iterator[str]:
    """Losses shown in rows, compared with the episodes on their CPUs."""
    drawn = DrawnTable(lines, "SMT states")
    for line in drawn.lines:
        lost = re.fullmatch(r"−(\d+)", drawn.cell(line, "lost").partition(" ")[0])
        names = drawn.cell(line, "CPUs")
        if "−" in line and lost and re.fullmatch(r"\d+(,\d+)*", names):
            mine = {int(name) for name in names.split(",")}
            if not any(mine & {*episode["cpus"]} for episode in episodes):
                yield f"CPUs {names} lost something, without an episode in JSON"


@pytest.mark.parametrize("scenario", cases_by_day(SCENARIOS, BY_DAY))
def test_all_views_show_the_values_of_stat(scenario: str) -> None:
    async def act() -> list[str]:
        async with shown_app(fed_messages(scenario), SIZE) as app:
            session, interval = app.source.shown_session, app.source.interval
            assert session is not None
            assert interval is not None
            text = interval_line(session, interval)
            episodes = [episode_line(session, episode) for episode in session.running]
            packages: dict[int, list[int]] = {}
            for row in session.topology:
                packages.setdefault(row.package or 0, []).append(row.cpu)
            lines = app.terminal.lines()
            wrong = [] if not any("who runs" in line for line in lines) else [
                *package_errors(lines[4:], text, packages)
            ]  # fmt: skip
            if any("SMT states" in line or "where time goes" in line for line in lines):
                wrong += overview_errors(lines, text)
            if any("SMT states" in line for line in lines):
                wrong += loss_errors(lines, episodes)
            wrong += table_errors(await press_until_shown(app, "4", "▲core"), text)
            wrong += heat_map_errors(await press_until_shown(app, "2", "heat map"), text)
            return wrong

    assert asyncio.run(act()) == []
