"""The table of all keys. Bindings, help, the config file and the last line of the screen are made
from it. Only `bindings_by_id` and `textual_name` import Textual."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from textual.binding import Binding

KeyScope = Literal[
    "app", "replay", "monitor", "rows", "heat", "time", "table", "core", "help", "menu", "chooser",
    "prompt", "output", "fleet", "pair",
]  # fmt: skip
"""The places where a key works: everywhere (app), in recordings (replay), in all views (monitor),
in views whose cursor moves up and down (rows), in one view, in lists (menu), in lists with several
choices (chooser), in the prompt, in a command's full-screen output, on the fleet's screen, or on
the screen of two recordings."""


@dataclass(frozen=True, slots=True)
class Key:
    id: str
    scope: KeyScope
    keys: str
    """Textual's names of the keys, separated by commas."""
    action: str
    label: str
    """The label in the last line of the screen, one or two words."""
    tooltip: str
    """A sentence for the help screen and the config file."""
    priority: bool = False
    """Whether the key acts even if a widget, such as a prompt, has the focus."""


KEYS: tuple[Key, ...] = (
    Key("quit", "app", "q,f10", "quit", "quit", "Quit"),
    Key("interrupt", "app", "ctrl+c", "interrupt", "quit",
        "Quit; while a command runs, interrupt it instead", priority=True),
    Key("pause", "app", "space", "source('toggle_pause')", "pause",
        "Freeze the display; recording of history continues"),
    Key("longer", "app", "plus", "source('change_interval',1)", "longer",
        "Longer interval: what one step of the numbers covers"),
    Key("shorter", "app", "minus", "source('change_interval',-1)", "shorter",
        "Shorter interval, down to the sampling interval"),
    Key("usual", "app", "equals_sign", "source('change_interval',0)", "reset",
        "Reset the interval"),
    Key("record", "app", "R", "source('record')", "record",
        "Start or stop recording to a file in this directory, history included"),
    Key("theme", "app", "T", "theme", "theme", "Next theme"),
    Key("palette", "app", "colon,f2,ctrl+p", "source('open_palette')", "commands",
        "Command palette"),
    Key("redraw", "app", "ctrl+l", "redraw", "redraw",
        "Redraw the screen if another program has written over it"),
    Key("suspend", "app", "ctrl+z", "suspend_process", "suspend",
        "Suspend (fg to return)", priority=True),

    Key("faster", "replay", "right_curly_bracket", "source('change_speed',1)", "faster",
        "Play faster, up to as fast as the file can be read"),
    Key("slower", "replay", "left_curly_bracket", "source('change_speed',-1)", "slower",
        "Play slower"),
    Key("begin", "replay", "0,ctrl+home", "source('go_to_start')", "start",
        "Go to the start of the recording"),
    Key("finish", "replay", "dollar_sign,ctrl+end", "source('go_to_end')", "end",
        "Go to the end of the recording"),

    Key("help", "monitor", "question_mark,h,f1", "help", "help",
        "Keys, shapes and what every number means"),
    Key("overview", "monitor", "1", "view('overview')", "overview", "Overview: a row per core"),
    Key("heat", "monitor", "2", "view('heat')", "heat", "Heat map: a cell per core or machine"),
    Key("time", "monitor", "3", "view('time')", "time", "Time: the history of every CPU"),
    Key("table", "monitor", "4", "view('table')", "table", "Table: every number of every CPU"),
    Key("episodes", "monitor", "5", "view('episodes')", "episodes",
        "Episodes: what happened, where and why"),
    Key("neighbours", "monitor", "6", "view('neighbours')", "neighbours",
        "Neighbours: who loses to whom"),
    Key("next_view", "monitor", "tab", "cycle_view(1)", "next view", "Next view"),
    Key("previous_view", "monitor", "shift+tab", "cycle_view(-1)", "previous view",
        "Previous view"),
    Key("open", "monitor", "enter", "open", "core", "Open the page of the selected core"),
    Key("back", "monitor", "escape", "back", "back",
        "Back: leave a core, a filter, a range, a past moment"),
    Key("filter", "monitor", "slash,f3,f4", "filter", "filter", "Show only CPUs that match"),
    Key("clear", "monitor", "backslash", "clear", "all", "Show all CPUs again"),
    Key("sort", "monitor", "s,f6", "sort_menu", "sort", "Choose the column to sort by"),
    Key("order", "monitor", "o", "cycle('order')", "order",
        "Order of rows: topology, CPU number, worst first"),
    Key("reverse", "monitor", "r", "reverse", "reverse", "Reverse the order"),
    Key("metric", "monitor", "v", "metric(1)", "metric",
        "Next metric of the heat map and of the time view"),
    Key("metric_back", "monitor", "V", "metric(-1)", "metric back", "Previous metric"),
    Key("units", "monitor", "u", "cycle('units')", "units",
        "Clocks in GHz, in MHz or as multiples of base"),
    Key("owners", "monitor", "a,i", "cycle('grouping')", "owners",
        "Who runs: by task, by job (unit, container, pod), or by control group"),
    Key("step_back", "app", "left,comma", "source('step',-1)", "back", "One sample back (pauses)"),
    Key("step_on", "app", "right,full_stop", "source('step',1)", "on", "One sample forward"),
    Key("leap_back", "app", "shift+left", "source('skip',-10)", "10 s back",
        "Ten seconds back"),
    Key("leap_on", "app", "shift+right", "source('skip',10)", "10 s on",
        "Ten seconds forward"),
    Key("jump", "monitor", "J", "jump", "jump", "Go to a time: 12:03:05, or -30s"),
    Key("mark", "monitor", "m", "mark", "mark", "Name this moment, or the selected range"),
    Key("next_episode", "monitor", "n", "go_to_episode(1)", "next episode",
        "Go to the next episode"),
    Key("previous_episode", "monitor", "N", "go_to_episode(-1)", "previous episode",
        "Go to the previous episode"),
    Key("narrower", "monitor", "left_square_bracket", "resize_window(-1)", "shorter window",
        "Show less time on time axes"),
    Key("wider", "monitor", "right_square_bracket", "resize_window(1)", "longer window",
        "Show more time on time axes"),

    Key("report", "monitor", "w", "why", "why", "The whole report behind the verdict"),
    Key("try", "monitor", "y", "try", "try",
        "Show a remedy for the worst or the selected loss; press again to copy it"),
    Key("range_start", "monitor", "less_than_sign", "set_range(False)", "range from",
        "Start a range at the shown moment"),
    Key("range_end", "monitor", "greater_than_sign", "set_range(True)", "range to",
        "End the range at the shown moment; all numbers then cover the range"),
    Key("hold", "monitor", "d", "hold_range", "compare",
        "Hold the selected range as A; the range selected next, B, is compared with it"),
    Key("output", "monitor", "O", "output", "output",
        "Output of the command: full screen, hidden, below the view"),

    Key("up", "rows", "up,k", "move(-1)", "up", "One row up"),
    Key("down", "rows", "down,j", "move(1)", "down", "One row down"),
    Key("page_up", "rows", "pageup", "page(-1)", "page up", "A page up"),
    Key("page_down", "rows", "pagedown", "page(1)", "page down", "A page down"),
    Key("first", "rows", "home,g", "end(-1)", "first", "First row"),
    Key("last", "rows", "end,G", "end(1)", "last", "Last row"),
    Key("fold", "rows", "t,f5", "fold", "fold",
        "Fold packages (overview), tasks of one name (neighbours), machines alike (fleet)"),

    Key("heat_up", "heat", "up,k", "cell(0,-1)", "up", "One cell up"),
    Key("heat_down", "heat", "down,j", "cell(0,1)", "down", "One cell down"),
    Key("heat_left", "heat", "left", "cell(-1,0)", "left", "One cell to the left"),
    Key("heat_right", "heat", "right,l", "cell(1,0)", "right", "One cell to the right"),
    Key("heat_first", "heat", "home,g", "end(-1)", "first", "First core"),
    Key("heat_last", "heat", "end,G", "end(1)", "last", "Last core"),
    Key("heat_page_up", "heat", "pageup", "page(-1)", "page up", "A page up"),
    Key("heat_page_down", "heat", "pagedown", "page(1)", "page down", "A page down"),
    Key("heat_worst", "heat", "W", "worst", "next worst",
        "Go to the core that loses most; then to the next one"),
    Key("heat_zoom", "heat", "z", "zoom", "zoom",
        "Show only the package of the selected core; all packages again"),

    Key("scroll_left", "table", "left", "scroll_columns(-1)", "left", "Scroll columns left"),
    Key("scroll_right", "table", "right", "scroll_columns(1)", "right", "Scroll columns right"),
    Key("columns", "table", "c", "screen.columns", "columns", "Choose columns"),

    Key("core_up", "core", "up,k", "neighbour(-1)", "core", "Previous core"),
    Key("core_down", "core", "down,j", "neighbour(1)", "core", "Next core"),

    Key("help_back", "help", "escape,q,question_mark,h,f1,w", "dismiss", "back", "Back"),
    Key("help_up", "help", "k", "scroll_up", "up", "A line up"),
    Key("help_down", "help", "j", "scroll_down", "down", "A line down"),

    Key("menu_back", "menu", "escape,q", "dismiss", "back", "Back without changes"),
    Key("menu_up", "menu", "k", "move(-1)", "up", "Previous entry"),
    Key("menu_down", "menu", "j", "move(1)", "down", "Next entry"),
    Key("tick", "chooser", "space", "tick", "tick", "Tick or untick this entry"),
    Key("tick_all", "chooser", "a", "tick_all", "all", "Tick all, or none if all are ticked"),
    Key("accept", "chooser", "enter", "accept", "done", "Apply", priority=True),

    Key("leave", "prompt", "escape", "leave", "back", "Back without changes"),

    Key("output_up", "output", "up,k", "scroll_up", "up", "A line up"),
    Key("output_down", "output", "down,j", "scroll_down", "down", "A line down"),
    Key("output_page_up", "output", "pageup", "page_up", "page up", "A page up"),
    Key("output_page_down", "output", "pagedown", "page_down", "page down", "A page down"),
    Key("output_first", "output", "home,g", "scroll_home", "first", "First line that is kept"),
    Key("output_last", "output", "end,G", "scroll_end", "last", "Last line; new lines follow"),

    Key("machines", "fleet", "1", "view('machines')", "machines", "Machines: a row per machine"),
    Key("fleet_episodes", "fleet", "3", "view('fleet_episodes')", "episodes",
        "Episodes of all machines"),
    Key("why", "fleet", "w", "open('why')", "why", "What costs the selected machine most"),
    Key("sort_next", "fleet", "s", "sort(1)", "sort", "Sort by the next column"),
    Key("sort_before", "fleet", "S", "sort(-1)", "sort", "Sort by the previous column"),

    Key("align", "pair", "a", "align", "align",
        "Align at the next moment found in both recordings: start, command, marks"),
)  # fmt: skip
"""All keys. If an action has several keys, the screen shows the first."""
KEYS_BY_ID = {key.id: key for key in KEYS}
FLEET_KEYS = (
    "machines", "heat", "fleet_episodes", "open", "why", "next_episode",
    "previous_episode", "filter", "sort_next", "sort_before", "metric", "metric_back", "help",
    "fold", "up", "down", "first", "last", "page_up", "page_down", "reverse", "back", "try",
)  # fmt: skip
PAIR_KEYS = (
    "next_episode", "previous_episode", "narrower", "wider", "align", "range_start", "range_end",
    "back", "report", "help",
)  # fmt: skip
"""Ids of the keys, besides those of the whole app, of the fleet's screen (FLEET_KEYS) and of the
screen that compares two recordings (PAIR_KEYS)."""


