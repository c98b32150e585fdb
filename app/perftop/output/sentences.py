"""One sentence about an episode: who loses how much to what. The same words serve the alert line,
lists of episodes and reports.

Phrases are data: a verb is written `present|past`, and braces name what is put in. Of several
phrases of a kind the first one is used whose parts are all known and that fits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perftop.base.format import length, percent, rough, short_duration, time_of_day
from perftop.model.episode import LOW_CLOCK
from perftop.model.evidence import Cap, Level, Ran
from perftop.model.running_tasks import task
from perftop.output.episode_words import LEAST_HZ, where_briefly

if TYPE_CHECKING:
    from perfprobe.wire import Cpu
    from perftop.model.episode import Episode
    from perftop.session.interval import Tasks
    from perftop.session.session import Session

MOST = 76
"""Most characters of a sentence: with the four before it, it fills 80 columns."""
_NAMES = 15, 9
"""Characters kept of a task's name; the second where the sentence is too long with the first."""
LATELY_NS = 10_000_000_000
"""An episode younger than this is told by its length, an older one by its start."""
_LEAST_SHARE = 0.0005
"""A smaller loss is none: it would be told as 0.0 %."""

Role = Literal["text", "lost", "name"]


class Part(NamedTuple):
    """A piece of a sentence. Text of role name comes from outside and is not safe to draw."""

    text: str
    role: Role = "text"
    """lost: the number that tells the loss; name: a task or the name of a mark."""


def text(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts)


_LOW = (
    "{cause} holds|held {where} {lost} below {its} ceiling",
    "{cause} costs|cost {where} {lost}",
    "{cause} holds|held {where} below {its} ceiling",
)
_STOLEN = (
    "The hypervisor takes|took {lost} of {where} from {loser}",
    "The hypervisor takes|took {lost} of {where}",
    "The hypervisor takes|took time of {where}",
)
_PHRASES: dict[str, tuple[str, ...]] = {
    "turbo-drop": _LOW,
    "throttle": (
        "{cause} stops|stopped {where} for {lost} of the time",
        "{cause} throttles|throttled {where} {nothing}",
        "{cause} throttles|throttled {where}",
    ),
    "involuntary-halt": (
        "{cause} halts|halted {where} for {lost} of the time",
        "{cause} halts|halted {where}",
    ),
    "license": (
        "Wide SIMD code (level {level}) holds|held {where} {lost} below {its} ceiling",
        "Wide SIMD code (level {level}) costs|cost {where} {lost}",
        "Wide SIMD code runs|ran on {where} at level {level}",
    ),
    "smi": (
        "The firmware stops|stopped {where} {lost} by SMI",
        "The firmware stops|stopped {where} by SMI",
    ),
    "steal": _STOLEN,
    "ramp": (
        "{where} took {climb} to climb from {first} to {steady}",
        "{where} climbed",
    ),
    "suspect": (
        "perftop does|did not trust {counters} of {where}",
        "perftop does|did not trust counters of {where}",
    ),
    "offline": ("{where} {is} offline",),
    "online": ("{where} came online",),
    "mark": ("{label}",),
}  # fmt: skip
"""Phrases by kind, the best first."""
_NEIGHBOURS: dict[str, tuple[str, ...]] = {
    "sibling": (
        "{who} takes|took {lost} of {loser}'s IPC on {where}",
        "{who} takes|took {lost} of {loser}'s IPC",
        "{who} takes|took {lost} of the IPC of {where}",
        "{own} takes|took {lost} of its own IPC on {where}",
        "A sibling takes|took {lost} of {loser}'s IPC on {where}",
        "A sibling takes|took {lost} of the IPC of {where}",
        "A sibling slows|slowed {where}",
    ),
    "scheduler": (
        "{loser} waits|waited {lost} of its time for {who} on {where}",
        "{loser} waits|waited {lost} of its time for {who}",
        "{who} takes|took {lost} of the job's time on {where}",
        "Threads of {own} wait|waited {lost} of their time for each other on {where}",
        "Threads of {own} wait|waited {lost} of their time for each other",
        "{loser} waits|waited {lost} of its time for {where}",
        "The job waits|waited {lost} of its time for {where}",
        "The job waits|waited for {where}",
    ),
    "package": (
        "{who} takes|took {lost} of {loser}'s clock on {where}",
        "{who} takes|took {lost} of {loser}'s clock",
        "{who} takes|took {lost} of the clock of {where}",
        "Other tasks take|took {lost} of {loser}'s clock on {where}",
        "Other tasks take|took {lost} of the clock of {where}",
        "Other tasks slow|slowed {where}",
    ),
    "memory": (
        "{who} presses|pressed the memory: {loser} loses|lost {lost} of its IPC on {where}",
        "{who} presses|pressed the memory: {lost} of the IPC is|was lost on {where}",
        "Others press|pressed the memory: {loser} loses|lost {lost} of its IPC on {where}",
        "Others press|pressed the memory: {lost} of the IPC is|was lost on {where}",
        "The memory is|was pressed: {lost} of the IPC lost on {where}",
    ),
    "hypervisor": _STOLEN,
}
"""Phrases of kind neighbour, by cause."""
CAUSES = {
    "power-pl1": "Power limit PL1", "power-pl2": "Power limit PL2",
    "current": "The current limit", "thermal": "Heat", "prochot": "The PROCHOT signal",
    "vr": "The voltage regulator", "hwp": "The power-saving setting (HWP)",
    "policy": "A clock limit of the system", "license": "Wide SIMD code",
    "hypervisor": "The hypervisor", "modulation": "Clock modulation",
    "hdc": "Hardware duty cycling", "smm": "The firmware (SMM)",
    "simd": "A changing SIMD level", "clock-change": "A changing clock",
}  # fmt: skip
"""Causes as subjects of a sentence; all are singular."""
_CAPS = {
    "turbo off": "Disabled turbo", "turbo off, config-TDP": "Disabled turbo (config-TDP)",
}  # fmt: skip
"""The same for limits that somebody set, where their name alone is none."""
UNKNOWN = "An unknown cause"
_NUMBERS = "lost", "climb"
"""Fields that no sentence leaves out if they are known."""
RUNS = 0.02
"""Least share of a CPU of a task that is told as one that loses."""


