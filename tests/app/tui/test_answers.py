"""What was done to a simulated machine is read from the screen: while it runs without a key, and
when it is over with one. Where, how much, why and for how long, at four sizes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from painted import SAMPLE_NS, Terminal, shown
from textual import events
from waiting import until

from perfprobe import wire
from perfprobe.sources.sim.source import open_sim
from perfprobe.sources.sim.truth import truth

SIZES = ((80, 24), (120, 30), (160, 50), (240, 70))
SAID = {
    "turbo-drop": ("PL1",),
    "throttle": ("heat", "hot", "therm"),
    "neighbour": ("stream",),
    "steal": ("hypervisor",),
    "license": ("SIMD", "AVX", "licen", "wide", "level"),
    "offline": ("offline", "off"),
    "involuntary-halt": ("halt",),
}
"""By kind, words of which one tells the cause."""
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


def scripted(spec: str) -> dict[str, Any]:
    """The first episode of the script that lasts."""
    lines = truth(f"sim:{spec}", 80)
    return next(
        line
        for line in lines
        if line["type"] == "episode" and line["kind"] in SAID and line["end"] - line["start"] > 3
    )


def until_s(spec: str, seconds: float) -> list[wire.Message]:
    source = open_sim(f"sim:{spec},speed=max", SAMPLE_NS)
    found: list[wire.Message] = [source.hello]
    end_ns = source.hello.raw_ns + seconds * 1e9
    while not (found[1:] and isinstance(last := found[-1], wire.Frame) and last.time_ns > end_ns):
        found += source.poll()
    source.close()
    return [m for m in found if not isinstance(m, wire.Frame | wire.Note) or m.time_ns <= end_ns]


def seen(spec: str, seconds: float, size: tuple[int, int], key: str = "") -> list[str]:
    """The lines of the screen."""

    async def look() -> list[str]:
        Terminal.size = size
        async with shown(until_s(spec, seconds)) as app:
            if key:
                app.post_message(events.Key(key, None))
                view = {"5": "episodes"}[key]
                await until(lambda: getattr(app.screen, "view").id == view, "the view")  # noqa: B009
                await asyncio.sleep(0.2)
            return app.composed()

    return asyncio.run(look())


def answers(line: str, episode: dict[str, Any]) -> list[str]:
    """What the line does not tell of the episode."""
    missing = []
    place = re.search(r"CPUs? (\d+)|cores? \d+|packages?|all CPUs|machine", line)
    if place is None:
        missing.append("where")
    elif (cpu := place[1]) is not None and int(cpu) not in episode["cpus"]:
        missing.append(f"where: {place[0]}")
    if not any(word.lower() in line.lower() for word in SAID[episode["kind"]]):
        missing.append("why")
    if not re.search(r"\d(?:\.\d+)? (?:s|min|h)\b|since \d\d:\d\d|\d\d:\d\d:\d\d", line):
        missing.append("since when")
    if episode["depth"] and not re.search(r"\d ?(?:%|GHz|MHz)|\d\.\d", line):
        missing.append("how much")
    return missing


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("spec", SPECS)
def test_what_runs_is_answered_without_a_key(spec: str, size: tuple[int, int]) -> None:
    episode = scripted(spec)
    lines = seen(spec, (episode["start"] + episode["end"]) / 2 + 0.5, size)
    alert = " ".join(lines[1:3])
    assert not answers(alert, episode), "\n".join(lines)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("spec", SPECS)
def test_what_is_over_is_answered_with_one_key(spec: str, size: tuple[int, int]) -> None:
    episode = scripted(spec)
    lines = seen(spec, episode["end"] + 3, size, "5")
    assert any(not answers(line, episode) for line in lines[3:]), "\n".join(lines)
