"""The config file: its entries, their defaults, and the checks of a file. All errors in a file are
reported together, each with its line and a suggested correction. Also the line that is shown while
perftop starts, and the check for a new user."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perftop.base.errors import USAGE, Failed
from perftop.base.files import make_directory, open_to_write, user_directory
from perftop.base.text import UNITS, Units, did_you_mean
from perftop.process.signals import ExitSignals
from perftop.tui.shared import keys

THEMES = ("perftop-dark", "perftop-light", "perftop-safe", "perftop-ansi")
_ENTRIES = ("theme", "units", "columns", "keys")
_TYPE_NAMES = {str: "a string", bool: "true or false", int: "a number", float: "a number",
               list: "a list", dict: "a table"}  # fmt: skip
_MISSING_KEY_ERROR = "a key is missing beside a comma; a comma itself is comma, a space is space"
_MAX_BYTES = 1 << 20
_EntryError = tuple[tuple[str, ...], str]
"""Path of an entry (the names of its tables, then its name), and an error message."""


@dataclass(frozen=True, slots=True)
class Config:
    theme: str = "perftop-dark"
    units: Units = "GHz"
    columns: tuple[str, ...] = ()
    """Keys of the columns of the table, in order; empty: all columns."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Textual's names of keys that differ from the default, with commas, by id of the action."""


def load(path: Path | None) -> Config:
    """Returns the settings in this file; None: in the default file, if there is one. Raises Failed
    if the file cannot be read or has errors."""
    config_path = path or user_directory("CONFIG", "~/.config") / "perftop" / "config.toml"
    try:
        if path is None and config_path.exists() and not config_path.is_file():
            # reading another user's pipe would wait forever
            raise Failed(f"cannot read {config_path}: it is not a file", USAGE)
        with config_path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        if path is None and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return Config()
        raise Failed(f"cannot read {config_path}: {error.strerror}", USAGE) from None
    if len(raw) > _MAX_BYTES:
        raise Failed(f"{config_path}: larger than a megabyte, so it is not a config file", USAGE)
    return parse_config(raw, str(config_path))


def parse_config(raw: bytes, name: str) -> Config:
    """Parses the contents of the config file `name`. Raises Failed with all errors."""
    import tomllib  # imported late because most users have no config file

    try:
        text = raw.decode("utf-8-sig")
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failed(name + _syntax_problem(error, raw), USAGE) from None
    errors = {(_line_number(text, path), problem) for path, problem in _errors(document)}
    if errors:
        first, *other_errors = [f"{name}:{line}: {problem}" for line, problem in sorted(errors)]
        raise Failed(first, USAGE, extra_lines=other_errors)
    columns, keymap = tuple(document.get("columns", ())), _keymap(document.get("keys", {}))
    return Config(**(document | {"columns": columns, "keys": keymap}))


def default_text() -> str:
    config = Config()
    lines = [
        "# Settings of perftop. These are the defaults; every line may be left out.",
        "# Location: ~/.config/perftop/config.toml, or the file given with --config.",
        "",
        f"# {', '.join(THEMES)}: the last two are for colour-blind users",
        "# and for the 16 colours of the terminal",
        f'theme = "{config.theme}"',
        f"# Unit of clocks: {', '.join(UNITS)} (multiples of the base clock)",
        f'units = "{config.units}"',
        '# Columns of the table, by their names in `stat --json`: ["util", "ipc"]; [] is all',
        "columns = []",
        "",
        '# Keys of each action, separated by commas; "" is none. A key is a character or a name:',
        "# question_mark is ?, and a comma is always comma. Other names: space, enter, escape,",
        "# tab, f1, up, pageup, home, shift+left, ctrl+p.",
        "[keys]",
    ]
    for scope, title in _SCOPE_TITLES.items():
        lines.append(f"# {title}")
        for key in keys.KEYS:
            if key.scope == scope:
                pair = f'{key.id} = "{key.keys}"'
                lines.append(f"{pair:<38} # {key.tooltip}")
    return "\n".join(lines) + "\n"


