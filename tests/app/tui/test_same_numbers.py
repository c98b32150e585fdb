"""Displayed values of all views and other places equal those of `stat --json` for an interval.

They are read from the drawn text by the titles of their columns.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import product

import pytest
from nightly import cases_by_day
from screen_numbers import Line, agrees, press_until_shown, simulated_messages, sum_of_rows
from terminal_apps import shown_app

from perfprobe.sources.sim.machine import SCENARIOS
from perftop.base.text import GHZ, whole_percent
from perftop.model.numbers import METRICS
from perftop.model.smt import STATES
from perftop.output import stat_text, why_text
from perftop.output.run_summary import summary_line
from perftop.output.stat_lines import DEFAULT_COLUMNS, StatTable, episode_line, interval_line
from perftop.output.stat_text import SPAN_NAMES
from perftop.output.why_text import why_json
from perftop.session.episodes import EpisodeTally
from perftop.session.fleet_machine import read_numbers
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.core_page import VALUE_WIDTH
from perftop.tui.shared.verdict import verdict_at

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
    """The lines of a view, and the columns that its title line names."""

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
    """The correct values of a row, by title."""
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
        async with shown_app(simulated_messages(scenario), SIZE) as app:
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


# --- other places


_HEADER = {
    r"busy +([\d.]+) %": ("util", 100), r"clock \D*([\d.]+) of": ("busy_hz", 1e-9),
    r"net ([\d.]+) GHz": ("net_hz", 1e-9), r"IPC \D{0,2}([\d.]+)": ("ipc", 1),
    r"halts ([\d.]+) % idle": ("idle", 100), r"([\d.]+) % involuntary": ("involuntary", 100),
    r"kernel cycles ([\d.]+) %": ("kernel_cycles", 100), r"user +([\d.]+) %": ("user", 100),
    r"kernel +([\d.]+) %": ("system", 100), r"steal +([\d.]+) %": ("steal", 100),
}  # fmt: skip
"""Metrics of the machine above all views, with their JSON keys and factors."""
_WHOLE = {
    r"power (\d+)": ("power_w", 1), r"of (\d+) W": ("power_limit_w", 1),
    r"(\d+) °C": ("temperature_c", 1), r"waits for a CPU +([\d.]+)": ("pressure_cpu", 100),
    r"for a disk +([\d.]+)": ("pressure_io", 100),
}  # fmt: skip
_SELECTED = {
    "busy": ("util", 100), "clock": ("busy_hz", 1e-9), "IPC": ("ipc", 1), "user": ("user", 100),
    "kernel": ("system", 100), "kernel cycles": ("kernel_cycles", 100),
    "halts, idle": ("idle", 100), "halts, involuntary": ("involuntary", 100),
    "steal": ("steal", 100),
}  # fmt: skip
"""Names in the panel of the selected core."""
_NAMES_ON_PAGE = {name: key for name, (key, _) in _SELECTED.items()}
_STATE_NAMES = {"both active": "both", "lp0 only": "lp0", "lp1 only": "lp1", "neither": "neither"}


def header_errors(lines: list[str], message: Line) -> Iterator[str]:
    line = next(line for line in lines[:6] if re.match(r" busy +[\d.]+ %", line))
    for pattern, (key, factor) in _HEADER.items():
        match = re.search(pattern, line)
        value = sum_of_rows(message["cpus"], key)
        if match and not agrees(match[1], value, factor, slack=0.6):
            yield f"header, {pattern}: {match[1]} is drawn, {value} is in JSON"
    for pattern, (key, factor) in _WHOLE.items():
        match = re.search(pattern, line)
        if match and not agrees(match[1], message["machine"][key], factor):
            yield f"header, {key}: {match[1]} is drawn, {message['machine'][key]} is in JSON"


def alert_errors(lines: list[str], episodes: list[Line]) -> Iterator[str]:
    """The loss stated in the sentence equals the depth of an episode."""
    line = next((line for line in lines[:4] if line.startswith("▌")), "")
    match = re.search(r"(?:takes|took|costs?|for) (\d[\d.]* %)|([\d.]+ GHz) below", line)
    if match is None:
        return
    depths = [e["depth"] for e in episodes if e["depth"] is not None]
    printed = {whole_percent(d) for d in depths} | {f"{100 * d:.1f} %" for d in depths}
    printed |= {f"{d / 1e9:.2f} GHz" for d in depths}
    if (match[1] or match[2]) not in printed:
        yield f"alert: {match[0]} is drawn, {depths} are in JSON"


def core_page_errors(lines: list[str], message: Line) -> Iterator[str]:
    """The values at the bottom of the page, in columns, at fixed cells after their names."""
    top = next(i for i, line in enumerate(lines) if re.search(r"CPUs? [\d, ]+ · package", line))
    heading = re.search(r"(core \S+ · )?CPUs? ([\d, ]+) · package", lines[top])
    assert heading is not None
    numbers = [int(name) for name in re.findall(r"\d+", heading[2])]
    rows = [row for row in message["cpus"] if row["cpu"] in numbers]
    core = next(core for core in message["cores"] if core["cpus"] == numbers)
    keys = {m.plain_name: key for key, m in METRICS.items()} | _NAMES_ON_PAGE
    names_end = [
        found.end() - VALUE_WIDTH for found in re.finditer(rf"CPU {numbers[0]}\b", lines[top + 1])
    ]
    found_count = 0
    for line, first in product(lines[top + 2 :], names_end):
        label = line[first - 20 : first].strip()
        cells = [line[first + i * VALUE_WIDTH :][:VALUE_WIDTH].strip() for i in range(len(rows))]
        if label in keys:
            found_count += 1
            metric = METRICS[keys[label]]
            for text, row in zip(cells, rows, strict=True):
                if not agrees(text, row[metric.key], metric.scale(GHZ)[0]):
                    yield f"core page, {label}: {text} is drawn, {row[metric.key]} is in JSON"
        share = core["smt"].get(_STATE_NAMES.get(label, ""))
        if share is not None and not agrees(cells[0], share, 100):
            yield f"core page, {label}: {cells[0]} is drawn, {share} is in JSON"
    if found_count < 5:
        yield f"core page: only {found_count} numbers"


def selected_core_errors(lines: list[str], message: Line) -> Iterator[str]:
    """The panel of the selected core below the charts of a small machine."""
    cpus = {row["cpu"]: row for row in message["cpus"]}
    title_line = next((i for i, line in enumerate(lines) if " selected ──" in line), None)
    if title_line is None:
        return
    rows = [cpus[int(name)] for name in re.findall(r"CPU (\d+)", lines[title_line + 1][:45])]
    for line in lines[title_line + 2 :]:
        label = line[3:23].strip()
        cells = line[23:47].split()[: len(rows)]
        key, factor = _SELECTED.get(label, ("", 1.0))
        for text, row in zip(cells, rows, strict=False):
            if key and not agrees(text, row[key], factor):
                yield f"selected, {label}: {text} is drawn, {row[key]} is in JSON"


def chart_errors(lines: list[str], message: Line, losing_cpus: set[int]) -> Iterator[str]:
    """The values above the charts of a small machine: the IPC of one CPU, and the states."""
    for line in lines:
        head = re.match(r".{3}core \d+ +([\d,]+) .*?IPC +([\d.]+) (.)", line)
        if head is None:
            continue
        names, ipc, _ = head.groups()
        numbers = [int(name) for name in names.split(",")]
        rows = [row for row in message["cpus"] if row["cpu"] in numbers]
        core = next(core for core in message["cores"] if core["cpus"] == numbers)
        busiest = max(round(row["util"] or 0.0, 2) for row in rows)
        lead = [row for row in rows if round(row["util"] or 0.0, 2) == busiest]
        losing = [row for row in rows if row["cpu"] in losing_cpus]
        if not any(agrees(ipc, row["ipc"], 1) for row in losing or lead):
            yield f"{names}, IPC: {ipc} is drawn"
        for state, text in re.findall(r"(both|lp0|lp1|neither) +([\d.]+) ", line):
            share = core["smt"][state]
            if share is not None and not agrees(text, share, 100):
                yield f"{names} {state}: {text} is drawn, {share} is in JSON"


def account_errors(lines: list[str], message: Line) -> Iterator[str]:
    """The line above a chart of the time use of a CPU."""
    cpus = {row["cpu"]: row for row in message["cpus"]}
    keys = {"user": "user", "kernel": "system", "steal": "steal", "idle": "idle"}
    for line in lines:
        result = re.match(r".{3}CPU (\d+) +([\d.]+) %", line)
        if result is None:
            continue
        row = cpus[int(result[1])]
        printed = {"util": result[2]}
        printed |= {keys[name]: text for name, text in re.findall(r"(\w+) +([\d.]+)  ", line)
                 if name in keys}  # fmt: skip
        for key, text in printed.items():
            if not agrees(text, row[key], 100):
                yield f"CPU {result[1]}, {key}: {text} is drawn, {row[key]} is in JSON"


def time_view_errors(lines: list[str], message: Line) -> Iterator[str]:
    """The newest values, at the right of the rows."""
    cpus = {row["cpu"]: row for row in message["cpus"]}
    for line in lines:
        result = re.match(r"[▌ ] +(?:\d+ +)?(\d+(?:,\d+)*)  .*?((?: +[\d.]+)+)[◐▼╳≁ ]*$", line)
        if result is None or "package" in line:
            continue
        texts, names = result[2].split(), result[1].split(",")
        for cpu, text in zip(names, texts[-len(names) :], strict=False):
            if int(cpu) in cpus and not agrees(text, cpus[int(cpu)]["util"], 100):
                yield f"time, CPU {cpu}: {text} is drawn, {cpus[int(cpu)]['util']} is in JSON"


def text_errors(session: Session, interval: Interval, message: Line) -> Iterator[str]:
    """The table of `stat`."""
    cpus = {str(row["cpu"]): row for row in message["cpus"]}
    first = {core["cpus"][0]: core for core in message["cores"]}
    for line in StatTable(session, [*DEFAULT_COLUMNS, "smt"]).lines(interval):
        name, *cells = line.split() or [""]
        row = cpus.get(name.lstrip("~"))
        if row is None or cells == ["off"]:
            continue
        for key, text in zip(DEFAULT_COLUMNS, cells, strict=False):
            scale = METRICS[key].scale(GHZ)[0]
            if (text == "n/a") != (row[key] is None) or not agrees(text, row[key], scale):
                yield f"stat, CPU {name}, {key}: {text} is written, {row[key]} is in JSON"
        shares = cells[len(DEFAULT_COLUMNS) :]
        for state, text in zip(STATES, shares, strict=False):
            share = first[row["cpu"]]["smt"][state]
            if share is not None and not agrees(text, share, 100):
                yield f"stat, CPU {name}, {state}: {text} is written, {share} is in JSON"


def summary_errors(session: Session) -> Iterator[str]:
    """The metrics of the machine in the summary of `stat`."""
    line = summary_line(session, {})
    drawn = stat_text.ending_lines(session, EpisodeTally(), line, requested_keys=DEFAULT_COLUMNS)
    for key in DEFAULT_COLUMNS:
        label, measure = METRICS[key].name(GHZ), line["machine"][key]
        result = next(text for text in drawn if text.strip().startswith(f"{label} "))
        cells = result.strip().removeprefix(label).split()
        for span, text in zip(SPAN_NAMES, cells, strict=False):
            value = measure[span] if measure else None
            if not agrees(text, value, METRICS[key].scale(GHZ)[0]):
                yield f"summary, {label} {span}: {text} is written, {value} is in JSON"


_FLEET = {"busy": "util", "clock_hz": "busy_hz", "involuntary": "involuntary", "steal": "steal",
          "power_w": "power_w", "power_limit_w": "power_limit_w"}  # fmt: skip
"""Metrics of a machine in a fleet, with their JSON keys."""


def fleet_errors(session: Session, interval: Interval, message: Line) -> Iterator[str]:
    numbers = read_numbers(session, interval)
    for key, name in _FLEET.items():
        json_value = message["machine"].get(name)
        json_value = (
            sum_of_rows(message["cpus"], name)
            if json_value is None and name in METRICS
            else json_value
        )
        if json_value is not None and numbers[key] != pytest.approx(json_value, rel=1e-4, abs=1e-5):
            yield f"fleet, {key}: {numbers[key]} is shown, {json_value} is in JSON"


def verdict_errors(session: Session, interval: Interval, lines: list[str]) -> Iterator[str]:
    """The rows of the verdict, and `why` for the same time, as text and as JSON."""
    verdict = verdict_at(session, interval)
    if verdict is None or verdict.report is None:
        yield "no verdict"
        return
    report = verdict.report
    line = why_json(report, None)
    first = why_text.lines(report, colour=False, unicode=True)[0]
    if first.rstrip(".") != verdict.text or line["answer"] != first:
        yield f"verdict: {verdict.text} is shown, {first} and {line['answer']} are in JSON"
    if verdict.lost_share != pytest.approx(line["lost_ratio"] or 0.0, abs=1e-4):
        yield f"verdict: {verdict.lost_share} is lost, {line['lost_ratio']} is in JSON"
    (row,) = [row for row in lines[:6] if "  lost " in row]
    drawn = re.search(r"lost ([\d.]+) %", row)
    if drawn is None or not agrees(drawn[1], line["lost_ratio"] or 0.0, 100):
        yield f"verdict: {row} is drawn, {line['lost_ratio']} is in JSON"
    busy = report.interval.values.mean("util", session.selected)
    piece = re.search(r"CPUs ([\d.]+) % busy", " ".join(verdict.evidence))
    if piece and not agrees(piece[1], busy, 100):
        yield f"verdict: {piece[0]} is shown, {busy} is in `why`"
    causes = sum(cause["lost_s"] for cause in line["causes"])
    if line["wanted_s"] and causes / line["wanted_s"] != pytest.approx(
        line["lost_ratio"], abs=1e-4
    ):
        yield f"why: {causes} s of {line['wanted_s']} s are not {line['lost_ratio']}"


def losing_cpus(episodes: list[Line]) -> set[int]:
    return {cpu for e in episodes if e["kind"] == "neighbour" for cpu in e["cpus"]}


@pytest.mark.parametrize(
    ("scenario", "small"),
    cases_by_day(
        [(scenario, small) for scenario in SCENARIOS for small in (False, True)],
        [
            ("hotplug", True),
            ("guest", True),
            ("demo", False),
        ],
    ),
)  # fmt: skip
def test_all_other_places_show_the_values_of_stat(scenario: str, small: bool) -> None:
    size = (160, 50) if small else (240, 70)

    async def act() -> list[str]:
        async with shown_app(simulated_messages(scenario, 8 if small else None), size) as app:
            session, interval = app.source.shown_session, app.source.interval
            assert session is not None
            assert interval is not None
            text = interval_line(session, interval)
            episodes = [episode_line(session, episode) for episode in session.running]
            lines = app.terminal.lines()
            wrong = [*header_errors(lines, text), *alert_errors(lines, episodes)]
            wrong += [
                *fleet_errors(session, interval, text),
                *verdict_errors(session, interval, lines),
            ]
            if small:
                wrong += [*selected_core_errors(lines, text), *account_errors(lines, text)]
                wrong += chart_errors(lines, text, losing_cpus(episodes))
            wrong += time_view_errors(await press_until_shown(app, "3", "window 60 s"), text)
            page = await press_until_shown(app, "enter", "CPU seconds of")
            wrong += core_page_errors(page, text)
            wrong += text_errors(session, interval, text)
            return [*wrong, *summary_errors(session)]

    assert asyncio.run(act()) == []
