"""The config file: its settings, and messages about invalid ones."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import pytest
from command import run
from fakes import AnyProbe, Machine
from fleets import Made, small
from hypothesis import example, given
from hypothesis import strategies as st
from played_apps import running_app
from waiting import until_true

from perftop import cli
from perftop.base.errors import Failed
from perftop.tui import config
from perftop.tui.app import PerfTopApp
from perftop.tui.config import Config
from perftop.tui.fleet_screen import FleetSource
from perftop.tui.shared import keys
from perftop.tui.stream import LiveSource


def messages_about(text: str | bytes) -> list[str]:
    """Returns the messages about a file with this text."""
    with pytest.raises(Failed) as caught:
        config.parse_config(text if isinstance(text, bytes) else text.encode(), "c.toml")
    assert caught.value.status == 2
    return caught.value.lines


def read(text: str) -> Config:
    return config.parse_config(text.encode(), "c.toml")


# --- valid files


def test_the_default_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(config.default_text(), encoding="utf-8")
    assert config.load(path) == Config()


def test_the_default_file_has_all_settings() -> None:
    document = tomllib.loads(config.default_text())
    assert {"theme", "units", "columns", "keys"} == set(document)
    assert document["keys"] == {key.id: key.keys for key in keys.KEYS}


def test_settings_are_applied() -> None:
    text = """
        theme = "perftop-light"
        units = "MHz"
        columns = ["ipc", "util"]
        [keys]
        quit = "Q, ctrl+X"
        help = "?,h"
        order = ""
    """
    chosen_keys = {"quit": "Q,ctrl+x", "help": "question_mark,h", "order": keys.NO_KEY}
    assert read(text) == Config("perftop-light", "MHz", ("ipc", "util"), chosen_keys)


def test_an_empty_file_is_valid() -> None:
    assert read("") == read("\ufeff# nothing\r\n") == Config()


# --- path


def test_the_default_path_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert config.load(None) == Config()
    for base, units in (("xdg", "MHz"), ("home/.config", "base")):
        path = tmp_path / base / "perftop" / "config.toml"
        path.parent.mkdir(parents=True)
        path.write_text(f'units = "{units}"', encoding="utf-8")
    assert config.load(None).units == "MHz"
    for ignored in ("", "xdg"):  # relative paths are ignored
        monkeypatch.setenv("XDG_CONFIG_HOME", ignored)
        assert config.load(None).units == "base"


def test_a_pipe_at_the_default_path_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "perftop").mkdir()
    os.mkfifo(tmp_path / "perftop" / "config.toml")
    with pytest.raises(Failed, match=r"config\.toml: it is not a file"):
        config.load(None)


def test_a_given_file_must_exist(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(Failed, match=f"cannot read {path}: ") as caught:
            config.load(path)
        assert caught.value.status == 2


def test_a_file_of_unlimited_size_is_refused() -> None:
    with pytest.raises(Failed, match=r"/dev/zero: larger than a megabyte"):
        config.load(Path("/dev/zero"))


# --- invalid files


THEMES = "known: perftop-dark, perftop-light, perftop-safe, perftop-ansi"
COMMA = "a key is missing beside a comma; a comma itself is comma, a space is space"
SHARED = "in the same view: change one of them"


@pytest.mark.parametrize(("text", "line", "message"), [
    ("theme = dark", 1, "Invalid value; text needs quotes around it"),
    ('units = "GHz"\ntheme', 2, "Expected '=' after a key in a key/value pair"),
    ("\n\ncolumns = [", 3, "Invalid value"),
    ('units = "GHz"\nunits = "MHz"', 2, "Cannot overwrite a value"),
    (b"# \xff", 1, "not UTF-8"),
    (b"units = 'GHz'\n# \xe9t\xe9", 2, "not UTF-8"),
    ("a = " + "[" * 9000, None, "lists or tables are nested too deeply"),
    ("a = " + "1" * 9000, None, "a number has too many digits"),
    ('them = "x"', 1, "unknown entry 'them': did you mean theme?"),
    ("[key]\nquit = 'x'", 1, "unknown table 'key': did you mean keys?"),
    ("\n[a.b]\nc = 1", 2, "unknown table 'a'; known: theme, units, columns, keys"),
    ("theme = 'dark'", 1, f"unknown theme 'dark'; {THEMES}"),
    ("theme = ''", 1, f"unknown theme ''; {THEMES}"),
    ("theme = true", 1, 'theme is true or false: it must be a string such as "perftop-dark"'),
    ("units = 'KHz'", 1, "unknown units 'KHz'; known: GHz, MHz, base"),
    ("units = 1979-05-27", 1, 'units is a date or time: it must be a string such as "GHz"'),
    ("columns = 'ipc'", 1, 'columns is a string: it must be a list such as ["util", "ipc"]'),
    ("columns = ['ipc', 'utl']", 1, "unknown column 'utl': did you mean util?"),
    ("columns = [1.5]", 1, 'a column is a number: it must be a string such as "util"'),
    ("keys = 1", 1, "keys is a number: it must be a table, [keys]"),
    ("[keys]\n\nqiut = 'x'", 3, "unknown action 'qiut': did you mean quit?"),
    ("[keys]\nzzz = 'x'", 2, "unknown action 'zzz'; perftop --default-config lists them"),
    ("[keys]\n\"qu\\u0069t\" = ['q']", 1, 'quit is a list: it must be a string such as "q,f10"'),
    ("[keys]\nquit = ['q']", 2, 'quit is a list: it must be a string such as "q,f10"'),
    ("keys.quit = 'esc'", 1, "quit: there is no key 'esc': did you mean escape?"),
    ("keys = {quit = 'x+y'}", 1, "quit: there is no key 'x+y'; try q, Q, f1, ctrl+p"),
    ("[keys]\npause = 'p,,P'", 2, f"pause: {COMMA}"),
    ("[keys]\npause = ' '", 2, f"pause: {COMMA}"),
    ("[keys]\nquit = ''", 2, "quit has no key: it needs one, such as q"),
    ("[keys]\norder = 'x,q'", 2, f"order: q is already a key of quit {SHARED}"),
    ("[keys]\nheat_left = 'left,h'", 2, f"heat_left: h is already a key of help {SHARED}"),
    ("[keys]\nup = '?'", 2, f"up: question_mark is already a key of help {SHARED}"),
])  # fmt: skip
def test_mistakes_are_reported_with_their_line(
    text: str | bytes, line: int | None, message: str
) -> None:
    location = "c.toml" if line is None else f"c.toml:{line}"
    assert messages_about(text) == [f"{location}: {message}"]


def test_all_mistakes_are_reported_in_order() -> None:
    text = '''
        units = 3
        columns = [
            "util",  # theme = 1
            "x",
        ]
        theme = """
