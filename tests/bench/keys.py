"""Counts the keys that a user needs to find an incident's culprit, cause and start on the screen.

Run by hand: PYTHONPATH=tests/support python tests/bench/keys.py [--size 80x24] [--lines] [NAME …]

Plays all scenarios of the simulated machine, and recordings of staged incidents, as live streams.
Culprits, causes and times come from the script of the scenario or of the incident. A fact counts as
found if a line of the screen has it together with a word about the incident. Goals: no key while
an incident runs, one key just after its end, two keys a minute later.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sim_streams import messages_lasting
from terminal_apps import ScriptedApp, wait_until_drawn
from textual import events
from waiting import until_true

from perfprobe import wire
from perfprobe.sources.sim.machine import SimMachine, parse_spec
from perfprobe.sources.sim.scenarios import make_script
from perfprobe.sources.sim.script import ScriptedEpisode, Stage
from perftop.recording import shipped
from perftop.recording.file import Recording
from perftop.tui.shared.keys import KEY_NAMES

SIZES = (160, 50), (80, 24)
BATCH = 5
"""Messages between two refreshes: samples of 0.1 s in an interval of 0.5 s."""
KEYS = [(), ("w",), ("5",), ("n",), ("6",),
        ("n", "w"), ("5", "down"), ("5", "enter"), ("n", "n"), ("N", "N"), ("n", "5")]  # fmt: skip
"""Keys that a user tries, in this order."""
GOALS = {"running": 0, "just over": 1, "a minute ago": 2}
RUNNING_S, OVER_S, MINUTE_S = 5.0, 4.0, 60.0
"""Times at which the screen is read, in s: one after the start and two after the end of an
incident."""
MAX_START_ERROR_S = 1.6
MAX_DISTANCE = 3
"""Maximum number of lines between the start of an incident and its other facts."""
HARMLESS = {"ramp", "online", "license"}
CAUSES = {
    "power-pl1": "PL1|power limit", "thermal": "thermal|heat|hot|temperature",
    "modulation": "thermal|heat|modulation", "sibling": "sibling|same core",
    "hypervisor": "hypervisor|steal", "memory": "memory", "scheduler": "wait| to backup",
    "license": "AVX|licen[cs]e|SIMD",
    "clock-change": "clock change|changes? of (the )?clock|clock", "smm": "SMI|SMM|firmware",
    "offline": "offline", "quota": "quota|limited to", "softirq": "softirq|interrupt|NET_RX",
    "reclaim": "memory|reclaim|swap",
}  # fmt: skip
"""Words for causes, and for kinds without a cause, as patterns."""
INCIDENT_WORDS = "los[est]|wait|t[ao]kes?n?|kept|keeps|stop|slow|limit|halt|offline|who:|[0-9] %"
"""Pattern of words that connect a name with an incident."""


@dataclass(frozen=True)
class Incident:
    cause: str
    """Pattern of the words for its cause."""
    culprit: str
    """Pattern of the names of its culprits; '' if it has none besides the cause."""
    start_s: float
    end_s: float
    """Seconds from the start of the stream; infinite if it lasts until the end."""


STAGED = {
    "quota": Incident(CAUSES["quota"], "", 0.0, 10.0),
    "queue": Incident(CAUSES["scheduler"], "backup", 4.0, 9.0),
    "softirq": Incident(CAUSES["softirq"], "", 3.0, 9.0),
    "reclaim": Incident(CAUSES["reclaim"], "", 0.0, 10.0),
    "bad-run": Incident(CAUSES["scheduler"], "backup", 1.0, 10.0),
}
"""The incidents of tests/incidents/record_demos.py, with its times."""
SCENARIOS = ["idle", "steady", "jitter", "smt-mix", "turbo-drop", "license", "throttle",
             "neighbour", "memory", "warmup", "halts", "hotplug", "hybrid", "guest",
             "demo"]  # fmt: skip


def scripted_incidents(spec: str) -> list[Incident]:
    """Returns the incidents of one cycle of a scenario. Episodes that begin together are one."""
    script = make_script(spec.partition(",")[0], SimMachine.from_spec(parse_spec(spec)))
    by_start: dict[float, list[ScriptedEpisode]] = {}
    for episode in script.episodes:
        if episode.kind not in HARMLESS:
            by_start.setdefault(episode.start, []).append(episode)
    ends, stages = 0.0, dict[float, tuple[Stage, Stage]]()
    for before, stage in zip([script.stages[-1], *script.stages], script.stages, strict=False):
        stages[round(ends, 6)] = before, stage
        ends += stage.seconds
    incidents = []
    for start, episodes in by_start.items():
        causes = [e.cause or ("" if e.kind == "steal" else e.kind) for e in episodes]
        pattern = "|".join(CAUSES[cause] for cause in causes if cause in CAUSES)
        names = {CAUSES["hypervisor"]} if "hypervisor" in causes else set[str]()
        if not names and {"sibling", "memory", "scheduler", "license"} & {*causes}:
            before, stage = stages[start]
            new = zip(before.tasks, stage.tasks, strict=True)
            names = {task.comm for old, now in new for task in now if task not in old}
            names -= {task.comm for old in before.tasks for task in old}
        incidents.append(Incident(pattern, "|".join(sorted(names)), start, episodes[0].end))
    return incidents


# --- the screen


class Screen:
    def __init__(self, app: ScriptedApp, feed: Sequence[wire.Message]) -> None:
        self._app, self._feed = app, iter(feed)
        hello = next(self._feed)
        assert isinstance(hello, wire.Hello)
        self.hello, self.time_s = hello, 0.0
        app.source.process([hello])

    async def play_until(self, time_s: float) -> None:
        while self.time_s < time_s and (batch := [*islice(self._feed, BATCH)]):
            self._app.source.process(batch)
            self.time_s = (batch[-1].time_ns - self.hello.raw_ns) / 1e9  # type: ignore[union-attr]
        await wait_until_drawn(self._app)

    async def press(self, *names: str) -> None:
        for name in names:
            sign = KEY_NAMES.get(name, name)
            self._app.post_message(events.Key(name, sign if len(sign) == 1 else None))
            await wait_until_drawn(self._app)

    async def lines_after(self, names: Sequence[str]) -> list[str]:
        """Returns the lines of the screen after these keys, whose effects are then undone."""
        view = self._app.source.monitor.view.id  # type: ignore[union-attr]
        await self.press(*names)
        lines = [line.rstrip() for line in self._app.composed_lines()]
        if names:
            while len(self._app.screen_stack) > 1:
                await self.press("escape")
            if self._app.source.is_paused:
                await self.press("space")
            await self.press("2" if view == "heat" else "1")
        return lines

    def clock(self, time_s: float) -> str:
        return time.strftime("%H:%M:%S", time.localtime(self.hello.wall_ns / 1e9 + time_s))


def find_facts(screen: Screen, incident: Incident, lines: Sequence[str]) -> dict[str, str]:
    """Returns the facts that these lines have, each with its line."""
    cause, culprit = incident.cause, incident.culprit
    about = re.compile("|".join(filter(None, (cause, culprit))), re.IGNORECASE)
    clocks = {screen.clock(incident.start_s + i / 4) for i in range(-4, 5)}
    starts = [
        y for y, line in enumerate(lines)
        if (any(clock in line for clock in clocks) or _has_start(line, incident, screen.time_s))
        and about.search(" ".join(lines[max(0, y - 1) : y + 1]))
    ]  # fmt: skip
    facts = {"since": lines[starts[0]]} if starts else {}
    for y, line in enumerate(lines):
        is_of_incident = any(abs(y - start) <= MAX_DISTANCE for start in starts)
        if not is_of_incident or not re.search(INCIDENT_WORDS, line, re.IGNORECASE):
            continue
        if re.search(cause, line, re.IGNORECASE):
            facts.setdefault("cause", line)
        if culprit and re.search(culprit, line):
            facts.setdefault("culprit", line)
    return facts


def _has_start(line: str, incident: Incident, now_s: float) -> bool:
    """Returns whether a line gives the start by a length and, once over, the time since its end."""
    for found in re.finditer(r"(?:(\d+(?:\.\d+)?) s ago.*?)?\b(?:for|of) (\d+(?:\.\d+)?) s", line):
        start_s = now_s - float(found[1] or 0) - float(found[2])
        if abs(start_s - incident.start_s) <= MAX_START_ERROR_S:
            return True
    return False


# --- the table


@dataclass
class Row:
    name: str
    incident: Incident
    when: str
    keys: dict[str, tuple[Sequence[str], str]]
    """By fact: the keys after which a line has it, and the line."""

    def misses(self) -> list[str]:
        facts = ["culprit", "cause", "since"] if self.incident.culprit else ["cause", "since"]
        return [fact for fact in facts
                if fact not in self.keys or len(self.keys[fact][0]) > GOALS[self.when]]  # fmt: skip

    def text(self) -> str:
        cells = []
        for fact in ("culprit", "cause", "since"):
            names = self.keys[fact][0] if fact in self.keys else None
            text = "–" if names is None else f"{len(names)} {' '.join(names)}".strip()
            cells.append("·" if fact == "culprit" and not self.incident.culprit else text)
        label = f"{self.incident.start_s:g} s {self.incident.cause.partition('|')[0]}"
        missed = f"misses {', '.join(self.misses())}" if self.misses() else ""
        return f"{self.name:11} {label:22} {self.when:13}" + "".join(
            f"{cell:10}" for cell in cells
        ) + missed  # fmt: skip


def moments(
    incidents: Sequence[Incident], length_s: float
) -> Iterator[tuple[float, str, Incident]]:
    for incident in incidents:
        running_s = min(incident.start_s + RUNNING_S, incident.end_s - 0.3)
        for time_s, when in (
            (running_s, "running"), (incident.end_s + OVER_S, "just over"),
            (incident.end_s + MINUTE_S, "a minute ago"),
        ):  # fmt: skip
            if time_s <= length_s:
                yield time_s, when, incident


async def rows_of(
    name: str, feed: Sequence[wire.Message], incidents: Sequence[Incident], length_s: float,
    size: tuple[int, int],
) -> list[Row] | str:  # fmt: skip
    """Returns a row for each moment of an incident; without incidents, the verdict at the end."""
    app = ScriptedApp()
    run = asyncio.ensure_future(app.run_async(size=size))
    await until_true(lambda: app.is_ready, "the app is up")
    screen, rows = Screen(app, feed), list[Row]()
    for time_s, when, incident in sorted(moments(incidents, length_s), key=lambda m: m[0]):
        await screen.play_until(time_s)
        row = Row(name, incident, when, {})
        for names in KEYS:
            if row.keys and not row.misses() and len(row.keys) >= 2 + bool(incident.culprit):
                break
            lines = await screen.lines_after(names)
            for fact, line in find_facts(screen, incident, lines).items():
                row.keys.setdefault(fact, (names, line))
        rows.append(row)
    await screen.play_until(length_s)
    verdict = next((line for line in app.composed_lines()[1:] if line.strip()), "").strip()
    app.exit()
    await run
    return rows or verdict


def cases(names: Sequence[str]) -> Iterator[tuple[str, list[wire.Message], list[Incident], float]]:
    for name in names or [*SCENARIOS, *STAGED]:
        if name in STAGED:
            with Recording(Path(shipped.__path__[0]) / f"{name}.perftop") as recording:
                hello, played = recording.hello, [*recording.messages()]
            length_s = (played[-1].time_ns - hello.raw_ns) / 1e9
            yield name, [hello, *played], [STAGED[name]], length_s
            continue
        spec = name if "," in name else f"{name},cpus={2 if name == 'guest' else 16}"
        incidents = scripted_incidents(spec)
        length_s = max((i.end_s + MINUTE_S for i in incidents), default=20.0) + 1
        hello, frames = messages_lasting(f"sim:{spec},seed=1", length_s)
        yield name, [hello, *frames], incidents, length_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--size", help="columns x lines; default: 160x50 and 80x24")
    parser.add_argument("--lines", action="store_true", help="print the line that has each fact")
    options = parser.parse_args()
    sizes = [*SIZES]
    if options.size:
        columns, _, lines = options.size.partition("x")
        sizes = [(int(columns), int(lines))]
    missed = 0
    for size in sizes:
        print(f"\n{size[0]}x{size[1]}\n{'scenario':11} {'incident':22} {'when':13}"
              f"{'culprit':10}{'cause':10}{'since':10}")  # fmt: skip
        for name, feed, incidents, length_s in cases(options.names):
            rows = asyncio.run(rows_of(name, feed, incidents, length_s, size))
            if isinstance(rows, str):
                print(f"{name:11} {rows[:100]}", flush=True)
                continue
            for row in rows:
                print(row.text(), flush=True)
                missed += bool(row.misses())
                for fact, (_, line) in row.keys.items() if options.lines else ():
                    print(f"    {fact:8} {line.strip()[:140]}")
    print(f"\n{missed} rows miss a goal")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
