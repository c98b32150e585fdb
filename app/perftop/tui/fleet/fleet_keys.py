"""What the keys of the fleet's screen are called in its last line, and its help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Told(NamedTuple):
    """A key, or two with opposite effects, which share a line of the help."""

    ids: tuple[str, ...]
    label: str
    """In the last line, which names the first key; '': only the help names it."""
    help: str


KEYS = (
    Told(("machines",), "machines", "a row a machine"),
    Told(("heat",), "heat", "a cell a machine"),
    Told(("time",), "time", "a number of each machine over ten minutes"),
    Told(("fleet_episodes",), "episodes", "what happened on all machines"),
    Told(("open",), "open", "the selected machine alone; quit comes back"),
    Told(("why",), "why", "what costs the selected machine most, in a dozen lines"),
    Told(("next_episode", "previous_episode"), "next episode",
         "to the next machine with an episode, and the one before"),
    Told(("filter",), "filter", "only machines that match; esc shows all"),
    Told(("sort_next", "sort_before"), "sort",
         "by the next column, and the one before; a click on a title does it too"),
    Told(("metric", "metric_back"), "number", "another number in heat map and time view"),
    Told(("pause",), "pause", "the screen stands still"),
    Told(("help",), "help", "these lines"),
    Told(("quit",), "quit", "quit"),
    Told(("up", "down"), "", "select a machine"),
    Told(("step_back", "step_on"), "",
         "back and on in time, where there is a past; in the heat map a cell aside"),
    Told(("leap_back", "leap_on"), "", "ten steps back and on in time"),
    Told(("first", "last"), "", "the first and the last machine"),
    Told(("page_up", "page_down"), "", "twenty machines up and down"),
    Told(("reverse",), "", "reverse the order"),
    Told(("theme",), "", "next theme"),
    Told(("back",), "", "back: from a prompt, a filter, the help"),
)  # fmt: skip
NUMBERS = (
    ("lost %", "share of the time that working CPUs did not get: clock, halts, steal"),
    ("below %", "share of the working time with a clock below its ceiling"),
    ("both %", "share of the time in which both threads of a core ran"),
    ("inv %", "halted although there was work"),
    ("▼ ≁", "episodes that run; samples in which a counter was doubted"),
    ("age s", "since the newest numbers came; all times are of their arrival here"),
    ("○", "does not answer, and why"),
    ("numbers", "cover ten seconds, or what the server was asked for"),
)


def labelled(captions: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Caption, label and id of the keys in the last line."""
    return [(captions[key.ids[0]], key.label, key.ids[0]) for key in KEYS if key.label]


def helped(captions: Mapping[str, str]) -> list[tuple[str, str]]:
    """The lines of the help: what is meant, and its meaning."""
    keys = [(" ".join(captions[name] for name in key.ids), key.help) for key in KEYS]
    return [*keys, ("", ""), *NUMBERS]