_SCOPE_TITLES: dict[keys.KeyScope, str] = {
    "app": "Everywhere",
    "replay": "While a recording is shown",
    "monitor": "In all views",
    "rows": "Overview, time, table",
    "heat": "Heat map",
    "table": "Table",
    "core": "Page of a core",
    "help": "Help",
    "menu": "Lists",
    "chooser": "Lists with several choices",
    "output": "Output of a command, while it fills the screen",
    "prompt": "Prompt",
    "fleet": "Fleet, besides the keys of the same names above",
    "pair": "Two recordings, besides the keys of the same names above",
}


# --- errors


def _errors(document: dict[str, Any]) -> Iterator[_EntryError]:
    for name, value in document.items():
        if name not in _ENTRIES:
            entry_kind = "table" if isinstance(value, dict) else "entry"
            yield (name,), f"unknown {entry_kind} {name!r}{_suggestion(name, _ENTRIES)}"
    choices: dict[str, tuple[str, ...]] = {"theme": THEMES, "units": UNITS}
    for name, known_names in choices.items():
        value = document.get(name, known_names[0])
        if not isinstance(value, str):
            hint = f'it must be a string such as "{known_names[0]}"'
            yield (name,), f"{name} is {_type_name(value)}: {hint}"
        elif value not in known_names:
            yield (name,), f"unknown {name} {value!r}; known: {', '.join(known_names)}"
    for problem in _column_errors(document.get("columns", [])):
        yield ("columns",), problem
    table = document.get("keys", {})
    if not isinstance(table, dict):
        yield ("keys",), f"keys is {_type_name(table)}: it must be a table, [keys]"
        return
    key_errors = list(_key_errors(table))
    clashes = _clashes(_keymap(table), {name for name, _ in key_errors})
    yield from ((("keys", name), problem) for name, problem in (*key_errors, *clashes))


def _column_errors(columns: object) -> Iterator[str]:
    if not isinstance(columns, list):
        yield f'columns is {_type_name(columns)}: it must be a list such as ["util", "ipc"]'
    elif columns:
        from perftop.session.values import COLUMNS_BY_KEY, is_possible_column  # imports numpy

        for name in columns:
            if not isinstance(name, str):
                yield f'a column is {_type_name(name)}: it must be a string such as "util"'
            elif not is_possible_column(name):
                yield f"unknown column {name!r}{_suggestion(name, COLUMNS_BY_KEY)}"


def _key_errors(table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the id of each action with invalid keys, and an error message."""
    known_keys = [part for key in keys.KEYS for part in key.keys.split(",") if len(part) > 1]
    for name, value in table.items():
        if name not in keys.KEYS_BY_ID:
            lists = "perftop --default-config lists them"
            yield name, f"unknown action {name!r}{_suggestion(name, keys.KEYS_BY_ID, lists)}"
        elif not isinstance(value, str):
            yield name, f'{name} is {_type_name(value)}: it must be a string such as "q,f10"'
        else:
            for part, canonical in zip(value.split(","), _canonical_keys(value), strict=False):
                if canonical is None and part.strip():
                    suggestion = _suggestion(part.strip(), known_keys, "try q, Q, f1, ctrl+p")
                    yield name, f"{name}: there is no key {part.strip()!r}{suggestion}"
                elif canonical is None:
                    yield name, f"{name}: {_MISSING_KEY_ERROR}"


def _clashes(keymap: dict[str, str], skipped_ids: set[str]) -> Iterator[tuple[str, str]]:
    """Yields an action's id and an error message for each key with two actions in one view.
    `skipped_ids`: ids of actions with invalid keys."""
    by_default = set(keys.key_clashes({}))
    for name, key_a, key_b in dict.fromkeys(keys.key_clashes(keymap)):
        if (name, key_a, key_b) not in by_default and not skipped_ids & {key_a.id, key_b.id}:
            changed_key, owner = (key_b, key_a) if key_b.id in keymap else (key_a, key_b)
            problem = f"{changed_key.id}: {name} is already a key of {owner.id} in the same view"
            yield changed_key.id, f"{problem}: change one of them"
    if keymap.get("quit") == keys.NO_KEY:
        yield "quit", "quit has no key: it needs one, such as q"


def _keymap(table: Mapping[str, Any]) -> dict[str, str]:
    """Returns the keys of the valid entries that differ from the default."""
    keymap = {}
    for key in keys.KEYS:
        value = table.get(key.id)
        names = _canonical_keys(value) if isinstance(value, str) else [None]
        key_list = ",".join(dict.fromkeys(name for name in names if name)) or keys.NO_KEY
        if None not in names and key_list != key.keys:
            keymap[key.id] = key_list
    return keymap


def _canonical_keys(value: str) -> list[str | None]:
    """Returns Textual's names of the keys in an entry; None for each unknown key."""
    return [keys.textual_name(part.strip()) for part in value.split(",")] if value else []


def _suggestion(name: str, known_names: Collection[str], default: str = "") -> str:
    return did_you_mean(name, known_names, default or f"known: {', '.join(known_names)}")


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value), "a date or time")