def bindings(*scopes: KeyScope) -> list[Binding]:
    """Returns Textual bindings of the keys with these scopes, for use as a class's `BINDINGS`."""
    return bindings_by_id(key.id for key in KEYS if key.scope in scopes)


def bindings_by_id(ids: Iterable[str]) -> list[Binding]:
    from textual.binding import Binding

    return [
        Binding(key.keys, key.action, key.label, id=key.id, tooltip=key.tooltip, show=False,
                priority=key.priority)
        for key in map(KEYS_BY_ID.__getitem__, ids)
    ]  # fmt: skip


KEY_NAMES = {
    "question_mark": "?", "plus": "+", "equals_sign": "=", "minus": "-", "underscore": "_",
    "space": "space", "pageup": "PgUp", "pagedown": "PgDn", "home": "Home", "end": "End",
    "up": "↑", "down": "↓", "left": "←", "right": "→", "enter": "enter", "escape": "esc",
    "tab": "tab", "slash": "/", "backslash": "\\", "comma": ",", "full_stop": ".", "colon": ":",
    "dollar_sign": "$", "left_curly_bracket": "{", "right_curly_bracket": "}",
    "less_than_sign": "<", "greater_than_sign": ">", "left_square_bracket": "[",
    "right_square_bracket": "]",
}  # fmt: skip
"""Displayed names of keys, by Textual's name, where the two differ."""


