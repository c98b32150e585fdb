"""The config file: its entries, their defaults, and the errors in a file.

All errors are reported together, each with its line and with what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfprobe.frozen import field, frozen
from perftop.base.errors import USAGE, Failed
from perftop.base.files import user_directory
from perftop.tui.shared import keys
from perftop.tui.shared.choice import UNITS, Units

THEMES = ("perftop-dark", "perftop-light", "perftop-safe", "perftop-ansi")
_ENTRIES = ("theme", "units", "columns", "keys")
_TYPES = {str: "a string", bool: "true or false", int: "a number", float: "a number",
          list: "a list", dict: "a table"}  # fmt: skip
_At = tuple[str, ...]
"""Path of an entry: the names of the tables around it, then its own."""
_Wrong = Iterator[tuple[_At, str]]
_MOST_BYTES = 1 << 20


@frozen
class Config:
    theme: str = "perftop-dark"
    units: Units = "GHz"
    columns: tuple[str, ...] = ()
    """Keys of the table's columns, in their order; empty: all."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that differ from the defaults: by id of the action, Textual's names, with commas."""


def load(path: Path | None) -> Config:
    """The settings in this file; None: in the usual file, if it exists. Raises Failed."""
    chosen = path or usual()
    try:
        with chosen.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        if path is None and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return Config()
        raise Failed(f"cannot read {chosen}: {error.strerror}", USAGE) from None
    if len(raw) > _MOST_BYTES:
        raise Failed(f"{chosen}: longer than a megabyte, so it is no config file", USAGE)
    return read(raw, str(chosen))


def usual() -> Path:
    return user_directory("CONFIG", "~/.config") / "perftop" / "config.toml"


def read(raw: bytes, name: str) -> Config:
    """The settings in the bytes of a file; messages call it `name`. Raises Failed."""
    import tomllib  # most users have no file

    try:
        text = raw.decode("utf-8-sig")
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failed(name + _syntax(error, raw), USAGE) from None
    wrong = list(_wrong(document))
    if wrong:
        told = sorted({(_line(text, at), what) for at, what in wrong})
        raise Failed("\n".join(f"{name}:{line}: {what}" for line, what in told), USAGE)
    plain = Config()
    return Config(
        document.get("theme", plain.theme),
        document.get("units", plain.units),
        tuple(document.get("columns", ())),
        _keymap(document.get("keys", {})),
    )


def default() -> str:
    """A config file with all entries at their defaults."""
    plain = Config()
    lines = [
        "# Settings of perftop. These are the defaults; every line may be left out.",
        "# Their place: ~/.config/perftop/config.toml, or wherever --config says.",
        "",
        f"# {', '.join(THEMES)}: the last two are for colour-blind eyes,",
        "# and of the 16 colours that the terminal has",
        f'theme = "{plain.theme}"',
        f"# Unit of clocks: {', '.join(UNITS)} (multiples of the base clock)",
        f'units = "{plain.units}"',
        '# Of the table, in their order, called as in `stat --json`: ["util", "ipc"]; [] is all',
        "columns = []",
        "",
        '# Keys of each action, with commas between; "" is none. A sign is itself, or its name:',
        "# question_mark is ?, and a comma is always comma. Others are space, enter, escape, tab,",
        "# f1, up, pageup, home, shift+left, ctrl+p.",
        "[keys]",
    ]
    for place, where in _PLACES.items():
        mine = [key for key in keys.KEYS if key.place == place]
        lines += [f"# {where}"] if mine else []
        pairs = [f'{key.id} = "{key.keys}"' for key in mine]
        lines += [f"{pair:<38} # {key.tooltip}" for pair, key in zip(pairs, mine, strict=True)]
    return "\n".join(lines) + "\n"


_PLACES: dict[keys.Place, str] = {
    "app": "Everywhere",
    "replay": "On a recording",
    "monitor": "In all views",
    "rows": "Overview, time, table",
    "heat": "Heat map",
    "time": "Time",
    "table": "Table",
    "core": "Page of a core",
    "help": "Help",
    "menu": "Lists to choose from",
    "chooser": "Lists to choose some of",
    "output": "What a command prints, where it fills the screen",
    "prompt": "The line to type into",
    "fleet": "Fleet, besides those of the same name above",
}


# --- errors


def _wrong(document: dict[str, Any]) -> _Wrong:
    for name, value in document.items():
        if name not in _ENTRIES:
            what = "table" if isinstance(value, dict) else "entry"
            yield (name,), f"unknown {what} {name!r}{_instead(name, _ENTRIES)}"
    yield from _wrong_choice(document, "theme", THEMES)
    yield from _wrong_choice(document, "units", UNITS)
    yield from _wrong_columns(document.get("columns", []))
    table = document.get("keys", {})
    if isinstance(table, dict):
        bad = list(_wrong_keys(table))
        yield from bad
        yield from _wrong_together(_keymap(table), {at[-1] for at, _ in bad})
    else:
        yield ("keys",), f"keys is {_type(table)}: it must be a table, [keys]"


def _wrong_choice(document: dict[str, Any], name: str, known: tuple[str, ...]) -> _Wrong:
    value = document.get(name, known[0])
    if not isinstance(value, str):
        yield (name,), f'{name} is {_type(value)}: it must be a string such as "{known[0]}"'
    elif value not in known:
        yield (name,), f"unknown {name} {value!r}: there are {', '.join(known)}"


def _wrong_columns(columns: object) -> _Wrong:
    at = ("columns",)
    if not isinstance(columns, list):
        yield at, f'columns is {_type(columns)}: it must be a list such as ["util", "ipc"]'
        return
    if columns:
        from perftop.session.values import ALL, is_possible  # brings numpy

        known = [column.key for column in ALL]
        for name in columns:
            if not isinstance(name, str):
                yield at, f'a column is {_type(name)}: it must be a string such as "util"'
            elif not is_possible(name):
                yield at, f"unknown column {name!r}{_instead(name, known)}"


def _wrong_keys(table: dict[str, Any]) -> _Wrong:
    ids = [key.id for key in keys.KEYS]
    for name, value in table.items():
        at = ("keys", name)
        if name not in ids:
            lists = "perftop --default-config lists them"
            yield at, f"unknown action {name!r}{_instead(name, ids, lists)}"
        elif not isinstance(value, str):
            yield at, f'{name} is {_type(value)}: it must be a string such as "q,f10"'
        else:
            for part, known in zip(value.split(","), _named(value), strict=False):
                if known is None:
                    yield at, f"{name}: {_no_key(part.strip())}"


def _no_key(name: str) -> str:
    if not name:
        return "a key is missing beside a comma; a comma itself is comma, a space is space"
    usual = [part for key in keys.KEYS for part in key.keys.split(",") if len(part) > 1]
    return f"there is no key {name!r}{_instead(name, usual, 'such as q, Q, f1, ctrl+p')}"


def _wrong_together(keymap: dict[str, str], bad: set[str]) -> _Wrong:
    """Errors in the keys of several actions; `bad`: actions to skip, their keys are wrong."""
    usual = set(keys.clashes({}))
    for name, one, other in dict.fromkeys(keys.clashes(keymap)):
        if (name, one, other) not in usual and not bad & {one.id, other.id}:
            mine, theirs = (other, one) if other.id in keymap else (one, other)
            what = f"{mine.id}: {name} is a key of {theirs.id}, too, in the same view"
            yield ("keys", mine.id), f"{what}: one of them needs another"
    if keymap.get("quit") == keys.NONE:
        yield ("keys", "quit"), "quit has no key: it needs one, such as q"


def _keymap(table: Mapping[str, Any]) -> dict[str, str]:
    """The valid entries that differ from the defaults."""
    made = {}
    for key in keys.KEYS:
        value = table.get(key.id)
        named = _named(value) if isinstance(value, str) else [None]
        wanted = ",".join(dict.fromkeys(name for name in named if name)) or keys.NONE
        if None not in named and wanted != key.keys:
            made[key.id] = wanted
    return made


def _named(value: str) -> list[str | None]:
    """Textual's names of the keys in an entry; None for each unknown key."""
    return [keys.canonical(part.strip()) for part in value.split(",")] if value else []


