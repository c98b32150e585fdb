"""Parses the argument of -e/--events, a list of events in the syntax of perf: names,
`cpu/event=0xd1,umask=1/`, raw codes, rings after a colon (u: user, k: kernel), groups in braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perfprobe.errors import UsageError

MAX_EVENTS = 32
"""Maximum number of events in the list; more events would each be counted too rarely."""
KEY_PREFIX = "e."
"""Prefix of the counter keys of chosen events on the wire."""
_PMU = re.compile(r"([A-Za-z0-9_-]+)/([^/]*)/(?::?([A-Za-z]+))?")
_WORD = re.compile(r"([A-Za-z][A-Za-z0-9_.:-]*)")
_NAME = re.compile(r"[A-Za-z0-9_.:/=,+-]{1,64}")
_RINGS = frozenset("ukh")
"""Letters for user, kernel and hypervisor; the last is ignored."""


@dataclass(frozen=True, slots=True)
class EventRequest:
    """An event as the user wrote it."""

    name: str
    """The event's name in column headings."""
    catalogue_name: str = ""
    """The event's name in the catalogue; empty if the user gave PMU and terms instead."""
    pmu: str = ""
    terms: str = ""
    """The text between the slashes, such as "event=0xd1,umask=1"."""
    user_only: bool = False
    kernel_only: bool = False
    """If both flags are false, both rings are counted."""
    key: str = ""
    """The counter's key on the wire."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or KEY_PREFIX + self.name)


def parse_groups(text: str) -> list[list[EventRequest]]:
    """Returns the groups in the list; an event outside braces is a group. Raises ValueError."""
    groups = [_parse_group(item) for item in _split_at_commas(text)]
    names = [event.name for group in groups for event in group]
    if len(names) > MAX_EVENTS:
        raise UsageError(f"-e: {len(names)} events; at most {MAX_EVENTS}")
    repeated_name = next((name for name in names if names.count(name) > 1), None)
    if repeated_name is not None:
        raise UsageError(f"-e: {repeated_name} is listed twice")
    return groups


def nearest_names(word: str, names: Iterable[str]) -> list[str]:
    """Returns up to three names that are similar to the word, or have a similar part."""
    import difflib  # imported here, because only a wrong name needs it

    by_lower = {name.lower(): name for name in names}
    parts: dict[str, list[str]] = {}
    for low in by_lower:
        for part in re.split("[-._]", low):
            parts.setdefault(part, []).append(low)
    matches = difflib.get_close_matches(word.lower(), by_lower, 3, 0.6)
    for part in difflib.get_close_matches(word.lower(), parts, 3, 0.7):
        matches += parts[part]
    return [by_lower[low] for low in dict.fromkeys(matches)][:3]


def _split_at_commas(text: str) -> Iterator[str]:
    """Splits a list of events at the commas that are neither in braces nor between slashes."""
    item, braces, slash = "", 0, False
    for letter in text:
        slash ^= letter == "/"
        braces += (letter == "{") - (letter == "}")
        if letter == "," and not braces and not slash:
            yield item
            item = ""
        else:
            item += letter
    if braces or slash:
        raise UsageError(f"-e {text}: unbalanced brace or slash")
    yield item


def _parse_group(item: str) -> list[EventRequest]:
    item = item.strip()
    if not item.startswith("{"):
        return [_parse_event(item, "")]
    inner, brace, rings = item[1:].rpartition("}")
    if not brace or rings[:1] not in {"", ":"}:
        raise UsageError(f"-e {item}: a group is {{a,b}} or {{a,b}}:u")
    return [_parse_event(event.strip(), rings[1:]) for event in _split_at_commas(inner)]


def _parse_event(text: str, rings: str) -> EventRequest:
    """Parses one event. `rings` are those of its group, which apply if the event has none."""
    word = pmu = terms = ""
    if (match := _PMU.fullmatch(text)) is not None:
        pmu, own_rings = match[1], match[3] or ""
        items = match[2].split(",")
        names = [item.strip()[5:] for item in items if item.strip().startswith("name=")]
        terms = ",".join(item for item in items if not item.strip().startswith("name="))
        name = (names[-1] if names else "") or f"{pmu}/{terms}/"
    elif _WORD.fullmatch(text) is not None:
        word, _, own_rings = text.rpartition(":")
        if not word or not set(own_rings) <= _RINGS:
            word, own_rings = text, ""
        name = word
    else:
        raise UsageError(
            f"-e {text or repr(text)}: an event is a NAME, PMU/event=0xd1,umask=1,name=NAME/ "
            "or rUUEE, with :u or :k after it"
        )
    rings = own_rings or rings
    if not set(rings) <= _RINGS:
        raise UsageError(f"-e {name}:{rings}: after the colon: u, k or both")
    name = f"{name}:{rings}" if rings else name
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"-e {name!r}: a name has at most 64 letters, digits and _.:/=,+-")
    counted = set(rings) - {"h"}
    return EventRequest(name, word, pmu, terms, counted == {"u"}, counted == {"k"})