def key_caption(key: str) -> str:
    """Returns the displayed name of a key, such as ctrl+p, shift+← or ?, for Textual's name. It is
    the ASCII character with this Unicode name (; for `semicolon`), if there is one."""
    *modifiers, key_name = key.split("+")
    is_function = key_name[:1] == "f" and key_name[1:].isdigit()
    name = key_name.upper() if is_function else KEY_NAMES.get(key_name, key_name)
    # A letter is its own name, and looking it up would load a megabyte of Unicode names.
    if not is_function and key_name not in KEY_NAMES and len(key_name) > 1:
        with suppress(KeyError):
            sign = unicodedata.lookup(key_name.replace("_", " ").upper())
            name = sign if sign.isascii() and sign.isprintable() else key_name
    return "+".join([*modifiers, name])


def key_captions(keymap: Mapping[str, str]) -> dict[str, str]:
    """Returns the displayed name of the first key of each action, by id, with the user's keymap."""
    return {key.id: key_caption(keymap.get(key.id, key.keys).split(",")[0]) for key in KEYS}


# --- the user's keymap

SCOPES_BY_VIEW: dict[str, tuple[KeyScope, ...]] = {
    "overview": ("app", "replay", "monitor", "rows"),
    "heat": ("app", "replay", "monitor", "heat"),
    "time": ("app", "replay", "monitor", "rows", "time"),
    "table": ("app", "replay", "monitor", "rows", "table"),
    "episodes": ("app", "replay", "monitor", "rows"),
    "neighbours": ("app", "replay", "monitor", "rows"),
    "core": ("app", "replay", "monitor", "core"),
    "help": ("app", "help"),
    "menu": ("menu",),
    "chooser": ("menu", "chooser"),
    "prompt": ("prompt",),
    "output": ("app", "monitor", "output"),
}
"""The scopes of the keys in each view. Keys of later scopes override equal keys of earlier ones."""
KEY_GROUPS: dict[str, tuple[str, ...]] = {
    "move": (
        "up", "down", "page_up", "page_down", "first", "last", "heat_up", "heat_down", "heat_left",
        "heat_right", "heat_first", "heat_last", "heat_page_up", "heat_page_down", "heat_worst",
        "heat_zoom", "core_up", "core_down", "open", "back", "scroll_left", "scroll_right",
        "fold", "output", "overview", "machines", "heat", "time", "table", "episodes",
        "fleet_episodes", "neighbours", "next_view", "previous_view",
    ),
    "time": (
        "pause", "slower", "faster", "step_back", "step_on", "leap_back", "leap_on", "begin",
        "finish", "jump", "next_episode", "previous_episode", "report", "why", "try", "narrower",
        "wider", "align", "range_start", "range_end", "hold", "longer", "shorter", "usual",
    ),
    "find": (
        "filter", "clear", "sort", "sort_next", "sort_before", "order", "reverse",
        "metric", "metric_back", "columns", "units", "owners",
    ),
    "keep": ("mark", "record"),
    "perftop": ("help", "palette", "theme", "redraw", "suspend", "quit", "interrupt"),
}  # fmt: skip
"""Ids of the keys of all views by purpose, in the order of the help."""
VIEW_ORDER = ("overview", "heat", "time", "table", "episodes", "neighbours")
"""The views, in the order in which Tab cycles through them and the last line lists them."""
SORTABLE_VIEWS = frozenset({"overview", "heat", "time", "table"})
"""The views whose rows or cells are CPUs or cores, which the user can order."""
NO_KEY = "none"
"""The keymap entry for an action without a key; no key has this name."""
_MODIFIERS = frozenset({"alt", "ctrl", "hyper", "meta", "shift", "super"})