def _syntax_problem(error: Exception, raw: bytes) -> str:
    """Returns the line number and the reason for a syntax error, to append to the file name."""
    import tomllib

    if isinstance(error, UnicodeDecodeError):
        return f":{raw[: error.start].count(10) + 1}: not UTF-8"
    if isinstance(error, RecursionError):
        return ": lists or tables are nested too deeply"
    if not isinstance(error, tomllib.TOMLDecodeError):
        return ": a number has too many digits"
    problem, _, position = str(error).rpartition(" (at ")
    number = re.match(r"line ([0-9]+)", position)
    line = int(number[1]) if number else raw.count(10) + 1
    text = "; text needs quotes around it" if number and problem == "Invalid value" else ""
    return f":{line}: {problem}{text}"


def _line_number(text: str, key_path: tuple[str, ...]) -> int:
    """Returns the number of the line with an entry, which tomllib does not report. Searches for the
    names of the path in turn, and ignores those that it does not find."""
    rows, line = text.split("\n"), 0
    for name in key_path:
        entry_pattern = re.compile(rf"[^#]*(?<![\w-]){re.escape(name)}[\"']?\s*[=.\]]")
        line = next((i for i in range(line, len(rows)) if entry_pattern.match(rows[i])), line)
    return line + 1


# --- The first picture: a line on the screen while modules are being imported. It is drawn with
# escape sequences, because Textual takes too long to import.

_SHOW_SEQUENCE = (
    "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J \x1b[1mperftop\x1b[0m  {host} \x1b[2m  starting\x1b[0m"
)
_HIDE_SEQUENCE = "\x1b[?1049l\x1b[?25h"


class StartPicture:
    is_shown = True

    def hand_over(self) -> None:
        """Leaves the alternate screen to the app, which restores the main screen at its end."""
        self.is_shown = False


@contextmanager
def show_picture() -> Iterator[StartPicture]:
    """Shows the picture on the terminal's alternate screen until the end of the block, or until a
    signal ends perftop, unless the app has taken over the screen. Keys typed meanwhile are not
    echoed; they can be read afterwards."""
    fd, picture = sys.stdout.fileno(), StartPicture()
    # If perftop was started in the background, stop it until the shell brings it to the foreground.
    # The kernel would do so only when terminal settings are changed, after the picture was drawn.
    with suppress(OSError):  # the terminal does not control our session
        if os.tcgetpgrp(fd) != os.getpgrp():
            signal.raise_signal(signal.SIGTTOU)
    saved_modes = termios.tcgetattr(fd)
    quiet_modes = termios.tcgetattr(fd)
    quiet_modes[3] &= ~termios.ECHO
    with ExitSignals() as exits:
        host = "".join(c for c in os.uname().nodename if c.isascii() and c.isprintable())
        _write(fd, _SHOW_SEQUENCE.format(host=host))
        try:
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(fd, termios.TCSANOW, quiet_modes)
            exits.raise_signals()
            yield picture
        finally:
            exits.ignore_all()
            with suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSANOW, saved_modes)
            if picture.is_shown:
                _write(fd, _HIDE_SEQUENCE)


def _write(fd: int, text: str) -> None:
    with suppress(OSError):
        os.write(fd, text.encode())


def is_first_start() -> bool:
    """Returns whether this is the user's first start, and records it; False if that cannot be
    recorded."""
    marker_path = user_directory("STATE", "~/.local/state") / "perftop" / "greeted"
    try:
        make_directory(marker_path.parent, parents=True)
        os.close(open_to_write(marker_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return False
    return True