def sentence(
    topology: Sequence[Cpu], episodes: Sequence[Episode], names: Sequence[str] = (), *,
    over: bool = False, when: str = "", most: int = MOST,
) -> list[Part]:  # fmt: skip
    """What these episodes of one kind and cause did, the deepest first. `names`: the
    tasks that lost, the most important first. `over`: in the past tense. `when`: a phrase for its
    end, left out where the sentence would be longer than `most`."""
    worst = max(episodes, key=lambda e: e.depth or 0.0)
    phrases = _NEIGHBOURS.get(worst.cause, ()) if worst.kind == "neighbour" else ()
    phrases = phrases or _PHRASES.get(worst.kind, ("{kind} on {where}",))
    facts = _known(topology, worst, episodes, over=over)
    known = [facts | _people(worst.evidence, names, size) for size in _NAMES]
    numbers = [f"{{{key}}}" for key in _NUMBERS if key in facts]
    phrases = tuple(p for p in phrases if all(key in p for key in numbers)) or phrases
    phrases = tuple(p for p in phrases if _split(p).fields <= known[0].keys())
    ends = [f", {when}", ""] if when else [""]
    found: list[list[Part]] = []
    for end, phrase, have in product(ends, phrases, known):
        found.append(_joined([*_filled(phrase, have, over=over), Part(end)]))
        if len(text(found[-1])) <= most:
            return found[-1]
    return min(found, key=lambda made: len(text(made)))


def lasting(session: Session, episodes: Sequence[Episode], now_ns: int) -> str:
    """Says how long the episodes have lasted, or since when. If they end after `now_ns`, the moment
    shown, the whole length follows."""
    start_ns = min(e.start_ns for e in episodes)
    now_ns = max(now_ns, start_ns)  # one may have begun since
    end_ns = max(now_ns if e.end_ns is None else e.end_ns for e in episodes)
    so_far, whole = (length(ns - start_ns) for ns in (min(now_ns, end_ns), end_ns))
    if so_far != whole:
        return f"for {so_far} of {whole}"
    runs = any(e.end_ns is None for e in episodes)
    if runs and end_ns - start_ns >= LATELY_NS:
        return f"since {time_of_day(session.unix(start_ns))}"
    return f"for {whole}"


def losers(session: Session, episodes: Sequence[Episode], tasks: Tasks) -> list[str]:
    """Names of the tasks that lose by them, the one with the largest share of a CPU first: those
    that run on their CPUs by `tasks`, or the job that is watched."""
    watching = session.neighbours.watching
    if watching.name is not None and any(e.kind == "neighbour" for e in episodes):
        names = [thread.comm for thread in watching.threads.values()]
        by_pid = watching.name.isdecimal() and names
        return [max(set(names), key=names.count) if by_pid else watching.name]
    cpus = {cpu for episode in episodes for cpu in episode.cpus}
    found = [one for cpu in sorted(cpus) if (one := task(tasks.get(str(cpu)))) is not None]
    found.sort(key=lambda one: -one.share)
    return list(dict.fromkeys(one.comm for one in found if one.share >= RUNS))


_FIELD = re.compile(r"\{(\w+)\}|([a-z]+)\|([a-z]+)")


class _Phrase(NamedTuple):
    pieces: Sequence[tuple[str, str, str, str]]
    """Text, and the field or the verb behind it in both tenses; one of them is empty."""
    end: str
    fields: frozenset[str]