def textual_name(key: str) -> str | None:
    """Returns Textual's name of a key, such as question_mark for `?`; None for an unknown key."""
    from textual.keys import Keys, _character_to_key, format_key

    *modifiers, key_name = [key] if len(key) == 1 else key.lower().split("+")
    known_names = {textual_key.value.rpartition("+")[2] for textual_key in Keys} - {"return"}
    if not _MODIFIERS.issuperset(modifiers):
        return None
    if len(key_name) == 1 or key_name not in known_names or not key_name.isalnum():
        sign = key_name if len(key_name) == 1 else format_key(key_name)
        if len(sign) != 1 or not sign.isprintable() or modifiers == ["shift"]:
            return None
        name = _character_to_key(sign)
        if key_name not in {name, sign}:
            return None
        key_name = name
    return "+".join([*sorted(set(modifiers)), key_name])


def key_clashes(keymap: Mapping[str, str]) -> Iterator[tuple[str, Key, Key]]:
    """Yields the name of each key with two actions in one view, and both entries in KEYS."""
    views = [[key for key in KEYS if key.scope in scopes] for scopes in SCOPES_BY_VIEW.values()]
    screens = FLEET_KEYS, PAIR_KEYS
    views += [[k for k in KEYS if k.scope == "app" or k.id in ids] for ids in screens]
    for view in views:
        entry_by_key: dict[str, Key] = {}
        for key in view:
            for name in keymap.get(key.id, key.keys).split(","):
                owner = entry_by_key.setdefault(name, key)
                if owner.action != key.action and name != NO_KEY:
                    yield name, owner, key