[keys]
        """
        [keys]
        quit = ""
        sort = "no such"
        order = "s"
    '''
    drawn = [line.split(": ")[0].split(":")[1] for line in messages_about(text)]
    assert drawn == ["2", "3", "7", "11", "12"]  # the key of order is not reported yet


def test_a_key_may_have_another_action_in_another_view() -> None:
    assert read('[keys]\nheat_worst = "c"').keys == {"heat_worst": "c"}


@given(st.text() | st.binary())
@example("[[keys]]\nquit = 1")
@example("keys = {quit = {a = 1}}")
@example("columns = [[]]")
@example('"" = 1')
def test_a_file_is_read_or_refused_with_a_message(text: str | bytes) -> None:
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    try:
        config.parse_config(raw, "c.toml")
    except Failed as failed:
        assert all(line.startswith("c.toml:") for line in failed.lines)


names = st.sampled_from([key.id for key in keys.KEYS])
pressed = st.sampled_from(
    ["q", "Q", "?", "x", "esc", "escape", "f12", "ctrl+Z", "left", "", " ", "a,b"]
)


@given(st.dictionaries(names, pressed))
def test_accepted_keys_have_one_action_in_each_view(chosen: dict[str, str]) -> None:
    table = "\n".join(f'{name} = "{value}"' for name, value in chosen.items())
    try:
        taken = read("[keys]\n" + table).keys
    except Failed:
        return
    assert set(keys.key_clashes(taken)) <= set(keys.key_clashes({}))
    assert taken.get("quit") != keys.NO_KEY


# --- keys


def test_the_table_of_keys_is_consistent() -> None:
    ids = [key.id for key in keys.KEYS]
    assert len(set(ids)) == len(ids)
    places = {place for view in keys.SCOPES_BY_VIEW.values() for place in view}
    places |= {keys.KEYS_BY_ID[name].scope for name in (*keys.FLEET_KEYS, *keys.PAIR_KEYS)}
    assert {key.scope for key in keys.KEYS} <= places
    for key in keys.KEYS:
        assert [keys.textual_name(name) for name in key.keys.split(",")] == key.keys.split(","), (
            key.id
        )
    hidden = {(owner.id, other.id) for _, owner, other in keys.key_clashes({})}
    assert {owner for owner, _ in hidden} <= {
        "step_back", "step_on", "quit", "range_start", "range_end",
    }, hidden  # fmt: skip


@pytest.mark.parametrize(("key", "name"), [
    ("?", "question_mark"), ("q", "q"), ("Q", "Q"), ("F10", "f10"), ("Ctrl+P", "ctrl+p"),
    ("shift+ctrl+left", "ctrl+shift+left"), ("plus", "plus"), ("+", "plus"), ("é", "é"),
    ("comma", "comma"), (" ", "space"), ("Escape", "escape"),
    *((key, None) for key in ("esc", "", "+a", "a+b", "ctrl+", "shift+a", "return", "<any>", "none",
                              "plus_sign", "\x1b")),
])  # fmt: skip
def test_keys_have_the_names_used_by_textual(key: str, name: str | None) -> None:
    assert keys.textual_name(key) == name


@pytest.mark.parametrize(("key", "text"), [
    ("question_mark", "?"), ("semicolon", ";"), ("f10", "F10"), ("ctrl+p", "ctrl+p"),
    ("shift+left", "shift+←"), ("delete", "delete"), ("watermelon", "watermelon"),
])  # fmt: skip
def test_keys_have_common_captions(key: str, text: str) -> None:
    assert keys.key_caption(key) == text


# --- the app


@pytest.mark.parametrize(("term", "more", "chosen_theme", "expected_theme"), [
    ("linux", {}, "perftop-dark", "perftop-ansi"),
    ("xterm", {}, "perftop-dark", "perftop-ansi"),
    ("xterm", {}, "perftop-light", "perftop-light"),
    ("xterm-256color", {}, "perftop-dark", "perftop-dark"),
    ("xterm", {"COLORTERM": "truecolor"}, "perftop-dark", "perftop-dark"),
    ("xterm", {"NO_COLOR": "1"}, "perftop-dark", "perftop-dark"),
    ("xterm", {"NO_COLOR": "1"}, "perftop-ansi", "perftop-dark"),
])  # fmt: skip
def test_a_terminal_of_16_colours_starts_with_the_ansi_theme(
    term: str,
    more: dict[str, str],
    chosen_theme: str,
    expected_theme: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": term, **more}.items():
        monkeypatch.setenv(name, value)
    config = Config(theme=chosen_theme)
    source = LiveSource(AnyProbe(Machine()).open, 500_000_000)
    assert PerfTopApp(source, config).theme == expected_theme
    assert PerfTopApp(FleetSource(Made(small(), "over ssh")), config).theme == expected_theme


async def test_the_app_uses_the_settings() -> None:
    """Two actions have swapped keys, one has a new key, one has none, and `q` has no action."""
    chosen_keys = {"quit": "x", "pause": "o", "order": "space", "help": keys.NO_KEY}

    async with running_app(
        Machine(), config=Config("perftop-safe", "MHz", keys=chosen_keys)
    ) as run:
        screen = run.monitor
        assert (run.app.theme, screen.settings.units) == ("perftop-safe", "MHz")
        assert run.has("x quit")
        await run.pilot.press("q", "question_mark", "space")
        await until_true(lambda: screen.settings.order == "CPU number", "another order")
        assert run.app.screen is screen
        await run.pilot.press("o")
        await until_true(lambda: run.source.status.paused_at is not None, "a pause")
        await run.pilot.press("x")
        await until_true(lambda: not run.app.is_running, "the end")


# --- the command line


def test_the_default_file_is_printed() -> None:
    result = run("--default-config")
    assert (result.returncode, result.stdout, result.stderr) == (0, config.default_text(), "")


def test_an_invalid_file_ends_the_command_before_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    path = tmp_path / "config.toml"
    path.write_text('theme = "x"\nunits = "y"\n', encoding="utf-8")
    assert cli.main(["--config", str(path), "--source", "none such"]) == 2
    drawn = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0].split(": ") for line in drawn] == [
        ["perftop", f"{path}:1", "unknown theme 'x'"],
        ["perftop", f"{path}:2", "unknown units 'y'"],
    ]


def test_all_keys_of_a_view_are_in_one_group_of_the_help() -> None:
    views = {
        place for name in (*keys.VIEW_ORDER, "core") for place in keys.SCOPES_BY_VIEW[name]
    } | {"fleet", "pair"}
    grouped = [name for group in keys.KEY_GROUPS.values() for name in group]
    assert sorted(grouped) == sorted(key.id for key in keys.KEYS if key.scope in views)