def _instead(name: str, known: Iterable[str], otherwise: str = "") -> str:
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name, names, 1)
    known_ = otherwise or f"there are {', '.join(names)}"
    return f": did you mean {near[0]}?" if near else f": {known_}"


def _type(value: object) -> str:
    return _TYPES.get(type(value), "a date or time")


# --- where


def _syntax(error: Exception, raw: bytes) -> str:
    """Line and reason of a syntax error."""
    import tomllib

    if isinstance(error, UnicodeDecodeError):
        return f":{raw[: error.start].count(10) + 1}: this is no UTF-8"
    if isinstance(error, RecursionError):
        return ": lists or tables in one another, too many"
    what, _, where = str(error).rpartition(" (at ")
    if not isinstance(error, tomllib.TOMLDecodeError):
        return ": a number has too many digits"
    found = re.match(r"line ([0-9]+)", where)
    line = int(found[1]) if found else raw.count(10) + 1
    text = "; text needs quotes around it" if found and what == "Invalid value" else ""
    return f":{line}: {what}{text}"


def _line(text: str, at: _At) -> int:
    """The line with the name of an entry, behind the names of the tables around it, which tomllib
    does not tell; that of the last name which is found if there is no such line."""
    rows, found = text.split("\n"), 0
    for name in at:
        named = re.compile(rf"[^#]*(?<![\w-]){re.escape(name)}[\"']?\s*[=.\]]")
        found = next((i for i in range(found, len(rows)) if named.match(rows[i])), found)
    return found + 1
