"""The screen reports what was done to a simulated machine: without a key while it happens, and with
one key after it. It reports place, amount, cause and duration, at four sizes."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import Any

import pytest
from nightly import cases_by_day
from sim_streams import messages_lasting
from terminal_apps import ScriptedApp, shown_app, wait_until_drawn
from textual import events
from waiting import until_true

from perfprobe import wire
from perfprobe.sources.sim.truth import truth

SIZES = ((80, 24), (120, 30), (160, 50), (240, 70))
CAUSE_WORDS = {
    "turbo-drop": ("PL1",),
    "throttle": ("heat", "hot", "therm"),
    "neighbour": ("stream",),
    "steal": ("hypervisor",),
    "license": ("SIMD", "AVX", "licen", "wide", "level"),
    "offline": ("offline", "off"),
    "involuntary-halt": ("halt",),
}
"""Words by kind, one of which names the cause."""
LinesBySize = dict[tuple[int, int], list[str]]
SPECS = (
    "turbo-drop,cpus=8",
    "turbo-drop,cpus=64,packages=2",
    "throttle,cpus=32",
    "neighbour,cpus=8",
    "neighbour,cpus=64",
    "guest",
    "license,cpus=16",
    "halts,cpus=8",
)
BY_DAY = ("turbo-drop,cpus=8", "guest")


def scripted(spec: str) -> dict[str, Any]:
    """Returns the first lasting episode of the script."""
    lines = truth(f"sim:{spec}", 80)
    return next(
        line
        for line in lines
        if line["type"] == "episode"
        and line["kind"] in CAUSE_WORDS
        and line["end"] - line["start"] > 3
    )


def messages_in_halves(
    spec: str, half_s: float, end_s: float
) -> tuple[list[wire.Message], list[wire.Message]]:
    """Returns the messages of the machine up to `half_s`, and those from then to `end_s`."""
    hello, result = messages_lasting(spec, end_s)
    half_ns = hello.raw_ns + half_s * 1e9
    half = [message for message in result if message.time_ns <= half_ns]
    return [hello, *half], [*result[len(half) :]]


@cache
def lines_during_and_after(spec: str) -> tuple[LinesBySize, LinesBySize]:
    """Returns the lines of the screen by size: during the episode, and of the list of episodes
    after it. One app draws all of them, on a terminal that is resized."""
    episode = scripted(spec)
    begin, end = episode["start"], episode["end"]
    half, rest = messages_in_halves(spec, (begin + end) / 2 + 0.5, end + 3)

    async def lines_by_size(app: ScriptedApp) -> LinesBySize:
        results = {}
        for size in SIZES:
            app.terminal.resize(size)
            await wait_until_drawn(app)
            results[size] = app.composed_lines()
        return results

    async def lines_while_and_after() -> tuple[LinesBySize, LinesBySize]:
        async with shown_app(half) as app:
            running = await lines_by_size(app)
            app.source.process(rest)
            app.post_message(events.Key("5", None))
            await until_true(lambda: getattr(app.screen, "view").id == "episodes", "the view")  # noqa: B009
            return running, await lines_by_size(app)

    return asyncio.run(lines_while_and_after())


def missing_facts(line: str, episode: dict[str, Any]) -> list[str]:
    """Facts that the line lacks about the episode or about a larger loss, which are waiting
    tasks."""
    missing = []
    place = re.search(r"CPUs? (\d+)|cores? \d+|packages?|all CPUs|machine", line)
    if place is None:
        missing.append("where")
    elif (cpu := place[1]) is not None and int(cpu) not in episode["cpus"]:
        missing.append(f"where: {place[0]}")
    larger = re.search(r"waits? \d\d % of (?:its|their) time|each waits \d\d %", line)
    if larger is None and not any(w.lower() in line.lower() for w in CAUSE_WORDS[episode["kind"]]):
        missing.append("why")
    brief = larger is not None and len(line.split(" · ")) == 1  # a sentence that fills 80 columns
    if not brief and not re.search(
        r"\d(?:\.\d+)? (?:s|min|h)\b|since \d\d:\d\d|\d\d:\d\d:\d\d", line
    ):
        missing.append("since when")
    if episode["depth"] and not re.search(r"\d ?(?:%|GHz|MHz)|\d\.\d", line):
        missing.append("how much")
    return missing


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("spec", cases_by_day(SPECS, BY_DAY))
def test_a_running_episode_is_fully_reported_without_a_key(
    spec: str, size: tuple[int, int]
) -> None:
    episode = scripted(spec)
    lines = lines_during_and_after(spec)[0][size]
    alert = " ".join(lines[1:3])
    assert not missing_facts(alert, episode), "\n".join(lines)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("spec", cases_by_day(SPECS, BY_DAY))
def test_an_ended_episode_is_fully_reported_with_one_key(spec: str, size: tuple[int, int]) -> None:
    episode = scripted(spec)
    lines = lines_during_and_after(spec)[1][size]
    assert any(not missing_facts(line, episode) for line in lines[3:]), "\n".join(lines)
