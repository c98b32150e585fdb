"""The keys of the fleet's screen, and its help."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    id: str
    keys: str
    """By Textual's names, separated by commas."""
    action: str
    caption: str
    label: str
    """In the last line; '' for keys that only the help tells."""
    help: str


KEYS = (
    Key("rows", "1", "view('rows')", "1", "machines", "a row a machine"),
    Key("heat", "2", "view('heat')", "2", "heat", "a cell a machine"),
    Key("time", "3", "view('time')", "3", "time", "a number of each machine over ten minutes"),
    Key("episodes", "4", "view('episodes')", "4", "episodes", "what happened on all machines"),
    Key("open", "enter", "open", "↵", "open", "the selected machine alone; q comes back"),
    Key("why", "w", "why", "w", "why", "what costs the selected machine most, in a dozen lines"),
    Key("next", "n", "next(1)", "n", "next episode", "to the next machine with an episode"),
    Key("filter", "slash", "filter", "/", "filter", "only machines that match; Esc shows all"),
    Key("sort", "s", "sort(1)", "s", "sort", "by the next column; a click on a title does it too"),
    Key("number", "v", "number(1)", "v", "number", "another number in heat map and time view"),
    Key("pause", "space", "pause", "space", "pause", "the screen stands still"),
    Key("help", "question_mark,h,f1", "view('help')", "?", "help", "these lines"),
    Key("quit", "q,f10", "quit", "q", "quit", "quit"),
    Key("up", "up,k", "move(0,-1)", "↑ ↓", "", "select a machine"),
    Key("down", "down,j", "move(0,1)", "", "", ""),
    Key("left", "left,comma", "aside(-1)", "← →", "",
        "back and on in time, where there is a past; in the heat map a cell aside"),
    Key("right", "right,full_stop", "aside(1)", "", "", ""),
    Key("earlier", "shift+left", "travel(-10)", "shift+← →", "", "ten steps back and on in time"),
    Key("later", "shift+right", "travel(10)", "", "", ""),
    Key("now", "end,G", "last", "end", "", "the last machine"),
    Key("first", "home,g", "first", "home", "", "the first machine"),
    Key("page_up", "pageup", "move(0,-20)", "PgUp", "", "twenty machines up; PgDn down"),
    Key("page_down", "pagedown", "move(0,20)", "", "", ""),
    Key("sort_back", "S", "sort(-1)", "", "", ""),
    Key("number_back", "V", "number(-1)", "", "", ""),
    Key("previous", "N", "next(-1)", "", "", ""),
    Key("reverse", "r", "reverse", "r", "", "reverse the order"),
    Key("theme", "T", "theme", "T", "", "next theme"),
    Key("back", "escape", "back", "esc", "", "back: from a prompt, a filter, the help"),
)  # fmt: skip
HELP = (
    *((key.caption, key.help) for key in KEYS if key.help),
    ("", ""),
    ("lost %", "share of the time that working CPUs did not get: clock, halts, steal"),
    ("below %", "share of the working time with a clock below its ceiling"),
    ("both %", "share of the time in which both threads of a core ran"),
    ("inv %", "halted although there was work"),
    ("▼ ≁", "episodes that run; samples in which a counter was doubted"),
    ("age s", "since the newest numbers came; all times are of their arrival here"),
    ("○", "does not answer, and why"),
    ("numbers", "cover ten seconds, or what the server was asked for"),
)
