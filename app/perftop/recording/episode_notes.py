"""Episodes as notes of the wire, so that its checks hold for them too."""

from __future__ import annotations

import types
import typing
from typing import Any

import numpy as np

from perfprobe import wire
from perftop.samples import evidence
from perftop.samples.episode import Episode

KIND = "episode"
"""Kind of a note that holds an episode."""
_TYPES: dict[str, type[Any]] = {
    name: cls for name, cls in vars(evidence).items() if getattr(cls, "__bases__", ()) == (tuple,)
}
"""All of them, by name."""
_PLAIN: dict[str, type[Any]] = {"list": list, "tuple": tuple}
_CONFIDENCE = "measured", "inferred", "unknown"


def note(episode: Episode) -> wire.Note:
    data = {
        "kind": episode.kind,
        "cpus": [int(cpu) for cpu in episode.cpus],
        "end_ns": None if episode.end_ns is None else int(episode.end_ns),
        "depth": None if episode.depth is None else float(episode.depth),
        "cause": episode.cause,
        "evidence": {key: _packed(value) for key, value in episode.evidence.items()},
        "confidence": episode.confidence,
    }
    return wire.Note(KIND, int(episode.start_ns), "perftop", data)


def episode(note: wire.Note) -> Episode:
    """Raises WireError if the note is none of an episode."""
    try:
        data = note.data
        made = Episode(
            data["kind"], data["cpus"], note.time_ns, data["end_ns"], data["depth"], data["cause"],
            {key: _unpacked(value) for key, value in data["evidence"].items()},
            data["confidence"],
        )  # fmt: skip
        numbers = [*made.cpus, *(() if made.end_ns is None else (made.end_ns,))]
        fits = (
            isinstance(made.kind, str)
            and isinstance(made.cause, str)
            and made.confidence in _CONFIDENCE
            and (made.depth is None or type(made.depth) is float)
            and all(type(number) is int for number in numbers)
            and (made.kind != "mark" or isinstance(made.evidence.get("label"), str))
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise wire.WireError(f"a note of no episode ({error!r})") from None
    if not fits:
        raise wire.WireError("a note of no episode")
    return made


def _packed(value: Any) -> Any:
    """A list is packed behind the name of its type; numbers of numpy become plain."""
    if isinstance(value, str | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(_packed, value)]
    return int(value) if isinstance(value, int | np.integer) else float(value)


def _unpacked(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    name, *parts = value
    found = [*map(_unpacked, parts)]
    if name in _PLAIN:
        return _PLAIN[name](found)
    cls = _TYPES[name]
    hints = typing.get_type_hints(cls)
    if len(found) != len(hints) or not all(map(_is, found, hints.values())):
        raise ValueError(name)
    return cls(*found)


def _is(value: Any, hint: Any) -> bool:
    """Whether a value fits one of the hints that the types of evidence have."""
    if typing.get_origin(hint) is tuple:
        return type(value) is tuple and all(isinstance(v, typing.get_args(hint)[0]) for v in value)
    if isinstance(hint, types.UnionType):
        return any(_is(value, option) for option in typing.get_args(hint))
    return isinstance(value, int | float if hint is float else hint)