@cache
def _split(phrase: str) -> _Phrase:
    pieces, at = [], 0
    for found in _FIELD.finditer(phrase):
        field, present, past = found.groups("")
        pieces.append((phrase[at : found.start()], field, present, past))
        at = found.end()
    return _Phrase(pieces, phrase[at:], frozenset(piece[1] for piece in pieces if piece[1]))


def _filled(phrase: str, known: Mapping[str, Part], *, over: bool) -> list[Part]:
    """The phrase with its fields put in."""
    split, made = _split(phrase), list[Part]()
    for before, field, present, past in split.pieces:
        made += Part(before), known[field] if field else Part(past if over else present)
    made.append(Part(split.end))
    if phrase.startswith("{where}"):
        made[1] = Part(made[1].text[0].upper() + made[1].text[1:])
    return made


def _joined(parts: Sequence[Part]) -> list[Part]:
    """The same parts, neighbours of one role joined."""
    made: list[Part] = []
    for part in parts:
        if made and made[-1].role == part.role:
            made[-1] = Part(made[-1].text + part.text, part.role)
        elif part.text:
            made.append(part)
    return made


def _known(
    topology: Sequence[Cpu], worst: Episode, episodes: Sequence[Episode], *, over: bool
) -> dict[str, Part]:
    """What can be put into a phrase besides names."""
    cpus = {cpu for episode in episodes for cpu in episode.cpus}
    place = where_briefly(topology, cpus, worst.cpus[0] if worst.cpus else None)
    several = any(word.endswith("s") for word in place.split(" ")) or "(" in place
    evidence = worst.evidence
    told: dict[str, Part] = {
        "kind": Part(worst.kind),
        "where": Part(place),
        "its": Part("their" if several else "its"),
        "is": Part(("were" if over else "are") if several else "was" if over else "is"),
        "counters": Part(_some(worst.cause.split(", "), len(worst.cause)), "name"),
        "cause": Part(_cause(worst)),
    }
    told |= _amounts(worst)
    return told | ({"label": Part(str(evidence["label"]), "name")} if "label" in evidence else {})


def _cause(episode: Episode) -> str:
    cap, simd = episode.evidence.get("cap"), episode.evidence.get("simd")
    if episode.cause == "policy" and isinstance(cap, Cap):
        return _CAPS.get(cap.by, f"The limit {cap.by}")
    if episode.cause == "license" and isinstance(simd, Level):
        return f"{CAUSES['license']} (level {simd.number})"
    return CAUSES.get(episode.cause, UNKNOWN)


def _people(evidence: Mapping[str, Any], names: Sequence[str], size: int) -> dict[str, Part]:
    """Who takes and who loses; names are cut to `size` characters."""
    told: dict[str, Part] = {}
    if names:
        told["loser"] = Part(_some(names, size), "name")
    who, own = (
        list(dict.fromkeys(one.comm for one in evidence.get(key, ()) if isinstance(one, Ran)))
        for key in ("who", "self")
    )
    if who:
        told["who"] = Part(_some(who, size), "name")
    elif evidence.get("self"):
        told["own"] = told.get("loser") or Part(_some(own, size) if own else "the job", "name")
    return told


def _some(names: Sequence[str], size: int) -> str:
    """The first name, and how many more."""
    first = names[0] if len(names[0]) <= size else f"{names[0][: size - 1]}…"
    return f"{first} (+{len(names) - 1})" if len(names) > 1 else first


def _amounts(episode: Episode) -> dict[str, Part]:
    told: dict[str, Part] = {}
    if amount := lost(episode):
        told["lost"] = Part(amount, "lost")
    elif episode.depth is not None and episode.kind == "throttle":
        told["nothing"] = Part("without measured loss")
    evidence = episode.evidence
    if isinstance(simd := evidence.get("simd"), Level):
        told["level"] = Part(str(simd.number))
    if {"first_hz", "steady_hz", "steady_s"} <= evidence.keys():
        told["climb"] = Part(short_duration(evidence["steady_s"]), "lost")
        told["first"] = Part(f"{evidence['first_hz'] / 1e9:.2f}")
        told["steady"] = Part(f"{evidence['steady_hz'] / 1e9:.2f} GHz")
    return told


def inside(name: str) -> str:
    """A cause in the middle of a sentence: abbreviations stay as they are."""
    return name if name[:2].isupper() else name[0].lower() + name[1:]


def lost(episode: Episode) -> str:
    """How much was lost, with its unit; '' if that is nothing or not known."""
    value = episode.depth
    if value is None or not math.isfinite(value):
        return ""
    if episode.kind in LOW_CLOCK:
        return f"{value / 1e9:.2f} GHz" if value >= LEAST_HZ else ""
    if episode.kind == "ramp":
        return ""
    if episode.kind == "smi":
        return "once" if value == 1 else f"{value:.0f} times"
    whole = episode.kind == "neighbour" and episode.cause != "hypervisor" and value >= 0.1
    return (rough(value) if whole else f"{percent(value)} %") if value >= _LEAST_SHARE else ""
